//! The job state task: it knows all jobs and the remembered state of targets.
//!
//! Owns jobs, outcomes, rests, suspensions and learned values. It reads what the scanner publishes,
//! accepts starts from the enforcer and orders from operators, and passes everything that must
//! survive a restart to a [`Keeper`]. Never queries CouchDB and never starts anything. The planner
//! reads [`Jobs`] and [`History`]; metrics also read the [`Counts`].

mod counts;
mod outbox;
mod places;
mod rereads;
mod state;

pub use counts::{Counts, Distribution, Place};

use crate::{
    jobs::{History, Jobs, Running, Sent, StartRefused},
    model::{
        channel::Channels,
        memory::{Intent, IntentKey, Keeper, Ordered, Recovered, Scope, Suspension, Trouble},
        settings::limits::Failure,
        target::TargetId,
    },
    scan,
    table::Snapshot,
};
use outbox::Outbox;
use state::{Follows, State};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Length of the command queue. Orders are rare, and each start sends two commands.
const COMMANDS: usize = 64;

/// How often conditions that depend on time alone are checked: the end of rests, silent nodes.
const PERIOD: Duration = Duration::from_secs(10);

/// Settings of the task.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Consequences of failures.
    pub failure: Failure,
    /// Peak size of a database compaction as a multiple of its active bytes, before a value was
    /// learned.
    pub headroom_factor: f64,
    /// The channels, to find the one that takes the target of another program's job.
    pub channels: Arc<Channels>,
    /// Whether this process starts compactions.
    pub acting: bool,
}

/// Whether a change was stored.
type Answer = Result<(), Trouble>;

/// Why a start is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStarted {
    /// The tracker rejected it.
    #[error(transparent)]
    Refused(#[from] StartRefused),
    /// The order was withdrawn, or already started, since the plan was made.
    #[error("it is no longer ordered")]
    NotOrdered,
    /// Its remembered state prevents a start.
    #[error("it must not be started now: it {0}")]
    Rests(&'static str),
    /// The journal cannot be written, so the start would be unknown after a crash.
    #[error("the journal cannot be written: {0}")]
    NotKept(Trouble),
    /// The program is stopping.
    #[error("recliner is stopping")]
    Stopping,
}

/// Why an order is not stored. It is in force anyway, until a restart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotKept {
    /// The journal cannot be written.
    #[error("in force, but lost at a restart: {0}")]
    Trouble(Trouble),
    /// The program is stopping.
    #[error("recliner is stopping")]
    Stopping,
}

/// A start that was decided.
#[derive(Debug)]
struct Starting {
    intent: Intent,
    /// The order that caused it, if any.
    ordered: Option<Ordered>,
}

#[derive(Debug)]
enum Command {
    Starting(Box<Starting>, oneshot::Sender<Result<(u64, oneshot::Receiver<Answer>), NotStarted>>),
    Sent(IntentKey, Sent),
    Suspend(Scope, Suspension, oneshot::Sender<Answer>),
    Resume(Scope, Option<String>, oneshot::Sender<Answer>),
    Release(Option<TargetId>, oneshot::Sender<(usize, oneshot::Receiver<Answer>)>),
    Order(TargetId, Ordered, oneshot::Sender<Answer>),
}

/// Handle to the task.
#[derive(Clone, Debug)]
pub struct Handle {
    /// All jobs.
    pub jobs: watch::Receiver<Arc<Jobs>>,
    /// Remembered constraints.
    pub history: watch::Receiver<Arc<History>>,
    /// Counters of what happened.
    pub counts: watch::Receiver<Arc<Counts>>,
    commands: mpsc::Sender<Command>,
    clock: Clock,
}

