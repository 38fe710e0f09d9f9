//! A push carries the same values as a scrape.

use super::*;
use crate::{Encoding, TextFormat, Writer};
use prometheus::{Histogram as Observed, HistogramOpts, Registry};
use proptest::prelude::*;

#[expect(unreachable_pub, dead_code, reason = "the macro declares what is public elsewhere")]
mod f {
    crate::families! {
        NODE_UP: Gauge None "recliner_node_up" ["node"] "1 if the node answered.";
        SCAN_ERRORS: Counter None "recliner_scan_errors_total" ["node", "reason"] "Reads that failed.";
    }
}

/// Label values with letters that the text format escapes or that have a meaning in it; other control characters are
/// missing, because the format replaces them.
const LETTERS: &str = "[a\u{fc}\"\\\\{}=,# \n]{0,6}";

const STARTED: u64 = 1_000_000_000_000;
const AT: u64 = 2_000_000_000_000;

fn requests(text: &str, max_points: usize) -> Vec<Request> {
    let pair = |key: &str, value: &str| vec![(key.to_owned(), value.to_owned())];
    let origin = OtlpOrigin {
        resource: pair("service.name", "recliner"),
        labels: pair("cluster", "prod"),
        started: Moment::from_unix(1_000),
        at: Moment::from_unix(2_000),
    };
    let mut encoder = OtlpEncoder::new(origin, max_points);
    let mut bodies = encoder.push(text);
    bodies.extend(encoder.take());
    bodies.iter().map(|body| Request::decode(&**body).unwrap()).collect()
}

fn metrics(request: &Request) -> &[Metric] {
    let [ResourceMetrics { scope_metrics, .. }] = &request.resource_metrics[..] else { panic!() };
    &scope_metrics[0].metrics
}

/// The attributes of a point of the cluster prod: that label and its own.
fn labels(own: &[(&str, &str)]) -> Vec<Attribute> {
    let all = [&[("cluster", "prod")], own].concat();
    all.into_iter().map(|(key, value)| Attribute::new(key, value.to_owned())).collect()
}

fn point(own: &[(&str, &str)], started: u64, value: f64) -> NumberPoint {
    NumberPoint {
        attributes: labels(own),
        start_time_unix_nano: started,
        time_unix_nano: AT,
        as_double: Some(value),
    }
}

fn metric(name: &str, description: &str, data: Data) -> Metric {
    Metric { name: name.to_owned(), description: description.to_owned(), data: Some(data) }
}

#[test]
fn gauges_counters_and_histograms_keep_names_labels_and_values() {
    let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
    writer.write(&f::NODE_UP, [(["a"], 0.0), (["b\"\\\n"], f64::INFINITY)]);
    writer.write(&f::SCAN_ERRORS, [(["a", "timeout"], 3_u64)]);
    let registry = Registry::new();
    let options = HistogramOpts::new("recliner_took_seconds", "Time.").buckets(vec![0.5, 2.0]);
    let took = Observed::with_opts(options).unwrap();
    registry.register(Box::new(took.clone())).unwrap();
    [0.25, 0.25, 1.0, 7.0].into_iter().for_each(|value| took.observe(value));
    crate::write_gathered(&mut writer, &registry.gather());
    let text = String::from_utf8(writer.finish()).unwrap();
    let requests = requests(&text, 100);
    let [request] = &requests[..] else { panic!("{requests:?}") };
    let resource = request.resource_metrics[0].resource.as_ref().unwrap();
    assert_eq!(resource.attributes, [Attribute::new("service.name", "recliner".to_owned())]);
    let up = vec![point(&[("node", "a")], 0, 0.0), point(&[("node", "b\"\\\n")], 0, f64::INFINITY)];
    let errors = vec![point(&[("node", "a"), ("reason", "timeout")], STARTED, 3.0)];
    let took = HistogramPoint {
        attributes: labels(&[]),
        start_time_unix_nano: STARTED,
        time_unix_nano: AT,
        count: 4,
        sum: Some(8.5),
        bucket_counts: vec![2, 1, 1],
        explicit_bounds: vec![0.5, 2.0],
    };
    let sum = |data_points| Sum { data_points, aggregation_temporality: 2, is_monotonic: true };
    let histogram = Histogram { data_points: vec![took], aggregation_temporality: 2 };
    assert_eq!(
        metrics(request),
        [
            metric(
                "recliner_node_up",
                "1 if the node answered.",
                Data::Gauge(Gauge { data_points: up })
            ),
            metric("recliner_scan_errors_total", "Reads that failed.", Data::Sum(sum(errors))),
            metric("recliner_took_seconds", "Time.", Data::Histogram(histogram)),
        ]
    );
}

#[test]
fn text_without_samples_sends_no_request() {
    assert_eq!(requests("", 1), []);
    assert_eq!(requests("# HELP a b\n# TYPE a gauge\n\n{\nx{a=\"\n", 1), []);
}

proptest! {
    /// Each series is in exactly one request, regardless of how the text is divided.
    #[test]
    fn every_series_is_sent_once(
        series in prop::collection::btree_map((LETTERS, LETTERS), any::<u32>(), 0..40),
        max_points in 1_usize..50,
    ) {
        let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
        let samples = series.iter().map(|((node, reason), &value)| ([&**node, &**reason], value));
        writer.write(&f::SCAN_ERRORS, samples);
        let text = String::from_utf8(writer.finish()).unwrap();
        let requests = requests(&text, max_points);
        prop_assert_eq!(requests.len(), series.len().div_ceil(max_points));
        let mut sent = Vec::new();
        for metric in requests.iter().flat_map(metrics) {
            let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
            sent.extend(sum.data_points.iter().cloned());
        }
        let expected = series.iter().map(|((node, reason), &value)| {
            point(&[("node", node), ("reason", reason)], STARTED, f64::from(value))
        });
        prop_assert_eq!(sent, expected.collect::<Vec<_>>());
    }
}
