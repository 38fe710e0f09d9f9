//! The scanner: one task that keeps the tables of all targets and publishes snapshots.
//!
//! Owns what is known of the cluster. Asks through its [`Source`] and never decides what a
//! fact means; the planner reads the snapshots, metrics and API the [`Status`] as well.
//!
//! A sweep reads everything in stages. Beside it, what the nodes run is polled, and a target
//! on which a job ended is read again at once. A source that fails leaves the old facts
//! with their age.

mod bits;
mod status;
mod tables;

pub use status::{Progress, Status};

use crate::{
    clock::{Clock, Moment},
    inventory::{Lane, Observation, Source, Stage},
    job::Running,
    settings::Nodes,
    snapshot::{Block, Ix, NodeIx, Snapshot},
    target::Kind,
};
use futures::{StreamExt, stream::BoxStream};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tables::Tables;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::{self, Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

/// Commands are rare and answered at once: a full queue means the task is stuck.
const COMMANDS: usize = 16;

/// How often changed tables are published at most, so that a sweep of a million targets
/// makes a thousand snapshots and not a million.
const PUBLISH: Duration = Duration::from_secs(1);

/// Observations handed over at once; a large one goes without waiting for others, because a
/// few hundred pages of the shard map are more than all tables.
const BATCH: usize = 256;

/// Batches that wait to be applied; a reader that is further ahead waits itself.
const BATCHES: usize = 4;

/// How long an observation may wait for others. Waking a thread for each would cost as much
/// as reading it.
const LINGER: Duration = Duration::from_millis(100);

/// How long a sweep waits for nodes that have not answered once others have: as soon as that
/// begins to look as if they hang, the rest goes on. A slow one is read after the others.
const PATIENCE: Duration = Duration::from_secs(3);

/// The shortest pause between two sweeps, where one takes longer than the interval.
const REST: Duration = Duration::from_secs(1);

/// The pause after a sweep that could read nothing, where the interval is longer: CouchDB
/// may be starting.
const RETRY: Duration = Duration::from_secs(15);

/// How long the first sweep waits for what an earlier process measured.
const RECALL: Duration = Duration::from_secs(10);

/// What the scanner goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From the start of one sweep to the start of the next.
    pub interval: Duration,
    /// From one look at running jobs to the next.
    pub poll: Duration,
    /// Which nodes this process serves.
    pub nodes: Nodes,
    /// Whether this process reads the cluster's views and cleanups.
    pub views: bool,
    /// Whether it reads the parts of views that it can see in files.
    pub parts: bool,
    /// How many targets of each kind are exported by name.
    pub top: usize,
}

/// An order from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sweep now.
    Sweep,
    /// Read these targets again, beside the sweep: something may have changed them.
    Reread(Vec<Ix>),
    /// CouchDB was asked to clean up after this target: it has no evidence any more.
    Cleaned(Ix),
}

/// The way to talk to the scanner.
#[derive(Clone, Debug)]
pub struct Handle {
    /// The tables as published last.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// What the scanner says of itself.
    pub status: watch::Receiver<Arc<Status>>,
    /// What the nodes' task lists showed in the last poll.
    pub running: watch::Receiver<Arc<Running>>,
    commands: mpsc::Sender<Command>,
}

impl Handle {
    /// Sends a command, or gives it back when the queue is full or the task is gone.
    #[must_use]
    pub fn send(&self, command: Command) -> Option<Command> {
        self.commands.try_send(command).err().map(mpsc::error::TrySendError::into_inner)
    }
}

/// Owns the tables.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    tables: Tables,
    settings: watch::Receiver<Arc<Settings>>,
    source: watch::Receiver<Arc<dyn Source>>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    status: watch::Sender<Arc<Status>>,
    running: watch::Sender<Arc<Running>>,
    commands: mpsc::Receiver<Command>,
}

/// A stage that is being read.
struct Reading {
    stage: Stage,
    batches: mpsc::Receiver<Vec<Observation>>,
    /// Reads; ends when this goes.
    _reader: JoinSet<()>,
}

