//! Admission: whether a target may start, and if not, the first reason in a fixed order.
//!
//! Owns the state that starts change. A start only uses up slots and space, so an earlier refusal
//! stays valid, and the state after the last start explains why every other queued target waits.

use super::{
    candidate_summary::{Blocker, CandidateSummary, CompactionUnit},
    conditions::Conditions,
    db_copies::{CopyMap, DbCopies, NodeCopies},
    freshness::Freshness,
    gates::{ClosedGates, GateInputs, WindowState},
    placement::Placement,
    queue_bounds::QueueBounds,
    refusal::{Refusal, RefusalReason},
    reservation::SlotReservation,
    rules::Rules,
    slots::{JobSlots, SlotRequest},
    target_activity::TargetActivity,
    volume_space::{SpaceLedger, SpaceNeed},
};
use crate::{
    model::{channel::Channels, records::Backoff, target::TargetKind},
    table::{ChunkedTable, NodeIx, Snapshot, TargetIx, TargetRef, ViewCopies},
};
use std::sync::Arc;
use wall_clock::Moment;

/// The check at which a target was refused, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum CheckStage {
    Gates,
    Window,
    Space,
    OtherCopy,
    Limits,
    SpaceAfterStarts,
    Turn,
}

type StageRefusal = (CheckStage, Refusal);

/// Time left in a channel's window; only for channels with `strict_window`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct WindowTimeLeft {
    seconds_left: f64,
    /// Measured rate of compactions, in bytes per second.
    bytes_per_second: f64,
}

impl WindowTimeLeft {
    /// Size of the largest new file that can be finished in time.
    fn largest_file(&self) -> f64 {
        self.seconds_left * self.bytes_per_second
    }
}

/// Decides whether a target may start.
#[derive(Clone, Debug, Default)]
pub(super) struct Admission {
    snapshot: Arc<Snapshot>,
    rules: Arc<Rules>,
    conditions: Conditions,
    now: Moment,
    gates: ClosedGates,
    slots: JobSlots,
    space: SpaceLedger,
    activity: TargetActivity,
    copies: Arc<CopyMap>,
    window_time_left: Vec<Option<WindowTimeLeft>>,
    /// Maximum number of running jobs while starts are ramped up after this process began to act.
    ramp_limit: Option<usize>,
    /// Predicted peak of a db job, as a multiple of active bytes.
    headroom_factor: f64,
    /// The target for which slots are reserved.
    reserved_for: Option<TargetIx>,
}

#[derive(Debug)]
pub(super) struct AdmissionInputs<'a> {
    pub(super) snapshot: &'a Arc<Snapshot>,
    pub(super) channels: &'a Channels,
    pub(super) conditions: &'a Conditions,
    pub(super) rules: &'a Arc<Rules>,
    pub(super) now: Moment,
    pub(super) window_states: &'a [WindowState],
    pub(super) placements: &'a ChunkedTable<Placement>,
    pub(super) copies: &'a Arc<CopyMap>,
}

/// Running compactions and constraints on targets, with the slots that the compactions use.
pub(super) fn occupied(
    snapshot: &Snapshot,
    channels: &Channels,
    conditions: &Conditions,
    rules: &Rules,
    placements: &ChunkedTable<Placement>,
    active: impl Iterator<Item = ((NodeIx, usize), TargetIx)>,
    now: Moment,
) -> (JobSlots, TargetActivity) {
    let concurrency = channels.list.iter().map(|channel| channel.concurrency).collect();
    let mut slots = JobSlots::new(rules, concurrency, snapshot.nodes().len());
    slots.count_spent(&conditions.constraints.recent_starts, now);
    let activity =
        TargetActivity::new(snapshot, channels, conditions, placements, active, &mut slots, now);
    (slots, activity)
}

