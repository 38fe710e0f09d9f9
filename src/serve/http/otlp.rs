//! Pushes the metrics over OTLP, for those whose monitoring does not scrape.
//!
//! A push is a scrape that recliner sends itself, piece by piece, no faster than the receiver takes it: a hundred
//! thousand series are never in memory at once. What a receiver did not take is not kept: the next push says more.

use super::{
    compression::gzip,
    metrics::{
        Scrape,
        program::{OTLP_FAILURES, OTLP_LAST_SUCCESS},
    },
    state::AppState,
};
use crate::{model::settings::otlp::OtlpSettings, sources::fetch, tasks::unwrap_join};
use metrics_text::{Encoding, Family, OtlpEncoder, OtlpOrigin, TextFormat};
use prometheus::{IntCounterVec, IntGaugeVec, Opts, Registry};
use reqwest::{
    Client,
    header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderValue},
};
use std::{future, path::PathBuf, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// The most values of a request, some 300 KiB. Receivers limit requests to some megabytes.
const MAX_POINTS: usize = 1_000;

/// Time for a receiver to answer a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The most of an answer that is read.
const MAX_ANSWER: usize = 64 << 10;

/// The largest file with a login. Tokens that carry claims have some kilobytes.
const MAX_AUTHORIZATION: u64 = 64 << 10;

/// The most letters of an answer that are shown.
const MAX_SHOWN: usize = 200;

/// The name of the service, which alerts expect as job.
const SERVICE: &str = "recliner";

/// The `up` that Prometheus adds to a scrape; the alerts about a missing recliner query it.
const UP: &str = "# HELP up 1 with each push, as a scrape records it.\n# TYPE up gauge\nup 1\n";

/// How pushes end. Without a sample while nothing is pushed.
#[derive(Clone, Debug)]
pub struct OtlpMetrics {
    last_success: IntGaugeVec,
    failures: IntCounterVec,
}

impl OtlpMetrics {
    /// Creates and registers the families.
    ///
    /// # Errors
    /// If the registry already has families with these names.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let options = |family: &Family<0>| Opts::new(family.name, family.help);
        let metrics = Self {
            last_success: IntGaugeVec::new(options(&OTLP_LAST_SUCCESS), &[])?,
            failures: IntCounterVec::new(options(&OTLP_FAILURES), &[])?,
        };
        registry.register(Box::new(metrics.last_success.clone()))?;
        registry.register(Box::new(metrics.failures.clone()))?;
        Ok(metrics)
    }
}

/// The source of pushed metrics, and their labels.
#[derive(Debug)]
pub struct OtlpPush {
    /// The state that the metrics show.
    pub state: AppState,
    /// How pushes end.
    pub metrics: OtlpMetrics,
    /// Where they go.
    pub settings: watch::Receiver<OtlpSettings>,
    /// The value of the label `instance`.
    pub instance: String,
    /// The start of the process, from which counters count.
    pub started: Moment,
}

