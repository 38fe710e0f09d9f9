//! The queues of all channels on all nodes.

use super::{
    candidate_summary::CandidateSummary,
    conditions::Conditions,
    horizon::HorizonFactors,
    placement::Placement,
    published::Plan,
    queue_view::{PublishedQueues, QueueKey, QueueView},
    rules::Rules,
    runs,
};
use crate::{
    model::{
        channel::Channels,
        queue::{Queue, QueueEntry},
        target::TargetKind,
        window::Openings,
    },
    table::{ChunkedTable, NodeIx, Snapshot, TargetIx, TargetRef},
};
use hashbrown::HashMap;
use ordered_float::OrderedFloat;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// Rent grows with time even without writes, so targets of channels by rent are rescored this many
/// times per shortest horizon, within the limits below.
const PRICES_PER_HORIZON: u32 = 500;

/// A horizon factor that changed by less than this share can wait for the next round of rescoring.
const PRICE_TOLERANCE: f64 = 0.01;

/// Shortest time between two rounds: moments are whole seconds.
const MIN_PRICING_INTERVAL: Duration = Duration::from_secs(1);

/// Longest time between two rounds; scoring a million targets takes a third of a second.
const MAX_PRICING_INTERVAL: Duration = Duration::from_secs(60);

/// A target's row in the table. A removed target is reported before its row is reused.
type RowIndex = u32;

/// The queues, updated from snapshots; the planner task owns them.
#[derive(Debug)]
pub struct Queues {
    channels: Arc<Channels>,
    placements: ChunkedTable<Placement>,
    queues: BTreeMap<QueueKey, QueueState>,
    /// The generation of the target that occupies each row, for rows that were reused.
    generations: HashMap<RowIndex, u32>,
    snapshot_version: u64,
    /// The horizon factors of each node.
    horizon_factors: Arc<HorizonFactors>,
    /// When every target of a channel by rent was last scored.
    priced_at: Option<Moment>,
    /// When the windows of each channel open, for some weeks.
    openings: Arc<[Openings]>,
}

/// One queue with its last published view.
#[derive(Debug)]
struct QueueState {
    queue: Queue<RowIndex>,
    running_targets: BTreeSet<TargetIx>,
    changed: bool,
    published: Option<Arc<QueueView>>,
}

impl QueueState {
    const fn new(queue: Queue<RowIndex>) -> Self {
        Self { queue, running_targets: BTreeSet::new(), changed: true, published: None }
    }
}

impl Queues {
    /// Empty queues for these channels.
    #[must_use]
    pub fn new(channels: Arc<Channels>) -> Self {
        let (placements, queues) = (ChunkedTable::default(), BTreeMap::new());
        Self {
            channels,
            placements,
            queues,
            generations: HashMap::new(),
            snapshot_version: 0,
            horizon_factors: Arc::default(),
            priced_at: None,
            openings: Arc::default(),
        }
    }

    /// Replaces the channels. A target that stays in a channel of the same name keeps its waiting
    /// time; the next [`Queues::apply_snapshot`] scores every target again.
    pub fn reconfigure(&mut self, channels: Arc<Channels>) {
        self.channels = channels;
        self.snapshot_version = 0;
        self.priced_at = None;
        self.openings = Arc::default();
    }

    /// Updates the queues to `snapshot`: scores what changed since the previous version, or
    /// everything if versions were missed.
    pub fn apply_snapshot(&mut self, snapshot: &Snapshot, now: Moment) {
        if self.snapshot_version > 0 && snapshot.version() == self.snapshot_version + 1 {
            for ix in snapshot.changed_targets() {
                self.rescore(snapshot, *ix, now);
            }
        } else if snapshot.version() != self.snapshot_version || self.snapshot_version == 0 {
            self.rebuild(snapshot, now);
        }
        self.snapshot_version = snapshot.version();
        let nodes = (0..snapshot.nodes().len()).filter_map(NodeIx::from_usize);
        for node in nodes.filter(|node| has_queues(snapshot, *node)) {
            self.ensure_queues(node);
        }
        self.queues.retain(|(node, _), lane| has_queues(snapshot, *node) || !lane.queue.is_empty());
    }

