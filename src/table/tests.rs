//! Tests the tables against a plain model, and the readers' view of them.

use super::*;
use crate::{
    model::{
        facts::{FactFlags, Facts, OptionalU64},
        target::TargetId,
    },
    text::Label,
};
use couchdb_names::Signature;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn facts(file: u64, active: u64) -> Facts {
    Facts::sized(file, active)
}

fn name(db: &str) -> DbName<'_> {
    DbName { db, suffix: ".17" }
}

const RANGE: Range = Range { from: 0, to: u32::MAX };

#[test]
fn readers_see_only_the_published_state() {
    let mut draft = Draft::new(10);
    let node = draft.get_or_add_node("couchdb@a");
    let db = draft.get_or_add_db(name("app/orders"));
    let ix = draft.get_or_add_shard(node, db, Some(RANGE));
    draft.set_facts(ix, facts(100, 40));
    let before = draft.publish(Moment::from_unix(5));
    draft.set_facts(ix, facts(200, 40));
    let after = draft.publish(Moment::from_unix(6));

    let seen = |snapshot: &Snapshot| {
        let target = snapshot.target(ix).unwrap();
        (target.id().to_string(), target.facts().file_bytes.get(), snapshot.version())
    };
    let id = "db:couchdb@a/shards%2F00000000-ffffffff%2Fapp%2Forders.17";
    assert_eq!(seen(&before), (id.to_owned(), Some(100), 1));
    assert_eq!(seen(&after), (id.to_owned(), Some(200), 2));
    assert_eq!(after.changed_targets(), [ix]);
    assert_eq!(after.generated_at(), Moment::from_unix(6));
    assert_eq!(draft.publish(Moment::from_unix(7)).changed_targets(), []);
}

#[test]
fn node_is_down_since_the_first_silence_of_several() {
    let mut draft = Draft::new(10);
    let node = draft.get_or_add_node("couchdb@a");
    let mut since = |is_up, at| {
        draft.update_node(node, |node| node.is_up = is_up);
        draft.publish(Moment::from_unix(at)).node(node).unwrap().down_since.map(Moment::unix)
    };
    let steps = [(None, None), (Some(true), None), (Some(false), Some(7)), (Some(false), Some(7))];
    for (at, (is_up, expected)) in (5..).zip(steps) {
        assert_eq!(since(is_up, at), expected);
    }
    assert_eq!((since(Some(true), 9), since(Some(false), 10)), (None, Some(10)));
}

#[test]
fn every_index_part_is_found_again_among_many() {
    let mut draft = Draft::new(10);
    let node = draft.get_or_add_node("couchdb@a");
    let db = draft.get_or_add_db(name("app"));
    let signature = |at: u8| Signature([at; 16]);
    let mut add = |at| draft.get_or_add_part(node, db, Some(RANGE), signature(at));
    let first: Vec<_> = (0..200).map(&mut add).collect();
    let again: Vec<_> = (0..200).map(&mut add).collect();
    assert_eq!(again, first);
    first.iter().step_by(2).for_each(|ix| draft.remove(*ix));
    let left =
        (0..200).filter(|at| draft.find_part(node, db, Some(RANGE), signature(*at)).is_some());
    assert_eq!(left.count(), 100);
}

#[test]
fn operations_on_removed_target_do_not_affect_its_reused_row() {
    let mut draft = Draft::new(10);
    let node = draft.get_or_add_node("couchdb@a");
    let old = draft.get_or_add_db(name("old"));
    let gone = draft.get_or_add_shard(node, old, Some(RANGE));
    draft.set_facts(gone, facts(7, 1));
    let before = draft.publish(Moment::default());
    draft.remove(gone);
    assert_eq!(draft.find_db(name("old")), None);
    let fresh = draft.get_or_add_db(name("fresh"));
    let ix = draft.get_or_add_shard(node, fresh, None);
    assert_eq!((ix.as_usize(), fresh), (gone.as_usize(), old));
    // Late operations on the removed target do not affect the new one.
    draft.set_facts(gone, facts(9, 9));
    draft.set_state(gone, TargetState::Orphan);
    draft.mark_unconfirmed(gone);
    draft.set_problem(gone, None);
    draft.remove(gone);
    assert!(!draft.current().unconfirmed.contains(ix.as_usize()));
    let snapshot = draft.publish(Moment::default());
    assert_eq!(snapshot.changed_targets(), [gone, ix], "one removed, one added");
    assert!(before.target(gone).is_some() && before.target(ix).is_none());
    assert!(snapshot.target(gone).is_none());
    assert_eq!(snapshot.targets().count(), 1);
    let target = snapshot.target(ix).unwrap();
    assert_eq!(target.shard_name().as_deref(), Some("fresh.17"));
    assert_eq!(target.facts().file_bytes.get(), None);
    assert_eq!(
        snapshot.totals().sums_of(node, TargetKind::Db).file_bytes.get(),
        None,
        "the only target has an unknown size"
    );
}

#[test]
fn view_counts_all_its_copies_on_disk() {
    let mut draft = Draft::new(10);
    let db = draft.get_or_add_db(name("app"));
    let view = View {
        signature: Signature([7; 16]),
        designs: ["_design/a".into()].into(),
        language: "javascript".into(),
        collators: [].into(),
        exact_range: true,
        ..View::default()
    };
    let ix = draft.add_view(db, view);
    draft.set_facts(ix, Facts { flags: FactFlags::default(), ..facts(100, 40) });
    draft.set_shard_map(db, ShardMapEntry { copies: 6, ranges: 2 }, &[ix]);
    let snapshot = draft.publish(Moment::default());
    let target = snapshot.target(ix).unwrap();
    assert_eq!(target.file_bytes(), Some(600));
    assert_eq!(
        snapshot.totals().sums_of(NodeIx::CLUSTER, TargetKind::View).file_bytes.get(),
        Some(600.0)
    );
    assert_eq!(
        target.id(),
        TargetId::View {
            node: "_cluster".into(),
            db: "app.17".into(),
            signature: Signature([7; 16])
        }
    );
    assert_eq!(snapshot.find_view(&[ix], Signature([7; 16])), Some(ix));
}

