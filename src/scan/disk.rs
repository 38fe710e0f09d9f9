//! The files in nodes' own directories: which targets have one, and which files are unused.
//!
//! Owns which files the walks of this sweep found, and which nodes each sidecar reads. An incomplete
//! walk removes nothing. The unused files are determined at the end of a sweep.

mod unused;

use super::{ScanSettings, listing::is_hidden, targets::TargetTables};
use crate::{
    model::{
        estimate,
        target::{TargetKind, TargetState},
    },
    sources::inventory::{CompactionFile, DbFile, DiskWalk, FoundFile, PartFile, ReadError},
    table::{DbIx, DbName, Draft, IndexSet, Node, NodeIx, Snapshot, TargetIx, TargetRef, View},
};
use couchdb_names::ShardName;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use wall_clock::Moment;

/// The number of sweeps after which a sidecar's database facts are too old, and CouchDB is asked again.
const MAX_LAG_SWEEPS: u32 = 2;

/// Minimum number of listed shards from which directories without their files mean anything: fewer may
/// have been created or deleted since the walk.
const MIN_LISTED: usize = 5;

/// What the walks of one sweep found.
#[derive(Debug, Default)]
pub(super) struct Disk {
    nodes: BTreeMap<NodeIx, OnNode>,
    /// Databases with index files in this sweep.
    with_parts: BTreeSet<DbIx>,
    /// Databases with index files in the previous sweep, whose views may still be read.
    with_parts_before: BTreeSet<DbIx>,
    /// The nodes of each sidecar, from its last response.
    peers: BTreeMap<Arc<str>, BTreeSet<NodeIx>>,
}

#[derive(Debug, Default)]
struct OnNode {
    /// Targets whose file was found.
    met: IndexSet,
    /// Shards whose file exists but which are not targets yet.
    unlisted: BTreeSet<Box<str>>,
    compactions: Vec<CompactionFile>,
    /// Files that could not be read.
    unread: u64,
    ended: Option<DiskWalk>,
    /// Why the directories are another node's, if CouchDB's answers show it.
    foreign: Option<String>,
}

impl Disk {
    pub(super) fn begin_sweep(&mut self) {
        let with_parts_before = std::mem::take(&mut self.with_parts);
        let peers = std::mem::take(&mut self.peers);
        *self = Self { with_parts_before, peers, ..Self::default() };
    }

    /// Whether the directories of a node were walked in this sweep.
    pub(super) fn was_walked(&self) -> bool {
        self.nodes.values().any(|node| node.ended.is_some())
    }

    /// Whether index files of this database were found in this sweep, or in the previous one if no
    /// walk has ended yet.
    pub(super) fn has_parts(&self, db: DbIx) -> bool {
        self.with_parts.contains(&db)
            || (!self.was_walked() && self.with_parts_before.contains(&db))
    }

    /// Whether files of this node were found in this sweep.
    pub(super) fn found_files_of(&self, node: NodeIx) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Why the directories that were read for a node in this sweep cannot be its own. `None` if they can,
    /// or if no whole walk of this process has compared them.
    pub(super) fn foreign_directory(&self, snapshot: &Snapshot, node: NodeIx) -> Option<String> {
        let on_node = self.nodes.get(&node)?;
        if on_node.foreign.is_some() {
            return on_node.foreign.clone();
        }
        on_node.ended.as_ref().filter(|walk| walk.whole)?;
        let listed = snapshot.targets().filter(|target| {
            target.node_ix() == node
                && target.kind() == TargetKind::Db
                && target.range().is_some()
                && target.state() == TargetState::Ok
        });
        let found = listed.map(|target| on_node.met.contains(target.ix().as_usize()));
        let (found, absent): (Vec<_>, Vec<_>) = found.partition(|found| *found);
        lacks_listed_files(found.len(), found.len() + absent.len())
    }

    /// Whether a target's file was found on this node in this sweep.
    pub(super) fn has_file(&self, node: NodeIx, ix: TargetIx) -> bool {
        self.nodes.get(&node).is_some_and(|on_node| on_node.met.contains(ix.as_usize()))
    }

    /// Applies the facts of some files in a node's directories; returns what could not be read.
    /// `without_map` means that only the disk shows which databases exist.
    pub(super) fn files(
        &mut self,
        targets: &mut TargetTables,
        node: NodeIx,
        files: Vec<FoundFile>,
        settings: &ScanSettings,
        without_map: bool,
    ) -> Vec<ReadError> {
        let mut failed = Vec::new();
        for file in files {
            match file {
                FoundFile::Db(file) => {
                    failed.extend(self.db_file(targets, node, file, without_map));
                }
                FoundFile::View(part) => {
                    if settings.parts {
                        self.part(targets, node, part);
                    }
                }
                FoundFile::Compaction(file) => {
                    self.nodes.entry(node).or_default().compactions.push(file);
                }
                FoundFile::Unread(unread) => {
                    self.nodes.entry(node).or_default().unread += 1;
                    failed.push(unread);
                }
            }
        }
        failed
    }