impl Handle {
    /// Announces a start, with the order that caused it, if any. Returns once the intent is stored
    /// durably, with the number of starts that [`Jobs::taken`] then includes. Only then may the
    /// request be sent, and [`Self::sent`] MUST follow.
    ///
    /// # Errors
    /// If the start is already in progress, the target must not be started now, its order is gone,
    /// or the intent cannot be stored. No request may be sent then.
    pub async fn starting(
        &self,
        intent: Intent,
        ordered: Option<Ordered>,
    ) -> Result<u64, NotStarted> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Starting(Box::new(Starting { intent, ordered }), answer);
        self.commands.send(command).await.map_err(|_| NotStarted::Stopping)?;
        let (taken, kept) = answered.await.map_err(|_| NotStarted::Stopping)??;
        kept.await.map_err(|_| NotStarted::Stopping)?.map_err(NotStarted::NotKept)?;
        Ok(taken)
    }

    /// Reports the result of a request.
    pub async fn sent(&self, key: IntentKey, sent: Sent) {
        // If the task is gone, the next process finds the intent open.
        let _gone = self.commands.send(Command::Sent(key, sent)).await;
    }

    /// Suspends starts of a scope until [`Self::resume`]. Running jobs continue, because CouchDB
    /// cannot stop a compaction over HTTP. Repeating a suspension keeps its start time, and its
    /// reason unless a new one is given. `by` names the operator and the address.
    ///
    /// # Errors
    /// If it is not stored; it is in force anyway.
    pub async fn suspend(
        &self,
        scope: Scope,
        by: Option<String>,
        why: Option<String>,
    ) -> Result<Suspension, NotKept> {
        let before = self.history.borrow().suspensions.0.get(&scope).cloned();
        let suspension = Suspension::ordered(before.as_ref(), self.clock.now(), by, why);
        let (answer, kept) = oneshot::channel();
        self.hold(Command::Suspend(scope, suspension.clone(), answer), kept).await?;
        Ok(suspension)
    }

    /// Lifts a suspension, if there is one. `by` names the operator and the address.
    ///
    /// # Errors
    /// As [`Self::suspend`].
    pub async fn resume(&self, scope: Scope, by: Option<String>) -> Result<(), NotKept> {
        let (answer, kept) = oneshot::channel();
        self.hold(Command::Resume(scope, by, answer), kept).await
    }

    async fn hold(&self, command: Command, kept: oneshot::Receiver<Answer>) -> Result<(), NotKept> {
        self.commands.send(command).await.map_err(|_| NotKept::Stopping)?;
        kept.await.map_err(|_| NotKept::Stopping)?.map_err(NotKept::Trouble)
    }

    /// Orders the compaction of a target ahead of all others, until it starts or the order expires.
    /// Replaces an earlier order.
    ///
    /// # Errors
    /// As [`Self::suspend`].
    pub async fn order(&self, target: TargetId, ordered: Ordered) -> Result<(), NotKept> {
        let (answer, kept) = oneshot::channel();
        let command = Command::Order(target, ordered, answer);
        self.commands.send(command).await.map_err(|_| NotKept::Stopping)?;
        kept.await.map_err(|_| NotKept::Stopping)?.map_err(NotKept::Trouble)
    }

    /// Clears failures and futility of one target, or of all; returns the number of targets.
    ///
    /// # Errors
    /// As [`Self::suspend`].
    pub async fn release(&self, which: Option<TargetId>) -> Result<usize, NotKept> {
        let (answer, answered) = oneshot::channel();
        let command = Command::Release(which, answer);
        self.commands.send(command).await.map_err(|_| NotKept::Stopping)?;
        let (count, kept) = answered.await.map_err(|_| NotKept::Stopping)?;
        kept.await.map_err(|_| NotKept::Stopping)?.map_err(NotKept::Trouble)?;
        Ok(count)
    }
}

/// The task that owns jobs and remembered state.
#[derive(Debug)]
pub struct Task {
    clock: Clock,
    state: State,
    outbox: Outbox,
    scanner: scan::Handle,
    settings: watch::Receiver<Arc<Settings>>,
    jobs: watch::Sender<Arc<Jobs>>,
    history: watch::Sender<Arc<History>>,
    counts: watch::Sender<Arc<Counts>>,
    commands: mpsc::Receiver<Command>,
}

enum Event {
    Stop,
    Command(Command),
    Written(outbox::Written),
    Running,
    Measured,
    Settings,
    Tick,
}

impl Task {
    /// Creates the task and its handle.
    #[must_use]
    pub fn new(
        clock: Clock,
        scanner: scan::Handle,
        settings: watch::Receiver<Arc<Settings>>,
        keeper: Arc<dyn Keeper>,
    ) -> (Self, Handle) {
        let state = State::new(Recovered::default(), clock.now());
        let why = "the state of the previous process is not loaded yet".to_owned();
        let history = History { journal_trouble: Some((clock.now(), why)), ..History::default() };
        let (jobs, jobs_rx) = watch::channel(Arc::default());
        let (history, history_rx) = watch::channel(Arc::new(history));
        let (counts, counts_rx) = watch::channel(Arc::default());
        let (commands_tx, commands) = mpsc::channel(COMMANDS);
        let handle = Handle {
            jobs: jobs_rx,
            history: history_rx,
            counts: counts_rx,
            commands: commands_tx,
            clock,
        };
        let outbox = Outbox::new(keeper);
        (Self { clock, state, outbox, scanner, settings, jobs, history, counts, commands }, handle)
    }