/// What runs: one sweep at most, and what is read beside it.
#[derive(Default)]
struct Readings {
    sweep: Option<Reading>,
    /// What the sweep's first stage still waits for while others go on.
    late: Option<Reading>,
    poll: Option<Reading>,
    shards: Option<Reading>,
    views: Option<Reading>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Sweep,
    Late,
    Poll,
    Shards,
    Views,
}

enum Event {
    Seen(Slot, Vec<Observation>),
    Sweep,
    GoOn,
    Poll,
    Publish,
    Settings,
    Command(Command),
    Stop,
}

impl Task {
    /// Makes the task and its handle.
    #[must_use]
    pub fn new(
        clock: Clock,
        source: watch::Receiver<Arc<dyn Source>>,
        settings: watch::Receiver<Arc<Settings>>,
    ) -> (Self, Handle) {
        let tables = Tables::new(&settings.borrow());
        let (snapshots, snapshots_rx) = watch::channel(Arc::default());
        let (status, status_rx) = watch::channel(Arc::default());
        let (running, running_rx) = watch::channel(Arc::default());
        let (commands_tx, commands) = mpsc::channel(COMMANDS);
        let handle = Handle {
            snapshots: snapshots_rx,
            status: status_rx,
            running: running_rx,
            commands: commands_tx,
        };
        (Self { clock, tables, settings, source, snapshots, status, running, commands }, handle)
    }

    /// Waits a moment for what an earlier process measured, shows it with its age, then sweeps
    /// and polls. A pass over the nodes that answer has still to come.
    pub async fn run_after(
        mut self,
        measured: impl Future<Output = Vec<Block>>,
        stop: CancellationToken,
    ) {
        let blocks = stop.run_until_cancelled(time::timeout(RECALL, measured)).await;
        if let Some(Ok(blocks)) = blocks
            && !blocks.is_empty()
        {
            let settings = Arc::clone(&self.settings.borrow());
            let damaged = self.tables.restore(blocks, &settings);
            if damaged > 0 {
                tracing::warn!(
                    damaged,
                    "part of what was measured before the start cannot be read: it is unknown until it is measured again"
                );
            }
            self.publish();
        }
        self.run(stop).await;
    }

