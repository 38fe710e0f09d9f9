//! Carries an operator's orders to the task that each is for, and the answer back.
//!
//! Owns orders that are under way. Decides nothing: HTTP checked who asks and for what.

use super::Watch;
use crate::{
    follower,
    http::{
        Order,
        orders::{
            Denied, Flush, Flushed, Release, Released, Rescanning, Resume, Resumed, Suspend,
            Suspended,
        },
    },
    memory::{Rest, Scope},
    plan::Plan,
    planner, scanner,
    snapshot::TargetRef,
    target::TargetId,
};
use std::sync::Arc;
use tokio::task::JoinSet;

/// The tasks that take orders.
#[derive(Debug)]
pub(super) struct Operator {
    scanner: scanner::Handle,
    planner: planner::Handle,
    follower: follower::Handle,
    under_way: JoinSet<()>,
}

impl Operator {
    pub(super) fn new(watch: &Watch) -> Self {
        Self {
            scanner: watch.scanner.clone(),
            planner: watch.planner.clone(),
            follower: watch.follower.clone(),
            under_way: JoinSet::new(),
        }
    }

    /// Carries an order out, and answers it when that is done.
    pub(super) fn take(&mut self, order: Order) {
        while self.under_way.try_join_next().is_some() {}
        let (follower, planner) = (self.follower.clone(), self.planner.clone());
        let plan = Arc::clone(&planner.plan.borrow());
        // Whoever asked may have gone; what was ordered counts all the same.
        match order {
            Order::Suspend(what, reply) => {
                self.under_way.spawn(async move {
                    let _gone = reply.send(suspend(&follower, &plan, what).await);
                });
            }
            Order::Resume(what, reply) => {
                self.under_way.spawn(async move {
                    let _gone = reply.send(resume(&follower, what).await);
                });
            }
            Order::Release(which, reply) => {
                self.under_way.spawn(async move {
                    let _gone = reply.send(release(&follower, &plan, which).await);
                });
            }
            Order::Flush(which, reply) => {
                self.under_way.spawn(async move {
                    let _gone = reply.send(flush(&planner, which).await);
                });
            }
            Order::Rescan(reply) => {
                let begins = self.scanner.status.borrow().progress.is_none();
                let answer = match self.scanner.send(scanner::Command::Sweep) {
                    None => Ok(Rescanning { begins }),
                    Some(_) => Err(stopping()),
                };
                let _gone = reply.send(answer);
            }
            order @ (Order::Reload(_) | Order::Quit | Order::Compact(..)) => {
                order.deny(Denied::Unavailable("this recliner takes no such order".to_owned()));
            }
        }
    }
}

fn stopping() -> Denied {
    Denied::Unavailable("recliner is stopping, or too busy to take orders".to_owned())
}

async fn suspend(
    follower: &follower::Handle,
    plan: &Plan,
    Suspend { scope, why }: Suspend,
) -> Result<Suspended, Denied> {
    let before = follower.history.borrow().suspensions.0.get(&scope).cloned();
    let why = why.or_else(|| before.as_ref().and_then(|it| it.why.clone()));
    follower.suspend(scope.clone(), why).await.map_err(failed)?;
    let since = follower.history.borrow().suspensions.0.get(&scope).map(|it| it.since);
    let jobs = Arc::clone(&follower.jobs.borrow());
    let running = (!jobs.polled.is_empty()).then(|| {
        let runs = jobs.compactions().filter(|job| match &scope {
            Scope::All => true,
            Scope::Node(name) => {
                plan.snapshot.node(job.key.node).is_some_and(|node| *node.name == **name)
            }
            Scope::Channel(name) => job.channel.as_deref() == Some(name),
        });
        runs.count() as u64
    });
    let since = since.or_else(|| before.as_ref().map(|it| it.since)).unwrap_or(plan.made_at);
    Ok(Suspended { since, already: before.is_some(), running })
}

async fn resume(follower: &follower::Handle, what: Resume) -> Result<Resumed, Denied> {
    let suspended: Vec<Scope> = follower.history.borrow().suspensions.0.keys().cloned().collect();
    let (lifted, remaining): (Vec<Scope>, Vec<Scope>) =
        suspended.into_iter().partition(|scope| what.scope == Scope::All || *scope == what.scope);
    for scope in &lifted {
        follower.resume(scope.clone()).await.map_err(failed)?;
    }
    Ok(Resumed { lifted, remaining })
}

async fn release(
    follower: &follower::Handle,
    plan: &Plan,
    which: Release,
) -> Result<Released, Denied> {
    let targets = match which {
        Release::One(id) => {
            let quarantined = quarantined(follower, plan, Some(&id));
            if quarantined.is_empty() {
                return Err(Denied::Unknown(format!("{id} is in no quarantine")));
            }
            quarantined
        }
        Release::All => quarantined(follower, plan, None),
    };
    for target in &targets {
        follower.release(Some(target.clone())).await.map_err(failed)?;
    }
    Ok(Released { targets })
}

/// Targets in quarantine: all, or this one if it is.
fn quarantined(follower: &follower::Handle, plan: &Plan, only: Option<&TargetId>) -> Vec<TargetId> {
    let history = follower.history.borrow();
    let rests = history.rests.iter();
    let held = rests.filter(|(_, rest)| matches!(rest, Rest::Quarantined { .. }));
    held.filter_map(|(ix, _)| plan.snapshot.target(*ix).map(TargetRef::id))
        .filter(|id| only.is_none_or(|only| only == id))
        .collect()
}

async fn flush(
    planner: &planner::Handle,
    Flush { node, channel }: Flush,
) -> Result<Flushed, Denied> {
    let targets = planner.flush(node, channel).await.ok_or_else(stopping)?;
    Ok(Flushed { targets })
}

fn failed(why: follower::NotKept) -> Denied {
    Denied::Failed(why.to_string())
}
