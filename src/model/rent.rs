//! Rent: what the waste of a target has cost so far, and when compacting it costs less than waiting.
//!
//! Owns the sum of waste over time, how readings and compactions change it, and the comparison with
//! the cost of a compaction. Never reads a clock and never predicts: sizes come from `correction`. The
//! snapshot keeps one [`Rent`] for each target, `score` compares it, and reports show it.
//!
//! # The rule
//!
//! Waste is rent, and a compaction is a purchase. A target's rent is the integral over time of what
//! a compaction would free, in byte-seconds, since its last compaction; a compaction costs the bytes
//! that it writes anew. A compaction is due when
//!
//! ```text
//! rent >= cost * horizon
//! ```
//!
//! The horizon says how long a wasted byte may remain before rewriting a byte is worth it. A file that
//! is half waste and idle is due after one horizon, one with a tenth of waste after nine, and one with
//! ten times more waste than data after a tenth of it. This is the ski-rental rule, whose cost is at
//! most twice that of knowing the future. For a file that makes garbage at a constant rate it also
//! is the square-root law of reorganisation points: for a given number of rewritten bytes it wastes
//! least, because every file pays the same for the last byte saved.
//!
//! # Time
//!
//! Readings come at uneven times. Between two that differ, waste is taken to change in a straight
//! line; while it stays the same nothing is stored, because the sum then follows from the time. So
//! an idle cluster changes no row and no stored block.
//!
//! A clock that is set does not change rent: what was paid up to then is added up, and counting goes
//! on from the new time ([`Rent::settled`]).

use crate::model::{correction::Correction, facts::Facts, rounding::to_single, target::TargetKind};
use wall_clock::Moment;

/// The waste of one target over time, per file, in eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rent {
    /// Byte-seconds up to `since`, in single precision, which still grows after millions of readings.
    paid: f32,
    /// The time from which on waste is what the last reading found; 1970 before the first reading.
    since: Moment,
}

/// What one reading of a file tells about its waste.
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
    /// What these facts of one file tell, with the waste by a correction; none if its sizes or the
    /// time are not known, and for targets that have no file.
    #[must_use]
    pub fn of(kind: TargetKind, facts: &Facts, correction: Correction) -> Option<Self> {
        Some(Self {
            at: facts.measured_at?.at,
            reclaimable_bytes: correction.reclaimable_bytes(kind, facts)?,
            file_bytes: facts.file_bytes.get()?,
            compacted_seq: facts.compacted_seq.get(),
        })
    }

    /// Whether the file was compacted between this reading and a later one, as far as the two show.
    #[must_use]
    pub fn was_compacted_until(&self, later: &Self) -> bool {
        self.freed_until(later).is_some()
    }

    /// The bytes that a compaction freed between this reading and a later one; none if there was no
    /// compaction, as far as the two show.
    ///
    /// Files only grow at their end, so a database that shrank was replaced; so was one whose
    /// sequence at the last compaction moved, even if it grew since. What was freed is what the file
    /// lost, or, where new data hides that, what its waste lost. A view has no such sequence, and two
    /// readings over HTTP may be of two copies, so it counts as compacted if half of its waste is gone.
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
    /// Its target was never read.
    pub const UNKNOWN: Self = Self { paid: 0.0, since: Moment::from_unix(0) };

    /// The rent that an earlier process stored.
    #[must_use]
    pub const fn from_parts(byte_seconds: f32, since: Moment) -> Self {
        Self { paid: byte_seconds, since }
    }

    /// The stored form: byte-seconds up to a time, and that time; none before the first reading.
    #[must_use]
    pub fn parts(self) -> Option<(f32, Moment)> {
        self.is_known().then_some((self.paid, self.since))
    }

    /// Whether its target was ever read.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.since != Moment::default()
    }

    /// Byte-seconds up to `now`, with waste as the last reading found it; none before the first
    /// reading.
    #[must_use]
    pub fn byte_seconds(self, reclaimable_bytes: u64, now: Moment) -> Option<f64> {
        let waited = self.since.age(now).as_secs_f64();
        self.is_known().then(|| f64::from(self.paid) + reclaimable_bytes as f64 * waited)
    }

    /// The rent after a reading; `known` is what the reading before it found.
    ///
    /// A compaction in between pays off what it freed: that share of the rent which it freed of the
    /// waste.
    #[must_use]
    pub fn after_reading(self, known: Option<&WasteReading>, seen: Option<&WasteReading>) -> Self {
        let Some(seen) = seen else { return self.without_reading(known) };
        let Some(known) = known.filter(|_| self.is_known()) else {
            return Self { since: seen.at, ..self };
        };
        let freed = known.freed_until(seen);
        if freed.is_none() && known.reclaimable_bytes == seen.reclaimable_bytes {
            return self;
        }
        // The time of a reading from before a clock was set back says nothing.
        let last = if known.at <= seen.at { known.at.max(self.since) } else { self.since };
        let changed_from = last.min(seen.at);
        let constant = self.since.age(changed_from).as_secs_f64() * known.reclaimable_bytes as f64;
        let mean = (known.reclaimable_bytes as f64 + seen.reclaimable_bytes as f64) / 2.0;
        let changing = changed_from.age(seen.at).as_secs_f64() * mean;
        let paid = f64::from(self.paid) + constant + changing;
        let left = freed.map_or(1.0, |freed| unpaid_share(known.reclaimable_bytes, freed));
        Self { paid: to_single(paid * left), since: seen.at }
    }

    /// The rent while sizes are unknown: what was paid so far, which then grows no further.
    fn without_reading(self, known: Option<&WasteReading>) -> Self {
        known.map_or(self, |known| Self {
            since: Moment::default(),
            ..self.settled(known.reclaimable_bytes, known.at, known.at)
        })
    }

    /// The same rent on a clock that read `before` when it was set to `now`.
    #[must_use]
    pub fn settled(self, reclaimable_bytes: u64, before: Moment, now: Moment) -> Self {
        let paid = self.byte_seconds(reclaimable_bytes, before);
        paid.map_or(self, |paid| Self { paid: to_single(paid), since: now })
    }
}

/// The share of the rent that stays after a compaction freed so many of the wasted bytes.
fn unpaid_share(wasted: u64, freed: u64) -> f64 {
    if wasted == 0 { 0.0 } else { wasted.saturating_sub(freed) as f64 / wasted as f64 }
}

/// How overdue a compaction is: rent over cost times horizon, due from one on.
///
/// All of one file: `rent` in byte-seconds, `cost` in bytes written anew, `horizon` in seconds. None
/// of them depends on the number of copies that one compaction rewrites, because each copy wastes
/// and costs the same.
#[must_use]
pub fn overdue(rent: f64, cost: u64, horizon: f64) -> f64 {
    rent / (cost.max(1) as f64 * horizon)
}

#[cfg(test)]
mod tests;
