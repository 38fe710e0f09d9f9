//! Random worlds: in every case, the causes add up to the byte, and the bytes at the start of a bucket stay the
//! same, even after restarts.

use super::*;
use crate::{
    model::{
        cause::Cause,
        facts::{Facts, OptionalU64},
        forecast::BookedSpan,
        records::JobOwner,
        target::{CLUSTER_NODE, TargetKind, TargetState},
    },
    plan::disk::{Disks, Volume, VolumeSpace},
    table::{DbName, Draft, Movements, NodeFiles, NodeIx, ShardMapEntry, TargetIx, recount},
};
use couchdb_names::{Range, Signature};
use proptest::prelude::*;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use wall_clock::Moment;

const START: Moment = Moment::from_unix(1_795_222_800);
/// The interval of sweeps.
const INTERVAL: Duration = Duration::from_secs(600);
const WHOLE: Range = Range { from: 0, to: u32::MAX };
const HALVES: [Range; 2] =
    [Range { from: 0, to: u32::MAX / 2 }, Range { from: u32::MAX / 2 + 1, to: u32::MAX }];
const SIZE: u64 = 1 << 40;
const MIB: u64 = 1 << 20;

/// A cluster, its recliner, and the content of the journal.
struct World {
    draft: Draft,
    books: Books,
    stored_books: Vec<u8>,
    stored: BTreeMap<u32, Vec<u8>>,
    blocks: Vec<crate::table::TableBlock>,
    now: Moment,
    made: u32,
    /// Bytes that no file explains.
    foreign: u64,
    /// The bytes of each account at the end of the last step.
    last: BTreeMap<String, i64>,
    /// The bytes of each account at the start of each bucket.
    begins: BTreeMap<u32, BTreeMap<String, i64>>,
}

fn facts(file: u64, active: u64, seq: u64, compacted: Option<u64>) -> Facts {
    Facts {
        file_bytes: OptionalU64::new(file),
        active_bytes: OptionalU64::new(active),
        external_bytes: OptionalU64::new(active * 2),
        update_seq: OptionalU64::new(seq),
        compacted_seq: compacted.into(),
        ..Facts::default()
    }
}

impl World {
    fn new() -> Self {
        let mut draft = Draft::new(3);
        add_nodes(&mut draft);
        let mut world = Self {
            draft,
            books: Books::resume(None, INTERVAL, START),
            stored_books: Vec::new(),
            stored: BTreeMap::new(),
            blocks: Vec::new(),
            now: START,
            made: 0,
            foreign: 7 * MIB,
            last: BTreeMap::new(),
            begins: BTreeMap::new(),
        };
        world.make_database(40 * MIB);
        world.make_database(3 * MIB);
        world.sweep();
        world
    }

    fn targets(&self) -> Vec<TargetIx> {
        self.draft.current().targets().map(|target| target.ix()).collect()
    }

    fn make_database(&mut self, bytes: u64) {
        self.made += 1;
        let suffix = format!(".{}", self.made);
        // Deleted databases come back under the same name.
        let name = format!("db{}", self.made % 4);
        let db = self.draft.get_or_add_db(DbName { db: &name, suffix: &suffix });
        self.draft.set_shard_map(db, ShardMapEntry { copies: 2, ranges: 1 }, &[]);
        for node in 1..=2 {
            let node = NodeIx::from_usize(node).unwrap();
            let ix = self.draft.get_or_add_shard(node, db, Some(WHOLE));
            self.draft.set_facts(ix, facts(bytes, bytes / 2, 5, Some(0)));
        }
    }

