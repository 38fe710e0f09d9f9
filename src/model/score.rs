//! The score: whether a channel takes a target, and at what priority.
//!
//! Owns smoosh's rule, line by line, and beside it the rule of `rent`, as a pure function of
//! (channel, facts, rent) without clock or logging. The planner, `explain` and the tests all call
//! this function.

use crate::model::{
    channel::Channel,
    correction::Correction,
    facts::Facts,
    priority::Formula,
    rent::{Rent, overdue},
    target::TargetKind,
};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// A target's rent, with the time and the horizon factor for its comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RentNow {
    /// Its waste over time, per file.
    pub rent: Rent,
    /// The present moment.
    pub now: Moment,
    /// Multiplier of the channel's horizon: below 1 where space is scarce, above 1 where writing is
    /// expensive.
    pub horizon_factor: f64,
    /// The correction of predictions for its database.
    pub correction: Correction,
}

impl RentNow {
    /// Unknown rent, for targets that no channel by rent takes.
    pub const UNKNOWN: Self = Self {
        rent: Rent::UNKNOWN,
        now: Moment::from_unix(0),
        horizon_factor: 1.0,
        correction: Correction::NONE,
    };
}

/// Why one channel does not take a target.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MissReason {
    /// The channel is for another kind of target.
    NotThisKind,
    /// The file is not larger than the channel's minimum size.
    BelowMinSize,
    /// The file is larger than the channel's maximum size.
    AboveMaxSize,
    /// The priority is not greater than the channel's minimum.
    BelowMinPriority,
    /// The priority is greater than the channel's maximum.
    AboveMaxPriority,
    /// Fewer changes since the last compaction than the channel requires.
    TooFewChanges,
    /// Its format and collation are up to date.
    NoUpgradeNeeded,
    /// The channel's name patterns exclude it.
    Excluded,
    /// It is on the ignore list.
    Ignored,
    /// Its file or active size is unknown.
    UnknownSize,
    /// Its waste was never read, so its rent is unknown.
    UnknownRent,
}

impl MissReason {
    /// The reason as the end of the sentence "the channel does not take the target because …".
    pub const fn because(self) -> &'static str {
        match self {
            Self::NotThisKind => "the channel is for another kind of target.",
            Self::BelowMinSize => "its file is not larger than `min_size`.",
            Self::AboveMaxSize => "its file is larger than `max_size`.",
            Self::BelowMinPriority => "its ratio, slack or rent is not more than `min_priority`.",
            Self::AboveMaxPriority => "its ratio, slack or rent is more than `max_priority`.",
            Self::TooFewChanges => {
                "it changed fewer than `min_changes` times since its last compaction."
            }
            Self::NoUpgradeNeeded => "its file format and collation are up to date.",
            Self::Excluded => {
                "`databases` or `designs` exclude it, or its state keeps it out of every queue."
            }
            Self::Ignored => "`ignore` names it.",
            Self::UnknownSize => "its file size or active size is not known.",
            Self::UnknownRent => "its file was not read yet; rent counts from the first reading.",
        }
    }
}

/// Why one channel does not take a target, with the numbers compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Miss {
    /// The reason.
    pub reason: MissReason,
    /// The measured value, if the reason compares one.
    pub value: Option<f64>,
    /// The limit it was compared with.
    pub limit: Option<f64>,
}

impl Miss {
    /// Whether time or further writes can end it.
    pub const fn is_of_amount(&self) -> bool {
        matches!(
            self.reason,
            MissReason::BelowMinPriority
                | MissReason::BelowMinSize
                | MissReason::TooFewChanges
                | MissReason::UnknownRent
        )
    }

    /// A miss without numbers.
    pub const fn without_numbers(reason: MissReason) -> Self {
        Self { reason, value: None, limit: None }
    }

    const fn with_numbers(reason: MissReason, value: f64, limit: f64) -> Self {
        Self { reason, value: Some(value), limit: Some(limit) }
    }
}

