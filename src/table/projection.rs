//! Tables whose facts can be changed to compute the consequences.

use super::{PackedFacts, SizeHistory, Snapshot, TargetIx};
use crate::model::{facts::Facts, rent::Rent, target::TargetState};
use std::sync::Arc;
use wall_clock::Moment;

/// A copy of a snapshot with facts of another time. Its totals remain those of the original.
#[derive(Clone, Debug)]
pub struct Projection {
    current: Snapshot,
    changed: Vec<TargetIx>,
}

impl Projection {
    /// A copy of these tables, at their own version.
    pub fn of(snapshot: &Snapshot) -> Self {
        Self { current: snapshot.clone(), changed: Vec::new() }
    }

    /// Replaces the facts and the rent of one target; neither is derived from the other.
    pub fn set(&mut self, ix: TargetIx, facts: &Facts, rent: Rent) {
        let Some(target) = self.current.target(ix) else { return };
        let (kind, history) = (target.kind(), target.history());
        if let Some(row) = self.current.facts.get_mut(ix.as_usize()) {
            *row = PackedFacts::pack(kind, facts);
        }
        if let Some(row) = self.current.histories.get_mut(ix.as_usize()) {
            *row = SizeHistory { rent, ..history };
        }
        self.changed.push(ix);
    }

    /// Replaces a target's relation to the shard map.
    pub fn set_state(&mut self, ix: TargetIx, state: TargetState) {
        if let Some(row) = self.current.rows.get_mut(ix.as_usize()) {
            row.state = state;
            self.changed.push(ix);
        }
    }

    /// The current tables, with the version number increased by one.
    pub fn publish(&mut self, now: Moment) -> Arc<Snapshot> {
        self.current.version += 1;
        self.current.generated_at = now;
        self.current.changed_targets = std::mem::take(&mut self.changed).into();
        Arc::new(self.current.clone())
    }
}