    /// Sweeps and polls until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut readings = Readings::default();
        let mut publish = time::interval(PUBLISH);
        publish.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_sweep = Instant::now();
        let mut go_on = Instant::now();
        let mut next_poll = Instant::now();
        let mut listed = false;
        let mut dirty = false;
        loop {
            let waits = readings.asks_nodes() && self.tables.may_go_on();
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => Event::Stop,
                Some(command) = self.commands.recv() => Event::Command(command),
                _ = publish.tick(), if dirty => Event::Publish,
                () = time::sleep_until(next_sweep), if !readings.sweeps() => Event::Sweep,
                () = time::sleep_until(go_on), if waits => Event::GoOn,
                () = time::sleep_until(next_poll), if readings.poll.is_none() => Event::Poll,
                news = self.settings.changed() => {
                    if news.is_ok() { Event::Settings } else { Event::Stop }
                }
                seen = next(&mut readings.poll) => Event::Seen(Slot::Poll, seen),
                seen = next(&mut readings.shards) => Event::Seen(Slot::Shards, seen),
                seen = next(&mut readings.views) => Event::Seen(Slot::Views, seen),
                seen = next(&mut readings.late) => Event::Seen(Slot::Late, seen),
                seen = next(&mut readings.sweep) => Event::Seen(Slot::Sweep, seen),
            };
            let settings = Arc::clone(&self.settings.borrow_and_update());
            let now = self.clock.now();
            match event {
                Event::Stop => return,
                Event::Publish => {
                    self.publish();
                    dirty = false;
                }
                Event::Settings => {}
                Event::Command(Command::Sweep) => next_sweep = Instant::now(),
                Event::Command(Command::Reread(targets)) => {
                    self.tables.reread.extend(targets);
                    self.reread(&mut readings);
                }
                Event::Command(Command::Cleaned(ix)) => {
                    self.tables.cleaned(ix);
                    dirty = true;
                }
                Event::Sweep => {
                    next_sweep = Instant::now() + settings.interval;
                    go_on = Instant::now() + PATIENCE;
                    if self.source.has_changed().unwrap_or_default() {
                        self.source.mark_unchanged();
                        self.tables.views.ask_again();
                    }
                    let stage = self.tables.begin(now);
                    readings.sweep = Some(self.reading(stage));
                    dirty = true;
                }
                Event::GoOn => {
                    readings.late = readings.sweep.take();
                    let stage = self.tables.go_on();
                    readings.sweep = Some(self.reading(stage));
                }
                Event::Poll => {
                    next_poll = Instant::now() + settings.poll;
                    readings.poll = self.polled(&settings, now).map(|stage| self.reading(stage));
                    if readings.poll.is_none() {
                        self.running.send_replace(Arc::new(self.tables.end_poll()));
                    }
                }
                Event::Seen(slot, seen) => {
                    dirty = true;
                    if self.apply(slot, seen, &mut readings, &settings) {
                        match slot {
                            Slot::Poll => {
                                self.running.send_replace(Arc::new(self.tables.end_poll()));
                            }
                            Slot::Sweep | Slot::Late => {
                                next_sweep = next_sweep.max(Instant::now() + REST);
                                if self.tables.status.problem.is_some() {
                                    next_sweep = next_sweep.min(Instant::now() + RETRY);
                                }
                            }
                            Slot::Shards | Slot::Views => {}
                        }
                        // Whoever waits to learn how a job ended waits for what was read again.
                        if slot != Slot::Poll {
                            self.publish();
                            dirty = false;
                        }
                    }
                    self.reread(&mut readings);
                    // A fresh process starts nothing before it knows what runs, and on what.
                    if !listed && readings.listed() {
                        listed = true;
                        next_poll = Instant::now();
                    }
                }
            }
        }
    }

    /// Applies what was seen; `true` when that was the last of its reading.
    fn apply(
        &mut self,
        slot: Slot,
        seen: Vec<Observation>,
        readings: &mut Readings,
        settings: &Settings,
    ) -> bool {
        let now = self.clock.now();
        for seen in seen {
            let Some(reading) = readings.slot(slot) else { return false };
            let ended = seen == Observation::StageEnded;
            let next = match slot {
                Slot::Late if ended => {
                    self.tables.all_heard();
                    let rests = readings.sweep.is_none();
                    rests.then(|| self.tables.round_ended(settings, now)).flatten()
                }
                Slot::Poll | Slot::Shards | Slot::Views if ended => None,
                Slot::Sweep | Slot::Late | Slot::Poll | Slot::Shards | Slot::Views => {
                    self.tables.apply(seen, &reading.stage, settings, now)
                }
            };
            if ended {
                // What a stage left behind may hold a whole table: the next begins without.
                *readings.slot_mut(slot) = None;
                // Only a sweep has a next stage.
                if let Some(stage) = next {
                    readings.sweep = Some(self.reading(stage));
                }
                return readings.sweep.is_none() || !matches!(slot, Slot::Sweep | Slot::Late);
            }
        }
        false
    }

    fn reading(&self, stage: Stage) -> Reading {
        let (sender, batches) = mpsc::channel(BATCHES);
        let mut reader = JoinSet::new();
        reader.spawn(batch(self.source.borrow().read(stage.clone()), sender));
        Reading { stage, batches, _reader: reader }
    }

    fn publish(&mut self) {
        let snapshot = self.tables.publish(self.clock.now());
        let status = &mut self.tables.status;
        if status.ready {
            status.ready_from.get_or_insert_with(|| snapshot.version());
        }
        self.snapshots.send_replace(snapshot);
        self.status.send_replace(Arc::new(self.tables.status.clone()));
    }

    /// The nodes to ask what they run.
    fn polled(&mut self, settings: &Settings, now: Moment) -> Option<Stage> {
        let nodes: Vec<String> = self
            .tables
            .draft
            .now()
            .nodes()
            .iter()
            .filter(|node| node.member && node.up == Some(true) && settings.nodes.has(&node.name))
            .map(|node| node.name.to_string())
            .collect();
        self.tables.begin_poll(now, &nodes);
        (!nodes.is_empty()).then_some(Stage::Poll { nodes })
    }

    /// Reads what jobs have voided, one batch at a time.
    fn reread(&mut self, readings: &mut Readings) {
        if self.tables.reread.is_empty() || readings.shards.is_some() || readings.views.is_some() {
            return;
        }
        let snapshot = Arc::new(self.tables.draft.now().without_facts());
        let mut lanes: BTreeMap<NodeIx, Vec<Ix>> = BTreeMap::new();
        let mut views_of = BTreeSet::new();
        for ix in std::mem::take(&mut self.tables.reread) {
            let Some(target) = snapshot.target(ix) else { continue };
            match target.kind() {
                Kind::Db => lanes.entry(target.node_ix()).or_default().push(ix),
                Kind::View => {
                    views_of.insert(target.db());
                }
                Kind::Cleanup => {}
            }
        }
        if !lanes.is_empty() {
            let tables = self.tables.draft.now();
            let lanes = lanes.into_iter().filter_map(|(node, targets)| {
                Some(Lane::of(&tables.node(node)?.name, targets, tables))
            });
            let lanes = lanes.collect();
            let stage = Stage::Shards { snapshot: Arc::clone(&snapshot), lanes };
            readings.shards = Some(self.reading(stage));
        }
        if !views_of.is_empty() {
            let dbs = self.tables.clustered_dbs(|db| views_of.contains(&db));
            readings.views = Some(self.reading(Stage::Views { snapshot, dbs }));
        }
    }
}

