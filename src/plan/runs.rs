//! Runs: which members go first in a plan, and a run's progress.
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
    jobs::{Job, TargetConstraints},
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

/// Maximum number of a queue's run members that are offered ahead of the queue at a time, best
/// first: more than can start before the next plan.
const MAX_ORDERED: usize = 256;

/// Maximum number of members named for each reason.
const MAX_EXAMPLES: usize = 20;

/// The number of a hypothetical run.
pub const SUPPOSED_RUN: u64 = u64::MAX;

/// A run whose names were looked up: there are far more targets than names.
struct OpenRun<'a> {
    number: u64,
    run: &'a Run,
    /// The instances of its database, if it is restricted to one.
    dbs: Option<Vec<DbIx>>,
    /// Its node, if it is restricted to one that is known.
    node: Option<NodeIx>,
    constraints: &'a TargetConstraints,
}

impl<'a> OpenRun<'a> {
    fn new(number: u64, run: &'a Run, conditions: &'a Conditions, snapshot: &Snapshot) -> Self {
        let (wanted_db, wanted_node) = run.scope.names();
        let dbs = wanted_db.map(|wanted| {
            let dbs = snapshot.databases().filter(|(_, db)| db.db == wanted);
            dbs.map(|(ix, _)| ix).collect()
        });
        let node = snapshot.nodes().iter().position(|node| Some(&*node.name) == wanted_node);
        let node = node.and_then(NodeIx::from_usize);
        Self { number, run, dbs, node, constraints: &conditions.constraints }
    }

    /// Whether a target of this database may be in the scope.
    fn covers_db(&self, db: DbIx) -> bool {
        self.dbs.as_ref().is_none_or(|dbs| dbs.contains(&db))
    }

    /// Whether a target is in the scope and was not compacted since the run began.
    fn is_to_do(&self, target: TargetRef<'_>) -> bool {
        let is_db = |_: &str| self.covers_db(target.db());
        let is_node = |_: &str| self.node == Some(target.node_ix());
        self.run.scope.covers(target.kind(), is_db, is_node)
            && !target.is_part()
            && self.constraints.done_in_run.get(&target.ix()).is_none_or(|it| *it < self.number)
    }

    /// The channel that a target counts towards if an order of this run may start it.
    fn offers(
        &self,
        channels: &Channels,
        placed: Option<usize>,
        target: TargetRef<'_>,
        blocker: impl FnOnce() -> Blocker,
    ) -> Option<usize> {
        let force = self.run.force;
        let is_wanted = self.is_to_do(target)
            && !self.constraints.orders.contains_key(&target.ix())
            && (force || !self.constraints.backoffs.contains_key(&target.ix()));
        let channel = channel_of(self.run, channels, placed, target).filter(|_| is_wanted)?;
        let blocker = blocker();
        (blocker == Blocker::None || force && blocker == Blocker::FreesLittle).then_some(channel)
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
    let active = conditions.constraints.runs.active();
    let runs: Vec<OpenRun<'_>> =
        active.map(|(number, run)| OpenRun::new(number, run, conditions, snapshot)).collect();
    if runs.is_empty() {
        return conditions.clone();
    }
    let mut offered = Vec::new();
    // Queues whose targets may be offered too although they did not fit into the queue.
    let mut overflowing = BTreeSet::new();
    for queue in waiting.queues.iter() {
        let channel = queue.channel_index;
        let of_candidate = |candidate: &CandidateSummary| {
            let mut covering = runs.iter().filter(|run| run.covers_db(candidate.db));
            let by = |run: &OpenRun<'_>| {
                let target = snapshot.target(candidate.ix)?;
                run.offers(&waiting.channels, Some(channel), target, || candidate.blocker)
            };
            covering.find_map(|run| by(run).map(|_| (candidate.ix, run.number)))
        };
        let best: Vec<_> =
            queue.summaries.iter().filter_map(of_candidate).take(MAX_ORDERED).collect();
        if queue.overflow > 0 && best.len() < MAX_ORDERED {
            overflowing.insert((queue.node, channel));
        } else {
            offered.extend(best);
        }
    }
    if !overflowing.is_empty() || runs.iter().any(|run| run.run.force) {
        offered.extend(best_outside_queues(&runs, waiting, &overflowing, snapshot));
    }
    let orders: Vec<(TargetIx, CompactionOrder)> = offered
        .into_iter()
        .filter_map(|(ix, number)| {
            let run = conditions.constraints.runs.0.get(&number)?;
            let by = format!("{} (run {number})", run.by);
            let (at, until, force) = (run.at, run.stalls_at(), run.force);
            Some((ix, CompactionOrder { at, until, by, force, run: Some(number) }))
        })
        .collect();
    drop(runs);
    let mut conditions = conditions.clone();
    Arc::make_mut(&mut conditions.constraints).orders.extend(orders);
    conditions
}

