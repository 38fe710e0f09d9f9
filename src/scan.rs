//! The scanner: one task that owns the facts about the cluster and publishes them as snapshots.
//!
//! It never decides what a fact means: the planner, the metrics and the API read the snapshots and the
//! [`ScanStatus`]. If a source fails, its old facts stay, with their age.
//!
//! A sweep reads everything, in stages. In addition, the task polls the running jobs of each node, and
//! reads single targets that appear in feeds or that a finished job changed.
//!
//! ```text
//!  Source ──batches──> readings ──Event──> Scanner::handle ──Effect──> Task::run
//!                         ^                (pure: tables, sweep,       (publishes, starts and
//!                         │                 timers; no I/O, no clock)   stops readings)
//!                         └──────────────────────────────────────────────────┘
//! ```
//!
//! The path of one shard's facts: `HttpSource::shard` converts CouchDB's response, `send_batches` sends
//! it, [`ScanTask::run`] receives it, `Scanner::handle` and `Scanner::observe` pass it to
//! `TargetTables::record`, `Draft::set_facts` writes the row and the totals, and `Draft::publish` shares
//! both with the metrics. Two rules apply on the way: `convert::db_facts` interprets the response, and
//! `facts::merged` decides between the sources.

mod db_events;
mod disk;
mod feed_update;
mod followed;
mod header_coverage;
mod listing;
mod readings;
mod reread_queue;
mod running_jobs;
mod scanner;
mod status;
mod sweep;
mod targets;
mod unseen_compactions;
mod views;
pub mod xrays;

pub use db_events::{DbEvent, DbEventBatch, EarlierProcess};
pub use feed_update::{FeedUpdate, NamedDb, Stale};
pub use status::{PeerStatus, Progress, ScanStatus, SweptShards};

use crate::{
    jobs::Running,
    model::{correction::Corrections, facts::Inside, settings::ServedNodes},
    sources::inventory::{Reshard, Source},
    table::{Movements, Snapshot, TargetIx},
    tasks::Now,
};
use db_events::EventBus;
use readings::Readings;
use scanner::{Effect, Event, Scanner};
use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, watch},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Commands are rare and handled at once: a full queue means the task is stuck.
const MAX_WAITING_COMMANDS: usize = 16;

/// How long the first sweep waits for the measurements of an earlier process.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The settings of the scanner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanSettings {
    /// Time between the starts of two sweeps.
    pub interval: Duration,
    /// The time in which everything is read once, if feeds report all changes.
    pub interval_followed: Duration,
    /// The minimum pause between two reads of a target with repeated feed events.
    pub reread_after: Duration,
    /// Time between two polls of running jobs.
    pub poll: Duration,
    /// The nodes that this process serves.
    pub nodes: ServedNodes,
    /// Whether this process reads the cluster's views and cleanups.
    pub views: bool,
    /// Whether it reads the parts of views found in files.
    pub parts: bool,
    /// The number of databases with their own metric series.
    pub top: usize,
}

#[cfg(test)]
impl ScanSettings {
    /// The settings of a process that serves the whole cluster.
    fn example() -> Self {
        Self {
            interval: Duration::from_secs(300),
            interval_followed: Duration::from_secs(21_600),
            reread_after: Duration::from_secs(1),
            poll: Duration::from_secs(5),
            nodes: ServedNodes::All,
            views: true,
            parts: true,
            top: 10,
        }
    }
}

/// A command from another task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanCommand {
    /// Sweep now.
    Sweep,
    /// Read these targets again, independently of the sweep, because they may have changed.
    Reread(Vec<TargetIx>),
    /// The running splits, which no sweep may have found yet.
    Splitting(Arc<Reshard>),
    /// Events of the feeds.
    FeedUpdate(FeedUpdate),
    /// CouchDB was asked to clean up the files of this target, so its evidence is removed.
    CleanupRequested(TargetIx),
    /// An X-ray of this target's file.
    Xray(TargetIx, Inside),
}

/// The handle of the scanner.
#[derive(Clone, Debug)]
pub struct ScanHandle {
    /// The latest snapshot.
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    /// The scanner's state.
    pub status: watch::Receiver<Arc<ScanStatus>>,
    /// The running jobs found by the last poll.
    pub running: watch::Receiver<Arc<Running>>,
    commands: mpsc::Sender<ScanCommand>,
    events: EventBus,
}

impl ScanHandle {
    /// Sends a command; returns it if the queue is full or the task has ended.
    pub fn send(&self, command: ScanCommand) -> Option<ScanCommand> {
        self.commands.try_send(command).err().map(mpsc::error::TrySendError::into_inner)
    }
}