    fn act(&mut self, what: u8, which: u32, bytes: u64) {
        let all = self.targets();
        let Some(&ix) = all.get(which as usize % all.len().max(1)) else {
            return self.make_database(bytes);
        };
        let target = self.draft.current().target(ix).unwrap();
        let (known, kind, node, db) =
            (target.facts(), target.kind(), target.node_ix(), target.db());
        let number = |number: OptionalU64| number.get().unwrap_or_default();
        let (file, active, seq) =
            (number(known.file_bytes), number(known.active_bytes), number(known.update_seq));
        let compacted = (kind == TargetKind::Db).then(|| number(known.compacted_seq));
        let range = target.range();
        match what {
            0..=2 => {
                let live = bytes / 3;
                self.draft.set_facts(ix, facts(file + bytes, active + live, seq + 1, compacted));
            }
            3 => {
                let left = active + active / 9;
                self.draft.set_facts(ix, facts(left, active, seq, compacted.map(|_| seq)));
                let name = self.draft.current().node(node).unwrap().name.to_string();
                let name = name.as_str();
                let db = self.draft.current().db_name(db).unwrap().db;
                let freed = i64::try_from(file).unwrap() - i64::try_from(left).unwrap();
                let is_index = kind == TargetKind::View;
                self.books.compacted(name, (db, is_index), JobOwner::Recliner, freed, self.now);
            }
            4 => self.make_database(bytes),
            5 => {
                self.draft.set_shard_map(db, ShardMapEntry::default(), &[]);
                let of_db = all.iter().filter(|ix| {
                    self.draft.current().target(**ix).is_some_and(|target| target.db() == db)
                });
                for ix in of_db.copied().collect::<Vec<_>>() {
                    self.draft.remove(ix);
                }
            }
            6 if kind == TargetKind::Db && range == Some(WHOLE) => {
                for half in HALVES {
                    let new = self.draft.get_or_add_shard(node, db, Some(half));
                    self.draft.set_facts(new, facts(file / 2, active / 2, seq, Some(0)));
                }
                self.draft.remove(ix);
            }
            7 if kind == TargetKind::Db => {
                let signature = Signature([u8::try_from(which % 3).unwrap(); 16]);
                let part = self.draft.get_or_add_part(node, db, range, signature);
                self.draft.set_facts(part, facts(bytes, bytes / 2, seq, None));
            }
            8 => self.draft.remove(ix),
            9 => self.draft.set_state(ix, TargetState::Missing),
            10 => self.draft.set_state(ix, TargetState::Ok),
            11 => self.foreign = self.foreign.saturating_add(bytes) / 2,
            12 => {
                let others = vec![(Cause::Leftovers, bytes), (Cause::OtherFiles, bytes / 2)];
                self.draft.count_other_files(node, others);
            }
            13 => self.now = self.now.plus(Duration::from_secs(u64::from(which) % 40_000)),
            14 => self.now = Moment::from_unix(self.now.unix() - u64::from(which) % 9_000),
            15 => self.save(),
            16 => self.restart(),
            _ => {
                let unknown = Facts {
                    active_bytes: OptionalU64::UNKNOWN,
                    ..facts(file + bytes, 0, seq + 1, compacted)
                };
                self.draft.set_facts(ix, unknown);
            }
        }
    }

    /// Publishes as after a sweep, and passes on the movements.
    fn sweep(&mut self) {
        for node in 0..=2 {
            let node = NodeIx::from_usize(node).unwrap();
            self.draft.update_node(node, |node| node.last_success = Some(self.now));
        }
        self.draft.set_sweep_duration(Duration::from_secs(1));
        self.draft.publish(self.now);
        let movements = self.draft.take_movements();
        self.books.receive(movements, self.now);
        self.observe();
        let disks = self.disks();
        self.books.swept(self.now);
        self.books.measure(&disks, self.now);
        self.observe();
        let counted: i64 = self.counted().iter().sum();
        let booked: i64 = self.books.nodes.values().map(|account| account.bytes).sum();
        assert_eq!(booked, counted, "the books have every byte of every file");
        let used = self.used();
        assert_eq!(self.books.volumes["couchdb@a"].bytes, used, "and every used byte");
    }

    /// Bytes of all files, from the rows and the last walk.
    fn counted(&mut self) -> Vec<i64> {
        let nodes = self.draft.take_movements().nodes;
        let rows = recount(self.draft.current());
        assert!(nodes.iter().zip(&rows).all(|(node, rows)| node.bytes >= *rows));
        nodes.iter().map(|node| node.bytes).collect()
    }

