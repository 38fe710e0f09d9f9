//! The age of each node's facts, and the failed reads.

use super::{members, served_nodes};
use crate::{
    datadir::ReadProblem, model::facts::FactSource, plan::Plan, scan::ScanStatus, text::Label,
};
use metrics_text::{Writer, families};
use std::collections::BTreeMap;
use wall_clock::Moment;

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
    let rows: Vec<([&str; 2], [Option<Moment>; 2])> = served_nodes(plan)
        .flat_map(|(_, node)| {
            let disk = node.disk_usage.unwrap_or_default();
            [
                ([&*node.name, http], [node.last_success, node.oldest_fact]),
                ([&*node.name, files], [disk.last_success, disk.oldest_fact]),
            ]
        })
        .collect();
    writer.write_each(
        &rows,
        &[
            (&SCAN_LAST_SUCCESS_TIMESTAMP, |[last, _]| last),
            (&SCAN_OLDEST_FACT_TIMESTAMP, |[_, oldest]| oldest),
        ],
    );
    let walks = members(plan).filter_map(|node| node.disk_usage).map(|disk| disk.took_ms);
    let walk = walks.max().map(|milliseconds| milliseconds as f64 / 1e3);
    let reads_couchdb = members(plan).any(|node| node.is_up.is_some()) || walk.is_none();
    let sweep = status.last_duration.filter(|_| reads_couchdb).map(|took| took.as_secs_f64());
    writer.write_each(&[([http], sweep), ([files], walk)], &[(&SCAN_DURATION, |took| took)]);
    writer.write(&SCAN_FRESH_FOR, [([], plan.rules.fresh_for.as_secs_f64())]);
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
    let errors = errors.into_iter().map(|((node, reason), count)| ([node, reason], count));
    writer.write(&SCAN_ERRORS, errors);
}
