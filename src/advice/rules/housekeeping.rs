//! Files that should not be there, and files that should.

mod compaction_leftovers;
mod missing_copies;
mod orphan_shards;
mod oversized_compaction_file;
mod stale_indexes;
mod trash_and_recovered;

use super::Family;
use crate::{
    advice::Situation,
    table::{DbIx, Node, TargetIx, TargetRef},
    text::listed,
};
use std::collections::{BTreeMap, BTreeSet};

/// The family.
pub(super) const FAMILY: Family = Family {
    title: "Waste and missing files",
    rules: &[
        missing_copies::RULE,
        oversized_compaction_file::RULE,
        orphan_shards::RULE,
        stale_indexes::RULE,
        compaction_leftovers::RULE,
        trash_and_recovered::RULE,
    ],
};

/// Targets by their database instance.
fn by_database<'a>(
    situation: &Situation<'a>,
    list: &'a [TargetIx],
) -> BTreeMap<DbIx, Vec<TargetRef<'a>>> {
    let mut dbs: BTreeMap<DbIx, Vec<TargetRef<'a>>> = BTreeMap::new();
    for target in situation.listed(list) {
        dbs.entry(target.db()).or_default().push(target);
    }
    dbs
}

/// The directories of a node, where they are known.
fn directories_of(node: &Node) -> Vec<&str> {
    node.volume_usage.iter().map(|usage| &*usage.volume.directory).collect()
}

/// The nodes of targets as text: `couchdb@a and couchdb@b`.
fn nodes_of(targets: &[TargetRef<'_>]) -> String {
    let nodes: BTreeSet<&str> = targets.iter().map(|target| target.node()).collect();
    listed(&nodes.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>())
}
