//! The plan: which targets wait where, what would start now, and why the rest does not.
//!
//! Owns the queues and their policy, as pure functions of (snapshot, channels, now): no
//! clock, no I/O, no logging. The planner task holds the [`Queues`] and publishes [`Plan`]s;
//! metrics, API and commands read those. Misses are worked out when asked for; a waiting
//! target keeps its channel, its priority and since when it waits, and no more.

mod conditions;
mod placement;
mod queues;
mod refusal;

pub use conditions::Conditions;
pub use placement::{Placement, first_channel, miss_of};
pub use queues::Queues;
pub use refusal::{Refusal, RefusalReason};

use crate::{
    channel::{Channel, Channels},
    clock::Moment,
    score::Miss,
    snapshot::{Chunked, Ix, NodeIx, Snapshot, TargetRef},
    target::Kind,
};
use std::sync::Arc;

/// One queue as it is published.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueView {
    /// The node, or the pseudo node for views and cleanups of the whole cluster.
    pub node: NodeIx,
    /// The channel's place in the order.
    pub channel: usize,
    /// Waiting targets, best first.
    pub waiting: Arc<[Ix]>,
    /// What the queue holds at most.
    pub capacity: usize,
    /// Targets the channel takes that find no room.
    pub overflow: usize,
    /// Largest and smallest priority that wait; absent when none does.
    pub priority: Option<(f64, f64)>,
    /// Since when the one that waits longest does.
    pub oldest: Option<Moment>,
    /// Bytes on disk that compacting all that waits would free, of those where it is known.
    pub reclaimable: u64,
    /// Running jobs whose target this channel takes, whoever started them.
    pub active: usize,
    /// What would start now, in order.
    pub starts: Arc<[Ix]>,
}

/// What is decided about a target.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It would start now.
    Start,
    /// It waits, or would if its queue had room, and this keeps it from starting.
    Refused(Refusal),
    /// No channel takes it; ask for its misses.
    NotTaken,
}

/// What the planner published last: a snapshot and where its targets stand.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The facts the plan was made from.
    pub snapshot: Arc<Snapshot>,
    /// The channels it was made for.
    pub channels: Arc<Channels>,
    /// Every queue that can exist: databases' channels on every node, the others' on the
    /// pseudo node; by node, then channel.
    pub queues: Arc<[Arc<QueueView>]>,
    /// The conditions it was made under.
    pub conditions: Conditions,
    /// When it was made.
    pub made_at: Moment,
    /// How long facts count as fresh.
    pub fresh_for: std::time::Duration,
    placements: Chunked<Placement>,
}

impl Plan {
    /// The channel that takes a target, its priority there, and since when it waits.
    #[must_use]
    pub fn placement(&self, ix: Ix) -> Option<(&Channel, Placement)> {
        let placement = *self.placements.get(ix.as_usize())?;
        Some((self.channels.list.get(placement.channel()?)?, placement))
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

    /// Why each channel that does not take this target does not, in the channels' order.
    pub fn misses(&self, target: TargetRef<'_>) -> impl Iterator<Item = (&Channel, Miss)> {
        self.channels
            .list
            .iter()
            .filter_map(move |channel| Some((channel, miss_of(&self.channels, channel, target)?)))
    }

    /// What is decided about a target.
    #[must_use]
    pub fn decision(&self, target: TargetRef<'_>) -> Decision {
        let Some((channel, placement)) = self.placement(target.ix()) else {
            return match target.kind() {
                Kind::Cleanup if !target.facts().flags.evidence => {
                    Decision::Refused(Refusal::plain(RefusalReason::NoEvidence))
                }
                Kind::Db | Kind::View | Kind::Cleanup => Decision::NotTaken,
            };
        };
        let Some(queue) = placement.channel().and_then(|at| self.queue(target.node_ix(), at))
        else {
            return Decision::NotTaken;
        };
        if queue.starts.contains(&target.ix()) {
            return Decision::Start;
        }
        let since = Some(placement.since);
        let own = refusal::own(target, self.made_at, self.fresh_for);
        let refusal = own.unwrap_or_else(|| refusal::no_room(channel, queue));
        Decision::Refused(Refusal { since, ..refusal })
    }
}

#[cfg(test)]
mod tests;
