//! The state of the scanner: a value that handles events, without I/O or a clock.
//!
//! Composes the tables, each of which maintains its own invariants, the sweep, the running reads and
//! the timers. The task calls [`Scanner::handle`] with each event and carries out the returned effects
//! in order; it calls again no later than [`Scanner::next_wake`]. `steps` decides the order of a
//! sweep's stages, `observe` applies observations.

mod ending;
mod observe;
mod selection;
mod steps;

use super::{
    DbEventBatch, EarlierProcess, FeedUpdate, ScanCommand, ScanSettings, ScanStatus, disk::Disk,
    followed::Followed, listing::Listing, running_jobs::RunningJobs, sweep::Sweep,
    targets::TargetTables, unseen_compactions::UnseenCompactions, views::IndexTables,
};
use crate::{
    jobs::Running,
    model::{correction::Corrections, target::TargetKind},
    sources::inventory::{Observation, ReadError, Stage},
    table::{Movements, NodeIx, Snapshot, TargetIx},
    tasks::Now,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::Instant;
use wall_clock::Moment;

/// The minimum interval between snapshots, so that a sweep of a million targets creates a thousand
/// snapshots and not a million.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum interval between awaited snapshots, and how much each target lengthens it: planning takes
/// longer with more targets.
const MIN_PUBLISH_INTERVAL: Duration = Duration::from_millis(100);
const PUBLISH_INTERVAL_PER_TARGET: Duration = Duration::from_nanos(2_500);

/// The interval of polls while the cluster is quiet. CouchDB's own daemon starts a job only after a
/// write, and feeds report every write.
const QUIET_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// How long a sweep waits for silent nodes once others have answered. After that they probably hang:
/// the sweep reads the others and returns to a slow node later. Requests that need the whole cluster
/// may take as long as they need while no sweep is due.
const LATE_NODE_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a round waits for the next list of files once some node has listed its own. Nodes without a list by
/// then are read after the others.
const LATE_LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum number of database events in one batch while a read continues.
const EVENT_BATCH: usize = 4_096;

/// Minimum pause between two sweeps, if one takes longer than the interval.
const MIN_SWEEP_PAUSE: Duration = Duration::from_secs(1);

/// The pause after a sweep that could read nothing, if the interval is longer: CouchDB may be starting.
/// Also the minimum time from the start of a sweep to the next one for a node that answers again.
const RETRY_INTERVAL: Duration = Duration::from_secs(15);

/// Maximum drift between the wall clock and the monotonic one since the last event; a larger one
/// means that the wall clock was set.
const MAX_CLOCK_DRIFT: Duration = Duration::from_secs(30);

/// A slot for one concurrent read. Earlier slots are handled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Slot {
    /// The running jobs of nodes.
    Poll,
    /// Shards of one node after feed events or jobs: a slow node does not delay the others.
    Shards(NodeIx),
    /// Entries of the shard map after feed events.
    Entries,
    /// Checks whether silent nodes answer again.
    Away,
    /// Views that a job changed.
    Views,
    /// The rest of a sweep's first stage, while the sweep continues without it.
    Late,
    Splits,
    /// The views of a sweep.
    ClusterViews,
    /// The stages of a sweep that read nodes.
    Sweep,
}

/// An event for the scanner.
#[derive(Debug)]
pub(super) enum Event {
    Started,
    /// The measurements of an earlier process were read.
    Restored(EarlierProcess),
    Settings(Arc<ScanSettings>),
    SourceChanged,
    /// New corrections of predictions.
    Corrections(Arc<Corrections>),
    /// Another task sent a command.
    Command(ScanCommand),
    /// The time of [`Scanner::next_wake`] has come.
    Wake,
    /// A read returned these observations.
    Observed(Slot, Vec<Observation>),
}

/// An action for the task.
#[derive(Debug)]
pub(super) enum Effect {
    /// Start to read a stage; stops the slot's previous read.
    Start(Slot, Stage),
    Stop(Slot),
    /// Continue a read under another slot; stops that slot's previous read.
    Rename {
        from: Slot,
        to: Slot,
    },
    /// Publish a snapshot and its status.
    Publish(Arc<Snapshot>, Arc<ScanStatus>),
    /// Publish the result of the last poll.
    PublishRunning(Arc<Running>),
    Emit(DbEventBatch),
    /// Warn that this many blocks of the stored measurements cannot be read.
    WarnDamaged(usize),
}

/// A running read of a stage.
#[derive(Debug)]
struct Reading {
    stage: Stage,
    began: Instant,
}

/// A timer of the scanner, the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Publish,
    Reread,
    Sweep,
    LateNodes,
    Poll,
}