    fn used(&mut self) -> i64 {
        let counted = self.counted();
        counted[1] + i64::try_from(self.foreign).unwrap()
    }

    /// The volume of the first node; the second node's is unknown.
    fn disks(&mut self) -> Disks {
        let used = u64::try_from(self.used()).unwrap();
        let (available, measured_at) = (SIZE - used, self.now);
        let space = VolumeSpace { available, size: Some(SIZE), held: None, measured_at };
        let volume = Volume {
            name: "couchdb@a".into(),
            nodes: vec!["couchdb@a".into()],
            space: Some(space),
            is_stated: false,
            falling_since: None,
            problem: None,
        };
        Disks { volumes: vec![volume] }
    }

    /// Checks that the start of a bucket never changes, and that a new bucket starts with the bytes of the last step.
    fn observe(&mut self) {
        let mut begins = BTreeMap::new();
        let accounts = self.books.nodes.iter().map(|(name, it)| (name.clone(), it, false));
        let volumes =
            self.books.volumes.iter().map(|(name, it)| (format!("volume {name}"), it, true));
        let mut now = BTreeMap::new();
        for (name, account, is_volume) in accounts.chain(volumes) {
            let own = self.books.current.entries.iter().filter(|(key, _)| match key.is_volume {
                true => is_volume,
                false => account.nodes.contains(&key.account),
            });
            let begin = account.bytes - own.map(|(_, sum)| sum.bytes).sum::<i64>();
            if account.opened <= self.books.current.number {
                begins.insert(name.clone(), begin);
            }
            now.insert(name, account.bytes);
        }
        match self.begins.get(&self.books.current.number) {
            Some(known) => {
                for (name, begin) in &begins {
                    assert_eq!(known.get(name).unwrap_or(begin), begin, "{name}");
                }
            }
            None => {
                for (name, last) in &self.last {
                    if let Some(begin) = begins.get(name) {
                        assert_eq!(begin, last, "{name} at the begin of a bucket");
                    }
                }
            }
        }
        self.begins.entry(self.books.current.number).or_default().extend(begins);
        self.last = now;
    }

    fn save(&mut self) {
        self.stored_books = self.books.encode().unwrap();
        let (buckets, removed) = self.books.to_save();
        for bucket in buckets {
            self.stored.insert(bucket.number, bucket.encode().unwrap());
        }
        for number in removed {
            self.stored.remove(number);
        }
        self.books.saved();
        let snapshot = self.draft.publish(self.now);
        let blocks = (0..snapshot.block_count()).map(|at| u32::try_from(at).unwrap());
        self.blocks = blocks.map(|at| snapshot.build_block(at).compress()).collect();
    }

    /// Restarts after a kill: with the saved state, and with the files as they are now.
    fn restart(&mut self) {
        if self.stored_books.is_empty() {
            return;
        }
        let files: Vec<_> = {
            let snapshot = self.draft.current();
            let targets = snapshot.targets().filter(|it| it.kind() == TargetKind::Db);
            let named = targets.map(|it| {
                let name = it.db_name();
                let at = (it.node_ix(), name.db.to_owned(), name.suffix.to_owned(), it.range());
                (at, it.state(), it.facts())
            });
            named.collect()
        };
        let mut draft = Draft::new(3);
        add_nodes(&mut draft);
        for block in self.blocks.iter().filter(|block| !block.bytes.is_empty()) {
            draft.restore(block).unwrap();
        }
        let restored: Vec<_> = draft.current().targets().map(|target| target.ix()).collect();
        let mut kept = BTreeSet::new();
        for ((node, db, suffix, range), state, facts) in files {
            let db = draft.get_or_add_db(DbName { db: &db, suffix: &suffix });
            let ix = draft.get_or_add_shard(node, db, range);
            draft.set_facts(ix, facts);
            draft.set_state(ix, state);
            kept.insert(ix);
        }
        restored.into_iter().filter(|ix| !kept.contains(ix)).for_each(|ix| draft.remove(ix));
        self.draft = draft;
        let current = Books::current_of(&self.stored_books).unwrap();
        let bucket = &self.stored[&current];
        self.books = Books::resume(Some((&self.stored_books, bucket)), INTERVAL, self.now);
        // Unsaved state is lost.
        self.begins.retain(|number, _| *number <= current);
        self.last.clear();
        self.observe_begin_after_restart();
    }

