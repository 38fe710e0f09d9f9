//! What the client counts about its own requests.

use super::{Kind, Route};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Counters of requests to CouchDB.
///
/// Both labels are closed sets whose concatenations differ, because the `prometheus`
/// crate joins label values without a separator when it looks up a child.
#[derive(Clone, Debug)]
pub struct Metrics {
    requests: IntCounterVec,
    durations: HistogramVec,
    /// What almost every request adds to, looked up by label once; not before there is
    /// something to add, because that makes the series.
    shards: Arc<OnceLock<(IntCounter, Histogram)>>,
}

/// A warm shard takes 2 ms, a cold one an fsync, a busy design document 5 s, and the
/// default timeout is 30 s. Each bucket is a series for every route, a quarter of a small
/// cluster's scrape were there ten: no more than these.
const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 1.0, 5.0, 30.0];

/// The label of [`Route::Shard`].
const SHARD: &str = Route::Shard { node: "", shard: "" }.label();

/// The label of a status: its number where CouchDB sends it, else its class.
pub(super) const fn code(status: u16) -> &'static str {
    match status {
        200 => "200",
        400 => "400",
        401 => "401",
        403 => "403",
        404 => "404",
        405 => "405",
        406 => "406",
        409 => "409",
        412 => "412",
        413 => "413",
        415 => "415",
        429 => "429",
        500 => "500",
        501 => "501",
        502 => "502",
        503 => "503",
        504 => "504",
        507 => "507",
        100..=199 => "1xx",
        201..=299 => "2xx",
        300..=399 => "3xx",
        402..=499 => "4xx",
        _ => "5xx",
    }
}

impl Metrics {
    /// Makes the families and registers them, with a zero for each route's success and
    /// for each way a connection commonly fails.
    ///
    /// # Errors
    /// When the registry has families of these names already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let requests = IntCounterVec::new(
            Opts::new(
                "recliner_couchdb_requests_total",
                "Requests sent to CouchDB, by route and by the status code or failure that came back.",
            ),
            &["route", "code"],
        )?;
        let durations = HistogramVec::new(
            HistogramOpts::new(
                "recliner_couchdb_request_duration_seconds",
                "Time from sending a request to CouchDB to the end of its answer, in seconds.",
            )
            .buckets(BUCKETS.to_vec()),
            &["route"],
        )?;
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(durations.clone()))?;
        for route in Route::LABELS {
            for code in [code(200), Kind::Timeout.label(), Kind::Connect.label()] {
                requests.with_label_values(&[route, code]);
            }
        }
        Ok(Self { requests, durations, shards: Arc::default() })
    }

    /// Counts one request: `code` is from [`code`] or a [`Kind`].
    pub(super) fn count(&self, route: &'static str, code: &'static str, took: Duration) {
        if route == SHARD && code == self::code(200) {
            let (requests, durations) = self.shards.get_or_init(|| {
                let requests = self.requests.with_label_values(&[route, code]);
                (requests, self.durations.with_label_values(&[route]))
            });
            requests.inc();
            durations.observe(took.as_secs_f64());
            return;
        }
        self.requests.with_label_values(&[route, code]).inc();
        self.durations.with_label_values(&[route]).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_pairs_of_labels_read_the_same_when_joined() {
        let codes: BTreeSet<&str> =
            (100..=599).map(code).chain(Kind::ALL.map(Kind::label)).collect();
        let mut seen = BTreeSet::new();
        for route in Route::LABELS {
            for code in &codes {
                assert!(seen.insert(format!("{route}{code}")), "{route} {code}");
            }
        }
    }

    #[test]
    fn families_are_registered_once_and_start_at_zero() {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        assert!(Metrics::register(&registry).is_err());
        assert_eq!(metrics.requests.with_label_values(&["shard", "200"]).get(), 0);
        metrics.count("shard", code(200), Duration::from_millis(2));
        assert_eq!(metrics.requests.with_label_values(&["shard", "200"]).get(), 1);
    }
}
