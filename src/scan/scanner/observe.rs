//! Applies observations to the tables that they concern.

use super::{LATE_LIST_TIMEOUT, Scanner, Slot};
use crate::{
    model::target::TargetState,
    scan::views::ReadIndexes,
    sources::{
        couchdb::NO_USER,
        inventory::{
            ActiveTask, DiskWalk, FoundFile, MapEntry, MapRead, Members, NodeAnswer, Observation,
            ReadError, Stage,
        },
    },
    table::{DbIx, DbName, Node, NodeIx, ShardMapEntry, Snapshot, TargetIx, TargetRef},
    tasks::Now,
};
use couchdb_client::OwnAddress;
use couchdb_names::Version;
use std::{collections::BTreeSet, sync::Arc};
use wall_clock::Moment;

impl Scanner {
    /// Applies one observation of a read.
    pub(super) fn observe(&mut self, slot: Slot, observation: Observation, now: Now) {
        match observation {
            Observation::Members(members) => self.members(members, now.wall),
            Observation::Node(node) => self.node(node),
            Observation::Back { .. } => self.sweep_soon(now),
            Observation::Reshard(splits) => self.splits(splits, now),
            Observation::MapPage(page) => page.into_iter().for_each(|entry| self.map_entry(entry)),
            Observation::MapEnd(ended) => self.map_ended(ended),
            Observation::Unread(unread) => self.unread(NodeIx::CLUSTER, &unread),
            Observation::Files { node, names } => {
                let at = self.targets.draft.get_or_add_node(&node);
                self.timers.late_nodes = now.at + LATE_LIST_TIMEOUT;
                match names {
                    Ok(names) => self.listing.files(&mut self.targets.draft, at, &names),
                    Err(unread) => self.files_unread(at, &unread),
                }
            }
            Observation::Stray { db, entry, .. } if slot == Slot::Entries => {
                self.named_entry(&db, entry, now);
            }
            Observation::Stray { db, entry, is_agreed } => match entry {
                Ok(entry) if is_agreed => {
                    let Self { listing, targets, views, settings, .. } = self;
                    listing.stray(&mut targets.draft, views, settings, &db, entry);
                }
                Ok(_) => self.listing.disputed(),
                Err(unread) => {
                    self.listing.disputed();
                    self.unread(NodeIx::CLUSTER, &unread);
                }
            },
            Observation::Splitting { ix } => {
                let is_still = self.is_still(slot, ix);
                if is_still && self.listing.set_locked(ix, true) {
                    self.targets.draft.set_state(ix, TargetState::Resharding);
                }
                self.shard_read(slot, ix, (is_still, Ok(true)), now);
            }
            Observation::Absent { ix } => {
                let is_still = self.is_still(slot, ix);
                if is_still {
                    self.followed.forget_listing();
                }
                if let Some(target) = self.targets.now().target(ix).filter(|_| is_still)
                    && slot == Slot::Sweep
                {
                    self.sweep.shard_reads().absent(target.node_ix(), target.db_name().db);
                }
                self.shard_read(slot, ix, (is_still, Ok(false)), now);
            }
            Observation::Shard { ix, facts, designs } => {
                let is_still = self.is_still(slot, ix);
                if is_still {
                    self.sweep.designs_counted(ix, designs);
                }
                if is_still && facts.is_ok() {
                    self.listing.set_locked(ix, false);
                }
                let there = facts.as_ref().map(Option::is_some).map_err(Clone::clone);
                if is_still && there == Ok(false) {
                    // It was probably deleted since the listing; the next listing decides.
                    self.followed.forget_listing();
                }
                if let Ok(Some(facts)) = facts
                    && is_still
                {
                    self.targets.record(ix, facts);
                }
                self.shard_read(slot, ix, (is_still, there), now);
            }
            Observation::Views { db, suffix, views, searches, signatures } => {
                self.status.count_progress();
                let name = DbName { db: &db, suffix: &suffix };
                let Some(db) = self.targets.draft.find_db(name) else { return };
                let answer = ReadIndexes {
                    views,
                    searches,
                    signatures,
                    has_parts: self.disk.has_parts(db),
                    cleans_itself: self.cleans_itself(),
                };
                self.views_answer(slot, db, answer, now);
            }
            Observation::Tasks { node, tasks, flushes, is_silent } => {
                self.record_silence(&node, is_silent, now);
                self.tasks(&node, tasks, flushes, now);
            }
            Observation::Disk { node, files } => self.files(&node, files),
            Observation::DiskEnd { node, disk } => self.walked(&node, disk),
            Observation::ForeignDirectory { node, problem } => {
                let at = self.targets.draft.get_or_add_node(&node);
                self.disk.is_foreign(at, problem);
            }
            Observation::PeerFiles { node, dbs, parts } => {
                let from = (&*self.settings, self.listing.is_without_map());
                self.disk.peer_files(&mut self.targets, &node, (dbs, parts), from, now.wall);
            }
            Observation::PeerEnd { peer, nodes } => self.peer_ended(&peer, nodes, now.wall),
            // The caller handles the end of a stage.
            Observation::StageEnded => {}
        }
    }

