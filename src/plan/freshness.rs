//! Freshness: facts count if they are recent, or if feeds confirm them.

use super::rules::Rules;
use crate::table::{Snapshot, TargetIx};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// Why a target's facts count as fresh.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freshness {
    /// They were measured within `scan.fresh_for`.
    #[strum(serialize = "measured")]
    RecentlyMeasured,
    /// Feeds that report every change have reported none since the facts were measured.
    #[strum(serialize = "followed")]
    ConfirmedByFeeds,
}

impl Freshness {
    /// Why a target's facts are fresh; `None` if they are stale or it was never measured.
    #[must_use]
    pub fn of(snapshot: &Snapshot, ix: TargetIx, rules: &Rules, now: Moment) -> Option<Self> {
        let measured = snapshot.target(ix)?.facts().measured_at?;
        if measured.at.age(now) <= rules.fresh_for {
            return Some(Self::RecentlyMeasured);
        }
        snapshot.is_confirmed(ix).then_some(Self::ConfirmedByFeeds)
    }
}
