//! What recliner would have done in advise mode, compared with what really happened.

use super::vocabulary::{self, Word};
use crate::{
    model::{
        records::{ScorecardHour, ScorecardSide},
        rounding::to_bytes,
    },
    text::{Label, duration, size},
    what_if::scorecard::{ScorecardState, ScorecardView},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use wall_clock::Moment;

/// Minimum length of a gap, in which recliner did not run, to be mentioned.
const MIN_GAP_SECONDS: u64 = 60;

/// The minimum time of advice for a verdict.
const ENOUGH_SECONDS: u64 = 86_400;

/// The minimum reduction of waste for which a switch is recommended.
const NOTICEABLE_SHARE: f64 = 0.1;

/// The share of conflicts above which they should be resolved first.
const MANY_CONFLICTS: f64 = 0.05;

/// The scorecard: what really happened, and what recliner would have done while it only advised.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scorecard {
    /// When the first counted hour begins; null if there is none.
    pub from: Option<String>,
    /// The current time.
    pub until: String,
    /// The state of the scorecard: `waiting` for the first sizes, `advising` while it counts, or `enforcing`
    /// while it pauses.
    #[schemars(with = "vocabulary::ScorecardState")]
    pub state: Word,
    /// Seconds in which recliner advised; everything below covers these.
    pub advised_seconds: u64,
    /// Seconds in which recliner enforced everything, so that there was nothing to compare.
    pub enforced_seconds: u64,
    /// Seconds about which nothing is known, because recliner was not running.
    pub missing_seconds: u64,
    /// What really happened, whatever caused it; null if nothing is known.
    pub real: Option<ScorecardLine>,
    /// What would have happened if recliner had enforced: its own compactions, and the waste left in addition
    /// to the effect of those that really ran; null if nothing is known.
    pub advised: Option<ScorecardLine>,
    /// Number of recliner's compactions during which another program compacted the same file, or another copy
    /// of its range; null if unknown.
    pub conflicts: Option<u64>,
    /// Number of recliner's compactions that would run now; they count when they end.
    pub running: u64,
    /// Whether some of recliner's compactions may be missing, because a list was full.
    pub incomplete: bool,
    /// Whether to switch to enforce, and why, in a few sentences.
    pub says: String,
}

/// One side of the comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScorecardLine {
    /// Mean of the bytes that compactions would have freed.
    pub mean_waste_bytes: u64,
    /// Maximum of these bytes.
    pub peak_waste_bytes: u64,
    /// Bytes freed by compactions.
    pub freed_bytes: u64,
    /// Bytes written by compactions.
    pub rewritten_bytes: u64,
    /// Number of compactions that ended with a new file.
    pub compactions: u64,
    /// Number of these whose sizes are unknown; they add no bytes.
    pub unmeasured_compactions: u64,
    /// Maximum of the bytes that new files took at one time, besides the old ones.
    pub peak_extra_bytes: u64,
}

impl ScorecardLine {
    fn of(side: &ScorecardSide, seconds: u64) -> Self {
        Self {
            mean_waste_bytes: to_bytes(side.waste_byte_seconds / (seconds.max(1) as f64)),
            peak_waste_bytes: side.peak_waste_bytes,
            freed_bytes: side.freed_bytes,
            rewritten_bytes: side.rewritten_bytes,
            compactions: side.compactions,
            unmeasured_compactions: side.unmeasured,
            peak_extra_bytes: side.peak_extra_bytes,
        }
    }
}

impl Scorecard {
    /// The scorecard from the hour of `since` up to `now`.
    pub fn of(view: &ScorecardView, since: Moment, now: Moment) -> Self {
        let sum = view.sum(since, now);
        let ScorecardHour { advised_seconds, enforced_seconds, .. } = sum.sums;
        let line = |side| (advised_seconds > 0).then(|| ScorecardLine::of(side, advised_seconds));
        let mut scorecard = Self {
            from: sum.from.map(Moment::rfc3339),
            until: now.rfc3339(),
            state: view.state.label().into(),
            advised_seconds,
            enforced_seconds,
            missing_seconds: sum.missing_seconds,
            real: line(&sum.sums.real),
            advised: line(&sum.sums.advised),
            conflicts: (advised_seconds > 0).then_some(sum.sums.conflicts),
            running: u64::try_from(view.running).unwrap_or(u64::MAX),
            incomplete: sum.sums.is_incomplete,
            says: String::new(),
        };
        let rests = view.state == ScorecardState::Enforcing;
        let parts = [
            scorecard.verdict(),
            scorecard.says_conflicts(),
            scorecard.says_basis(),
            scorecard.incomplete.then(|| {
                "A list was full, so recliner would have done more than shown here.".to_owned()
            }),
            rests.then(|| "The scorecard is paused while recliner enforces.".to_owned()),
        ];
        scorecard.says = parts.into_iter().flatten().collect::<Vec<_>>().join(" ");
        scorecard
    }

