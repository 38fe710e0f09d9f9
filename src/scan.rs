//! The scanner: one task that keeps the tables of all targets and publishes snapshots.
//!
//! Owns what is known of the cluster. Asks through its [`Source`] and never decides what a
//! fact means; the planner reads the snapshots, metrics and API the [`Status`] as well.
//!
//! A sweep reads everything in stages. Beside it, what the nodes run is polled, and a target
//! on which a job ended is read again at once. A source that fails leaves the old facts
//! with their age.

mod course;
mod news;
mod noticed;
mod readings;
mod status;
mod tables;
mod touched;

pub use news::{Named, News, Stale};
pub use noticed::{Became, Before, Noticed};
pub use status::{Progress, Shards, Status};

use crate::{
    jobs::Running,
    model::settings::Nodes,
    sources::inventory::{Observation, Reshard, Source, Stage},
    table::{Ix, Snapshot},
};
use readings::{Reading, Readings, Slot};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tables::Tables;
use tokio::{
    sync::{mpsc, watch},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Commands are rare and answered at once: a full queue means the task is stuck.
const COMMANDS: usize = 16;

/// How often changed tables are published at most, so that a sweep of a million targets
/// makes a thousand snapshots and not a million.
const PUBLISH: Duration = Duration::from_secs(1);

/// How soon snapshots may follow each other at most, and for how long each target holds the
/// next one back.
const SOONEST: Duration = Duration::from_millis(100);
const PER_TARGET: Duration = Duration::from_nanos(2_500);

/// From one look at running jobs to the next while the cluster is quiet. CouchDB's own daemon
/// starts a job only after a write, and a write is named.
const QUIET_POLL: Duration = Duration::from_secs(30);

/// How long a sweep waits for nodes that have not answered once others have: as soon as that
/// begins to look as if they hang, the rest goes on. A slow one is read after the others. What
/// needs the whole cluster is waited for as long as it takes, while no sweep is due.
const PATIENCE: Duration = Duration::from_secs(3);

/// Events of databases that are told together.
const TOGETHER: usize = 4_096;

/// The shortest pause between two sweeps, where one takes longer than the interval.
const REST: Duration = Duration::from_secs(1);

/// The pause after a sweep that could read nothing, where the interval is longer: CouchDB
/// may be starting. And from the start of a sweep to the next for a node that came back.
const RETRY: Duration = Duration::from_secs(15);

/// How long the first sweep waits for what an earlier process measured.
const RECALL: Duration = Duration::from_secs(10);

/// What the scanner goes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// From the start of one sweep to the start of the next.
    pub interval: Duration,
    /// The time in which everything is read once, where feeds tell what changes.
    pub interval_followed: Duration,
    /// The shortest pause between two readings of what feeds name again and again.
    pub reread_after: Duration,
    /// From one look at running jobs to the next.
    pub poll: Duration,
    /// Which nodes this process serves.
    pub nodes: Nodes,
    /// Whether this process reads the cluster's views and cleanups.
    pub views: bool,
    /// Whether it reads the parts of views that it can see in files.
    pub parts: bool,
    /// How many databases are exported by name, each whole.
    pub top: usize,
}

/// An order from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Sweep now.
    Sweep,
    /// Read these targets again, beside the sweep: something may have changed them.
    Reread(Vec<Ix>),
    /// This is being split at the moment, which a sweep may not have seen yet.
    Splitting(Arc<Reshard>),
    /// What feeds told.
    Heard(News),
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
    line: noticed::Line,
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
    line: noticed::Line,
}

/// How much of a reading was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// More of it comes.
    Part,
    /// All of it.
    Whole,
    /// All of it, and somebody waits for that.
    Awaited,
}

