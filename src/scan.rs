//! The scanner: one task that owns what is known of the cluster and publishes it as snapshots.
//!
//! It never decides what a fact means; the planner reads the snapshots, metrics and the API read
//! the [`Status`] as well. A source that fails leaves the old facts with their age.
//!
//! A sweep reads everything, stage by stage. Besides, the task polls what the nodes run, and reads
//! by themselves what feeds named and what a finished job changed.
//!
//! ```text
//!  Source ──batches──> readings ──Event──> Scanner::handle ──Effect──> Task::run
//!                         ^                (pure: tables, sweep,       (publishes, starts and
//!                         │                 timers; no I/O, no clock)   stops readings)
//!                         └──────────────────────────────────────────────────┘
//! ```
//!
//! The facts of one shard take this way: `HttpSource::shard` makes them of CouchDB's answer,
//! `send_batches` sends them on, [`Task::run`] receives them, `Scanner::handle` and
//! `Scanner::observe` hand them to `Targets::record`, `Draft::set_facts` writes the row and the
//! totals, and `Draft::publish` shares both with the metrics. Two rules are asked on the way:
//! `convert::db_facts` says what an answer means, `facts::merged` which source's word counts.

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
mod views;

pub use db_events::{DbEvent, DbEventBatch, EarlierProcess};
pub use feed_update::{FeedUpdate, NamedDb, Stale};
pub use status::{Progress, Status, SweptShards};

use crate::{
    jobs::Running,
    model::settings::Nodes,
    sources::inventory::{Reshard, Source},
    table::{Snapshot, TargetIx},
};
use db_events::EventBus;
use readings::Readings;
use scanner::{Effect, Event, Now, Scanner};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Commands are rare and handled at once: a full queue means the task is stuck.
const MAX_WAITING_COMMANDS: usize = 16;

/// How long the first sweep waits for what an earlier process measured.
const RESTORE_TIMEOUT: Duration = Duration::from_secs(10);

/// What the scanner goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From the start of one sweep to the start of the next.
    pub interval: Duration,
    /// The time in which everything is read once, where feeds name what changes.
    pub interval_followed: Duration,
    /// The shortest pause between two readings of what feeds name again and again.
    pub reread_after: Duration,
    /// From one poll of running jobs to the next.
    pub poll: Duration,
    /// Which nodes this process serves.
    pub nodes: Nodes,
    /// Whether this process reads the cluster's views and cleanups.
    pub views: bool,
    /// Whether it reads the parts of views that it finds in files.
    pub parts: bool,
    /// How many databases are exported by name, each whole.
    pub top: usize,
}

#[cfg(test)]
impl Settings {
    /// Of a process that serves the whole cluster.
    fn example() -> Self {
        Self {
            interval: Duration::from_secs(300),
            interval_followed: Duration::from_secs(21_600),
            reread_after: Duration::from_secs(1),
            poll: Duration::from_secs(5),
            nodes: Nodes::All,
            views: true,
            parts: true,
            top: 10,
        }
    }
}

/// An order from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sweep now.
    Sweep,
    /// Read these targets again, beside the sweep: something may have changed them.
    Reread(Vec<TargetIx>),
    /// These shards are being split now, which no sweep may have found yet.
    Splitting(Arc<Reshard>),
    /// What feeds named.
    FeedUpdate(FeedUpdate),
    /// CouchDB was asked to clean up after this target: it has no evidence any more.
    CleanupRequested(TargetIx),
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
    events: EventBus,
}

impl Handle {
    /// Sends a command, or gives it back when the queue is full or the task is gone.
    #[must_use]
    pub fn send(&self, command: Command) -> Option<Command> {
        self.commands.try_send(command).err().map(mpsc::error::TrySendError::into_inner)
    }
}

/// Receives events, has the [`Scanner`] handle them, and does what it answers.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    scanner: Scanner,
    readings: Readings,
    settings: watch::Receiver<Arc<Settings>>,
    source: watch::Receiver<Arc<dyn Source>>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    status: watch::Sender<Arc<Status>>,
    running: watch::Sender<Arc<Running>>,
    commands: mpsc::Receiver<Command>,
    events: EventBus,
}

impl Task {
    /// Makes the task and its handle.
    #[must_use]
    pub fn new(
        clock: Clock,
        source: watch::Receiver<Arc<dyn Source>>,
        settings: watch::Receiver<Arc<Settings>>,
    ) -> (Self, Handle) {
        let now = Now { wall: clock.now(), at: Instant::now() };
        let scanner = Scanner::new(Arc::clone(&settings.borrow()), now);
        let (snapshots, snapshots_rx) = watch::channel(Arc::default());
        let (status, status_rx) = watch::channel(Arc::default());
        let (running, running_rx) = watch::channel(Arc::default());
        let (commands_tx, commands) = mpsc::channel(MAX_WAITING_COMMANDS);
        let events = EventBus::default();
        let handle = Handle {
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
            commands,
            events,
        };
        (task, handle)
    }

    /// Waits a moment for what an earlier process measured, publishes it with its age, then sweeps
    /// and polls. The process is not ready before one pass over the nodes that answer.
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
            // Every arm is cancel-safe, and no arm's body awaits.
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
                }
                Effect::PublishRunning(running) => {
                    self.running.send_replace(running);
                }
                Effect::Emit(events) => self.events.send(events),
                Effect::WarnDamaged(damaged) => tracing::warn!(
                    damaged,
                    "part of what was measured before the start cannot be read: it is unknown until it is measured again"
                ),
            }
        }
    }
}
