//! The scorecard of advice: what happened hour by hour, compared with what recliner would have
//! done.
//!
//! Owns its records: sums for each hour, the files that advised compactions would have made
//! smaller, and the advised compactions that would be running. An *advised* compaction is one that
//! recliner would have started if it enforced. Never decides which these are: `what_if::scorecard`
//! does, and the journal stores them.

use super::replace;
use crate::model::target::TargetId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// Seconds in an hour.
const HOUR: u64 = 3_600;

/// Number of hours that are kept: 35 days. The limit is a number and not an age, so that setting
/// the clock forward loses none.
const MAX_HOURS: usize = 35 * 24;

/// An hour, as the number of hours since 1970.
pub type HourNumber = u32;

/// The hour of a moment.
pub fn hour_of(at: Moment) -> HourNumber {
    HourNumber::try_from(at.unix() / HOUR).unwrap_or(HourNumber::MAX)
}

/// When an hour begins.
pub fn hour_begin(hour: HourNumber) -> Moment {
    Moment::from_unix(u64::from(hour) * HOUR)
}

/// The compactions of one side, real or advised, and the waste that they leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScorecardSide {
    /// Compactions that ended with a new file.
    pub compactions: u64,
    /// Compactions among them whose sizes are unknown: they add nothing to the next two sums.
    pub unmeasured: u64,
    /// Bytes that they freed.
    pub freed_bytes: u64,
    /// Bytes of the new files.
    pub rewritten_bytes: u64,
    /// Bytes that compactions would free, times the seconds for which they stayed wasted.
    pub waste_byte_seconds: f64,
    /// The most bytes wasted at any one time.
    pub peak_waste_bytes: u64,
    /// The most bytes that new files of running compactions take at any one time, beside the old
    /// ones.
    pub peak_extra_bytes: u64,
}

impl ScorecardSide {
    fn add(&mut self, other: &Self) {
        self.compactions = self.compactions.saturating_add(other.compactions);
        self.unmeasured = self.unmeasured.saturating_add(other.unmeasured);
        self.freed_bytes = self.freed_bytes.saturating_add(other.freed_bytes);
        self.rewritten_bytes = self.rewritten_bytes.saturating_add(other.rewritten_bytes);
        self.waste_byte_seconds += other.waste_byte_seconds;
        self.peak_waste_bytes = self.peak_waste_bytes.max(other.peak_waste_bytes);
        self.peak_extra_bytes = self.peak_extra_bytes.max(other.peak_extra_bytes);
    }
}

/// One hour, or the sum of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScorecardHour {
    /// Seconds in which recliner watched and advised; all other fields refer to these seconds.
    pub advised_seconds: u64,
    /// Seconds in which it enforced everything, so that there was nothing to compare.
    pub enforced_seconds: u64,
    /// What really happened, no matter who started it.
    pub real: ScorecardSide,
    /// What recliner would have done.
    pub advised: ScorecardSide,
    /// Advised compactions that would have run at the same time as another program's compaction of
    /// the same file or of another copy of its shard range.
    pub conflicts: u64,
    /// Whether some advised compactions may be missing, because a list was full.
    pub is_incomplete: bool,
}

impl ScorecardHour {
    /// Adds another hour.
    pub fn add(&mut self, other: &Self) {
        self.advised_seconds = self.advised_seconds.saturating_add(other.advised_seconds);
        self.enforced_seconds = self.enforced_seconds.saturating_add(other.enforced_seconds);
        self.real.add(&other.real);
        self.advised.add(&other.advised);
        self.conflicts = self.conflicts.saturating_add(other.conflicts);
        self.is_incomplete |= other.is_incomplete;
    }

    /// Seconds of this hour for which there is no data.
    pub const fn missing_seconds(&self) -> u64 {
        HOUR.saturating_sub(self.advised_seconds.saturating_add(self.enforced_seconds))
    }
}

/// A target's file as an advised compaction would have left it. Bytes are per file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdvisedTarget {
    /// When that compaction would have ended.
    pub compacted_at: Moment,
    /// The real file's size at that time.
    pub file_bytes: u64,
    /// The size that the compaction would have left.
    pub left_bytes: u64,
    /// The real active bytes at that time.
    pub active_bytes: Option<u64>,
    /// The active bytes that the compaction would have left.
    pub left_active_bytes: Option<u64>,
    /// The sequence at that time; databases only.
    pub update_seq: Option<u64>,
    /// The sequence at the last real compaction; databases only.
    pub compacted_seq: Option<u64>,
}

/// An advised compaction that would still be running.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdvisedJob {
    /// The target.
    pub target: TargetId,
    /// The node of the compacted file; `_cluster` for all copies of a view.
    pub node: String,
    /// The shard file's name, if a single file is compacted.
    pub shard: Option<String>,
    /// A view's design document, by id.
    pub design: Option<String>,
    /// The channel that takes it.
    pub channel: String,
    /// When it would have started.
    pub started_at: Moment,
    /// When it would end, at the measured rate.
    pub ends_at: Moment,
    /// Bytes of the new files, as predicted at the start.
    pub rewrite_bytes: u64,
    /// Bytes that it needs at its peak on each node's volume.
    pub peak_bytes: u64,
    /// Whether another program's compaction ran at the same time, as in [`ScorecardHour::conflicts`].
    #[serde(default)]
    pub is_in_conflict: bool,
}

/// A part of the scorecard that changed.
#[derive(Clone, Debug, PartialEq)]
pub enum ScorecardChange {
    /// Replaces an hour; `None` removes it.
    Hour(HourNumber, Option<ScorecardHour>),
    /// Replaces the state of a target after advised compactions; `None` removes it.
    Target(TargetId, Option<AdvisedTarget>),
    /// Replaces the list of advised compactions that would be running.
    Jobs(Vec<AdvisedJob>),
}

/// The whole scorecard, in its stored form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScorecardRecords {
    /// The hours.
    pub hours: BTreeMap<HourNumber, ScorecardHour>,
    /// The targets that advised compactions would have made smaller.
    pub targets: BTreeMap<TargetId, AdvisedTarget>,
    /// The advised compactions that would be running.
    pub jobs: Vec<AdvisedJob>,
}

impl ScorecardRecords {
    /// Applies one change.
    pub fn apply(&mut self, change: ScorecardChange) {
        match change {
            ScorecardChange::Hour(hour, sums) => replace(&mut self.hours, hour, sums),
            ScorecardChange::Target(id, target) => replace(&mut self.targets, id, target),
            ScorecardChange::Jobs(jobs) => self.jobs = jobs,
        }
    }
}

/// Removes and returns the oldest hours beyond `MAX_HOURS`.
pub fn take_surplus_hours(hours: &mut BTreeMap<HourNumber, ScorecardHour>) -> Vec<HourNumber> {
    let surplus = hours.len().saturating_sub(MAX_HOURS);
    let oldest: Vec<HourNumber> = hours.keys().take(surplus).copied().collect();
    for hour in &oldest {
        hours.remove(hour);
    }
    oldest
}
