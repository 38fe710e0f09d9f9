//! How the sizes of targets go on: from their last readings and the growth these show.

use super::Present;
use crate::{
    model::{
        estimate,
        facts::{Facts, Measurement, OptionalU64},
        rent::{Rent, WasteReading},
        target::TargetKind,
    },
    table::{TargetIx, TargetRef},
};
use hashbrown::HashMap;
use std::time::Duration;
use wall_clock::Moment;

/// The sizes of every target at any time, given the compactions so far.
#[derive(Debug)]
pub(super) struct Course<'a> {
    present: &'a Present,
    /// What the last compaction of a target left, and when.
    compacted: HashMap<TargetIx, Compacted>,
}

#[derive(Clone, Copy, Debug)]
struct Compacted {
    after: Duration,
    facts: Facts,
}

impl<'a> Course<'a> {
    pub(super) fn new(present: &'a Present) -> Self {
        Self { present, compacted: HashMap::new() }
    }

    /// The targets that were compacted.
    pub(super) fn compacted(&self) -> impl Iterator<Item = TargetRef<'a>> {
        self.compacted.keys().filter_map(|ix| self.present.snapshot.target(*ix))
    }

    /// The facts of one file of a target after this time, and its rent.
    pub(super) fn state_after(&self, target: TargetRef<'_>, after: Duration) -> (Facts, Rent) {
        let compacted = self.compacted.get(&target.ix());
        let begin = compacted.map_or(Duration::ZERO, |it| it.after);
        let (known, rent) = match compacted {
            None => (self.measured(target.facts(), Duration::ZERO), target.rent()),
            Some(it) => (it.facts, Rent::from_parts(0.0, self.moment(begin))),
        };
        let facts = self.grown(target, &known, begin, after);
        let kind = target.kind();
        let waste = |facts| WasteReading::of(kind, facts);
        let rent = rent.after_reading(waste(&known).as_ref(), waste(&facts).as_ref());
        (facts, rent)
    }

    /// The same as if nothing had been compacted.
    pub(super) fn facts_without_compactions(
        &self,
        target: TargetRef<'_>,
        after: Duration,
    ) -> Facts {
        let known = self.measured(target.facts(), Duration::ZERO);
        self.grown(target, &known, Duration::ZERO, after)
    }

    /// Compacts one file of a target; returns its sizes before and after.
    pub(super) fn compact(&mut self, target: TargetRef<'_>, after: Duration) -> Option<(u64, u64)> {
        let kind = target.kind();
        let (facts, _) = self.state_after(target, after);
        let (file, left) = (facts.file_bytes.get()?, estimate::predicted_bytes(kind, &facts)?);
        let empty = Facts { active_bytes: OptionalU64::new(0), ..facts };
        let headers = estimate::predicted_bytes(kind, &empty).unwrap_or_default();
        let facts = Facts {
            file_bytes: OptionalU64::new(left),
            active_bytes: OptionalU64::new(left.saturating_sub(headers)),
            compacted_seq: if kind == TargetKind::Db {
                facts.update_seq
            } else {
                facts.compacted_seq
            },
            ..facts
        };
        self.compacted.insert(target.ix(), Compacted { after, facts });
        Some((file, left))
    }

    /// Facts of one file that has grown between two times.
    fn grown(
        &self,
        target: TargetRef<'_>,
        known: &Facts,
        begin: Duration,
        after: Duration,
    ) -> Facts {
        let mut facts = self.measured(*known, after);
        let Some((file_rate, active_rate)) = target.growth().expected(self.present.now) else {
            return facts;
        };
        let (Some(file), Some(active)) = (known.file_bytes.get(), known.active_bytes.get()) else {
            return facts;
        };
        let more = file_rate.bytes_within(after) - file_rate.bytes_within(begin);
        let live = active_rate.bytes_within(after) - active_rate.bytes_within(begin);
        let grown = file.saturating_add(to_bytes(more));
        facts.file_bytes = OptionalU64::new(grown);
        facts.active_bytes = OptionalU64::new(to_bytes(active as f64 + live).min(grown));
        // Changes as large as those before, so that what needs changes or lacks them is right.
        if let Some(changes) = known.update_seq.get().filter(|_| target.kind() == TargetKind::Db) {
            let new = more * changes as f64 / file.max(1) as f64;
            facts.update_seq = OptionalU64::new(changes.saturating_add(to_bytes(new)));
        }
        facts
    }

    /// The same facts, as read after this time.
    fn measured(&self, facts: Facts, after: Duration) -> Facts {
        let at = self.moment(after);
        Facts {
            measured_at: facts.measured_at.map(|measured| Measurement { at, ..measured }),
            ..facts
        }
    }

    fn moment(&self, after: Duration) -> Moment {
        self.present.now.plus(after)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion from float saturates"
)]
fn to_bytes(bytes: f64) -> u64 {
    bytes as u64
}
