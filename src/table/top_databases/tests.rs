//! Tests which databases are exported, and for how long.

use super::*;
use crate::{
    model::facts::Facts,
    table::{DbName, Draft, PartSums, ShardMapEntry, View},
};
use couchdb_names::{Range, Signature};
use std::collections::{BTreeMap, BTreeSet};

const MIB: u64 = 1 << 20;
const RANGE: Range = Range { from: 0, to: u32::MAX };

fn facts(file: u64) -> Facts {
    Facts::sized(file, MIB)
}

fn range(at: u32) -> Range {
    Range { from: at, to: at }
}

fn name(db: &str) -> DbName<'_> {
    DbName { db, suffix: ".17" }
}

/// A database with this many shards on one node, each file of `mib` MiB.
fn database(draft: &mut Draft, db: &str, shards: u32, mib: u64) -> DbIx {
    let node = draft.get_or_add_node("couchdb@a");
    let place = draft.get_or_add_db(name(db));
    for at in 0..shards {
        let ix = draft.get_or_add_shard(node, place, Some(range(at)));
        draft.set_facts(ix, facts(mib * MIB));
    }
    place
}

fn names(snapshot: &Snapshot, whole: bool) -> BTreeSet<String> {
    let dbs = snapshot.top().databases.iter().filter(|it| it.is_complete || !whole);
    dbs.filter_map(|it| Some(snapshot.db_name(it.db)?.db.to_owned())).collect()
}

fn whole(snapshot: &Snapshot) -> Vec<String> {
    names(snapshot, true).into_iter().collect()
}

#[test]
fn chooses_databases_by_total_reclaimable_bytes() {
    let mut draft = Draft::new(1);
    // The largest single file belongs to neither of the two databases with the largest totals.
    database(&mut draft, "one-large-file", 1, 100);
    let many = database(&mut draft, "many-files", 8, 30);
    database(&mut draft, "some-files", 4, 30);
    let snapshot = draft.publish(Moment::default());
    assert_eq!(whole(&snapshot), ["many-files"]);
    assert_eq!(names(&snapshot, false).len(), 2, "one more database has its sums exported");
    let top = snapshot.top();
    assert_eq!((top.targets.len(), top.incomplete_count), (8, 2));
    let sums = top.databases.iter().find(|it| it.db == many).unwrap().sums;
    assert_eq!(sums.shards.file_count, 8);
    assert_eq!(sums.shards.file_bytes.get(), Some((8 * 30 * MIB) as f64));
    assert_eq!(sums.views, FileSums::default());
}

#[test]
fn exports_only_databases_whose_targets_fit_the_total_limit() {
    let mut draft = Draft::new(3);
    let huge = database(&mut draft, "huge", 31, 90);
    database(&mut draft, "large", 16, 40);
    database(&mut draft, "middling", 15, 30);
    database(&mut draft, "small", 10, 20);
    let snapshot = draft.publish(Moment::default());
    // The limit is three times ten targets: the first database exceeds it alone, and the third does
    // together with the second.
    assert_eq!(whole(&snapshot), ["large", "small"]);
    assert_eq!(snapshot.top().targets.len(), 26);
    let sums = snapshot.top().databases.iter().find(|it| it.db == huge).unwrap().sums;
    assert_eq!(sums.shards.file_count, 31, "its sums are exported nevertheless");

    // The database loses some shards and then exceeds both others.
    let node = draft.get_or_add_node("couchdb@a");
    for at in 0..10 {
        let ix = draft.find_shard(node, huge, Some(range(at))).unwrap();
        draft.remove(ix);
    }
    let snapshot = draft.publish(Moment::default());
    assert_eq!(whole(&snapshot), ["huge"], "it replaces the two smaller databases");
    assert_eq!(snapshot.top().targets.len(), 21);
    // The next database that fits into the remaining space is added.
    let snapshot = draft.publish(Moment::from_unix(86_400));
    assert_eq!(whole(&snapshot), ["huge"]);
    database(&mut draft, "tiny", 2, 3);
    assert_eq!(whole(&draft.publish(Moment::from_unix(86_401))), ["huge", "tiny"]);
}

