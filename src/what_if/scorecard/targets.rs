//! The files that advised compactions have made smaller, as they would be now.
//!
//! Owns one entry for each such target. An entry ends when somebody really compacts the file,
//! because the file is then at least as small as the advised compaction left it. Pure.
//!
//! The bytes that an advised compaction freed stay freed while the real file continues to grow. So
//! the file would now be smaller than the real one by these bytes, but never smaller than a
//! compaction would leave it now.

use crate::{
    model::{
        correction::{Correction, active_bytes_of_new_file},
        facts::{Facts, OptionalU64},
        records::{AdvisedTarget, ScorecardChange},
        rent::{Rent, WasteReading},
        rounding::to_single,
        target::{TargetId, TargetKind},
    },
    plan::SupposedTarget,
    table::{Snapshot, TargetIndex, TargetIx, TargetRef},
    what_if::imagined::{NodeBytes, nodes_of},
};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use wall_clock::Moment;

/// Maximum number of entries, about twenty megabytes. Beyond it, no advised compaction of another
/// target begins, and the scorecard reports that some may be missing.
pub(super) const MAX_TARGETS: usize = 50_000;

/// A target that no snapshot contained for this many steps, i.e. for an hour, is forgotten.
const MAX_MISSING_STEPS: u32 = 60;

#[derive(Clone, Debug)]
struct Entry {
    record: AdvisedTarget,
    ix: Option<TargetIx>,
    missing_steps: u32,
    /// Waste at the last reading of the real file.
    reading: WasteReading,
    /// The rent of the smaller file, and its waste at the last reading.
    rent: Rent,
    supposed: Option<WasteReading>,
    queued_since: Option<Moment>,
}

impl Entry {
    fn of(record: AdvisedTarget, ix: Option<TargetIx>) -> Self {
        let reading = WasteReading {
            at: record.compacted_at,
            reclaimable_bytes: record.file_bytes.saturating_sub(record.left_bytes),
            file_bytes: record.file_bytes,
            compacted_seq: record.compacted_seq,
        };
        Self {
            record,
            ix,
            missing_steps: 0,
            reading,
            rent: Rent::UNKNOWN,
            supposed: None,
            queued_since: None,
        }
    }

    /// Updates the entry to the facts of its target.
    fn update(&mut self, target: TargetRef<'_>, reading: WasteReading) {
        self.reading = reading;
        let Some(waste) = self.record.waste_of(target) else { return };
        // Without size and sequence; with them, the file would seem to be compacted again.
        let seen = WasteReading {
            reclaimable_bytes: waste,
            file_bytes: 0,
            compacted_seq: None,
            ..reading
        };
        let since = self.record.compacted_at;
        self.rent = if self.rent.is_known() {
            self.rent.after_reading(self.supposed.as_ref(), Some(&seen))
        } else {
            // After a restart: assumes that waste has grown evenly since the compaction.
            let waited = since.age(seen.at).as_secs_f64();
            Rent::from_parts(to_single(waste as f64 * waited / 2.0), since.max(seen.at))
        };
        self.supposed = Some(seen);
    }
}

impl AdvisedTarget {
    /// The record of a compaction that ends now, of a target with these real facts; none if a size
    /// is unknown.
    fn of(kind: TargetKind, correction: Correction, real: &Facts, now: Moment) -> Option<Self> {
        let file_bytes = real.file_bytes.get()?;
        let left_bytes = correction.predicted_bytes(kind, real)?.min(file_bytes);
        Some(Self {
            compacted_at: now,
            file_bytes,
            left_bytes,
            active_bytes: real.active_bytes.get(),
            left_active_bytes: Some(active_bytes_of_new_file(kind, real, left_bytes)),
            update_seq: real.update_seq.get().filter(|_| kind == TargetKind::Db),
            compacted_seq: real.compacted_seq.get(),
        })
    }

