//! The queues of all channels on all nodes.

use super::{Conditions, Placement, Plan, QueueView, Rules, brief::Brief};
use crate::{
    model::{
        channel::Channels,
        queue::{Entry, Queue},
        target::Kind,
    },
    table::{Chunked, Ix, NodeIx, Snapshot},
};
use hashbrown::HashMap;
use ordered_float::OrderedFloat;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use wall_clock::Moment;

type Place = (NodeIx, usize);

/// A target's row in the table. A removed target is reported before its row is reused.
type Row = u32;

/// The queues, updated from snapshots; the planner task owns them.
#[derive(Debug)]
pub struct Queues {
    channels: Arc<Channels>,
    placements: Chunked<Placement>,
    queues: BTreeMap<Place, Lane>,
    /// The generation of the target that occupies each row, for rows that were reused.
    generations: HashMap<Row, u32>,
    seen: u64,
}

/// The published queues and the other inputs of a plan.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) channels: Arc<Channels>,
    pub(super) queues: Arc<[Arc<QueueView>]>,
    pub(super) placements: Chunked<Placement>,
    /// Targets whose facts say that they are being compacted, with their queues.
    pub(super) active: Vec<(Place, Ix)>,
}

/// One queue with its last published view.
#[derive(Debug)]
struct Lane {
    queue: Queue<Row>,
    active: BTreeSet<Ix>,
    changed: bool,
    published: Option<Arc<QueueView>>,
}

impl Lane {
    const fn new(queue: Queue<Row>) -> Self {
        Self { queue, active: BTreeSet::new(), changed: true, published: None }
    }
}

impl Queues {
    /// Empty queues for these channels.
    #[must_use]
    pub fn new(channels: Arc<Channels>) -> Self {
        let (placements, queues) = (Chunked::default(), BTreeMap::new());
        Self { channels, placements, queues, generations: HashMap::new(), seen: 0 }
    }

    /// Replaces the channels. A target that stays in a channel of the same name keeps its waiting
    /// time; the next [`Queues::follow`] scores every target again.
    pub fn reconfigure(&mut self, channels: Arc<Channels>) {
        self.channels = channels;
        self.seen = 0;
    }

    /// Brings the queues up to `snapshot`: scores what changed since the previous version, or
    /// everything if versions were missed.
    pub fn follow(&mut self, snapshot: &Snapshot, now: Moment) {
        if self.seen > 0 && snapshot.version() == self.seen + 1 {
            for ix in snapshot.changed() {
                self.rescore(snapshot, *ix, now);
            }
        } else if snapshot.version() != self.seen || self.seen == 0 {
            self.rebuild(snapshot, now);
        }
        self.seen = snapshot.version();
        let places = (0..snapshot.nodes().len()).filter_map(NodeIx::from_usize);
        for node in places.filter(|node| belongs(snapshot, *node)) {
            self.lanes_of(node);
        }
        self.queues.retain(|(node, _), lane| belongs(snapshot, *node) || !lane.queue.is_empty());
    }

    /// Publishes the queues as they are, and the plan that follows from them at `now`.
    #[must_use]
    pub fn publish(
        &mut self,
        snapshot: &Arc<Snapshot>,
        conditions: &Conditions,
        rules: &Arc<Rules>,
        now: Moment,
    ) -> Plan {
        let mut queues = Vec::with_capacity(self.queues.len());
        let mut active = Vec::new();
        for (&(node, channel), lane) in &mut self.queues {
            let view = match lane.published.take() {
                Some(view) if !lane.changed => view,
                _ => Arc::new(view_of(node, channel, lane, snapshot, &self.placements)),
            };
            lane.changed = false;
            lane.published = Some(Arc::clone(&view));
            active.extend(lane.active.iter().map(|ix| ((node, channel), *ix)));
            queues.push(view);
        }
        let queues = Waiting {
            channels: Arc::clone(&self.channels),
            queues: queues.into(),
            placements: self.placements.clone(),
            active,
        };
        Plan::of(queues, snapshot, conditions, rules, now)
    }

    /// Removes the best queued target; returns whether there was one.
    pub fn pop(&mut self, node: NodeIx, channel: usize) -> bool {
        let Some(lane) = self.queues.get_mut(&(node, channel)) else { return false };
        let Some(best) = lane.queue.pop() else { return false };
        lane.changed = true;
        if let Some(placement) = self.placements.get_mut(best.ix as usize) {
            *placement = Placement::default();
        }
        true
    }

    /// Whether the target that was placed at this row is the same target.
    fn is_same(&self, ix: Ix) -> bool {
        self.generations.get(&row(ix)).copied().unwrap_or(0) == ix.generation()
    }

