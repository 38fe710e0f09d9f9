//! A pass: what tidying the waiting targets would do, in which order, and whether it should still
//! wait for anything.
//!
//! Pure. Runs the planner again and again, each time as if the starts of the previous plan had
//! ended, because the space that one compaction frees is room for the next. The command `tidy`
//! prints the pass and follows it.

use super::{
    conditions::Conditions,
    published::{Decision, Plan},
    queues::Queues,
    refusal::{Refusal, RefusalReason},
    rules::Rules,
    start::PlannedStart,
};
use crate::{
    jobs::JobPhase,
    model::{
        records::{Backoff, JobOwner},
        settings::limits::Limits,
        target::TargetId,
    },
    table::{NodeIx, TargetIx},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use wall_clock::Moment;

/// Maximum number of plans in one outlook; a longer outlook is cut short and says so.
const MAX_ROUNDS: usize = 2_000;

/// What tidying would do from now until it ends.
#[derive(Clone, Debug, Default)]
pub struct TidyOutlook {
    /// The starts, in order.
    pub starts: Vec<PlannedStart>,
    /// The targets that would be left, with the reasons.
    pub left: Vec<(TargetIx, Refusal)>,
    /// Free bytes of the fullest volume at the end, where they can be predicted.
    pub free_bytes: Option<u64>,
    /// Whether there are more starts than the outlook has.
    pub is_cut: bool,
}

/// What a pass still waits for.
#[derive(Clone, Debug, PartialEq)]
pub enum TidyState {
    /// Nothing: all remaining targets wait for something that the pass does not bring about.
    Ended,
    /// A compaction of this process is running, or one starts now.
    Works,
    /// A target waits for a reason that passes without any action.
    Waits(TargetIx, Refusal),
}

impl Plan {
    /// Free bytes of the fullest volume; `None` without volumes, or if the free space of any volume
    /// is unknown.
    #[must_use]
    pub fn least_free_bytes(&self) -> Option<u64> {
        let volumes = &self.conditions.disks.volumes;
        let known = volumes.iter().map(|volume| volume.space.map(|space| space.available));
        known.min().flatten()
    }

    /// What a pass from now would do, until this much is free if a size is given.
    #[must_use]
    pub fn tidy_outlook(&self, until_free: Option<u64>) -> TidyOutlook {
        let mut conditions = self.undisturbed();
        // The pace of starts does not change their order.
        let limits = Limits {
            bytes_per_hour: u64::MAX,
            wait: Duration::ZERO,
            duty_percent: 100.0,
            ..self.rules.limits
        };
        let rules = Arc::new(Rules { limits, ..(*self.rules).clone() });
        let mut queues = Queues::new(Arc::clone(&self.channels));
        queues.apply_snapshot(&self.snapshot, self.planned_at);
        queues.update_prices(&self.snapshot, &conditions, &rules, self.planned_at);
        let (mut outlook, mut done) = (TidyOutlook::default(), BTreeSet::new());
        for round in 0.. {
            let plan = queues.make_plan(&self.snapshot, &conditions, &rules, self.planned_at);
            let has_enough =
                until_free.zip(plan.least_free_bytes()).is_some_and(|(goal, free)| free >= goal);
            outlook.is_cut = round == MAX_ROUNDS && !plan.starts.is_empty();
            if has_enough || plan.starts.is_empty() || outlook.is_cut {
                outlook.free_bytes = plan.least_free_bytes();
                if !has_enough {
                    outlook.left = plan.left(|ix, _| done.contains(&ix));
                    outlook.left.retain(|(_, refusal)| !passes(refusal));
                }
                break;
            }
            for start in plan.starts.iter() {
                if plan.end_start(start, &mut conditions) {
                    done.insert(start.ix);
                }
            }
            outlook.starts.extend(plan.starts.iter().cloned());
        }
        outlook
    }

    /// The conditions without temporary ones: running jobs and busy nodes.
    fn undisturbed(&self) -> Conditions {
        let mut conditions = self.conditions.clone();
        // Keeps the record that each node was polled: otherwise its files' facts would count as
        // running jobs.
        Arc::make_mut(&mut conditions.jobs).list.clear();
        let nodes = &mut Arc::make_mut(&mut conditions.pressures).nodes;
        nodes.values_mut().for_each(|node| node.hold = None);
        Arc::make_mut(&mut conditions.constraints).enforcing_since = None;
        conditions
    }

    /// Changes the conditions as if a start had ended as predicted; returns whether every copy of
    /// its target is done.
    fn end_start(&self, start: &PlannedStart, conditions: &mut Conditions) -> bool {
        let constraints = Arc::make_mut(&mut conditions.constraints);
        constraints.orders.remove(&start.ix);
        let target = self.snapshot.target(start.ix);
        let ends = match (start.node, &start.shard) {
            (node, Some(_)) if node != NodeIx::CLUSTER => {
                let compacted = constraints.partly_compacted_views.entry(start.ix).or_default();
                compacted.insert(node);
                target.is_none_or(|target| target.is_round_over(compacted))
            }
            _ => true,
        };
        if ends {
            constraints.partly_compacted_views.remove(&start.ix);
            let (since, until) = (self.planned_at, Moment::from_unix(u64::MAX));
            constraints.backoffs.insert(start.ix, Backoff::CoolDown { since, until });
        }
        self.free_space(start, conditions);
        ends
    }

    /// Adds the bytes that a start frees to the only volume of its node. With several volumes, or
    /// several nodes with the file, it is unknown which one gains. A free space that the operator
    /// states never changes.
    fn free_space(&self, start: &PlannedStart, conditions: &mut Conditions) {
        let node = match start.node {
            NodeIx::CLUSTER => self.snapshot.only_node(),
            node => self.snapshot.node(node),
        };
        let (Some(node), Some(gain)) = (node, start.gain_bytes) else { return };
        if self.conditions.disks.of_node(&node.name).count() != 1 {
            return;
        }
        let volumes = Arc::make_mut(&mut conditions.disks).volumes.iter_mut();
        for volume in volumes.filter(|it| !it.is_stated && it.nodes.contains(&node.name)) {
            if let Some(space) = &mut volume.space {
                space.available = space.available.saturating_add(gain);
            }
        }
    }

    /// The queued targets that do not start, for reasons that do not pass by themselves and leave
    /// something worth doing undone; without those that are done.
    pub fn left(&self, is_done: impl Fn(TargetIx, &TargetId) -> bool) -> Vec<(TargetIx, Refusal)> {
        let stays =
            |reason: RefusalReason| !is_nothing_to_do(reason) && reason != RefusalReason::Running;
        let queued = self.queued_targets().filter(|(.., reason)| reason.is_some_and(stays));
        let left = queued.filter_map(|(_, ix, ..)| {
            let target = self.snapshot.target(ix)?;
            match self.decision(target) {
                Decision::Refused(refusal) if !is_done(ix, &target.id()) => Some((ix, refusal)),
                Decision::Refused(_) | Decision::Start | Decision::NotTaken => None,
            }
        });
        left.collect()
    }

    /// What a pass still waits for, given the targets it began with and those that it has
    /// compacted.
    #[must_use]
    pub fn tidy_state(
        &self,
        begun_with: &BTreeSet<TargetId>,
        done: &BTreeSet<TargetId>,
    ) -> TidyState {
        if self.own_jobs().next().is_some() {
            return TidyState::Works;
        }
        let in_round = &self.conditions.constraints.partly_compacted_views;
        let orders = self.conditions.constraints.orders.keys().copied();
        let queued = self.queued_targets().map(|(_, ix, ..)| ix);
        let mut waits = TidyState::Ended;
        for ix in orders.chain(queued) {
            let Some(target) = self.snapshot.target(ix) else { continue };
            let id = target.id();
            if !begun_with.contains(&id) || (done.contains(&id) && !in_round.contains_key(&ix)) {
                continue;
            }
            match self.decision(target) {
                Decision::Start => return TidyState::Works,
                Decision::Refused(refusal) if passes(&refusal) => {
                    waits = TidyState::Waits(ix, refusal);
                }
                Decision::Refused(_) | Decision::NotTaken => {}
            }
        }
        waits
    }

    /// The targets of the compactions that this process started and that have not ended, with
    /// whether CouchDB is known to run each.
    pub fn own_jobs(&self) -> impl Iterator<Item = (TargetIx, bool)> {
        let own = self.conditions.jobs.compactions().filter(|job| job.owner == JobOwner::Recliner);
        own.filter_map(|job| Some((job.target?, job.phase != JobPhase::Starting)))
    }
}

/// Whether a refusal means that nothing is worth doing, or that the operator configured recliner
/// only to advise.
const fn is_nothing_to_do(reason: RefusalReason) -> bool {
    matches!(reason, RefusalReason::Futile | RefusalReason::NoEvidence | RefusalReason::Mode)
}

/// Whether a pass waits until a refusal ends: it does for slots, turns, measurements, compactions
/// that others started, and busy nodes.
fn passes(refusal: &Refusal) -> bool {
    refusal.is_transient()
        || matches!(refusal.reason, RefusalReason::Running | RefusalReason::Pressure)
}
