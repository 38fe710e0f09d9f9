//! The age of each node's facts, and the failed reads.

use super::{members, served_nodes};
use crate::{
    datadir::ReadProblem, model::facts::FactSource, plan::Plan, scan::ScanStatus, text::Label,
};
use metrics_text::{Writer, families};
use std::collections::BTreeMap;

families! {
    SCAN_LAST_SUCCESS_TIMESTAMP: Gauge Seconds
        "recliner_scan_last_success_timestamp_seconds" ["node", "source"]
        "Unix time of the last complete scan of the node from this source, in seconds.";
    SCAN_OLDEST_FACT_TIMESTAMP: Gauge Seconds
        "recliner_scan_oldest_fact_timestamp_seconds" ["node", "source"]
        "Unix time of the oldest measurement in use for the node from this source, in seconds.";
    SCAN_DURATION: Gauge Seconds "recliner_scan_duration_seconds" ["source"]
        "Duration of the last finished scan from this source, in seconds.";
    SCAN_FRESH_FOR: Gauge Seconds "recliner_scan_fresh_for_seconds" []
        "Time for which facts count as fresh after they were measured, in seconds.";
    SCAN_ERRORS: Counter None "recliner_scan_errors_total" ["node", "reason"]
        "Reads that failed while the node was scanned, by reason.";
}

pub(super) fn write(writer: &mut Writer, plan: &Plan, status: &ScanStatus) {
    let (http, files) = (FactSource::Http.label(), FactSource::Files.label());
    let mut samples = writer.family(&SCAN_LAST_SUCCESS_TIMESTAMP);
    for (_, node) in served_nodes(plan) {
        let from_files = node.disk_usage.and_then(|disk| disk.last_success);
        for (source, at) in [(http, node.last_success), (files, from_files)] {
            if let Some(at) = at {
                samples.sample(&[&node.name, source], at);
            }
        }
    }
    let mut samples = writer.family(&SCAN_OLDEST_FACT_TIMESTAMP);
    for (_, node) in served_nodes(plan) {
        let from_files = node.disk_usage.and_then(|disk| disk.oldest_fact);
        for (source, at) in [(http, node.oldest_fact), (files, from_files)] {
            if let Some(at) = at {
                samples.sample(&[&node.name, source], at);
            }
        }
    }
    let walks = members(plan).filter_map(|node| node.disk_usage).map(|disk| disk.took_ms);
    let walk = walks.max().map(|milliseconds| milliseconds as f64 / 1e3);
    let reads_couchdb = members(plan).any(|node| node.is_up.is_some()) || walk.is_none();
    let sweep = status.last_duration.filter(|_| reads_couchdb).map(|took| took.as_secs_f64());
    let mut samples = writer.family(&SCAN_DURATION);
    for (source, took) in [(http, sweep), (files, walk)] {
        if let Some(took) = took {
            samples.sample(&[source], took);
        }
    }
    let fresh_for = plan.rules.fresh_for.as_secs_f64();
    writer.family(&SCAN_FRESH_FOR).sample(&[], fresh_for);
    errors(writer, plan, status);
}

/// Every reason starts at zero: `increase` misses the first failure if the counter was absent
/// before.
fn errors(writer: &mut Writer, plan: &Plan, status: &ScanStatus) {
    let mut errors: BTreeMap<(&str, &str), u64> = members(plan)
        .flat_map(|node| {
            couchdb_client::ErrorKind::ALL.iter().map(|kind| ((&*node.name, kind.label()), 0))
        })
        .collect();
    for node in members(plan).filter(|node| node.disk_usage.is_some()) {
        errors.extend(ReadProblem::each().map(|problem| ((&*node.name, problem.label()), 0)));
    }
    errors.extend(status.errors.iter().map(|((node, reason), count)| ((&**node, *reason), *count)));
    let mut samples = writer.family(&SCAN_ERRORS);
    for ((node, reason), count) in errors {
        samples.sample(&[node, reason], count);
    }
}