impl Admission {
    pub(super) fn new(
        present: &AdmissionInputs<'_>,
        active: impl Iterator<Item = ((NodeIx, usize), TargetIx)>,
    ) -> Self {
        let &AdmissionInputs { snapshot, channels, conditions, rules, now, window_states, .. } =
            present;
        let (slots, activity) =
            occupied(snapshot, channels, conditions, rules, present.placements, active, now);
        let gate_inputs =
            GateInputs { rules, conditions, now, running_compactions: slots.cluster_jobs() };
        let rate = conditions.constraints.measured_rate();
        let time_left = channels.list.iter().zip(window_states).map(|(channel, window_state)| {
            let until =
                window_state.until.filter(|_| channel.strict_window && window_state.is_open)?;
            Some(WindowTimeLeft {
                seconds_left: now.age(until).as_secs_f64(),
                bytes_per_second: rate?,
            })
        });
        let acting_since = conditions.constraints.enforcing_since;
        Self {
            gates: ClosedGates::new(snapshot, channels, window_states, &gate_inputs),
            space: SpaceLedger::new(snapshot, &conditions.disks, &conditions.jobs, rules),
            window_time_left: time_left.collect(),
            ramp_limit: acting_since.and_then(|since| rules.ramp_limit(since, now)),
            headroom_factor: conditions.headroom_factor(rules),
            reserved_for: None,
            snapshot: Arc::clone(snapshot),
            rules: Arc::clone(rules),
            conditions: conditions.clone(),
            now,
            slots,
            activity,
            copies: Arc::clone(present.copies),
        }
    }

    /// The same admission with the copies of other databases.
    pub(super) fn with_copies(&self, copies: CopyMap) -> Self {
        Self { copies: Arc::new(copies), ..self.clone() }
    }

    /// The gate that holds back all starts of a channel on a node, if one is closed.
    pub(super) fn gate(&self, node: NodeIx, channel: usize) -> Option<Refusal> {
        self.gates.refusal(node, channel)
    }

    /// The bounds that apply to every shard of a queue.
    pub(super) fn bounds(&self, node: NodeIx, channel: usize) -> QueueBounds {
        let time_left = self.window_time_left.get(channel).copied().flatten();
        QueueBounds {
            now: self.now,
            fresh_for: self.rules.fresh_for.as_secs(),
            headroom_factor: self.headroom_factor,
            gate_refusal: self.gates.refusal(node, channel).map(|refusal| refusal.reason),
            largest_in_window: time_left.map(|time_left| time_left.largest_file()),
            space: self.space.bounds(node),
            limits: self.slots.bounds(node, channel),
            limits_with_reservation: self.slots.bounds_with_reservation(node, channel),
            rest_refusal: self.gates.rest(node).map(|refusal| refusal.reason),
            ramp_refusal: self.check_ramp(node).err().map(|refusal| refusal.reason),
        }
    }

    /// Why a candidate may not start; `None` if it may. Uses the queue's bounds for a shard without
    /// special state.
    pub(super) fn refusal_reason(
        &self,
        bounds: &QueueBounds,
        (node, channel): (NodeIx, usize),
        candidate: &CandidateSummary,
    ) -> Option<RefusalReason> {
        let special =
            self.reserved_for == Some(candidate.ix) || self.activity.status(candidate.ix).is_some();
        if QueueBounds::applies_to(candidate) && !special {
            let confirmed = || self.snapshot.is_confirmed(candidate.ix);
            return bounds
                .refusal_reason(candidate, confirmed, || self.is_other_copy_running(candidate));
        }
        self.admit(node, channel, candidate).err().map(|refusal| refusal.reason)
    }

    /// Nodes that would receive a target's requests if it started now despite all refusals. For a view
    /// compacted copy by copy, these are the nodes of the copies that its round has not compacted yet and
    /// that are worth compacting, or of one copy if none is worth it.
    pub(super) fn request_nodes(&self, node: NodeIx, candidate: &CandidateSummary) -> Vec<NodeIx> {
        match candidate.unit {
            CompactionUnit::ShardFile => vec![node],
            CompactionUnit::AllCopies | CompactionUnit::Cleanup => vec![NodeIx::CLUSTER],
            CompactionUnit::SingleCopy => match self.remaining_copies(candidate) {
                Ok(copies) => copies.map(|node_copies| node_copies.node).collect(),
                Err(_) => {
                    let all = self.copies_of(candidate).map_or(&[][..], |all| &all.by_node);
                    all.iter().map(|node_copies| node_copies.node).take(1).collect()
                }
            },
            CompactionUnit::NotCompactable => Vec::new(),
        }
    }