    /// Applies a database file; returns the error if it is empty although the shard map places it
    /// there. Other empty files are what a split that was stopped leaves.
    fn db_file(
        &mut self,
        targets: &mut TargetTables,
        node: NodeIx,
        mut file: DbFile,
        without_map: bool,
    ) -> Option<ReadError> {
        let on_node = self.nodes.entry(node).or_default();
        let draft = &mut targets.draft;
        let (name, range) = DbName::and_range_of(&file.shard);
        let existing = draft.find_copy(node, name, range);
        let is_listed = ShardName::split(&file.shard).is_none_or(|name| name.has_a_known_form());
        let ix = match existing {
            Some(ix) => ix,
            None if without_map || !is_listed => {
                let db = draft.get_or_add_db(name);
                draft.get_or_add_shard(node, db, range)
            }
            None => {
                on_node.unlisted.insert(file.shard);
                return None;
            }
        };
        if !is_listed {
            draft.set_state(ix, TargetState::Unknown);
        }
        on_node.met.insert(ix.as_usize());
        let version = draft.current().node(node).and_then(Node::version);
        draft.set_problem(ix, file.problem);
        file.facts.flags.exact = targets.headers.is_exact(ix, &file);
        file.facts.confidence = estimate::confidence(TargetKind::Db, version, None);
        let is_empty = file.facts.file_bytes.get() == Some(0);
        targets.record(ix, file.facts);
        let problem = file.problem.filter(|_| is_empty)?;
        let target = targets.now().target(ix)?;
        let is_placed = target.shard_map().copies > 0 && target.state() == TargetState::Ok;
        is_placed.then(|| ReadError::of_file(&file.shard, problem))
    }

    fn part(&mut self, targets: &mut TargetTables, node: NodeIx, part: PartFile) {
        let PartFile { shard, signature, facts, collators, problem } = part;
        let (name, range) = DbName::and_range_of(&shard);
        let draft = &mut targets.draft;
        let db = draft.get_or_add_db(name);
        let ix = draft.get_or_add_part(node, db, range, signature);
        self.nodes.entry(node).or_default().met.insert(ix.as_usize());
        self.with_parts.insert(db);
        draft.set_problem(ix, problem);
        if let Some(view) = draft.current().target(ix).and_then(TargetRef::view)
            && view.collators != collators
        {
            let view = View { collators, ..view.clone() };
            draft.set_view(ix, view);
        }
        if let Some(target) = draft.current().target(ix) {
            targets.headers.index_read(ix, &target.facts(), &facts);
        }
        targets.record(ix, facts);
    }

    /// Applies a sidecar's facts about a node's files.
    pub(super) fn peer_files(
        &mut self,
        targets: &mut TargetTables,
        node: &str,
        (dbs, parts): (Vec<DbFile>, Vec<PartFile>),
        (settings, without_map): (&ScanSettings, bool),
        now: Moment,
    ) {
        // A node outside the cluster belongs to another cluster.
        let Some(at) = targets.draft.find_node(node) else { return };
        if settings.nodes.has(node) {
            let longest = settings.interval.saturating_mul(MAX_LAG_SWEEPS);
            let lags = |file: &DbFile| {
                let at = file.facts.measured_at.map(|measured| measured.at);
                at.is_none_or(|at| at.age(now) > longest)
            };
            for file in dbs.into_iter().filter(|file| !lags(file)) {
                // The sidecar reports what it cannot read.
                let _reported = self.db_file(targets, at, file, without_map);
            }
        }
        if settings.views {
            parts.into_iter().for_each(|part| self.part(targets, at, part));
        }
    }

    /// Records that a sidecar responded for these nodes. For nodes that it no longer serves,
    /// CouchDB's own numbers count again.
    pub(super) fn peer_answered(
        &mut self,
        draft: &mut Draft,
        peer: &Arc<str>,
        nodes: BTreeSet<NodeIx>,
    ) {
        let before = self.peers.insert(Arc::clone(peer), nodes.clone()).unwrap_or_default();
        for at in before.union(&nodes) {
            let on_node = self.nodes.entry(*at).or_default();
            // The walks of this process handle the nodes that it reads itself.
            if on_node.ended.is_none() {
                let is_served = nodes.contains(at);
                draft.update_node(*at, |node| node.has_sidecar = is_served);
                if !is_served {
                    draft.set_shows_files(*at, false);
                }
                remove_gone(draft, *at, &on_node.met, false);
                if is_served {
                    draft.set_shows_files(*at, true);
                }
            }
        }
    }

