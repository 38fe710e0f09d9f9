use super::*;
use crate::{
    model::facts::{FactFlags, Facts, Measurement, OptionalU64},
    table::{DbName, Draft, NodeIx, TargetIx},
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use wall_clock::Moment;

const RANGE: Range = Range { from: 0, to: u32::MAX };

fn facts(by: FactSource, file: u64) -> Facts {
    let measured_at = Some(Measurement { at: Moment::from_unix(1_000), source: by });
    let flags = FactFlags { exact: true, ..FactFlags::default() };
    Facts { file_bytes: OptionalU64::new(file), measured_at, flags, ..Facts::default() }
}

/// Adds file number `at` of a node: one database, then two parts, and so on.
fn put(draft: &mut Draft, node: NodeIx, at: u8) -> TargetIx {
    let db = format!("db{}", at / 3);
    let db = draft.get_or_add_db(DbName { db: &db, suffix: ".1" });
    let ix = match at % 3 {
        0 => draft.get_or_add_shard(node, db, Some(RANGE)),
        _ => draft.get_or_add_part(node, db, Some(RANGE), Signature([at; 16])),
    };
    draft.set_facts(ix, facts(FactSource::Files, u64::from(at)));
    ix
}

fn ids(targets: &[TargetRef<'_>]) -> Vec<String> {
    targets.iter().map(|target| target.id().to_string()).collect()
}

proptest! {
    #[test]
    fn files_that_stay_are_listed_once_while_others_change(
        first in proptest::collection::btree_set(0_u8..120, 0..60),
        changes in proptest::collection::vec((0_u8..120, any::<bool>()), 0..60),
        limit in 1_usize..9,
    ) {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let mut files: std::collections::BTreeMap<u8, TargetIx> =
            first.iter().map(|at| (*at, put(&mut draft, node, *at))).collect();
        let mut stays: BTreeSet<u8> = first;
        let (mut listed, mut after): (Vec<String>, Option<TargetId>) = (Vec::new(), None);
        let mut changes = changes.into_iter();
        loop {
            let snapshot = draft.publish(Moment::from_unix(1_000));
            let place = after.as_ref().and_then(FilePosition::named);
            let (targets, more) = page(&snapshot, place, limit);
            prop_assert!(targets.len() <= limit && (!more || targets.len() == limit));
            listed.extend(ids(&targets));
            after = targets.last().map(|target| target.id());
            if !more {
                break;
            }
            for (at, comes) in changes.by_ref().take(4) {
                if let Some(ix) = files.remove(&at) {
                    stays.remove(&at);
                    draft.remove(ix);
                }
                if comes {
                    files.insert(at, put(&mut draft, node, at));
                }
            }
        }
        let distinct: BTreeSet<&String> = listed.iter().collect();
        prop_assert_eq!(distinct.len(), listed.len(), "a file is listed twice");
        let snapshot = draft.publish(Moment::from_unix(1_001));
        for at in stays {
            let id = snapshot.target(files[&at]).unwrap().id().to_string();
            prop_assert!(distinct.contains(&id), "{} is not listed", id);
        }
    }
}

#[test]
fn lists_only_facts_from_files_and_finds_the_page_by_id() {
    let mut draft = Draft::new(1);
    let node = draft.get_or_add_node("couchdb@a");
    put(&mut draft, node, 0);
    put(&mut draft, node, 1);
    let local = draft.get_or_add_db(DbName { db: "_dbs", suffix: "" });
    let local = draft.get_or_add_shard(node, local, None);
    draft.set_facts(local, facts(FactSource::Files, 7));
    let by_couchdb = put(&mut draft, node, 3);
    draft.set_facts(by_couchdb, facts(FactSource::Http, 3));
    let stale = put(&mut draft, node, 4);
    draft.set_state(stale, TargetState::Orphan);
    let db = draft.get_or_add_db(DbName { db: "db0", suffix: ".1" });
    draft.get_or_add_cleanup(db);
    let snapshot = draft.publish(Moment::from_unix(1_000));
    let (targets, more) = page(&snapshot, None, 100);
    let part = format!("view:couchdb@a/shards%2F00000000-ffffffff%2Fdb0.1/{}", "01".repeat(16));
    assert_eq!(
        ids(&targets),
        ["db:couchdb@a/_dbs", "db:couchdb@a/shards%2F00000000-ffffffff%2Fdb0.1", &part]
    );
    assert!(!more);
    for target in targets {
        assert_eq!(FilePosition::named(&target.id()), Some(FilePosition::of(target)));
    }
}
