//! The job state task: it knows all jobs and the remembered state of targets.
//!
//! Owns jobs, outcomes, rests, suspensions and learned values. It reads what the scanner publishes,
//! accepts starts from the enforcer and orders from operators, and passes everything that must
//! survive a restart to a [`StateStore`]. Never queries CouchDB and never starts anything. The planner
//! reads [`Jobs`] and [`TargetConstraints`]; metrics also read the [`JobCounters`].

mod counts;
mod pending_rereads;
mod pending_writes;
mod recovery;
mod state;

pub(crate) use counts::{Histogram, JobCounters};
pub(crate) use recovery::Recovery;

use crate::{
    jobs::{CompactionTotals, Jobs, RequestResult, Running, StartRejected, TargetConstraints},
    model::{
        channel::Channels,
        correction::Corrections,
        records::{
            CompactionOrder, Intent, IntentKey, JournalFailure, RecoveredState, RunCommand,
            RunRejected, StateStore, StoreError, Suspension, SuspensionScope,
        },
        settings::limits::FailureSettings,
        target::TargetId,
    },
    scan,
    shared_limits::{Granted, Now, SharedUse},
    table::Snapshot,
    tasks::publish_if_changed,
};
use pending_writes::PendingWrites;
use state::{Effects, JobState};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Length of the command queue. Orders are rare, and each start sends two commands.
const COMMAND_QUEUE_LEN: usize = 64;

/// How often time-dependent conditions are checked: the end of rests, silent nodes.
const TICK_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct JobStateSettings {
    /// Consequences of failures.
    pub failure: FailureSettings,
    /// Peak size of a database compaction as a multiple of its active bytes, until a value is
    /// learned.
    pub headroom_factor: f64,
    /// The channels, to find the one that takes the target of another program's job.
    pub channels: Arc<Channels>,
    /// Whether this process starts compactions.
    pub acting: bool,
}

/// Whether a change was stored.
type StoreResult = Result<(), StoreError>;

/// Why a start is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotStarted {
    /// The tracker rejected it.
    #[error(transparent)]
    Rejected(#[from] StartRejected),
    /// The order was withdrawn, or already started, since the plan was made.
    #[error("its order no longer exists")]
    OrderGone,
    /// Its stored state prevents a start.
    #[error("it must not be started now: it {0}")]
    BackingOff(&'static str),
    /// Clusters on the same storage share limits, and this cluster's share is in use.
    #[error("{0}")]
    SharedLimits(String),
    /// The journal cannot be written, so the start would be unknown after a crash.
    #[error("the journal cannot be written: {0}")]
    NotStored(StoreError),
    /// The program is stopping.
    #[error("recliner is stopping")]
    Stopping,
}

/// Why an order is not stored. It is in force anyway, until a restart.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPersisted {
    /// The journal cannot be written.
    #[error("in force, but a restart will lose it: {0}")]
    Store(StoreError),
    /// The program is stopping.
    #[error("recliner is stopping")]
    Stopping,
}

