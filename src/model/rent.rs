//! Rent: the cost so far of a target's waste, which shows when compacting costs less than waiting.
//!
//! Owns the sum of waste over time, how readings and compactions change it, and the comparison with
//! the cost of a compaction. Never reads a clock and never predicts: sizes come from `correction`.
//! The snapshot stores one [`Rent`] for each target, `score` compares it, and reports show it.
//!
//! # The rule
//!
//! Waste is rent, and a compaction is a purchase. A target's rent is the integral over time of the
//! bytes that a compaction would free, in byte-seconds, since its last compaction; a compaction
//! costs the bytes that it rewrites. A compaction is due when
//!
//! ```text
//! rent >= cost * horizon
//! ```
//!
//! The horizon says how long a wasted byte may remain before rewriting one byte is worth it. An
//! idle file that is half waste is due after one horizon, one that is a tenth waste after nine, and
//! one with ten times more waste than data after a tenth of a horizon. This is the ski-rental rule,
//! which costs at most twice as much as a decision that knows the future. For a file that creates
//! waste at a constant rate it is also the square-root law of reorganisation points: for a given
//! number of rewritten bytes it minimises waste, because every file pays the same for the last byte
//! saved.
//!
//! # Time
//!
//! Readings come at uneven times. Between two that differ, waste is assumed to change linearly;
//! while it stays the same nothing is stored, because the sum then follows from the time. So an
//! idle cluster changes no row and no stored block.
//!
//! Setting the clock does not change rent: the rent up to then is added up, and counting continues
//! from the new time ([`Rent::settled`]).

use crate::model::{correction::Correction, facts::Facts, rounding::to_single, target::TargetKind};
use wall_clock::Moment;

/// The waste of one target over time, per file, in eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rent {
    /// Byte-seconds up to `since`, in single precision, which still registers growth after millions
    /// of readings.
    paid: f32,
    /// The time since which waste is constant at the last reading's value; the Unix epoch before
    /// the first reading.
    since: Moment,
}

/// The waste according to one reading of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WasteReading {
    /// When the file was read.
    pub at: Moment,
    /// Bytes that a compaction would free.
    pub reclaimable_bytes: u64,
    /// Its size.
    pub file_bytes: u64,
    /// The sequence at its last compaction, where known.
    pub compacted_seq: Option<u64>,
}

impl WasteReading {
    /// The waste according to these facts of one file, with a correction applied; `None` if a size
    /// or the time is unknown, or if the target has no file.
    pub fn of(kind: TargetKind, facts: &Facts, correction: Correction) -> Option<Self> {
        Some(Self {
            at: facts.measured_at?.at,
            reclaimable_bytes: correction.reclaimable_bytes(kind, facts)?,
            file_bytes: facts.file_bytes.get()?,
            compacted_seq: facts.compacted_seq.get(),
        })
    }

    /// Whether the file was compacted between this reading and a later one, as far as the two show.
    pub fn was_compacted_until(&self, later: &Self) -> bool {
        self.freed_until(later).is_some()
    }

    /// The bytes that a compaction freed between this reading and a later one; `None` if the two
    /// show no compaction.
    ///
    /// Files only grow at their end, so a database that shrank was replaced; so was one whose
    /// compacted sequence advanced, even if the file has grown since. The freed bytes are the
    /// decrease of the file or, where new data hides that, the decrease of its waste. A view has no
    /// such sequence, and two readings over HTTP may be of two copies, so it counts as compacted if
    /// it shrank and more than half of its waste is gone.
    fn freed_until(&self, later: &Self) -> Option<u64> {
        let shrank = self.file_bytes.saturating_sub(later.file_bytes);
        let less_waste = self.reclaimable_bytes.saturating_sub(later.reclaimable_bytes);
        let replaced = match self.compacted_seq.zip(later.compacted_seq) {
            Some((one, two)) => shrank > 0 || one < two,
            None => shrank > 0 && less_waste > self.reclaimable_bytes / 2,
        };
        replaced.then_some(shrank.max(less_waste))
    }
}