#[test]
fn keeps_a_database_until_another_clearly_exceeds_it() {
    let mut draft = Draft::new(1);
    database(&mut draft, "first", 1, 100);
    let at = |seconds: u64| Moment::from_unix(1_000_000 + seconds);
    assert_eq!(whole(&draft.publish(at(0))), ["first"]);
    database(&mut draft, "second", 1, 120);
    assert_eq!(whole(&draft.publish(at(10))), ["first"], "the second is not clearly larger");
    database(&mut draft, "first", 1, 2);
    assert_eq!(whole(&draft.publish(at(20))), ["first"], "it was just compacted");
    assert_eq!(whole(&draft.publish(at(1_900))), ["first"]);
    assert_eq!(whole(&draft.publish(at(4_000))), ["second"]);
    database(&mut draft, "third", 1, 160);
    assert_eq!(whole(&draft.publish(at(4_010))), ["third"], "the third is clearly larger");
}

#[test]
fn does_not_export_empty_database_in_its_first_hour() {
    let mut draft = Draft::new(9);
    let created = Moment::from_unix(1_700_000_000);
    let suffix = format!(".{}", created.unix());
    let place = draft.get_or_add_db(DbName { db: "new", suffix: &suffix });
    let node = draft.get_or_add_node("couchdb@a");
    let ix = draft.get_or_add_shard(node, place, Some(RANGE));
    draft.set_facts(ix, facts(MIB));
    let after = |seconds| created.plus(Duration::from_secs(seconds));
    assert!(whole(&draft.publish(after(60))).is_empty());
    assert_eq!(draft.publish(after(61)).top().incomplete_count, 1);
    draft.set_facts(ix, facts(4 * MIB));
    assert_eq!(whole(&draft.publish(after(120))), ["new"], "it has something to reclaim");
    let place = draft.get_or_add_db(DbName { db: "empty", suffix: &suffix });
    let ix = draft.get_or_add_shard(node, place, Some(RANGE));
    draft.set_facts(ix, facts(MIB));
    assert_eq!(whole(&draft.publish(after(180))), ["new"]);
    assert_eq!(whole(&draft.publish(after(7_200))), ["empty", "new"], "the first hour is over");
}

/// Simulates an hour with a publication every ten seconds: four hundred databases grow at different
/// speeds, and each is compacted once it is bloated enough.
#[test]
fn few_series_change_in_an_hour_with_many_compactions() {
    const SHOWN: usize = 50;
    let mut draft = Draft::new(SHOWN);
    let mut sizes: Vec<u64> = (0..400_u64).map(|db| 2 + db * 37 % 180).collect();
    let (mut seen, mut naive) = (BTreeSet::new(), BTreeSet::new());
    let mut compacted = 0;
    for step in 0..360_u64 {
        for (db, size) in (0_u64..).zip(&mut sizes) {
            *size += (db * 13 + step) % 4;
            if *size > 150 + db % 60 {
                (*size, compacted) = (2, compacted + 1);
            }
            database(&mut draft, &format!("db-{db:03}"), 1, *size);
        }
        let snapshot = draft.publish(Moment::from_unix(1_000_000 + step * 10));
        assert_eq!(snapshot.top().targets.len(), SHOWN);
        seen.extend(names(&snapshot, true));
        let mut best: Vec<(u64, usize)> =
            sizes.iter().enumerate().map(|(db, size)| (*size, db)).collect();
        best.sort_unstable();
        naive.extend(best.into_iter().rev().take(SHOWN).map(|(_, db)| db));
    }
    assert!(compacted > 500, "{compacted}");
    assert!(naive.len() > 6 * SHOWN, "a naive choice exports {} databases", naive.len());
    assert!(seen.len() < 2 * SHOWN, "{} databases were exported during the hour", seen.len());
}

