//! Helpers of the rules about files.

use crate::{
    advice::{Situation, grouped_by},
    table::{DbIx, Node, TargetIx, TargetRef},
    text::listed,
};
use std::collections::{BTreeMap, BTreeSet};

/// Targets by their database instance.
pub(super) type ByDatabase<'a> = BTreeMap<DbIx, Vec<TargetRef<'a>>>;

pub(super) fn by_database<'a>(situation: &Situation<'a>, list: &'a [TargetIx]) -> ByDatabase<'a> {
    grouped_by(situation.listed(list).map(|target| (target.db(), target)))
}

/// The directories of a node, if known.
pub(super) fn directories_of(node: &Node) -> Vec<&str> {
    node.volume_usage.iter().map(|usage| &*usage.volume.directory).collect()
}

/// The nodes of targets as text: `couchdb@a and couchdb@b`.
pub(super) fn nodes_of(targets: &[TargetRef<'_>]) -> String {
    let nodes: BTreeSet<&str> = targets.iter().map(|target| target.node()).collect();
    listed(&nodes.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>())
}
