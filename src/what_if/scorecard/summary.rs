//! The scorecard as readers see it, and its sums over any period.

use crate::model::records::{HourNumber, ScorecardHour, hour_begin, hour_of};
use std::collections::BTreeMap;
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// The state of the scorecard.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScorecardState {
    /// It waits for the first sizes.
    #[default]
    Waiting,
    /// It counts.
    Advising,
    /// It pauses and keeps its records, because recliner enforces everything.
    Enforcing,
}

/// Sums over advised compactions since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdviceCounters {
    /// Compactions that ended.
    pub compactions: u64,
    /// Bytes that they freed.
    pub freed_bytes: u64,
    /// Bytes of their new files.
    pub rewritten_bytes: u64,
    /// Compactions in conflict with another program's.
    pub conflicts: u64,
}

impl AdviceCounters {
    pub(super) const fn add(&mut self, sums: &ScorecardHour) {
        self.compactions += sums.advised.compactions;
        self.freed_bytes = self.freed_bytes.saturating_add(sums.advised.freed_bytes);
        self.rewritten_bytes = self.rewritten_bytes.saturating_add(sums.advised.rewritten_bytes);
        self.conflicts += sums.conflicts;
    }
}

/// The scorecard at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScorecardView {
    /// The sums of each hour.
    pub hours: BTreeMap<HourNumber, ScorecardHour>,
    /// The state of the scorecard.
    pub state: ScorecardState,
    /// Advised compactions that run.
    pub running: usize,
    /// Targets that advised compactions have made smaller.
    pub targets: usize,
    /// Sums since the process started.
    pub counters: AdviceCounters,
    /// The waste that would remain; `None` while nothing is advised.
    pub advised_waste_bytes: Option<u64>,
    /// When this view was made.
    pub updated_at: Moment,
}

/// The sums over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScorecardSum {
    /// The start of the first counted hour, if any.
    pub from: Option<Moment>,
    /// The sums.
    pub sums: ScorecardHour,
    /// Seconds since then about which nothing is known, because recliner was not running.
    pub missing_seconds: u64,
}

impl ScorecardView {
    /// Sums from the hour of `since` up to `now`.
    ///
    /// Time before the scorecard's first hour does not count as missing. Hours in the future, as
    /// after a clock was set back, count with their content.
    pub fn sum(&self, since: Moment, now: Moment) -> ScorecardSum {
        let Some(begun) = self.hours.keys().next().copied() else { return ScorecardSum::default() };
        let (first, this) = (hour_of(since).max(begun), hour_of(now));
        let mut sums = ScorecardHour::default();
        self.hours.range(first..).for_each(|(_, hour)| sums.add(hour));
        let missing = |number: HourNumber| {
            let hour = self.hours.get(&number).copied().unwrap_or_default();
            let ends = hour_begin(number.saturating_add(1));
            let to_come = if number == this { now.age(ends).as_secs() } else { 0 };
            if number == begun { 0 } else { hour.missing_seconds().saturating_sub(to_come) }
        };
        let missing_seconds = (first..=this).map(missing).sum();
        let has_any = self.hours.range(first..).next().is_some();
        let from = has_any.then(|| hour_begin(first));
        ScorecardSum { from, sums, missing_seconds }
    }
}
