//! Runs: which members go first in a plan, and how far a run has come.
//!
//! Pure. A run's members are ordered like single targets, plan by plan, so that every gate, limit
//! and window applies to them; so do `limits.duty` and reserved slots, which an order for one
//! target does not wait for.

use super::{
    candidate_summary::{Blocker, CandidateSummary},
    conditions::Conditions,
    leading,
    published::{Decision, Plan},
    queue_view::{PublishedQueues, QueueKey},
    refusal::{Refusal, RefusalClass, RefusalReason},
};
use crate::{
    jobs::Job,
    model::{
        channel::Channels,
        records::{CompactionOrder, LeftOut, LeftOutMember, Run, RunEnd, RunEnding, RunScope},
        target::{TargetKind, TargetState},
    },
    table::{DbIx, NodeIx, Snapshot, TargetIx, TargetRef},
    text::Label as _,
};
use hashbrown::HashMap;
use ordered_float::OrderedFloat;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use wall_clock::Moment;

/// Members of runs that one queue offers first at a time, the best of them: more than can start
/// before the next plan.
const MAX_ORDERED: usize = 256;

/// Members that are named for each reason.
const MAX_EXAMPLES: usize = 20;

/// The number of a run that is only supposed.
pub const SUPPOSED_RUN: u64 = u64::MAX;

/// Whether a target is in the scope of a run and was not compacted since it began. Names are looked
/// up once, because there are far more targets than names.
fn to_do(
    number: u64,
    run: &Run,
    conditions: &Conditions,
    snapshot: &Snapshot,
) -> impl Fn(TargetRef<'_>) -> bool + use<> {
    let (scope, constraints) = (run.scope.clone(), Arc::clone(&conditions.constraints));
    let (wanted_db, wanted_node) = match &scope {
        RunScope::Database(name) => (Some(&**name), None),
        RunScope::Node(name) => (None, Some(&**name)),
        RunScope::All => (None, None),
    };
    let dbs = snapshot.databases().filter(|(_, db)| Some(db.db) == wanted_db);
    let dbs: Vec<DbIx> = dbs.map(|(ix, _)| ix).collect();
    let node = snapshot.nodes().iter().position(|node| Some(&*node.name) == wanted_node);
    let node = node.and_then(NodeIx::from_usize);
    move |target| {
        let is_db = |_: &str| dbs.contains(&target.db());
        let is_node = |_: &str| node == Some(target.node_ix());
        scope.covers(target.kind(), is_db, is_node)
            && !target.is_part()
            && constraints.done_in_run.get(&target.ix()).is_none_or(|done| *done < number)
    }
}

/// The channel that a member counts towards; `None` if it is no member.
fn channel_of(
    run: &Run,
    channels: &Channels,
    placed: Option<usize>,
    target: TargetRef<'_>,
) -> Option<usize> {
    let forced = || run.force.then(|| leading::forced_channel(channels, target)).flatten();
    placed.or_else(forced)
}

/// The conditions with an order for each member of an active run that may start next.
pub(super) fn with_members_ordered(
    conditions: &Conditions,
    waiting: &PublishedQueues,
    snapshot: &Snapshot,
) -> Conditions {
    let constraints = &conditions.constraints;
    let active = constraints.runs.active();
    let runs: Vec<(u64, &Run, _)> = active
        .map(|(number, run)| (number, run, to_do(number, run, conditions, snapshot)))
        .collect();
    if runs.is_empty() {
        return conditions.clone();
    }
    let mut best: HashMap<QueueKey, BTreeSet<_>> = HashMap::new();
    for target in snapshot.targets().filter(|it| !constraints.orders.contains_key(&it.ix())) {
        let mut covering = runs.iter().filter(|(_, run, is_to_do)| {
            is_to_do(target) && (run.force || !constraints.backoffs.contains_key(&target.ix()))
        });
        let placement = waiting.placements.get(target.ix().as_usize());
        let placed = placement.and_then(|it| it.channel_index());
        let Some((number, run, channel)) = covering.find_map(|(number, run, _)| {
            Some((*number, run, channel_of(run, &waiting.channels, placed, target)?))
        }) else {
            continue;
        };
        let blocker = CandidateSummary::of(target).blocker;
        if blocker != Blocker::None && !(run.force && blocker == Blocker::FreesLittle) {
            continue;
        }
        let priority = placement.map_or(0.0, |it| it.priority);
        let queue = best.entry((target.node_ix(), channel)).or_default();
        queue.insert((Reverse(OrderedFloat(priority)), target.ix(), number));
        if queue.len() > MAX_ORDERED {
            queue.pop_last();
        }
    }
    let orders: Vec<(TargetIx, CompactionOrder)> = best
        .into_values()
        .flatten()
        .filter_map(|(_, ix, number)| {
            let run = constraints.runs.0.get(&number)?;
            let by = format!("{} (run {number})", run.by);
            let (at, until, force) = (run.at, run.stalls_at(), run.force);
            Some((ix, CompactionOrder { at, until, by, force, run: Some(number) }))
        })
        .collect();
    let mut conditions = conditions.clone();
    Arc::make_mut(&mut conditions.constraints).orders.extend(orders);
    conditions
}