    fn members(&mut self, members: Result<Members, ReadError>, now: Moment) {
        match members {
            Ok(members) => {
                self.sweep.members_answered();
                let expected: BTreeSet<&String> = members.expected.iter().collect();
                let current_members = self.targets.now().members();
                let before: BTreeSet<&str> = current_members.map(|(_, node)| &*node.name).collect();
                let is_same = before.into_iter().eq(expected.iter().map(|name| name.as_str()));
                if !is_same || self.status.members_since.is_none() {
                    self.status.members_since = Some(now);
                }
                for name in &members.expected {
                    let at = self.targets.draft.get_or_add_node(name);
                    self.targets.draft.update_node(at, |node| {
                        node.is_member = true;
                        // A cluster that answers has at least one connected node.
                        node.files_only = members.connected.is_empty();
                    });
                }
                for at in self.targets.nodes(1) {
                    self.targets.draft.update_node(at, |node| {
                        node.is_member = expected.iter().any(|name| ***name == *node.name);
                    });
                }
                self.status.problem = None;
            }
            Err(unread) => {
                // Without the right to list nodes, some databases may still be readable.
                let forbidden = unread.right.is_some();
                self.status.problem = (!forbidden).then(|| unread.message.clone());
                self.sweep.members_failed(unread.was_asked());
                if !unread.was_asked() {
                    for at in self.targets.nodes(1) {
                        self.targets.draft.update_node(at, |node| node.is_up = None);
                    }
                }
                self.unread(NodeIx::CLUSTER, &unread);
            }
        }
        self.targets.serve(&self.settings);
    }

    fn node(&mut self, answer: NodeAnswer) {
        let draft = &mut self.targets.draft;
        let at = draft.get_or_add_node(&answer.node);
        let is_up = match &answer.up {
            Ok(()) => Some(true),
            Err(unread) => unread.is_silence().then_some(false),
        };
        self.followed.node_answered(draft, at, is_up == Some(true));
        if is_up == Some(true) {
            self.sweep.node_answered(at);
        }
        draft.update_node(at, |node| {
            node.is_up = is_up;
            node.build = answer.build.clone().or_else(|| node.build.take());
            set_own_address(node, answer.own_address);
            node.smoosh = answer.smoosh;
        });
        if let Err(unread) = answer.up {
            if is_up.is_none() {
                self.sweep.node_unknown(&unread.message);
            }
            self.unread(at, &unread);
        }
    }

    fn map_entry(&mut self, entry: MapEntry) {
        let Self { listing, targets, views, settings, .. } = self;
        listing.map_entry(&mut targets.draft, views, settings, entry);
    }

    fn map_ended(&mut self, ended: Result<MapRead, ReadError>) {
        let map = match ended {
            Ok(map) => map,
            Err(unread) => return self.unread(NodeIx::CLUSTER, &unread),
        };
        self.listing.map_read(map);
        if map == MapRead::Readable {
            for at in self.listing.holders() {
                self.targets.draft.update_node(*at, |node| node.is_member = true);
            }
            if self.listing.is_map_empty() {
                self.status.problem = Some(nothing_readable(self.sweep.missing_rights()));
            }
        }
    }

    /// Records that a node did not list its files. It counts as down if nobody answered for it.
    fn files_unread(&mut self, at: NodeIx, unread: &ReadError) {
        if unread.is_silence() {
            self.targets.draft.update_node(at, |node| node.is_up = Some(false));
        }
        self.unread(at, unread);
    }

    /// Applies the map entry that was requested for a database with a feed event.
    fn named_entry(&mut self, db: &str, entry: Result<Option<MapEntry>, ReadError>, now: Now) {
        self.followed.entry_read(db, entry.is_ok(), &self.settings, now.at);
        let entry = match entry {
            Ok(entry) => entry,
            Err(unread) => return self.count_error(NodeIx::CLUSTER, &unread),
        };
        for instance in self.targets.draft.instances_of(db) {
            let name = self.targets.now().db_name(instance);
            let same = entry
                .as_ref()
                .is_some_and(|entry| name.is_some_and(|name| *name.suffix == *entry.suffix));
            if !same && self.targets.draft.shard_map(instance).copies > 0 {
                self.db_removed(instance);
            }
        }
        if let Some(entry) = entry {
            self.db_mapped(entry, now);
        }
    }