    /// Updates the horizon factors, and rescores targets of channels by rent if a factor changed or
    /// if time may have made a target due.
    pub fn update_prices(
        &mut self,
        snapshot: &Snapshot,
        conditions: &Conditions,
        rules: &Rules,
        now: Moment,
    ) {
        let Some(shortest) = self.channels.by_rent().map(|channel| channel.horizon).min() else {
            self.horizon_factors = Arc::default();
            return;
        };
        let factors = HorizonFactors::of(snapshot, &self.channels, conditions, rules, now);
        let interval = shortest.mul_f64(factors.smallest()) / PRICES_PER_HORIZON;
        let interval = interval.clamp(MIN_PRICING_INTERVAL, MAX_PRICING_INTERVAL);
        let is_due = self.priced_at.is_none_or(|last| last.age(now) >= interval || now < last);
        let differ = factors.differ_from(&self.horizon_factors, PRICE_TOLERANCE);
        if !is_due && !differ {
            return;
        }
        self.priced_at = Some(now);
        self.horizon_factors = Arc::new(factors);
        let channels = Arc::clone(&self.channels);
        let is_priced = |target: &TargetRef<'_>| {
            channels.by_rent().any(|channel| channel.kind == target.kind())
        };
        for at in 0..snapshot.row_count() {
            if let Some(target) = snapshot.target_at(at).filter(is_priced) {
                self.rescore(snapshot, target.ix(), now);
            }
        }
    }

    /// Sets the horizon factors for targets that are scored from now on.
    pub(crate) fn set_prices(&mut self, factors: HorizonFactors) {
        self.horizon_factors = Arc::new(factors);
    }

    /// Publishes the current queues, and the plan that follows from them at `now`.
    #[must_use]
    pub fn make_plan(
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
                _ => Arc::new(queue_view(node, channel, lane, snapshot, &self.placements)),
            };
            lane.changed = false;
            lane.published = Some(Arc::clone(&view));
            active.extend(lane.running_targets.iter().map(|ix| ((node, channel), *ix)));
            queues.push(view);
        }
        let queues = PublishedQueues {
            channels: Arc::clone(&self.channels),
            queues: queues.into(),
            placements: self.placements.clone(),
            running_targets: active.into(),
            horizon_factors: Arc::clone(&self.horizon_factors),
            openings: self.openings(now),
        };
        let conditions = runs::with_members_ordered(conditions, &queues, snapshot);
        Plan::build(queues, snapshot, &conditions, rules, now)
    }

    fn openings(&mut self, now: Moment) -> Arc<[Openings]> {
        if self.openings.is_empty() || self.openings.iter().any(|it| !it.covers(now)) {
            let windows = self.channels.list.iter().map(|channel| &channel.windows);
            self.openings = windows.map(|windows| Openings::of(windows, now)).collect();
        }
        Arc::clone(&self.openings)
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

    /// Whether the target last placed at this row is this target.
    fn is_same(&self, ix: TargetIx) -> bool {
        self.generations.get(&row_index(ix)).copied().unwrap_or(0) == ix.generation()
    }

    /// Scores every target and sorts each queue once.
    fn rebuild(&mut self, snapshot: &Snapshot, now: Moment) {
        // The old queues are no longer needed, and keeping them would double the peak memory.
        self.queues.clear();
        let mut placements = ChunkedTable::default();
        let mut generations = HashMap::new();
        let mut entries: BTreeMap<QueueKey, (Vec<QueueEntry<RowIndex>>, BTreeSet<TargetIx>)> =
            BTreeMap::new();
        for at in 0..snapshot.row_count() {
            let placed =
                snapshot.target_at(at).map(|target| (target.ix(), self.place(target, now)));
            let Some((ix, mut placement)) = placed else {
                placements.push(Placement::default());
                continue;
            };
            if let Some(channel) = placement.channel_index() {
                if let Some(before) = self.placements.get(at)
                    && self.is_same(ix)
                    && before.channel_index() == Some(channel)
                    && before.node == placement.node
                {
                    placement.queued_since = before.queued_since;
                }
                let (waiting, active) = entries.entry((placement.node, channel)).or_default();
                waiting.push(queue_entry(ix, &placement));
                if placement.compact_running {
                    active.insert(ix);
                }
            }
            if ix.generation() > 0 {
                generations.insert(row_index(ix), ix.generation());
            }
            placements.push(placement);
        }
        (self.placements, self.generations) = (placements, generations);
        self.queues = entries
            .into_iter()
            .map(|(queue_key, (waiting, active))| {
                let queue =
                    Queue::from_entries(channel_capacity(&self.channels, queue_key.1), waiting);
                (queue_key, QueueState { running_targets: active, ..QueueState::new(queue) })
            })
            .collect();
    }

    fn rescore(&mut self, snapshot: &Snapshot, ix: TargetIx, now: Moment) {
        self.placements.grow_to(ix.as_usize() + 1);
        let Some(&before) = self.placements.get(ix.as_usize()) else { return };
        let target = snapshot.target(ix);
        let mut after = target.map_or_else(Placement::default, |target| self.place(target, now));
        let stays = after.channel_index() == before.channel_index() && after.node == before.node;
        if stays {
            after.queued_since = before.queued_since;
        }
        if let Some(channel) = before.channel_index() {
            let lane = self.queue_mut((before.node, channel));
            lane.changed = true;
            if !(stays && after.priority == before.priority) {
                lane.queue.remove(&queue_entry(ix, &before));
            }
            lane.running_targets.remove(&ix);
        }
        if let Some(channel) = after.channel_index() {
            let lane = self.queue_mut((after.node, channel));
            lane.changed = true;
            if !(stays && after.priority == before.priority) {
                lane.queue.insert(queue_entry(ix, &after));
            }
            if after.compact_running {
                lane.running_targets.insert(ix);
            }
        }
        if ix.generation() > 0 {
            self.generations.insert(row_index(ix), ix.generation());
        }
        if after != before
            && let Some(placement) = self.placements.get_mut(ix.as_usize())
        {
            *placement = after;
        }
    }

    fn place(&self, target: TargetRef<'_>, now: Moment) -> Placement {
        let rent = self.horizon_factors.rent_now(target, now);
        Placement::of(&self.channels, target, rent, now)
    }

    fn queue_mut(&mut self, place: QueueKey) -> &mut QueueState {
        let channels = &self.channels;
        self.queues
            .entry(place)
            .or_insert_with(|| QueueState::new(Queue::new(channel_capacity(channels, place.1))))
    }

    /// Creates every queue that can exist on a node, so that an empty queue is reported as zero and
    /// not as missing.
    fn ensure_queues(&mut self, node: NodeIx) {
        let channels = Arc::clone(&self.channels);
        for (at, channel) in channels.list.iter().enumerate() {
            if (channel.kind == TargetKind::Db) != (node == NodeIx::CLUSTER) {
                self.queue_mut((node, at));
            }
        }
    }
}