/// The times of all timers.
#[derive(Debug)]
struct Timers {
    /// When the last snapshot was published.
    published: Instant,
    /// The minimum time until the next snapshot.
    publish_interval: Duration,
    /// Whether anything changed since the last snapshot.
    unpublished: bool,
    sweep: Instant,
    /// When a sweep continues without the nodes that are silent or have not listed their files.
    late_nodes: Instant,
    poll: Instant,
    /// Whether a poll followed the first listing: a fresh process starts nothing before it knows the
    /// running jobs and their targets.
    polled_after_listing: bool,
}

/// How far a batch was processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handled {
    /// More batches follow.
    Part,
    /// The read is complete.
    Whole,
    /// The read is complete, and a reader of snapshots waits for it.
    Awaited,
}

/// The complete state of the scanner.
#[derive(Debug)]
pub(super) struct Scanner {
    settings: Arc<ScanSettings>,
    targets: TargetTables,
    listing: Listing,
    views: IndexTables,
    jobs: RunningJobs,
    unseen: UnseenCompactions,
    disk: Disk,
    followed: Followed,
    sweep: Sweep,
    status: ScanStatus,
    readings: BTreeMap<Slot, Reading>,
    timers: Timers,
    /// Whether the source changed since the last sweep began.
    source_changed: bool,
    /// Whether the corrections of the previous process are applied.
    has_corrections: bool,
    /// The time of the last event.
    last_event: Now,
}

impl Scanner {
    pub(super) fn new(settings: Arc<ScanSettings>, now: Now) -> Self {
        Self {
            targets: TargetTables::new(settings.top),
            listing: Listing::default(),
            views: IndexTables::default(),
            jobs: RunningJobs::default(),
            unseen: UnseenCompactions::default(),
            disk: Disk::default(),
            followed: Followed::new(now.at),
            sweep: Sweep::new(now),
            status: ScanStatus::default(),
            readings: BTreeMap::new(),
            timers: Timers {
                published: now.at,
                publish_interval: PUBLISH_INTERVAL,
                unpublished: false,
                sweep: now.at,
                late_nodes: now.at,
                poll: now.at,
                polled_after_listing: false,
            },
            source_changed: false,
            has_corrections: false,
            last_event: now,
            settings,
        }
    }

    /// Handles one event; returns the effects in order.
    #[must_use]
    pub(super) fn handle(&mut self, event: Event, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.detect_clock_change(now);
        match event {
            Event::Started => {
                self.timers.published = now.at;
                (self.timers.sweep, self.timers.poll) = (now.at, now.at);
            }
            Event::Restored(before) => self.restore(before, now, &mut effects),
            Event::Settings(settings) => self.settings = settings,
            Event::SourceChanged => self.source_changed = true,
            Event::Corrections(corrections) => self.correct(&corrections, now),
            Event::Command(command) => self.command(command, now, &mut effects),
            Event::Wake => self.wake(now, &mut effects),
            Event::Observed(slot, batch) => {
                let swept = self.sweep.runs();
                let mut handled = Handled::Part;
                for observation in batch {
                    if observation == Observation::StageEnded {
                        handled = self.reading_ended(slot, now, &mut effects);
                        break;
                    }
                    self.observe(slot, observation, now);
                }
                self.after_batch(slot, (handled, swept), now, &mut effects);
            }
        }
        effects
    }

    /// Corrects predictions. The first corrections come from the previous process, as do the rents
    /// that they are applied to.
    fn correct(&mut self, corrections: &Arc<Corrections>, now: Now) {
        let changed_at = self.has_corrections.then_some(now.wall);
        self.has_corrections = true;
        self.timers.unpublished |= self.targets.draft.set_corrections(corrections, changed_at);
    }

    /// Continues the rents and growth of all targets if the wall clock was set since the last event.
    fn detect_clock_change(&mut self, now: Now) {
        let before = std::mem::replace(&mut self.last_event, now);
        let expected = before.wall.plus(now.at.saturating_duration_since(before.at));
        let step = expected.distance(now.wall);
        if step > MAX_CLOCK_DRIFT {
            self.targets.draft.settle_histories(expected, now.wall);
        }
    }

    /// Takes what changed on the disks since the last call.
    pub(super) fn take_movements(&mut self) -> Movements {
        self.targets.draft.take_movements()
    }