    /// Whether no further target of a cluster-wide queue can start.
    pub(super) fn is_exhausted(&self, channel: usize, kind: TargetKind) -> bool {
        match kind {
            TargetKind::Db => false,
            TargetKind::View => self.slots.is_cluster_full(),
            TargetKind::Search => true,
            TargetKind::Cleanup => self.slots.check_channel(NodeIx::CLUSTER, channel).is_err(),
        }
    }

    /// The node on which a target may start; the pseudo-node for starts on all nodes.
    ///
    /// # Errors
    ///
    /// The first reason why it may not start. If the target has several copies to choose from, the
    /// reason of the copy that passed the most checks.
    pub(super) fn admit(
        &self,
        node: NodeIx,
        channel: usize,
        candidate: &CandidateSummary,
    ) -> Result<NodeIx, Refusal> {
        self.check_target(candidate)?;
        match candidate.unit {
            CompactionUnit::ShardFile => {
                let node_copies = NodeCopies { node, count: 1, any_shard: candidate.ix };
                self.check_copies(&[node_copies], channel, candidate)
                    .map_err(|(_, refusal)| refusal)?;
                Ok(node)
            }
            CompactionUnit::SingleCopy => self.choose_copy(channel, candidate),
            CompactionUnit::AllCopies => {
                let db_copies = self.copies_of(candidate)?;
                self.check_copies(&db_copies.by_node, channel, candidate)
                    .map_err(|(_, refusal)| refusal)?;
                Ok(NodeIx::CLUSTER)
            }
            CompactionUnit::Cleanup => {
                self.check_cleanup(channel, candidate.ix)?;
                Ok(NodeIx::CLUSTER)
            }
            CompactionUnit::NotCompactable => {
                Err(Refusal::without_numbers(RefusalReason::Excluded))
            }
        }
    }

    /// The refusal of a target that does not start. If no check refuses it, it was beyond its
    /// queue's capacity: the selection records a reason for every queued target.
    pub(super) fn refusal(
        &self,
        node: NodeIx,
        channel: usize,
        candidate: &CandidateSummary,
    ) -> Refusal {
        let no_room = Refusal::without_numbers(RefusalReason::ChannelLimit);
        self.admit(node, channel, candidate).err().unwrap_or(no_room)
    }

    /// Counts a start and reserves its disk space.
    pub(super) fn record_start(
        &mut self,
        node: NodeIx,
        channel: usize,
        candidate: &CandidateSummary,
    ) {
        let copies_by_node = self.copies_to_start(node, candidate);
        let file = if candidate.unit == CompactionUnit::Cleanup {
            0
        } else {
            candidate.file_bytes.get().unwrap_or(0)
        };
        self.slots.record_start(
            &copies_by_node,
            channel,
            candidate.unit == CompactionUnit::AllCopies,
            file,
        );
        if self.reserved_for == Some(candidate.ix) {
            self.slots.release_reservation();
        }
        if candidate.unit != CompactionUnit::Cleanup {
            self.space.reserve(&copies_by_node, self.space_need(candidate).peak_bytes.unwrap_or(0));
        }
        if candidate.unit == CompactionUnit::ShardFile {
            self.activity.occupy_range(&self.snapshot, candidate.ix);
        }
    }

    /// Whether a target may need more slots or budget than would ever be free at the same time
    /// without a reservation.
    pub(super) fn may_need_reservation(&self, candidate: &CandidateSummary) -> bool {
        match candidate.unit {
            CompactionUnit::AllCopies => true,
            CompactionUnit::ShardFile => {
                self.slots.is_large(candidate.file_bytes.get().unwrap_or(0))
            }
            CompactionUnit::SingleCopy
            | CompactionUnit::Cleanup
            | CompactionUnit::NotCompactable => false,
        }
    }

