//! The claim: room that is kept for what would never find enough of it at once.
//!
//! A view of which every copy is compacted at once needs a slot on each of its nodes at the
//! same moment; where single files keep the nodes busy, slots come free one at a time, and each
//! is taken before the next one does. A large file needs a good part of the hour's bytes, and
//! what falls out of the hour is taken by smaller ones before it is enough. So, once such a
//! target has waited long, what comes free is left free for it. Owns for which target, and from
//! when until when.
//!
//! One target at a time has a claim: one that was ordered, else the one that waits longest, of
//! those that nothing but running jobs and spent bytes keep from starting. It holds for an
//! eighth of what the target has waited, at ages that double: with the default `limits.wait`
//! after 16 minutes for two, after 32 for four, and so on. Then it lapses, whatever came of it.
//! So slots lie idle for others' sake for a small part of the time, also beside a job that
//! never ends; a view starts after some multiple of the time that the longest job takes, and a
//! large file at the latest when a claim outlasts the hour.

use super::{
    admission::Admission,
    brief::Shape,
    choose::{Ballot, Lane},
    sites::Site,
};
use crate::table::{Ix, NodeIx};
use ordered_float::OrderedFloat;
use std::{cmp::Reverse, time::Duration};
use wall_clock::Moment;

/// Waits between starts that pass before the first claim, so that each claim outlasts several.
const WAITS: u32 = 32;

/// The least time to wait before the first claim.
const PATIENCE: Duration = Duration::from_secs(5 * 60);

/// The part of its age for which a claim holds.
const PART: u64 = 8;

/// The longest that a claim holds; from the age at which that is reached on, claims come as
/// far apart.
const LONGEST: Duration = Duration::from_secs(6 * 3_600);

/// Room that is kept for a target.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The target.
    pub ix: Ix,
    /// Whether it is a view of which every copy is compacted at once.
    pub whole: bool,
    /// The node whose queue it waits in.
    pub(super) node: NodeIx,
    /// Since when it waits.
    pub waits_since: Moment,
    /// Since when room is kept for it.
    pub since: Moment,
    /// Until when, if it does not start before.
    pub until: Moment,
    /// The channel it counts for.
    pub(super) channel: usize,
    /// Where its files lie.
    pub(super) sites: Vec<Site>,
    /// Bytes of all its files.
    pub(super) bytes: u64,
    /// Whether all room is there, and it waits only because a start was not long ago.
    pub(super) ready: bool,
}

/// The claim of a plan, and when that changes next by the clock alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Claimed {
    pub(super) claim: Option<Claim>,
    pub(super) next_change: Option<Moment>,
}

impl Claimed {
    /// The claim that holds now, if one does.
    pub(super) fn of(lanes: &[Lane<'_>], ballot: Ballot<'_>, admission: &Admission) -> Self {
        let patience = ballot.wait.saturating_mul(WAITS).max(PATIENCE);
        let mut first: Option<(Rank, Claim)> = None;
        let mut ripens: Option<Moment> = None;
        for lane in lanes {
            let (node, channel) = (lane.view.node, lane.view.channel);
            for brief in lane.briefs(ballot.orders).filter(|it| admission.may_claim(it)) {
                let ordered = ballot.orders.get(&brief.ix);
                let placed = ballot.placements.get(brief.ix.as_usize());
                let placed = placed.filter(|it| it.channel().is_some()).map(|it| it.since);
                let Some(waits_since) = ordered.map(|it| it.at).or(placed) else { continue };
                if ordered.is_none() && waits_since.age(ballot.now) < patience {
                    let ripe = waits_since.plus(patience);
                    ripens = Some(ripens.map_or(ripe, |before| before.min(ripe)));
                    continue;
                }
                let worth = Reverse(OrderedFloat(super::choose::worth(lane, brief, ballot)));
                let rank = (ordered.is_none(), waits_since, worth, brief.ix);
                if first.as_ref().is_some_and(|(before, _)| *before <= rank) {
                    continue;
                }
                let waits = admission.waits_for_room((node, channel), brief);
                let Some((sites, ready)) = waits else { continue };
                let (since, until) = match ordered {
                    Some(ordered) => (ordered.at, ordered.until),
                    None => hold(waits_since, ballot.now, patience),
                };
                let copies: u64 = sites.iter().map(|site| u64::from(site.copies)).sum();
                let bytes = brief.file.get().unwrap_or(0).saturating_mul(copies);
                let (ix, whole) = (brief.ix, brief.shape == Shape::Whole);
                let claim = Claim {
                    ix,
                    whole,
                    node,
                    waits_since,
                    since,
                    until,
                    channel,
                    sites,
                    bytes,
                    ready,
                };
                first = Some((rank, claim));
            }
        }
        let first = first.map(|(_, claim)| claim);
        let changes =
            first.as_ref().map(|it| if holds(it, ballot.now) { it.until } else { it.since });
        Self {
            next_change: changes.or(ripens).filter(|at| *at > ballot.now),
            claim: first.filter(|it| holds(it, ballot.now)),
        }
    }
}

/// What goes before what: an order, then the longest wait, then worth.
type Rank = (bool, Moment, Reverse<OrderedFloat<f64>>, Ix);

fn holds(claim: &Claim, now: Moment) -> bool {
    claim.since <= now && now < claim.until
}

/// From when until when a claim holds, or will next, of what waits since a moment and for
/// longer than `patience`.
fn hold(waits_since: Moment, now: Moment, patience: Duration) -> (Moment, Moment) {
    let age = waits_since.age(now).as_secs();
    let mut period = patience.as_secs();
    while period * 2 <= age && period * 2 / PART <= LONGEST.as_secs() {
        period *= 2;
    }
    let part = (period / PART).min(LONGEST.as_secs());
    let begun = age / period * period;
    let from = if age < begun + part { begun } else { begun + period };
    let after = |seconds: u64| waits_since.plus(Duration::from_secs(seconds));
    (after(from), after(from + part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_holds_for_an_eighth_of_ages_that_double_and_never_for_long() {
        let minute = |minutes: u64| Moment::from_unix(minutes * 60);
        let patience = Duration::from_secs(16 * 60);
        let hold = |age: u64| hold(minute(0), minute(age), patience);
        for (age, (from, until)) in [
            (16, (16, 18)),
            (17, (16, 18)),
            (18, (32, 34)),
            (31, (32, 34)),
            (32, (32, 36)),
            (36, (64, 68)),
            (64, (64, 72)),
            (2_048, (2_048, 2_304)),
            (2_304, (4_096, 4_352)),
            // From here on no longer, and as far apart.
            (4_096, (4_096, 4_352)),
            (4_400, (6_144, 6_400)),
            (6_144, (6_144, 6_400)),
        ] {
            assert_eq!(hold(age), (minute(from), minute(until)), "{age} minutes");
        }
    }
}
