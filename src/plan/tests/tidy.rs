//! The order in which a tidy pass compacts, and what it leaves.

use super::*;
use crate::{
    jobs::{Job, JobKey, JobKind, JobPhase, Jobs},
    model::{records::JobOwner, settings::work::EnforceViews},
    plan::disk::{Disks, Volume, VolumeSpace},
    table::{PartSums, ShardMapEntry, View, ViewCopies},
};
use couchdb_names::{Range, Signature};
use std::collections::BTreeSet;

const NODE: &str = "couchdb@a";

/// A node whose volume has this much free, in MiB; none if unknown.
fn disks(free: Option<u64>) -> Arc<Disks> {
    let space = free.map(|free| VolumeSpace {
        available: free * MIB,
        size: None,
        held: None,
        measured_at: at(200),
    });
    let volume = Volume {
        name: NODE.into(),
        nodes: vec![NODE.into()],
        space,
        is_stated: false,
        falling_since: None,
        problem: None,
    };
    Arc::new(Disks { volumes: vec![volume] })
}

fn plan_of(draft: &mut Draft, conditions: &Conditions, rules: &Arc<Rules>) -> Plan {
    let snapshot = draft.publish(at(200));
    let mut queues = Queues::new(Arc::default());
    queues.apply_snapshot(&snapshot, at(200));
    queues.make_plan(&snapshot, conditions, rules, at(200))
}

