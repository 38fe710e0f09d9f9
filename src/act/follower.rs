//! The follower: one task that knows what runs and what is remembered.
//!
//! Owns jobs, outcomes, rests, suspensions and what was learned. It reads what the scanner
//! publishes, takes the enforcer's word that a start is coming and an operator's orders, and
//! hands what must survive to a [`Keeper`]. Never asks CouchDB itself and never starts
//! anything. The planner reads [`Jobs`] and [`History`], metrics the [`Counts`] as well.

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

/// Orders are rare, and two a start.
const COMMANDS: usize = 64;

/// How often what passes with time alone is looked at: rests that end, nodes that stay silent.
const PERIOD: Duration = Duration::from_secs(10);

/// What the follower goes by.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// What follows from a failure.
    pub failure: Failure,
    /// Peak of a db's compaction, as a multiple of its active bytes, before anything is learned.
    pub headroom_factor: f64,
    /// The channels: which of them takes the target of a job that somebody else started.
    pub channels: Arc<Channels>,
    /// Whether this process starts compactions.
    pub acting: bool,
}

/// Whether something was kept.
type Answer = Result<(), Trouble>;

/// Why a start is off.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStarted {
    /// It is under way, or cannot be.
    #[error(transparent)]
    Refused(#[from] StartRefused),
    /// What was ordered was taken back, or begun, since the plan was made.
    #[error("nobody orders it any more")]
    NotOrdered,
    /// What is remembered of it by now keeps it from starting.
    #[error("what is remembered of it by now leaves it alone: it {0}")]
    Rests(&'static str),
    /// The journal cannot be written: after a crash nobody would know of it.
    #[error("the journal cannot be written: {0}")]
    NotKept(Trouble),
    /// The program is stopping.
    #[error("recliner is stopping")]
    Stopping,
}

/// Why an order is not kept. It is in force all the same, until a restart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotKept {
    /// The journal cannot be written.
    #[error("in force, but not kept over a restart: {0}")]
    Trouble(Trouble),
    /// The program is stopping.
    #[error("recliner is stopping")]
    Stopping,
}

/// A start that is decided.
#[derive(Debug)]
struct Starting {
    intent: Intent,
    /// The order by which it starts, where one is why.
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

/// The way to talk to the follower.
#[derive(Clone, Debug)]
pub struct Handle {
    /// What runs.
    pub jobs: watch::Receiver<Arc<Jobs>>,
    /// What is remembered.
    pub history: watch::Receiver<Arc<History>>,
    /// What happened.
    pub counts: watch::Receiver<Arc<Counts>>,
    commands: mpsc::Sender<Command>,
    clock: Clock,
}

impl Handle {
    /// Says that a start is coming, by an order where there is one; answers once that would
    /// survive a crash, with the number of starts that [`Jobs::taken`] then counts. Only then may
    /// the request go out, and [`Self::sent`] MUST follow.
    ///
    /// # Errors
    /// When it is under way already, when the target, by its id, is left alone or its order is
    /// gone by now, or when it cannot be kept; then nothing may be sent.
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

    /// Says what came of a request.
    pub async fn sent(&self, key: IntentKey, sent: Sent) {
        // Where the task is gone, the next process finds the intent open.
        let _gone = self.commands.send(Command::Sent(key, sent)).await;
    }

    /// Holds a scope's starts back until [`Self::resume`]; what runs goes on, because CouchDB
    /// cannot stop a compaction over HTTP. One that is in force keeps its beginning, and its
    /// reason where no other is given. `by` says who ordered it, and from where.
    ///
    /// # Errors
    /// When it is not kept; it is in force all the same.
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

    /// Takes a suspension back; nothing happens where there is none. `by` says who ordered it.
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

    /// Has a target compacted before all others, until it starts or the order lapses. Another
    /// one takes the place of the one before.
    ///
    /// # Errors
    /// As [`Self::suspend`].
    pub async fn order(&self, target: TargetId, ordered: Ordered) -> Result<(), NotKept> {
        let (answer, kept) = oneshot::channel();
        let command = Command::Order(target, ordered, answer);
        self.commands.send(command).await.map_err(|_| NotKept::Stopping)?;
        kept.await.map_err(|_| NotKept::Stopping)?.map_err(NotKept::Trouble)
    }

    /// Forgets the failures and the futility of a target, or of all; answers of how many.
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

/// Owns what runs and what is remembered.
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
    /// Makes the task and its handle.
    #[must_use]
    pub fn new(
        clock: Clock,
        scanner: scan::Handle,
        settings: watch::Receiver<Arc<Settings>>,
        keeper: Arc<dyn Keeper>,
    ) -> (Self, Handle) {
        let state = State::new(Recovered::default(), clock.now());
        let why = "what an earlier process left is not read yet".to_owned();
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

    /// Waits for what an earlier process left, then follows until `stop`, or until nobody polls
    /// any more. Until it has that, every start is held back, and orders wait; without any it
    /// ends.
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
        // What came since the event stays news: only `Measured` and `Running` judge by it.
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
                let why = "it could not be kept, or nobody waited for it";
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
                // Where whoever asked is gone, the outbox finds nobody waiting and takes it back.
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
                // It is released whether or not somebody waits for the number.
                let _gone = answer.send((count, waits));
            }
        }
    }

    fn follow(&mut self, follows: Follows) {
        self.outbox.push(follows.changes);
        if !follows.reread.is_empty() {
            // A scanner that is stuck is asked again with the next poll.
            let _full =
                self.scanner.send(scan::Command::Reread(follows.reread.into_iter().collect()));
        }
        for ix in follows.cleaned {
            let _full = self.scanner.send(scan::Command::Cleaned(ix));
        }
    }

    /// Publishes what changed.
    fn publish(&mut self) {
        let tables = Arc::clone(&self.scanner.snapshots.borrow());
        let history = self.state.history(&tables, self.outbox.trouble(), self.clock.now());
        replace(&self.history, history);
        replace(&self.counts, self.state.counts.clone());
        replace(&self.jobs, self.state.jobs());
    }
}

/// Wakes readers only where there is news.
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