    /// The nodes that hold a target's files, if only running jobs, recent starts and rests keep it
    /// from starting; and whether only recent starts and rests do.
    pub(super) fn waits_only_for_slots(
        &self,
        (node, channel): (NodeIx, usize),
        candidate: &CandidateSummary,
    ) -> Option<(Vec<NodeCopies>, bool)> {
        self.check_target(candidate).ok()?;
        let copies_by_node = self.copies_to_start(node, candidate);
        let (all_copies, file) =
            (candidate.unit == CompactionUnit::AllCopies, candidate.file_bytes.get().unwrap_or(0));
        // A ramp with a limit and a rest both end in time if nothing else starts. A node that has
        // not reported its running jobs gives no such guarantee.
        let passes = |node_copies: &NodeCopies| {
            let ramp = self.gates.ramp(node_copies.node);
            self.gates.refusal(node_copies.node, channel).is_none()
                && ramp.is_none_or(|ramp| ramp.limit.is_some())
        };
        let request = SlotRequest {
            copies: &copies_by_node,
            channel_index: channel,
            all_copies,
            file_bytes: file,
        };
        let waits = !copies_by_node.is_empty()
            && copies_by_node.iter().all(passes)
            && self.check_window(channel, candidate).is_ok()
            && self.space.check_after_running(&copies_by_node, self.space_need(candidate)).is_ok()
            && (all_copies || !self.is_other_copy_running(candidate))
            && self.slots.could_ever_admit(request);
        let ready = self.slots.check(request).is_ok()
            && self.check_copies(&copies_by_node, channel, candidate).is_err();
        waits.then_some((copies_by_node, ready))
    }

    pub(super) fn reserve(&mut self, reservation: &SlotReservation) {
        self.reserved_for = Some(reservation.ix);
        self.slots.reserve(reservation);
    }

    /// The files that a start compacts: the nodes that hold them, with one shard of each.
    pub(super) fn copies_to_start(
        &self,
        node: NodeIx,
        candidate: &CandidateSummary,
    ) -> Vec<NodeCopies> {
        let db_copies =
            || self.copies.get(candidate.db).map_or(&[][..], |db_copies| &db_copies.by_node);
        match candidate.unit {
            CompactionUnit::ShardFile => {
                vec![NodeCopies { node, count: 1, any_shard: candidate.ix }]
            }
            CompactionUnit::SingleCopy => {
                db_copies().iter().filter(|node_copies| node_copies.node == node).copied().collect()
            }
            CompactionUnit::AllCopies => db_copies().to_vec(),
            CompactionUnit::Cleanup | CompactionUnit::NotCompactable => {
                vec![NodeCopies { node, count: 0, any_shard: candidate.ix }]
            }
        }
    }

    /// Marks a target whose request cannot be built, so that it is refused.
    pub(super) fn mark_unaddressable(&mut self, ix: TargetIx) {
        self.activity.mark_unaddressable(ix);
    }

    /// Bytes that a start needs in addition to one file, at its peak.
    pub(super) fn space_need(&self, candidate: &CandidateSummary) -> SpaceNeed {
        SpaceNeed {
            peak_bytes: candidate.peak_bytes(self.headroom_factor),
            file_bytes: candidate.file_bytes.get(),
        }
    }

    /// Whether free space is known on every node that a start writes to.
    pub(super) fn knows_space(&self, copies_by_node: &[NodeCopies]) -> bool {
        self.space.is_known(copies_by_node)
    }