/// Whether a node has queues: it is a member of the cluster that this process serves, or the
/// pseudo-node if this process serves the cluster-wide targets.
fn has_queues(snapshot: &Snapshot, at: NodeIx) -> bool {
    snapshot
        .node(at)
        .is_some_and(|node| node.is_served && (at == NodeIx::CLUSTER || node.is_member))
}

fn channel_capacity(channels: &Channels, channel: usize) -> usize {
    channels.list.get(channel).map_or(0, |channel| channel.capacity)
}

fn queue_entry(ix: TargetIx, placement: &Placement) -> QueueEntry<RowIndex> {
    QueueEntry {
        priority: OrderedFloat(placement.priority),
        queued_since: placement.queued_since,
        ix: row_index(ix),
    }
}

fn row_index(ix: TargetIx) -> RowIndex {
    // Tables have far fewer than four billion rows.
    RowIndex::try_from(ix.as_usize()).unwrap_or(RowIndex::MAX)
}

fn queue_view(
    node: NodeIx,
    channel: usize,
    lane: &QueueState,
    snapshot: &Snapshot,
    placements: &ChunkedTable<Placement>,
) -> QueueView {
    let queue = &lane.queue;
    let waiting = queue.iter().filter_map(|entry| snapshot.target_at(entry.ix as usize));
    let mut reclaimable: u64 = 0;
    let summary = |target: TargetRef<'_>| {
        reclaimable = reclaimable.saturating_add(target.reclaimable_bytes().unwrap_or(0));
        CandidateSummary::of(target)
    };
    let candidates: Arc<[CandidateSummary]> = waiting.map(summary).collect();
    let oldest = candidates
        .iter()
        .filter_map(|candidate| placements.get(candidate.ix.as_usize()))
        .map(|placement| placement.queued_since)
        .min();
    QueueView {
        node,
        channel_index: channel,
        capacity: queue.capacity(),
        overflow: queue.overflow(),
        priority_range: queue
            .first()
            .zip(queue.last())
            .map(|(best, worst)| (best.priority.0, worst.priority.0)),
        oldest_queued_at: oldest,
        reclaimable_bytes: reclaimable,
        active_jobs: lane.running_targets.len(),
        summaries: candidates,
    }
}