#[derive(Clone, Debug)]
enum Step {
    Set { db: u8, node: u8, file: u16, active: Option<u16> },
    State { db: u8, node: u8, state: u8 },
    Remove { db: u8, node: u8 },
    Publish,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..40_u8, 0..3_u8, 0..5_u16, proptest::option::weighted(0.9, 0..5_u16))
            .prop_map(|(db, node, file, active)| Step::Set { db, node, file: file * 9_000, active: active.map(|a| a * 4_000) }),
        1 => (0..40_u8, 0..3_u8, 0..5_u8).prop_map(|(db, node, state)| Step::State { db, node, state }),
        2 => (0..40_u8, 0..3_u8).prop_map(|(db, node)| Step::Remove { db, node }),
        1 => Just(Step::Publish),
    ];
    proptest::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn totals_top_databases_and_lookups_agree_with_a_plain_model(steps in steps()) {
        let mut draft = Draft::new(3);
        let mut model: BTreeMap<(u8, u8), (TargetIx, Facts, TargetState)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Set { db, node, file, active } => {
                    let facts = Facts {
                        file_bytes: OptionalU64::new(u64::from(file)),
                        active_bytes: active.map(u64::from).into(),
                        ..Facts::default()
                    };
                    let at = draft.get_or_add_node(&format!("n{node}"));
                    let place = draft.get_or_add_db(name(&format!("db{db}")));
                    let ix = draft.get_or_add_shard(at, place, Some(RANGE));
                    draft.set_facts(ix, facts);
                    let entry = model.entry((db, node)).or_insert((ix, facts, TargetState::Ok));
                    prop_assert_eq!(entry.0, ix);
                    entry.1 = facts;
                }
                Step::State { db, node, state } => {
                    if let Some((ix, _, stored_state)) = model.get_mut(&(db, node)) {
                        *stored_state = TargetState::ALL[usize::from(state)];
                        draft.set_state(*ix, *stored_state);
                    }
                }
                Step::Remove { db, node } => {
                    if let Some((ix, _, _)) = model.remove(&(db, node)) {
                        draft.remove(ix);
                    }
                }
                Step::Publish => drop(draft.publish(Moment::default())),
            }
        }
        // Late enough that earlier states no longer affect the choice.
        let snapshot = draft.publish(Moment::from_unix(86_400));
        prop_assert_eq!(snapshot.targets().count(), model.len());
        let mut fresh = Totals::default();
        let mut dbs: BTreeMap<DbIx, (u64, DbSums, Vec<TargetIx>)> = BTreeMap::new();
        for ((db, node), (ix, facts, state)) in &model {
            let target = snapshot.target(*ix).unwrap();
            prop_assert_eq!(target.facts(), *facts);
            prop_assert_eq!(target.state(), *state);
            let text = format!("db{db}");
            prop_assert_eq!(target.db_name(), name(&text));
            prop_assert_eq!(target.node(), format!("n{node}"));
            fresh.add(&target.contribution());
            if !matches!(*state, TargetState::Missing | TargetState::Orphan) {
                let (rank, DbSums { shards, .. }, targets) = dbs.entry(target.db()).or_default();
                *rank += target.reclaimable_bytes().unwrap_or_default();
                shards.file_count += 1;
                shards.file_bytes.add(facts.file_bytes.get(), false);
                shards.active_bytes.add(facts.active_bytes.get(), false);
                shards.reclaimable_bytes.add(target.reclaimable_bytes(), false);
                targets.push(*ix);
            }
        }
        for node in snapshot.nodes().iter().enumerate().map(|(at, _)| NodeIx(u16::try_from(at).unwrap())) {
            prop_assert_eq!(fresh.sums_of(node, TargetKind::Db), snapshot.totals().sums_of(node, TargetKind::Db));
        }
        let top = snapshot.top();
        let chosen: BTreeMap<DbIx, ExportedDatabase> = top.databases.iter().map(|it| (it.db, *it)).collect();
        prop_assert_eq!(chosen.len(), dbs.len().min(6));
        let whole: Vec<&ExportedDatabase> = top.databases.iter().filter(|it| it.is_complete).collect();
        prop_assert_eq!((whole.len(), top.incomplete_count), (dbs.len().min(3), dbs.len() - whole.len()));
        let mut targets: Vec<TargetIx> = whole.iter().flat_map(|it| dbs[&it.db].2.clone()).collect();
        targets.sort_unstable();
        prop_assert_eq!(&top.targets, &targets, "exactly the targets of the fully exported databases");
        let rank = |db: &DbIx| dbs[db].0;
        let weakest = chosen.keys().map(rank).min().unwrap_or_default();
        let weakest_whole = whole.iter().map(|it| rank(&it.db)).min().unwrap_or_default();
        for (db, (rank, sums, _)) in &dbs {
            match chosen.get(db) {
                Some(it) => {
                    prop_assert_eq!(it.sums, *sums);
                    prop_assert!(it.is_complete || *rank <= weakest_whole + weakest_whole / 4);
                }
                None => prop_assert!(*rank <= weakest + weakest / 4),
            }
        }
    }
}
