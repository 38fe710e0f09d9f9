//! Selection: the best candidate of all queues starts next.
//!
//! Within a queue, the queue's order decides. Between competing queues, the bytes freed for each
//! byte rewritten decide, doubled for every six hours the candidate has waited, so that every
//! candidate starts eventually. Operators' orders come before everything else, then the target
//! that slots are reserved for.

use super::{
    Counts, Placement, QueueView, RefusalReason, Start, admission::Admission, brief::Brief,
    counts::Reasons, start::Expected,
};
use crate::{
    model::{
        channel::Channels,
        memory::{Ordered, Rest},
        target::Kind,
    },
    table::{Chunked, Ix, NodeIx, Snapshot},
};
use ordered_float::OrderedFloat;
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// Hours of waiting that double a candidate's score.
const DOUBLES_IN: f64 = 6.0;

/// Minimum gain ratio, so that candidates that free nothing get their turn as well.
const LEAST_WORTH: f64 = 0.01;

/// One queue during the selection.
#[derive(Debug)]
pub(super) struct Lane<'a> {
    pub(super) view: &'a QueueView,
    /// Candidates that come before the queue: orders, queued or not; then the target with a slot
    /// reservation; then views of which only some copies are compacted so far.
    pub(super) first: Vec<Brief>,
    /// The target with a slot reservation, if it waits in this queue.
    pub(super) claimant: Option<Ix>,
}

/// Operators' orders by target.
type Orders = BTreeMap<Ix, Ordered>;

impl Lane<'_> {
    fn get(&self, at: usize) -> Option<&Brief> {
        let waiting = || self.view.briefs.get(at.checked_sub(self.first.len())?);
        self.first.get(at).or_else(waiting)
    }

    /// Each candidate once.
    pub(super) fn briefs<'a>(&'a self, orders: &'a Orders) -> impl Iterator<Item = &'a Brief> {
        let again = |brief: &&Brief| !self.goes_first(brief, orders);
        self.first.iter().chain(self.view.briefs.iter().filter(again))
    }

    /// Moves the target with a slot reservation before its queue, after all orders.
    pub(super) fn put_first(&mut self, claimant: Ix, orders: &Orders) {
        if self.claimant.is_some() || orders.contains_key(&claimant) {
            return;
        }
        let Some(brief) = self.view.briefs.iter().find(|brief| brief.ix == claimant) else {
            return;
        };
        let ordered = self.first.iter().take_while(|brief| orders.contains_key(&brief.ix)).count();
        self.first.insert(ordered, *brief);
        self.claimant = Some(claimant);
    }

    /// Whether a queued candidate is also in `first`.
    fn goes_first(&self, brief: &Brief, orders: &Orders) -> bool {
        self.claimant == Some(brief.ix) || orders.contains_key(&brief.ix)
    }

    /// Whether the candidate at an index was already visited in `first`.
    fn came_first(&self, at: usize, brief: &Brief, orders: &Orders) -> bool {
        at >= self.first.len() && self.goes_first(brief, orders)
    }
}

/// Values that the selection reads in addition to the admission.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ballot<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) channels: &'a Channels,
    pub(super) placements: &'a Chunked<Placement>,
    pub(super) orders: &'a Orders,
    pub(super) rests: &'a BTreeMap<Ix, Rest>,
    pub(super) now: Moment,
    /// Minimum time between two starts on a node.
    pub(super) wait: Duration,
    pub(super) rate: Option<f64>,
}

/// The next candidate of a queue that may start, and its node.
#[derive(Clone, Copy, Debug)]
struct Head {
    at: usize,
    node: NodeIx,
    worth: OrderedFloat<f64>,
}