/// Receives events, passes them to the [`Scanner`], and carries out the effects.
#[derive(Debug)]
pub struct ScanTask {
    clock: Clock,
    scanner: Scanner,
    readings: Readings,
    settings: watch::Receiver<Arc<ScanSettings>>,
    source: watch::Receiver<Arc<dyn Source>>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    status: watch::Sender<Arc<ScanStatus>>,
    running: watch::Sender<Arc<Running>>,
    /// Corrections of predictions, if a task of this process learns them.
    corrections: Option<watch::Receiver<Arc<Corrections>>>,
    /// Where to send what changed on the disks, if a task of this process records it. Changes are kept
    /// until the channel has room.
    movements: Option<mpsc::Sender<Movements>>,
    commands: mpsc::Receiver<ScanCommand>,
    events: EventBus,
}

impl ScanTask {
    /// Creates the task and its handle.
    pub fn new(
        clock: Clock,
        source: watch::Receiver<Arc<dyn Source>>,
        settings: watch::Receiver<Arc<ScanSettings>>,
    ) -> (Self, ScanHandle) {
        let now = Now { wall: clock.now(), at: Instant::now() };
        let scanner = Scanner::new(Arc::clone(&settings.borrow()), now);
        let (snapshots, snapshots_rx) = watch::channel(Arc::default());
        let (status, status_rx) = watch::channel(Arc::default());
        let (running, running_rx) = watch::channel(Arc::default());
        let (commands_tx, commands) = mpsc::channel(MAX_WAITING_COMMANDS);
        let events = EventBus::default();
        let handle = ScanHandle {
            snapshots: snapshots_rx,
            status: status_rx,
            running: running_rx,
            commands: commands_tx,
            events: events.clone(),
        };
        let readings = Readings::default();
        let task = Self {
            clock,
            scanner,
            readings,
            settings,
            source,
            snapshots,
            status,
            running,
            corrections: None,
            movements: None,
            commands,
            events,
        };
        (task, handle)
    }

    /// Corrects predictions with the values of this receiver, from its first change on.
    #[must_use]
    pub fn correcting(mut self, corrections: watch::Receiver<Arc<Corrections>>) -> Self {
        self.corrections = Some(corrections);
        self
    }

    /// Sends what changed on the disks with each snapshot.
    #[must_use]
    pub fn reporting(mut self, movements: mpsc::Sender<Movements>) -> Self {
        self.movements = Some(movements);
        self
    }

    /// Waits a moment for the measurements of an earlier process, publishes them with their age, then
    /// sweeps and polls. The process is not ready until one pass over the responding nodes has ended.
    pub async fn run_after(
        mut self,
        before: impl Future<Output = EarlierProcess>,
        stop: CancellationToken,
    ) {
        let before = stop.run_until_cancelled(time::timeout(RESTORE_TIMEOUT, before)).await;
        if let Some(Ok(before)) = before
            && !before.blocks.is_empty()
        {
            let settings = Arc::clone(&self.settings.borrow_and_update());
            for event in [Event::Settings(settings), Event::Restored(before)] {
                let effects = self.scanner.handle(event, self.now());
                self.perform(effects);
            }
        }
        self.run(stop).await;
    }

    /// Sweeps and polls until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let effects = self.scanner.handle(Event::Started, self.now());
        self.perform(effects);
        loop {
            let wake = self.scanner.next_wake();
            let wake_at = wake.unwrap_or_else(Instant::now);
            // Every branch is cancel-safe, and no branch's body awaits.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => return,
                changed = self.settings.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    Event::Settings(Arc::clone(&self.settings.borrow_and_update()))
                }
                Ok(()) = self.source.changed() => Event::SourceChanged,
                Some(corrections) = changed(&mut self.corrections) => Event::Corrections(corrections),
                Some(command) = self.commands.recv() => Event::Command(command),
                () = time::sleep_until(wake_at), if wake.is_some() => Event::Wake,
                (slot, batch) = self.readings.next() => Event::Observed(slot, batch),
            };
            let effects = self.scanner.handle(event, self.now());
            self.perform(effects);
        }
    }

    fn now(&self) -> Now {
        Now { wall: self.clock.now(), at: Instant::now() }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Start(slot, stage) => {
                    self.readings.start(slot, &**self.source.borrow(), stage);
                }
                Effect::Stop(slot) => self.readings.stop(slot),
                Effect::Rename { from, to } => self.readings.rename(from, to),
                Effect::Publish(snapshot, status) => {
                    self.snapshots.send_replace(snapshot);
                    self.status.send_replace(status);
                    if let Some(Ok(room)) = self.movements.as_ref().map(mpsc::Sender::try_reserve) {
                        room.send(self.scanner.take_movements());
                    }
                }
                Effect::PublishRunning(running) => {
                    self.running.send_replace(running);
                }
                Effect::Emit(events) => self.events.send(events),
                Effect::WarnDamaged(damaged) => tracing::warn!(
                    damaged,
                    "part of the measurements stored before the restart cannot be read: those values are unknown until measured again"
                ),
            }
        }
    }
}

/// The next value of a watch; `None` if there is no watch or its sender is gone.
async fn changed<T: Clone>(watched: &mut Option<watch::Receiver<T>>) -> Option<T> {
    let watch = watched.as_mut()?;
    if watch.changed().await.is_err() {
        *watched = None;
        return None;
    }
    Some(watch.borrow_and_update().clone())
}