/// The best members, with the numbers of their runs, among targets that no channel takes and those of
/// overflowing queues. It looks at every target.
fn best_outside_queues(
    runs: &[OpenRun<'_>],
    waiting: &PublishedQueues,
    overflowing: &BTreeSet<QueueKey>,
    snapshot: &Snapshot,
) -> Vec<(TargetIx, u64)> {
    let mut best: HashMap<QueueKey, BTreeSet<_>> = HashMap::new();
    for target in snapshot.targets() {
        let placement = waiting.placements.get(target.ix().as_usize());
        let placed = placement.and_then(|it| it.channel_index());
        if placed.is_some_and(|channel| !overflowing.contains(&(target.node_ix(), channel))) {
            continue;
        }
        let blocker = || CandidateSummary::of(target).blocker;
        let Some((number, channel)) = runs.iter().find_map(|run| {
            Some((run.number, run.offers(&waiting.channels, placed, target, blocker)?))
        }) else {
            continue;
        };
        let priority = placement.map_or(0.0, |it| it.priority);
        let queue = best.entry((target.node_ix(), channel)).or_default();
        queue.insert((Reverse(OrderedFloat(priority)), target.ix(), number));
        if queue.len() > MAX_ORDERED {
            queue.pop_last();
        }
    }
    best.into_values().flatten().map(|(_, ix, number)| (ix, number)).collect()
}

/// What a run does with a target of its scope that has not been compacted since the run began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Member {
    /// It is being compacted.
    Runs,
    /// It starts now.
    Starts,
    /// It starts once this reason passes.
    Waits(RefusalReason),
    /// Only a change of the settings, of the target or by an operator ends this reason, so the run
    /// goes on without it.
    LeftOut(RefusalReason),
    /// An index of unknown size: nobody can say whether compacting it is worth it.
    Unmeasured,
}

impl Member {
    /// What a run does about a member that does not start for this reason.
    fn refused(reason: RefusalReason, is_left_out: bool) -> Self {
        if reason == RefusalReason::Running {
            return Self::Runs;
        }
        if is_left_out { Self::LeftOut(reason) } else { Self::Waits(reason) }
    }
}

/// Whether a run goes on without members that are refused for this reason.
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
    /// Members that start once a reason passes, by reason.
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

    /// Seconds that the rest of the run takes if every node always has a compaction to run and rests as
    /// `limits.duty` requires. `None` before any rate was measured, or while all members wait for
    /// something that neither time nor the end of a job brings.
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

    /// The members that the run goes on without, by reason.
    #[must_use]
    pub fn left_out_groups(&self) -> Vec<LeftOut> {
        self.left_out.values().cloned().chain(unnamed("unmeasured", self.unmeasured)).collect()
    }
}

/// Members for a reason that no refusal has.
fn unnamed(reason: &str, members: u64) -> Option<LeftOut> {
    (members > 0).then(|| LeftOut { reason: reason.to_owned(), members, examples: Vec::new() })
}

/// Why each queued target does not start, by row: looking it up is far cheaper than deciding again.
struct QueuedReasons {
    by_row: Vec<Option<Option<RefusalReason>>>,
    /// Whether a run goes on without the members of a queue that are refused for a reason. Slots that
    /// no job ever frees can be recognised only from a refusal's numbers, which are the same for the
    /// whole queue.
    left_out: BTreeMap<(QueueKey, RefusalReason), bool>,
}

impl QueuedReasons {
    fn of(plan: &Plan) -> Self {
        let mut by_row = vec![None; plan.snapshot.row_count()];
        let mut left_out = BTreeMap::new();
        for (node, ix, channel, reason) in plan.queued_targets() {
            if let Some(place) = by_row.get_mut(ix.as_usize()) {
                *place = Some(reason);
            }
            if let (Some(reason), Some(target)) = (reason, plan.snapshot.target(ix)) {
                left_out.entry(((node, channel), reason)).or_insert_with(
                    || matches!(plan.decision(target), Decision::Refused(it) if is_left_out(&it)),
                );
            }
        }
        Self { by_row, left_out }
    }

    /// What a run does about a queued member; `None` if the target is not queued.
    fn member(&self, plan: &Plan, target: TargetRef<'_>) -> Option<Member> {
        let reason = *self.by_row.get(target.ix().as_usize())?;
        let Some(reason) = reason? else { return Some(Member::Starts) };
        let channel = plan.placements.get(target.ix().as_usize())?.channel_index()?;
        let is_left_out = *self.left_out.get(&((target.node_ix(), channel), reason))?;
        Some(Member::refused(reason, is_left_out))
    }
}

