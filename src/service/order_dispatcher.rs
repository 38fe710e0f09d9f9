//! Passes operators' orders to the responsible tasks, and their answers back.
//!
//! Owns orders in progress. Makes no decisions: HTTP has checked who asks and for what.

use super::ClusterMonitor;
use crate::{
    act::job_state,
    advice::{AdviceHandle, MuteChange, MuteError},
    jobs::TargetConstraints,
    model::{
        channel::Mode,
        records::{
            Backoff, CompactionOrder, JournalFailure, Run, RunCommand, RunEnding, RunRejected,
            Suspension, SuspensionScope,
        },
        score::MissReason,
        target::{TargetId, TargetSelector},
    },
    plan::{OrderAnswer as PlannedAnswer, Plan, Refusal, RefusalReason, planner},
    scan,
    serve::{
        http::orders::{Action, Denied, Order},
        report::{
            self, AdviceMute, MissLine, RunLine,
            orders::{
                ChangeRunOrder, Compacting, Flushed, Muted, OrderAnswer, Released, Rescanning,
                Resumed, RunChange, Suspended, Waits,
            },
        },
    },
    table::{TargetIx, TargetRef},
};
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinSet, time};
use wall_clock::{Clock, Moment};

/// How long an order waits for the state of the previous process, which takes milliseconds unless
/// CouchDB does not answer.
const LOADING_TIMEOUT: Duration = Duration::from_secs(3);

/// How long an order waits for a limit: as long as the window of the hourly budget.
const ORDER_LIFETIME: Duration = Duration::from_secs(3_600);

/// Maximum number of ordered targets that wait.
const MAX_WAITING_ORDERS: usize = 64;

/// Accepts orders, and carries them out concurrently.
#[derive(Debug)]
pub(super) struct OrderDispatcher {
    tasks: OrderTasks,
    in_progress: JoinSet<()>,
}

/// The tasks that accept orders.
#[derive(Clone, Debug)]
struct OrderTasks {
    clock: Clock,
    scanner: scan::ScanHandle,
    planner: planner::PlannerHandle,
    advice: AdviceHandle,
    follower: job_state::JobStateHandle,
}

impl OrderDispatcher {
    pub(super) fn new(watch: &ClusterMonitor, advice: AdviceHandle, clock: Clock) -> Self {
        let tasks = OrderTasks {
            clock,
            scanner: watch.scanner.clone(),
            planner: watch.planner.clone(),
            advice,
            follower: watch.job_state.clone(),
        };
        Self { tasks, in_progress: JoinSet::new() }
    }

    /// Carries out an order and sends the answer when done.
    pub(super) fn dispatch(&mut self, Order { action, by, reply }: Order) {
        while self.in_progress.try_join_next().is_some() {}
        let tasks = self.tasks.clone();
        self.in_progress.spawn(async move {
            // The requester may no longer wait; the order takes effect anyway.
            let _gone = reply.send(tasks.carry_out(action, by).await);
        });
    }
}