/// What a run does about a target of its scope that was not compacted since it began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Member {
    /// It is being compacted.
    Runs,
    /// It starts now.
    Starts,
    /// It starts once this passes.
    Waits(Refusal),
    /// Nothing but a change of the settings, of the target or by an operator ends this, so that the
    /// run goes on without it.
    LeftOut(Refusal),
    /// An index of which nobody can say whether it is worth it: its size is unknown.
    Unmeasured,
}

/// Whether a run goes on without members that are refused like this.
fn is_left_out(refusal: &Refusal) -> bool {
    let never_passes = refusal.reason.class() == RefusalClass::InLine && !refusal.is_transient();
    never_passes
        || refusal.reason.is_never()
        || matches!(refusal.reason, RefusalReason::Mode | RefusalReason::UnknownDisk)
}

/// The members of a run that were not compacted since it began.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunProgress {
    /// Number of members that are being compacted.
    pub running: u64,
    /// Number of members that start now.
    pub starting: u64,
    /// Members that start once something passes, by what that is.
    pub waiting: BTreeMap<RefusalReason, LeftOut>,
    /// Members that the run goes on without, by reason.
    pub left_out: BTreeMap<RefusalReason, LeftOut>,
    /// Number of indexes of the scope whose size is unknown.
    pub unmeasured: u64,
    /// Bytes that those that run, start or wait are predicted to free.
    pub reclaimable_bytes: u64,
    /// Bytes that they are predicted to write on each node; those of views on the pseudo-node.
    write_bytes: BTreeMap<NodeIx, f64>,
}

impl RunProgress {
    /// Number of members that run, start or wait.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        let waiting: u64 = self.waiting.values().map(|group| group.members).sum();
        self.running + self.starting + waiting
    }

    /// Seconds that the rest takes, if every node always has a compaction to run and rests as
    /// `limits.duty` says; `None` before any rate was measured, or while all wait for something
    /// that neither time nor the end of a job brings.
    #[must_use]
    pub fn seconds_left(&self, plan: &Plan) -> Option<f64> {
        let may_go_on = |reason: &RefusalReason| reason.is_of_turn();
        if self.running + self.starting == 0 && !self.waiting.keys().any(may_go_on) {
            return None;
        }
        let rate = plan.conditions.constraints.measured_rate()?;
        let views = self.write_bytes.get(&NodeIx::CLUSTER).copied().unwrap_or(0.0);
        let members = plan.snapshot.nodes().iter().filter(|node| node.is_member).count();
        let of_nodes = self.write_bytes.iter().filter(|(node, _)| **node != NodeIx::CLUSTER);
        let longest = of_nodes.map(|(_, bytes)| *bytes).fold(0.0, f64::max);
        let bytes = longest + views / members.max(1) as f64;
        Some(bytes / rate * 100.0 / plan.rules.limits.duty_percent)
    }

    /// The end of a run now, by an operator if there is a `by`: members that could have started are
    /// left for the reason for which they wait.
    #[must_use]
    pub fn end(&self, run: &Run, (how, at): (RunEnding, Moment), by: Option<String>) -> RunEnd {
        let members = run.done() + self.remaining();
        let late = self.waiting.values().cloned().chain(unnamed(how.label(), self.starting));
        let left_out = self.left_out_groups().into_iter().chain(late).collect();
        RunEnd { at, how, by, members, left_out }
    }

    /// What the run goes on without.
    #[must_use]
    pub fn left_out_groups(&self) -> Vec<LeftOut> {
        self.left_out.values().cloned().chain(unnamed("unmeasured", self.unmeasured)).collect()
    }
}

/// Members for a reason that no refusal has.
fn unnamed(reason: &str, members: u64) -> Option<LeftOut> {
    (members > 0).then(|| LeftOut { reason: reason.to_owned(), members, examples: Vec::new() })
}

/// Adds a member to those that wait, or are left out, for the same reason.
fn add(
    groups: &mut BTreeMap<RefusalReason, LeftOut>,
    refusal: &Refusal,
    member: impl FnOnce() -> LeftOutMember,
) {
    let group = groups.entry(refusal.reason).or_insert_with(|| LeftOut {
        reason: refusal.reason.label().to_owned(),
        members: 0,
        examples: Vec::new(),
    });
    group.members += 1;
    if group.examples.len() < MAX_EXAMPLES {
        group.examples.push(member());
    }
}