/// Why a run was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunNotChanged {
    /// It is not possible.
    #[error(transparent)]
    Rejected(#[from] RunRejected),
    /// The change is not stored.
    #[error(transparent)]
    NotPersisted(#[from] NotPersisted),
}

#[derive(Debug)]
struct StartCommand {
    intent: Intent,
    /// The order that caused it, if any.
    ordered: Option<CompactionOrder>,
}

#[derive(Debug)]
enum JobStateCommand {
    Used(oneshot::Sender<SharedUse>),
    AcceptStart(
        Box<StartCommand>,
        oneshot::Sender<Result<(u64, oneshot::Receiver<StoreResult>), NotStarted>>,
    ),
    RequestResult(IntentKey, RequestResult),
    Suspend(SuspensionScope, Suspension, oneshot::Sender<StoreResult>),
    Resume(SuspensionScope, Option<String>, oneshot::Sender<StoreResult>),
    Release(Option<TargetId>, oneshot::Sender<(usize, oneshot::Receiver<StoreResult>)>),
    Order(TargetId, CompactionOrder, oneshot::Sender<StoreResult>),
    ChangeRun(
        Box<RunCommand>,
        oneshot::Sender<Result<(u64, oneshot::Receiver<StoreResult>), RunRejected>>,
    ),
}

/// Sends commands to the job state task and reads what it publishes.
#[derive(Clone, Debug)]
pub struct JobStateHandle {
    pub jobs: watch::Receiver<Arc<Jobs>>,
    /// Remembered constraints on targets.
    pub constraints: watch::Receiver<Arc<TargetConstraints>>,
    pub counters: watch::Receiver<Arc<JobCounters>>,
    /// What all compactions did, whoever started them.
    pub totals: watch::Receiver<CompactionTotals>,
    /// Corrections of predictions. Marked as changed once those of the previous process are known.
    pub corrections: watch::Receiver<Arc<Corrections>>,
    commands: mpsc::Sender<JobStateCommand>,
    clock: Clock,
}

impl JobStateHandle {
    /// Announces a start, with the order that caused it, if any. Returns once the intent is stored
    /// durably, with the number of starts that [`Jobs::starts_accepted`] then includes. Only then may the
    /// request be sent, and [`Self::report_result`] MUST follow.
    ///
    /// # Errors
    /// If the start is already in progress, the target must not be started now, its order is gone,
    /// or the intent cannot be stored. No request may be sent then.
    pub async fn accept_start(
        &self,
        intent: Intent,
        ordered: Option<CompactionOrder>,
    ) -> Result<u64, NotStarted> {
        let start = Box::new(StartCommand { intent, ordered });
        let answer = self.ask(|answer| JobStateCommand::AcceptStart(start, answer)).await;
        let (taken, kept) = answer.ok_or(NotStarted::Stopping)??;
        kept.await.map_err(|_| NotStarted::Stopping)?.map_err(NotStarted::NotStored)?;
        Ok(taken)
    }

    /// How much of the shared limits compactions use. Every start accepted later keeps to the share that was
    /// published before. `None` if the task ends.
    pub(crate) async fn shared_use(&self) -> Option<SharedUse> {
        self.ask(JobStateCommand::Used).await
    }

    /// Reports the result of a request.
    pub async fn report_result(&self, key: IntentKey, sent: RequestResult) {
        // If the task is gone, the next process finds the intent open.
        let _gone = self.commands.send(JobStateCommand::RequestResult(key, sent)).await;
    }

    /// Suspends starts of a scope until [`Self::resume`]. Running jobs continue, because CouchDB
    /// cannot stop a compaction over HTTP. Repeating a suspension keeps its start time, and its
    /// reason unless a new one is given. `by` names the operator and the address.
    ///
    /// # Errors
    /// If it is not stored; it is in force anyway.
    pub async fn suspend(
        &self,
        scope: SuspensionScope,
        by: Option<String>,
        why: Option<String>,
    ) -> Result<Suspension, NotPersisted> {
        let before = self.constraints.borrow().suspensions.0.get(&scope).cloned();
        let suspension = Suspension::after_order(before.as_ref(), self.clock.now(), by, why);
        let stored = suspension.clone();
        self.store(|answer| JobStateCommand::Suspend(scope, stored, answer)).await?;
        Ok(suspension)
    }

    /// Lifts a suspension, if there is one. `by` names the operator and the address.
    ///
    /// # Errors
    /// As [`Self::suspend`].
    pub async fn resume(
        &self,
        scope: SuspensionScope,
        by: Option<String>,
    ) -> Result<(), NotPersisted> {
        self.store(|answer| JobStateCommand::Resume(scope, by, answer)).await
    }

    /// Sends a command and waits for its answer; `None` if the task ends.
    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> JobStateCommand,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.ok()?;
        answered.await.ok()
    }

    /// Sends a command and waits until it is stored.
    async fn store(
        &self,
        command: impl FnOnce(oneshot::Sender<StoreResult>) -> JobStateCommand,
    ) -> Result<(), NotPersisted> {
        let stored = self.ask(command).await.ok_or(NotPersisted::Stopping)?;
        stored.map_err(NotPersisted::Store)
    }

    /// Orders the compaction of a target ahead of all others, until it starts or the order expires.
    /// Replaces an earlier order.
    ///
    /// # Errors
    /// As [`Self::suspend`].
    pub async fn order(
        &self,
        target: TargetId,
        ordered: CompactionOrder,
    ) -> Result<(), NotPersisted> {
        self.store(|answer| JobStateCommand::Order(target, ordered, answer)).await
    }

    /// Begins, pauses, resumes or ends a run; returns its number.
    ///
    /// # Errors
    /// If that is not possible, or as [`Self::suspend`].
    pub async fn change_run(&self, command: RunCommand) -> Result<u64, RunNotChanged> {
        let command = Box::new(command);
        let answer = self.ask(|answer| JobStateCommand::ChangeRun(command, answer)).await;
        let (number, kept) =
            answer.ok_or(NotPersisted::Stopping)?.map_err(RunNotChanged::Rejected)?;
        let kept = kept.await.map_err(|_| NotPersisted::Stopping)?;
        kept.map_err(NotPersisted::Store)?;
        Ok(number)
    }

    /// Clears failures and futility of one target, or of all; returns the number of targets.
    ///
    /// # Errors
    /// As [`Self::suspend`].
    pub async fn release(&self, which: Option<TargetId>) -> Result<usize, NotPersisted> {
        let answer = self.ask(|answer| JobStateCommand::Release(which, answer)).await;
        let (count, kept) = answer.ok_or(NotPersisted::Stopping)?;
        kept.await.map_err(|_| NotPersisted::Stopping)?.map_err(NotPersisted::Store)?;
        Ok(count)
    }
}