impl OrderTasks {
    async fn carry_out(self, action: Action, by: String) -> Result<OrderAnswer, Denied> {
        let (follower, now) = (&self.follower, self.clock.now());
        let plan = Arc::clone(&self.planner.plan.borrow());
        if !matches!(action, Action::Rescan | Action::Flush { .. }) {
            state_loaded(follower).await?;
        }
        Ok(match action {
            Action::Suspend { scope, why } => {
                OrderAnswer::Suspended(suspend(follower, &plan, scope, (by, why)).await?)
            }
            Action::Resume(scope) => {
                OrderAnswer::Resumed(resume(follower, &plan, scope, by).await?)
            }
            Action::Release { selector, text } => {
                let targets = self.quarantined(&plan, Some(&selector));
                if targets.is_empty() {
                    return Err(Denied::Unknown(format!("{text} is not in quarantine")));
                }
                self.release(targets).await?
            }
            Action::ReleaseAll => self.release(self.quarantined(&plan, None)).await?,
            Action::MuteAdvice { key, mute_for, why } => {
                let order = MuteChange { key, mute_for, why, by: Some(by) };
                OrderAnswer::Muted(mute(&self.advice, order).await?)
            }
            Action::Flush { node, channel } => {
                let targets = self.planner.flush(node, channel).await.ok_or_else(stopping)?;
                OrderAnswer::Flushed(Flushed { targets })
            }
            Action::Compact { target, ix, force } => {
                let until = now.plus(ORDER_LIFETIME);
                let order = CompactionOrder { at: now, until, by, force, run: None };
                OrderAnswer::Compacting(self.compact((ix, target), order).await?)
            }
            Action::BeginRun { scope, force } => {
                let run = Run::beginning(scope, force, by, now);
                OrderAnswer::Run(Box::new(self.begin_run(&plan, run).await?))
            }
            Action::ChangeRun(ChangeRunOrder { run, to }) => {
                OrderAnswer::Run(Box::new(change_run(follower, &plan, (run, to), by, now).await?))
            }
            Action::Rescan => {
                let begins = self.scanner.status.borrow().progress.is_none();
                match self.scanner.send(scan::ScanCommand::Sweep) {
                    None => OrderAnswer::Rescanning(Rescanning { begins }),
                    Some(_) => return Err(stopping()),
                }
            }
        })
    }
}

fn stopping() -> Denied {
    Denied::Unavailable("recliner is stopping, or too busy to take orders".to_owned())
}

/// Waits for the state of the previous process, which the order changes. An order refused here was
/// not passed on, so it cannot take effect later.
async fn state_loaded(follower: &job_state::JobStateHandle) -> Result<(), Denied> {
    let mut constraints = follower.constraints.clone();
    let failure = |known: &TargetConstraints| known.journal_failure.clone().map(|(_, why)| why);
    let is_settled = |known: &Arc<TargetConstraints>| {
        !matches!(failure(known), Some(JournalFailure::NotLoaded(_)))
    };
    let settled = time::timeout(LOADING_TIMEOUT, constraints.wait_for(is_settled)).await;
    let settled = settled.map(|settled| settled.map(|known| failure(&known)));
    match settled {
        Ok(Ok(Some(why @ JournalFailure::OtherCluster(_)))) => {
            Err(Denied::Unavailable(format!("not ordered: {why}")))
        }
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err(stopping()),
        Err(_) => match failure(&follower.constraints.borrow()) {
            Some(why) => Err(Denied::NotLoaded(why)),
            None => Ok(()),
        },
    }
}

async fn suspend(
    follower: &job_state::JobStateHandle,
    plan: &Plan,
    scope: SuspensionScope,
    (by, why): (String, Option<String>),
) -> Result<Suspended, Denied> {
    let already = follower.constraints.borrow().suspensions.0.contains_key(&scope);
    let result = follower.suspend(scope.clone(), Some(by), why).await;
    let suspension = result.map_err(order_failed)?;
    let jobs = Arc::clone(&follower.jobs.borrow());
    let running = (!jobs.polled_nodes.is_empty()).then(|| {
        let runs = jobs.compactions().filter(|job| match &scope {
            SuspensionScope::All => true,
            SuspensionScope::Node(name) => {
                plan.snapshot.node(job.key.node).is_some_and(|node| *node.name == **name)
            }
            SuspensionScope::Channel(name) => job.channel.as_deref() == Some(name),
        });
        runs.count() as u64
    });
    let Suspension { since, by, why } = suspension;
    Ok(Suspended { since: since.rfc3339(), by, why, already, running })
}

async fn mute(advice: &AdviceHandle, order: MuteChange) -> Result<Muted, Denied> {
    let muted = advice.mute(order).await.map_err(|why| match why {
        MuteError::Unknown(why) => Denied::Unknown(why),
        MuteError::Store(why) => Denied::Failed(why.to_string()),
        MuteError::Unavailable => Denied::Unavailable(why.to_string()),
    })?;
    Ok(Muted { muted: muted.as_ref().map(AdviceMute::of) })
}