    /// When to call [`Self::handle`] with [`Event::Wake`] at the latest.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        self.timers().into_iter().filter_map(|(_, at)| at).min()
    }

    /// The active timers, the most urgent first.
    fn timers(&self) -> [(Timer, Option<Instant>); 5] {
        let Timers { published, publish_interval, unpublished, .. } = self.timers;
        let late_nodes =
            self.sweep.may_continue_without_late_nodes() || !self.late_lists().is_empty();
        let polls = self.readings.contains_key(&Slot::Poll);
        [
            (Timer::Publish, unpublished.then(|| published + publish_interval)),
            (Timer::Reread, self.next_reread()),
            (Timer::Sweep, self.may_sweep().then_some(self.timers.sweep)),
            (Timer::LateNodes, late_nodes.then_some(self.timers.late_nodes)),
            (Timer::Poll, (!polls).then_some(self.timers.poll)),
        ]
    }

    /// Runs the most urgent due timer; the others wake the scanner again at once.
    fn wake(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let due = self.timers().into_iter().find(|(_, at)| at.is_some_and(|at| at <= now.at));
        match due.map(|(timer, _)| timer) {
            None => {}
            Some(Timer::Publish) => self.publish(now, effects),
            Some(Timer::Reread) => self.start_rereads(now, effects),
            Some(Timer::Sweep) => {
                self.timers.sweep = now.at + self.settings.interval;
                self.timers.late_nodes = now.at + LATE_NODE_TIMEOUT;
                if std::mem::take(&mut self.source_changed) {
                    // Another source may define views by other documents.
                    self.views.ask_again();
                }
                self.begin_sweep(now, effects);
                self.timers.unpublished = true;
            }
            Some(Timer::LateNodes) if self.sweep.asks_nodes() => {
                self.continue_without_late_nodes(now, effects);
            }
            Some(Timer::LateNodes) => self.continue_without_late_lists(now, effects),
            Some(Timer::Poll) => self.poll(now, effects),
        }
    }

    fn command(&mut self, command: ScanCommand, now: Now, effects: &mut Vec<Effect>) {
        match command {
            ScanCommand::Sweep => {
                self.followed.read_all_next();
                self.timers.sweep = now.at;
            }
            ScanCommand::Reread(targets) => {
                if self.targets.now().is_quiet() {
                    // Something changed that no feed reports: the plan must know what runs now.
                    self.timers.poll = now.at;
                }
                for ix in targets {
                    self.followed.reread_after_job(&mut self.targets.draft, ix, now.at);
                }
                self.start_changed_views(now, effects);
            }
            ScanCommand::Splitting(splits) => {
                self.listing.set_splits((*splits).clone());
                self.timers.unpublished |= self.listing.apply_splits(&mut self.targets.draft);
            }
            ScanCommand::FeedUpdate(update) => self.feed_update(update, now),
            ScanCommand::Xray(ix, inside) => {
                self.timers.unpublished |= self.targets.draft.set_inside(ix, inside);
            }
            ScanCommand::CleanupRequested(ix) => {
                self.cleaned(ix);
                self.timers.unpublished = true;
            }
        }
    }

    fn feed_update(&mut self, update: FeedUpdate, now: Now) {
        let named = !update.named.is_empty();
        if self.targets.now().is_quiet() && named {
            self.timers.poll = self.timers.poll.min(now.at + self.settings.poll);
        }
        self.timers.unpublished |= named;
        let (draft, views) = (&mut self.targets.draft, &mut self.views);
        if self.followed.update(draft, views, update, &self.settings, now.at) {
            self.timers.unpublished = true;
            self.timers.publish_interval = self.short_publish_interval();
        }
        self.timers.unpublished |= self.followed.update_quiet(&mut self.targets.draft, now.at);
    }

    /// Drops the evidence for a cleanup after a `_view_cleanup` was requested.
    fn cleaned(&mut self, ix: TargetIx) {
        let Some(target) = self.targets.now().target(ix) else { return };
        if target.kind() == TargetKind::Cleanup {
            let mut facts = target.facts();
            facts.flags.evidence = false;
            self.targets.draft.set_facts(ix, facts);
        }
    }

    /// Restores the measurements of an earlier process into the empty tables.
    fn restore(&mut self, before: EarlierProcess, now: Now, effects: &mut Vec<Effect>) {
        let damaged = self.targets.restore(before);
        self.views.restore(self.targets.now());
        self.targets.serve(&self.settings);
        self.targets.draft.settle_histories_of_the_future(now.wall);
        self.targets.update_ages(Moment::default());
        if damaged > 0 {
            effects.push(Effect::WarnDamaged(damaged));
        }
        self.publish(now, effects);
    }

    fn publish(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let snapshot = self.targets.draft.publish(now.wall);
        if self.status.ready {
            self.status.ready_from.get_or_insert_with(|| snapshot.version());
        }
        effects.push(Effect::Publish(snapshot, Arc::new(self.status.clone())));
        self.timers.unpublished = false;
        self.timers.published = now.at;
        self.timers.publish_interval = PUBLISH_INTERVAL;
    }

    /// The minimum interval to the next snapshot, if it shows reads after feed events.
    fn short_publish_interval(&self) -> Duration {
        let targets = u32::try_from(self.targets.now().row_count()).unwrap_or(u32::MAX);
        PUBLISH_INTERVAL_PER_TARGET
            .saturating_mul(targets)
            .clamp(MIN_PUBLISH_INTERVAL, PUBLISH_INTERVAL)
    }

    /// Polls the running jobs, and checks whether silent nodes answer again.
    fn poll(&mut self, now: Now, effects: &mut Vec<Effect>) {
        self.timers.unpublished |= self.followed.update_quiet(&mut self.targets.draft, now.at);
        let quiet = self.targets.now().is_quiet();
        let poll = self.settings.poll;
        self.timers.poll = now.at + if quiet { poll.max(QUIET_POLL_INTERVAL) } else { poll };
        if !self.readings.contains_key(&Slot::Away) && !self.sweep.runs() {
            let nodes = self.targets.members(false, &self.settings);
            if !nodes.is_empty() {
                self.start(Slot::Away, Stage::Away { nodes }, now, effects);
            }
        }
        let nodes = self.targets.members(true, &self.settings);
        let asked: Vec<NodeIx> =
            nodes.iter().filter_map(|name| self.targets.draft.find_node(name)).collect();
        self.jobs.begin_poll(now.wall, &asked);
        if nodes.is_empty() {
            effects.push(Effect::PublishRunning(Arc::new(self.jobs.end_poll())));
        } else {
            self.start(Slot::Poll, Stage::Poll { nodes }, now, effects);
        }
    }

    /// When the next read after a feed event or job is due, among slots that are free.
    fn next_reread(&self) -> Option<Instant> {
        self.followed.next_due(
            |node| !self.readings.contains_key(&Slot::Shards(node)),
            !self.readings.contains_key(&Slot::Entries),
        )
    }

    /// Starts the due reads after feed events or jobs.
    fn start_rereads(&mut self, now: Now, effects: &mut Vec<Effect>) {
        let free = |node| !self.readings.contains_key(&Slot::Shards(node));
        let node_reads = self.followed.due_shards(&self.targets.draft, free, now.at);
        if !node_reads.is_empty() {
            let snapshot = Arc::new(self.targets.now().without_facts());
            for (node, reads) in node_reads {
                let snapshot = Arc::clone(&snapshot);
                let stage = Stage::Shards {
                    snapshot,
                    node_reads: vec![reads],
                    count_designs: Arc::default(),
                };
                self.start(Slot::Shards(node), stage, now, effects);
            }
        }
        if !self.readings.contains_key(&Slot::Entries) {
            let dbs = self.followed.due_entries(now.at);
            if !dbs.is_empty() {
                let map_node = self.followed.map_node(self.targets.now(), |_| true);
                let stage = Stage::Strays { dbs, map_node, nodes: Vec::new() };
                self.start(Slot::Entries, stage, now, effects);
            }
        }
    }

    /// Reads the views that jobs changed, one batch at a time.
    fn start_changed_views(&mut self, now: Now, effects: &mut Vec<Effect>) {
        if self.readings.contains_key(&Slot::Views) {
            return;
        }
        let views_of = self.followed.take_changed_views(self.targets.now());
        if let Some(views_of) = views_of {
            let dbs = self.targets.databases(|db| views_of.contains(&db));
            let snapshot = Arc::new(self.targets.now().without_facts());
            let stage = Stage::Views { snapshot, dbs, without_designs: Arc::default() };
            self.start(Slot::Views, stage, now, effects);
        }
    }

    fn start(&mut self, slot: Slot, stage: Stage, now: Now, effects: &mut Vec<Effect>) {
        self.readings.insert(slot, Reading { stage: stage.clone(), began: now.at });
        effects.push(Effect::Start(slot, stage));
    }

    fn stop(&mut self, slot: Slot, effects: &mut Vec<Effect>) -> Option<Reading> {
        let reading = self.readings.remove(&slot)?;
        effects.push(Effect::Stop(slot));
        Some(reading)
    }

    /// The effects of a handled batch of observations; `swept` says whether a sweep was running before.
    fn after_batch(
        &mut self,
        slot: Slot,
        (handled, swept): (Handled, bool),
        now: Now,
        effects: &mut Vec<Effect>,
    ) {
        self.timers.unpublished |= slot != Slot::Away;
        let (ended, swept) = (handled != Handled::Part, swept && !self.sweep.runs());
        self.emit(ended, swept, effects);
        if ended && slot == Slot::Poll {
            effects.push(Effect::PublishRunning(Arc::new(self.jobs.end_poll())));
            for ix in self.unseen.take_due(self.targets.now(), now) {
                self.followed.check(&self.targets.draft, ix, now.at);
            }
        }
        if swept || (ended && matches!(slot, Slot::Sweep | Slot::Late)) {
            self.timers.sweep = self.timers.sweep.max(now.at + MIN_SWEEP_PAUSE);
        }
        if swept && self.status.problem.is_some() {
            self.timers.sweep = self.timers.sweep.min(now.at + RETRY_INTERVAL);
        }
        match handled {
            Handled::Part => {}
            Handled::Whole => self.timers.publish_interval = self.short_publish_interval(),
            Handled::Awaited => self.publish(now, effects),
        }
        self.start_changed_views(now, effects);
        if !self.timers.polled_after_listing && self.has_listed() {
            self.timers.polled_after_listing = true;
            self.timers.poll = now.at;
        }
    }

    /// Handles the end of a read: starts the sweep's next stage, or ends the sweep.
    fn reading_ended(&mut self, slot: Slot, now: Now, effects: &mut Vec<Effect>) -> Handled {
        let Some(Reading { stage, began }) = self.stop(slot, effects) else {
            return Handled::Part;
        };
        let seconds = now.at.duration_since(began).as_secs_f64();
        tracing::debug!(stage = stage.label(), seconds, "read");
        let mut awaited = matches!(slot, Slot::Sweep | Slot::Late | Slot::Views);
        let next = match slot {
            Slot::Poll | Slot::Away | Slot::Views | Slot::Entries => return Handled::of(awaited),
            Slot::Shards(_) => {
                awaited = self.followed.shards_read(&stage, &self.settings, now.at);
                return Handled::of(awaited);
            }
            Slot::Sweep => {
                if self.sweep.asks_nodes() {
                    // The nodes that an earlier sweep still waits for were asked again.
                    self.stop(Slot::Late, effects);
                }
                self.after_stage(&stage, now)
            }
            Slot::Late => {
                self.sweep.late_nodes_answered();
                let rests = !self.readings.contains_key(&Slot::Sweep);
                rests.then(|| self.after_round(now)).flatten()
            }
            Slot::ClusterViews => {
                self.views_read(now);
                None
            }
            Slot::Splits => {
                self.splits_read(now);
                None
            }
        };
        // The buffers of a stage may be as large as a whole table, so the next stage gets new ones.
        drop(stage);
        if let Some(stage) = next {
            self.start_stage(stage, now, effects);
            return Handled::Part;
        }
        awaited |= self.end_sweep(now, effects);
        Handled::of(awaited)
    }

    /// Emits the detected database events, if a read ended or there are many.
    fn emit(&mut self, ended: bool, swept: bool, effects: &mut Vec<Effect>) {
        let swept = self.swept_since().filter(|_| swept);
        let waiting = self.targets.changes.waiting();
        if swept.is_none() && (waiting == 0 || !ended && waiting < EVENT_BATCH) {
            return;
        }
        effects.push(Effect::Emit(self.targets.take_events(swept)));
        self.status.event_batches = self.targets.changes.batches();
    }

    /// Schedules a sweep soon, because a silent node answers again or copies of a database moved.
    fn sweep_soon(&mut self, now: Now) {
        let earliest = now.at.max(self.sweep.began().at + RETRY_INTERVAL);
        self.timers.sweep = self.timers.sweep.min(earliest);
    }

    /// Whether the running sweep knows which files exist.
    fn has_listed(&self) -> bool {
        self.sweep.has_listed() || self.readings.contains_key(&Slot::ClusterViews)
    }

    /// Records a failed read: its node, or the cluster, is incomplete in this sweep.
    fn unread(&mut self, node: NodeIx, unread: &ReadError) {
        self.sweep.unread(node);
        self.count_error(node, unread);
    }

    fn count_error(&mut self, node: NodeIx, unread: &ReadError) {
        let name = self.targets.now().node(node).map(|node| Arc::clone(&node.name));
        self.status.count_error(name.unwrap_or_default(), unread, self.last_event.wall);
        self.sweep.record_missing_right(unread);
    }
}

impl Handled {
    const fn of(awaited: bool) -> Self {
        if awaited { Self::Awaited } else { Self::Whole }
    }
}

#[cfg(test)]
mod tests;