    /// The facts that the target would have, given its real ones; none if its size is unknown.
    fn facts(&self, kind: TargetKind, correction: Correction, real: &Facts) -> Option<Facts> {
        let file = real.file_bytes.get()?;
        let smallest = correction.predicted_bytes(kind, real)?.min(file);
        let freed = self.file_bytes.saturating_sub(self.left_bytes);
        let file = file.saturating_sub(freed).max(smallest);
        let mut facts = Facts { file_bytes: OptionalU64::new(file), ..*real };
        if let Some(active) = real.active_bytes.get() {
            let dropped = self.active_bytes.zip(self.left_active_bytes);
            let dropped = dropped.map_or(0, |(before, left)| before.saturating_sub(left));
            facts.active_bytes = OptionalU64::new(active.saturating_sub(dropped).min(file));
        }
        if let Some(seq) = self.update_seq {
            facts.compacted_seq = OptionalU64::new(seq);
        }
        facts.flags.needs_upgrade = false;
        Some(facts)
    }

    /// Bytes that a compaction would still free of one file.
    fn waste_of(&self, target: TargetRef<'_>) -> Option<u64> {
        let (kind, correction, real) = (target.kind(), target.correction(), target.facts());
        let facts = self.facts(kind, correction, &real)?;
        let left = correction.reclaimable_bytes(kind, &facts)?;
        Some(left.min(correction.reclaimable_bytes(kind, &real)?))
    }
}

/// What the entries save at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Savings {
    /// Bytes of waste, over all files.
    pub(super) waste_bytes: u64,
    /// Bytes of files on each node.
    pub(super) freed_on: NodeBytes,
}

/// All targets that advised compactions have made smaller.
#[derive(Debug, Default)]
pub(super) struct AdvisedTargets {
    entries: BTreeMap<TargetId, Entry>,
    /// Ids by table position, for targets that the snapshot has.
    ids: HashMap<TargetIx, TargetId>,
}

