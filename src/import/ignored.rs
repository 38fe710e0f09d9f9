//! Merges the ignore lists of all nodes.

use super::finding::Finding;
use compaction_settings::{Ignored, Severity};
use couchdb_names::{Range, ShardName};
use std::collections::{BTreeMap, BTreeSet};

const SECTION: &str = "smoosh.ignore";

/// Everything that any node ignores.
#[derive(Debug, Default)]
pub(super) struct IgnoredByAll {
    pub(super) ignored: Ignored,
    /// Clustered databases all of whose shards are ignored, so that their views are ignored too.
    pub(super) views_of: BTreeSet<String>,
    pub(super) findings: Vec<Finding>,
}

/// The ignored ranges of one database, and the nodes that list them.
#[derive(Default)]
struct Named<'a> {
    ranges: Vec<Range>,
    by: Vec<&'a str>,
}

/// Merges the lists of all nodes.
///
/// Nodes list the shards they have, so a name that only some nodes list is not necessarily a
/// difference.
pub(super) fn merge<'a>(
    nodes: impl Iterator<Item = (&'a str, &'a Ignored)> + Clone,
) -> IgnoredByAll {
    let mut merged = IgnoredByAll::default();
    let mut shards: BTreeMap<(&str, &str), Named<'_>> = BTreeMap::new();
    for (node, ignored) in nodes.clone() {
        merged.ignored.files.extend(ignored.files.iter().cloned());
        merged.ignored.cleanups_of.extend(ignored.cleanups_of.iter().cloned());
        for shard in ignored.files.iter().filter_map(|name| ShardName::split(name)) {
            let entry = shards.entry((shard.db, shard.suffix)).or_default();
            entry.ranges.push(shard.range);
            if !entry.by.contains(&node) {
                entry.by.push(node);
            }
        }
    }
    let mut warn = |nodes: &[&str], key: Option<&String>, message: String| {
        merged.findings.push(Finding {
            severity: Severity::Warning,
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            section: SECTION.to_owned(),
            key: key.cloned(),
            message,
        });
    };
    for ((db, suffix), mut entry) in shards {
        if covers_all(&mut entry.ranges) {
            merged.views_of.insert(db.to_owned());
        } else {
            warn(
                &entry.by,
                None,
                format!(
                    "only some shards of {db}{suffix} are named: recliner does not compact those shards, but HTTP compacts all copies of a view at once, including those on these shards"
                ),
            );
        }
    }
    let Ignored { files, cleanups_of } = &merged.ignored;
    for name in files.union(cleanups_of) {
        let names =
            |ignored: &Ignored| ignored.files.contains(name) || ignored.cleanups_of.contains(name);
        let with: Vec<_> = nodes.clone().filter(|(_, one)| names(one)).collect();
        let without: Vec<_> = nodes.clone().filter(|(_, one)| !names(one)).collect();
        if !without.is_empty() {
            let on = |nodes: &[(&'a str, &'a Ignored)]| {
                nodes.iter().map(|(node, _)| *node).collect::<Vec<_>>()
            };
            warn(
                &on(&with),
                Some(name),
                format!(
                    "is not ignored on {}, but recliner will ignore it on all nodes; that makes no difference on nodes without a copy of it",
                    on(&without).join(", ")
                ),
            );
        }
    }
    merged
}

/// Whether the ranges cover the whole hash ring.
fn covers_all(ranges: &mut [Range]) -> bool {
    ranges.sort_unstable();
    let reached = ranges.iter().try_fold(0_u64, |next, range| {
        (u64::from(range.from) <= next).then(|| next.max(u64::from(range.to) + 1))
    });
    reached.is_some_and(|next| next > u64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::pattern::{NamePatterns, escaped};
    use proptest::prelude::*;

    #[test]
    fn ranges_with_gaps_do_not_cover_the_ring() {
        for (ranges, all) in [
            (vec!["00000000-ffffffff"], true),
            (vec!["80000000-ffffffff", "00000000-7fffffff"], true),
            (vec!["00000000-7fffffff"], false),
            (vec!["00000000-7fffffff", "80000001-ffffffff"], false),
            (vec!["00000000-ffffffff", "00000000-7fffffff"], true),
            (vec![], false),
        ] {
            let mut read: Vec<_> = ranges.iter().map(|range| range.parse().unwrap()).collect();
            assert_eq!(covers_all(&mut read), all, "{ranges:?}");
        }
    }

    proptest! {
        #[test]
        fn escaped_name_matches_only_itself(
            name in "[a-z*?\\[\\]{}!\\\\,/.+()$~ é-]{1,12}",
            other in "[a-z*?\\[\\]{}!\\\\,/.+()$~ é-]{1,12}",
        ) {
            let patterns = NamePatterns::new(&[escaped(&name)]).unwrap();
            prop_assert!(patterns.matches(&name));
            prop_assert_eq!(patterns.matches(&other), name == other);
        }
    }
}
