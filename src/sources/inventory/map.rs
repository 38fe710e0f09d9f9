//! The shard map: the copies of a database, and the moves in its changelog.

use couchdb_names::Range;
use std::collections::{BTreeMap, BTreeSet};

/// One copy of one range: its place in the map.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CopyAt {
    /// The range of the copy.
    pub range: Range,
    /// The name of its node.
    pub node: String,
}

/// The shard map's entry of one database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapEntry {
    /// The clustered database's name.
    pub db: String,
    /// The instance suffix with its dot.
    pub suffix: String,
    /// The copies that the database should have, sorted.
    pub copies: BTreeSet<CopyAt>,
    /// Copies that the changelog added after the database was created: they may still be filling.
    pub arriving: BTreeSet<CopyAt>,
    /// Copies that the changelog removed again: their files may still exist.
    pub leaving: BTreeSet<CopyAt>,
}

impl MapEntry {
    /// Parses a document of the `_dbs` database.
    ///
    /// `by_range` is used if it exists, otherwise `by_node`. `changelog` has
    /// `["add"|"remove"|"delete"|"split", range, node]` entries (`mem3_util`, `mem3_rpc`). The copies
    /// created with the database come first in it, so an addition after any other entry, or to a range
    /// that has more copies than the one with fewest, came later.
    pub fn new(
        db: &str,
        suffix: &str,
        by_range: &BTreeMap<String, Vec<String>>,
        by_node: &BTreeMap<String, Vec<String>>,
        changelog: &[[&str; 3]],
    ) -> Self {
        let mut copies = BTreeSet::new();
        for (range, nodes) in by_range {
            for node in nodes {
                copies.extend(copy_at(range, node));
            }
        }
        if by_range.is_empty() {
            for (node, ranges) in by_node {
                for range in ranges {
                    copies.extend(copy_at(range, node));
                }
            }
        }
        let (arriving, leaving) = moves(changelog, &copies);
        Self { db: db.to_owned(), suffix: suffix.to_owned(), copies, arriving, leaving }
    }

    /// The number of ranges (q).
    pub fn ranges(&self) -> usize {
        self.copies.iter().map(|copy| copy.range).collect::<BTreeSet<_>>().len()
    }
}

fn copy_at(range: &str, node: &str) -> Option<CopyAt> {
    Some(CopyAt { range: range.parse().ok()?, node: node.to_owned() })
}

fn moves(
    changelog: &[[&str; 3]],
    copies: &BTreeSet<CopyAt>,
) -> (BTreeSet<CopyAt>, BTreeSet<CopyAt>) {
    let mut added: BTreeMap<Range, Vec<CopyAt>> = BTreeMap::new();
    let (mut arriving, mut leaving) = (BTreeSet::new(), BTreeSet::new());
    let mut is_creation = true;
    for &[verb, range, node] in changelog {
        let Some(copy) = copy_at(range, node) else {
            is_creation = false;
            continue;
        };
        if verb == "add" {
            leaving.remove(&copy);
            if is_creation {
                added.entry(copy.range).or_default().push(copy);
            } else {
                arriving.insert(copy);
            }
        } else {
            is_creation = false;
            arriving.remove(&copy);
            leaving.insert(copy);
        }
    }
    let fewest = added.values().map(Vec::len).min().unwrap_or_default();
    arriving.extend(added.into_values().flat_map(|nodes| nodes.into_iter().skip(fewest)));
    arriving.retain(|copy| copies.contains(copy));
    leaving.retain(|copy| !copies.contains(copy));
    (arriving, leaving)
}

/// The hash of a document on the ring: the CRC-32 of its id (`mem3_hash:crc32/1`, the default hash
/// function).
pub fn doc_hash(id: &str) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(id.as_bytes());
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: &str = "00000000-7fffffff";
    const HIGH: &str = "80000000-ffffffff";

    fn entry(by_range: &[(&str, &[&str])], changelog: &[[&str; 3]]) -> MapEntry {
        let by_range = by_range
            .iter()
            .map(|(range, nodes)| ((*range).into(), nodes.iter().map(|n| (*n).into()).collect()))
            .collect();
        MapEntry::new("db", ".1", &by_range, &BTreeMap::new(), changelog)
    }

    fn shown(copies: &BTreeSet<CopyAt>) -> Vec<String> {
        copies.iter().map(|copy| format!("{} {}", copy.range, copy.node)).collect()
    }

    #[test]
    fn copies_created_with_a_database_are_not_moves() {
        let entry = entry(
            &[(LOW, &["a", "b"]), (HIGH, &["a", "b"])],
            &[["add", LOW, "a"], ["add", LOW, "b"], ["add", HIGH, "a"], ["add", HIGH, "b"]],
        );
        assert_eq!((entry.copies.len(), entry.ranges()), (4, 2));
        assert_eq!((shown(&entry.arriving), shown(&entry.leaving)), (vec![], vec![]));
    }

    #[test]
    fn copies_added_later_are_arriving_and_removed_ones_leaving() {
        let entry = entry(
            &[(LOW, &["a", "c"]), (HIGH, &["a", "b"])],
            &[
                ["add", LOW, "a"],
                ["add", LOW, "b"],
                ["add", HIGH, "a"],
                ["add", HIGH, "b"],
                ["add", LOW, "c"],
                ["remove", LOW, "b"],
            ],
        );
        assert_eq!(shown(&entry.arriving), ["00000000-7fffffff c"]);
        assert_eq!(shown(&entry.leaving), ["00000000-7fffffff b"]);
    }

    #[test]
    fn malformed_documents_are_read_as_far_as_possible() {
        let nodes = BTreeMap::from([("a".to_owned(), vec![LOW.to_owned(), "junk".to_owned()])]);
        let entry = MapEntry::new("db", "", &BTreeMap::new(), &nodes, &[["add", "", ""]]);
        assert_eq!(shown(&entry.copies), ["00000000-7fffffff a"]);
    }

    #[test]
    fn document_hash_equals_erlang_crc32() {
        // The standard check value of CRC-32, as `erlang:crc32(<<"123456789">>)` returns it.
        assert_eq!(doc_hash("123456789"), 0xcbf4_3926);
    }
}