impl Readings {
    /// Whether a sweep runs.
    const fn sweeps(&self) -> bool {
        self.sweep.is_some() || self.late.is_some()
    }

    /// Whether it asks the nodes, and waits for all of them.
    fn asks_nodes(&self) -> bool {
        self.sweep.as_ref().is_some_and(|sweep| matches!(sweep.stage, Stage::Nodes))
    }

    /// Whether the sweep knows which files there are.
    fn listed(&self) -> bool {
        use Stage::{Disk, Shards, Strays, Views};
        let stage = self.sweep.as_ref().map(|reading| &reading.stage);
        matches!(stage, Some(Strays { .. } | Disk | Shards { .. } | Views { .. }))
    }

    const fn slot(&self, slot: Slot) -> Option<&Reading> {
        match slot {
            Slot::Sweep => self.sweep.as_ref(),
            Slot::Late => self.late.as_ref(),
            Slot::Poll => self.poll.as_ref(),
            Slot::Shards => self.shards.as_ref(),
            Slot::Views => self.views.as_ref(),
        }
    }

    const fn slot_mut(&mut self, slot: Slot) -> &mut Option<Reading> {
        match slot {
            Slot::Sweep => &mut self.sweep,
            Slot::Late => &mut self.late,
            Slot::Poll => &mut self.poll,
            Slot::Shards => &mut self.shards,
            Slot::Views => &mut self.views,
        }
    }
}

/// Hands over in batches what a source reads, as long as anyone takes it.
async fn batch(
    observations: BoxStream<'static, Observation>,
    batches: mpsc::Sender<Vec<Observation>>,
) {
    let mut observations = observations.fuse();
    while let Some(first) = observations.next().await {
        let mut batch = vec![first];
        let linger = time::sleep(LINGER);
        tokio::pin!(linger);
        while batch.len() < BATCH && !batch.last().is_some_and(Observation::is_large) {
            // Both arms are cancel-safe.
            tokio::select! {
                biased;
                next = observations.next() => match next {
                    Some(next) => batch.push(next),
                    None => break,
                },
                () = &mut linger => break,
            }
        }
        if batches.send(batch).await.is_err() {
            return;
        }
    }
}

/// The next observations of a reading; waits for ever where nothing is read. A source that
/// ends without saying so has ended its stage.
async fn next(reading: &mut Option<Reading>) -> Vec<Observation> {
    match reading {
        Some(reading) => {
            reading.batches.recv().await.unwrap_or_else(|| vec![Observation::StageEnded])
        }
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
