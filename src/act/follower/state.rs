//! State of jobs and targets, and its transitions. No I/O: changes to store and targets to reread
//! are returned.

use super::{Counts, NotStarted, Settings, places::Places, rereads::PendingRereads};
use crate::{
    jobs::{Ended, History, Jobs, Rules, Running, Sent, StartRefused, Step, Tracker},
    model::{
        memory::{
            Calibration, Change, Ending, Intent, IntentKey, Ordered, Owner, Recovered, Remembered,
            Rest, Scope, Suspension, Suspensions,
        },
        target::{Kind, TargetId},
    },
    plan::first_channel,
    table::{Ix, NodeIx, Snapshot},
    text::{duration, size},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// How long starts count against the hourly budget.
const HOUR: Duration = Duration::from_secs(3_600);

/// The state is updated at least every ten seconds. A longer gap than this means that the clock was
/// set or the machine slept.
const LATE: Duration = Duration::from_secs(120);

/// The state that the task owns.
#[derive(Debug)]
pub(super) struct State {
    tracker: Tracker,
    remembered: BTreeMap<TargetId, Remembered>,
    suspensions: Suspensions,
    calibration: Calibration,
    spent: Vec<(Moment, u64)>,
    last_start: BTreeMap<NodeIx, Moment>,
    acting_since: Option<Moment>,
    /// Time of the last update.
    looked: Option<Moment>,
    places: Places,
    rereads: PendingRereads,
    pub(super) counts: Counts,
    /// Starts without an answer so far: the intent, for the counters, and the order that caused it.
    asked: BTreeMap<IntentKey, (Intent, Option<Ordered>)>,
}

/// Effects of a state change.
#[derive(Debug, Default)]
pub(super) struct Follows {
    /// Changes to store.
    pub(super) changes: Vec<Change>,
    /// Targets to reread.
    pub(super) reread: BTreeSet<Ix>,
    /// Databases for which CouchDB accepted a cleanup.
    pub(super) cleaned: Vec<Ix>,
}

impl State {
    pub(super) fn new(recovered: Recovered, now: Moment) -> Self {
        let mut tracker = Tracker::default();
        let mut places = Places::default();
        recovered.remembered.keys().for_each(|id| places.add(id));
        let ours = recovered.recent.iter().filter(|outcome| outcome.owner == Owner::Recliner);
        let ended =
            ours.map(|outcome| (outcome.started_at, outcome.before_bytes.unwrap_or_default()));
        let open = recovered.intents.iter();
        let open = open.map(|intent| (intent.at, intent.file_bytes.unwrap_or_default()));
        let spent = ended.chain(open).collect();
        tracker.adopt(recovered.intents, now);
        Self {
            tracker,
            remembered: recovered.remembered,
            suspensions: Suspensions(recovered.suspensions),
            calibration: recovered.calibration,
            spent,
            last_start: BTreeMap::new(),
            acting_since: None,
            looked: None,
            places,
            rereads: PendingRereads::default(),
            counts: Counts::default(),
            asked: BTreeMap::new(),
        }
    }

    /// Detects whether the clock was set since the last update. If so, waiting periods restart now,
    /// so that they neither end at once nor last until the clock has caught up.
    pub(super) fn look_at_clock(&mut self, now: Moment) {
        let set = self.looked.is_some_and(|last| now < last || last.age(now) > LATE);
        self.looked = Some(now);
        if set {
            self.tracker.clock_set(now);
            self.rereads.clock_set(now);
            self.acting_since = self.acting_since.map(|since| since.min(now));
        }
    }

    /// Records since when this process enforces.
    pub(super) fn acts(&mut self, acting: bool, now: Moment) {
        if !acting {
            self.acting_since = None;
        } else if self.acting_since.is_none() {
            self.acting_since = Some(now);
        }
    }

    pub(super) fn polled(
        &mut self,
        running: &Running,
        tables: &Snapshot,
        settings: &Settings,
        now: Moment,
    ) -> Follows {
        let channel_of = |target: crate::table::TargetRef<'_>| {
            let (at, _) = first_channel(&settings.channels, target)?;
            settings.channels.list.get(at).map(|channel| Arc::clone(&channel.name))
        };
        let learned = self.calibration.headroom_factor.unwrap_or_default();
        let headroom_factor = settings.headroom_factor.max(learned);
        let rules = Rules { headroom_factor, channel_of: &channel_of };
        let step = self.tracker.polled(running, tables, &rules, now);
        self.follow(step, settings)
    }

    pub(super) fn measured(
        &mut self,
        tables: &Snapshot,
        settings: &Settings,
        now: Moment,
    ) -> Follows {
        let step = self.tracker.measured(tables, now);
        self.follow(step, settings)
    }

    /// Targets to read to determine how jobs ended, or because they were not measured since their
    /// start; and databases for which the scanner still shows evidence of a cleanup that was
    /// already started.
    pub(super) fn unread(&self, tables: &Snapshot) -> Follows {
        let mut follows = Follows { reread: self.tracker.unread(tables), ..Follows::default() };
        for (id, _) in self.rereads.all().filter(|(id, _)| !self.tracker.has_open(id)) {
            let Some(ix) = self.places.of(id) else { continue };
            match id.kind() {
                Kind::Cleanup => follows.cleaned.push(ix),
                Kind::Db | Kind::View | Kind::Search => {
                    follows.reread.insert(ix);
                }
            }
        }
        follows
    }

    /// Checks whether the remembered state of a target, by its id, allows a start. The plan may be
    /// older than that state, and identifies the target by table position only.
    pub(super) fn allows(
        &mut self,
        intent: &Intent,
        ordered: Option<&Ordered>,
        tables: &Snapshot,
        now: Moment,
    ) -> Result<(), NotStarted> {
        self.follow_tables(tables, now);
        let id = &intent.target;
        let remembered = self.remembered.get(id).cloned().unwrap_or_default();
        if ordered.is_some() && remembered.ordered.as_ref() != ordered {
            return Err(NotStarted::NotOrdered);
        }
        let target = self.places.of(id).and_then(|ix| tables.target(ix));
        let facts = target.map(|target| target.facts()).unwrap_or_default();
        let forced = ordered.is_some_and(|ordered| ordered.force);
        let rest = remembered.rest(id.kind(), &facts, now).filter(|_| !forced);
        if let Some(rest) = rest {
            return Err(NotStarted::Rests(match rest {
                Rest::CoolDown { .. } => "failed recently",
                Rest::Quarantined { .. } => "is in quarantine",
                Rest::Futile { .. } => "would free no more than its last compaction did",
            }));
        }
        if self.rereads.has(id) && remembered.copies_done.is_empty() {
            return Err(NotStarted::Rests("was started and has not been measured since"));
        }
        Ok(())
    }

    /// Records a start and completes its order. It counts from now on, whether stored or not.
    pub(super) fn start(
        &mut self,
        intent: Intent,
        tables: &Snapshot,
        now: Moment,
    ) -> Result<Vec<Change>, StartRefused> {
        self.tracker.start(intent.clone(), tables, now)?;
        let of = |job: &crate::jobs::Job| {
            (job.since == intent.at && job.owner == Owner::Recliner).then_some(job.key.node)
        };
        for node in self.tracker.jobs().list.iter().filter_map(of) {
            self.last_start.insert(node, now);
        }
        if intent.target.kind() == Kind::Cleanup {
            self.last_start.insert(NodeIx::CLUSTER, now);
        }
        self.spent.push((now, intent.file_bytes.unwrap_or_default()));
        let id = intent.target.clone();
        let ordered = self.remembered.get(&id).and_then(|it| it.ordered.clone());
        self.asked.insert(intent.key(), (intent.clone(), ordered.clone()));
        self.rereads.started(&id, now);
        self.places.add(&id);
        let mut changes = vec![Change::Intended(intent)];
        if ordered.is_some() {
            changes.extend(self.order(id, None));
        }
        Ok(changes)
    }

    /// Sets or removes an order.
    pub(super) fn order(&mut self, id: TargetId, ordered: Option<Ordered>) -> Option<Change> {
        let before = self.remembered.get(&id).cloned().unwrap_or_default();
        let after = Remembered { ordered, ..before.clone() };
        self.remember(id, before, after)
    }

    /// Removes expired orders.
    pub(super) fn lapse(&mut self, now: Moment) -> Vec<Change> {
        let late = |it: &Remembered| it.ordered.as_ref().is_some_and(|order| order.until <= now);
        let late = self.remembered.iter().filter(|(_, remembered)| late(remembered));
        let ids: Vec<TargetId> = late.map(|(id, _)| id.clone()).collect();
        let lapse = |id: TargetId| {
            tracing::warn!(target_id = %id, "an order expired before the compaction could start");
            self.order(id, None)
        };
        ids.into_iter().filter_map(lapse).collect()
    }

    pub(super) fn sent(
        &mut self,
        key: &IntentKey,
        sent: Sent,
        tables: &Snapshot,
        settings: &Settings,
        now: Moment,
    ) -> Follows {
        let mut waits_again = None;
        match self.asked.remove(key) {
            Some((intent, _)) if matches!(sent, Sent::Accepted | Sent::Unknown(_)) => {
                let (node, channel) = (intent.node.as_str().into(), intent.channel.as_str().into());
                self.counts.start((node, channel, intent.target.kind()));
            }
            Some((intent, Some(ordered))) if matches!(sent, Sent::NotSent(_)) => {
                waits_again = self.order(intent.target, Some(ordered));
            }
            Some(_) | None => {}
        }
        match sent {
            Sent::NotSent(_) | Sent::Refused(_) => self.settle(&key.target),
            Sent::Unknown(_) if key.target.kind() == Kind::Cleanup => {
                self.rereads.unsure(&key.target, now);
            }
            Sent::Accepted | Sent::Unknown(_) => {}
        }
        let accepted = sent == Sent::Accepted;
        let step = self.tracker.sent(key, sent, tables, now);
        let mut follows = self.follow(step, settings);
        follows.changes.extend(waits_again);
        if accepted && key.target.kind() == Kind::Cleanup {
            let mut targets = tables.targets().filter(|target| target.kind() == Kind::Cleanup);
            follows.cleaned.extend(targets.find(|it| it.id() == key.target).map(|it| it.ix()));
        }
        follows
    }

    fn follow(&mut self, step: Step, settings: &Settings) -> Follows {
        let mut follows = Follows { reread: step.reread, ..Follows::default() };
        follows.changes.extend(step.withdrawn.into_iter().map(Change::Withdrawn));
        for ended in step.ended {
            self.end(ended, settings, &mut follows.changes);
        }
        follows
    }

    fn end(&mut self, ended: Ended, settings: &Settings, changes: &mut Vec<Change>) {
        let outcome = &ended.outcome;
        let (id, owner) = (&outcome.target, outcome.owner.label());
        let (node, ending) = (&outcome.node, outcome.ending.label());
        let freed = outcome.freed_bytes();
        let bytes = |bytes: i64| size::shown(bytes.unsigned_abs()).to_string();
        let grew_by = freed.filter(|freed| *freed < 0).map(bytes);
        let freed = freed.filter(|freed| *freed >= 0).map(bytes);
        let took = duration::shown(outcome.started_at.age(outcome.ended_at));
        match &outcome.why {
            Some(why) if outcome.ending == Ending::Failed => {
                tracing::warn!(target_id = %id, node, owner, %took, why, "compaction failed");
            }
            why => {
                tracing::info!(target_id = %id, node, owner, ending, freed, grew_by, %took, why, "compaction ended");
            }
        }
        self.counts.end(&ended);
        let before = self.remembered.get(&outcome.target).cloned().unwrap_or_default();
        let mut after = before.clone();
        after.ended(outcome, ended.left, &settings.failure);
        let done = !matches!(outcome.ending, Ending::Failed | Ending::Lost);
        // For most copies of a view, no later reading shows whether a request arrived. Such a copy
        // counts as done; the view is measured again after its last copy.
        let spent = done || ended.may_have_run;
        if spent && outcome.kind == Kind::View && outcome.node != crate::model::target::CLUSTER {
            after.copy_done(&outcome.node, ended.copies);
        } else if done {
            after.copies_done.clear();
        }
        let id = outcome.target.clone();
        // The file itself was read to determine the ending.
        if outcome.owner == Owner::Recliner && outcome.after_bytes.is_some() {
            self.settle(&id);
        }
        if self.calibration.learn(outcome, ended.active_bytes) {
            changes.push(Change::Calibrate(self.calibration));
        }
        changes.push(Change::Ended { outcome: ended.outcome, closes: ended.closes });
        changes.extend(self.remember(id, before, after));
    }

    fn remember(&mut self, id: TargetId, before: Remembered, after: Remembered) -> Option<Change> {
        if before == after {
            return None;
        }
        if after.is_blank() {
            self.remembered.remove(&id);
            self.leave(&id);
            return Some(Change::Remember(id, None));
        }
        self.remembered.insert(id.clone(), after.clone());
        self.places.add(&id);
        Some(Change::Remember(id, Some(after)))
    }

    /// The target has no pending start any more.
    fn settle(&mut self, id: &TargetId) {
        self.rereads.settle(id);
        self.leave(id);
    }

    /// Removes a target from the index if nothing about it is remembered.
    fn leave(&mut self, id: &TargetId) {
        if !self.remembered.contains_key(id) && !self.rereads.has(id) {
            self.places.remove(id);
        }
    }

    /// Suspends starts of a scope.
    pub(super) fn suspend(&mut self, scope: Scope, suspension: Suspension) -> Change {
        self.suspensions.0.insert(scope.clone(), suspension.clone());
        Change::Suspend(scope, suspension)
    }

    /// Resumes starts of a scope.
    pub(super) fn resume(&mut self, scope: Scope, by: Option<String>) -> Change {
        self.suspensions.0.remove(&scope);
        Change::Resume { scope, by }
    }

    /// Clears failures and futility of one target, or of all.
    pub(super) fn release(&mut self, which: Option<&TargetId>) -> Vec<Change> {
        let ids: Vec<TargetId> = match which {
            Some(id) => vec![id.clone()],
            None => self.remembered.keys().cloned().collect(),
        };
        let mut changes = Vec::new();
        for id in ids {
            let Some(before) = self.remembered.get(&id).cloned() else { continue };
            let mut after = before.clone();
            after.release();
            changes.extend(self.remember(id, before, after));
        }
        changes
    }

    /// Number of starts accepted so far.
    pub(super) const fn taken(&self) -> u64 {
        self.tracker.taken()
    }

    pub(super) fn jobs(&self) -> Jobs {
        self.tracker.jobs()
    }

    /// Updates the index, and forgets starts whose targets were measured since.
    fn follow_tables(&mut self, tables: &Snapshot, now: Moment) {
        self.places.follow(tables);
        let places = &self.places;
        let facts = |id: &TargetId| Some(tables.target(places.of(id)?)?.facts());
        for id in self.rereads.measured(facts, now) {
            self.leave(&id);
        }
    }

    /// The remembered constraints, by table position.
    pub(super) fn history(
        &mut self,
        tables: &Snapshot,
        trouble: Option<&(Moment, String)>,
        now: Moment,
    ) -> History {
        self.spent.retain(|(at, _)| at.age(now) < HOUR);
        // Positions of new targets must be known at once, so that their constraints apply to the
        // next plan.
        self.follow_tables(tables, now);
        let started = self.rereads.all().filter_map(|(id, at)| Some((self.places.of(id)?, at)));
        let mut history = History {
            suspensions: self.suspensions.clone(),
            spent: self.spent.clone(),
            last_start: self.last_start.clone(),
            acting_since: self.acting_since,
            headroom_factor: self.calibration.headroom_factor,
            rate: self.calibration.rate,
            journal_trouble: trouble.cloned(),
            started: started.collect(),
            ..History::default()
        };
        let node = |name: &String| {
            let at = tables.nodes().iter().position(|node| *node.name == **name)?;
            NodeIx::from_usize(at)
        };
        for (id, remembered) in &self.remembered {
            let Some(ix) = self.places.of(id) else { continue };
            let Some(target) = tables.target(ix) else { continue };
            let facts = target.facts();
            if let Some(rest) = remembered.rest(target.kind(), &facts, now) {
                history.rests.insert(ix, rest);
            }
            if let Some(ordered) = remembered.ordered.as_ref().filter(|it| it.until > now) {
                history.orders.insert(ix, ordered.clone());
            }
            if !remembered.copies_done.is_empty() {
                history.rounds.insert(ix, remembered.copies_done.iter().filter_map(node).collect());
            }
        }
        history
    }
}