impl Plan {
    /// What a run does with each target of its scope that is worth compacting and has not been
    /// compacted since the run began.
    pub fn run_members<'a>(
        &'a self,
        number: u64,
        run: &'a Run,
    ) -> impl Iterator<Item = (TargetRef<'a>, Member)> {
        self.members_with(number, run, None)
    }

    fn members_with<'a>(
        &'a self,
        number: u64,
        run: &'a Run,
        queued: Option<&'a QueuedReasons>,
    ) -> impl Iterator<Item = (TargetRef<'a>, Member)> {
        let jobs = self.conditions.jobs.compactions();
        let running: BTreeSet<TargetIx> = jobs.filter_map(|job: &Job| job.target).collect();
        let run = OpenRun::new(number, run, &self.conditions, &self.snapshot);
        self.snapshot.targets().filter_map(move |target| {
            if !run.is_to_do(target) {
                return None;
            }
            if running.contains(&target.ix()) {
                return Some((target, Member::Runs));
            }
            let known = queued.and_then(|queued| queued.member(self, target));
            Some((target, known.or_else(|| self.member_of(run.run, target))?))
        })
    }

    /// What a run does with a target that needs a decision and is not being compacted.
    fn member_of(&self, run: &Run, target: TargetRef<'_>) -> Option<Member> {
        let (ix, constraints) = (target.ix(), &self.conditions.constraints);
        // For most targets the answer is known without a decision.
        let is_untaken =
            self.placements.get(ix.as_usize()).is_none_or(|it| it.channel_index().is_none())
                && !constraints.orders.contains_key(&ix)
                && !constraints.partly_compacted_views.contains_key(&ix);
        match if is_untaken { Decision::NotTaken } else { self.decision(target) } {
            Decision::Start => Some(Member::Starts),
            Decision::Refused(refusal) => {
                Some(Member::refused(refusal.reason, is_left_out(&refusal)))
            }
            Decision::NotTaken => {
                let is_unknown = target.file_bytes().is_none()
                    && matches!(target.state(), TargetState::Ok | TargetState::Resharding);
                match channel_of(run, &self.channels, None, target) {
                    Some(channel) => Some(match self.admission.gate(target.node_ix(), channel) {
                        Some(gate) => Member::refused(gate.reason, is_left_out(&gate)),
                        // Better members of its queue go first.
                        None => Member::Waits(RefusalReason::ChannelLimit),
                    }),
                    None if !is_unknown => None,
                    // Its node has not answered yet.
                    None if target.kind() == TargetKind::Db => {
                        Some(Member::Waits(RefusalReason::Stale))
                    }
                    None => Some(Member::Unmeasured),
                }
            }
        }
    }

    /// The progress of a run; `why` explains in a sentence why a member does not start.
    #[must_use]
    pub fn run_progress(
        &self,
        number: u64,
        run: &Run,
        why: impl Fn(TargetRef<'_>, &Refusal) -> Option<String>,
    ) -> RunProgress {
        let mut progress = RunProgress::default();
        let add = |groups: &mut BTreeMap<_, LeftOut>, reason: RefusalReason, target| {
            let label = reason.label().to_owned();
            let group = groups.entry(reason).or_insert_with(|| LeftOut {
                reason: label,
                members: 0,
                examples: Vec::new(),
            });
            group.members += 1;
            if group.examples.len() < MAX_EXAMPLES {
                let refusal = match self.decision(target) {
                    Decision::Refused(refusal) if refusal.reason == reason => refusal,
                    Decision::Refused(_) | Decision::Start | Decision::NotTaken => {
                        Refusal::without_numbers(reason)
                    }
                };
                let design = target.view().and_then(|view| view.designs.first());
                group.examples.push(LeftOutMember {
                    id: target.id().to_string(),
                    name: target.id().title(design.map(AsRef::as_ref)),
                    why: why(target, &refusal),
                });
            }
        };
        // A single database has few targets, so deciding about each of them is cheaper.
        let queued = !matches!(run.scope, RunScope::Database(_));
        let queued = queued.then(|| QueuedReasons::of(self));
        for (target, member) in self.members_with(number, run, queued.as_ref()) {
            match member {
                Member::Runs => progress.running += 1,
                Member::Starts => progress.starting += 1,
                Member::Waits(reason) => add(&mut progress.waiting, reason, target),
                Member::LeftOut(reason) => {
                    add(&mut progress.left_out, reason, target);
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

    /// Why a run ends: nothing is left to start or to wait for, or it waited too long. `None` if it
    /// goes on.
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