impl Plan {
    /// What a run does about each target of its scope that was not compacted since it began, and
    /// that is worth it.
    pub fn run_members<'a>(
        &'a self,
        number: u64,
        run: &'a Run,
    ) -> impl Iterator<Item = (TargetRef<'a>, Member)> {
        let jobs = self.conditions.jobs.compactions();
        let running: BTreeSet<TargetIx> = jobs.filter_map(|job: &Job| job.target).collect();
        let is_to_do = to_do(number, run, &self.conditions, &self.snapshot);
        let constraints = &self.conditions.constraints;
        // For most targets this is known without a decision.
        let is_untaken = |ix: TargetIx| {
            let placement = self.placements.get(ix.as_usize());
            placement.is_none_or(|it| it.channel_index().is_none())
                && !constraints.orders.contains_key(&ix)
                && !constraints.partly_compacted_views.contains_key(&ix)
        };
        self.snapshot.targets().filter(move |it| is_to_do(*it)).filter_map(move |target| {
            if running.contains(&target.ix()) {
                return Some((target, Member::Runs));
            }
            let decision =
                if is_untaken(target.ix()) { Decision::NotTaken } else { self.decision(target) };
            let member = match decision {
                Decision::Start => Member::Starts,
                Decision::Refused(refusal) if refusal.reason == RefusalReason::Running => {
                    Member::Runs
                }
                Decision::Refused(refusal) if is_left_out(&refusal) => Member::LeftOut(refusal),
                Decision::Refused(refusal) => Member::Waits(refusal),
                Decision::NotTaken => {
                    let is_unknown = target.file_bytes().is_none()
                        && matches!(target.state(), TargetState::Ok | TargetState::Resharding);
                    let waits = |reason| Member::Waits(Refusal::without_numbers(reason));
                    match channel_of(run, &self.channels, None, target) {
                        // Better members of its queue are ordered before it.
                        Some(_) => waits(RefusalReason::ChannelLimit),
                        None if !is_unknown => return None,
                        // Its node has not answered yet.
                        None if target.kind() == TargetKind::Db => waits(RefusalReason::Stale),
                        None => Member::Unmeasured,
                    }
                }
            };
            Some((target, member))
        })
    }

    /// How far a run has come; `why` says in a sentence why a member does not start.
    #[must_use]
    pub fn run_progress(
        &self,
        number: u64,
        run: &Run,
        why: impl Fn(TargetRef<'_>, &Refusal) -> Option<String>,
    ) -> RunProgress {
        let mut progress = RunProgress::default();
        for (target, member) in self.run_members(number, run) {
            let named = |refusal: &Refusal| {
                let (id, why) = (target.id().to_string(), why(target, refusal));
                LeftOutMember { id, why }
            };
            match member {
                Member::Runs => progress.running += 1,
                Member::Starts => progress.starting += 1,
                Member::Waits(refusal) => {
                    add(&mut progress.waiting, &refusal, || named(&refusal));
                }
                Member::LeftOut(refusal) => {
                    add(&mut progress.left_out, &refusal, || named(&refusal));
                    continue;
                }
                Member::Unmeasured => {
                    progress.unmeasured += 1;
                    continue;
                }
            }
            let forecast = self.forecast(target);
            let frees = forecast.reclaimable_bytes.unwrap_or(0);
            progress.reclaimable_bytes = progress.reclaimable_bytes.saturating_add(frees);
            let writes = progress.write_bytes.entry(target.node_ix()).or_default();
            *writes += forecast.predicted_bytes.unwrap_or(0) as f64;
        }
        progress
    }

    /// The end of a run, if nothing is left to start or to wait for, or if it waited too long.
    #[must_use]
    pub fn run_end(&self, number: u64, run: &Run, now: Moment) -> Option<RunEnd> {
        let is_pending =
            |member: &Member| matches!(member, Member::Runs | Member::Starts | Member::Waits(_));
        let is_running = |member: &Member| *member == Member::Runs;
        let mut members = self.run_members(number, run).map(|(_, member)| member);
        let how = if !members.any(|member| is_pending(&member)) {
            RunEnding::Done
        } else if run.is_active()
            && run.stalls_at() <= now
            && !self.run_members(number, run).any(|(_, member)| is_running(&member))
        {
            RunEnding::Stalled
        } else {
            return None;
        };
        Some(self.run_progress(number, run, |_, _| None).end(run, (how, now), None))
    }
}
