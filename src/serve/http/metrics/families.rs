//! The table of every metric family that this version exports.
//!
//! Each subject declares its families at the top of its own file. This file lists them in the order
//! of the book, and its tests check the naming rules. Names, types, labels and help texts are a
//! contract with dashboards and alerts, including those outside this repository.
//!
//! A family without a known value is omitted from the scrape; a value known to be zero is written.

use metrics_text::FamilyDescription;

/// Every family, in the order of the book and of a scrape.
pub fn all() -> impl Iterator<Item = &'static FamilyDescription> {
    super::subjects().into_iter().flat_map(|(families, _)| families)
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_text::{MetricType, Unit};
    use std::collections::{BTreeMap, BTreeSet};

    /// Families whose name ends in what they count need no unit; sizes do, except for these.
    const COUNTED_SIZES: [&str; 1] = ["recliner_queue_size"];

    /// Whether a name consists of lower-case words with single underscores between them.
    fn is_name(name: &str) -> bool {
        name.split('_').all(|word| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase()))
    }

    #[test]
    fn names_and_labels_are_lower_case_words() {
        for family in all() {
            assert!(
                family.name.starts_with("recliner_") && is_name(family.name),
                "{}",
                family.name
            );
            let labels: BTreeSet<_> = family.labels.iter().collect();
            assert_eq!(labels.len(), family.labels.len(), "{}", family.name);
            for label in family.labels {
                assert!(is_name(label), "{label}");
                assert!(!["le", "quantile", "job", "instance"].contains(label), "{label}");
            }
        }
    }

    #[test]
    fn only_counters_end_in_total_and_only_info_metrics_in_info() {
        for family in all() {
            let counter = family.metric_type == MetricType::Counter;
            assert_eq!(family.name.ends_with("_total"), counter, "{}", family.name);
            let info = family.help.starts_with("Always 1");
            assert_eq!(family.name.ends_with("_info"), info, "{}", family.name);
        }
    }

    /// Whether a name ends in its unit. `ratio` may be followed by `min` or `max`, for a queue's
    /// lowest and highest ratio, where it is also the name of a priority.
    fn ends_in_its_unit(name: &str, unit: Unit) -> bool {
        let base = name.strip_suffix("_total").unwrap_or(name);
        let base = match unit {
            Unit::Ratio => base.strip_suffix("_min").or_else(|| base.strip_suffix("_max")),
            Unit::None | Unit::Bytes | Unit::Seconds => None,
        }
        .unwrap_or(base);
        Unit::ending(base) == unit
    }

    #[test]
    fn family_name_ends_in_its_unit_and_contains_no_other() {
        for family in all() {
            assert!(
                ends_in_its_unit(family.name, family.unit),
                "{}: {:?}",
                family.name,
                family.unit
            );
            let words: Vec<&str> = family.name.split('_').collect();
            for unit in Unit::NAMED {
                let times = words.iter().filter(|word| **word == unit.label()).count();
                assert_eq!(times, usize::from(family.unit == unit), "{}: {unit:?}", family.name);
            }
            for wrong in ["milliseconds", "minutes", "hours", "kilobytes", "mib", "percent", "ms"] {
                assert!(!words.contains(&wrong), "{}", family.name);
            }
            let time = words.contains(&"timestamp");
            assert_eq!(time, family.name.ends_with("_timestamp_seconds"), "{}", family.name);
            let size = words.contains(&"size") && !COUNTED_SIZES.contains(&family.name);
            assert!(!size || family.unit == Unit::Bytes, "{}: a size of what?", family.name);
        }
        for (name, unit, sound) in [
            ("recliner_queue_slack_bytes_highest", Unit::Bytes, false),
            ("recliner_queue_slack_min_bytes", Unit::Bytes, true),
            ("recliner_queue_ratio_min", Unit::Ratio, true),
            ("recliner_seconds_of_ratio", Unit::Seconds, false),
            ("recliner_compaction_reclaimed_bytes_total", Unit::Bytes, true),
            ("recliner_targets", Unit::None, true),
            ("recliner_file_bytes", Unit::None, false),
        ] {
            assert_eq!(ends_in_its_unit(name, unit), sound, "{name}");
        }
    }

    #[test]
    fn help_is_one_sentence_that_names_the_unit() {
        for family in all() {
            let help = family.help;
            assert!(help.starts_with(|c: char| c.is_ascii_uppercase() || c == '1'), "{help}");
            assert!(help.ends_with('.') && help.matches(". ").count() == 0, "{help}");
            assert!(help.len() <= 120 && help.is_ascii() && !help.contains(['"', '\\']), "{help}");
            let unit = match family.unit {
                Unit::None => continue,
                Unit::Bytes => "byte",
                Unit::Seconds => "second",
                Unit::Ratio => "ratio",
            };
            assert!(help.to_lowercase().contains(unit), "{}: {help}", family.name);
        }
    }

    /// Gauges are usually summed over labels, nodes and processes. The help of a gauge that must
    /// not be summed says so in its first word or in a sentence.
    #[test]
    fn help_of_gauges_shows_whether_to_sum_them() {
        let not_summable = ["1 ", "Always 1", "Unix time", "Lowest", "Highest", "Ratio", "Maximum"];
        let time = ["Time", "Duration"];
        let summable = ["Number of", "Least number of", "Bytes", "Uncompressed size"];
        for family in all().filter(|family| family.metric_type == MetricType::Gauge) {
            let starts = |words: &[&str]| words.iter().any(|word| family.help.starts_with(word));
            let kinds = [
                starts(&not_summable),
                starts(&time) && family.unit == Unit::Seconds,
                starts(&summable),
                family.help.contains("do not add it up"),
            ];
            let matching_kinds = kinds.into_iter().filter(|kind| *kind).count();
            assert_eq!(matching_kinds, 1, "{}: {}", family.name, family.help);
            assert!(!starts(&summable) || family.unit != Unit::Ratio, "{}", family.name);
        }
    }

    /// A metric that is part of another family has its own family, and its help names the other
    /// one.
    #[test]
    fn help_of_partial_families_names_the_whole_family() {
        let names: BTreeSet<&str> = all().map(|family| family.name).collect();
        for family in all() {
            let others = family.help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            for other in others.filter(|word| word.starts_with("recliner_")) {
                assert!(names.contains(other) && other != family.name, "{}", family.help);
            }
        }
        for part in ["recliner_node_view_", "recliner_view_part_", "recliner_orphan_"] {
            for family in all().filter(|it| it.name.starts_with(part) && it.unit == Unit::Bytes) {
                assert!(family.help.contains("recliner_"), "{}: {}", family.name, family.help);
            }
        }
    }

    #[test]
    fn families_share_no_sample_name() {
        let mut owner = BTreeMap::new();
        for family in all() {
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
}
