use super::*;
use crate::model::facts::{FactFlags, FactSource, Facts, Measurement, OptionalU64};
use proptest::prelude::*;
use std::sync::{Arc, LazyLock};

const NOW: u64 = 1_795_222_434;

fn facts(file: u64, ago: Option<u64>) -> Facts {
    Facts {
        update_seq: OptionalU64::new(file),
        measured_at: ago
            .map(|ago| Measurement { at: Moment::from_unix(NOW - ago), source: FactSource::Http }),
        flags: FactFlags { needs_upgrade: file.is_multiple_of(2), ..FactFlags::default() },
        ..Facts::sized(file, file / 2)
    }
}

/// Sets facts that were first measured long ago and then measured again.
fn measure(draft: &mut Draft, ix: TargetIx, file: u64, ago: Option<u64>) {
    draft.set_facts(ix, facts(file, ago.map(|_| 20_000)));
    draft.set_facts(ix, facts(file, ago));
}

/// Three hundred databases on two nodes, with views and cleanups, measured `ago` seconds ago.
fn tables(ago: impl Fn(u64) -> Option<u64>) -> Arc<Snapshot> {
    let mut draft = Draft::new(5);
    let nodes = ["couchdb@a", "couchdb@b"].map(|name| draft.get_or_add_node(name));
    for at in 0..300_u64 {
        let name = format!("db-{at}");
        let db = draft.get_or_add_db(DbName { db: &name, suffix: ".17" });
        for node in nodes {
            let range = Range { from: 0, to: u32::MAX };
            let ix = draft.get_or_add_shard(node, db, (at != 7).then_some(range));
            measure(&mut draft, ix, 1_000 + at, ago(at));
            if at == 9 {
                draft.set_state(ix, TargetState::Orphan);
            }
        }
        draft.set_shard_map(db, ShardMapEntry { copies: 2, ranges: 1 }, &[]);
        if at % 50 == 0 {
            let view = View {
                signature: Signature([u8::try_from(at / 2).unwrap(); 16]),
                designs: [Arc::from("_design/x"), Arc::from("_design/\u{fc}")].into(),
                language: "javascript".into(),
                collators: [Arc::from("153.1")].into(),
                exact_range: true,
                ..View::default()
            };
            let ix = draft.add_view(db, view);
            measure(&mut draft, ix, at, ago(at));
            let cleanup = draft.get_or_add_cleanup(db);
            let file_bytes = OptionalU64::UNKNOWN;
            draft.set_facts(cleanup, Facts { file_bytes, ..facts(0, ago(at)) });
        }
    }
    // A removed target leaves an empty row.
    let third = draft.current().target_at(3).unwrap().ix();
    draft.remove(third);
    draft.publish(Moment::from_unix(NOW))
}

fn packed(snapshot: &Snapshot) -> Vec<TableBlock> {
    let blocks = u32::try_from(snapshot.block_count()).unwrap();
    (0..blocks).map(|number| snapshot.build_block(number).compress()).collect()
}

fn restored(blocks: &[TableBlock]) -> Arc<Snapshot> {
    let mut draft = Draft::new(5);
    for block in blocks {
        draft.restore(block).unwrap();
    }
    draft.publish(Moment::from_unix(NOW))
}

/// All properties by which two tables are compared, except the times of measurement.
fn comparable_rows(
    snapshot: &Snapshot,
) -> Vec<(String, TargetState, ShardMapEntry, Option<View>, Facts)> {
    let measured = snapshot.targets().map(|target| {
        let view = target.view().cloned();
        let facts = Facts { measured_at: None, ..target.facts() };
        (target.id().to_string(), target.state(), target.shard_map(), view, facts)
    });
    measured.collect()
}

#[test]
fn restores_facts_with_their_age() {
    let before = tables(|at| (at != 5).then_some(if at == 8 { 9_000 } else { 60 }));
    let blocks = packed(&before);
    assert_eq!(blocks.len(), 3);
    let after = restored(&blocks);
    assert_eq!(comparable_rows(&after), comparable_rows(&before));
    let ages = |snapshot: &Snapshot| -> Vec<_> {
        snapshot.targets().map(|target| target.facts().measured_at).collect()
    };
    assert_eq!(ages(&after), ages(&before));
    assert_eq!(after.totals(), before.totals());
    assert!(after.nodes().iter().skip(1).all(|node| node.is_member && node.is_up.is_none()));
}

/// Without the node's sums, restored bytes of unused files would exceed the total waste.
#[test]
fn restored_cleanup_has_no_size_until_files_are_walked() {
    let mut draft = Draft::new(5);
    let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".17" });
    let cleanup = draft.get_or_add_cleanup(db);
    let flags = FactFlags { evidence: true, ..FactFlags::default() };
    draft.set_facts(cleanup, Facts { flags, ..facts(900 << 20, Some(60)) });
    let after = restored(&packed(&draft.publish(Moment::from_unix(NOW))));
    let facts = after.targets().next().unwrap().facts();
    assert_eq!((facts.flags.evidence, facts.file_bytes.get()), (true, None));
}