    /// Waits for the state of the previous process, then runs until `stop` or until the scanner
    /// ends. Until then all starts are refused and orders wait. Ends if there is no usable state.
    pub async fn run(
        mut self,
        recovering: impl Future<Output = Option<Recovered>>,
        stop: CancellationToken,
    ) {
        let Some(Some(recovered)) = stop.run_until_cancelled(recovering).await else { return };
        self.state = State::new(recovered, self.clock.now());
        self.publish();
        let mut tick = time::interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let clock = self.clock;
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => Event::Stop,
                written = self.outbox.written(|| clock.now()) => Event::Written(written),
                Some(command) = self.commands.recv() => Event::Command(command),
                news = self.scanner.running.changed() => {
                    if news.is_ok() { Event::Running } else { Event::Stop }
                }
                news = self.scanner.snapshots.changed() => {
                    if news.is_ok() { Event::Measured } else { Event::Stop }
                }
                news = self.settings.changed() => {
                    if news.is_ok() { Event::Settings } else { Event::Stop }
                }
                _ = tick.tick() => Event::Tick,
            };
            if matches!(event, Event::Stop) {
                return;
            }
            self.handle(event);
            self.publish();
        }
    }

    fn handle(&mut self, event: Event) {
        let now = self.clock.now();
        let settings = Arc::clone(&self.settings.borrow());
        // The watch stays marked as changed if a new snapshot arrived since the event, so that
        // `Measured` is handled for it.
        let tables = Arc::clone(&self.scanner.snapshots.borrow());
        self.state.look_at_clock(now);
        self.state.acts(settings.acting, now);
        match event {
            Event::Stop | Event::Settings => {}
            Event::Running => {
                let running: Arc<Running> = Arc::clone(&self.scanner.running.borrow());
                let follows = self.state.polled(&running, &tables, &settings, now);
                self.follow(follows);
            }
            Event::Measured => {
                let follows = self.state.measured(&tables, &settings, now);
                self.follow(follows);
            }
            Event::Tick => {
                let follows = self.state.measured(&tables, &settings, now);
                self.follow(follows);
                self.follow(self.state.unread(&tables));
                self.outbox.push(self.state.lapse(now));
            }
            Event::Written(written) => {
                let why = "it could not be stored, or its sender is gone";
                for key in written.off {
                    let sent = Sent::NotSent(why.to_owned());
                    let follows = self.state.sent(&key, sent, &tables, &settings, now);
                    self.follow(follows);
                }
            }
            Event::Command(command) => self.command(command, &tables, &settings),
        }
    }

    fn command(&mut self, command: Command, tables: &Snapshot, settings: &Settings) {
        let now = self.clock.now();
        match command {
            Command::Starting(start, answer) => {
                if answer.is_closed() {
                    return;
                }
                let trouble = self.outbox.trouble().map(|(_, why)| Trouble(why.clone()));
                let Starting { intent, ordered } = *start;
                let key = intent.key();
                let allowed = match trouble {
                    Some(trouble) => Err(NotStarted::NotKept(trouble)),
                    None => self.state.allows(&intent, ordered.as_ref(), tables, now),
                };
                let taken = allowed.and_then(|()| Ok(self.state.start(intent, tables, now)?));
                let taken = taken.map(|changes| {
                    let (kept, waits) = oneshot::channel();
                    self.outbox.push(changes);
                    self.outbox.wait(Some(key), kept);
                    (self.state.taken(), waits)
                });
                // If the sender is gone, the pending write finds no receiver and withdraws the
                // start.
                let _gone = answer.send(taken);
            }
            Command::Sent(key, sent) => {
                let follows = self.state.sent(&key, sent, tables, settings, now);
                self.follow(follows);
            }
            Command::Suspend(scope, suspension, answer) => {
                let change = self.state.suspend(scope, suspension);
                self.outbox.push([change]);
                self.outbox.wait(None, answer);
            }
            Command::Resume(scope, by, answer) => {
                let change = self.state.resume(scope, by);
                self.outbox.push([change]);
                self.outbox.wait(None, answer);
            }
            Command::Order(target, ordered, answer) => {
                let change = self.state.order(target, Some(ordered));
                self.outbox.push(change);
                self.outbox.wait(None, answer);
            }
            Command::Release(which, answer) => {
                let changes = self.state.release(which.as_ref());
                let (kept, waits) = oneshot::channel();
                let count = changes.len();
                self.outbox.push(changes);
                self.outbox.wait(None, kept);
                // The release takes effect even if nobody waits for the number.
                let _gone = answer.send((count, waits));
            }
        }
    }

    fn follow(&mut self, follows: Follows) {
        self.outbox.push(follows.changes);
        if !follows.reread.is_empty() {
            // If the scanner's queue is full, the request is repeated with the next poll.
            let _full =
                self.scanner.send(scan::Command::Reread(follows.reread.into_iter().collect()));
        }
        for ix in follows.cleaned {
            let _full = self.scanner.send(scan::Command::Cleaned(ix));
        }
    }

    /// Publishes changed values.
    fn publish(&mut self) {
        let tables = Arc::clone(&self.scanner.snapshots.borrow());
        let history = self.state.history(&tables, self.outbox.trouble(), self.clock.now());
        replace(&self.history, history);
        replace(&self.counts, self.state.counts.clone());
        replace(&self.jobs, self.state.jobs());
    }
}

/// Wakes readers only if the value changed.
fn replace<T: PartialEq>(published: &watch::Sender<Arc<T>>, now: T) {
    published.send_if_modified(|before| {
        let news = **before != now;
        if news {
            *before = Arc::new(now);
        }
        news
    });
}

#[cfg(test)]
mod tests;
