//! Both formats as a whole: golden texts, a strict parser, and promtool.

#[path = "../../../tests/duplicate_series/mod.rs"]
mod duplicate_series;
mod parser;
mod promtool;

use super::*;
use duplicate_series::duplicate_series;
use parser::{ParsedFamily, ParsedSample, parse};
use prometheus::{
    Counter, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounterVec, Opts, Registry,
};
use proptest::prelude::*;
use wall_clock::Moment;

/// Families of every type and unit.
#[expect(unreachable_pub, reason = "the macro declares what is public elsewhere")]
mod f {
    crate::families! {
        BUILD_INFO: Gauge None "recliner_build_info" ["version", "revision"]
            "Always 1, labelled with the version and source revision of this recliner.";
        CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP: Gauge Seconds
            "recliner_config_last_reload_success_timestamp_seconds" []
            "Unix time at which a configuration was last loaded successfully, in seconds.";
        NODE_UP: Gauge None "recliner_node_up" ["node"]
            "1 if the CouchDB node answered when it was last asked, 0 if it did not.";
        SCAN_DURATION: Gauge Seconds "recliner_scan_duration_seconds" ["source"]
            "Time that the last finished scan of this source took, in seconds.";
        SCAN_ERRORS: Counter None "recliner_scan_errors_total" ["node", "reason"]
            "Reads that failed while the node was scanned, by reason.";
        TARGET_FILE_BYTES: Gauge Bytes "recliner_target_file_bytes"
            ["node", "kind", "db", "range", "ddoc", "signature"]
            "Size of the target's file in bytes, for every target of the exported databases.";
        TARGET_ACTIVE_BYTES: Gauge Bytes "recliner_target_active_bytes"
            ["node", "kind", "db", "range", "ddoc", "signature"]
            "Bytes of live data in the target's file, for every target of the exported databases.";
        QUEUE_OLDEST_TIMESTAMP: Gauge Seconds
            "recliner_queue_oldest_timestamp_seconds" ["node", "channel"]
            "Unix time since which the target that waits longest has been queued, in seconds.";
        QUEUE_RATIO_MIN: Gauge Ratio "recliner_queue_ratio_min" ["node", "channel"]
            "Lowest ratio of file to active bytes in the queue of a channel that ranks by ratio.";
        QUEUE_RATIO_MAX: Gauge Ratio "recliner_queue_ratio_max" ["node", "channel"]
            "Highest ratio of file to active bytes in the queue of a channel that ranks by ratio.";
        QUEUE_SLACK_BYTES_MIN: Gauge Bytes "recliner_queue_slack_bytes_min" ["node", "channel"]
            "Lowest difference of file and active bytes in the queue of a channel that ranks by slack.";
    }
}

/// Names that databases and design documents can have, and unexpected ones.
const ODD: [&str; 8] = [
    "",
    "a\"b",
    "a\\b",
    "a\nb",
    "a\\nb",
    "_design/b\u{fc}cher \u{1f6cb}",
    "{x=\"1\"} 2 # {}",
    "\\",
];

/// The written text, without compression.
fn text(writer: Writer) -> String {
    String::from_utf8(writer.finish()).unwrap()
}

fn observed_registry() -> Registry {
    let registry = Registry::new();
    let buckets = vec![0.005, 1.0, 2.5, 86_400.0, 1e6];
    let opts = HistogramOpts::new("recliner_probe_seconds", "Time with \"quotes\", \\ and\nlines.");
    let duration =
        Histogram::with_opts(opts.buckets(buckets).const_label("route", "a\"b")).unwrap();
    for seconds in [0.004, 0.5, 0.5, 2.0, 90_000.0, 2e6] {
        duration.observe(seconds);
    }
    let opts = Opts::new("recliner_calls_total", "Calls.");
    let calls = IntCounterVec::new(opts, &["code"]).unwrap();
    calls.with_label_values(&["200"]).inc_by(3);
    let empty = GaugeVec::new(Opts::new("recliner_empty", "Nothing."), &["node"]).unwrap();
    let odd = Counter::new("recliner_oddly_named", "A counter without the suffix.").unwrap();
    let level = Gauge::new("recliner_level_bytes", "A level.").unwrap();
    level.set(f64::NEG_INFINITY);
    odd.inc();
    registry.register(Box::new(duration)).unwrap();
    registry.register(Box::new(calls)).unwrap();
    registry.register(Box::new(empty)).unwrap();
    registry.register(Box::new(odd)).unwrap();
    registry.register(Box::new(level)).unwrap();
    registry
}