/// Each row: databases as name, MiB of the file and of live data; MiB free; MiB to stop at; the
/// order; what is left; MiB free at the end.
type Case<'a> = (&'a [(&'a str, u64, u64)], u64, Option<u64>, &'a [&'a str], &'a [&'a str], u64);

#[test]
fn space_freed_by_each_compaction_is_available_to_the_next() {
    let cases: [Case<'_>; 6] = [
        // The peak of a database is 2.2 times its live data: 220 MiB for `large`, which fits only
        // into what the others free.
        (
            &[("large", 400, 150), ("middle", 200, 40), ("small", 80, 10)],
            30,
            None,
            &["small", "middle"],
            &["large"],
            260,
        ),
        (
            &[("large", 500, 100), ("middle", 300, 40), ("small", 100, 10)],
            30,
            None,
            &["small", "middle", "large"],
            &[],
            780,
        ),
        // Nothing fits.
        (&[("large", 400, 100), ("middle", 200, 40)], 80, None, &[], &["large", "middle"], 80),
        // Of the databases that fit, the one that frees most per byte written comes first.
        (&[("a", 100, 40), ("b", 100, 10)], 500, None, &["b", "a"], &[], 650),
        // Enough is free after the first compaction; or already at the start.
        (&[("a", 100, 40), ("b", 100, 10)], 90, Some(170), &["b"], &[], 180),
        (&[("a", 100, 40), ("b", 100, 10)], 90, Some(90), &[], &[], 90),
    ];
    for (sizes, free, goal, order, left, ends) in cases {
        let mut draft = Draft::new(5);
        node_with(&mut draft, sizes);
        let conditions = Conditions { disks: disks(Some(free)), ..Conditions::default() };
        let plan = plan_of(&mut draft, &conditions, &rules());
        let outlook = plan.tidy_outlook(goal.map(|goal| goal * MIB));
        let starts: Vec<TargetIx> = outlook.starts.iter().map(|start| start.ix).collect();
        assert_eq!(names(&plan, &starts), order, "{sizes:?} {free}");
        let stays: Vec<TargetIx> = outlook.left.iter().map(|(ix, _)| *ix).collect();
        let mut stays = names(&plan, &stays);
        stays.sort();
        assert_eq!(stays, left, "{sizes:?} {free}");
        assert!(outlook.left.iter().all(|(_, it)| it.reason == RefusalReason::Headroom));
        // Predictions differ from the live data by a few percent.
        let ends_with = outlook.free_bytes.expect("it is known") / MIB;
        assert!(
            (ends * 97 / 100..=ends * 103 / 100).contains(&ends_with),
            "{sizes:?} {free}: {ends_with}"
        );
        assert!(!outlook.is_cut);
    }
}

#[test]
fn compactions_by_others_take_no_slot_in_the_outlook() {
    let mut draft = Draft::new(5);
    let ids = node_with(&mut draft, &[("a", 100, 10), ("b", 100, 10)]);
    let mut runs = facts(100 * MIB, 10 * MIB, 100);
    runs.flags.compact_running = true;
    draft.set_facts(ids[0], runs);
    let polled_nodes = vec![(NodeIx::from_usize(1).unwrap(), at(200))];
    let jobs = Arc::new(Jobs { polled_nodes, ..Jobs::default() });
    let conditions = Conditions { jobs, disks: disks(Some(500)), ..Conditions::default() };
    let outlook = plan_of(&mut draft, &conditions, &rules()).tidy_outlook(None);
    assert!(outlook.starts.iter().any(|start| start.ix == ids[1]), "{outlook:?}");
}

#[test]
fn freed_bytes_do_not_add_to_unknown_or_fixed_space() {
    let sizes = [("large", 400, 100), ("small", 60, 10)];
    let mut draft = Draft::new(5);
    node_with(&mut draft, &sizes);
    // As in mode enforce, only files up to the limit are compacted blindly.
    let conditions = Conditions { disks: disks(None), ..Conditions::default() };
    let headroom = Headroom { blind_limit: 100 * MIB, ..Headroom::default() };
    let blind = Arc::new(Rules { headroom, ..Rules::default() });
    let plan = plan_of(&mut draft, &conditions, &blind);
    let outlook = plan.tidy_outlook(None);
    let left: Vec<_> = outlook.left.iter().map(|(_, refusal)| refusal.reason).collect();
    assert_eq!((outlook.starts.len(), left), (1, vec![RefusalReason::UnknownDisk]));
    assert_eq!(outlook.free_bytes, None);

    // A stated number does not grow.
    let mut stated = disks(Some(180));
    for volume in &mut Arc::make_mut(&mut stated).volumes {
        volume.is_stated = true;
    }
    let conditions = Conditions { disks: stated, ..Conditions::default() };
    let outlook = plan_of(&mut draft, &conditions, &rules()).tidy_outlook(None);
    assert_eq!((outlook.starts.len(), outlook.left.len()), (1, 1));
    assert_eq!(outlook.free_bytes, Some(180 * MIB));
}

#[test]
fn tidy_waits_for_running_jobs_and_ends_when_nothing_more_fits() {
    let mut draft = Draft::new(5);
    let ids = node_with(&mut draft, &[("a", 100, 10), ("b", 100, 10)]);
    let job = |at: usize, owner| Job {
        key: JobKey {
            node: NodeIx::from_usize(1).unwrap(),
            shard: format!("{at}").into(),
            kind: JobKind::CompactDb,
        },
        target: Some(ids[at]),
        target_kind: TargetKind::Db,
        owner,
        channel: None,
        started_at: super::at(150),
        phase: JobPhase::Running,
        progress: None,
        last_progress_at: super::at(150),
        reserved_bytes: 0,
        file_bytes: None,
        predicted_bytes: None,
    };
    let state = |draft: &mut Draft, list: Vec<Job>, free: u64, done: &[usize]| {
        let jobs = Arc::new(Jobs { list, ..Jobs::default() });
        let conditions = Conditions { jobs, disks: disks(Some(free)), ..Conditions::default() };
        let plan = plan_of(draft, &conditions, &rules());
        let id = |at: usize| plan.snapshot.target(ids[at]).unwrap().id();
        let all: BTreeSet<_> = [id(0), id(1)].into();
        plan.tidy_state(&all, &done.iter().map(|at| id(*at)).collect())
    };
    let other = |at| job(at, JobOwner::Other);
    assert_eq!(state(&mut draft, Vec::new(), 500, &[]), TidyState::Works);
    assert_eq!(state(&mut draft, vec![job(0, JobOwner::Recliner)], 500, &[0, 1]), TidyState::Works);
    // Somebody else compacts the same file.
    let waits = state(&mut draft, vec![other(0)], 500, &[1]);
    assert!(
        matches!(waits, TidyState::Waits(ix, it) if ix == ids[0] && it.reason == RefusalReason::Running),
        "{waits:?}"
    );
    // Nothing fits, or everything is done: targets that wait again after that belong to the next
    // run.
    assert_eq!(state(&mut draft, Vec::new(), 1, &[]), TidyState::Ended);
    assert_eq!(state(&mut draft, Vec::new(), 500, &[0, 1]), TidyState::Ended);
}

fn one_view() -> View {
    View {
        signature: Signature([7; 16]),
        designs: ["_design/v".into()].into(),
        language: "javascript".into(),
        ..View::default()
    }
}

#[test]
fn peak_of_a_view_counts_all_its_files_on_a_node() {
    let mut draft = Draft::new(5);
    let node = member(&mut draft, NODE);
    let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
    for number in 0..8_u32 {
        let range = Range { from: number << 29, to: (number << 29) + ((1 << 29) - 1) };
        let ix = draft.get_or_add_shard(node, db, Some(range));
        draft.set_facts(ix, facts(MIB, MIB, 100));
    }
    let ix = draft.add_view(db, one_view());
    draft.set_shard_map(db, ShardMapEntry { ranges: 8, copies: 8 }, &[ix]);
    draft.set_facts(ix, facts(100 * MIB, 10 * MIB, 100));
    let conditions = Conditions { disks: disks(Some(500)), ..Conditions::default() };
    let mut wide = (*rules()).clone();
    (wide.views, wide.limits.per_node) = (EnforceViews::All, 8);
    let plan = plan_of(&mut draft, &conditions, &Arc::new(wide));
    let start = plan.start(ix).expect("it starts");
    assert_eq!((start.peak_bytes, start.file_bytes), (80 * MIB, Some(800 * MIB)));
}

/// Files of a view differ, so one of them times their number is not what its pages show.
#[test]
fn start_has_the_numbers_of_its_target() {
    let mut draft = Draft::new(5);
    let node = member(&mut draft, NODE);
    let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
    for range in [Range { from: 0, to: 9 }, Range { from: 10, to: u32::MAX }] {
        let ix = draft.get_or_add_shard(node, db, Some(range));
        draft.set_facts(ix, facts(MIB, MIB, 100));
    }
    let view = View {
        part_sums: PartSums {
            count: 2,
            file_bytes: 150 * MIB,
            active_bytes: 15 * MIB,
            predicted_bytes: 14 * MIB,
            reclaimable_bytes: 136 * MIB,
            ..PartSums::default()
        },
        ..one_view()
    };
    let ix = draft.add_view(db, view);
    draft.set_shard_map(db, ShardMapEntry { ranges: 2, copies: 2 }, &[ix]);
    // A growing file, so that the compaction has waste to catch up with.
    for (file, active, measured) in [(100, 10, 100), (101, 10, 700), (102, 10, 1_300)] {
        draft.set_facts(ix, facts(file * MIB, active * MIB, measured));
    }
    let conditions = |remaining: Option<u64>| {
        let constraints = TargetConstraints {
            rewrite_bytes_per_second: Some(1e6),
            remaining_bytes: remaining.map(|bytes| (ix, bytes)).into_iter().collect(),
            ..TargetConstraints::default()
        };
        Conditions { constraints: Arc::new(constraints), ..Conditions::default() }
    };
    let all_views = Arc::new(Rules { views: EnforceViews::All, ..(*rules()).clone() });
    for remaining in [None, Some(20 * MIB)] {
        let snapshot = draft.publish(at(1_400));
        let mut queues = Queues::new(Arc::default());
        queues.apply_snapshot(&snapshot, at(1_400));
        let plan = queues.make_plan(&snapshot, &conditions(remaining), &all_views, at(1_400));
        let target = plan.snapshot.target(ix).unwrap();
        let start = plan.start(ix).expect("it starts");
        assert_eq!(start.caught_up_bytes > 0, remaining.is_none(), "learned sizes include it");
        assert_eq!(start.file_bytes, target.file_bytes());
        assert_eq!(
            start.gain_bytes.map(|it| it + start.caught_up_bytes),
            target.reclaimable_bytes()
        );
        assert_eq!(
            start.rewrite_bytes.map(|it| it - start.caught_up_bytes),
            target.predicted_bytes()
        );
        let ordered = &plan.starts_if_ordered(target)[0];
        assert_eq!(ordered.gain_bytes, start.gain_bytes);
    }
}

/// Each row: MiB of the copies on three nodes, the nodes that a round has compacted, the node that starts, and
/// how many requests a person would have to send.
#[test]
fn only_the_view_copy_with_waste_starts() {
    for (sizes, done, starts, requests) in [
        ([10, 10, 100], &[][..], Some(2), 1),
        ([10, 50, 100], &[], Some(2), 2),
        ([10, 50, 10], &[2], Some(1), 1),
        // The others have nothing to free, although the round has not compacted them.
        ([10, 10, 100], &[2], None, 1),
        ([100, 10, 10], &[], Some(0), 1),
        ([100, 100, 100], &[], Some(0), 3),
    ] {
        let mut draft = Draft::new(5);
        let nodes = ["couchdb@a", "couchdb@b", "couchdb@c"].map(|name| member(&mut draft, name));
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
        let range = Range { from: 0, to: u32::MAX };
        for node in nodes {
            let ix = draft.get_or_add_shard(node, db, Some(range));
            draft.set_facts(ix, facts(MIB, MIB, 100));
        }
        let of = |size: u64| facts(size * MIB, 10 * MIB, 100);
        let mut copies: Vec<_> = nodes.into_iter().zip(sizes.map(of)).collect();
        copies.sort_by_key(|(_, facts)| std::cmp::Reverse(facts.file_bytes.get()));
        let largest = copies[0].1;
        let view = View {
            signature: Signature([7; 16]),
            designs: ["_design/v".into()].into(),
            language: "javascript".into(),
            exact_range: true,
            copies: match sizes.iter().all(|size| *size == sizes[0]) {
                true => ViewCopies::Alike,
                false => ViewCopies::Differ(copies.into()),
            },
            ..View::default()
        };
        let ix = draft.add_view(db, view);
        draft.set_shard_map(db, ShardMapEntry { ranges: 1, copies: 3 }, &[ix]);
        draft.set_facts(ix, largest);
        let mut constraints = TargetConstraints::default();
        if !done.is_empty() {
            let done = done.iter().map(|at: &usize| nodes[*at]).collect();
            constraints.partly_compacted_views.insert(ix, done);
        }
        let conditions = Conditions { constraints: Arc::new(constraints), ..Conditions::default() };
        let mut blind = (*rules()).clone();
        (blind.views, blind.headroom.blind_limit) = (EnforceViews::All, u64::MAX);
        let plan = plan_of(&mut draft, &conditions, &Arc::new(blind));
        let start = plan.start(ix);
        let expected = starts.map(|at: usize| (nodes[at], Some(sizes[at] * MIB)));
        assert_eq!(start.map(|it| (it.node, it.file_bytes)), expected, "{sizes:?} {done:?}");
        let target = plan.snapshot.target(ix).unwrap();
        assert_eq!(plan.starts_if_ordered(target).len(), requests, "{sizes:?} {done:?}");
    }
}
