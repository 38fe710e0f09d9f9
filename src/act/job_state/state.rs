//! State of jobs and targets, and its transitions. No I/O: changes to store and targets to reread
//! are returned.

use super::{JobCounters, JobStateSettings, NotStarted, pending_rereads::PendingRereads};
use crate::{
    jobs::{
        BuildMeter, BusyPeriod, CompactionTotals, EndedJob, JobKey, JobTracker, Jobs,
        RequestResult, Running, StartRejected, TargetConstraints, TrackerChanges, TrackerInputs,
    },
    model::{
        correction::Corrections,
        records::{
            Backoff, Calibration, CompactionOrder, Intent, IntentKey, JobOwner, JobResult,
            JournalFailure, LearnedCorrections, NodeWork, RecoveredState, RunCommand, RunRejected,
            Runs, StateChange, Suspension, SuspensionScope, Suspensions, TargetRecord,
        },
        settings::limits::BUDGET_PERIOD,
        share::Share,
        target::{TargetId, TargetKind},
    },
    plan::{HorizonFactors, first_channel},
    shared_limits::SharedUse,
    table::{NodeIx, Snapshot, TargetIndex, TargetIx},
    text::{Label, duration, size},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// How often corrections are recomputed even if nothing was learned: old evidence loses weight.
const FORGETTING_INTERVAL: Duration = Duration::from_secs(24 * 3_600);

/// The state is updated at least every ten seconds. A longer gap than this means that the clock was
/// set or the machine slept.
const CLOCK_JUMP_THRESHOLD: Duration = Duration::from_secs(120);

/// The state that the task owns.
#[derive(Debug)]
pub(super) struct JobState {
    tracker: JobTracker,
    build_meter: BuildMeter,
    target_records: BTreeMap<TargetId, TargetRecord>,
    suspensions: Suspensions,
    runs: Runs,
    calibration: Calibration,
    corrections: LearnedCorrections,
    /// When the corrections in force were last computed; `None` if something was learned since.
    corrected_at: Option<Moment>,
    recent_starts: Vec<(Moment, u64)>,
    last_start_by_node: BTreeMap<NodeIx, Moment>,
    busy_periods: BTreeMap<NodeIx, BusyPeriod>,
    /// What an earlier process stored about nodes that are not in the tables yet.
    unplaced_work: BTreeMap<String, NodeWork>,
    /// The number of nodes in the tables when it was last looked for them.
    placed_nodes: usize,
    /// What is stored about each node.
    stored_work: BTreeMap<NodeIx, NodeWork>,
    enforcing_since: Option<Moment>,
    last_update: Option<Moment>,
    target_index: TargetIndex,
    rereads: PendingRereads,
    pub(super) counters: JobCounters,
    pub(super) totals: CompactionTotals,
    /// Starts without an answer so far: the intent, for the counters, and the order that caused it.
    unanswered_starts: BTreeMap<IntentKey, (Intent, Option<CompactionOrder>)>,
}

/// Effects of a state change.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Changes to store.
    pub(super) changes: Vec<StateChange>,
    pub(super) reread: BTreeSet<TargetIx>,
    /// Databases for which CouchDB accepted a cleanup.
    pub(super) cleaned: Vec<TargetIx>,
}

impl JobState {
    pub(super) fn new(recovered: RecoveredState, now: Moment) -> Self {
        let mut tracker = JobTracker::default();
        let mut target_index = TargetIndex::default();
        recovered.remembered.keys().for_each(|id| target_index.add(id));
        let charges = recovered.budget_charges();
        // A start later than now was made before the clock was set back.
        let recent_starts = charges.map(|(at, bytes)| (at.min(now), bytes)).collect();
        tracker.adopt(recovered.intents, now);
        Self {
            tracker,
            build_meter: BuildMeter::default(),
            target_records: recovered.remembered,
            suspensions: Suspensions(recovered.suspensions),
            runs: Runs(recovered.runs),
            calibration: recovered.calibration,
            corrections: LearnedCorrections::new(recovered.corrections),
            corrected_at: None,
            recent_starts,
            last_start_by_node: BTreeMap::new(),
            busy_periods: BTreeMap::new(),
            unplaced_work: recovered.node_work,
            placed_nodes: 0,
            stored_work: BTreeMap::new(),
            enforcing_since: None,
            last_update: None,
            target_index,
            rereads: PendingRereads::default(),
            counters: JobCounters::default(),
            totals: CompactionTotals::default(),
            unanswered_starts: BTreeMap::new(),
        }
    }

