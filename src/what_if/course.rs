//! Projects the sizes of targets from their last readings and growth.

use super::Present;
use crate::{
    model::{
        correction::{Correction, active_bytes_of_new_file, changes_since_compaction},
        facts::{Facts, Measurement, OptionalU64},
        growth::{ExpectedRate, TimeAhead},
        rent::{Rent, WasteReading},
        rounding::to_bytes,
        target::{TargetKind, TargetState},
    },
    table::{Projection, TargetIx, TargetRef},
};
use hashbrown::HashMap;
use wall_clock::Moment;

/// The course of one target's sizes, from a reading or a compaction on. Bytes are per file.
#[derive(Clone, Copy, Debug)]
pub(super) struct TargetCourse {
    kind: TargetKind,
    correction: Correction,
    /// The present moment.
    now: Moment,
    /// The time of the facts below.
    begin: TimeAhead,
    facts: Facts,
    rent: Rent,
    /// Number of a database's changes per byte by which its file grows.
    changes_per_byte: f64,
    /// Bytes that the last compaction left; none before the first.
    left: Option<u64>,
    /// The rates of its file and of its live bytes; `None` if its sizes stay constant.
    rates: Option<(ExpectedRate, ExpectedRate)>,
}

/// The facts of a target, with the mean sizes of its files where it has several.
fn mean_file(target: TargetRef<'_>) -> Facts {
    let count = u64::from(target.file_count());
    let mean = |sum: Option<u64>| {
        sum.map_or_else(OptionalU64::default, |sum| OptionalU64::new(sum / count))
    };
    Facts {
        file_bytes: mean(target.file_bytes()),
        active_bytes: mean(target.active_bytes()),
        external_bytes: mean(target.external_bytes()),
        ..target.facts()
    }
}

impl TargetCourse {
    /// The course of a target from now on.
    pub(super) fn of(present: &Present, target: TargetRef<'_>) -> Self {
        let grows = |rate: &ExpectedRate| *rate != ExpectedRate::default();
        let rates = target.growth().expected(present.now);
        let rates = rates.filter(|(file, active)| grows(file) || grows(active));
        let facts = without_passing_work(mean_file(target));
        let measured = facts.measured_at;
        Self {
            kind: target.kind(),
            correction: target.correction(),
            now: present.now,
            begin: TimeAhead::default(),
            facts: Facts {
                measured_at: measured.map(|it| Measurement { at: present.now, ..it }),
                ..facts
            },
            rent: target.rent(),
            changes_per_byte: changes_per_byte(target.kind(), &facts),
            left: None,
            rates,
        }
    }

    /// Whether its sizes stay as they are.
    pub(super) const fn is_idle(&self) -> bool {
        self.rates.is_none()
    }

    pub(super) fn facts_after(&self, after: TimeAhead) -> Facts {
        let mut facts = self.facts;
        facts.measured_at =
            facts.measured_at.map(|it| Measurement { at: self.moment(after), ..it });
        let sizes = facts.file_bytes.get().zip(facts.active_bytes.get());
        let (Some((file_rate, active_rate)), Some((file, active))) = (self.rates, sizes) else {
            return facts;
        };
        let between = |rate: ExpectedRate| rate.bytes_between(self.begin, after);
        let (more, live) = (between(file_rate), between(active_rate));
        let grown = file.saturating_add(to_bytes(more));
        facts.file_bytes = OptionalU64::new(grown);
        facts.active_bytes = OptionalU64::new(to_bytes(active as f64 + live).min(grown));
        // Assumes changes as large as earlier ones, so that rules that depend on changes work.
        if let Some(changes) = facts.update_seq.get().filter(|_| self.kind == TargetKind::Db) {
            let new = more * self.changes_per_byte;
            facts.update_seq = OptionalU64::new(changes.saturating_add(to_bytes(new)));
        }
        facts
    }

    /// Bytes of one file after this time, and the bytes that compacting it would free; zero if
    /// unknown.
    pub(super) fn sizes_after(&self, after: TimeAhead) -> (u64, u64) {
        let facts = self.facts_after(after);
        let waste = self.correction.reclaimable_bytes(self.kind, &facts);
        (facts.file_bytes.get().unwrap_or_default(), waste.unwrap_or_default())
    }

    /// Wasted bytes per file that this course saves after this time, compared with another course.
    pub(super) fn saved_bytes(&self, other: &Self, after: TimeAhead) -> f64 {
        other.sizes_after(after).1 as f64 - self.sizes_after(after).1 as f64
    }

    /// The facts after this time, and the rent.
    ///
    /// The rent is that of this time even for a plan that is made slightly earlier and also decides
    /// about targets that become due before the next one.
    pub(super) fn state_after(&self, after: TimeAhead) -> (Facts, Rent) {
        let facts = self.facts_after(after);
        let waste = |facts| WasteReading::of(self.kind, facts, self.correction);
        let (before, seen) = (waste(&self.facts), waste(&facts));
        let rent = self.rent.after_reading(before.as_ref(), seen.as_ref());
        let rent = seen.map_or(rent, |seen| rent.settled(seen.reclaimable_bytes, seen.at, seen.at));
        (facts, rent)
    }

