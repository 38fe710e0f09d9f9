//! The names that an expression may use: every series that recliner exports, with its labels.
//!
//! They come from the families that the book's table lists; a test compares them with a running
//! demo's `/metrics`.

#[path = "../../duplicate_series/mod.rs"]
mod duplicate_series;

use super::{
    demo::Demo,
    tools::{self, PROMTOOL},
};
use duplicate_series::duplicate_series;
use metrics_text::{FamilyDescription, MetricType};
use recliner::serve::http::families;
use std::collections::{BTreeMap, BTreeSet};

/// Labels that Prometheus adds to every series when it scrapes.
pub(crate) const OF_THE_SCRAPE: [&str; 4] = ["cluster", "job", "instance", "exported_node"];

/// The process's own metrics, without labels.
const OF_THE_PROCESS: [(&str, MetricType); 7] = [
    ("process_cpu_seconds_total", MetricType::Counter),
    ("process_max_fds", MetricType::Gauge),
    ("process_open_fds", MetricType::Gauge),
    ("process_resident_memory_bytes", MetricType::Gauge),
    ("process_start_time_seconds", MetricType::Gauge),
    ("process_threads", MetricType::Gauge),
    ("process_virtual_memory_bytes", MetricType::Gauge),
];

/// The maximum number of samples in a demo's scrape: the load that a small cluster puts on Prometheus. Which
/// requests were made varies a little from run to run.
const SCRAPE: usize = 2_350;

/// A series that an expression may select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Series {
    /// How the values behave. The parts of a histogram are counters.
    pub(crate) metric_type: MetricType,
    /// Label names, without those added by the scrape.
    pub(crate) labels: BTreeSet<String>,
}

impl Series {
    fn new(metric_type: MetricType, labels: &[&str]) -> Self {
        Self { metric_type, labels: labels.iter().map(|label| (*label).to_owned()).collect() }
    }
}

/// Every series that recliner's `/metrics` may contain, by name.
pub(crate) fn exported() -> BTreeMap<String, Series> {
    let mut all = BTreeMap::new();
    for family in families::all() {
        let FamilyDescription { name, metric_type, labels, .. } = *family;
        if metric_type == MetricType::Histogram {
            let buckets = Series::new(MetricType::Counter, &[labels, &["le"]].concat());
            all.insert(format!("{name}_bucket"), buckets);
            for part in ["sum", "count"] {
                all.insert(format!("{name}_{part}"), Series::new(MetricType::Counter, labels));
            }
        } else {
            all.insert(name.to_owned(), Series::new(metric_type, labels));
        }
    }
    for (name, metric_type) in OF_THE_PROCESS {
        all.insert(name.to_owned(), Series::new(metric_type, &[]));
    }
    all
}

/// The series that Prometheus itself adds to each scrape.
pub(crate) fn of_prometheus() -> BTreeMap<String, Series> {
    ["up", "scrape_duration_seconds", "scrape_samples_scraped"]
        .map(|name| (name.to_owned(), Series::new(MetricType::Gauge, &[])))
        .into()
}

/// The families in an exposition by name: their type and their labels.
fn families_in(text: &str) -> BTreeMap<&str, (&str, BTreeSet<&str>)> {
    let mut families = BTreeMap::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, word) = rest.split_once(' ').expect("a type has a name and a word");
            family = name;
            families.insert(family, (word, BTreeSet::new()));
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            assert!(name.starts_with(family), "{name} is listed under {family}");
            let braced = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}'));
            let (_, labels) = families.get_mut(family).expect("a sample follows its type");
            // No label value in the demo contains a comma followed by an equals sign.
            let pairs = braced.map_or("", |(pairs, _)| pairs).split("\",");
            labels.extend(pairs.filter_map(|pair| Some(pair.split_once("=\"")?.0)));
        }
    }
    families
}

#[tokio::test]
async fn running_demo_exports_exactly_the_catalogue() {
    let demo = Demo::start().await;
    demo.suspend("channel:upgrade_views", "to show it").await;
    let text = demo.metrics().await;
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(samples <= SCRAPE, "a scrape of the demo has {samples} samples");
    let exported = exported();
    let shown = families_in(&text);
    for (name, (word, labels)) in &shown {
        let of = |name: &str| exported.get(name).map(|series| (series.metric_type, &series.labels));
        let histogram = of(&format!("{name}_bucket"));
        let (metric_type, known) = match (of(name), histogram) {
            (Some(plain), None) => plain,
            (None, Some((_, labels))) => (MetricType::Histogram, labels),
            _ => panic!("{name} is not in the catalogue"),
        };
        assert_eq!(metric_type.label(), *word, "{name}");
        let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
        assert_eq!(known, *labels, "{name}");
    }
    // Series that no demo has: it is never backed up or suspended as a whole, uses no certificate, ranks as smoosh
    // does, pushes to no receiver, and enforces, so that nothing is only advised. A forecast needs two days, reads of
    // indexes need a log, and a fleet and shared limits need other recliners.
    let elsewhere = [
        "recliner_advised_reclaimable_bytes",
        "recliner_queue_rent_min",
        "recliner_queue_rent_max",
        "recliner_rent_horizon_seconds",
        "recliner_journal_last_backup_timestamp_seconds",
        "recliner_certificate_expiry_timestamp_seconds",
        "recliner_suspended_since_timestamp_seconds",
        "recliner_suspension_info",
        "recliner_forecast_full_timestamp_seconds",
        "recliner_index_last_read_timestamp_seconds",
        "recliner_fleet_member_up",
        "recliner_fleet_members",
        "recliner_otlp_last_success_timestamp_seconds",
        "recliner_otlp_failures_total",
        "recliner_shared_allowed_jobs",
        "recliner_shared_allowed_bytes",
        "recliner_shared_lease_end_timestamp_seconds",
        "recliner_shared_held_jobs",
        "recliner_shared_held_bytes",
    ];
    let missing: Vec<&str> = families::all()
        .map(|family| family.name)
        .filter(|name| !shown.contains_key(name) && !elsewhere.contains(name))
        .collect();
    assert!(missing.is_empty(), "a demo of half a minute does not show {missing:?}");
    assert_eq!(duplicate_series(&text), [""; 0]);
    if tools::installed(&[PROMTOOL]) {
        let ran = tools::run(PROMTOOL, &["check", "metrics"], &text).await;
        assert!(ran.success && ran.said.is_empty(), "{}", ran.said);
    }
}