    /// Detects whether the clock was set since the last update. If so, waiting periods restart now,
    /// so that they neither end at once nor last until the clock has caught up. Busy periods keep
    /// their length, and starts keep their age.
    pub(super) fn detect_clock_change(&mut self, now: Moment) {
        let set =
            self.last_update.filter(|last| now < *last || last.age(now) > CLOCK_JUMP_THRESHOLD);
        self.last_update = Some(now);
        if let Some(last) = set {
            for period in self.busy_periods.values_mut() {
                period.shift(last, now);
            }
            let starts = self.recent_starts.iter_mut().map(|(at, _)| at);
            for at in starts.chain(self.last_start_by_node.values_mut()) {
                *at = at.shifted(last, now);
            }
            self.tracker.restart_waits(now);
            self.rereads.restart_waits(now);
            self.enforcing_since = self.enforcing_since.map(|since| since.min(now));
        }
    }

    /// Records since when this process has been enforcing.
    pub(super) fn set_enforcing(&mut self, acting: bool, now: Moment) {
        if !acting {
            self.enforcing_since = None;
        } else if self.enforcing_since.is_none() {
            self.enforcing_since = Some(now);
        }
    }

    pub(super) fn apply_poll(
        &mut self,
        running: &Running,
        tables: &Snapshot,
        settings: &JobStateSettings,
        now: Moment,
    ) -> Effects {
        let channel_of = |target: crate::table::TargetRef<'_>| {
            let rent = HorizonFactors::default().rent_now(target, now);
            let (at, _) = first_channel(&settings.channels, target, &target.facts(), rent)?;
            settings.channels.list.get(at).map(|channel| Arc::clone(&channel.name))
        };
        let learned = self.calibration.headroom_factor.unwrap_or_default();
        let headroom_factor = settings.headroom_factor.max(learned);
        let rules = TrackerInputs { headroom_factor, channel_of: &channel_of };
        let step = self.tracker.apply_poll(running, tables, &rules, now);
        let mut effects = self.effects_of(step, settings);
        let speeds = self.build_meter.apply_poll(running, tables, now);
        if !speeds.is_empty() {
            speeds.into_iter().for_each(|speed| self.calibration.builds.add(speed));
            effects.changes.push(StateChange::Calibrate(self.calibration.clone()));
        }
        effects
    }

    pub(super) fn apply_facts(
        &mut self,
        tables: &Snapshot,
        settings: &JobStateSettings,
        now: Moment,
    ) -> Effects {
        let step = self.tracker.apply_facts(tables, now);
        self.effects_of(step, settings)
    }

    /// Targets to read again, to determine how jobs ended or because they have not been measured
    /// since their start; and databases for which the scanner still shows evidence for a cleanup
    /// that was already started.
    pub(super) fn pending_reads(&self, tables: &Snapshot) -> Effects {
        let mut follows =
            Effects { reread: self.tracker.targets_to_reread(tables), ..Effects::default() };
        for (id, _) in self.rereads.iter().filter(|(id, _)| !self.tracker.has_open_intent(id)) {
            let Some(ix) = self.target_index.position(id) else { continue };
            match id.kind() {
                TargetKind::Cleanup => follows.cleaned.push(ix),
                TargetKind::Db | TargetKind::View | TargetKind::Search => {
                    follows.reread.insert(ix);
                }
            }
        }
        follows
    }

    /// Checks whether the remembered state of a target, by its id, allows a start. The plan may be
    /// older than that state, and identifies the target by table position only.
    pub(super) fn check_start(
        &mut self,
        intent: &Intent,
        ordered: Option<&CompactionOrder>,
        tables: &Snapshot,
        now: Moment,
    ) -> Result<(), NotStarted> {
        self.update_index(tables, now);
        let id = &intent.target;
        let remembered = self.target_records.get(id).cloned().unwrap_or_default();
        let stands = |order: &CompactionOrder| match order.run {
            None => remembered.ordered.as_ref() == Some(order),
            Some(run) => {
                self.runs.active().any(|(number, _)| number == run)
                    && remembered.done_in_run < Some(run)
            }
        };
        if !ordered.is_none_or(stands) {
            return Err(NotStarted::OrderGone);
        }
        let target = self.target_index.position(id).and_then(|ix| tables.target(ix));
        let facts = target.map(|target| target.facts()).unwrap_or_default();
        let forced = ordered.is_some_and(|ordered| ordered.force);
        let correction = target.map(|target| target.correction()).unwrap_or_default();
        let rest = remembered.backoff(id.kind(), &facts, correction, now);
        let rest = rest.filter(|_| !forced);
        if let Some(rest) = rest {
            return Err(NotStarted::BackingOff(match rest {
                Backoff::CoolDown { .. } => "is paused after its last job",
                Backoff::Quarantined { .. } => "is in quarantine",
                Backoff::Futile { .. } | Backoff::Unsettled { .. } => {
                    "would free no more than its last compaction did"
                }
            }));
        }
        if self.rereads.contains(id) && remembered.copies_done.is_empty() {
            return Err(NotStarted::BackingOff("was started and has not been measured since"));
        }
        Ok(())
    }

    /// Checks whether a start keeps to this cluster's share of shared limits.
    pub(super) fn check_share(
        &self,
        intent: &Intent,
        allowed: Share,
        tables: &Snapshot,
        now: Moment,
    ) -> Result<(), NotStarted> {
        let jobs = JobTracker::job_count(intent, tables).unwrap_or(1);
        if jobs == 0 {
            return Ok(());
        }
        let SharedUse { used, is_lower_bound } = self.shared_use(now);
        if is_lower_bound {
            let why =
                "recliner does not know yet which compactions of an earlier process still run";
            return Err(NotStarted::SharedLimits(why.to_owned()));
        }
        let Some(bytes_per_hour) = intent.file_bytes else {
            let why = "the size of the file is unknown, so recliner cannot count it towards this cluster's share of shared limits";
            return Err(NotStarted::SharedLimits(why.to_owned()));
        };
        let after = used.plus(Share { jobs, bytes_per_hour });
        if after.fits(allowed) {
            return Ok(());
        }
        Err(NotStarted::SharedLimits(format!(
            "the start would make {2} jobs and {3} an hour, and this cluster's share of the shared limits is now {0} and {1}",
            allowed.jobs,
            size::format_size_short(allowed.bytes_per_hour),
            after.jobs,
            size::format_size_short(after.bytes_per_hour),
        )))
    }

    /// How much of the shared limits compactions use.
    pub(super) fn shared_use(&self, now: Moment) -> SharedUse {
        let recent = self.recent_starts.iter().filter(|(at, _)| at.age(now) < BUDGET_PERIOD);
        let bytes_per_hour = recent.map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
        let jobs = self.tracker.jobs().compactions().count();
        SharedUse {
            used: Share { jobs, bytes_per_hour },
            is_lower_bound: !self.tracker.knows_own_jobs(),
        }
    }

    /// Records a start and completes its order. The start counts from now on, whether stored or
    /// not.
    pub(super) fn accept_start(
        &mut self,
        intent: Intent,
        tables: &Snapshot,
        now: Moment,
    ) -> Result<Vec<StateChange>, StartRejected> {
        self.tracker.accept_start(intent.clone(), tables, now)?;
        let of = |job: &crate::jobs::Job| {
            (job.started_at == intent.at && job.owner == JobOwner::Recliner).then_some(job.key.node)
        };
        for node in self.tracker.jobs().list.iter().filter_map(of) {
            self.last_start_by_node.insert(node, now);
        }
        if intent.target.kind() == TargetKind::Cleanup {
            self.last_start_by_node.insert(NodeIx::CLUSTER, now);
        }
        self.recent_starts.push((now, intent.file_bytes.unwrap_or_default()));
        let id = intent.target.clone();
        let ordered = self.target_records.get(&id).and_then(|it| it.ordered.clone());
        self.unanswered_starts.insert(intent.key(), (intent.clone(), ordered.clone()));
        self.rereads.add(&id, now);
        self.target_index.add(&id);
        let mut changes = vec![StateChange::StartIntended(intent)];
        self.update_busy_periods(tables, now);
        changes.extend(self.changed_work(tables));
        if ordered.is_some() {
            changes.extend(self.set_order(id, None));
        }
        Ok(changes)
    }

    /// Sets or removes an order.
    pub(super) fn set_order(
        &mut self,
        id: TargetId,
        ordered: Option<CompactionOrder>,
    ) -> Option<StateChange> {
        let before = self.target_records.get(&id).cloned().unwrap_or_default();
        let after = TargetRecord { ordered, ..before.clone() };
        self.set_target_record(id, before, after)
    }

    pub(super) fn expire_orders(&mut self, now: Moment) -> Vec<StateChange> {
        let late = |it: &TargetRecord| it.ordered.as_ref().is_some_and(|order| order.until <= now);
        let late = self.target_records.iter().filter(|(_, remembered)| late(remembered));
        let ids: Vec<TargetId> = late.map(|(id, _)| id.clone()).collect();
        let lapse = |id: TargetId| {
            tracing::warn!(target_id = %id, "an order expired before the compaction could start");
            self.set_order(id, None)
        };
        ids.into_iter().filter_map(lapse).collect()
    }

    pub(super) fn apply_request_result(
        &mut self,
        key: &IntentKey,
        sent: RequestResult,
        tables: &Snapshot,
        settings: &JobStateSettings,
        now: Moment,
    ) -> Effects {
        let mut waits_again = None;
        match self.unanswered_starts.remove(key) {
            Some((intent, _))
                if matches!(sent, RequestResult::Accepted | RequestResult::MayHaveArrived(_)) =>
            {
                let (node, channel) = (intent.node.as_str().into(), intent.channel.as_str().into());
                self.counters.count_start((node, channel, intent.target.kind()));
            }
            Some((intent, Some(ordered))) if matches!(sent, RequestResult::NotSent(_)) => {
                waits_again = self.set_order(intent.target, Some(ordered));
            }
            Some(_) | None => {}
        }
        match sent {
            RequestResult::NotSent(_) | RequestResult::Refused(_) => {
                self.clear_pending(&key.target)
            }
            RequestResult::MayHaveArrived(_) if key.target.kind() == TargetKind::Cleanup => {
                self.rereads.mark_unconfirmed(&key.target, now);
            }
            RequestResult::Accepted | RequestResult::MayHaveArrived(_) => {}
        }
        let accepted = sent == RequestResult::Accepted;
        let step = self.tracker.apply_request_result(key, sent, tables, now);
        let mut follows = self.effects_of(step, settings);
        follows.changes.extend(waits_again);
        if accepted && key.target.kind() == TargetKind::Cleanup {
            let mut targets =
                tables.targets().filter(|target| target.kind() == TargetKind::Cleanup);
            follows.cleaned.extend(targets.find(|it| it.id() == key.target).map(|it| it.ix()));
        }
        follows
    }

    fn effects_of(&mut self, step: TrackerChanges, settings: &JobStateSettings) -> Effects {
        let mut follows = Effects { reread: step.reread, ..Effects::default() };
        follows.changes.extend(step.withdrawn.into_iter().map(StateChange::StartWithdrawn));
        for ended in step.ended {
            self.record_end(ended, settings, &mut follows.changes);
        }
        follows
    }

    fn record_end(
        &mut self,
        ended: EndedJob,
        settings: &JobStateSettings,
        changes: &mut Vec<StateChange>,
    ) {
        let outcome = &ended.outcome;
        let (id, owner) = (&outcome.target, outcome.owner.label());
        let (node, ending) = (&outcome.node, outcome.ending.label());
        let freed = outcome.freed_bytes();
        let bytes = |bytes: i64| size::format_size(bytes.unsigned_abs()).to_string();
        let grew_by = freed.filter(|freed| *freed < 0).map(bytes);
        let freed = freed.filter(|freed| *freed >= 0).map(bytes);
        let took = outcome.took().map(duration::format_rounded);
        match &outcome.why {
            Some(why) if outcome.ending == JobResult::Failed => {
                tracing::warn!(target_id = %id, node, owner, took, why, "compaction failed");
            }
            why => {
                tracing::info!(target_id = %id, node, owner, ending, freed, grew_by, took, why, "compaction ended");
            }
        }
        self.counters.count_end(&ended);
        self.totals.count(outcome);
        let before = self.target_records.get(&outcome.target).cloned().unwrap_or_default();
        let mut after = before.clone();
        if !(ended.may_have_run || ended.never_arrived) {
            after.record_outcome(outcome, ended.after, &settings.failure);
        }
        let done = !matches!(outcome.ending, JobResult::Failed | JobResult::Lost);
        // For most copies of a view, no later reading shows whether a request arrived. Such a copy
        // counts as done; the view is measured again after its last copy.
        let counts_as_done = done || ended.may_have_run;
        // Only recliner's own compaction begins a round. Other programs that compact one copy also
        // compact the rest, and polls show only some copies of a short compaction of all.
        let in_round = outcome.owner == JobOwner::Recliner || !after.copies_done.is_empty();
        if in_round
            && counts_as_done
            && outcome.kind == TargetKind::View
            && outcome.node != crate::model::target::CLUSTER_NODE
        {
            after.record_copy_done(&outcome.node, ended.copies);
        } else if done {
            after.copies_done.clear();
        }
        if !ended.never_arrived {
            let is_last = after.copies_done.is_empty();
            let covering = self.runs.record(outcome, is_last);
            if is_last || !done {
                after.done_in_run = after.done_in_run.max(covering.last().copied());
            }
            changes.extend(self.changed_runs(&covering));
        }
        let id = outcome.target.clone();
        // The file itself was read to determine the ending.
        if outcome.owner == JobOwner::Recliner && outcome.after_bytes.is_some() {
            self.clear_pending(&id);
        }
        if self.calibration.learn(outcome, ended.copied_bytes) {
            changes.push(StateChange::Calibrate(self.calibration.clone()));
        }
        changes.push(StateChange::JobEnded { outcome: ended.outcome, closes: ended.closed_intent });
        if let Some((key, evidence)) = ended.evidence {
            let learned = self.corrections.learn(key, &evidence);
            self.corrected_at = None;
            changes
                .extend(learned.into_iter().map(|(key, it)| StateChange::SetCorrection(key, it)));
        }
        changes.extend(self.set_target_record(id, before, after));
    }

    fn set_target_record(
        &mut self,
        id: TargetId,
        before: TargetRecord,
        after: TargetRecord,
    ) -> Option<StateChange> {
        if before == after {
            return None;
        }
        if after.is_empty() {
            self.target_records.remove(&id);
            self.drop_from_index(&id);
            return Some(StateChange::SetTargetRecord(id, None));
        }
        self.target_records.insert(id.clone(), after.clone());
        self.target_index.add(&id);
        Some(StateChange::SetTargetRecord(id, Some(after)))
    }

    /// Removes the target's pending start.
    fn clear_pending(&mut self, id: &TargetId) {
        self.rereads.remove(id);
        self.drop_from_index(id);
    }

    /// Removes a target from the index if nothing about it is remembered.
    fn drop_from_index(&mut self, id: &TargetId) {
        if !self.target_records.contains_key(id) && !self.rereads.contains(id) {
            self.target_index.remove(id);
        }
    }

    /// Suspends starts of a scope.
    pub(super) fn suspend(
        &mut self,
        scope: SuspensionScope,
        suspension: Suspension,
    ) -> StateChange {
        self.suspensions.0.insert(scope.clone(), suspension.clone());
        StateChange::Suspend(scope, suspension)
    }

    /// Resumes starts of a scope.
    pub(super) fn resume(&mut self, scope: SuspensionScope, by: Option<String>) -> StateChange {
        self.suspensions.0.remove(&scope);
        StateChange::Resume { scope, by }
    }

    /// Carries out a command about runs; returns the number of the run, and what to store.
    pub(super) fn change_run(
        &mut self,
        command: RunCommand,
    ) -> Result<(u64, Vec<StateChange>), RunRejected> {
        let changed = self.runs.apply(command)?;
        let mut changes: Vec<StateChange> = self.changed_runs(&changed).collect();
        if self.runs.open().next().is_none() {
            let done = self.target_records.iter().filter(|(_, it)| it.done_in_run.is_some());
            let done: Vec<(TargetId, TargetRecord)> =
                done.map(|(id, record)| (id.clone(), record.clone())).collect();
            for (id, before) in done {
                let after = TargetRecord { done_in_run: None, ..before.clone() };
                changes.extend(self.set_target_record(id, before, after));
            }
        }
        Ok((changed.first().copied().unwrap_or_default(), changes))
    }

    fn changed_runs(&self, numbers: &[u64]) -> impl Iterator<Item = StateChange> {
        let run = |number: &u64| StateChange::SetRun(*number, self.runs.0.get(number).cloned());
        numbers.iter().map(run)
    }

    /// Clears failures and futility of one target, or of all.
    pub(super) fn release(&mut self, which: Option<&TargetId>) -> Vec<StateChange> {
        let ids: Vec<TargetId> = match which {
            Some(id) => vec![id.clone()],
            None => self.target_records.keys().cloned().collect(),
        };
        let mut changes = Vec::new();
        for id in ids {
            let Some(before) = self.target_records.get(&id).cloned() else { continue };
            let mut after = before.clone();
            after.release();
            changes.extend(self.set_target_record(id, before, after));
        }
        changes
    }

    /// The corrections of predictions, if something was learned or forgotten since the last call.
    pub(super) fn new_corrections(&mut self, now: Moment) -> Option<Corrections> {
        let is_recent = |at: Moment| at <= now && at.age(now) < FORGETTING_INTERVAL;
        if self.corrected_at.is_some_and(is_recent) {
            return None;
        }
        self.corrected_at = Some(now);
        Some(self.corrections.in_force(now))
    }

    /// Number of starts accepted so far.
    pub(super) const fn starts_accepted(&self) -> u64 {
        self.tracker.starts_accepted()
    }

    /// All jobs. A node counts as polled, which allows starts on it, only once the constraints say when
    /// compactions last ran on it.
    pub(super) fn jobs(&self) -> Jobs {
        let mut jobs = self.tracker.jobs();
        jobs.polled_nodes.retain(|(node, _)| node.as_usize() < self.placed_nodes);
        jobs
    }

    /// Updates the index, and forgets starts whose targets were measured since.
    fn update_index(&mut self, tables: &Snapshot, now: Moment) {
        self.target_index.update(tables);
        let places = &self.target_index;
        let facts = |id: &TargetId| Some(tables.target(places.position(id)?)?.facts());
        for id in self.rereads.remove_measured(facts, now) {
            self.drop_from_index(&id);
        }
    }

    fn update_busy_periods(&mut self, tables: &Snapshot, now: Moment) {
        let (last_starts, periods) = (&mut self.last_start_by_node, &mut self.busy_periods);
        self.unplaced_work.retain(|name, work| {
            let Some(node) = node_called(tables, name) else { return true };
            if let Some(at) = work.last_start.map(|at| at.min(now)) {
                let last = last_starts.entry(node).or_insert(at);
                *last = at.max(*last);
            }
            if let Some(busy) = &work.busy {
                periods.entry(node).or_insert_with(|| BusyPeriod::restored(node, busy, now));
            }
            false
        });
        self.placed_nodes = tables.nodes().len();
        // No busy period ends until it is known what an earlier process left running.
        let unknown = !self.tracker.knows_own_jobs();
        let lasting = periods.values().filter(|it| unknown && it.ended_at.is_none());
        let lasting: Vec<JobKey> = lasting.map(|it| it.first_job.clone()).collect();
        let running = self.tracker.own_compactions().chain(&lasting).collect();
        BusyPeriod::update_all(periods, &running, now);
    }

    /// Changes about nodes since they were last stored.
    pub(super) fn changed_work(&mut self, tables: &Snapshot) -> Vec<StateChange> {
        let nodes = self.last_start_by_node.keys().chain(self.busy_periods.keys());
        let mut changes = Vec::new();
        for node in nodes.copied().collect::<BTreeSet<_>>() {
            let work = NodeWork {
                last_start: self.last_start_by_node.get(&node).copied(),
                busy: self.busy_periods.get(&node).map(BusyPeriod::record),
            };
            if self.stored_work.get(&node) != Some(&work) {
                let Some(name) = tables.node(node).map(|it| it.name.to_string()) else { continue };
                changes.push(StateChange::SetNodeWork(name, work.clone()));
                self.stored_work.insert(node, work);
            }
        }
        changes
    }

    /// The remembered constraints, by table position.
    pub(super) fn constraints(
        &mut self,
        tables: &Snapshot,
        journal_failure: Option<(Moment, JournalFailure)>,
        now: Moment,
    ) -> TargetConstraints {
        self.recent_starts.retain(|(at, _)| at.age(now) < BUDGET_PERIOD);
        self.update_busy_periods(tables, now);
        // Positions of new targets must be known at once, so that their constraints apply to the
        // next plan.
        self.update_index(tables, now);
        let started =
            self.rereads.iter().filter_map(|(id, at)| Some((self.target_index.position(id)?, at)));
        let mut history = TargetConstraints {
            suspensions: self.suspensions.clone(),
            runs: self.runs.clone(),
            recent_starts: self.recent_starts.clone(),
            last_start_by_node: self.last_start_by_node.clone(),
            busy_periods: self.busy_periods.clone(),
            enforcing_since: self.enforcing_since,
            learned_headroom_factor: self.calibration.headroom_factor,
            rewrite_bytes_per_second: self.calibration.rate,
            build_speeds: self.calibration.builds.0.as_slice().into(),
            journal_failure,
            started_unmeasured: started.collect(),
            ..TargetConstraints::default()
        };
        for (id, remembered) in &self.target_records {
            let Some(ix) = self.target_index.position(id) else { continue };
            let Some(target) = tables.target(ix) else { continue };
            let facts = target.facts();
            let correction = target.correction();
            if let Some(rest) = remembered.backoff(target.kind(), &facts, correction, now) {
                history.backoffs.insert(ix, rest);
            }
            if let Some(left) = remembered.remaining_bytes(target.kind(), &facts, correction) {
                history.remaining_bytes.insert(ix, left);
            }
            if let Some(ordered) = remembered.ordered.as_ref().filter(|it| it.until > now) {
                history.orders.insert(ix, ordered.clone());
            }
            if let Some(run) = remembered.done_in_run {
                history.done_in_run.insert(ix, run);
            }
            if !remembered.copies_done.is_empty() {
                history.partly_compacted_views.insert(
                    ix,
                    remembered
                        .copies_done
                        .iter()
                        .filter_map(|it| node_called(tables, it))
                        .collect(),
                );
            }
        }
        history
    }
}

/// The node of this name, if the tables have it.
fn node_called(tables: &Snapshot, name: &str) -> Option<NodeIx> {
    NodeIx::from_usize(tables.nodes().iter().position(|node| *node.name == *name)?)
}