    /// Checks the target itself, independently of other jobs and of the node.
    fn check_target(&self, candidate: &CandidateSummary) -> Result<(), Refusal> {
        let plain = |reason| Err(Refusal::without_numbers(reason));
        let is_permitted = match candidate.unit {
            CompactionUnit::ShardFile | CompactionUnit::Cleanup => true,
            CompactionUnit::SingleCopy => self.rules.views.permits(false),
            CompactionUnit::AllCopies => self.rules.views.permits(true),
            CompactionUnit::NotCompactable => false,
        };
        if !is_permitted {
            return plain(RefusalReason::Excluded);
        }
        if candidate.unit == CompactionUnit::AllCopies
            && let Some(db_copies) = self.copies.get(candidate.db)
            && let Some(refusal) = self.slots.never_admits(&db_copies.by_node)
        {
            return Err(refusal);
        }
        let status = self.activity.status(candidate.ix).copied().unwrap_or_default();
        if status.unaddressable {
            return plain(RefusalReason::Excluded);
        }
        if status.compacting_since.is_some() || candidate.blocker == Blocker::CompactionRunning {
            let running = Refusal::without_numbers(RefusalReason::Running);
            return Err(running.since(status.compacting_since));
        }
        if candidate.blocker == Blocker::Resharding || self.is_resharding(candidate) {
            return plain(RefusalReason::Resharding);
        }
        if status.building_since.is_some()
            || matches!(candidate.blocker, Blocker::IndexerRunning | Blocker::IndexBehind)
        {
            let building = Refusal::without_numbers(RefusalReason::Building);
            return Err(building.since(status.building_since));
        }
        let rest = status.backoff.filter(|_| !status.forced);
        if let Some(refusal) = rest.and_then(|rest| self.backoff_refusal(rest, candidate)) {
            return Err(refusal);
        }
        // The facts may describe a copy that the current round has already compacted; choosing a copy
        // excludes copies that are known to have little waste.
        if candidate.blocker == Blocker::FreesLittle && !status.forced && !self.in_round(candidate)
        {
            let value = candidate.reclaimable_bytes().map(|frees| frees as f64);
            return Err(Refusal { value, ..Refusal::without_numbers(RefusalReason::Futile) });
        }
        self.check_facts_unused(status.last_start, candidate)?;
        self.check_fresh(candidate)
    }

    /// Refuses a target whose facts were already used for a start. A view with an open round
    /// continues with any facts.
    fn check_facts_unused(
        &self,
        started: Option<Moment>,
        candidate: &CandidateSummary,
    ) -> Result<(), Refusal> {
        let spent = started.filter(|at| candidate.measured_at <= *at);
        let Some(at) = spent.filter(|_| !self.in_round(candidate)) else { return Ok(()) };
        let value = Some(at.age(self.now).as_secs_f64());
        Err(Refusal { value, since: Some(at), ..Refusal::without_numbers(RefusalReason::Stale) })
    }

    /// Whether some copies of a view were compacted in this round and others were not.
    fn in_round(&self, candidate: &CandidateSummary) -> bool {
        self.conditions.constraints.partly_compacted_views.contains_key(&candidate.ix)
    }

    fn is_resharding(&self, candidate: &CandidateSummary) -> bool {
        matches!(candidate.unit, CompactionUnit::SingleCopy | CompactionUnit::AllCopies)
            && self.copies.get(candidate.db).is_some_and(|db_copies| db_copies.resharding)
    }

    fn backoff_refusal(&self, rest: Backoff, candidate: &CandidateSummary) -> Option<Refusal> {
        let now = self.now;
        let (refusal, since) = match rest {
            Backoff::CoolDown { since, until } | Backoff::Unsettled { since, until } => {
                if until <= now {
                    return None;
                }
                let (rested, all) = (since.age(now).as_secs_f64(), since.age(until).as_secs_f64());
                (Refusal::with_numbers(RefusalReason::CoolDown, rested, all), since)
            }
            Backoff::Quarantined { since, failures } => {
                let value = Some(f64::from(failures));
                (Refusal { value, ..Refusal::without_numbers(RefusalReason::Quarantined) }, since)
            }
            Backoff::Futile { since, file_bytes, .. } => {
                let value = candidate.file_bytes.get().map(|file| file as f64);
                let limit = Some(file_bytes as f64);
                (Refusal { value, limit, ..Refusal::without_numbers(RefusalReason::Futile) }, since)
            }
        };
        Some(refusal.since(since))
    }

