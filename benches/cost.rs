//! The cost of one sweep of `recliner scan` for a real CouchDB of one node, paced and unpaced.
//!
//! ```text
//! RECLINER_TEST_COUCHDB_URL=http://admin:password@127.0.0.1:5984 \
//!   RECLINER_TEST_COUCHDB_PID=$(pgrep beam.smp) cargo bench --bench cost
//! ```
//!
//! Three rounds of a default `scan` and one with `--no-pace`, each followed by an equally long time
//! without a scan. The server's CPU time comes from `/proc`, so it has to run on this machine;
//! `/_up` is requested five times a second all the while. Without the variables the bench says so
//! and does nothing.

mod couch;
mod measured;

use couch::{Couch, median};
use measured::{Failure, cpu, say};
use std::{env, path::PathBuf, pin::pin, time::Duration};
use tokio::{
    task,
    time::{self, Instant, MissedTickBehavior},
};

const ROUNDS: usize = 3;
const PROBE_EVERY: Duration = Duration::from_millis(200);
/// The minimum time for which idle CPU is measured.
const IDLE: Duration = Duration::from_secs(20);

struct Server {
    couch: Couch,
    http: reqwest::Client,
    stat: String,
}

/// The cost for the server during some time.
struct Cost {
    took: Duration,
    cpu: f64,
    requests: u64,
    fsyncs: u64,
    /// Durations of the requests to `/_up`, in milliseconds.
    probes: Vec<f64>,
}

impl Cost {
    fn probe(&self, percent: usize) -> f64 {
        let mut probes = self.probes.clone();
        probes.sort_by(f64::total_cmp);
        let at = probes.len().saturating_sub(1) * percent / 100;
        probes.get(at).copied().unwrap_or(f64::NAN)
    }
}

impl Server {
    /// CouchDB's own counts of requests and of fsyncs. A request that it forwards to a node counts
    /// twice.
    async fn counted(&self) -> Result<[u64; 2], Failure> {
        let request = self.http.get(format!("{}/_node/_local/_stats", self.couch.base));
        let request = request.basic_auth(&self.couch.user, Some(&self.couch.password));
        let text = request.send().await?.error_for_status()?.text().await?;
        let stats: serde_json::Value = serde_json::from_str(&text)?;
        let count = |at: &str| {
            let count = stats.pointer(at).and_then(serde_json::Value::as_u64);
            count.ok_or_else(|| Failure::from(format!("_stats has no {at}")))
        };
        Ok([count("/couchdb/httpd/requests/value")?, count("/fsync/count/value")?])
    }

    async fn probe(&self) -> Result<f64, Failure> {
        let start = Instant::now();
        let answer = self.http.get(format!("{}/_up", self.couch.base)).send().await?;
        answer.error_for_status()?.bytes().await?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    async fn during(
        &self,
        work: impl Future<Output = Result<(), Failure>>,
    ) -> Result<Cost, Failure> {
        let used = || cpu(&self.stat, 11);
        let [requests, fsyncs] = self.counted().await?;
        let (before, start, mut probes) = (used()?, Instant::now(), vec![]);
        let mut work = pin!(work);
        let mut ticks = time::interval(PROBE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                biased;
                ended = &mut work => break ended?,
                _ = ticks.tick() => probes.push(self.probe().await?),
            }
        }
        let (took, cpu) = (start.elapsed(), used()? - before);
        let [asked, synced] = self.counted().await?;
        // Excludes the probes and the request for the counts itself.
        let requests = (asked - requests).saturating_sub(probes.len() as u64 + 1);
        Ok(Cost { took, cpu, requests, fsyncs: synced - fsyncs, probes })
    }

    /// One sweep and an equally long idle time; returns the CPU time of the sweep beyond that of
    /// idling.
    async fn round(&self, config: PathBuf, more: &'static [&str]) -> Result<f64, Failure> {
        let scan = task::spawn_blocking(move || couch::scan(&config, more).map(drop));
        let sweep = self.during(async { scan.await? }).await?;
        let rest = sweep.took.max(IDLE);
        let nothing = async {
            time::sleep(rest).await;
            Ok(())
        };
        let idle = self.during(nothing).await?;
        let net = sweep.cpu - idle.cpu / idle.took.as_secs_f64() * sweep.took.as_secs_f64();
        say(&format!(
            "scan {}: {net:.1} s of CPU in {:.1} s, {} requests, {} fsyncs; /_up median {:.1} ms, 99 % {:.1} ms; without {:.1} ms, {:.1} ms",
            more.join(" "),
            sweep.took.as_secs_f64(),
            sweep.requests,
            sweep.fsyncs,
            sweep.probe(50),
            sweep.probe(99),
            idle.probe(50),
            idle.probe(99),
        ))?;
        Ok(net)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let Some(couch) = Couch::named("cost")? else { return Ok(()) };
    let Ok(pid) = env::var("RECLINER_TEST_COUCHDB_PID") else {
        return say("cost: skipped, RECLINER_TEST_COUCHDB_PID is not set");
    };
    let config = couch.config("", "")?;
    let server = Server { couch, http: reqwest::Client::new(), stat: format!("/proc/{pid}/stat") };
    for more in [&[][..], &["--no-pace"]] {
        let mut costs = vec![];
        for _ in 0..ROUNDS {
            costs.push(server.round(config.clone(), more).await?);
        }
        say(&format!("scan {}: median {:.1} s of CPU", more.join(" "), median(costs)))?;
    }
    Ok(())
}
