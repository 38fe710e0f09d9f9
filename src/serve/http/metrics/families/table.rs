//! The table of families: naming rules, and the names other programs depend on.

use super::ALL;
use metrics_text::{MetricType, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// Names without their prefix, with their labels.
const CONTRACT: &[(&str, &str)] = &[
    ("build_info", "version revision"),
    ("mode", "mode"),
    ("channel_mode", "channel mode"),
    ("config_last_reload_successful", ""),
    ("config_last_reload_success_timestamp_seconds", ""),
    ("config_needs_restart", ""),
    ("certificate_expiry_timestamp_seconds", "use"),
    ("couchdb_up", "url"),
    ("node_up", "node"),
    ("node_info", "node version"),
    ("scan_last_success_timestamp_seconds", "node source"),
    ("scan_oldest_fact_timestamp_seconds", "node source"),
    ("scan_duration_seconds", "source"),
    ("scan_fresh_for_seconds", ""),
    ("scan_errors_total", "node reason"),
    ("couchdb_requests_total", "route code"),
    ("couchdb_request_duration_seconds", "route"),
    ("targets", "node kind state"),
    ("file_bytes", "node kind"),
    ("active_bytes", "node kind"),
    ("external_bytes", "node kind"),
    ("reclaimable_bytes", "node kind"),
    ("targets_unmeasured", "node"),
    ("orphan_bytes", "node"),
    ("node_view_files", "node state"),
    ("node_view_file_bytes", "node"),
    ("node_view_active_bytes", "node"),
    ("node_view_reclaimable_bytes", "node"),
    ("database_copies", "db kind"),
    ("database_file_bytes", "db kind"),
    ("database_active_bytes", "db kind"),
    ("database_reclaimable_bytes", "db kind"),
    ("databases_not_exported", ""),
    ("target_file_bytes", "node kind db range ddoc signature"),
    ("target_active_bytes", "node kind db range ddoc signature"),
    ("target_reclaimable_bytes", "node kind db range ddoc signature"),
    ("view_part_file_bytes", "node db range ddoc signature"),
    ("view_part_reclaimable_bytes", "node db range ddoc signature"),
    ("queue_size", "node channel"),
    ("queue_active", "node channel"),
    ("queue_capacity", "node channel"),
    ("queue_overflow", "node channel"),
    ("queue_reclaimable_bytes", "node channel"),
    ("queue_oldest_timestamp_seconds", "node channel"),
    ("queue_ratio_min", "node channel"),
    ("queue_ratio_max", "node channel"),
    ("queue_slack_bytes_min", "node channel"),
    ("queue_slack_bytes_max", "node channel"),
    ("channel_concurrency_limit", "channel"),
    ("node_concurrency_limit", ""),
    ("cluster_concurrency_limit", ""),
    ("channel_window_open", "channel"),
    ("candidates", "node channel decision"),
    ("gate_open", "node gate"),
    ("gate_closed_since_timestamp_seconds", "node gate"),
    ("suspended", "scope"),
    ("suspended_since_timestamp_seconds", "scope"),
    ("suspension_info", "scope by why"),
    ("feed_connected", "feed"),
    ("feed_events_total", "type"),
    ("feed_pending_events", ""),
    ("feed_subscribers", ""),
    ("journal_last_seq", ""),
    ("journal_dropped_total", ""),
    ("smoosh_up", "node"),
    ("smoosh_active", "node channel"),
    ("smoosh_starting", "node channel"),
    ("smoosh_waiting", "node channel"),
    ("smoosh_waiting_priority_min", "node channel"),
    ("smoosh_waiting_priority_max", "node channel"),
    ("smoosh_taken_over", "node"),
    ("smoosh_channels_stopped", "node"),
    ("view_updates_pending", "db ddoc"),
    ("search_updates_pending", "db ddoc engine index"),
    ("index_builds_running", "class"),
    ("index_builds_waiting", "class"),
    ("index_builds_stalled", ""),
    ("index_builds_started_total", "class"),
    ("index_builds_finished_total", "class result"),
    ("pressure", "node signal"),
    ("disk_size_bytes", "node volume"),
    ("disk_available_bytes", "node volume"),
    ("disk_reserved_bytes", "node volume"),
    ("stale_index_bytes", "node"),
    ("leftover_bytes", "node"),
    ("trash_bytes", "node"),
    ("source_disagreements", "node"),
    ("jobs_running", "node kind owner"),
    ("job_progress_ratio", "node kind db range ddoc"),
    ("job_last_progress_timestamp_seconds", "node kind db range ddoc"),
    ("compactions_started_total", "node channel kind"),
    ("compactions_finished_total", "node channel kind result"),
    ("quarantined_targets", "node"),
    ("compaction_reclaimed_bytes_total", "node kind"),
    ("compaction_rewritten_bytes_total", "node kind"),
    ("compaction_duration_seconds", "kind"),
    ("compaction_estimate_ratio", "kind"),
];

#[test]
fn names_and_labels_are_those_promised() {
    let named: Vec<(String, String)> =
        (ALL.iter()).map(|family| (family.name.to_owned(), family.labels.join(" "))).collect();
    let promised: Vec<(String, String)> = (CONTRACT.iter())
        .map(|(name, labels)| (format!("recliner_{name}"), (*labels).to_owned()))
        .collect();
    assert_eq!(named, promised);
}

/// Lower-case words with single underscores between them.
fn is_name(name: &str) -> bool {
    name.split('_').all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase()))
}