    fn check_fresh(&self, candidate: &CandidateSummary) -> Result<(), Refusal> {
        if candidate.measured_at == Moment::default() {
            return Err(Refusal::without_numbers(RefusalReason::Stale));
        }
        if Freshness::of(&self.snapshot, candidate.ix, &self.rules, self.now).is_some() {
            return Ok(());
        }
        let (age, fresh_for) = (candidate.measured_at.age(self.now), self.rules.fresh_for);
        let (value, limit) = (age.as_secs_f64(), fresh_for.as_secs_f64());
        let since = candidate.measured_at.plus(fresh_for);
        Err(Refusal::with_numbers(RefusalReason::Stale, value, limit).since(since))
    }

    /// The nodes that hold a view's copies; an error if no copy is known, because no request is
    /// possible then.
    fn copies_of(&self, candidate: &CandidateSummary) -> Result<&DbCopies, Refusal> {
        let db_copies =
            self.copies.get(candidate.db).filter(|db_copies| !db_copies.by_node.is_empty());
        db_copies.ok_or(Refusal::without_numbers(RefusalReason::Excluded))
    }

    /// The copies of a view that its round has not compacted yet, or all copies if a new round begins. Only
    /// copies worth compacting are returned, unless an order forces it; the copy with most waste comes
    /// first.
    fn remaining_copies(
        &self,
        candidate: &CandidateSummary,
    ) -> Result<impl Iterator<Item = &NodeCopies>, Refusal> {
        let copies_by_node = &self.copies_of(candidate)?.by_node;
        let done = self.conditions.constraints.partly_compacted_views.get(&candidate.ix);
        let is_done =
            |node_copies: &&NodeCopies| done.is_some_and(|done| done.contains(&node_copies.node));
        let all_done = copies_by_node.iter().all(|node_copies| is_done(&node_copies));
        let is_forced = self.activity.status(candidate.ix).is_some_and(|status| status.forced);
        let target = self.snapshot.target(candidate.ix);
        let is_lean = |node_copies: &&NodeCopies| {
            !is_forced && target.is_some_and(|target| target.is_copy_lean(node_copies.node))
        };
        let remaining =
            copies_by_node.iter().filter(|it| (all_done || !is_done(it)) && !is_lean(it));
        let mut remaining: Vec<&NodeCopies> = remaining.collect();
        if remaining.is_empty() && !copies_by_node.is_empty() {
            return Err(Refusal::without_numbers(RefusalReason::Futile));
        }
        if let Some(ViewCopies::Differ(measured)) = target.map(TargetRef::copies) {
            let rank = |node| measured.iter().position(|(at, _)| *at == node);
            remaining.sort_by_key(|it| rank(it.node).unwrap_or(usize::MAX));
        }
        Ok(remaining.into_iter())
    }

    /// The first copy of a view that may start, among those its round has not compacted yet.
    fn choose_copy(&self, channel: usize, candidate: &CandidateSummary) -> Result<NodeIx, Refusal> {
        let mut farthest: Option<StageRefusal> = None;
        for node_copies in self.remaining_copies(candidate)? {
            match self.check_copies(std::slice::from_ref(node_copies), channel, candidate) {
                Ok(()) => return Ok(node_copies.node),
                Err(stopped) if farthest.is_none_or(|before| before.0 < stopped.0) => {
                    farthest = Some(stopped);
                }
                Err(_) => {}
            }
        }
        Err(farthest
            .map_or(Refusal::without_numbers(RefusalReason::Excluded), |(_, refusal)| refusal))
    }

    /// Checks a cleanup: deleting index files uses neither a job slot nor disk space.
    fn check_cleanup(&self, channel: usize, ix: TargetIx) -> Result<(), Refusal> {
        if let Some(refusal) = self.gates.refusal(NodeIx::CLUSTER, channel) {
            return Err(refusal);
        }
        self.slots.check_channel(NodeIx::CLUSTER, channel)?;
        self.check_turn(NodeIx::CLUSTER, ix)
    }