/// The task that owns jobs and remembered state.
pub(crate) struct JobStateTask {
    clock: Clock,
    state: JobState,
    pending_writes: PendingWrites,
    scanner: scan::ScanHandle,
    settings: watch::Receiver<Arc<JobStateSettings>>,
    shared: watch::Receiver<Option<Granted>>,
    jobs: watch::Sender<Arc<Jobs>>,
    constraints: watch::Sender<Arc<TargetConstraints>>,
    counters: watch::Sender<Arc<JobCounters>>,
    totals: watch::Sender<CompactionTotals>,
    corrections: watch::Sender<Arc<Corrections>>,
    commands: mpsc::Receiver<JobStateCommand>,
}

enum JobStateEvent {
    Stop,
    Command(JobStateCommand),
    WriteFinished { cancelled_starts: Vec<IntentKey> },
    TasksPolled,
    FactsChanged,
    SettingsChanged,
    Tick,
}

impl JobStateTask {
    /// Creates the task and its handle.
    pub(crate) fn new(
        clock: Clock,
        scanner: scan::ScanHandle,
        settings: watch::Receiver<Arc<JobStateSettings>>,
        keeper: Arc<dyn StateStore>,
    ) -> (Self, JobStateHandle) {
        let state = JobState::new(RecoveredState::default(), clock.now());
        let why = "recliner has just started".to_owned();
        let history = TargetConstraints {
            journal_failure: Some((clock.now(), JournalFailure::NotLoaded(why))),
            ..TargetConstraints::default()
        };
        let (jobs, jobs_rx) = watch::channel(Arc::default());
        let (history, history_rx) = watch::channel(Arc::new(history));
        let (counts, counts_rx) = watch::channel(Arc::default());
        let (totals, totals_rx) = watch::channel(CompactionTotals::default());
        let (corrections, corrections_rx) = watch::channel(Arc::default());
        let (commands_tx, commands) = mpsc::channel(COMMAND_QUEUE_LEN);
        let handle = JobStateHandle {
            jobs: jobs_rx,
            constraints: history_rx,
            counters: counts_rx,
            totals: totals_rx,
            corrections: corrections_rx,
            commands: commands_tx,
            clock,
        };
        let outbox = PendingWrites::new(keeper);
        (
            Self {
                clock,
                state,
                pending_writes: outbox,
                scanner,
                settings,
                shared: watch::channel(None).1,
                jobs,
                constraints: history,
                counters: counts,
                totals,
                corrections,
                commands,
            },
            handle,
        )
    }

