//! `[smoosh.ignore]`: names that no channel of smoosh takes (`smoosh_utils:ignore_db/1`).
//!
//! A key is the exact name of a shard file, which stands for its db and its views; for
//! the index cleanup it is the name of a clustered database.

use super::{
    NodeConfig,
    finding::{Remarks, Severity},
};
use crate::target::{Range, ShardName};
use std::collections::{BTreeMap, BTreeSet};

const SECTION: &str = "smoosh.ignore";
/// Databases of a node alone, which no clustered database shares its name with.
const NODE_LOCAL: [&str; 2] = ["_dbs", "_nodes"];

/// What a node ignores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ignored {
    /// Names of db files.
    pub(super) files: BTreeSet<String>,
    /// Clustered databases whose views are all on ignored shards.
    pub(super) views_of: BTreeSet<String>,
    /// Clustered databases whose index files are not cleaned up.
    pub(super) cleanups_of: BTreeSet<String>,
}

/// Reads a node's ignore list.
pub(super) fn read(node: &NodeConfig, remarks: &mut Remarks) -> Ignored {
    let mut ignored = Ignored::default();
    let Some(names) = node.sections.get(SECTION) else { return ignored };
    let mut shards: BTreeMap<(&str, &str), Vec<Range>> = BTreeMap::new();
    for (name, value) in names {
        let mut remark = |severity, message: &str| {
            remarks.add_key(severity, SECTION, Some(name.clone()), message);
        };
        if value != "true" {
            remark(
                if value == "false" { Severity::Note } else { Severity::Warning },
                "does nothing: a name is ignored only where its value is exactly \"true\"",
            );
        } else if let Some(shard) = ShardName::split(name) {
            ignored.files.insert(name.clone());
            shards.entry((shard.db, shard.suffix)).or_default().push(shard.range);
        } else if name.ends_with(".couch") {
            remark(Severity::Warning, "does nothing: smoosh knows files without the ending .couch");
        } else if NODE_LOCAL.contains(&name.as_str()) {
            ignored.files.insert(name.clone());
        } else {
            ignored.cleanups_of.insert(name.clone());
            remark(
                Severity::Warning,
                "names no shard file, so it keeps smoosh only from cleaning up the index files of that database (and from a database that this node alone has): name shards/RANGE/db.SUFFIX to ignore a shard",
            );
        }
    }
    for ((db, suffix), mut ranges) in shards {
        if covers_all(&mut ranges) {
            ignored.views_of.insert(db.to_owned());
        } else {
            remarks.add(
                Severity::Warning,
                SECTION,
                None,
                format!(
                    "only some shards of {db}{suffix} are named: recliner leaves out those dbs, but where it compacts a view over the whole cluster, as over HTTP, the copies on these shards are compacted too"
                ),
            );
        }
    }
    ignored
}

/// Whether the ranges leave no hash out.
fn covers_all(ranges: &mut [Range]) -> bool {
    ranges.sort_unstable();
    let reached = ranges.iter().try_fold(0_u64, |next, range| {
        (u64::from(range.from) <= next).then(|| next.max(u64::from(range.to) + 1))
    });
    reached.is_some_and(|next| next > u64::from(u32::MAX))
}

/// `name` as a pattern that matches itself alone.
pub(super) fn escaped(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for letter in name.chars() {
        if matches!(letter, '*' | '?' | '[' | ']' | '{' | '}' | '!' | '\\' | ',') {
            pattern.push('\\');
        }
        pattern.push(letter);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Patterns;
    use proptest::prelude::*;

    #[test]
    fn ranges_cover_the_ring_only_without_gaps() {
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
        fn an_escaped_name_matches_itself_alone(
            name in "[a-z*?\\[\\]{}!\\\\,/.+()$~ é-]{1,12}",
            other in "[a-z*?\\[\\]{}!\\\\,/.+()$~ é-]{1,12}",
        ) {
            let patterns = Patterns::new(&[escaped(&name)]).unwrap();
            prop_assert!(patterns.matches(&name));
            prop_assert_eq!(patterns.matches(&other), name == other);
        }
    }
}