impl OtlpPush {
    /// Pushes the metrics at each interval until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let mut settings = self.settings.clone();
        loop {
            let current = settings.borrow_and_update().clone();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = settings.changed() => if changed.is_err() { return },
                () = self.push_each(&current) => {}
            }
        }
    }

    /// Pushes with these settings, forever.
    async fn push_each(&self, settings: &OtlpSettings) {
        let Some(url) = &settings.url else { return future::pending().await };
        let client = fetch::client(TIMEOUT).map_err(fetch::describe);
        let failures = self.metrics.failures.with_label_values::<&str>(&[]);
        let mut tick = time::interval(settings.interval);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            tick.tick().await;
            let pushed = match &client {
                Ok(client) => self.push(client, settings, url.as_str()).await,
                Err(why) => Err(why.clone()),
            };
            if pushed.is_ok() {
                let now = i64::try_from(self.state.clock.now().unix()).unwrap_or(i64::MAX);
                self.metrics.last_success.with_label_values::<&str>(&[]).set(now);
            } else {
                failures.inc();
            }
            if last.as_ref() != Some(&pushed) {
                match &pushed {
                    Ok(()) => tracing::info!(%url, "metrics are pushed over OTLP"),
                    Err(why) => {
                        tracing::warn!(%url, why, "the OTLP receiver did not accept the metrics")
                    }
                }
            }
            last = Some(pushed);
        }
    }

    /// Pushes all metrics once.
    async fn push(
        &self,
        client: &Client,
        settings: &OtlpSettings,
        url: &str,
    ) -> Result<(), String> {
        let receiver = Receiver::of(client, settings, url).await?;
        let mut encoder = OtlpEncoder::new(self.origin(settings), MAX_POINTS);
        let (sender, mut pieces) = mpsc::channel(1);
        let scrape = Scrape::of(&self.state);
        let rendering = tokio::task::spawn_blocking(move || {
            let sink = Box::new(move |piece| sender.blocking_send(piece).is_ok());
            scrape.render(TextFormat::Text, Encoding::Identity, sink)
        });
        encoder.push(UP);
        while let Some(piece) = pieces.recv().await {
            for body in encoder.push(&String::from_utf8_lossy(&piece)) {
                receiver.send(&body).await?;
            }
        }
        let _all_taken = unwrap_join(rendering.await);
        match encoder.take() {
            Some(rest) => receiver.send(&rest).await,
            None => Ok(()),
        }
    }

    fn origin(&self, settings: &OtlpSettings) -> OtlpOrigin {
        let resource = [
            ("service.name", SERVICE),
            ("service.instance.id", &self.instance),
            ("service.version", self.state.about.version),
        ];
        // Not every receiver makes labels of the resource's attributes.
        let cluster = settings.cluster.iter().map(|cluster| ("cluster", &**cluster));
        let labels = cluster.chain([("instance", &*self.instance), ("job", SERVICE)]);
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        OtlpOrigin {
            resource: resource.map(owned).to_vec(),
            labels: labels.map(owned).collect(),
            started: self.started,
            at: self.state.clock.now(),
        }
    }
}

/// The receiver of a push.
struct Receiver<'a> {
    client: &'a Client,
    url: &'a str,
    authorization: Option<HeaderValue>,
}

impl<'a> Receiver<'a> {
    async fn of(client: &'a Client, settings: &OtlpSettings, url: &'a str) -> Result<Self, String> {
        let authorization = match &settings.authorization_file {
            Some(path) => Some(read_authorization(path.clone()).await?),
            None => None,
        };
        Ok(Self { client, url, authorization })
    }

    async fn send(&self, body: &[u8]) -> Result<(), String> {
        let mut request = self
            .client
            .post(self.url)
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(CONTENT_ENCODING, "gzip")
            .body(gzip(body).map_err(|why| why.to_string())?);
        if let Some(value) = &self.authorization {
            request = request.header(AUTHORIZATION, value);
        }
        let answer = request.send().await.map_err(fetch::describe)?;
        let status = answer.status();
        let body = fetch::read_body(answer, MAX_ANSWER).await?;
        if !status.is_success() {
            return Err(format!(
                "it answered {status}: {}",
                shown(&String::from_utf8_lossy(&body))
            ));
        }
        metrics_text::otlp_rejection(&body).map_or(Ok(()), |(count, why)| {
            Err(format!("it rejected {count} values: {}", shown(&why)))
        })
    }
}

/// The beginning of a receiver's answer, on one line.
fn shown(answer: &str) -> String {
    let letters = answer.chars().take(MAX_SHOWN);
    letters.map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

async fn read_authorization(path: PathBuf) -> Result<HeaderValue, String> {
    let shown = format!("otlp.authorization_file: {}", path.display());
    let read = move || named_file::read_secret(&path, MAX_AUTHORIZATION);
    let read = unwrap_join(tokio::task::spawn_blocking(read).await);
    let text = read
        .unwrap_or_else(|| Err("recliner is stopping".to_owned()))
        .map_err(|why| format!("{shown} cannot be read: {why}"))?;
    let mut value = HeaderValue::from_str(text.trim())
        .map_err(|_| format!("{shown} is not one line of text"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests;