/// Starts candidates, best first, until no more may start.
///
/// A start only uses up slots and space, so each queue is walked once: a refused candidate stays
/// refused.
pub(super) fn choose(
    lanes: &[Lane<'_>],
    ballot: Ballot<'_>,
    admission: &mut Admission,
) -> Vec<Start> {
    let mut starts = Vec::new();
    let mut heads: Vec<Option<Head>> =
        lanes.iter().map(|lane| head(lane, 0, ballot, admission)).collect();
    loop {
        let best = heads
            .iter()
            .enumerate()
            .filter_map(|(at, head)| Some((at, (*head)?)))
            // Of equal scores, the first queue wins.
            .max_by(|(one, a), (other, b)| a.worth.cmp(&b.worth).then(other.cmp(one)));
        let Some((at, chosen)) = best else { return starts };
        let Some((lane, brief)) = lanes.get(at).and_then(|lane| Some((lane, lane.get(chosen.at)?)))
        else {
            return starts;
        };
        match started(lane.view.channel, brief, chosen.node, ballot, admission) {
            Some(start) => {
                admission.start(chosen.node, lane.view.channel, brief);
                starts.push(start);
            }
            None => admission.exclude(brief.ix),
        }
        for (place, (lane, kept)) in lanes.iter().zip(&mut heads).enumerate() {
            if let Some(before) = *kept {
                *kept = head(lane, before.at + usize::from(place == at), ballot, admission);
            }
        }
    }
}

/// Counts the decisions about every candidate of a queue, and returns the reason of each queued
/// one.
pub(super) fn count(
    lane: &Lane<'_>,
    starts: &[Start],
    orders: &Orders,
    admission: &Admission,
) -> (Counts, Reasons) {
    let mut counts = Counts::default();
    let mut reasons = Reasons::with_room(lane.view.briefs.len());
    let QueueView { node, channel, .. } = *lane.view;
    let started: hashbrown::HashSet<_> =
        starts.iter().filter(|start| start.channel == channel).map(|start| start.ix).collect();
    let terms = admission.terms(node, channel);
    let decided = |brief: &Brief| {
        let starts = !started.is_empty() && started.contains(&brief.ix);
        let reason = || admission.reason(&terms, (node, channel), brief);
        (!starts).then(|| reason().unwrap_or(RefusalReason::ChannelLimit))
    };
    let mut count = |reason: Option<RefusalReason>| match reason {
        Some(reason) => counts.refuse(reason),
        None => counts.starts += 1,
    };
    lane.first.iter().for_each(|brief| count(decided(brief)));
    for brief in lane.view.briefs.iter() {
        let reason = decided(brief);
        reasons.push(reason);
        // A candidate in `first` is already counted.
        if !lane.goes_first(brief, orders) {
            count(reason);
        }
    }
    (counts, reasons)
}

/// The first candidate of a queue at or after `from` that may start.
fn head(lane: &Lane<'_>, from: usize, ballot: Ballot<'_>, admission: &Admission) -> Option<Head> {
    let QueueView { node, channel, .. } = *lane.view;
    let kind = ballot.channels.list.get(channel)?.kind;
    let terms = admission.terms(node, channel);
    if admission.nothing_more(channel, kind) || (kind == Kind::Db && terms.shut()) {
        return None;
    }
    // If the free slots are reserved, only candidates before the queue may start.
    let until = if kind == Kind::Db && terms.kept() { lane.first.len() } else { usize::MAX };
    let mut at = from;
    while at < until
        && let Some(brief) = lane.get(at)
    {
        let worth_asking = !lane.came_first(at, brief, ballot.orders)
            && (kind != Kind::Db || admission.reason(&terms, (node, channel), brief).is_none());
        if worth_asking && let Ok(node) = admission.admit(node, channel, brief) {
            return Some(Head { at, node, worth: worth(lane, brief, ballot).into() });
        }
        at += 1;
    }
    None
}

/// A candidate's score against those of other queues, as a base-2 logarithm because a candidate
/// may wait for years.
pub(super) fn worth(lane: &Lane<'_>, brief: &Brief, ballot: Ballot<'_>) -> f64 {
    if ballot.orders.contains_key(&brief.ix) {
        return f64::INFINITY;
    }
    if lane.claimant == Some(brief.ix) {
        return f64::MAX;
    }
    let frees = brief.reclaimable().zip(brief.predicted.get()).map_or(0.0, |(gain, rewrite)| {
        if rewrite == 0 { gain as f64 } else { gain as f64 / rewrite as f64 }
    });
    let since = ballot.placements.get(brief.ix.as_usize()).filter(|it| it.channel().is_some());
    let waited = since.map_or(0.0, |placed| placed.since.age(ballot.now).as_secs_f64());
    frees.max(LEAST_WORTH).log2() + waited / 3_600.0 / DOUBLES_IN
}

/// The start of a channel's candidate on a node; none if no request can carry its name.
pub(super) fn started(
    at: usize,
    brief: &Brief,
    node: NodeIx,
    ballot: Ballot<'_>,
    admission: &Admission,
) -> Option<Start> {
    let target = ballot.snapshot.target(brief.ix)?;
    let sites = admission.started_sites(node, brief);
    let shard = sites.first().and_then(|site| ballot.snapshot.target(site.shard));
    let channel = ballot.channels.list.get(at)?;
    let name = ballot.snapshot.node(node).map_or("", |node| &*node.name);
    let expected = Expected {
        copies: sites.iter().map(|site| u64::from(site.copies)).sum(),
        peak: admission.need(brief).peak.unwrap_or(0),
        rate: ballot.rate,
        knows_space: admission.knows_space(&sites),
        ordered: ballot.orders.get(&brief.ix),
    };
    let brief = brief.learned(ballot.rests);
    Start::of(target, &brief, (node, name), (at, channel), shard, expected).ok()
}