    /// The recommendation whether to switch to enforce.
    fn verdict(&self) -> Option<String> {
        let Some((real, advised)) = self.real.as_ref().zip(self.advised.as_ref()) else {
            let nothing = "There is no scorecard for this period: recliner was not in advise mode, or has only just started.";
            return Some(nothing.to_owned());
        };
        let (was, left) = (real.mean_waste_bytes, advised.mean_waste_bytes);
        let less = was.saturating_sub(left);
        let share = less as f64 / was.max(1) as f64;
        let bytes = size::format_size_short;
        let effect = format!(
            "on average {} less waste ({} instead of {}), for {} rewritten",
            bytes(less),
            bytes(left),
            bytes(was),
            bytes(advised.rewritten_bytes)
        );
        Some(match (advised.compactions, self.advised_seconds < ENOUGH_SECONDS) {
            (0, true) => "It is too early to decide: none of recliner's compactions would have ended yet.".to_owned(),
            (0, false) => "Switching to enforce would have changed nothing: recliner would have started no compaction.".to_owned(),
            (_, true) => format!("It is too early to decide; so far, enforcing would have meant {effect}."),
            (_, false) if share >= NOTICEABLE_SHARE => format!("Switch to enforce: that would have meant {effect}."),
            (_, false) => format!("Switching to enforce would have changed little: {effect}."),
        })
    }

    fn says_conflicts(&self) -> Option<String> {
        let (conflicts, advised) = self.conflicts.zip(self.advised.as_ref())?;
        let all = advised.compactions.max(conflicts);
        let first = if conflicts as f64 > all as f64 * MANY_CONFLICTS {
            "; hand smoosh's channels over at the same time (smoosh.mode: takeover)"
        } else {
            ""
        };
        (conflicts > 0).then(|| {
            format!(
                "{conflicts} of {all} compactions would have overlapped with another program's compaction of the same file or range{first}."
            )
        })
    }

    fn says_basis(&self) -> Option<String> {
        let from = self.from.as_deref()?;
        let span = |seconds| duration::format_rounded(Duration::from_secs(seconds));
        let mut says = format!(
            "Based on {} of advice since about {from}",
            duration::in_words(Duration::from_secs(self.advised_seconds))
        );
        if self.enforced_seconds > 0 {
            says.push_str(&format!("; for {}, recliner enforced", span(self.enforced_seconds)));
        }
        if self.missing_seconds >= MIN_GAP_SECONDS {
            let gap = span(self.missing_seconds);
            says.push_str(&format!("; recliner was not running for {gap}"));
        }
        says.push('.');
        Some(says)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::records::hour_of;

    const GIB: u64 = 1 << 30;
    const NOW: Moment = Moment::from_unix(1_795_222_800);

    fn hour(was: u64, left: u64, compactions: u64, conflicts: u64) -> ScorecardHour {
        let side = |waste: u64, compactions| ScorecardSide {
            compactions,
            freed_bytes: compactions * GIB,
            rewritten_bytes: compactions * GIB / 2,
            waste_byte_seconds: (waste * GIB) as f64 * 3_600.0,
            peak_waste_bytes: waste * GIB,
            peak_extra_bytes: GIB,
            ..ScorecardSide::default()
        };
        ScorecardHour {
            advised_seconds: 3_600,
            real: side(was, 1),
            advised: side(left, compactions),
            conflicts,
            ..ScorecardHour::default()
        }
    }

    /// A scorecard of `hours` hours up to now, without the hours in `gap`.
    fn card(hours: u32, gap: &[u32], each: ScorecardHour) -> Scorecard {
        let this = hour_of(NOW) - 1;
        let numbers = (0..hours).filter(|back| !gap.contains(back)).map(|back| this - back);
        let view = ScorecardView {
            hours: numbers.map(|number| (number, each)).collect(),
            state: ScorecardState::Advising,
            ..ScorecardView::default()
        };
        Scorecard::of(&view, Moment::from_unix(NOW.unix() - 7 * 86_400), NOW)
    }

    #[test]
    fn recommends_switching_to_enforce_and_states_the_basis() {
        let cases = [
            (
                card(48, &[], hour(20, 10, 1, 0)),
                "Switch to enforce: that would have meant on average 10 GiB less waste (10 GiB instead of 20 GiB), for 24 GiB rewritten. Based on 2 days of advice since about 2026-11-19T01:00:00Z.",
            ),
            (
                card(48, &[5, 6, 7], hour(20, 19, 1, 0)),
                "Switching to enforce would have changed little: on average 1 GiB less waste (19 GiB instead of 20 GiB), for 22.5 GiB rewritten. Based on 45 hours of advice since about 2026-11-19T01:00:00Z; recliner was not running for 3h.",
            ),
            (
                card(48, &[], hour(20, 20, 0, 0)),
                "Switching to enforce would have changed nothing: recliner would have started no compaction. Based on 2 days of advice since about 2026-11-19T01:00:00Z.",
            ),
            (
                card(5, &[], hour(20, 15, 2, 1)),
                "It is too early to decide; so far, enforcing would have meant on average 5 GiB less waste (15 GiB instead of 20 GiB), for 5 GiB rewritten. 5 of 10 compactions would have overlapped with another program's compaction of the same file or range; hand smoosh's channels over at the same time (smoosh.mode: takeover). Based on 5 hours of advice since about 2026-11-20T20:00:00Z.",
            ),
        ];
        for (found, says) in cases {
            assert_eq!(found.says, says);
        }
    }

    #[test]
    fn empty_scorecard_has_null_fields() {
        let found = Scorecard::of(&ScorecardView::default(), Moment::default(), NOW);
        assert_eq!(
            (found.real, found.advised, found.conflicts, found.from),
            (None, None, None, None)
        );
        assert!(found.says.starts_with("There is no scorecard for this period"), "{}", found.says);
    }
}