    fn observe_begin_after_restart(&mut self) {
        let nodes = self.books.nodes.iter().map(|(name, it)| (name.clone(), it.bytes));
        let volumes =
            self.books.volumes.iter().map(|(name, it)| (format!("volume {name}"), it.bytes));
        self.last = nodes.chain(volumes).collect();
    }

    /// Checks for any two starts of buckets that the bytes are right and the entries add up.
    fn check(&self) {
        let stored: Vec<Bucket> =
            self.stored.values().map(|bytes| Bucket::decode(bytes).unwrap()).collect();
        let begins: Vec<(Moment, u32)> = self
            .books
            .closed
            .iter()
            .map(|span| (span.from, span.number))
            .chain([(self.books.current.from, self.books.current.number)])
            .collect();
        // If there are many, only some are checked.
        let some = || begins.iter().step_by(1 + begins.len() / 30);
        for (since, _) in some() {
            for until in some().map(|(at, _)| Some(*at)).chain([None]) {
                let query = ChangesQuery { since: *since, until, ..ChangesQuery::default() };
                let first = self.books.first_bucket(*since);
                for account in changes(&self.books, &stored, &query) {
                    let sum: i64 = account.entries.iter().map(|entry| entry.bytes).sum();
                    assert_eq!(account.after - account.before, sum);
                    let name = account.volume.as_ref().map_or_else(
                        || account.nodes[0].clone(),
                        |volume| format!("volume {volume}"),
                    );
                    let known = self.begins.get(&first).and_then(|known| known.get(&name));
                    if let Some(begin) = known {
                        assert_eq!(account.before, *begin, "{name} in bucket {first}");
                    }
                }
            }
        }
        let by = |by| ChangesQuery { by, name: Some("db1".to_owned()), ..ChangesQuery::default() };
        for by in
            [None, Some(ChangesBy::Cause), Some(ChangesBy::Database), Some(ChangesBy::Node)].map(by)
        {
            for account in changes(&self.books, &stored, &by) {
                let sum: i64 = account.entries.iter().map(|entry| entry.bytes).sum();
                assert_eq!(account.after - account.before, sum, "also beside the rest");
            }
        }
    }
}

fn add_nodes(draft: &mut Draft) {
    draft.update_node(NodeIx::CLUSTER, |node| node.is_served = true);
    for name in ["couchdb@a", "couchdb@b"] {
        let node = draft.get_or_add_node(name);
        draft.update_node(node, |node| node.is_member = true);
    }
}

proptest! {
    #[test]
    fn ledger_entries_add_up_after_any_sequence_of_changes(
        steps in proptest::collection::vec(
            (proptest::collection::vec((0_u8..18, any::<u32>(), 0_u64..1 << 30), 0..4), 1_u64..2_000),
            1..40,
        )
    ) {
        let mut world = World::new();
        for (acts, seconds) in steps {
            for (what, which, bytes) in acts {
                world.act(what, which, bytes);
            }
            world.now = world.now.plus(Duration::from_secs(seconds));
            world.sweep();
        }
        world.check();
    }
}

/// Sums by cause of the only volume, or of the files of the second node.
fn causes(world: &World, volume: Option<&str>) -> BTreeMap<Cause, i64> {
    let stored: Vec<Bucket> =
        world.stored.values().map(|bytes| Bucket::decode(bytes).unwrap()).collect();
    let query = ChangesQuery { by: Some(ChangesBy::Cause), ..ChangesQuery::default() };
    let all = changes(&world.books, &stored, &query);
    let account = all.into_iter().find(|it| it.volume.as_deref() == volume).unwrap();
    let mut sums = BTreeMap::new();
    for entry in account.entries {
        *sums.entry(entry.cause.unwrap()).or_default() += entry.bytes;
    }
    sums
}

