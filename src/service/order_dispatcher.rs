//! Passes operators' orders to the responsible tasks, and their answers back.
//!
//! Owns orders in progress. Makes no decisions: HTTP has checked who asks and for what.

use super::ClusterMonitor;
use crate::{
    act::job_state,
    advice::{AdviceHandle, MuteError, MuteOrder},
    jobs::TargetConstraints,
    model::{
        channel::Mode,
        records::{Backoff, CompactionOrder, JournalFailure, Mute, SuspensionScope},
        score::MissReason,
        target::{TargetId, TargetSelector},
    },
    plan::{OrderAnswer, Plan, Refusal, RefusalReason, planner},
    scan,
    serve::{
        http::{
            Order,
            orders::{
                Compact, CompactResult, Denied, FlushResult, FlushScope, Release, ReleaseResult,
                RescanResult, Resume, ResumeResult, Suspend, SuspendResult,
            },
        },
        report::{self, MissLine},
    },
    table::{TargetIx, TargetRef},
};
use std::{sync::Arc, time::Duration};
use tokio::{task::JoinSet, time};
use wall_clock::Clock;

/// How long an order waits for the state of the previous process, which takes milliseconds unless
/// CouchDB does not answer.
const LOADING_TIMEOUT: Duration = Duration::from_secs(3);

/// How long an order waits for a limit: as long as the window of the hourly budget.
const ORDER_LIFETIME: Duration = Duration::from_secs(3_600);

/// Maximum number of ordered targets that wait.
const MAX_WAITING_ORDERS: usize = 64;

/// The tasks that accept orders.
#[derive(Debug)]
pub(super) struct OrderDispatcher {
    clock: Clock,
    scanner: scan::ScanHandle,
    planner: planner::PlannerHandle,
    advice: AdviceHandle,
    follower: job_state::JobStateHandle,
    in_progress: JoinSet<()>,
}

impl OrderDispatcher {
    pub(super) fn new(watch: &ClusterMonitor, advice: AdviceHandle, clock: Clock) -> Self {
        Self {
            clock,
            scanner: watch.scanner.clone(),
            planner: watch.planner.clone(),
            advice,
            follower: watch.job_state.clone(),
            in_progress: JoinSet::new(),
        }
    }

    /// Executes an order and sends the answer when done.
    pub(super) fn dispatch(&mut self, order: Order) {
        while self.in_progress.try_join_next().is_some() {}
        let (follower, planner) = (self.follower.clone(), self.planner.clone());
        let plan = Arc::clone(&planner.plan.borrow());
        // The requester may be gone; the order takes effect anyway.
        match order {
            Order::Suspend(what, reply) => {
                self.in_progress.spawn(async move {
                    let _gone = reply.send(suspend(&follower, &plan, what).await);
                });
            }
            Order::Resume(what, reply) => {
                self.in_progress.spawn(async move {
                    let _gone = reply.send(resume(&follower, &plan, what).await);
                });
            }
            Order::Release(which, reply) => {
                self.in_progress.spawn(async move {
                    let _gone = reply.send(release(&follower, &plan, which).await);
                });
            }
            Order::MuteAdvice(what, reply) => {
                let (advice, follower) = (self.advice.clone(), self.follower.clone());
                self.in_progress.spawn(async move {
                    let _gone = reply.send(mute(&advice, &follower, what).await);
                });
            }
            Order::Flush(which, reply) => {
                self.in_progress.spawn(async move {
                    let _gone = reply.send(flush(&planner, which).await);
                });
            }
            Order::Compact(what, reply) => {
                let (scanner, now) = (self.scanner.clone(), self.clock.now());
                self.in_progress.spawn(async move {
                    let Compact { target, ix, force, by } = what;
                    let ordered =
                        CompactionOrder { at: now, until: now.plus(ORDER_LIFETIME), by, force };
                    let tasks = (&planner, &follower, &scanner);
                    let _gone = reply.send(compact(tasks, (ix, target), ordered).await);
                });
            }
            Order::Rescan(reply) => {
                let begins = self.scanner.status.borrow().progress.is_none();
                let answer = match self.scanner.send(scan::ScanCommand::Sweep) {
                    None => Ok(RescanResult { begins }),
                    Some(_) => Err(stopping()),
                };
                let _gone = reply.send(answer);
            }
            order @ (Order::Reload(_) | Order::Quit) => {
                order.deny(Denied::Unavailable("this order is not available here".to_owned()));
            }
        }
    }
}

fn stopping() -> Denied {
    Denied::Unavailable("recliner is stopping, or too busy to take orders".to_owned())
}

/// Waits for the state of the previous process, which the order changes. An order that is refused
/// here has not been passed on, so that it cannot take effect later.
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
    Suspend { scope, why, by }: Suspend,
) -> Result<SuspendResult, Denied> {
    state_loaded(follower).await?;
    let already = follower.constraints.borrow().suspensions.0.contains_key(&scope);
    let kept = follower.suspend(scope.clone(), Some(by), why).await;
    let suspension = kept.map_err(order_failed)?;
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
    Ok(SuspendResult { suspension, already, running })
}

