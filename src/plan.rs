//! The plan: which targets wait in which queue, what would start now, and why the rest does not.
//!
//! Owns the queues and their policy, as pure functions of (snapshot, channels, conditions, rules,
//! now): no clock, no I/O, no logging. The planner task holds the [`Queues`] and publishes
//! [`Plan`]s; metrics, API, commands and the enforcer read those. Misses and refusals are computed
//! on request; a queued target stores only its channel, its priority and when it was
//! queued.

mod admission;
mod brief;
mod choose;
mod claim;
mod conditions;
mod counts;
pub mod disk;
mod forecast;
mod freshness;
mod gates;
mod ledger;
mod ordered;
mod placement;
pub mod planner;
pub mod pressure;
mod queues;
mod refusal;
mod room;
mod rules;
mod running;
mod sites;
mod start;
mod terms;

pub use claim::Claim;
pub use conditions::Conditions;
pub use counts::Counts;
pub use forecast::Forecast;
pub use freshness::Freshness;
pub use gates::{Gate, Opening};
pub use ordered::Answer;
pub use placement::{Placement, first_channel, miss_of};
pub use queues::Queues;
pub use refusal::{Refusal, RefusalReason};
pub use rules::Rules;
pub use start::{Caveat, Request, Start};

use crate::{
    model::{
        channel::{Channel, Channels},
        score::Miss,
        target::Kind,
    },
    table::{Chunked, Ix, NodeIx, Snapshot, TargetRef},
};
use admission::{Admission, Present};
use brief::{Brief, Shape};
use choose::{Ballot, Lane};
use claim::Claimed;
use counts::Reasons;
use gates::Doors;
use queues::Waiting;
use sites::Sites;
use std::sync::Arc;
use wall_clock::Moment;

/// One published queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueView {
    /// The node, or the pseudo node for views and cleanups of the whole cluster.
    pub node: NodeIx,
    /// The channel's index in the configured order.
    pub channel: usize,
    /// Maximum number of queued targets.
    pub capacity: usize,
    /// Targets that the channel takes but that do not fit into the queue.
    pub overflow: usize,
    /// Largest and smallest priority in the queue; absent when the queue is empty.
    pub priority: Option<(f64, f64)>,
    /// When the oldest queued target was queued.
    pub oldest: Option<Moment>,
    /// Bytes on disk that compacting every queued target would free, as far as sizes are known.
    pub reclaimable: u64,
    /// Running jobs whose target this channel takes, including jobs that others started.
    pub active: usize,
    /// A summary of each queued target, best first.
    briefs: Arc<[Brief]>,
}

impl QueueView {
    /// Queued targets, best first.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = Ix> {
        self.briefs.iter().map(|brief| brief.ix)
    }
}

/// The decision about one target.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It would start now.
    Start,
    /// It is queued, or would be if its queue had a free place, and this refusal prevents the
    /// start.
    Refused(Refusal),
    /// No channel takes it; ask for its misses.
    NotTaken,
}

/// The plan published last: a snapshot, the channel of each target, and the starts.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The facts the plan was made from.
    pub snapshot: Arc<Snapshot>,
    /// The channels the plan was made for.
    pub channels: Arc<Channels>,
    /// The live conditions the plan was made under.
    pub conditions: Conditions,
    /// The settings the plan was made with.
    pub rules: Arc<Rules>,
    /// The time of planning.
    pub made_at: Moment,
    /// Every queue that can exist, ordered by node and then channel: queues of database channels
    /// on every node, all other queues on the pseudo node.
    pub queues: Arc<[Arc<QueueView>]>,
    /// What would start now, in order.
    pub starts: Arc<[Start]>,
    /// Number of starts and refusals among each queue's candidates, in the order of `queues`.
    pub candidates: Arc<[Counts]>,
    /// The window state of each channel, in the channels' order.
    pub openings: Arc<[Opening]>,
    /// The target for which slots are reserved.
    pub claim: Option<Claim>,
    /// The next time at which the plan changes through the clock alone, apart from facts becoming
    /// stale.
    pub next_change: Option<Moment>,
    /// Why each queued target does not start, in the order of `queues`.
    reasons: Arc<[Reasons]>,
    placements: Chunked<Placement>,
    admission: Arc<Admission>,
}