#[test]
fn view_sums_include_all_copies_and_parts_are_only_listed() {
    let mut draft = Draft::new(1);
    let db = database(&mut draft, "app", 2, 10);
    let view = View { signature: Signature([7; 16]), ..View::default() };
    let view = draft.add_view(db, view);
    draft.set_facts(view, facts(5 * MIB));
    draft.set_shard_map(db, ShardMapEntry { copies: 2, ranges: 2 }, &[view]);
    let node = draft.get_or_add_node("couchdb@a");
    let part = draft.get_or_add_part(node, db, Some(RANGE), Signature([7; 16]));
    draft.set_facts(part, facts(9 * MIB));
    let parts = PartSums {
        count: 1,
        file_bytes: 9 * MIB,
        active_bytes: MIB,
        reclaimable_bytes: 8 * MIB,
        ..PartSums::default()
    };
    draft.set_parts(view, parts);
    let stale = draft.get_or_add_part(node, db, Some(RANGE), Signature([8; 16]));
    draft.set_facts(stale, facts(90 * MIB));
    draft.set_state(stale, TargetState::Orphan);
    let snapshot = draft.publish(Moment::default());
    let top = snapshot.top();
    let sums = top.databases.first().unwrap().sums;
    assert_eq!((sums.shards.file_count, sums.views.file_count), (2, 2));
    assert_eq!(sums.views.file_bytes.get(), Some((14 * MIB) as f64), "one copy's part is known");
    let listed: BTreeMap<TargetKind, usize> =
        top.targets.iter().fold(BTreeMap::new(), |mut all, ix| {
            *all.entry(snapshot.target(*ix).unwrap().kind()).or_default() += 1;
            all
        });
    assert_eq!(listed, BTreeMap::from([(TargetKind::Db, 2), (TargetKind::View, 2)]));

    // A process that does not read the cluster's views knows them only by their parts.
    draft.remove(view);
    database(&mut draft, "no-views", 1, 25);
    assert_eq!(whole(&draft.publish(Moment::from_unix(86_400))), ["no-views"]);
    draft.update_node(NodeIx::CLUSTER, |node| node.is_served = false);
    draft.set_facts(part, facts(40 * MIB));
    assert_eq!(whole(&draft.publish(Moment::from_unix(186_400))), ["app"]);
}

#[test]
fn database_in_a_reused_row_starts_without_sums() {
    let mut draft = Draft::new(1);
    let gone = database(&mut draft, "gone", 1, 900);
    database(&mut draft, "stays", 1, 50);
    database(&mut draft, "too", 1, 40);
    assert_eq!(whole(&draft.publish(Moment::from_unix(1_000_000))), ["gone"]);
    let node = draft.get_or_add_node("couchdb@a");
    let ix = draft.find_shard(node, gone, Some(range(0))).unwrap();
    draft.remove(ix);
    let fresh = database(&mut draft, "fresh", 1, 2);
    assert_eq!(fresh, gone, "the index is reused");
    let snapshot = draft.publish(Moment::from_unix(1_000_010));
    assert_eq!(whole(&snapshot), ["stays"]);
    assert_eq!(names(&snapshot, false), BTreeSet::from(["stays".to_owned(), "too".to_owned()]));
}

#[test]
fn number_of_exported_databases_can_be_changed() {
    let mut draft = Draft::new(3);
    for at in 0..9 {
        database(&mut draft, &format!("db-{at}"), 1, 10 + at);
    }
    let count = |snapshot: &Snapshot| (whole(snapshot).len(), names(snapshot, false).len());
    assert_eq!(count(&draft.publish(Moment::default())), (3, 6));
    draft.set_top(1);
    assert_eq!(count(&draft.publish(Moment::default())), (1, 2));
    draft.set_top(0);
    let snapshot = draft.publish(Moment::default());
    assert_eq!((count(&snapshot), snapshot.top().incomplete_count), ((0, 0), 9));
    draft.set_top(4);
    assert_eq!(count(&draft.publish(Moment::default())), (4, 8));
}