    /// The task that keeps to a share of limits that several clusters have.
    pub(crate) fn bounded_by(self, shared: watch::Receiver<Option<Granted>>) -> Self {
        Self { shared, ..self }
    }

    /// Waits for the state of the previous process, then runs until `stop` or until the scanner
    /// ends. Until then all starts are refused, commands wait, and the published constraints say
    /// why.
    pub(crate) async fn run(mut self, recovery: Recovery, stop: CancellationToken) {
        let recovering = recovery.finished(&self.constraints, self.clock);
        let Some(recovered) = stop.run_until_cancelled(recovering).await else { return };
        self.state = JobState::new(recovered, self.clock.now());
        let corrections = self.state.new_corrections(self.clock.now()).unwrap_or_default();
        self.corrections.send_replace(Arc::new(corrections));
        self.publish();
        let mut tick = time::interval(TICK_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let clock = self.clock;
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                () = stop.cancelled() => JobStateEvent::Stop,
                cancelled_starts = self.pending_writes.next_result(|| clock.now()) => JobStateEvent::WriteFinished { cancelled_starts },
                Some(command) = self.commands.recv() => JobStateEvent::Command(command),
                news = self.scanner.running.changed() => {
                    if news.is_ok() { JobStateEvent::TasksPolled } else { JobStateEvent::Stop }
                }
                news = self.scanner.snapshots.changed() => {
                    if news.is_ok() { JobStateEvent::FactsChanged } else { JobStateEvent::Stop }
                }
                news = self.settings.changed() => {
                    if news.is_ok() { JobStateEvent::SettingsChanged } else { JobStateEvent::Stop }
                }
                _ = tick.tick() => JobStateEvent::Tick,
            };
            if matches!(event, JobStateEvent::Stop) {
                return;
            }
            self.handle(event);
            self.publish();
        }
    }

    fn handle(&mut self, event: JobStateEvent) {
        let now = self.clock.now();
        let settings = Arc::clone(&self.settings.borrow());
        // The watch stays marked as changed if a new snapshot arrived since the event, so that
        // `FactsChanged` is handled for it.
        let tables = Arc::clone(&self.scanner.snapshots.borrow());
        self.state.detect_clock_change(now);
        self.state.set_enforcing(settings.acting, now);
        match event {
            JobStateEvent::Stop | JobStateEvent::SettingsChanged => {}
            JobStateEvent::TasksPolled => {
                let running: Arc<Running> = Arc::clone(&self.scanner.running.borrow());
                let follows = self.state.apply_poll(&running, &tables, &settings, now);
                self.apply_effects(follows);
            }
            JobStateEvent::FactsChanged => {
                let follows = self.state.apply_facts(&tables, &settings, now);
                self.apply_effects(follows);
            }
            JobStateEvent::Tick => {
                let follows = self.state.apply_facts(&tables, &settings, now);
                self.apply_effects(follows);
                self.apply_effects(self.state.pending_reads(&tables));
                self.pending_writes.push(self.state.expire_orders(now));
            }
            JobStateEvent::WriteFinished { cancelled_starts } => {
                let why = "it could not be stored, or its sender has disconnected";
                for key in cancelled_starts {
                    let sent = RequestResult::NotSent(why.to_owned());
                    let follows =
                        self.state.apply_request_result(&key, sent, &tables, &settings, now);
                    self.apply_effects(follows);
                }
            }
            JobStateEvent::Command(command) => self.handle_command(command, &tables, &settings),
        }
    }

    fn handle_command(
        &mut self,
        command: JobStateCommand,
        tables: &Snapshot,
        settings: &JobStateSettings,
    ) {
        let now = self.clock.now();
        match command {
            JobStateCommand::AcceptStart(start, answer) => {
                if answer.is_closed() {
                    return;
                }
                let trouble =
                    self.pending_writes.failure().map(|(_, why)| StoreError(why.to_string()));
                let StartCommand { intent, ordered } = *start;
                let key = intent.key();
                let allowed = match trouble {
                    Some(trouble) => Err(NotStarted::NotStored(trouble)),
                    None => self.state.check_start(&intent, ordered.as_ref(), tables, now),
                };
                let granted = *self.shared.borrow();
                let allowed = allowed.and_then(|()| match granted {
                    Some(granted) => self.state.check_share(
                        &intent,
                        granted.allowed(Now::read(self.clock)),
                        tables,
                        now,
                    ),
                    None => Ok(()),
                });
                let acceptance =
                    allowed.and_then(|()| Ok(self.state.accept_start(intent, tables, now)?));
                let acceptance = acceptance.map(|changes| {
                    let (store_tx, store_rx) = oneshot::channel();
                    self.pending_writes.push_awaited(changes, Some(key), store_tx);
                    (self.state.starts_accepted(), store_rx)
                });
                // If the sender is gone, the pending write finds no receiver and withdraws the
                // start.
                let _gone = answer.send(acceptance);
            }
            JobStateCommand::Used(answer) => {
                // The member may have stopped waiting.
                let _gone = answer.send(self.state.shared_use(now));
            }
            JobStateCommand::RequestResult(key, sent) => {
                let follows = self.state.apply_request_result(&key, sent, tables, settings, now);
                self.apply_effects(follows);
            }
            JobStateCommand::Suspend(scope, suspension, answer) => {
                let change = self.state.suspend(scope, suspension);
                self.pending_writes.push_awaited([change], None, answer);
            }
            JobStateCommand::Resume(scope, by, answer) => {
                let change = self.state.resume(scope, by);
                self.pending_writes.push_awaited([change], None, answer);
            }
            JobStateCommand::Order(target, ordered, answer) => {
                let change = self.state.set_order(target, Some(ordered));
                self.pending_writes.push_awaited(change, None, answer);
            }
            JobStateCommand::ChangeRun(command, answer) => {
                let changed = self.state.change_run(*command).map(|(number, changes)| {
                    let (store_tx, store_rx) = oneshot::channel();
                    self.pending_writes.push_awaited(changes, None, store_tx);
                    (number, store_rx)
                });
                let _gone = answer.send(changed);
            }
            JobStateCommand::Release(which, answer) => {
                let changes = self.state.release(which.as_ref());
                let (store_tx, store_rx) = oneshot::channel();
                let count = changes.len();
                self.pending_writes.push_awaited(changes, None, store_tx);
                // The release takes effect even if nobody waits for the number.
                let _gone = answer.send((count, store_rx));
            }
        }
    }

    fn apply_effects(&mut self, effects: Effects) {
        self.pending_writes.push(effects.changes);
        if !effects.reread.is_empty() {
            // If the scanner's queue is full, the request is repeated with the next poll.
            let _full =
                self.scanner.send(scan::ScanCommand::Reread(effects.reread.into_iter().collect()));
        }
        for ix in effects.cleaned {
            let _full = self.scanner.send(scan::ScanCommand::CleanupRequested(ix));
        }
    }

    fn publish(&mut self) {
        let tables = Arc::clone(&self.scanner.snapshots.borrow());
        let history =
            self.state.constraints(&tables, self.pending_writes.failure(), self.clock.now());
        self.pending_writes.push(self.state.changed_work(&tables));
        publish_if_changed(&self.constraints, history);
        publish_if_changed(&self.counters, self.state.counters.clone());
        self.totals.send_if_modified(|published| {
            let is_new = *published != self.state.totals;
            *published = self.state.totals;
            is_new
        });
        publish_if_changed(&self.jobs, self.state.jobs());
        if let Some(corrections) = self.state.new_corrections(self.clock.now()) {
            publish_if_changed(&self.corrections, corrections);
        }
    }
}

#[cfg(test)]
mod tests;