    /// Removes a database instance that is no longer in the map.
    fn db_removed(&mut self, db: DbIx) {
        let draft = &mut self.targets.draft;
        self.targets.changes.db_removed(db, draft);
        self.listing.db_removed(db);
        self.views.db_removed(draft, db);
        draft.set_shard_map(db, ShardMapEntry::default(), &[]);
        for ix in draft.copies_of(db) {
            self.followed.remove(ix);
            self.listing.copy_removed(ix);
            draft.remove(ix);
        }
    }

    /// Applies a database's current map entry.
    fn db_mapped(&mut self, entry: MapEntry, now: Now) {
        let moves = !entry.arriving.is_empty() || !entry.leaving.is_empty();
        let draft = &mut self.targets.draft;
        let db = draft.get_or_add_db(DbName { db: &entry.db, suffix: &entry.suffix });
        let before: BTreeSet<TargetIx> = draft.copies_of(db).into_iter().collect();
        let mapped_before = self.listing.mapped_of(&before);
        self.listing.map_entry(draft, &mut self.views, &self.settings, entry);
        self.targets.changes.db_exists(db, draft);
        let copies = draft.copies_of(db);
        let new: BTreeSet<TargetIx> =
            copies.iter().copied().filter(|ix| !before.contains(ix)).collect();
        for ix in &new {
            self.listing.copy_added(*ix);
            self.sweep.designs_counted(*ix, None);
        }
        let differing: Vec<TargetIx> = self
            .listing
            .mapped_of(&copies.iter().copied().collect())
            .symmetric_difference(&mapped_before)
            .copied()
            .filter(|ix| !new.contains(ix))
            .collect();
        if moves || !differing.is_empty() {
            // Only the nodes' own file lists show where copies are.
            self.followed.forget_listing();
        }
        for ix in &differing {
            draft.set_state(*ix, TargetState::Unknown);
        }
        let views = &mut self.views;
        self.followed.queue_shards(draft, views, (db, &copies), &self.settings, now.at);
        if !differing.is_empty() {
            self.timers.unpublished = true;
            self.sweep_soon(now);
        }
    }

    /// Whether the target that a stage was to read still has the same position.
    fn is_still(&self, slot: Slot, ix: TargetIx) -> bool {
        let then = self.shards_stage(slot).and_then(|snapshot| snapshot.target(ix));
        then.zip(self.targets.now().target(ix)).is_some_and(|(then, now)| {
            let place = |it: TargetRef<'_>| (it.kind(), it.node_ix(), it.range());
            place(then) == place(now) && then.db_name() == now.db_name()
        })
    }

    /// The positions of targets when a slot's shards were requested.
    fn shards_stage(&self, slot: Slot) -> Option<&Snapshot> {
        let Stage::Shards { snapshot, .. } = &self.readings.get(&slot)?.stage else { return None };
        Some(snapshot)
    }

    /// Records the response for one shard, which a sweep requested or which was queued.
    fn shard_read(
        &mut self,
        slot: Slot,
        ix: TargetIx,
        (is_still, there): (bool, Result<bool, ReadError>),
        now: Now,
    ) {
        let target = self.shards_stage(slot).and_then(|it| it.target(ix));
        let node = target.map(TargetRef::node_ix);
        let is_shard = target.is_some_and(|target| target.range().is_some());
        let well = there == Ok(true);
        if is_still {
            self.status.count_progress();
            if let (Err(unread), Some(node)) = (&there, node) {
                self.unread(node, unread);
            }
        }
        let draft = &mut self.targets.draft;
        if matches!(slot, Slot::Shards(_)) {
            self.followed.shard_read(draft, ix, well, &self.settings, now.at);
            return;
        }
        if well {
            self.followed.swept(draft, ix);
        }
        if let Some(node) = node {
            if let Err(unread) = there.as_ref()
                && is_shard
            {
                self.sweep.shard_reads().failed(node, unread);
            }
            self.shard_requested(node, now);
        }
    }

    fn views_answer(&mut self, slot: Slot, db: DbIx, answer: ReadIndexes, now: Now) {
        let Some(reading) = self.readings.get(&slot) else { return };
        for view in answer.views.iter().flatten() {
            if let Ok(index) = &view.index {
                self.targets.compare_index(db, index, |node, ix| self.disk.has_file(node, ix));
            }
        }
        let request_times = (reading.began, now.wall);
        for unread in self.views.apply(&mut self.targets.draft, db, answer, request_times) {
            self.unread(NodeIx::CLUSTER, &unread);
        }
    }