#[test]
fn restored_rent_and_growth_continue() {
    let mut draft = Draft::new(5);
    let node = draft.get_or_add_node("couchdb@a");
    let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".17" });
    let ix = draft.get_or_add_shard(node, db, None);
    for (file, ago) in [(10 << 20, 9_000), (30 << 20, 6_000), (30 << 20, 3_000)] {
        draft.set_facts(ix, facts(file, Some(ago)));
    }
    let before = draft.publish(Moment::from_unix(NOW));
    let after = restored(&packed(&before));
    let (one, two) = (before.target(ix).unwrap(), after.target_at(0).unwrap());
    assert_eq!((one.rent(), one.growth()), (two.rent(), two.growth()));
    assert!(two.rent().byte_seconds(0, Moment::from_unix(NOW)).unwrap() > 0.0);
    assert!(two.growth().expected(Moment::from_unix(NOW)).is_some());

    // A block of a version that stored neither rent nor growth.
    let block = before.build_block(0);
    let content: BlockContent<'_> = postcard::from_bytes(&block.bytes).unwrap();
    let old = UncompressedBlock { bytes: postcard::to_stdvec(&content).unwrap(), ..block.clone() };
    let restored = restored(&[old.compress()]);
    let old = restored.target_at(0).unwrap();
    assert_eq!(old.facts(), two.facts());
    assert_eq!(
        old.rent().byte_seconds(0, Moment::from_unix(NOW)),
        Some(0.0),
        "rent starts at zero"
    );
}

#[test]
fn block_bytes_do_not_change_while_only_time_passes() {
    let prints = |snapshot: &Snapshot| -> Vec<u64> {
        let blocks = u32::try_from(snapshot.block_count()).unwrap();
        (0..blocks).map(|number| snapshot.build_block(number).fingerprint()).collect()
    };
    let early = tables(|at| Some(500 + at));
    let late = tables(|at| Some(100 + at / 3));
    assert_eq!(prints(&early), prints(&late));
    assert!(early.build_block(0).at() < late.build_block(0).at());
    let one_is_old = tables(|at| Some(if at == 1 { 9_000 } else { 100 }));
    assert_ne!(prints(&one_is_old)[0], prints(&late)[0]);
    assert_eq!(prints(&one_is_old)[1..], prints(&late)[1..]);
}

#[test]
fn rejects_damaged_blocks() {
    let blocks = packed(&tables(|_| Some(1)));
    let block = |bytes: Vec<u8>| TableBlock { bytes, ..blocks[0].clone() };
    let whole = &blocks[0].bytes;
    let cut = block(whole[..whole.len() / 2].to_vec());
    let other = block([&[FORMAT_VERSION + 1][..], &whole[1..]].concat());
    for damaged in
        [cut, other, block(vec![]), block(vec![FORMAT_VERSION]), block(vec![FORMAT_VERSION, 7, 7])]
    {
        let mut draft = Draft::new(5);
        assert_eq!(draft.restore(&damaged), Err(DamagedBlock));
        assert_eq!(draft.current().targets().count(), 0);
    }
}

proptest! {
    #![proptest_config(crate::cases::one_case_in(8))]

    #[test]
    fn restored_facts_are_never_younger_than_stored(
        ages in proptest::collection::vec(proptest::option::of(0..20_000_u64), 1..300),
    ) {
        let before = tables(|at| ages[usize::try_from(at).unwrap() % ages.len()]);
        let after = restored(&packed(&before));
        for (one, two) in before.targets().zip(after.targets()) {
            let (one, two) = (one.facts().measured_at, two.facts().measured_at);
            prop_assert_eq!(one.is_some(), two.is_some());
            if let (Some(one), Some(two)) = (one, two) {
                prop_assert!(two.at <= one.at && two.at.age(one.at) <= SHARED_TIME_SPAN);
                prop_assert_eq!(one.source, two.source);
            }
        }
    }
}

proptest! {
    #[test]
    fn restoring_arbitrary_bytes_never_panics(
        flips in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        raw in any::<bool>(),
    ) {
        static LOOSE: LazyLock<UncompressedBlock> =
            LazyLock::new(|| tables(|_| Some(1)).build_block(0));
        let loose = LOOSE.clone();
        let mut bytes = if raw { loose.bytes.clone() } else { loose.compress().bytes };
        for (at, byte) in flips {
            let len = bytes.len();
            bytes[at % len] = byte;
        }
        let block = if raw {
            UncompressedBlock { bytes, ..loose }.compress()
        } else {
            TableBlock { bytes, ..loose.compress() }
        };
        let mut draft = Draft::new(5);
        // The restored data may be wrong, but it never exceeds one block.
        let _read = draft.restore(&block);
        prop_assert!(draft.current().targets().count() <= ROWS_PER_BLOCK);
    }
}