impl Rent {
    /// The rent of a target that was never read.
    pub const UNKNOWN: Self = Self { paid: 0.0, since: Moment::from_unix(0) };

    /// The rent that an earlier process stored.
    pub const fn from_parts(byte_seconds: f32, since: Moment) -> Self {
        Self { paid: byte_seconds, since }
    }

    /// The stored form: byte-seconds up to a time, and that time; `None` before the first reading.
    pub fn parts(self) -> Option<(f32, Moment)> {
        self.is_known().then_some((self.paid, self.since))
    }

    /// Whether its target was ever read.
    pub fn is_known(self) -> bool {
        self.since != Moment::default()
    }

    /// Byte-seconds up to `now`, if waste has stayed as in the last reading; `None` before the
    /// first reading.
    pub fn byte_seconds(self, reclaimable_bytes: u64, now: Moment) -> Option<f64> {
        let waited = self.since.age(now).as_secs_f64();
        self.is_known().then(|| f64::from(self.paid) + reclaimable_bytes as f64 * waited)
    }

    /// The rent after a reading; `previous` is the reading before it.
    ///
    /// A compaction in between pays off a share of the rent: the share of the waste that it freed.
    pub fn after_reading(
        self,
        previous: Option<&WasteReading>,
        reading: Option<&WasteReading>,
    ) -> Self {
        let Some(reading) = reading else { return self.without_reading(previous) };
        let Some(previous) = previous.filter(|_| self.is_known()) else {
            return Self { since: reading.at, ..self };
        };
        let freed = previous.freed_until(reading);
        if freed.is_none() && previous.reclaimable_bytes == reading.reclaimable_bytes {
            return self;
        }
        // If a reading is dated later than the next one, the clock was set back: ignore its time.
        let last = if previous.at <= reading.at { previous.at.max(self.since) } else { self.since };
        let changed_from = last.min(reading.at);
        let constant =
            self.since.age(changed_from).as_secs_f64() * previous.reclaimable_bytes as f64;
        let mean = (previous.reclaimable_bytes as f64 + reading.reclaimable_bytes as f64) / 2.0;
        let changing = changed_from.age(reading.at).as_secs_f64() * mean;
        let paid = f64::from(self.paid) + constant + changing;
        let left = freed.map_or(1.0, |freed| unpaid_share(previous.reclaimable_bytes, freed));
        Self { paid: to_single(paid * left), since: reading.at }
    }

    /// The rent while sizes are unknown: it stays, but stops growing.
    fn without_reading(self, previous: Option<&WasteReading>) -> Self {
        previous.map_or(self, |previous| Self {
            since: Moment::default(),
            ..self.settled(previous.reclaimable_bytes, previous.at, previous.at)
        })
    }

    /// The same rent on a clock that read `before` when it was set to `now`.
    #[must_use]
    pub fn settled(self, reclaimable_bytes: u64, before: Moment, now: Moment) -> Self {
        let paid = self.byte_seconds(reclaimable_bytes, before);
        paid.map_or(self, |paid| Self { paid: to_single(paid), since: now })
    }
}

/// The share of the rent that remains after a compaction freed `freed` of the `wasted` bytes.
fn unpaid_share(wasted: u64, freed: u64) -> f64 {
    if wasted == 0 { 0.0 } else { wasted.saturating_sub(freed) as f64 / wasted as f64 }
}

/// How overdue a compaction is: rent over cost times horizon; it is due from 1 on.
///
/// All parameters refer to one file: `rent` in byte-seconds, `cost` in bytes rewritten, `horizon`
/// in seconds. None of them depends on the number of copies that one compaction rewrites, because
/// each copy wastes and costs the same.
pub fn overdue(rent: f64, cost: u64, horizon: f64) -> f64 {
    rent / (cost.max(1) as f64 * horizon)
}

#[cfg(test)]
mod tests;