    /// The effect of a compaction between these times; `None` if a size is unknown. The compaction
    /// leaves the waste that is written while it runs.
    fn compacted(&self, begin: TimeAhead, after: TimeAhead) -> Option<CompactedCourse> {
        let facts = self.facts_after(after);
        let (file, predicted) =
            (facts.file_bytes.get()?, self.correction.predicted_bytes(self.kind, &facts)?);
        let least = predicted.max(self.least_left(after).min(file));
        let caught_up = self.rates.map_or(0.0, |(all, live)| {
            all.bytes_between(begin, after) - live.bytes_between(begin, after).max(0.0)
        });
        let left = least.saturating_add(to_bytes(caught_up)).min(file.max(least));
        let is_db = self.kind == TargetKind::Db;
        let facts = Facts {
            file_bytes: OptionalU64::new(left),
            active_bytes: OptionalU64::new(active_bytes_of_new_file(self.kind, &facts, least)),
            compacted_seq: if is_db { facts.update_seq } else { facts.compacted_seq },
            ..facts
        };
        let rent = Rent::from_parts(0.0, self.moment(after));
        let compacted = Self { begin: after, facts, rent, left: Some(least), ..*self };
        Some(CompactedCourse { before: *self, after: compacted, file, left })
    }

    /// A lower bound of what a compaction leaves: what the previous one left, unless live bytes shrink.
    ///
    /// A prediction subtracts what rewriting has left in the live trees since the last compaction. The rate of live
    /// bytes may have been measured without that part, so subtracting it at every compaction would make a frequently
    /// compacted file vanish.
    fn least_left(&self, after: TimeAhead) -> u64 {
        let Some(left) = self.left else { return 0 };
        let live = self.rates.map_or(0.0, |(_, live)| live.bytes_between(self.begin, after));
        to_bytes(left as f64 + live.min(0.0))
    }

    fn moment(&self, after: TimeAhead) -> Moment {
        self.now.plus(after.span)
    }
}

/// Number of a database's changes per byte by which its file grows: from what was written since its
/// last compaction, or from the whole file, whichever gives larger changes.
fn changes_per_byte(kind: TargetKind, facts: &Facts) -> f64 {
    let share = |changes: Option<u64>, bytes: Option<u64>| {
        let (changes, bytes) = (changes? as f64, bytes.filter(|bytes| *bytes > 0)? as f64);
        (changes > 0.0).then_some(changes / bytes)
    };
    let written = facts.file_bytes.get().zip(facts.active_bytes.get());
    let written = written.map(|(file, active)| file.saturating_sub(active));
    let of_all = share(facts.update_seq.get(), facts.file_bytes.get());
    let of_late = share(changes_since_compaction(kind, facts), written);
    of_all.into_iter().chain(of_late).fold(f64::INFINITY, f64::min).min(1.0)
}

/// The facts without running or due compactions and builds: a course knows its own compactions, and
/// both end long before most of the simulated time.
fn without_passing_work(mut facts: Facts) -> Facts {
    facts.flags.compact_running = false;
    facts.flags.updater_running = false;
    if facts.updates_pending.get().is_some() {
        facts.updates_pending = OptionalU64::new(0);
    }
    facts
}

/// The present tables without temporary states: no shard is split, and no view is built.
pub(super) fn undisturbed_tables(present: &Present) -> Projection {
    let mut projection = Projection::of(&present.snapshot);
    for target in present.snapshot.targets() {
        if target.state() == TargetState::Resharding {
            projection.set_state(target.ix(), TargetState::Ok);
        }
        let facts = target.facts();
        let passed = without_passing_work(facts);
        if passed != facts {
            projection.set(target.ix(), &passed, target.rent());
        }
    }
    projection
}

/// What a compaction does to one file of a target.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompactedCourse {
    pub(super) before: TargetCourse,
    pub(super) after: TargetCourse,
    /// Size of the file before.
    pub(super) file: u64,
    /// Bytes that the compaction leaves.
    pub(super) left: u64,
}

/// A target that grows and was compacted.
#[derive(Clone, Copy, Debug)]
struct GrowingTarget {
    ix: TargetIx,
    file_count: u32,
    /// Its course if nothing were compacted.
    without: TargetCourse,
}

/// The courses of all targets, given the compactions so far.
#[derive(Debug)]
pub(super) struct Courses<'a> {
    present: &'a Present,
    compacted: HashMap<TargetIx, TargetCourse>,
    /// The compacted targets that grow.
    growing: Vec<GrowingTarget>,
}

impl<'a> Courses<'a> {
    pub(super) fn new(present: &'a Present) -> Self {
        Self { present, compacted: HashMap::new(), growing: Vec::new() }
    }

    /// The course of a target as it is now.
    pub(super) fn of(&self, target: TargetRef<'_>) -> TargetCourse {
        let compacted = self.compacted.get(&target.ix()).copied();
        compacted.unwrap_or_else(|| TargetCourse::of(self.present, target))
    }

    /// Bytes that compactions of growing targets save after this time: for each target, its kind
    /// and the bytes of all its files.
    pub(super) fn saved_bytes(&self, after: TimeAhead) -> impl Iterator<Item = (TargetKind, f64)> {
        self.growing.iter().filter_map(move |GrowingTarget { ix, file_count, without }| {
            let saved = self.compacted.get(ix)?.saved_bytes(without, after);
            Some((without.kind, saved * f64::from(*file_count)))
        })
    }

    /// Compacts one file of a target between these times; none if a size is unknown.
    pub(super) fn compact(
        &mut self,
        target: TargetRef<'_>,
        (begin, end): (TimeAhead, TimeAhead),
    ) -> Option<CompactedCourse> {
        let before = self.of(target);
        let compacted = before.compacted(begin, end)?;
        let is_first = self.compacted.insert(target.ix(), compacted.after).is_none();
        if is_first && !before.is_idle() {
            let (ix, file_count) = (target.ix(), target.file_count());
            self.growing.push(GrowingTarget { ix, file_count, without: before });
        }
        Some(compacted)
    }
}