async fn resume(
    follower: &job_state::JobStateHandle,
    plan: &Plan,
    wanted: SuspensionScope,
    by: String,
) -> Result<Resumed, Denied> {
    let suspended: Vec<SuspensionScope> =
        follower.constraints.borrow().suspensions.0.keys().cloned().collect();
    let (lifted, remaining): (Vec<SuspensionScope>, Vec<SuspensionScope>) =
        suspended.into_iter().partition(|scope| wanted == SuspensionScope::All || *scope == wanted);
    // A suspended node or channel may no longer exist.
    let is_known = match &wanted {
        SuspensionScope::All => true,
        SuspensionScope::Node(name) => plan.snapshot.nodes().iter().any(|it| *it.name == **name),
        SuspensionScope::Channel(name) => plan.channels.find(name).is_some(),
    };
    if lifted.is_empty() && !is_known {
        return Err(Denied::Unknown(format!(
            "{wanted} is not suspended, and is not the name of a node or channel"
        )));
    }
    for scope in &lifted {
        follower.resume(scope.clone(), Some(by.clone())).await.map_err(order_failed)?;
    }
    let texts = |scopes: &[SuspensionScope]| scopes.iter().map(ToString::to_string).collect();
    Ok(Resumed { lifted: texts(&lifted), remaining: texts(&remaining) })
}

/// Pauses, resumes or ends a run.
async fn change_run(
    follower: &job_state::JobStateHandle,
    plan: &Plan,
    (number, to): (u64, RunChange),
    by: String,
    now: Moment,
) -> Result<RunLine, Denied> {
    let find = || follower.constraints.borrow().runs.0.get(&number).cloned();
    let command = match to {
        RunChange::Paused => {
            RunCommand::Pause(number, Suspension { since: now, by: Some(by), why: None })
        }
        RunChange::Running => RunCommand::Resume(number, now),
        RunChange::Cancelled => {
            let run =
                find().ok_or_else(|| Denied::Unknown(RunRejected::Unknown(number).to_string()))?;
            let progress = report::run_progress(plan, number, &run);
            RunCommand::End(number, progress.end(&run, (RunEnding::Cancelled, now), Some(by)))
        }
    };
    follower.change_run(command).await.map_err(run_failed)?;
    let run = find().ok_or_else(stopping)?;
    Ok(RunLine::of(plan, number, &run))
}

fn run_failed(why: job_state::RunNotChanged) -> Denied {
    match why {
        job_state::RunNotChanged::Rejected(why @ RunRejected::Unknown(_)) => {
            Denied::Unknown(why.to_string())
        }
        job_state::RunNotChanged::Rejected(why) => {
            Denied::Run { why: why.to_string(), requests: Vec::new(), left_out: Vec::new() }
        }
        job_state::RunNotChanged::NotPersisted(why) => order_failed(why),
    }
}

impl OrderTasks {
    async fn release(&self, targets: Vec<TargetId>) -> Result<OrderAnswer, Denied> {
        for target in &targets {
            self.follower.release(Some(target.clone())).await.map_err(order_failed)?;
        }
        let targets = targets.iter().map(ToString::to_string).collect();
        Ok(OrderAnswer::Released(Released { targets }))
    }

    /// Targets in quarantine, optionally only those that match `only`.
    fn quarantined(&self, plan: &Plan, only: Option<&TargetSelector>) -> Vec<TargetId> {
        let constraints = self.follower.constraints.borrow();
        let backoffs = constraints.backoffs.iter();
        let quarantined = backoffs.filter(|(_, it)| matches!(it, Backoff::Quarantined { .. }));
        let ids = quarantined.filter_map(|(ix, _)| plan.snapshot.target(*ix).map(TargetRef::id));
        ids.filter(|id| only.is_none_or(|only| only.selects(id, None))).collect()
    }

