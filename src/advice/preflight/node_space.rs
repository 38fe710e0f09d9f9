//! The space that a new index needs on each node, beside present data and running jobs.

use super::{IndexSize, Spread};
use crate::{
    advice::Survey,
    model::{channel::Mode, rounding::to_bytes},
    plan::Plan,
    table::{DbIx, NodeIx, Snapshot, TargetRef},
};
use std::{collections::BTreeMap, sync::Arc};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Whether the index fits on a node.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceVerdict {
    /// The highest need is below the free space.
    Fits,
    /// The free space is within the range of the need.
    MayNotFit,
    /// The lowest need is above the free space.
    DoesNotFit,
    /// The need or the free space is unknown.
    Unknown,
}

/// The copies of a database on one node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Placement {
    pub(super) node: NodeIx,
    pub(super) copies: u32,
    /// Documents in them.
    pub(super) docs: Option<f64>,
    /// Documents in them, deleted ones included: what an indexer reads.
    pub(super) changes: Option<f64>,
    /// Documents in the largest copy, deleted ones included.
    pub(super) largest_changes: Option<u64>,
}

/// What one node needs. Bytes are summed over all copies on it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeNeed {
    /// The node.
    pub node: String,
    /// Number of index files that are built on it.
    pub copies: u32,
    /// The index after its first compaction.
    pub live: Option<Spread>,
    /// Size of the index at the end of an uninterrupted build.
    pub built: Option<Spread>,
    /// Peak space in addition to everything that exists now: the index after an uninterrupted
    /// build, and the new file of its first compaction.
    pub peak: Option<Spread>,
    /// The current index, which stays until a cleanup; `None` if there is none or its size is
    /// unknown.
    pub old_bytes: Option<u64>,
    /// The volume with the least free space.
    pub volume: Option<Arc<str>>,
    /// Free bytes on this volume without `headroom.keep_free`, less what running and planned
    /// compactions may still write.
    pub free_bytes: Option<u64>,
    /// What those compactions may still write.
    pub reserved_bytes: u64,
    /// Whether the index fits; nodes that share a volume must fit together.
    pub verdict: SpaceVerdict,
    /// Bytes by which even the lowest peak exceeds the free space of the volume; `None` unless it
    /// does not fit.
    pub missing_bytes: Option<u64>,
}

/// Where the copies of a database are.
pub(super) fn placements(survey: &Survey, snapshot: &Snapshot, db: DbIx) -> Vec<Placement> {
    let mut nodes: BTreeMap<NodeIx, Vec<Option<(u64, u64)>>> = BTreeMap::new();
    for shard in survey.shards_of(db).filter_map(|row| snapshot.target_at(row)) {
        let facts = shard.facts();
        let docs = facts.docs.get().zip(facts.deleted_docs.get());
        nodes.entry(shard.node_ix()).or_default().push(docs);
    }
    let all_counted: Vec<(u64, u64)> = nodes.values().flatten().filter_map(|docs| *docs).collect();
    let mean = |of: fn(&(u64, u64)) -> u64| {
        let sum: f64 = all_counted.iter().map(|docs| of(docs) as f64).sum();
        (!all_counted.is_empty()).then(|| sum / all_counted.len() as f64)
    };
    // Uncounted copies are assumed to have as many as the counted ones: documents are spread
    // evenly.
    let (docs, changes) = (mean(|docs| docs.0), mean(|docs| docs.0.saturating_add(docs.1)));
    let placement = |(node, shards): (NodeIx, Vec<Option<(u64, u64)>>)| {
        let uncounted = shards.iter().filter(|docs| docs.is_none()).count() as f64;
        let counted = || shards.iter().filter_map(|docs| *docs);
        let sum = |mean: Option<f64>, of: fn((u64, u64)) -> u64| {
            Some(mean? * uncounted + counted().map(|docs| of(docs) as f64).sum::<f64>())
        };
        let all = |docs: (u64, u64)| docs.0.saturating_add(docs.1);
        Placement {
            node,
            copies: u32::try_from(shards.len()).unwrap_or(u32::MAX),
            docs: sum(docs, |docs| docs.0),
            changes: sum(changes, all),
            largest_changes: counted().map(all).max().max(changes.map(to_bytes)),
        }
    };
    nodes.into_iter().map(placement).collect()
}