/// A sample of everything: integers and floats, no label and six, odd names, a counter, a family
/// without samples, and families of the registry.
fn specimen(format: TextFormat) -> String {
    let mut writer = Writer::new(format, Encoding::Identity);
    writer.family(&f::BUILD_INFO).sample(&["0.1.0", "803358d"], true);
    writer
        .family(&f::CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP)
        .sample(&[], Moment::from_unix(1_795_222_434));
    writer.family(&f::SCAN_DURATION).sample(&["http"], 12.25);
    let mut errors = writer.family(&f::SCAN_ERRORS);
    errors.sample(&["couchdb@a", "timeout"], 0u64);
    errors.sample(&["couchdb@b", "timeout"], u64::MAX);
    let _ = writer.family(&f::QUEUE_OLDEST_TIMESTAMP);
    let ratio = &f::QUEUE_RATIO_MAX;
    writer.family(ratio).sample(&["couchdb@a", "ratio_dbs"], f64::INFINITY);
    writer.family(&f::QUEUE_SLACK_BYTES_MIN).sample(&["couchdb@a", "slack_dbs"], 536_870_913u64);
    let mut files = writer.family(&f::TARGET_FILE_BYTES);
    for name in ODD {
        files.sample(&["couchdb@a", "db", name, "00000000-7fffffff", "", ""], 1u32);
    }
    let labels = ["_cluster", "view", "db", "", "a\"b", "0f"];
    writer.family(&f::TARGET_ACTIVE_BYTES).sample(&labels, 7usize);
    write_gathered(&mut writer, &observed_registry().gather());
    text(writer)
}

#[test]
fn text_matches_the_golden_file() {
    let golden = include_str!("../tests/data/text-0.0.4.txt");
    assert_eq!(specimen(TextFormat::Text), golden);
}

#[test]
fn openmetrics_matches_the_golden_file() {
    let golden = include_str!("../tests/data/openmetrics-1.0.0.txt");
    assert_eq!(specimen(TextFormat::OpenMetrics), golden);
}

/// All samples of a text, with names and labels.
fn samples(format: TextFormat, text: &str) -> Vec<ParsedSample> {
    parse(format, text).unwrap().into_iter().flat_map(|family| family.samples).collect()
}

#[test]
fn a_series_has_one_name_in_both_formats() {
    let of = |format| samples(format, &specimen(format));
    assert_eq!(of(TextFormat::Text), of(TextFormat::OpenMetrics));
    assert_eq!(of(TextFormat::Text).len(), 27);
}

#[test]
fn no_series_of_the_example_text_is_written_twice() {
    for format in TextFormat::ALL {
        assert_eq!(duplicate_series(&specimen(format)), [""; 0]);
    }
}

#[test]
fn a_family_without_samples_is_omitted() {
    for (format, rest) in [(TextFormat::Text, ""), (TextFormat::OpenMetrics, "# EOF\n")] {
        let mut writer = Writer::new(format, Encoding::Identity);
        let _ = writer.family(&f::NODE_UP);
        let _ = writer.family(&f::NODE_UP);
        write_gathered(&mut writer, &[prometheus::proto::MetricFamily::default()]);
        assert_eq!(text(writer), rest);
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "recliner_node_up was written before")]
fn reopening_a_family_with_samples_panics_in_debug_builds() {
    let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
    writer.family(&f::NODE_UP).sample(&["a"], true);
    let _ = writer.family(&f::NODE_UP);
}

#[test]
fn a_gathered_family_is_never_written_twice() {
    let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
    let registry = observed_registry();
    write_gathered(&mut writer, &registry.gather());
    let once = writer.out.clone();
    write_gathered(&mut writer, &registry.gather());
    assert_eq!(text(writer), once);
}

#[test]
#[cfg(target_os = "linux")]
fn process_metrics_pass_through_both_formats() {
    let registry = Registry::new();
    let process = prometheus::process_collector::ProcessCollector::for_self();
    registry.register(Box::new(process)).unwrap();
    for format in TextFormat::ALL {
        let mut writer = Writer::new(format, Encoding::Identity);
        write_gathered(&mut writer, &registry.gather());
        let families = parse(format, &text(writer)).unwrap();
        assert!(families.iter().any(|family| family.name == "process_resident_memory_bytes"));
    }
}