    /// Whether the servers remove stale index files by themselves after a change of a design document
    /// (`couch_index_cleanup`, 3.5.2 and later).
    fn cleans_itself(&self) -> bool {
        let nodes = self.targets.now().nodes().iter();
        let mut members = nodes.skip(1).filter(|node| node.is_member).peekable();
        members.peek().is_some()
            && members.all(|node| node.version().is_some_and(Version::cleans_indexes))
    }

    fn tasks(
        &mut self,
        node: &str,
        tasks: Result<Vec<ActiveTask>, ReadError>,
        flushes: Option<u64>,
        now: Now,
    ) {
        let draft = &mut self.targets.draft;
        let at = draft.get_or_add_node(node);
        self.unseen.polled(at, flushes);
        self.followed.node_answered(draft, at, tasks.is_ok());
        let problem = tasks.as_ref().err().filter(|unread| !unread.is_silence());
        let problem: Option<Arc<str>> = problem.map(|unread| (*unread.message).into());
        draft.update_node(at, |node| node.unread_tasks = problem.clone());
        match tasks {
            Ok(tasks) => {
                if !tasks.is_empty() {
                    self.followed.mark_busy(now.at);
                }
                for ix in self.jobs.apply(draft, &self.views, at, tasks) {
                    self.followed.reread_after_job(draft, ix, now.at);
                }
            }
            Err(unread) => {
                self.jobs.poll_failed(at);
                self.count_error(at, &unread);
            }
        }
    }

    /// Records whether a node was silent when it was polled. One silence may be chance: it is soon polled
    /// again, and two in a row mean that it is down.
    fn record_silence(&mut self, node: &str, is_silent: bool, now: Now) {
        let at = self.targets.draft.get_or_add_node(node);
        if self.jobs.record_silence(at, is_silent) {
            self.targets.draft.update_node(at, |node| node.is_up = Some(false));
        }
        if is_silent {
            self.timers.poll = self.timers.poll.min(now.at + self.settings.poll);
        }
    }

    fn files(&mut self, node: &str, files: Vec<FoundFile>) {
        let at = self.targets.draft.get_or_add_node(node);
        let without_map = self.listing.is_without_map();
        let failed = self.disk.files(&mut self.targets, at, files, &self.settings, without_map);
        for unread in failed {
            self.count_error(at, &unread);
        }
    }

    /// Applies the end or the failure of a walk of a node's directories.
    fn walked(&mut self, node: &str, disk: Result<DiskWalk, ReadError>) {
        let at = self.targets.draft.get_or_add_node(node);
        let without_map = self.listing.is_without_map();
        match disk {
            Ok(disk) => self.disk.walked(&mut self.targets.draft, at, disk, without_map),
            Err(unread) => {
                if without_map {
                    self.status.problem = Some(unread.message.clone());
                }
                self.count_error(at, &unread);
            }
        }
    }

    /// Records that a sidecar responded for these nodes, or failed; if it failed, CouchDB's own
    /// numbers count again.
    fn peer_ended(
        &mut self,
        peer: &Arc<str>,
        nodes: Result<BTreeSet<Arc<str>>, ReadError>,
        now: Moment,
    ) {
        self.status.peer_ended(peer, &nodes, now);
        let draft = &mut self.targets.draft;
        let nodes = match nodes {
            Ok(nodes) => nodes.iter().filter_map(|node| draft.find_node(node)).collect(),
            Err(unread) => {
                self.count_error(NodeIx::CLUSTER, &unread);
                BTreeSet::new()
            }
        };
        self.disk.peer_answered(&mut self.targets.draft, peer, nodes);
    }
}

/// Records the address of `node`, and logs once if a node that this process serves has no direct
/// address.
fn set_own_address(node: &mut Node, found: OwnAddress) {
    let is_ungiven = |address: &OwnAddress| matches!(address, OwnAddress::NotConfigured);
    if node.is_served && is_ungiven(&found) && !is_ungiven(&node.own_address) {
        tracing::warn!(node = %node.name, "no direct address: list it under couchdb.nodes, or repeat --couchdb.url for it");
    }
    node.own_address = found;
}

/// Why no database can be read without these rights, and what to do.
fn nothing_readable(rights: &BTreeSet<String>) -> String {
    if rights.contains(NO_USER) {
        return NO_USER.to_owned();
    }
    "the login may not read any database: give recliner the login of a server admin; any other can read only databases that a channel's databases.include names in full"
        .to_owned()
}