    /// Scores every target and sorts each queue once.
    fn rebuild(&mut self, snapshot: &Snapshot, now: Moment) {
        // The old queues are no longer needed, and keeping them would double the peak memory.
        self.queues.clear();
        let mut placements = Chunked::default();
        let mut generations = HashMap::new();
        let mut entries: BTreeMap<Place, (Vec<Entry<Row>>, BTreeSet<Ix>)> = BTreeMap::new();
        for at in 0..snapshot.capacity() {
            let placed = snapshot
                .target_at(at)
                .map(|target| (target.ix(), Placement::of(&self.channels, target, now)));
            let Some((ix, mut placement)) = placed else {
                placements.push(Placement::default());
                continue;
            };
            if let Some(channel) = placement.channel() {
                if let Some(before) = self.placements.get(at)
                    && self.is_same(ix)
                    && before.channel() == Some(channel)
                    && before.node == placement.node
                {
                    placement.since = before.since;
                }
                let (waiting, active) = entries.entry((placement.node, channel)).or_default();
                waiting.push(entry(ix, &placement));
                if placement.running {
                    active.insert(ix);
                }
            }
            if ix.generation() > 0 {
                generations.insert(row(ix), ix.generation());
            }
            placements.push(placement);
        }
        (self.placements, self.generations) = (placements, generations);
        self.queues = entries
            .into_iter()
            .map(|(place, (waiting, active))| {
                let queue = Queue::of(capacity(&self.channels, place.1), waiting);
                (place, Lane { active, ..Lane::new(queue) })
            })
            .collect();
    }

    fn rescore(&mut self, snapshot: &Snapshot, ix: Ix, now: Moment) {
        self.placements.grow(ix.as_usize() + 1);
        let Some(&before) = self.placements.get(ix.as_usize()) else { return };
        let mut after = snapshot
            .target(ix)
            .map_or_else(Placement::default, |target| Placement::of(&self.channels, target, now));
        let stays = after.channel() == before.channel() && after.node == before.node;
        if stays {
            after.since = before.since;
        }
        if let Some(channel) = before.channel() {
            let lane = self.lane((before.node, channel));
            lane.changed = true;
            if !(stays && after.priority == before.priority) {
                lane.queue.remove(&entry(ix, &before));
            }
            lane.active.remove(&ix);
        }
        if let Some(channel) = after.channel() {
            let lane = self.lane((after.node, channel));
            lane.changed = true;
            if !(stays && after.priority == before.priority) {
                lane.queue.insert(entry(ix, &after));
            }
            if after.running {
                lane.active.insert(ix);
            }
        }
        if ix.generation() > 0 {
            self.generations.insert(row(ix), ix.generation());
        }
        if after != before
            && let Some(placement) = self.placements.get_mut(ix.as_usize())
        {
            *placement = after;
        }
    }

    fn lane(&mut self, place: Place) -> &mut Lane {
        let channels = &self.channels;
        self.queues
            .entry(place)
            .or_insert_with(|| Lane::new(Queue::new(capacity(channels, place.1))))
    }

    /// Creates every queue that can exist on a node, so that an empty queue reads zero and not
    /// absent.
    fn lanes_of(&mut self, node: NodeIx) {
        let channels = Arc::clone(&self.channels);
        for (at, channel) in channels.list.iter().enumerate() {
            if (channel.kind == Kind::Db) != (node == NodeIx::CLUSTER) {
                self.lane((node, at));
            }
        }
    }
}

/// Whether a node has queues: a member of the cluster that this process serves, or the pseudo node
/// if this process serves the cluster-wide targets.
fn belongs(snapshot: &Snapshot, at: NodeIx) -> bool {
    snapshot.node(at).is_some_and(|node| node.served && (at == NodeIx::CLUSTER || node.member))
}

fn capacity(channels: &Channels, channel: usize) -> usize {
    channels.list.get(channel).map_or(0, |channel| channel.capacity)
}

fn entry(ix: Ix, placement: &Placement) -> Entry<Row> {
    Entry { priority: OrderedFloat(placement.priority), since: placement.since, ix: row(ix) }
}

fn row(ix: Ix) -> Row {
    // Tables have far fewer than four billion rows.
    Row::try_from(ix.as_usize()).unwrap_or(Row::MAX)
}

fn view_of(
    node: NodeIx,
    channel: usize,
    lane: &Lane,
    snapshot: &Snapshot,
    placements: &Chunked<Placement>,
) -> QueueView {
    let queue = &lane.queue;
    let waiting = queue.iter().filter_map(|entry| snapshot.target_at(entry.ix as usize));
    let briefs: Arc<[Brief]> = waiting.map(Brief::of).collect();
    let copies = |brief: &Brief| snapshot.target(brief.ix).map_or(1, |target| target.copies());
    let reclaimable = briefs
        .iter()
        .filter_map(|brief| {
            let copies = if node == NodeIx::CLUSTER { copies(brief) } else { 1 };
            Some(brief.reclaimable()?.saturating_mul(u64::from(copies)))
        })
        .fold(0, u64::saturating_add);
    let oldest = briefs
        .iter()
        .filter_map(|brief| placements.get(brief.ix.as_usize()))
        .map(|placement| placement.since)
        .min();
    QueueView {
        node,
        channel,
        capacity: queue.capacity(),
        overflow: queue.overflow(),
        priority: queue
            .first()
            .zip(queue.last())
            .map(|(best, worst)| (best.priority.0, worst.priority.0)),
        oldest,
        reclaimable,
        active: lane.active.len(),
        briefs,
    }
}