impl Plan {
    /// The plan for these queues: the starts, best first, and the state that explains why the
    /// other candidates do not start.
    fn of(
        waiting: Waiting,
        snapshot: &Arc<Snapshot>,
        conditions: &Conditions,
        rules: &Arc<Rules>,
        now: Moment,
    ) -> Self {
        let Waiting { channels, queues, placements, active } = waiting;
        let openings: Arc<[Opening]> =
            channels.list.iter().map(|channel| Opening::of(&channel.windows, now)).collect();
        let orders = &conditions.history.orders;
        let first = ordered::first(snapshot, &channels, conditions, &placements);
        let mut lanes: Vec<Lane<'_>> = queues
            .iter()
            .map(|view| {
                let own = first.iter().filter(|it| it.place == (view.node, view.channel));
                Lane { view, first: own.map(|it| it.brief).collect(), claimant: None }
            })
            .collect();
        let clustered = lanes.iter().filter(|lane| lane.view.node == NodeIx::CLUSTER);
        let of_views = |brief: &&Brief| matches!(brief.shape, Shape::Copy | Shape::Whole);
        let views = clustered.flat_map(|lane| lane.briefs(orders)).filter(of_views);
        let wanted = views.map(|brief| brief.db).collect();
        let sites = Arc::new(Sites::of(snapshot, &wanted));
        let present = Present {
            snapshot,
            channels: &channels,
            conditions,
            rules,
            now,
            openings: &openings,
            placements: &placements,
            sites: &sites,
        };
        let mut admission = Admission::new(&present, active.into_iter());
        let rate = conditions.history.rate.filter(|rate| *rate > 0.0);
        let ballot = Ballot {
            snapshot,
            channels: &channels,
            placements: &placements,
            orders,
            rests: &conditions.history.rests,
            now,
            wait: rules.limits.wait,
            rate,
        };
        let Claimed { claim, next_change } = Claimed::of(&lanes, ballot, &admission);
        if let Some(claim) = &claim {
            admission.keep(claim);
            let place = (claim.node, claim.channel);
            let lane = lanes.iter_mut().find(|it| (it.view.node, it.view.channel) == place);
            if let Some(lane) = lane {
                lane.put_first(claim.ix, orders);
            }
        }
        let starts = choose::choose(&lanes, ballot, &mut admission);
        let (counts, reasons): (Vec<Counts>, Vec<Reasons>) =
            lanes.iter().map(|lane| choose::count(lane, &starts, orders, &admission)).unzip();
        drop(lanes);
        let doors = Doors { rules, conditions, now, running: 0 };
        Self {
            next_change: gates::next_change(&doors, &openings).into_iter().chain(next_change).min(),
            claim,
            snapshot: Arc::clone(snapshot),
            conditions: conditions.clone(),
            rules: Arc::clone(rules),
            made_at: now,
            starts: starts.into(),
            candidates: counts.into(),
            reasons: reasons.into(),
            admission: Arc::new(admission),
            channels,
            queues,
            openings,
            placements,
        }
    }

    /// The planned start of a target, if it starts.
    #[must_use]
    pub fn start(&self, ix: Ix) -> Option<&Start> {
        self.starts.iter().find(|start| start.ix == ix)
    }

    /// Why a node's gate holds back every start, if it is closed.
    #[must_use]
    pub fn gate(&self, gate: Gate, at: NodeIx) -> Option<Refusal> {
        let doors = Doors {
            rules: &self.rules,
            conditions: &self.conditions,
            now: self.made_at,
            running: self.conditions.jobs.compactions().count(),
        };
        doors.shut(gate, at, self.snapshot.node(at)?)
    }