#[test]
fn each_action_is_attributed_to_its_cause() {
    let mib = |count: i64| count << 20;
    for (what, which, bytes, expected) in [
        (0, 0, 9 * MIB, vec![(Cause::Documents, mib(3)), (Cause::Waste, mib(6))]),
        (4, 0, 9 * MIB, vec![(Cause::NewDatabase, mib(9))]),
        (5, 0, 0, vec![(Cause::DatabaseDeleted, mib(-40))]),
        // A split moves bytes but creates none.
        (6, 0, 0, vec![]),
        (8, 0, 0, vec![(Cause::ShardMovedOut, mib(-40))]),
        (17, 0, MIB, vec![(Cause::Unknown, mib(1))]),
        (11, 0, 9 * MIB, vec![(Cause::Unaccounted, mib(1))]),
    ] {
        let mut world = World::new();
        world.act(what, which, bytes);
        world.now = world.now.plus(Duration::from_secs(60));
        world.sweep();
        let found = causes(&world, Some("couchdb@a"));
        let found: Vec<_> = found.into_iter().filter(|(_, bytes)| *bytes != 0).collect();
        assert_eq!(found, expected, "deed {what}");
    }
}

#[test]
fn bytes_freed_by_a_compaction_are_attributed_to_its_starter() {
    let mut world = World::new();
    world.act(3, 0, 0);
    world.now = world.now.plus(Duration::from_secs(60));
    world.sweep();
    let query = ChangesQuery { by: Some(ChangesBy::Cause), ..ChangesQuery::default() };
    let all = changes(&world.books, &[], &query);
    let [entry] = &*all[0].entries else { panic!("one entry: {all:?}") };
    assert_eq!((entry.cause, entry.by), (Some(Cause::Compaction), Some(JobOwner::Recliner)));
}

#[test]
fn changes_while_not_running_are_attributed_and_marked_as_a_gap() {
    let mut world = World::new();
    world.save();
    world.act(0, 0, 9 * MIB);
    world.now = world.now.plus(Duration::from_secs(36_000));
    world.restart();
    world.sweep();
    let all = changes(&world.books, &[], &ChangesQuery::default());
    let of_a = all.iter().find(|it| it.volume.is_some()).unwrap();
    assert_eq!(of_a.gaps.len(), 1);
    let found = causes(&world, Some("couchdb@a"));
    assert_eq!(found.get(&Cause::Documents), Some(&(3 << 20)), "{found:?}");
    assert_eq!(found.get(&Cause::NotWatched).copied().unwrap_or_default(), 0);
    // A restart between two sweeps misses nothing.
    world.save();
    world.now = world.now.plus(INTERVAL);
    world.restart();
    world.sweep();
    let all = changes(&world.books, &[], &ChangesQuery::default());
    let gaps = all.iter().find(|it| it.volume.is_some()).map(|it| it.gaps.len());
    assert_eq!(gaps, Some(1), "{all:?}");
}

#[test]
fn stated_free_space_explains_nothing() {
    let mut world = World::new();
    let mut disks = world.disks();
    disks.volumes[0].is_stated = true;
    let grown = i64::try_from(9 * MIB).unwrap();
    for _ in 0..2 {
        // The earlier account of the volume ends, because its used bytes are no longer measured.
        world.books.measure(&disks, world.now);
        assert!(world.books.volumes.is_empty());
        world.act(0, 0, 9 * MIB);
        world.now = world.now.plus(INTERVAL);
        world.draft.publish(world.now);
        let movements = world.draft.take_movements();
        world.books.receive(movements, world.now);
        world.books.swept(world.now);
    }
    let all = changes(&world.books, &[], &ChangesQuery::default());
    let of_a = all.iter().find(|it| it.nodes == ["couchdb@a"]).unwrap();
    let causes: Vec<_> = of_a.entries.iter().map(|it| it.cause.unwrap()).collect();
    assert_eq!(of_a.volume, None);
    assert!(of_a.after >= of_a.before + grown && !causes.contains(&Cause::Unaccounted), "{of_a:?}");
}