enum Event {
    Seen(Slot, Vec<Observation>),
    Sweep,
    GoOn,
    Poll,
    Touched,
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
        let line = noticed::Line::default();
        let handle = Handle {
            snapshots: snapshots_rx,
            status: status_rx,
            running: running_rx,
            commands: commands_tx,
            line: line.clone(),
        };
        let task =
            Self { clock, tables, settings, source, snapshots, status, running, commands, line };
        (task, handle)
    }

    /// Waits a moment for what an earlier process measured, shows it with its age, then sweeps
    /// and polls. A pass over the nodes that answer has still to come.
    pub async fn run_after(
        mut self,
        before: impl Future<Output = Before>,
        stop: CancellationToken,
    ) {
        let before = stop.run_until_cancelled(time::timeout(RECALL, before)).await;
        if let Some(Ok(before)) = before
            && !before.blocks.is_empty()
        {
            let settings = Arc::clone(&self.settings.borrow());
            let damaged = self.tables.restore(before, &settings);
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
        let mut published = Instant::now();
        let mut gap = PUBLISH;
        let mut next_sweep = Instant::now();
        let mut began = Instant::now();
        let mut go_on = Instant::now();
        let mut next_poll = Instant::now();
        let mut listed = false;
        let mut dirty = false;
        loop {
            let waits = readings.asks_nodes() && self.tables.may_go_on();
            let touched = self.touched_at(&readings);
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => Event::Stop,
                Some(command) = self.commands.recv() => Event::Command(command),
                () = time::sleep_until(published + gap), if dirty => Event::Publish,
                () = time::sleep_until(touched.unwrap_or(published)), if touched.is_some() => {
                    Event::Touched
                }
                () = time::sleep_until(next_sweep), if self.may_sweep(&readings) => Event::Sweep,
                () = time::sleep_until(go_on), if waits => Event::GoOn,
                () = time::sleep_until(next_poll), if readings.poll.is_none() => Event::Poll,
                news = self.settings.changed() => {
                    if news.is_ok() { Event::Settings } else { Event::Stop }
                }
                (slot, seen) = readings.next() => Event::Seen(slot, seen),
            };
            let settings = Arc::clone(&self.settings.borrow_and_update());
            let now = self.clock.now();
            match event {
                Event::Stop => return,
                Event::Publish => {
                    self.publish();
                    (dirty, published, gap) = (false, Instant::now(), PUBLISH);
                }
                Event::Settings => {}
                Event::Touched => self.read_touched(&mut readings),
                Event::Command(Command::Sweep) => {
                    self.tables.followed.whole();
                    next_sweep = Instant::now();
                }
                Event::Command(Command::Reread(targets)) => {
                    targets.into_iter().for_each(|ix| self.tables.void(ix));
                    self.reread(&mut readings);
                }
                Event::Command(Command::Splitting(it)) => dirty |= self.tables.splitting(&it),
                Event::Command(Command::Heard(news)) => {
                    if self.tables.draft.now().is_quiet() && !news.named.is_empty() {
                        next_poll = next_poll.min(Instant::now() + settings.poll);
                    }
                    dirty |= !news.named.is_empty();
                    if self.tables.heard(news, &settings) {
                        (dirty, gap) = (true, self.soon());
                    }
                    dirty |= self.tables.look_whether_quiet();
                }
                Event::Command(Command::Cleaned(ix)) => {
                    self.tables.cleaned(ix);
                    dirty = true;
                }
                Event::Sweep => {
                    next_sweep = Instant::now() + settings.interval;
                    (began, go_on) = (Instant::now(), Instant::now() + PATIENCE);
                    self.begin_sweep(&mut readings, now);
                    dirty = true;
                }
                Event::GoOn => self.go_on(&mut readings, &settings),
                Event::Poll => {
                    dirty |= self.tables.look_whether_quiet();
                    let quiet = self.tables.draft.now().is_quiet();
                    let pause = if quiet { settings.poll.max(QUIET_POLL) } else { settings.poll };
                    next_poll = Instant::now() + pause;
                    self.ask_for_the_away(&mut readings, &settings);
                    readings.poll = self.polled(&settings, now).map(|stage| self.reading(stage));
                    if readings.poll.is_none() {
                        self.running.send_replace(Arc::new(self.tables.end_poll()));
                    }
                }
                Event::Seen(slot, seen) => {
                    dirty |= slot != Slot::Away;
                    let swept = self.tables.sweeps();
                    let seen = self.apply(slot, seen, &mut readings, &settings);
                    let swept = swept && !self.tables.sweeps();
                    self.notice(seen != Seen::Part, swept);
                    if seen != Seen::Part && slot == Slot::Poll {
                        self.running.send_replace(Arc::new(self.tables.end_poll()));
                    }
                    if swept || (seen != Seen::Part && matches!(slot, Slot::Sweep | Slot::Late)) {
                        next_sweep = next_sweep.max(Instant::now() + REST);
                    }
                    if std::mem::take(&mut readings.came_back) {
                        next_sweep = next_sweep.min(Instant::now().max(began + RETRY));
                    }
                    if swept && self.tables.status.problem.is_some() {
                        next_sweep = next_sweep.min(Instant::now() + RETRY);
                    }
                    match seen {
                        Seen::Part => {}
                        Seen::Whole => gap = self.soon(),
                        Seen::Awaited => {
                            self.publish();
                            (dirty, published, gap) = (false, Instant::now(), PUBLISH);
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

    /// Tells what was noticed of databases, where a reading ended or much was.
    fn notice(&mut self, ended: bool, swept: bool) {
        let swept = self.tables.swept_since().filter(|_| swept);
        let waiting = self.tables.notices.waiting();
        if swept.is_none() && (waiting == 0 || !ended && waiting < TOGETHER) {
            return;
        }
        self.line.tell(self.tables.notices.take(&self.tables.draft, swept));
        self.tables.status.noticed = self.tables.notices.number();
    }

    fn reading(&self, stage: Stage) -> Reading {
        Reading::of(&**self.source.borrow(), stage)
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

    /// When something is due that was named, as far as it can be read beside what is.
    fn touched_at(&self, readings: &Readings) -> Option<Instant> {
        let followed = &self.tables.followed;
        let shards = followed.shards.next(|node| !readings.shards.contains_key(&node));
        let entries = followed.entries.next(|()| readings.entries.is_none());
        shards.into_iter().chain(entries).min()
    }

    /// Reads what is due because it was named, or because a job voided it.
    fn read_touched(&mut self, readings: &mut Readings) {
        let lanes = self.tables.due_shards(|node| !readings.shards.contains_key(&node));
        if !lanes.is_empty() {
            let snapshot = Arc::new(self.tables.draft.now().without_facts());
            for (node, lane) in lanes {
                let snapshot = Arc::clone(&snapshot);
                let stage = Stage::Shards { snapshot, lanes: vec![lane] };
                readings.shards.insert(node, self.reading(stage));
            }
        }
        if readings.entries.is_none() {
            let dbs = self.tables.due_entries();
            readings.entries = (!dbs.is_empty()).then(|| self.reading(Stage::Strays { dbs }));
        }
    }

    /// Reads the views that jobs have voided, one batch at a time.
    fn reread(&mut self, readings: &mut Readings) {
        if self.tables.reread.is_empty() || readings.views.is_some() {
            return;
        }
        let voided = std::mem::take(&mut self.tables.reread);
        let now = self.tables.draft.now();
        let views_of: BTreeSet<_> =
            voided.into_iter().filter_map(|ix| Some(now.target(ix)?.db())).collect();
        let dbs = self.tables.clustered_dbs(|db| views_of.contains(&db));
        let snapshot = Arc::new(self.tables.draft.now().without_facts());
        readings.views = Some(self.reading(Stage::Views { snapshot, dbs }));
    }

    /// How soon after the last snapshot another one may show what was read because it was
    /// named: planning takes as long as there are targets.
    fn soon(&self) -> Duration {
        let targets = u32::try_from(self.tables.draft.now().capacity()).unwrap_or(u32::MAX);
        PER_TARGET.saturating_mul(targets).clamp(SOONEST, PUBLISH)
    }
}

#[cfg(test)]
mod tests;
