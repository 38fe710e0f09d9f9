//! `[smoosh.ignore]`: names that no channel of smoosh takes (`smoosh_utils:ignore_db/1`).
//!
//! A key is the exact name of a shard file, which stands for its db and its views; for
//! the index cleanup it is the name of a clustered database.

use super::{
    NodeConfig,
    finding::{Finding, Remarks, Severity},
};
use couchdb_names::{Range, ShardName};
use std::collections::{BTreeMap, BTreeSet};

const SECTION: &str = "smoosh.ignore";
/// Databases of a node alone, which no clustered database shares its name with.
const NODE_LOCAL: [&str; 2] = ["_dbs", "_nodes"];

/// What a node ignores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ignored {
    /// Names of db files.
    pub(super) files: BTreeSet<String>,
    /// Clustered databases whose index files are not cleaned up.
    pub(super) cleanups_of: BTreeSet<String>,
}

/// Reads a node's ignore list.
pub(super) fn read(node: &NodeConfig, remarks: &mut Remarks) -> Ignored {
    let mut ignored = Ignored::default();
    for (name, value) in node.sections.get(SECTION).into_iter().flatten() {
        let mut remark = |severity, message: &str| {
            remarks.add_key(severity, SECTION, Some(name.clone()), message);
        };
        if value != "true" {
            remark(
                if value == "false" { Severity::Note } else { Severity::Warning },
                "does nothing: a name is ignored only where its value is exactly \"true\"",
            );
        } else if name.ends_with(".couch") {
            remark(Severity::Warning, "does nothing: smoosh knows files without the ending .couch");
        } else if ShardName::split(name).is_some() || NODE_LOCAL.contains(&name.as_str()) {
            ignored.files.insert(name.clone());
        } else {
            ignored.cleanups_of.insert(name.clone());
            remark(
                Severity::Warning,
                "names no shard file, so it keeps smoosh only from cleaning up the index files of that database (and from a database that this node alone has): name shards/RANGE/db.SUFFIX to ignore a shard",
            );
        }
    }
    ignored
}

/// What all nodes together ignore, as one list for all of them.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) ignored: Ignored,
    /// Clustered databases whose views are all on ignored shards.
    pub(super) views_of: BTreeSet<String>,
    pub(super) findings: Vec<Finding>,
}

/// The ranges of one database that are named, and the nodes that name them.
#[derive(Default)]
struct Named<'a> {
    ranges: Vec<Range>,
    by: Vec<&'a str>,
}

/// One list for all nodes.
///
/// Nodes name the shards they hold, so a name that only some have is no difference in
/// itself.
pub(super) fn merge<'a>(nodes: impl Iterator<Item = (&'a str, &'a Ignored)> + Clone) -> Merged {
    let mut merged = Merged::default();
    let mut shards: BTreeMap<(&str, &str), Named<'_>> = BTreeMap::new();
    for (node, ignored) in nodes.clone() {
        merged.ignored.files.extend(ignored.files.iter().cloned());
        merged.ignored.cleanups_of.extend(ignored.cleanups_of.iter().cloned());
        for shard in ignored.files.iter().filter_map(|name| ShardName::split(name)) {
            let named = shards.entry((shard.db, shard.suffix)).or_default();
            named.ranges.push(shard.range);
            if !named.by.contains(&node) {
                named.by.push(node);
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
    for ((db, suffix), mut named) in shards {
        if covers_all(&mut named.ranges) {
            merged.views_of.insert(db.to_owned());
        } else {
            warn(
                &named.by,
                None,
                format!(
                    "only some shards of {db}{suffix} are named: recliner leaves out those dbs, but where it compacts a view over the whole cluster, as over HTTP, the copies on these shards are compacted too"
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
                    "is not named on {}, but written for all nodes: the same where those hold no copy of it",
                    on(&without).join(", ")
                ),
            );
        }
    }
    merged
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
    use crate::text::pattern::NamePatterns;
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
            let patterns = NamePatterns::new(&[escaped(&name)]).unwrap();
            prop_assert!(patterns.matches(&name));
            prop_assert_eq!(patterns.matches(&other), name == other);
        }
    }
}