    /// Begins a run, if at least one of its members may start at some time.
    async fn begin_run(&self, plan: &Plan, run: Run) -> Result<RunLine, Denied> {
        let refused = |why: String, left_out| Denied::Run { why, requests: Vec::new(), left_out };
        let open = self.follower.constraints.borrow().runs.check_new(&run.scope);
        open.map_err(|why| refused(why.to_string(), Vec::new()))?;
        let (line, impossible) = RunLine::if_ordered(plan, &run);
        if let Some(why) = impossible {
            return Err(refused(why, line.left_out));
        }
        if plan.rules.mode == Mode::Advise {
            let mut why = "recliner runs in advise mode and sends nothing; set mode: enforce, or send the requests yourself"
                .to_owned();
            let (requests, targets) = report::requests_of_run(plan, &run);
            if targets < line.members.saturating_sub(line.running) {
                why.push_str(&format!(
                    "; these are the requests for the first {targets} of {} targets: send them and order again, or order one database",
                    line.members
                ));
            }
            return Err(Denied::Run { why, requests, left_out: line.left_out });
        }
        let run = self.follower.change_run(RunCommand::Begin(run)).await.map_err(run_failed)?;
        Ok(RunLine { run, ..line })
    }

    /// Orders the compaction of a target, if a plan that includes the order starts it, or if only a limit delays it.
    async fn compact(
        &self,
        (ix, target): (TargetIx, TargetId),
        ordered: CompactionOrder,
    ) -> Result<Compacting, Denied> {
        let Self { planner, follower, scanner, .. } = self;
        let others =
            follower.constraints.borrow().orders.keys().filter(|other| **other != ix).count();
        if others >= MAX_WAITING_ORDERS {
            let why = format!("{others} ordered targets are already waiting; try again later");
            return Err(Denied::Unavailable(why));
        }
        let plan = planner.plan_if_ordered(ix, ordered.clone()).await.ok_or_else(stopping)?;
        let deleted = || Denied::Unknown(format!("{target} no longer exists"));
        let found =
            plan.snapshot.target(ix).filter(|found| found.id() == target).ok_or_else(deleted)?;
        let why = |refusal: &Refusal| {
            if refusal.reason == RefusalReason::Mode && plan.rules.mode == Mode::Advise {
                return "recliner runs in advise mode and sends nothing".to_owned();
            }
            report::why(&plan, found, refusal)
        };
        let (request, waits) = match plan.order_answer(found) {
            PlannedAnswer::Starts(request) => (request, None),
            PlannedAnswer::Waits(request, refusal) => (request, Some((refusal, why(&refusal)))),
            PlannedAnswer::Refused(refusal, request) => {
                let (why, request) = (why(&refusal), request.map(|request| request.to_string()));
                return Err(Denied::Refused { target, refusal, why, request });
            }
            PlannedAnswer::NotTaken => {
                let misses = plan.misses(found);
                let misses = misses.filter(|(_, miss)| miss.reason != MissReason::NotThisKind);
                let misses = misses.map(|(channel, miss)| MissLine::new(channel, miss)).collect();
                return Err(Denied::NotTaken { target, misses });
            }
        };
        let until = ordered.until;
        follower.order(target, ordered).await.map_err(order_failed)?;
        if waits.as_ref().is_some_and(|(refusal, _)| refusal.reason == RefusalReason::Stale) {
            // If the scanner's queue is full, the next sweep reads the target.
            let _full = scanner.send(scan::ScanCommand::Reread(vec![ix]));
        }
        let waits = waits.map(|(refusal, why)| Waits { refusal: refusal.into(), why });
        Ok(Compacting { requests: vec![request.to_string()], waits, until: until.rfc3339() })
    }
}

fn order_failed(why: job_state::NotPersisted) -> Denied {
    Denied::Failed(why.to_string())
}

#[cfg(test)]
mod tests;