    /// Records that a node's directories are another node's.
    pub(super) fn is_foreign(&mut self, node: NodeIx, problem: String) {
        self.nodes.entry(node).or_default().foreign = Some(problem);
    }

    /// Records the end of a walk.
    pub(super) fn walked(
        &mut self,
        draft: &mut Draft,
        node: NodeIx,
        disk: DiskWalk,
        without_map: bool,
    ) {
        let (on_node, whole) = (self.nodes.entry(node).or_default(), disk.whole);
        on_node.ended = Some(disk);
        if whole {
            remove_gone(draft, node, &on_node.met, without_map);
            draft.set_shows_files(node, true);
        }
    }
}

/// Why directories with only `found` of the `listed` shards of a node cannot be its own; `None` if they can.
fn lacks_listed_files(found: usize, listed: usize) -> Option<String> {
    let is_foreign = listed >= MIN_LISTED && found.saturating_mul(10) < listed;
    is_foreign.then(|| format!(
        "the data directory has only {found} of the {listed} shard files that the node lists, so it seems to belong to another node or cluster, and recliner ignores its free space; is --data-dir right?"
    ))
}

/// Removes the parts of a node whose file no longer exists. Also removes databases, if the disk is
/// the only evidence of which exist.
fn remove_gone(draft: &mut Draft, node: NodeIx, met: &IndexSet, without_map: bool) {
    let places = draft.current().row_count();
    for at in 0..places {
        let deleted = draft.current().target_at(at).filter(|target| {
            let is_by_disk = without_map && target.kind() == TargetKind::Db;
            let listed_here = target.is_part() || is_by_disk || is_hidden(*target);
            target.node_ix() == node && listed_here && !met.contains(at)
        });
        if let Some(ix) = deleted.map(TargetRef::ix) {
            draft.remove(ix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        datadir::ReadProblem,
        model::facts::{Facts, OptionalU64},
        table::ShardMapEntry,
    };
    use couchdb_names::{Range, Signature};
    use std::time::Duration;

    fn part() -> FoundFile {
        FoundFile::View(PartFile {
            shard: "shards/00000000-ffffffff/a.1".into(),
            signature: Signature([1; 16]),
            facts: Facts::default(),
            collators: Arc::new([]),
            problem: None,
        })
    }

    fn walk(whole: bool) -> DiskWalk {
        DiskWalk { sums: Default::default(), whole, took: Duration::ZERO, volumes: vec![] }
    }

    fn one_part() -> (TargetTables, Disk, NodeIx, DbIx) {
        let (mut targets, mut disk) = (TargetTables::new(1), Disk::default());
        let node = targets.draft.get_or_add_node("couchdb@a");
        let settings = ScanSettings::example();
        assert_eq!(disk.files(&mut targets, node, vec![part()], &settings, false), []);
        let db = targets.draft.find_db(DbName { db: "a", suffix: ".1" }).unwrap();
        (targets, disk, node, db)
    }

    #[test]
    fn keeps_previous_index_files_until_a_walk_ends() {
        let (mut targets, mut disk, node, db) = one_part();
        assert!(disk.has_parts(db) && disk.found_files_of(node) && !disk.was_walked());
        disk.begin_sweep();
        assert!(disk.has_parts(db) && !disk.found_files_of(node));
        disk.walked(&mut targets.draft, node, walk(false), false);
        assert!(!disk.has_parts(db) && disk.was_walked());
        assert_eq!(targets.now().targets().count(), 1, "the walk was incomplete");
        disk.walked(&mut targets.draft, node, walk(true), false);
        assert_eq!(targets.now().targets().count(), 0);
    }

    #[test]
    fn files_of_an_absent_sidecar_are_removed_unless_walked_locally() {
        for walked in [false, true] {
            let (mut targets, mut disk, node, _) = one_part();
            let peer: Arc<str> = "http://a:10984".into();
            disk.peer_answered(&mut targets.draft, &peer, [node].into());
            assert_eq!(targets.now().targets().count(), 1, "its file was found");
            disk.begin_sweep();
            if walked {
                disk.walked(&mut targets.draft, node, walk(false), false);
            }
            disk.peer_answered(&mut targets.draft, &peer, BTreeSet::new());
            assert_eq!(targets.now().targets().count(), usize::from(walked));
        }
    }

    fn db_file(shard: &str, problem: Option<ReadProblem>) -> FoundFile {
        FoundFile::Db(DbFile {
            shard: shard.into(),
            facts: Facts { file_bytes: OptionalU64::new(0), ..Facts::default() },
            reported: couchdb_files::ReportMatch::Different,
            same: true,
            problem,
        })
    }

    #[test]
    fn unrecognised_file_is_an_unknown_target_until_it_is_gone() {
        let (mut targets, mut disk) = (TargetTables::new(1), Disk::default());
        let node = targets.draft.get_or_add_node("couchdb@a");
        for name in ["orders.1795222434", "orders.1795222434.1"] {
            let file = db_file(&format!("shards/00000000-ffffffff/{name}"), None);
            disk.files(&mut targets, node, vec![file], &ScanSettings::example(), false);
        }
        disk.walked(&mut targets.draft, node, walk(true), false);
        let states: Vec<_> = targets.now().targets().map(TargetRef::state).collect();
        assert_eq!(states, [TargetState::Unknown], "the next list has the other one");
        disk.begin_sweep();
        disk.walked(&mut targets.draft, node, walk(true), false);
        assert_eq!(targets.now().targets().count(), 0);
    }

    #[test]
    fn file_without_header_is_an_error_only_if_the_map_places_it() {
        let (mut targets, mut disk) = (TargetTables::new(1), Disk::default());
        let node = targets.draft.get_or_add_node("couchdb@a");
        let db = targets.draft.get_or_add_db(DbName { db: "orders", suffix: ".1795222434" });
        let range = Some(Range { from: 0, to: u32::MAX });
        let ix = targets.draft.get_or_add_shard(node, db, range);
        targets.draft.set_shard_map(db, ShardMapEntry { copies: 1, ranges: 1 }, &[ix]);
        let name = "shards/00000000-ffffffff/orders.1795222434";
        for (state, failed) in
            [(TargetState::Ok, 1), (TargetState::Orphan, 0), (TargetState::Unknown, 0)]
        {
            targets.draft.set_state(ix, state);
            let file = db_file(name, Some(ReadProblem::NoValidHeader));
            let found = disk.files(&mut targets, node, vec![file], &ScanSettings::example(), false);
            assert_eq!(found.len(), failed, "{state:?}");
        }
    }

    #[test]
    fn directory_without_any_listed_shard_belongs_to_another_node() {
        let (mut targets, mut disk) = (TargetTables::new(1), Disk::default());
        let node = targets.draft.get_or_add_node("couchdb@a");
        let range = Some(Range { from: 0, to: u32::MAX });
        for db in ["a", "b", "c", "d", "e"] {
            let db = targets.draft.get_or_add_db(DbName { db, suffix: ".1" });
            let ix = targets.draft.get_or_add_shard(node, db, range);
            targets.draft.set_state(ix, TargetState::Ok);
        }
        let problem =
            |disk: &Disk, targets: &TargetTables| disk.foreign_directory(targets.now(), node);
        assert_eq!(problem(&disk, &targets), None, "nobody looked");
        disk.walked(&mut targets.draft, node, walk(false), false);
        assert_eq!(problem(&disk, &targets), None, "the walk was incomplete");
        disk.walked(&mut targets.draft, node, walk(true), false);
        let none = problem(&disk, &targets).unwrap();
        assert!(none.contains("0 of the 5 shard files"), "{none}");
        let file = db_file("shards/00000000-ffffffff/a.1", None);
        disk.files(&mut targets, node, vec![file], &ScanSettings::example(), false);
        assert_eq!(problem(&disk, &targets), None, "one of five is there");
        disk.is_foreign(node, "not its own".to_owned());
        assert_eq!(problem(&disk, &targets).as_deref(), Some("not its own"));
        assert_eq!(lacks_listed_files(0, 4), None, "a new node");
    }

    #[test]
    fn unmapped_file_becomes_a_target_only_if_there_is_no_map() {
        for without_map in [false, true] {
            let (mut targets, mut disk) = (TargetTables::new(1), Disk::default());
            let node = targets.draft.get_or_add_node("couchdb@a");
            let file = FoundFile::Db(DbFile {
                shard: "_dbs".into(),
                facts: Facts::default(),
                reported: couchdb_files::ReportMatch::Identical,
                same: true,
                problem: None,
            });
            disk.files(&mut targets, node, vec![file], &ScanSettings::example(), without_map);
            assert_eq!(targets.now().targets().count(), usize::from(without_map));
        }
    }
}
