//! What makes facts count: they are young, or feeds confirm them.

use super::Rules;
use crate::table::{Ix, Snapshot};
use wall_clock::Moment;

/// Which rule makes a target's facts count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Freshness {
    /// They were measured within `scan.fresh_for`.
    Measured,
    /// Feeds that tell of every change have told of none since they were measured.
    Followed,
}

impl Freshness {
    /// The rule for a target; none where its facts are stale, or it was never measured.
    #[must_use]
    pub fn of(snapshot: &Snapshot, ix: Ix, rules: &Rules, now: Moment) -> Option<Self> {
        let measured = snapshot.target(ix)?.facts().measured_at?;
        if measured.at.age(now) <= rules.fresh_for {
            return Some(Self::Measured);
        }
        snapshot.is_confirmed(ix).then_some(Self::Followed)
    }

    /// The word in JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Followed => "followed",
        }
    }
}
