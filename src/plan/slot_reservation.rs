//! Slot reservations: free slots and budget are held for a target that would never find enough of
//! them at once.
//!
//! Compacting every copy of a view at once needs a slot on each of its nodes at the same moment. If
//! single files keep the nodes busy, slots become free one at a time and each is used before the
//! next one is free. A large file needs a good part of the hourly byte budget, and smaller files
//! use up expired bytes before enough of them add up. So after such a target has waited long
//! enough, free slots and bytes are reserved for it. This module decides for which target, and for
//! how long.
//!
//! At most one target has a reservation: one that was ordered; otherwise the one that has waited
//! longest among those that only running jobs and spent bytes keep from starting. A reservation
//! lasts an eighth of the time the target has waited, at ages that double: with the default
//! `limits.wait`, 37 seconds after 5 minutes, 75 after 10, and so on. Then it expires, whether or
//! not the target started. So slots stay idle for only a small part of the time, even with a job
//! that never ends. A view starts after some multiple of the longest job's duration, and a large
//! file at the latest once a reservation lasts longer than the hour of the budget.

use super::{
    admission::Admission,
    candidate_summary::CompactionUnit,
    reservation::SlotReservation,
    selection::{self, SelectionContext, SelectionQueue},
};
use crate::table::TargetIx;
use ordered_float::OrderedFloat;
use std::{cmp::Reverse, time::Duration};
use wall_clock::Moment;

/// Start intervals that pass before the first reservation, so that each reservation lasts for
/// several of them.
const INTERVALS_BEFORE_RESERVATION: u32 = 32;

/// Minimum waiting time before the first reservation.
const MIN_WAIT_BEFORE_RESERVATION: Duration = Duration::from_secs(5 * 60);

/// A reservation lasts for this fraction of the waiting time.
const HOLD_DIVISOR: u64 = 8;

/// Maximum duration of a reservation. Once it is reached, reservations follow one another at
/// constant intervals.
const MAX_HOLD: Duration = Duration::from_secs(6 * 3_600);

/// The reservation of a plan, and the next time at which it changes by the clock alone.
#[derive(Clone, Debug, Default)]
pub(super) struct ReservationDecision {
    pub(super) reservation: Option<SlotReservation>,
    pub(super) next_change: Option<Moment>,
}

impl ReservationDecision {
    /// The reservation that is active now, if any.
    pub(super) fn decide(
        queues: &[SelectionQueue<'_>],
        context: SelectionContext<'_>,
        admission: &Admission,
    ) -> Self {
        let patience = context
            .start_interval
            .saturating_mul(INTERVALS_BEFORE_RESERVATION)
            .max(MIN_WAIT_BEFORE_RESERVATION);
        let mut first: Option<(ReservationRank, SlotReservation)> = None;
        let mut ripens: Option<Moment> = None;
        for queue in queues {
            let (node, channel) = (queue.view.node, queue.view.channel_index);
            for candidate in
                queue.candidates(context.orders).filter(|it| admission.may_need_reservation(it))
            {
                // A run may take days; slots must not stay reserved that long.
                let ordered = context.orders.get(&candidate.ix).filter(|it| it.run.is_none());
                let placed = context.placements.get(candidate.ix.as_usize());
                let placed =
                    placed.filter(|it| it.channel_index().is_some()).map(|it| it.queued_since);
                let Some(waits_since) = ordered.map(|it| it.at).or(placed) else { continue };
                if ordered.is_none() && waits_since.age(context.now) < patience {
                    let ripe = waits_since.plus(patience);
                    ripens = Some(ripens.map_or(ripe, |before| before.min(ripe)));
                    continue;
                }
                let worth =
                    Reverse(OrderedFloat(selection::start_score(queue, candidate, context)));
                let rank = (ordered.is_none(), waits_since, worth, candidate.ix);
                if first.as_ref().is_some_and(|(before, _)| *before <= rank) {
                    continue;
                }
                let waits = admission.waits_only_for_slots((node, channel), candidate);
                let Some((copies_by_node, ready)) = waits else { continue };
                let (since, until) = match ordered {
                    Some(ordered) => (ordered.at, ordered.until),
                    None => active_period(waits_since, context.now, patience),
                };
                let copies: u64 =
                    copies_by_node.iter().map(|node_copies| u64::from(node_copies.count)).sum();
                let bytes = candidate.file_bytes.get().unwrap_or(0).saturating_mul(copies);
                let (ix, all_copies) = (candidate.ix, candidate.unit == CompactionUnit::AllCopies);
                let reservation = SlotReservation {
                    ix,
                    all_copies,
                    node,
                    queued_since: waits_since,
                    active_from: since,
                    active_until: until,
                    channel_index: channel,
                    copies: copies_by_node,
                    total_bytes: bytes,
                    slots_free: ready,
                };
                first = Some((rank, reservation));
            }
        }
        let first = first.map(|(_, reservation)| reservation);
        let changes = first
            .as_ref()
            .map(|it| if is_active(it, context.now) { it.active_until } else { it.active_from });
        Self {
            next_change: changes.or(ripens).filter(|at| *at > context.now),
            reservation: first.filter(|it| is_active(it, context.now)),
        }
    }
}

/// The order of precedence: orders, then the longest wait, then the score.
type ReservationRank = (bool, Moment, Reverse<OrderedFloat<f64>>, TargetIx);

fn is_active(reservation: &SlotReservation, now: Moment) -> bool {
    reservation.active_from <= now && now < reservation.active_until
}

/// The current or next reservation period of a target that has waited since `waits_since`, for
/// longer than `patience`.
fn active_period(waits_since: Moment, now: Moment, patience: Duration) -> (Moment, Moment) {
    let age = waits_since.age(now).as_secs();
    let mut period = patience.as_secs();
    while period * 2 <= age && period * 2 / HOLD_DIVISOR <= MAX_HOLD.as_secs() {
        period *= 2;
    }
    let part = (period / HOLD_DIVISOR).min(MAX_HOLD.as_secs());
    let begun = age / period * period;
    let from = if age < begun + part { begun } else { begun + period };
    let after = |seconds: u64| waits_since.plus(Duration::from_secs(seconds));
    (after(from), after(from + part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_recur_at_doubling_ages_and_last_an_eighth_of_them() {
        let minute = |minutes: u64| Moment::from_unix(minutes * 60);
        let patience = Duration::from_secs(16 * 60);
        let hold = |age: u64| active_period(minute(0), minute(age), patience);
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
            // From here on both the duration and the interval are constant.
            (4_096, (4_096, 4_352)),
            (4_400, (6_144, 6_400)),
            (6_144, (6_144, 6_400)),
        ] {
            assert_eq!(hold(age), (minute(from), minute(until)), "{age} minutes");
        }
    }
}