impl AdvisedTargets {
    pub(super) fn new(records: BTreeMap<TargetId, AdvisedTarget>) -> Self {
        let entries = records.into_iter().map(|(id, record)| (id, Entry::of(record, None)));
        Self { entries: entries.collect(), ids: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether a compaction of this target may begin.
    pub(super) fn has_room_for(&self, ix: TargetIx) -> bool {
        self.entries.len() < MAX_TARGETS || self.ids.contains_key(&ix)
    }

    /// Updates the entries to a snapshot; adds to `changes` the entries that end, because their
    /// file was really compacted or is gone.
    pub(super) fn update(&mut self, snapshot: &Snapshot, changes: &mut Vec<ScorecardChange>) {
        self.find_positions(snapshot);
        let mut ended = Vec::new();
        for (id, entry) in &mut self.entries {
            let Some(target) = entry.ix.and_then(|ix| snapshot.target(ix)) else {
                entry.missing_steps += 1;
                if entry.missing_steps >= MAX_MISSING_STEPS {
                    ended.push(id.clone());
                }
                continue;
            };
            entry.missing_steps = 0;
            let facts = target.facts();
            let reading = WasteReading::of(target.kind(), &facts, target.correction());
            match reading {
                Some(reading) if entry.reading.was_compacted_until(&reading) => {
                    ended.push(id.clone());
                }
                Some(reading) => entry.update(target, reading),
                None => {}
            }
        }
        for id in ended {
            if let Some(ix) = self.entries.remove(&id).and_then(|entry| entry.ix) {
                self.ids.remove(&ix);
            }
            changes.push(ScorecardChange::Target(id, None));
        }
    }

    fn find_positions(&mut self, snapshot: &Snapshot) {
        let mut index = TargetIndex::default();
        for (id, entry) in &mut self.entries {
            if let Some(ix) = entry.ix.filter(|ix| snapshot.target(*ix).is_none()) {
                self.ids.remove(&ix);
                entry.ix = None;
            }
            if entry.ix.is_none() {
                index.add(id);
            }
        }
        index.update(snapshot);
        for (id, entry) in self.entries.iter_mut().filter(|(_, entry)| entry.ix.is_none()) {
            entry.ix = index.position(id);
            if let Some(ix) = entry.ix {
                self.ids.insert(ix, id.clone());
            }
        }
    }

    /// The targets with the facts that they would have.
    pub(super) fn supposed(&self, snapshot: &Snapshot) -> Vec<SupposedTarget> {
        let supposed = |entry: &Entry| {
            let target = snapshot.target(entry.ix?)?;
            let real = target.facts();
            let facts = entry.record.facts(target.kind(), target.correction(), &real)?;
            let (ix, rent) = (target.ix(), entry.rent);
            Some(SupposedTarget { ix, facts, rent, queued_since: entry.queued_since })
        };
        self.entries.values().filter_map(supposed).collect()
    }

    /// Remembers since when channels take these targets.
    pub(super) fn remember_queued(&mut self, supposed: &[SupposedTarget]) {
        for it in supposed {
            let id = self.ids.get(&it.ix);
            if let Some(entry) = id.and_then(|id| self.entries.get_mut(id)) {
                entry.queued_since = it.queued_since;
            }
        }
    }

    /// Compacts a target; returns the sizes of one file before and after, and the change. None if a
    /// size is unknown.
    pub(super) fn compact(
        &mut self,
        target: TargetRef<'_>,
        now: Moment,
    ) -> Option<(u64, u64, ScorecardChange)> {
        let (kind, correction, real) = (target.kind(), target.correction(), target.facts());
        let id = self.ids.get(&target.ix()).cloned().unwrap_or_else(|| target.id());
        let before = match self.entries.get(&id) {
            Some(entry) => entry.record.facts(kind, correction, &real)?.file_bytes.get()?,
            None => real.file_bytes.get()?,
        };
        let record = AdvisedTarget::of(kind, correction, &real, now)?;
        let left = record.left_bytes.min(before);
        let mut entry = Entry::of(record, Some(target.ix()));
        let reading = WasteReading::of(kind, &real, correction);
        entry.reading = reading.unwrap_or(entry.reading);
        entry.rent = Rent::from_parts(0.0, now);
        self.entries.insert(id.clone(), entry);
        self.ids.insert(target.ix(), id.clone());
        Some((before, left, ScorecardChange::Target(id, Some(record))))
    }

    /// What all entries save.
    pub(super) fn savings(&self, snapshot: &Snapshot) -> Savings {
        let mut savings = Savings { waste_bytes: 0, freed_on: NodeBytes::none(snapshot) };
        for entry in self.entries.values() {
            let Some(target) = entry.ix.and_then(|ix| snapshot.target(ix)) else { continue };
            let (kind, correction, real) = (target.kind(), target.correction(), target.facts());
            let count = u64::from(target.file_count());
            let wasted = correction.reclaimable_bytes(kind, &real);
            if let Some((wasted, left)) = wasted.zip(entry.record.waste_of(target)) {
                let saved = wasted.saturating_sub(left).saturating_mul(count);
                savings.waste_bytes = savings.waste_bytes.saturating_add(saved);
            }
            let facts = entry.record.facts(kind, correction, &real);
            let sizes = real.file_bytes.get().zip(facts.and_then(|facts| facts.file_bytes.get()));
            let Some((file, smaller)) = sizes else { continue };
            let freed = (file.saturating_sub(smaller) * count) as f64;
            savings.freed_on.spread(freed, &nodes_of(snapshot, target.node_ix()));
        }
        savings
    }

    /// Moves all times after a clock that read `before` was set to `now`.
    pub(super) fn shift(&mut self, before: Moment, now: Moment) {
        for entry in self.entries.values_mut() {
            let wasted = entry.supposed.map_or(0, |it| it.reclaimable_bytes);
            entry.rent = entry.rent.settled(wasted, before, now);
            entry.queued_since = entry.queued_since.map(|at| at.shifted(before, now));
        }
    }
}

#[cfg(test)]
mod tests;