/// The priority at which `channel` takes a target of `kind` with these facts.
///
/// Follows `smoosh_server:get_priority/2` and `/4` of CouchDB 3.x in their order: changes, then
/// upgrade, then sizes, then a zero active size (which passes every channel, at its minimum
/// priority), then the bounds of the priority itself. Names are not checked here:
/// [`Channel::databases`] is evaluated once for each database and not for each target.
///
/// A channel by rent checks changes and sizes in the same order. It treats a file without active
/// bytes like any other: compacting it costs little and frees much.
///
/// A cleanup is taken if there is evidence; without it the planner reports `no_evidence`.
///
/// No channel takes a search index: it has no compaction.
///
/// # Errors
/// The first condition that failed. A priority of exactly zero counts as a miss.
pub fn score(
    channel: &Channel,
    kind: TargetKind,
    facts: &Facts,
    rent: RentNow,
) -> Result<f64, Miss> {
    if channel.kind != kind || kind == TargetKind::Search {
        return Err(Miss::without_numbers(MissReason::NotThisKind));
    }
    let formula = channel.priority.rule().formula;
    if kind == TargetKind::Cleanup {
        return match formula {
            Formula::Condition { holds, .. } if holds(facts) => Ok(1.0),
            Formula::Condition { .. } | Formula::Measured { .. } | Formula::Overdue => {
                Err(Miss::with_numbers(MissReason::BelowMinPriority, 0.0, channel.min_priority))
            }
        };
    }
    if let Some(changes) = facts.changes_since_compaction()
        && kind == TargetKind::Db
        && i128::from(changes) < i128::from(channel.min_changes)
    {
        return Err(Miss::with_numbers(
            MissReason::TooFewChanges,
            changes as f64,
            channel.min_changes as f64,
        ));
    }
    match formula {
        Formula::Measured { of, .. } => match check_sizes(channel, facts)? {
            AcceptedSizes::NoActiveBytes => floor_priority(channel),
            AcceptedSizes::WithActiveBytes { file, active } => {
                check_priority(channel, of(file, active))
            }
        },
        Formula::Overdue => {
            check_sizes(channel, facts)?;
            check_priority(channel, overdue_by(channel, kind, facts, rent)?)
        }
        Formula::Condition { holds, .. } if holds(facts) => Ok(1.0),
        // Size thresholds only affect files without live bytes; every other file is taken only
        // if the condition holds.
        Formula::Condition { .. } => match check_sizes(channel, facts) {
            Ok(AcceptedSizes::NoActiveBytes) => floor_priority(channel),
            Ok(AcceptedSizes::WithActiveBytes { .. }) | Err(_) => {
                Err(Miss::without_numbers(MissReason::NoUpgradeNeeded))
            }
        },
    }
}

/// How overdue the compaction of a file is under a channel's rule; a miss if its sizes or its rent are unknown.
fn overdue_by(
    channel: &Channel,
    kind: TargetKind,
    facts: &Facts,
    RentNow { rent, now, horizon_factor, correction }: RentNow,
) -> Result<f64, Miss> {
    let unknown = |reason| move || Miss::without_numbers(reason);
    let reclaimable =
        correction.reclaimable_bytes(kind, facts).ok_or_else(unknown(MissReason::UnknownSize))?;
    let cost =
        correction.predicted_bytes(kind, facts).ok_or_else(unknown(MissReason::UnknownSize))?;
    let rent = rent.byte_seconds(reclaimable, now).ok_or_else(unknown(MissReason::UnknownRent))?;
    Ok(overdue(rent, cost, channel.horizon.as_secs_f64() * horizon_factor))
}

/// The sizes of a file that a channel accepts.
enum AcceptedSizes {
    NoActiveBytes,
    WithActiveBytes { file: u64, active: u64 },
}

fn check_sizes(channel: &Channel, facts: &Facts) -> Result<AcceptedSizes, Miss> {
    let file = facts.file_bytes.get().ok_or(Miss::without_numbers(MissReason::UnknownSize))?;
    if file <= channel.min_size {
        return Err(Miss::with_numbers(
            MissReason::BelowMinSize,
            file as f64,
            channel.min_size as f64,
        ));
    }
    if let Some(max_size) = channel.max_size
        && file > max_size
    {
        return Err(Miss::with_numbers(MissReason::AboveMaxSize, file as f64, max_size as f64));
    }
    match facts.active_bytes.get() {
        None => Err(Miss::without_numbers(MissReason::UnknownSize)),
        Some(0) => Ok(AcceptedSizes::NoActiveBytes),
        Some(active) => Ok(AcceptedSizes::WithActiveBytes { file, active }),
    }
}

/// smoosh returns `min_priority` itself for a file without live bytes; a zero means "no", and
/// enqueueing an infinite priority fails.
fn floor_priority(channel: &Channel) -> Result<f64, Miss> {
    let floor = channel.min_priority;
    if floor == 0.0 || !floor.is_finite() {
        return Err(Miss::with_numbers(MissReason::BelowMinPriority, floor, floor));
    }
    Ok(floor)
}

fn check_priority(channel: &Channel, priority: f64) -> Result<f64, Miss> {
    if priority <= channel.min_priority || priority == 0.0 {
        return Err(Miss::with_numbers(
            MissReason::BelowMinPriority,
            priority,
            channel.min_priority,
        ));
    }
    if priority > channel.max_priority {
        return Err(Miss::with_numbers(
            MissReason::AboveMaxPriority,
            priority,
            channel.max_priority,
        ));
    }
    Ok(priority)
}

#[cfg(test)]
mod tests;