/// What each node needs for a new index.
pub(super) fn needs(
    plan: &Plan,
    placed: &[Placement],
    size: Option<&IndexSize>,
    old: Option<TargetRef<'_>>,
) -> Vec<NodeNeed> {
    let need = |node: &Placement| need(plan, node, size, old);
    let mut needs: Vec<NodeNeed> = placed.iter().map(need).collect();
    judge(&mut needs);
    needs
}

/// Whether the peak of each node fits, together with those of nodes on the same volume.
pub(super) fn judge(needs: &mut [NodeNeed]) {
    let mut by_volume: BTreeMap<Arc<str>, Spread> = BTreeMap::new();
    for need in needs.iter() {
        if let (Some(volume), Some(peak)) = (&need.volume, need.peak) {
            let sum = by_volume.entry(Arc::clone(volume)).or_insert(Spread::ZERO);
            *sum = sum.plus(peak);
        }
    }
    for need in needs {
        let peak = need.volume.as_ref().and_then(|volume| by_volume.get(volume)).copied();
        need.verdict = verdict(peak, need.free_bytes);
        let lacking =
            peak.zip(need.free_bytes).filter(|_| need.verdict == SpaceVerdict::DoesNotFit);
        need.missing_bytes = lacking.map(|(peak, free)| to_bytes(peak.low - free as f64));
    }
}

fn need(
    plan: &Plan,
    placed: &Placement,
    size: Option<&IndexSize>,
    old: Option<TargetRef<'_>>,
) -> NodeNeed {
    let snapshot = &plan.snapshot;
    let of_node = |per_doc: Spread| placed.docs.map(|docs| per_doc.scaled(docs));
    let live = size.and_then(|size| of_node(size.bytes_per_doc));
    let built = size.and_then(|size| of_node(size.built_per_doc));
    let old_bytes = old.and_then(|index| {
        let (bytes, files) = (index.file_bytes()?, f64::from(index.file_count().max(1)));
        Some(to_bytes(bytes as f64 * f64::from(placed.copies) / files))
    });
    let usable = plan.usable_space(placed.node);
    let reserved_bytes = usable.map_or(0, |usable| {
        let running = usable.volume.reserved_bytes(&plan.conditions.jobs, snapshot);
        running.saturating_add(planned_bytes(plan, &usable.volume.nodes))
    });
    NodeNeed {
        node: snapshot.node(placed.node).map_or_else(String::new, |node| node.name.to_string()),
        copies: placed.copies,
        live,
        built,
        peak: built.zip(live).map(|(built, live)| built.plus(live)),
        old_bytes,
        volume: usable.map(|usable| Arc::clone(&usable.volume.name)),
        free_bytes: usable.map(|usable| usable.bytes.saturating_sub(reserved_bytes)),
        reserved_bytes,
        verdict: SpaceVerdict::Unknown,
        missing_bytes: None,
    }
}

/// What the compactions that are about to start may write on a volume of these nodes.
fn planned_bytes(plan: &Plan, nodes: &[Arc<str>]) -> u64 {
    if plan.rules.mode != Mode::Enforce {
        return 0;
    }
    let is_here = |node: NodeIx| {
        node == NodeIx::CLUSTER
            || plan.snapshot.node(node).is_some_and(|node| nodes.contains(&node.name))
    };
    let starts = plan.starts.iter().filter(|start| is_here(start.node));
    starts.fold(0, |sum, start| sum.saturating_add(start.peak_bytes))
}

fn verdict(peak: Option<Spread>, free: Option<u64>) -> SpaceVerdict {
    match peak.zip(free) {
        None => SpaceVerdict::Unknown,
        Some((peak, free)) if peak.high <= free as f64 => SpaceVerdict::Fits,
        Some((peak, free)) if peak.low > free as f64 => SpaceVerdict::DoesNotFit,
        Some(_) => SpaceVerdict::MayNotFit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_fits_only_if_its_highest_estimate_does() {
        let peak = Some(Spread { low: 10.0, likely: 20.0, high: 40.0 });
        for (free, expected) in [
            (Some(40), SpaceVerdict::Fits),
            (Some(39), SpaceVerdict::MayNotFit),
            (Some(10), SpaceVerdict::MayNotFit),
            (Some(9), SpaceVerdict::DoesNotFit),
            (None, SpaceVerdict::Unknown),
        ] {
            assert_eq!(verdict(peak, free), expected, "{free:?}");
        }
        assert_eq!(verdict(None, Some(1 << 40)), SpaceVerdict::Unknown);
    }
}
