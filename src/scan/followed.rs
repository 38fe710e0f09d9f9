//! Targets with feed events are read at once; targets that feeds confirm are read rarely.
//!
//! Owns which shards, map entries and views must be read outside of sweeps, and whether the next sweep
//! must list and read everything. While feeds report every change, a sweep reads each confirmed target
//! only once in `interval_followed`.

use super::{
    ScanSettings,
    feed_update::{FeedUpdate, NamedDb, Stale},
    listing::Listing,
    reread_queue::{Pace, RereadQueue},
    targets::TargetTables,
    views::IndexTables,
};
use crate::{
    model::target::{TargetKind, TargetState},
    sources::inventory::{NodeReads, Reshard, Stage},
    table::{DbIx, Draft, NodeIx, Snapshot, TargetIx},
};
use couchdb_client::wire::GLOBAL_CHANGES;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::Instant;
use wall_clock::Moment;

/// Maximum number of a node's shards, or of map entries, that are read together because of feed
/// events. The rest waits for the next batch.
const REREAD_BATCH: usize = 256;

/// The maximum number of map entries that are requested one by one; if more are due, the whole map is
/// read instead.
const MAX_ENTRIES: usize = 1_000;

/// The database with the shard map.
const MAP_DB: &str = "_dbs";

/// How long there must be no feed events and no jobs before the cluster counts as quiet.
const QUIET_AFTER: Duration = Duration::from_secs(60);

/// Targets that wait to be read, and how long the last listing is valid.
#[derive(Debug)]
pub(super) struct Followed {
    /// Shards, node by node.
    shards: RereadQueue<NodeIx, TargetIx>,
    /// Entries of the shard map.
    entries: RereadQueue<(), Box<str>>,
    /// Views that a job changed.
    voided_views: BTreeSet<TargetIx>,
    /// Shards that a job changed: their next read shows how it ended.
    voided_shards: BTreeSet<TargetIx>,
    /// The last complete listing; `None` if the next sweep must list.
    listed: Option<Listed>,
    /// Whether a listing that has not begun yet reads every database that events name before it begins. A
    /// running listing may have read the map before the events.
    lists_anew: bool,
    /// The node whose shard map is followed.
    map_node: Option<Box<str>>,
    /// Nodes that did not answer the last request.
    away: BTreeSet<NodeIx>,
    /// The number of sweeps: each reads another part of the confirmed targets.
    turn: usize,
    /// Whether the next sweep reads everything.
    reads_all: bool,
    /// The time of the last feed event or running job.
    busy: Instant,
}

/// A complete listing.
#[derive(Debug)]
struct Listed {
    /// When its sweep began.
    began: Moment,
    /// When it ended.
    at: Instant,
    /// The splits at that time.
    splits: Option<Reshard>,
}

impl ScanSettings {
    /// The limits on how often one target with feed events is read.
    const fn pace(&self) -> Pace {
        Pace { shortest: self.reread_after, longest: self.interval }
    }

    /// The number of sweeps in which all confirmed targets are read once.
    fn sweeps_for_all(&self) -> usize {
        let sweeps = self.interval_followed.as_secs().checked_div(self.interval.as_secs());
        sweeps.and_then(|sweeps| usize::try_from(sweeps).ok()).unwrap_or(1).max(1)
    }
}