#[test]
fn label_values_have_no_control_characters() {
    let mut writer = Writer::new(TextFormat::Text, Encoding::Identity);
    writer
        .family(&f::QUEUE_RATIO_MIN)
        .sample(&["a", "\u{1b}[31m\0\t\r\u{7f}\u{9b}x\u{e9}\n"], 1_u64);
    let text = text(writer);
    assert!(text.contains(r#"channel="␛[31m␀␉␍␡�xé\n""#), "{text}");
}

fn shown(text: &str) -> String {
    text.chars().map(escape::visible).collect()
}

fn label_values() -> impl Strategy<Value = Vec<String>> {
    let value =
        prop_oneof![".*", "[\"\\\\\n\0a]*", prop::sample::select(&ODD[..]).prop_map(str::to_owned)];
    prop::collection::vec(value, 1..20)
}

proptest! {
    #[test]
    fn label_values_round_trip(values in label_values(), number in any::<f64>()) {
        for format in TextFormat::ALL {
            let mut writer = Writer::new(format, Encoding::Identity);
            let mut family = writer.family(&f::QUEUE_RATIO_MIN);
            for value in &values {
                family.sample(&["a", value], number);
            }
            let text = text(writer);
            prop_assert_eq!(text.ends_with("\n# EOF\n"), format == TextFormat::OpenMetrics);
            let families = parse(format, &text).map_err(TestCaseError::fail)?;
            let values: Vec<String> = values.iter().map(|value| shown(value)).collect();
            let expected = values.iter().map(|value| {
                let labels = [("node", "a"), ("channel", &**value)];
                ParsedSample::new("recliner_queue_ratio_min", &labels, number)
            });
            let expected = ParsedFamily {
                name: "recliner_queue_ratio_min".to_owned(),
                help: f::QUEUE_RATIO_MIN.help.to_owned(),
                kind: "gauge".to_owned(),
                unit: String::new(),
                samples: expected.collect(),
            };
            prop_assert_eq!(families, vec![expected]);
        }
    }

    #[test]
    fn help_round_trips(help in "(?s).+") {
        prop_assume!(!help.trim().is_empty());
        let gauge = Gauge::new("g", &*help).unwrap();
        let registry = Registry::new();
        registry.register(Box::new(gauge)).unwrap();
        for format in TextFormat::ALL {
            let mut writer = Writer::new(format, Encoding::Identity);
            write_gathered(&mut writer, &registry.gather());
            let families = parse(format, &text(writer)).map_err(TestCaseError::fail)?;
            prop_assert_eq!(&families[0].help, &shown(&help));
        }
    }

    #[test]
    fn histograms_are_cumulative_and_end_at_infinity(observed in prop::collection::vec(0.0..200.0, 1..50)) {
        let opts = HistogramOpts::new("h", "H.").buckets(vec![0.5, 1.0, 50.0]);
        let histogram = Histogram::with_opts(opts).unwrap();
        observed.iter().for_each(|value| histogram.observe(*value));
        let registry = Registry::new();
        registry.register(Box::new(histogram)).unwrap();
        let below = |bound: f64| observed.iter().filter(|value| **value <= bound).count() as f64;
        let bucket = |le: &str, bound| ParsedSample::new("h_bucket", &[("le", le)], below(bound));
        for format in TextFormat::ALL {
            let mut writer = Writer::new(format, Encoding::Identity);
            write_gathered(&mut writer, &registry.gather());
            let found = samples(format, &text(writer));
            let all = observed.len() as f64;
            prop_assert_eq!(&found[..4], &[
                bucket("0.5", 0.5), bucket("1.0", 1.0), bucket("50.0", 50.0), bucket("+Inf", f64::MAX),
            ]);
            prop_assert_eq!(&found[5], &ParsedSample::new("h_count", &[], all));
            prop_assert_eq!(found.len(), 6);
        }
    }
}

#[test]
fn duplicate_series_are_found_in_any_spelling() {
    let text = "# HELP a Things.\n# TYPE a gauge\na 1\na{} 2\na{x=\"1\",y=\"2\"} 1\n\
        a{y=\"2\",x=\"1\",z=\"\"} 1\na{x=\"} \\\" {\",y=\"=\\\"\"} 1\n\
        a{y=\"=\\\"\",x=\"} \\\" {\"} 9\na{x=\"1\",y=\"2\"} 7\n# EOF\n";
    assert_eq!(
        duplicate_series(text),
        ["a{}", "a{x=\"1\",y=\"2\"}", "a{x=\"} \\\" {\",y=\"=\\\"\"}", "a{x=\"1\",y=\"2\"}"]
    );
}

#[test]
fn different_series_are_not_reported_as_duplicates() {
    let text = "a 1\nb 1\na{x=\"1\"} 1\na{x=\"2\"} 1\na{y=\"1\"} 1\na{x=\"ab\",y=\"c\"} 1\n\
        a{x=\"a\",y=\"bc\"} 1\na{x=\"a\\\\\",y=\"b\"} 1\na{x=\"a\\\\\\\",y=\\\"b\"} 1\n";
    assert_eq!(duplicate_series(text), [""; 0]);
}