#[test]
fn names_and_labels_are_plain_words() {
    for family in ALL {
        assert!(family.name.starts_with("recliner_") && is_name(family.name), "{}", family.name);
        let labels: BTreeSet<_> = family.labels.iter().collect();
        assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
        for label in family.labels {
            assert!(is_name(label), "{label}");
            assert!(!["le", "quantile", "job", "instance"].contains(label), "{label}");
        }
    }
}

#[test]
fn only_counters_end_in_total() {
    for family in ALL {
        let counter = family.metric_type == MetricType::Counter;
        assert_eq!(family.name.ends_with("_total"), counter, "{}", family.name);
    }
}

#[test]
fn units_are_base_units_and_stand_in_the_name() {
    for family in ALL {
        let words: Vec<_> = family.name.split('_').collect();
        for unit in Unit::NAMED {
            let says = words.contains(&unit.label());
            assert_eq!(says, family.unit == unit, "{}: {unit:?}", family.name);
        }
        for wrong in ["milliseconds", "minutes", "hours", "kilobytes", "mib", "percent", "ms"] {
            assert!(!words.contains(&wrong), "{}", family.name);
        }
        let ending = Unit::ending(family.name);
        assert!([Unit::None, family.unit].contains(&ending), "{}", family.name);
        let times = words.contains(&"timestamp");
        assert_eq!(times, family.name.ends_with("_timestamp_seconds"), "{}", family.name);
    }
}

#[test]
fn help_is_one_sentence_that_names_the_unit() {
    for family in ALL {
        let help = family.help;
        assert!(help.starts_with(|c: char| c.is_ascii_uppercase() || c == '1'), "{help}");
        assert!(help.ends_with('.') && help.matches(". ").count() == 0, "{help}");
        assert!(help.len() < 100 && help.is_ascii() && !help.contains(['"', '\\']), "{help}");
        let unit = match family.unit {
            Unit::None => continue,
            Unit::Bytes => "byte",
            Unit::Seconds => "second",
            Unit::Ratio => "ratio",
        };
        assert!(help.to_lowercase().contains(unit), "{}: {help}", family.name);
    }
}

#[test]
fn no_two_families_share_a_sample_name() {
    let mut owner = BTreeMap::new();
    for family in ALL {
        let base = family.name.strip_suffix("_total").unwrap_or(family.name);
        let suffixes: &[&str] = match family.metric_type {
            MetricType::Gauge => &[""],
            MetricType::Counter => &["", "_total", "_created"],
            MetricType::Histogram => &["", "_bucket", "_sum", "_count", "_created"],
        };
        for suffix in suffixes {
            let other = owner.insert(format!("{base}{suffix}"), family.name);
            assert_eq!(other, None, "{} and another", family.name);
        }
    }
}
