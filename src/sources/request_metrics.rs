//! Counters of requests to CouchDB, from the client's reports.

use couchdb_client::{ErrorKind, Observer, Route, status_label};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry,
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Counters of requests to CouchDB.
///
/// Both labels are closed sets whose concatenations differ, because the `prometheus` crate joins label
/// values without a separator to look up a child.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    requests: IntCounterVec,
    durations: HistogramVec,
    /// The series of successful shard reads, which are almost all requests. They are looked up once,
    /// after the first such read, because a lookup creates the series.
    shard_reads: Arc<OnceLock<(IntCounter, Histogram)>>,
}

/// A warm shard takes 2 ms, a cold one an fsync, a busy design document 5 s, and the default timeout is
/// 30 s. Each bucket is a series for every route; ten buckets would be a quarter of a small cluster's
/// scrape, so there are no more than these.
const BUCKETS: [f64; 6] = [0.005, 0.025, 0.1, 1.0, 5.0, 30.0];

/// The label of [`Route::Shard`].
const SHARD: &str = "shard";

/// The label of HTTP 200.
const OK: &str = status_label(200);

impl RequestMetrics {
    /// Creates and registers the families, with a zero for each route's success and for each common
    /// connection failure.
    ///
    /// # Errors
    /// If the registry already has families with these names.
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
            for code in [OK, ErrorKind::Timeout.label(), ErrorKind::Connect.label()] {
                requests.with_label_values(&[route, code]);
            }
        }
        Ok(Self { requests, durations, shard_reads: Arc::default() })
    }
}

impl Observer for RequestMetrics {
    fn request_ended(&self, route: &'static str, code: &'static str, took: Duration) {
        if route == SHARD && code == OK {
            let (requests, durations) = self.shard_reads.get_or_init(|| {
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

    #[test]
    fn families_are_registered_once_and_start_at_zero() {
        let registry = Registry::new();
        let metrics = RequestMetrics::register(&registry).unwrap();
        assert!(RequestMetrics::register(&registry).is_err());
        assert_eq!(metrics.requests.with_label_values(&["shard", "200"]).get(), 0);
        metrics.request_ended("shard", OK, Duration::from_millis(2));
        assert_eq!(metrics.requests.with_label_values(&["shard", "200"]).get(), 1);
    }
}
