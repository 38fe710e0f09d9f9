//! The speed at which `recliner scan` reads the shards of a real CouchDB, compared with `wrk` on
//! the same URLs.
//!
//! ```text
//! RECLINER_TEST_COUCHDB_URL=http://admin:password@127.0.0.1:5984 cargo bench --bench scan
//! ```
//!
//! Five rounds, `wrk` and `scan` in turn, with the same number of connections; `wrk` has to be
//! installed. Without the variable the bench says so and does nothing. CPU time is that of the
//! whole `scan` process, including its start and its output; the first of its two rates includes
//! them too. The second rate covers the shards alone, without the login, which takes CouchDB a
//! tenth of a second or more to check, and the shard map. `wrk` sends and receives the same without
//! parsing it, so its own CPU time shows how fast the machine was meanwhile.

mod couch;
mod measured;

use couch::{Couch, median};
use measured::{Failure, cpu, say};
use std::{fmt::Write as _, path::Path, process::Command, time::Duration};
use tokio::time::Instant;

const CONNECTIONS: usize = 8;
const ROUNDS: usize = 5;
const WRK_SECONDS: u64 = 5;

/// The results of one round of `scan`.
struct Round {
    shards: usize,
    took: Duration,
    /// Seconds spent reading the shards.
    reading: f64,
    cpu: f64,
}

/// The paths of the files on the node that answers.
async fn paths(couch: &Couch) -> Result<Vec<String>, Failure> {
    let Couch { base, user, password, .. } = couch;
    let client = reqwest::Client::new();
    let get = |path: String| {
        let request = client.get(format!("{base}{path}")).basic_auth(user, Some(password));
        async move { request.send().await?.error_for_status()?.bytes().await }
    };
    let name: serde_json::Value = serde_json::from_slice(&get("/_node/_local".into()).await?)?;
    let name = name.get("name").and_then(|name| name.as_str()).ok_or("the node has no name")?;
    let names: Vec<String> =
        serde_json::from_slice(&get(format!("/_node/{name}/_all_dbs")).await?)?;
    let plain = percent_encoding::NON_ALPHANUMERIC;
    let encoded = |name: &String| percent_encoding::utf8_percent_encode(name, plain).to_string();
    Ok(names.iter().map(|file| format!("/_node/{name}/{}", encoded(file))).collect())
}

fn lua(paths: &[String], authorization: &str) -> Result<String, Failure> {
    let mut script = String::from("local p = {\n");
    for path in paths {
        writeln!(script, "{path:?},")?;
    }
    writeln!(script, "}}\nlocal i = 0\nlocal h = {{Authorization = {authorization:?}}}")?;
    script.push_str("function request() i = i % #p + 1; return wrk.format('GET', p[i], h) end\n");
    Ok(script)
}

/// The CPU time of the children that have ended, in seconds.
fn children_cpu() -> Result<f64, Failure> {
    cpu("/proc/self/stat", 13)
}

/// Requests per second, and the CPU seconds per request.
fn wrk(base: &str, script: &Path) -> Result<(f64, f64), Failure> {
    let before = children_cpu()?;
    let out = Command::new("wrk")
        .args(["-t1", &format!("-c{CONNECTIONS}"), &format!("-d{WRK_SECONDS}s"), "-s"])
        .arg(script)
        .arg(base)
        .output()
        .map_err(|why| format!("cannot run wrk: {why}"))?;
    let text = String::from_utf8(out.stdout)?;
    if text.contains("Non-2xx") {
        return Err(format!("wrk was refused: {text}").into());
    }
    let rate = text.lines().find_map(|line| line.trim().strip_prefix("Requests/sec:"));
    let rate: f64 = rate.ok_or_else(|| format!("wrk said: {text}"))?.trim().parse()?;
    Ok((rate, (children_cpu()? - before) / (rate * WRK_SECONDS as f64)))
}

fn scan(config: &Path, shards: usize) -> Result<Round, Failure> {
    let (before, start) = (children_cpu()?, Instant::now());
    let log = couch::scan(config, &["--no-pace"])?;
    let (took, cpu) = (start.elapsed(), children_cpu()? - before);
    let line = log.lines().find(|line| line.contains("stage=shards"));
    let seconds = line.and_then(|line| line.split("seconds=").nth(1)?.split(' ').next());
    let reading = seconds.ok_or("the log does not say how long shards were read")?.parse()?;
    Ok(Round { shards, took, reading, cpu })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let Some(couch) = Couch::named("scan")? else { return Ok(()) };
    let paths = paths(&couch).await?;
    let login = base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        format!("{}:{}", couch.user, couch.password),
    );
    let script = couch.file("urls.lua", &lua(&paths, &format!("Basic {login}"))?)?;
    let config = couch.config(
        &format!(", requests_in_flight: {CONNECTIONS}, cold_reads_per_second: off"),
        "scan: {views: off}\n",
    )?;
    say(&format!("{} files, {CONNECTIONS} connections", paths.len()))?;
    let (mut wrk_rates, mut wrk_costs) = (vec![], vec![]);
    let (mut rates, mut costs) = (vec![], vec![]);
    let (mut ratios, mut shards_alone) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let (wrk_rate, wrk_cpu) = wrk(&couch.base, &script)?;
        let round = scan(&config, paths.len())?;
        let rate = round.shards as f64 / round.took.as_secs_f64();
        let (wrk_cost, cost) = (wrk_cpu * 1e6, round.cpu / round.shards as f64 * 1e6);
        let alone = round.shards as f64 / round.reading;
        say(&format!(
            "wrk {wrk_rate:.0}/s at {wrk_cost:.0} us of CPU, scan {rate:.0}/s of {} shards, {alone:.0}/s while it reads them, at {cost:.0} us",
            round.shards
        ))?;
        wrk_rates.push(wrk_rate);
        wrk_costs.push(wrk_cost);
        rates.push(rate);
        costs.push(cost);
        ratios.push(rate / wrk_rate);
        shards_alone.push(alone / wrk_rate);
    }
    say(&format!(
        "medians: wrk {:.0}/s at {:.0} us of CPU, scan {:.0}/s at {:.0} us, ratio {:.2}, of the shards alone {:.2}",
        median(wrk_rates),
        median(wrk_costs),
        median(rates),
        median(costs),
        median(ratios),
        median(shards_alone)
    ))
}