impl Followed {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            shards: RereadQueue::default(),
            entries: RereadQueue::default(),
            voided_views: BTreeSet::new(),
            voided_shards: BTreeSet::new(),
            listed: None,
            lists_anew: true,
            map_node: None,
            away: BTreeSet::new(),
            turn: 0,
            reads_all: false,
            busy: now,
        }
    }

    /// Begins a sweep, in which the next part of the confirmed targets is due.
    pub(super) const fn begin_sweep(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    /// Makes the next sweep list and read everything.
    pub(super) fn read_all_next(&mut self) {
        self.reads_all = true;
        self.forget_listing();
    }

    /// Whether this sweep reads everything.
    pub(super) const fn reads_all(&self) -> bool {
        self.reads_all
    }

    /// Records the end of a sweep that read everything it had to.
    pub(super) const fn all_was_read(&mut self) {
        self.reads_all = false;
    }

    /// Whether a confirmed target is due in this sweep.
    pub(super) fn is_turn_of(&self, ix: TargetIx, sweeps: usize) -> bool {
        ix.as_usize() % sweeps == self.turn % sweeps
    }

    /// Records that a job is running or a feed event arrived.
    pub(super) const fn mark_busy(&mut self, now: Instant) {
        self.busy = now;
    }

    /// Updates whether the cluster is quiet: no feed events and no jobs for a while. Returns whether that
    /// changed.
    pub(super) fn update_quiet(&self, draft: &mut Draft, now: Instant) -> bool {
        let quiet = draft.current().feeds_complete_since().is_some()
            && now.duration_since(self.busy) >= QUIET_AFTER
            && self.shards.next_due(|_| true).is_none();
        let changed = draft.current().is_quiet() != quiet;
        draft.set_quiet(quiet);
        changed
    }

    /// Applies feed events. Returns whether the time since which feeds report everything has changed;
    /// readers of snapshots must learn that at once.
    pub(super) fn update(
        &mut self,
        draft: &mut Draft,
        views: &mut IndexTables,
        update: FeedUpdate,
        settings: &ScanSettings,
        now: Instant,
    ) -> bool {
        if !update.named.is_empty() {
            self.mark_busy(now);
            // CouchDB writes each event into this database but reports no events about it. Without
            // this call it would count as unchanged, although it grows the most.
            self.written(draft, views, GLOBAL_CHANGES, settings, now);
        }
        if update.named.iter().any(|named| named.stale == Stale::Entry) {
            // Each node has its own shard map database, and not every server reports its changes.
            self.written(draft, views, MAP_DB, settings, now);
        }
        for NamedDb { db, stale: what } in update.named {
            let is_known = what == Stale::Shards && self.written(draft, views, &db, settings, now);
            if !is_known {
                self.queue_entry(draft, db, settings, now);
            }
        }
        self.map_node = update.map_node;
        let changed = draft.current().feeds_complete_since() != update.followed_since;
        draft.set_feeds_complete_since(update.followed_since);
        changed
    }

    /// Records a write to a database; returns whether the tables contain it.
    fn written(
        &mut self,
        draft: &mut Draft,
        views: &mut IndexTables,
        db: &str,
        settings: &ScanSettings,
        now: Instant,
    ) -> bool {
        let mut is_known = false;
        for instance in draft.instances_of(db) {
            let copies = draft.copies_of(instance);
            is_known |= !copies.is_empty() || draft.shard_map(instance).copies > 0;
            self.queue_shards(draft, views, (instance, &copies), settings, now);
        }
        is_known
    }

    /// Queues a database's copies for reading; their facts no longer count as confirmed.
    pub(super) fn queue_shards(
        &mut self,
        draft: &mut Draft,
        views: &mut IndexTables,
        (db, copies): (DbIx, &[TargetIx]),
        settings: &ScanSettings,
        now: Instant,
    ) {
        for ix in copies.iter().copied() {
            let Some(target) = draft.current().target(ix) else { continue };
            let there =
                !matches!(target.state(), TargetState::Missing | TargetState::Unaddressable);
            let node = target.node_ix();
            draft.mark_unconfirmed(ix);
            // When a node answers again, a sweep reads all of it.
            if there && draft.current().node(node).is_some_and(|node| node.answers()) {
                self.shards.name(node, ix, settings.pace(), now);
            }
        }
        for view in views.of(db) {
            draft.mark_unconfirmed(*view);
        }
        views.named(db, now);
    }

    fn queue_entry(&mut self, draft: &Draft, db: Box<str>, settings: &ScanSettings, now: Instant) {
        if self.entries.len() >= MAX_ENTRIES {
            self.entries = RereadQueue::default();
            self.forget_listing();
        }
        if !self.lists_anew || draft.current().feeds_complete_since().is_none() {
            self.entries.name((), db, settings.pace(), now);
        }
    }

    /// Queues a target that a job changed, to be read at once, outside of the sweep.
    pub(super) fn reread_after_job(&mut self, draft: &mut Draft, ix: TargetIx, now: Instant) {
        let Some(target) = draft.current().target(ix) else { return };
        let (kind, node) = (target.kind(), target.node_ix());
        self.mark_busy(now);
        draft.mark_unconfirmed(ix);
        match kind {
            TargetKind::Db => {
                self.voided_shards.insert(ix);
                self.shards.name_urgent(node, ix, now);
            }
            TargetKind::View | TargetKind::Search => {
                self.voided_views.insert(ix);
            }
            TargetKind::Cleanup => {}
        }
    }

    /// Queues a shard in which a compaction may have ended, unless it is already queued. It stays
    /// confirmed: nothing says that it changed.
    pub(super) fn check(&mut self, draft: &Draft, ix: TargetIx, now: Instant) {
        let Some(target) = draft.current().target(ix) else { return };
        let there = !matches!(target.state(), TargetState::Missing | TargetState::Unaddressable);
        let node = target.node_ix();
        let is_up = draft.current().node(node).is_some_and(|node| node.answers());
        if there && is_up && !self.shards.contains(&ix) {
            self.shards.name_urgent(node, ix, now);
        }
    }

    /// Takes the databases of the views that jobs changed, if there are any.
    pub(super) fn take_changed_views(&mut self, snapshot: &Snapshot) -> Option<BTreeSet<DbIx>> {
        if self.voided_views.is_empty() {
            return None;
        }
        let voided = std::mem::take(&mut self.voided_views);
        Some(voided.into_iter().filter_map(|ix| Some(snapshot.target(ix)?.db())).collect())
    }

    /// When the next read is due: of shards on free nodes and, if `entries_free`, of map entries.
    pub(super) fn next_due(
        &self,
        free: impl Fn(NodeIx) -> bool,
        entries_free: bool,
    ) -> Option<Instant> {
        let shards = self.shards.next_due(free);
        let entries = self.entries.next_due(|()| entries_free);
        shards.into_iter().chain(entries).min()
    }

    /// Takes the due reads on nodes that are free, and marks them as being read.
    pub(super) fn due_shards(
        &mut self,
        draft: &Draft,
        free: impl Fn(NodeIx) -> bool,
        now: Instant,
    ) -> Vec<(NodeIx, NodeReads)> {
        let due: BTreeMap<NodeIx, Vec<TargetIx>> = self.shards.take_due(free, REREAD_BATCH, now);
        let mut node_reads = Vec::with_capacity(due.len());
        let snapshot = draft.current();
        for (node, targets) in due {
            let (existing, deleted): (Vec<TargetIx>, Vec<TargetIx>) =
                targets.into_iter().partition(|ix| {
                    snapshot.target(*ix).is_some_and(|target| target.node_ix() == node)
                });
            if let Some(found) = snapshot.node(node)
                && !existing.is_empty()
            {
                node_reads.push((node, NodeReads::of(&found.name, existing, snapshot)));
            }
            for ix in deleted {
                self.shards.remove(&ix);
            }
        }
        node_reads
    }

    /// Takes the due map entries, and marks them as being read.
    pub(super) fn due_entries(&mut self, now: Instant) -> Vec<String> {
        let due = self.entries.take_due(|()| true, REREAD_BATCH, now);
        due.into_values().flatten().map(String::from).collect()
    }

    /// Records that a queued shard was read, successfully or not.
    pub(super) fn shard_read(
        &mut self,
        draft: &mut Draft,
        ix: TargetIx,
        well: bool,
        settings: &ScanSettings,
        now: Instant,
    ) {
        let unnamed = self.shards.finish(&ix, well, settings.pace(), now);
        if unnamed && well {
            draft.mark_confirmed(ix);
        }
    }

    /// Records the end of a stage of queued shards: those without a result are read again later.
    /// Returns whether a job changed one of them, because a reader then waits to learn how the job
    /// ended.
    pub(super) fn shards_read(
        &mut self,
        stage: &Stage,
        settings: &ScanSettings,
        now: Instant,
    ) -> bool {
        let Stage::Shards { node_reads, .. } = stage else { return false };
        let mut awaited = false;
        let pace = settings.pace();
        for ix in node_reads.iter().flat_map(|reads| &reads.targets) {
            awaited |= self.voided_shards.remove(ix);
            if self.shards.is_reading(ix) {
                self.shards.finish(ix, false, pace, now);
            }
        }
        self.shards.tidy(pace, now);
        awaited
    }

    /// Records that a sweep read a shard. Its facts are trusted from now on, unless it was queued
    /// again.
    pub(super) fn swept(&self, draft: &mut Draft, ix: TargetIx) {
        if !self.shards.contains(&ix) {
            draft.mark_confirmed(ix);
        }
    }

    /// Records that the map entry of one database was read, successfully or not.
    pub(super) fn entry_read(
        &mut self,
        db: &str,
        well: bool,
        settings: &ScanSettings,
        now: Instant,
    ) {
        let pace = settings.pace();
        self.entries.finish(&Box::from(db), well, pace, now);
        self.entries.tidy(pace, now);
    }

    /// Removes a copy that no longer exists.
    pub(super) fn remove(&mut self, ix: TargetIx) {
        self.shards.remove(&ix);
    }

    /// The node whose map is read: the followed one, so that no event about its content is missed. `None`
    /// means any node that answers.
    pub(super) fn map_node(
        &self,
        snapshot: &Snapshot,
        answers: impl Fn(NodeIx) -> bool,
    ) -> Option<String> {
        let mut members = snapshot.members();
        let (at, node) = members.find(|(_, node)| Some(&*node.name) == self.map_node.as_deref())?;
        let there = node.answers() && !self.away.contains(&at) && answers(at);
        there.then(|| node.name.to_string())
    }

    /// Begins a listing, which reads the map.
    pub(super) const fn begin_listing(&mut self) {
        self.lists_anew = false;
    }

    /// Records a complete listing: the whole map, and the files of every node that this process
    /// serves.
    pub(super) fn listed(&mut self, began: Moment, at: Instant, splits: Option<&Reshard>) {
        if !self.lists_anew {
            self.listed = Some(Listed { began, at, splits: splits.cloned() });
        }
    }

    /// Makes the next sweep list everything.
    pub(super) fn forget_listing(&mut self) {
        (self.listed, self.lists_anew) = (None, true);
    }

    /// Whether a sweep must list everything; not if feeds reported all changes since the last listing.
    pub(super) fn requires_listing(
        &self,
        targets: &TargetTables,
        listing: &Listing,
        settings: &ScanSettings,
        now: Instant,
    ) -> bool {
        let snapshot = targets.now();
        let (Some(since), Some(listed)) = (snapshot.feeds_complete_since(), &self.listed) else {
            return true;
        };
        let mut nodes = snapshot.nodes().iter().enumerate().skip(1);
        listed.began < since
            || now.duration_since(listed.at) >= settings.interval_followed
            || listed.splits.as_ref() != listing.splits()
            || nodes.any(|(at, node)| {
                let read = node.is_member && node.answers() && settings.nodes.has(&node.name);
                read && !NodeIx::from_usize(at).is_some_and(|at| listing.has_listed(at))
            })
    }

    /// Whether a sweep reads a target. A confirmed target is read only when it is due, unless its facts
    /// come only from a distrusted header; a queued target is never read by a sweep.
    pub(super) fn is_due(
        &self,
        ix: TargetIx,
        targets: &TargetTables,
        settings: &ScanSettings,
    ) -> bool {
        if self.reads_all {
            return true;
        }
        if self.shards.contains(&ix) {
            return false;
        }
        !targets.now().is_confirmed(ix)
            || targets.needs_couchdb(ix)
            || self.is_turn_of(ix, settings.sweeps_for_all())
    }

    /// Records whether a node answered. If that changed, feeds may have missed changes on the node.
    pub(super) fn node_answered(&mut self, draft: &mut Draft, node: NodeIx, there: bool) {
        let changed = if there { self.away.remove(&node) } else { self.away.insert(node) };
        if !changed || draft.current().feeds_complete_since().is_none() {
            return;
        }
        let on_node = draft.current().targets().filter(|target| target.node_ix() == node);
        for ix in on_node.map(|target| target.ix()).collect::<Vec<_>>() {
            draft.mark_unconfirmed(ix);
        }
    }

    /// Whether a node did not answer the last request.
    pub(super) fn is_any_node_away(&self) -> bool {
        !self.away.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::facts::{FactSource, Facts, Measurement},
        table::{DbName, ShardMapEntry},
    };
    use couchdb_names::Range;

    /// Settings with which a confirmed target is read once in ten sweeps.
    fn settings() -> ScanSettings {
        ScanSettings { interval_followed: Duration::from_secs(3_000), ..ScanSettings::example() }
    }

    /// One shard that feeds confirm, measured at second 9, on a node that is up.
    fn one_shard() -> (TargetTables, NodeIx, TargetIx) {
        let mut targets = TargetTables::new(1);
        let draft = &mut targets.draft;
        let node = draft.get_or_add_node("couchdb@a");
        draft.update_node(node, |node| (node.is_member, node.is_up) = (true, Some(true)));
        let db = draft.get_or_add_db(DbName { db: "a", suffix: ".1" });
        let ix = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
        draft.set_shard_map(db, ShardMapEntry { copies: 1, ranges: 1 }, &[]);
        let measured_at = Some(Measurement { at: Moment::from_unix(9), source: FactSource::Http });
        draft.set_facts(ix, Facts { measured_at, ..Facts::default() });
        draft.set_feeds_complete_since(Some(Moment::from_unix(1)));
        (targets, node, ix)
    }

    fn named(db: &str, what: Stale) -> FeedUpdate {
        let followed_since = Some(Moment::from_unix(1));
        let named = vec![NamedDb { db: db.into(), stale: what }];
        FeedUpdate { named, followed_since, map_node: None }
    }

    #[test]
    fn shard_with_an_event_is_unconfirmed_until_it_is_reread() {
        let (mut targets, node, ix) = one_shard();
        let (settings, now) = (settings(), Instant::now());
        let (mut followed, mut views) = (Followed::new(now), IndexTables::default());
        // Its turn comes once in ten sweeps.
        let due = |followed: &mut Followed, targets: &TargetTables| {
            followed.begin_sweep();
            followed.is_due(ix, targets, &settings)
        };
        assert_eq!((0..20).filter(|_| due(&mut followed, &targets)).count(), 2);
        let update = named("a", Stale::Shards);
        assert!(!followed.update(&mut targets.draft, &mut views, update, &settings, now));
        assert!(!targets.now().is_confirmed(ix));
        assert_eq!((0..20).filter(|_| due(&mut followed, &targets)).count(), 0);
        assert_eq!(followed.next_due(|_| true, true), Some(now));
        assert_eq!(followed.next_due(|_| false, true), None, "the node is busy");
        let node_reads = followed.due_shards(&targets.draft, |_| true, now);
        assert_eq!(
            node_reads.iter().map(|(at, reads)| (*at, &*reads.targets)).collect::<Vec<_>>(),
            [(node, &[ix][..])]
        );
        followed.shard_read(&mut targets.draft, ix, true, &settings, now);
        assert!(targets.now().is_confirmed(ix));
        followed.read_all_next();
        assert!((0..20).all(|_| due(&mut followed, &targets)));
        followed.all_was_read();
        assert!(!followed.reads_all());
    }

    #[test]
    fn every_event_marks_global_changes_as_written() {
        let (mut targets, node, ix) = one_shard();
        let draft = &mut targets.draft;
        let db = draft.get_or_add_db(DbName { db: GLOBAL_CHANGES, suffix: ".1" });
        let events = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
        let facts = draft.current().target(ix).unwrap().facts();
        draft.set_facts(events, facts);
        let (settings, now) = (settings(), Instant::now());
        let (mut followed, mut views) = (Followed::new(now), IndexTables::default());
        assert!(targets.now().is_confirmed(events));
        let update = named("a", Stale::Shards);
        followed.update(&mut targets.draft, &mut views, update, &settings, now);
        assert!(!targets.now().is_confirmed(events));
        let reads = followed.due_shards(&targets.draft, |_| true, now);
        assert_eq!(reads[0].1.targets, [ix, events]);
    }

    #[test]
    fn looks_up_few_unknown_databases_and_lists_all_if_many() {
        let (mut targets, _, _) = one_shard();
        let (settings, now) = (settings(), Instant::now());
        let (mut followed, mut views) = (Followed::new(now), IndexTables::default());
        followed.begin_listing();
        // Its map may have been read before the event.
        let update = named("new", Stale::Shards);
        followed.update(&mut targets.draft, &mut views, update, &settings, now);
        followed.listed(Moment::from_unix(9), now, None);
        assert_eq!(followed.due_entries(now), ["new"]);
        followed.entry_read("new", true, &settings, now);
        assert_eq!(followed.next_due(|_| true, true), None);
        let many = (0..=MAX_ENTRIES)
            .map(|at| NamedDb { db: format!("db{at}").into(), stale: Stale::Entry });
        let update = FeedUpdate { named: many.collect(), ..named("new", Stale::Entry) };
        followed.update(&mut targets.draft, &mut views, update, &settings, now);
        assert_eq!(followed.next_due(|_| true, true), None, "the next sweep lists everything");
        assert!(followed.requires_listing(&targets, &Listing::default(), &settings, now));
    }

    #[test]
    fn shard_changed_by_job_is_read_at_once() {
        let (mut targets, node, ix) = one_shard();
        let (settings, now) = (settings(), Instant::now());
        let mut followed = Followed::new(now);
        followed.reread_after_job(&mut targets.draft, ix, now);
        assert!(!targets.now().is_confirmed(ix));
        let (_, reads) = followed.due_shards(&targets.draft, |at| at == node, now).remove(0);
        let snapshot = std::sync::Arc::new(targets.now().without_facts());
        let stage =
            Stage::Shards { snapshot, node_reads: vec![reads], count_designs: Default::default() };
        assert!(followed.shards_read(&stage, &settings, now), "a job's outcome depends on it");
        let again = followed.next_due(|_| true, true);
        assert!(again > Some(now), "a failed read is repeated later: {again:?}");
        assert!(!followed.shards_read(&stage, &settings, now), "nobody waits twice");
    }

    #[test]
    fn targets_are_unconfirmed_when_node_leaves_or_returns() {
        let (mut targets, node, ix) = one_shard();
        let mut followed = Followed::new(Instant::now());
        followed.node_answered(&mut targets.draft, node, true);
        assert!(targets.now().is_confirmed(ix) && !followed.is_any_node_away());
        followed.node_answered(&mut targets.draft, node, false);
        assert!(!targets.now().is_confirmed(ix) && followed.is_any_node_away());
        targets.draft.mark_confirmed(ix);
        followed.node_answered(&mut targets.draft, node, false);
        assert!(targets.now().is_confirmed(ix), "nothing changed");
        followed.node_answered(&mut targets.draft, node, true);
        assert!(!targets.now().is_confirmed(ix) && !followed.is_any_node_away());
    }

    #[test]
    fn a_cluster_is_quiet_a_minute_after_the_last_write_or_job() {
        let (mut targets, _, ix) = one_shard();
        let start = Instant::now();
        let mut followed = Followed::new(start);
        let later = |seconds| start + Duration::from_secs(seconds);
        assert!(!followed.update_quiet(&mut targets.draft, later(59)));
        assert!(followed.update_quiet(&mut targets.draft, later(60)));
        assert!(targets.now().is_quiet());
        followed.reread_after_job(&mut targets.draft, ix, later(61));
        assert!(followed.update_quiet(&mut targets.draft, later(61)));
        assert!(!followed.update_quiet(&mut targets.draft, later(200)), "a shard waits to be read");
        assert!(!targets.now().is_quiet());
    }
}