    /// The channel that takes a target, its priority there, and when it was queued.
    #[must_use]
    pub fn placement(&self, ix: Ix) -> Option<(&Channel, Placement)> {
        let target = self.snapshot.target(ix)?;
        let placement = *self.placements.get(target.ix().as_usize())?;
        Some((self.channels.list.get(placement.channel()?)?, placement))
    }

    /// Every queued target: the queue's node, the target, its channel's index, and the reason why
    /// it does not start; none if it starts.
    pub fn waiting(&self) -> impl Iterator<Item = (NodeIx, Ix, usize, Option<RefusalReason>)> {
        self.queues.iter().zip(self.reasons.iter()).flat_map(|(queue, reasons)| {
            let waiting = queue.waiting().zip(reasons.iter());
            waiting.map(|(ix, reason)| (queue.node, ix, queue.channel, reason))
        })
    }

    /// The queue of a channel on a node.
    #[must_use]
    pub fn queue(&self, node: NodeIx, channel: usize) -> Option<&QueueView> {
        let at = self
            .queues
            .binary_search_by_key(&(node, channel), |queue| (queue.node, queue.channel))
            .ok()?;
        self.queues.get(at).map(AsRef::as_ref)
    }

    /// Each channel that does not take this target, with the reason, in the channels' order.
    pub fn misses(&self, target: TargetRef<'_>) -> impl Iterator<Item = (&Channel, Miss)> {
        self.channels
            .list
            .iter()
            .filter_map(move |channel| Some((channel, miss_of(&self.channels, channel, target)?)))
    }

    /// The rule by which a target's facts count as fresh; none if they are stale.
    #[must_use]
    pub fn freshness(&self, target: TargetRef<'_>) -> Option<Freshness> {
        Freshness::of(&self.snapshot, target.ix(), &self.rules, self.made_at)
    }

    /// The decision about a target.
    #[must_use]
    pub fn decision(&self, target: TargetRef<'_>) -> Decision {
        if self.start(target.ix()).is_some() {
            return Decision::Start;
        }
        let Some((channel, waits_since)) = self.candidacy(target) else {
            return match target.kind() {
                Kind::Cleanup if !target.facts().flags.evidence => {
                    Decision::Refused(Refusal::plain(RefusalReason::NoEvidence))
                }
                Kind::Db | Kind::View | Kind::Cleanup | Kind::Search => Decision::NotTaken,
            };
        };
        let brief = Brief::of(target);
        let mut refusal = self.admission.decide(target.node_ix(), channel, &brief);
        if refusal.value.is_none() {
            self.complete(&mut refusal, target, channel);
        }
        refusal.since = refusal.since.or(waits_since);
        Decision::Refused(refusal)
    }

    /// The target whose slot reservation causes this refusal.
    #[must_use]
    pub fn kept_for(&self, refusal: &Refusal) -> Option<(TargetRef<'_>, &Claim)> {
        let claim = self.claim.as_ref().filter(|_| refusal.below_its_limit())?;
        Some((self.snapshot.target(claim.ix)?, claim))
    }

    /// Adds the numbers of a refusal that the selection itself does not need.
    fn complete(&self, refusal: &mut Refusal, target: TargetRef<'_>, channel: usize) {
        let numbers = if refusal.reason == RefusalReason::Building {
            brief::behind(&target.facts())
                .map(|(pending, allowed)| (pending as f64, allowed as f64))
        } else if refusal.reason == RefusalReason::ChannelLimit {
            self.queue(target.node_ix(), channel)
                .map(|queue| (queue.waiting().len() as f64, queue.capacity as f64))
        } else {
            None
        };
        if let Some((value, limit)) = numbers {
            (refusal.value, refusal.limit) = (Some(value), Some(limit));
        }
    }
}

#[cfg(test)]
mod tests;
