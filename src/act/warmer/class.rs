//! Build classes, and whether a build slot is free. Pure.

use super::index_lag::IndexLag;
use crate::{model::settings::work::Warmer, table::NodeIx};
use std::collections::BTreeMap;
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// The class of a build.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuildClass {
    /// Builds of any size.
    Batch,
    /// Builds of fewer than `max_incremental_updates` updates.
    Incremental,
}

impl BuildClass {
    /// The class for a given lag.
    pub(super) const fn for_lag(lag: &IndexLag, settings: &Warmer) -> Self {
        if lag.pending_per_shard() < settings.max_incremental_updates {
            Self::Incremental
        } else {
            Self::Batch
        }
    }
}

/// The last build of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastBuild {
    pub(super) ended_at: Moment,
    /// The sequence it had to reach.
    pub(super) target_seq: u64,
}

/// Number of indexers on each node, including those of requested builds that do not show yet.
#[derive(Clone, Debug, Default)]
pub(super) struct BuildSlots(BTreeMap<NodeIx, usize>);

impl BuildSlots {
    pub(super) fn occupy(&mut self, node: NodeIx, indexers: usize) {
        *self.0.entry(node).or_default() += indexers;
    }

    /// Occupies the slots that a build of all copies needs.
    pub(super) fn occupy_all(&mut self, lag: &IndexLag) {
        for (node, copies) in &lag.database.copies_by_node {
            self.occupy(*node, *copies);
        }
    }

    /// Whether every node has slots for its copies. An index with more copies than slots on a node
    /// is built where nothing else runs, because CouchDB builds all copies or none.
    fn have_room(&self, lag: &IndexLag, limit: usize) -> bool {
        lag.database.copies_by_node.iter().all(|(node, copies)| {
            let active = self.0.get(node).copied().unwrap_or_default();
            limit > 0 && (active == 0 || active.saturating_add(*copies) <= limit)
        })
    }

    /// The class in which a build may start now, as `ken_server:should_start_job/2` decides; `None`
    /// if it must wait for a slot or its delay.
    pub(super) fn startable_class(
        &self,
        lag: &IndexLag,
        last: Option<LastBuild>,
        settings: &Warmer,
        now: Moment,
    ) -> Option<BuildClass> {
        let batch = self.have_room(lag, settings.batch_channels);
        let all = settings.batch_channels.saturating_add(settings.incremental_channels);
        let any = self.have_room(lag, all);
        let delay_is_over = last.is_none_or(|last| last.ended_at.age(now) > settings.delay);
        let new_updates =
            last.map_or(u64::MAX, |last| lag.target_seq().saturating_sub(last.target_seq));
        if batch && (delay_is_over || new_updates >= settings.batch_size) {
            return Some(BuildClass::Batch);
        }
        let is_small = match last {
            None => BuildClass::for_lag(lag, settings) == BuildClass::Incremental,
            Some(_) => new_updates / lag.ranges.max(1) < settings.max_incremental_updates,
        };
        (any && is_small && delay_is_over).then_some(BuildClass::Incremental)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{act::warmer::index_lag::DatabaseCopies, table::TargetIx};
    use couchdb_names::Signature;
    use std::time::Duration;

    const NOW: Moment = Moment::from_unix(1_000);

    fn node(at: usize) -> NodeIx {
        NodeIx::from_usize(at).unwrap()
    }

    fn lag(pending: u64) -> IndexLag {
        let copies = [(node(1), 2), (node(2), 2)].into();
        IndexLag {
            ix: TargetIx::from_usize(0).unwrap(),
            signature: Signature([1; 16]),
            measured_at: NOW,
            pending,
            indexed_seq: 10_000,
            may_be_current: false,
            is_search: false,
            ranges: 2,
            database: DatabaseCopies { copies_by_node: copies, ..DatabaseCopies::default() },
        }
    }

    /// Two batch slots per node, and two more for incremental builds, by ken's table.
    #[test]
    fn builds_start_by_the_slot_rules_of_ken() {
        let settings = Warmer {
            batch_channels: 2,
            incremental_channels: 2,
            delay: Duration::from_secs(5),
            batch_size: 100,
            ..Warmer::default()
        };
        let (long_ago, just_now) = (Moment::from_unix(900), Moment::from_unix(998));
        let last = |at, goal| Some(LastBuild { ended_at: at, target_seq: goal });
        let (batch, incremental) = (Some(BuildClass::Batch), Some(BuildClass::Incremental));
        for (active, pending, last, expected) in [
            (0, 50_000, None, batch),
            (0, 1, None, batch),
            // Two indexers run on one of the nodes; this index needs two more.
            (2, 1, None, incremental),
            (2, 50_000, None, None),
            (3, 1, None, None),
            // Built a moment ago: only many new updates justify another build at once.
            (0, 1, last(just_now, 10_000), None),
            (0, 100, last(just_now, 10_000), batch),
            (0, 1, last(long_ago, 10_000), batch),
            (2, 1_999, last(long_ago, 10_000), incremental),
            (2, 2_000, last(long_ago, 10_000), None),
            (2, 100, last(just_now, 10_000), None),
        ] {
            let mut slots = BuildSlots::default();
            slots.occupy(node(2), active);
            let class = slots.startable_class(&lag(pending), last, &settings, NOW);
            assert_eq!(class, expected, "{active} run, {pending} pending, {last:?}");
        }
    }

    #[test]
    fn an_index_with_more_copies_than_slots_is_built_alone() {
        let settings = Warmer { batch_channels: 1, incremental_channels: 0, ..Warmer::default() };
        let mut slots = BuildSlots::default();
        assert_eq!(slots.startable_class(&lag(9), None, &settings, NOW), Some(BuildClass::Batch));
        slots.occupy_all(&lag(9));
        assert_eq!(slots.startable_class(&lag(9), None, &settings, NOW), None);
        let none = Warmer { batch_channels: 0, incremental_channels: 0, ..settings };
        assert_eq!(BuildSlots::default().startable_class(&lag(9), None, &none, NOW), None);
    }
}