#[test]
fn volume_growth_is_booked_only_with_the_next_sweep() {
    let mut world = World::new();
    let used = |world: &World| world.books.volumes["couchdb@a"].bytes;
    let before = used(&world);
    world.foreign += 10 * MIB;
    for seconds in [60, 120] {
        let disks = world.disks();
        world.books.measure(&disks, START.plus(Duration::from_secs(seconds)));
    }
    assert_eq!(used(&world), before, "a file may have grown");
    world.now = START.plus(Duration::from_secs(300));
    world.sweep();
    let grown = i64::try_from(10 * MIB).unwrap();
    assert_eq!(
        (used(&world), causes(&world, Some("couchdb@a"))[&Cause::Unaccounted]),
        (before + grown, grown)
    );
}

/// The scanner's movements after a sweep: a node with 40 MiB, and 60 MiB of index files, which are shown on the node or
/// counted for the cluster.
fn shown(is_shown: bool) -> Movements {
    let node = |name: &str, mib: i64, is_shown| NodeFiles {
        name: name.into(),
        bytes: mib << 20,
        is_complete: true,
        is_member: true,
        is_shown,
        other_files: Vec::new(),
    };
    let (on_cluster, on_node) = if is_shown { (0, 100) } else { (60, 40) };
    let nodes = vec![node(CLUSTER_NODE, on_cluster, false), node("couchdb@a", on_node, is_shown)];
    Movements { nodes, entries: Vec::new() }
}

#[test]
fn index_files_shown_late_by_a_sidecar_are_not_booked_as_changes() {
    let mut books = Books::resume(None, INTERVAL, START);
    books.receive(shown(true), START);
    let bucket = books.current.encode().unwrap();
    let resumed = |at| Books::resume(Some((&books.encode().unwrap(), &bucket)), INTERVAL, at);
    let said = |books: &Books| {
        let entries = books.current.entries.iter();
        let entries = entries.map(|(key, sum)| (key.account.clone(), key.cause, sum.bytes >> 20));
        entries.collect::<Vec<_>>()
    };
    let at = |seconds| START.plus(Duration::from_secs(seconds));
    let mut late = resumed(at(60));
    late.receive(shown(false), at(70));
    assert_eq!(said(&late), [], "the sidecar has not read its files yet");
    late.receive(shown(true), at(90));
    assert_eq!(said(&late), []);
    let mut away = resumed(at(60));
    away.receive(shown(false), at(70));
    away.receive(shown(false), at(60).plus(INTERVAL * 3));
    let moved = [(CLUSTER_NODE, 60), ("couchdb@a", -60)];
    let moved = moved.map(|(name, mib)| (name.to_owned(), Cause::Measured, mib));
    assert_eq!(said(&away), moved, "the files are still there, and nobody shows them");
}

#[test]
fn compaction_files_gone_after_a_restart_are_booked_as_removed() {
    let walked = |mib: i64, unfinished: u64| {
        let mut movements = shown(true);
        movements.nodes[1].bytes = mib << 20;
        movements.nodes[1].other_files =
            vec![(Cause::CompactionFiles, unfinished << 20), (Cause::Leftovers, 0)];
        movements
    };
    let mut books = Books::resume(None, INTERVAL, START);
    books.receive(walked(100, 30), START);
    let bucket = books.current.encode().unwrap();
    let later = START.plus(Duration::from_secs(60));
    let mut books = Books::resume(Some((&books.encode().unwrap(), &bucket)), INTERVAL, later);
    books.receive(walked(75, 0), later);
    let entries = books.current.entries.iter();
    let said: Vec<_> = entries.map(|(key, sum)| (key.cause, sum.bytes >> 20)).collect();
    assert_eq!(said, [(Cause::CompactionFiles, -30), (Cause::NotWatched, 5)]);
}