    /// Whether these files may be compacted now.
    fn check_copies(
        &self,
        copies_by_node: &[NodeCopies],
        channel: usize,
        candidate: &CandidateSummary,
    ) -> Result<(), StageRefusal> {
        for node_copies in copies_by_node {
            if let Some(refusal) = self.gates.refusal(node_copies.node, channel) {
                return Err((CheckStage::Gates, refusal));
            }
        }
        self.check_window(channel, candidate).map_err(|refusal| (CheckStage::Window, refusal))?;
        let need = self.space_need(candidate);
        let space = self.space.check_after_running(copies_by_node, need);
        space.map_err(|refusal| (CheckStage::Space, refusal))?;
        if candidate.unit == CompactionUnit::ShardFile && self.is_other_copy_running(candidate) {
            let refusal = Refusal::without_numbers(RefusalReason::OtherCopyRunning);
            return Err((CheckStage::OtherCopy, refusal));
        }
        let (all_copies, file) =
            (candidate.unit == CompactionUnit::AllCopies, candidate.file_bytes.get().unwrap_or(0));
        let request = SlotRequest {
            copies: copies_by_node,
            channel_index: channel,
            all_copies,
            file_bytes: file,
        };
        self.slots.check(request).map_err(|refusal| (CheckStage::Limits, refusal))?;
        if !self.precedes_reservation(candidate.ix) {
            let limits = self.slots.check_with_reservation(request);
            limits.map_err(|refusal| (CheckStage::Limits, refusal))?;
        }
        let space = self.space.check_after_starts(copies_by_node, need);
        space.map_err(|refusal| (CheckStage::SpaceAfterStarts, refusal))?;
        for node_copies in copies_by_node {
            let turn = self.check_turn(node_copies.node, candidate.ix);
            turn.map_err(|refusal| (CheckStage::Turn, refusal))?;
        }
        Ok(())
    }

    fn check_window(&self, channel: usize, candidate: &CandidateSummary) -> Result<(), Refusal> {
        let Some(time_left) = self.window_time_left.get(channel).copied().flatten() else {
            return Ok(());
        };
        let Some(bytes) = candidate.predicted_bytes.get().or_else(|| candidate.file_bytes.get())
        else {
            return Ok(());
        };
        if bytes as f64 <= time_left.largest_file() {
            return Ok(());
        }
        let takes = bytes as f64 / time_left.bytes_per_second;
        Err(Refusal::with_numbers(RefusalReason::WouldNotFitWindow, takes, time_left.seconds_left))
    }

    fn is_ordered(&self, ix: TargetIx) -> bool {
        self.activity.status(ix).is_some_and(|status| status.ordered)
    }

    /// Whether a target may also use slots that are reserved for another target.
    fn precedes_reservation(&self, ix: TargetIx) -> bool {
        self.reserved_for == Some(ix) || self.is_ordered(ix)
    }

    /// Whether another copy of a shard's range is running and the rules allow only one at a time.
    fn is_other_copy_running(&self, candidate: &CandidateSummary) -> bool {
        self.rules.limits.one_copy_of_a_range
            && self.activity.is_other_copy_running(&self.snapshot, candidate.db, candidate.ix)
    }

    /// Checks the reasons that only postpone a start on a node: starts are spread out, or the node
    /// rests.
    fn check_turn(&self, node: NodeIx, ix: TargetIx) -> Result<(), Refusal> {
        self.check_ramp(node)?;
        let rest = self.gates.rest(node).filter(|_| !self.is_ordered(ix));
        rest.map_or(Ok(()), Err)
    }

    /// Checks whether earlier starts, or this plan's own starts, postpone another start on a node.
    fn check_ramp(&self, node: NodeIx) -> Result<(), Refusal> {
        if let Some(refusal) = self.gates.ramp(node) {
            return Err(refusal);
        }
        let wait = self.rules.limits.wait;
        if !wait.is_zero() && self.slots.has_start_on(node) {
            return Err(Refusal::with_numbers(RefusalReason::Ramp, 0.0, wait.as_secs_f64()));
        }
        match self.ramp_limit {
            Some(allowed) if node != NodeIx::CLUSTER && self.slots.cluster_jobs() >= allowed => {
                let (value, limit) = (self.slots.cluster_jobs() as f64, allowed as f64);
                Err(Refusal::with_numbers(RefusalReason::Ramp, value, limit))
            }
            _ => Ok(()),
        }
    }
}