async fn mute(
    advice: &AdviceHandle,
    follower: &job_state::JobStateHandle,
    what: MuteOrder,
) -> Result<Option<Mute>, Denied> {
    state_loaded(follower).await?;
    advice.mute(what).await.map_err(|why| match why {
        MuteError::Unknown(why) => Denied::Unknown(why),
        MuteError::Store(why) => Denied::Failed(why.to_string()),
        MuteError::Unavailable => Denied::Unavailable(why.to_string()),
    })
}

async fn resume(
    follower: &job_state::JobStateHandle,
    plan: &Plan,
    what: Resume,
) -> Result<ResumeResult, Denied> {
    state_loaded(follower).await?;
    let suspended: Vec<SuspensionScope> =
        follower.constraints.borrow().suspensions.0.keys().cloned().collect();
    let (lifted, remaining): (Vec<SuspensionScope>, Vec<SuspensionScope>) = suspended
        .into_iter()
        .partition(|scope| what.scope == SuspensionScope::All || *scope == what.scope);
    // What is suspended may be gone by now.
    let is_known = match &what.scope {
        SuspensionScope::All => true,
        SuspensionScope::Node(name) => plan.snapshot.nodes().iter().any(|it| *it.name == **name),
        SuspensionScope::Channel(name) => plan.channels.find(name).is_some(),
    };
    if lifted.is_empty() && !is_known {
        return Err(Denied::Unknown(format!("{} is not suspended, and unknown", what.scope)));
    }
    for scope in &lifted {
        follower.resume(scope.clone(), Some(what.by.clone())).await.map_err(order_failed)?;
    }
    Ok(ResumeResult { lifted, remaining })
}

async fn release(
    follower: &job_state::JobStateHandle,
    plan: &Plan,
    which: Release,
) -> Result<ReleaseResult, Denied> {
    state_loaded(follower).await?;
    let targets = match which {
        Release::Named { selector, text } => {
            let quarantined = quarantined(follower, plan, Some(&selector));
            if quarantined.is_empty() {
                return Err(Denied::Unknown(format!("{text} is not in quarantine")));
            }
            quarantined
        }
        Release::All => quarantined(follower, plan, None),
    };
    for target in &targets {
        follower.release(Some(target.clone())).await.map_err(order_failed)?;
    }
    Ok(ReleaseResult { targets })
}

/// Targets in quarantine, optionally only those that match `only`.
fn quarantined(
    follower: &job_state::JobStateHandle,
    plan: &Plan,
    only: Option<&TargetSelector>,
) -> Vec<TargetId> {
    let history = follower.constraints.borrow();
    let rests = history.backoffs.iter();
    let held = rests.filter(|(_, rest)| matches!(rest, Backoff::Quarantined { .. }));
    held.filter_map(|(ix, _)| plan.snapshot.target(*ix).map(TargetRef::id))
        .filter(|id| only.is_none_or(|only| only.selects(id, None)))
        .collect()
}

/// Orders the compaction of a target, if a plan that includes the order starts it, or only a limit
/// delays it.
async fn compact(
    (planner, follower, scanner): (
        &planner::PlannerHandle,
        &job_state::JobStateHandle,
        &scan::ScanHandle,
    ),
    (ix, target): (TargetIx, TargetId),
    ordered: CompactionOrder,
) -> Result<CompactResult, Denied> {
    state_loaded(follower).await?;
    let others = follower.constraints.borrow().orders.keys().filter(|other| **other != ix).count();
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
        OrderAnswer::Starts(request) => (request, None),
        OrderAnswer::Waits(request, refusal) => (request, Some((refusal, why(&refusal)))),
        OrderAnswer::Refused(refusal, request) => {
            let (why, request) = (why(&refusal), request.map(|request| request.to_string()));
            return Err(Denied::Refused { target, refusal, why, request });
        }
        OrderAnswer::NotTaken => {
            let misses = plan.misses(found);
            let misses = misses.filter(|(_, miss)| miss.reason != MissReason::NotThisKind);
            let misses = misses.map(|(channel, miss)| MissLine::new(channel, miss)).collect();
            return Err(Denied::NotTaken { target, misses });
        }
    };
    let until = ordered.until;
    follower.order(target, ordered).await.map_err(order_failed)?;
    if waits.as_ref().is_some_and(|(refusal, _)| refusal.reason == RefusalReason::Stale) {
        // If the scanner's queue is full, the next sweep reads it.
        let _full = scanner.send(scan::ScanCommand::Reread(vec![ix]));
    }
    Ok(CompactResult { requests: vec![request.to_string()], waits, until })
}

async fn flush(
    planner: &planner::PlannerHandle,
    FlushScope { node, channel }: FlushScope,
) -> Result<FlushResult, Denied> {
    let targets = planner.flush(node, channel).await.ok_or_else(stopping)?;
    Ok(FlushResult { targets })
}

fn order_failed(why: job_state::NotPersisted) -> Denied {
    Denied::Failed(why.to_string())
}

#[cfg(test)]
mod tests;