#[test]
fn hourly_entries_merge_into_days_and_add_up() {
    let mut world = World::new();
    for hour in 0..(17 * 24) {
        world.act((hour % 3).try_into().unwrap(), hour, MIB);
        world.now = world.now.plus(Duration::from_secs(3_600));
        // A tick every few minutes keeps the hours apart from gaps.
        world.books.current.until = Moment::from_unix(world.now.unix() - 60);
        world.sweep();
        world.save();
        if let Some(numbers) = world.books.due_merge() {
            let buckets = numbers.iter().map(|it| Bucket::decode(&world.stored[it]).unwrap());
            let buckets = buckets.collect();
            world.books.merge(&numbers, buckets);
            world.save();
        }
    }
    let daily = world.stored.values().filter(|it| Bucket::decode(it).unwrap().is_daily).count();
    assert!((2..5).contains(&daily), "{daily}");
    assert!(world.stored.len() < 16 * 24, "{}", world.stored.len());
    world.check();
}

#[test]
fn pruned_small_entries_keep_the_exact_sum() {
    let mut bucket = Bucket::default();
    for at in 0..100_i64 {
        let key = EntryKey {
            account: "a".into(),
            is_volume: false,
            cause: Cause::Documents,
            by: None,
            db: format!("db{at}"),
            design: String::new(),
        };
        bucket.add(key, Sum { bytes: at - 30, others: 0 });
    }
    let sum = |bucket: &Bucket| bucket.entries.values().map(|sum| sum.bytes).sum::<i64>();
    let before = sum(&bucket);
    bucket.prune(10);
    assert_eq!(sum(&bucket), before);
    assert!(bucket.entries.len() <= 11, "{}", bucket.entries.len());
    let others = bucket.entries.iter().find(|(key, _)| key.db.is_empty()).unwrap().1.others;
    assert!(others >= 89, "{others}");
    assert_eq!(Bucket::decode(&bucket.encode().unwrap()), Some(bucket));
    assert_eq!(Bucket::decode(&[1, 2, 3]), None);
}

/// Live bytes, waste, events and what is left to the simulation, in MiB.
fn history_of(world: &World, sums: &mut history::BucketSums) -> Option<[i64; 4]> {
    let histories = sums.histories(&world.books, world.now);
    let spans = &histories.get("couchdb@a")?.spans;
    let sum = |bytes: fn(&BookedSpan) -> i64| spans.iter().map(bytes).sum::<i64>();
    let parts = [sum(|it| it.live_bytes), sum(|it| it.waste_bytes), sum(|it| it.event_bytes)];
    let all: i64 = causes(world, Some("couchdb@a")).values().sum();
    let [live, waste, event] = parts;
    Some([live, waste, event, all - live - waste - event].map(|bytes| bytes >> 20))
}

#[test]
fn restored_ledger_gives_forecasts_the_same_history() {
    let mut world = World::new();
    let mut sums = history::BucketSums::default();
    for (what, bytes) in [(0, 9 * MIB), (4, 8 * MIB), (0, 3 * MIB), (3, 0)] {
        world.act(what, 0, bytes);
        world.now = world.now.plus(Duration::from_secs(3_600));
        world.books.current.until = Moment::from_unix(world.now.unix() - 60);
        world.sweep();
    }
    let [live, waste, event, freed] = history_of(&world, &mut sums).unwrap();
    assert_eq!([live, waste, event], [4, 8, 8], "a database that was made is an event");
    assert!(freed < 0, "what a compaction frees is left to the simulation: {freed}");
    world.save();
    let needed = history::BucketSums::needed(&world.books, world.now);
    assert!(!needed.is_empty());
    let mut read = history::BucketSums::default();
    needed.iter().for_each(|number| read.add(&Bucket::decode(&world.stored[number]).unwrap()));
    assert_eq!(history_of(&world, &mut read), Some([live, waste, event, freed]));
    assert_eq!(read.histories(&world.books, world.now), sums.histories(&world.books, world.now));
}
