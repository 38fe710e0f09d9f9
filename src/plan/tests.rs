//! Tests the queues against scoring everything from scratch, and the plan's public answers.

mod naive;
mod orders;
mod properties;
mod rent;
mod runs;
mod slot_reservations;
mod tidy;
mod world;

use super::*;
use crate::{
    jobs::{BusyPeriod, JobKey, JobKind, TargetConstraints},
    model::{
        channel::Channels,
        facts::{FactFlags, FactSource, Facts, Measurement, OptionalU64},
        score::MissReason,
        settings::limits::Headroom,
        target::{TargetKind, TargetState},
        window::Openings,
    },
    table::{DbName, Draft, NodeIx, Snapshot, TargetIx, TargetRef},
    text::Label,
    text::pattern::NamePatterns,
};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc};
use wall_clock::Moment;

const MIB: u64 = 1 << 20;

/// The default rules, except that unknown disk space holds nothing back.
fn rules() -> Arc<Rules> {
    let headroom = Headroom { blind_limit: u64::MAX, ..Headroom::default() };
    Arc::new(Rules { headroom, ..Rules::default() })
}

fn at(seconds: u64) -> Moment {
    Moment::from_unix(seconds)
}

fn facts(file: u64, active: u64, measured: u64) -> Facts {
    Facts::read(file, active, at(measured))
}

fn member(draft: &mut Draft, name: &str) -> NodeIx {
    let node = draft.get_or_add_node(name);
    draft.update_node(node, |node| node.is_member = true);
    node
}

/// A node with databases of these sizes in MiB.
fn node_with(draft: &mut Draft, sizes: &[(&str, u64, u64)]) -> Vec<TargetIx> {
    let node = member(draft, "couchdb@a");
    sizes
        .iter()
        .map(|(name, file, active)| {
            let db = draft.get_or_add_db(DbName { db: name, suffix: ".1" });
            let ix = draft.get_or_add_shard(node, db, None);
            draft.set_facts(ix, facts(file * MIB, active * MIB, 100));
            ix
        })
        .collect()
}

fn planned(draft: &mut Draft, channels: Channels, now: u64) -> Plan {
    let snapshot = draft.publish(at(now));
    let mut queues = Queues::new(Arc::new(channels));
    queues.apply_snapshot(&snapshot, at(now));
    queues.make_plan(&snapshot, &Conditions::default(), &rules(), at(now))
}

fn names(plan: &Plan, ids: &[TargetIx]) -> Vec<String> {
    ids.iter().map(|ix| plan.snapshot.target(*ix).unwrap().db_name().db.to_owned()).collect()
}

fn waits(queue: &QueueView) -> Vec<TargetIx> {
    queue.queued().collect()
}

fn starts(plan: &Plan) -> Vec<TargetIx> {
    plan.starts.iter().map(|start| start.ix).collect()
}

#[test]
fn target_in_a_reused_row_starts_a_new_waiting_time() {
    for skipped in [false, true] {
        let mut draft = Draft::new(5);
        let ids = node_with(&mut draft, &[("old", 100, 10)]);
        let mut queues = Queues::new(Arc::new(Channels::default()));
        queues.apply_snapshot(&draft.publish(at(100)), at(100));
        draft.remove(ids[0]);
        let [ix] = node_with(&mut draft, &[("new", 100, 10)])[..] else { panic!("one") };
        assert_eq!(ix.as_usize(), ids[0].as_usize());
        if skipped {
            // The queues miss a version, so they score every target.
            draft.publish(at(150));
        }
        let snapshot = draft.publish(at(200));
        queues.apply_snapshot(&snapshot, at(200));
        let plan = queues.make_plan(&snapshot, &Conditions::default(), &rules(), at(200));
        assert_eq!(plan.placement(ix).unwrap().1.queued_since, at(200), "skipped: {skipped}");
        assert_eq!(plan.placement(ids[0]), None);
        let ratio = plan.queue(NodeIx::from_usize(1).unwrap(), 0).unwrap();
        assert_eq!((waits(ratio), ratio.overflow), (vec![ix], 0));
    }
}

#[test]
fn a_target_belongs_to_the_first_channel_that_takes_it() {
    let mut draft = Draft::new(5);
    let ids =
        node_with(&mut draft, &[("a", 100, 10), ("b", 100, 20), ("c", 2_000, 1_200), ("d", 9, 8)]);
    let plan = planned(&mut draft, Channels::default(), 200);
    let node = NodeIx::from_usize(1).unwrap();
    let ratio = plan.queue(node, 0).unwrap();
    assert_eq!(names(&plan, &waits(ratio)), ["a", "b"]);
    assert_eq!(ratio.priority_range, Some((10.0, 5.0)));
    assert_eq!(
        (ratio.active_jobs, ratio.overflow, ratio.capacity, ratio.oldest_queued_at),
        (0, 0, 9_999, Some(at(200)))
    );
    assert_eq!(names(&plan, &starts(&plan)), ["a"]);
    assert_eq!(names(&plan, &waits(plan.queue(node, 1).unwrap())), ["c"]);
    assert_eq!(plan.queue(node, 2).unwrap().queued().len(), 0, "exists and is empty");
    assert!(plan.queue(node, 3).is_none(), "views wait on the pseudo node");
    assert!(plan.queue(NodeIx::CLUSTER, 3).is_some());

    let target = |at: usize| plan.snapshot.target(ids[at]).unwrap();
    assert_eq!(plan.decision(target(0)), Decision::Start);
    assert_eq!(
        plan.decision(target(1)),
        Decision::Refused(Refusal {
            reason: RefusalReason::ChannelLimit,
            value: Some(1.0),
            limit: Some(1.0),
            since: Some(at(200)),
        })
    );
    assert_eq!(plan.decision(target(3)), Decision::NotTaken);
    let misses: Vec<_> = plan
        .misses(target(3))
        .map(|(channel, miss)| (channel.name.to_string(), miss.reason))
        .collect();
    assert_eq!(
        misses[..4],
        [
            ("ratio_dbs".into(), MissReason::BelowMinPriority),
            ("slack_dbs".into(), MissReason::BelowMinPriority),
            ("upgrade_dbs".into(), MissReason::NoUpgradeNeeded),
            ("ratio_views".into(), MissReason::NotThisKind),
        ]
    );
}

#[test]
fn running_stale_and_splitting_targets_are_skipped() {
    let mut draft = Draft::new(5);
    let ids = node_with(
        &mut draft,
        &[
            ("running", 100, 1),
            ("stale", 100, 2),
            ("split", 100, 4),
            ("next", 100, 5),
            ("last", 100, 9),
        ],
    );
    let running = Facts {
        flags: FactFlags { compact_running: true, ..FactFlags::default() },
        ..facts(100 * MIB, MIB, 2_000)
    };
    draft.set_facts(ids[0], running);
    for (ix, active) in [(ids[2], 4), (ids[3], 5), (ids[4], 9)] {
        draft.set_facts(ix, facts(100 * MIB, active * MIB, 2_000));
    }
    draft.set_state(ids[2], TargetState::Resharding);
    let mut channels = Channels::default();
    channels.list[0].concurrency = 2;
    let plan = planned(&mut draft, channels, 2_000);
    let queue = plan.queue(NodeIx::from_usize(1).unwrap(), 0).unwrap();
    assert_eq!(queue.active_jobs, 1);
    let waiting = plan.waiting().find(|(waiting, _)| *waiting == queue).map(|(_, count)| count);
    assert_eq!((queue.queued().len(), waiting), (5, Some(4)), "the running target does not wait");
    assert_eq!(names(&plan, &starts(&plan)), ["next"]);
    let reasons: Vec<_> = ids
        .iter()
        .map(|ix| match plan.decision(plan.snapshot.target(*ix).unwrap()) {
            Decision::Refused(refusal) => refusal.reason.label(),
            Decision::Start => "start",
            Decision::NotTaken => "not taken",
        })
        .collect();
    assert_eq!(reasons, ["running", "stale", "resharding", "start", "channel_limit"]);
}

#[test]
fn name_patterns_and_states_exclude_targets() {
    let mut draft = Draft::new(5);
    let ids =
        node_with(&mut draft, &[("scratch-1", 100, 1), ("orders", 100, 1), ("stray", 100, 1)]);
    draft.set_state(ids[2], TargetState::Orphan);
    let mut channels =
        Channels { ignore: NamePatterns::new(&["scratch-*"]).unwrap(), ..Channels::default() };
    channels.list[0].databases = crate::text::pattern::NameFilter::new(&["*"], &["ord*"]).unwrap();
    let plan = planned(&mut draft, channels, 100);
    let first =
        |ix: TargetIx| plan.misses(plan.snapshot.target(ix).unwrap()).next().unwrap().1.reason;
    assert_eq!(
        ids.iter().map(|ix| first(*ix)).collect::<Vec<_>>(),
        [MissReason::Ignored, MissReason::Excluded, MissReason::Excluded,]
    );
}

#[test]
fn removes_queues_of_a_node_that_left() {
    let mut draft = Draft::new(5);
    let ids = node_with(&mut draft, &[("a", 100, 10)]);
    let mut queues = Queues::new(Arc::default());
    queues.apply_snapshot(&draft.publish(at(1)), at(1));
    let node = NodeIx::from_usize(1).unwrap();
    draft.update_node(node, |node| node.is_member = false);
    draft.remove(ids[0]);
    let snapshot = draft.publish(at(2));
    queues.apply_snapshot(&snapshot, at(2));
    let plan = queues.make_plan(&snapshot, &Conditions::default(), &rules(), at(2));
    assert_eq!(plan.queue(node, 0), None);
    assert!(plan.queues.iter().all(|queue| queue.node == NodeIx::CLUSTER));
}

#[test]
fn a_cleanup_without_evidence_is_refused_as_no_evidence() {
    let mut draft = Draft::new(5);
    let db = draft.get_or_add_db(DbName { db: "a", suffix: ".1" });
    let ix = draft.get_or_add_cleanup(db);
    let plan = planned(&mut draft, Channels::default(), 100);
    assert_eq!(
        plan.decision(plan.snapshot.target(ix).unwrap()),
        Decision::Refused(Refusal::without_numbers(RefusalReason::NoEvidence))
    );
}

proptest! {
    #[test]
    fn incremental_updates_agree_with_scoring_from_scratch(
        capacity in 1..6_usize,
        rounds in proptest::collection::vec(
            proptest::collection::vec((0..12_u8, 0..6_u64, 1..4_u64, any::<bool>(), any::<bool>()), 0..8),
            1..8,
        ),
    ) {
        let mut channels = Channels::default();
        for channel in &mut channels.list {
            channel.capacity = capacity;
        }
        let channels = Arc::new(channels);
        let mut draft = Draft::new(5);
        let mut queues = Queues::new(Arc::clone(&channels));
        let mut last = None;
        for (round, changes) in rounds.iter().enumerate() {
            for &(db, file, active, gone, running) in changes {
                let node = member(&mut draft, if db % 2 == 0 { "a" } else { "b" });
                let name = format!("db{db}");
                let place = draft.get_or_add_db(DbName { db: &name, suffix: "" });
                let ix = draft.get_or_add_shard(node, place, None);
                if gone {
                    draft.remove(ix);
                } else {
                    let flags = FactFlags { compact_running: running, ..FactFlags::default() };
                    draft.set_facts(ix, Facts { flags, ..facts(file * 3 * MIB, active * MIB, 1) });
                }
            }
            let snapshot = draft.publish(at(1));
            queues.apply_snapshot(&snapshot, at(1));
            let updated = queues.make_plan(&snapshot, &Conditions::default(), &rules(), at(1));
            let mut rebuilt = Queues::new(Arc::clone(&channels));
            rebuilt.apply_snapshot(&snapshot, at(1));
            let rebuilt = rebuilt.make_plan(&snapshot, &Conditions::default(), &rules(), at(1));
            prop_assert_eq!(&updated.queues, &rebuilt.queues, "round {}", round);
            last = Some(updated);
        }
        let plan = last.unwrap();
        for target in plan.snapshot.targets() {
            let taken = first_channel(&plan.channels, target, &target.facts(), plan.rent_now(target)).map(|(at, _)| at);
            prop_assert_eq!(plan.placement(target.ix()).and_then(|(_, placed)| placed.channel_index()), taken);
        }
    }
}

#[test]
fn lasting_reason_is_shown_instead_of_a_temporary_one() {
    let mut draft = Draft::new(5);
    let ids = node_with(&mut draft, &[("small", 100, 10), ("large", 100_000, 10_000)]);
    let snapshot = draft.publish(at(200));
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(&snapshot, at(200));
    let node = NodeIx::from_usize(1).unwrap();
    let ended_at = Some(at(190));
    let first_job = JobKey { node, shard: "shards/x".into(), kind: JobKind::CompactDb };
    let mut rest = BusyPeriod::beginning(first_job, at(100));
    (rest.first_ended_at, rest.ended_at) = (ended_at, ended_at);
    let constraints =
        TargetConstraints { busy_periods: [(node, rest)].into(), ..TargetConstraints::default() };
    let conditions = Conditions { constraints: Arc::new(constraints), ..Conditions::default() };
    let plan = queues.make_plan(&snapshot, &conditions, &Arc::new(Rules::default()), at(200));
    let reason = |at: usize| match plan.decision(plan.snapshot.target(ids[at]).unwrap()) {
        Decision::Refused(refusal) => refusal.reason,
        other @ (Decision::Start | Decision::NotTaken) => panic!("{other:?}"),
    };
    assert_eq!(reason(0), RefusalReason::Duty, "the node rests");
    assert_eq!(reason(1), RefusalReason::UnknownDisk, "although the node rests");
    assert_eq!(plan.place_in_line(plan.snapshot.target(ids[0]).unwrap()), Some((1, 1)));
    assert_eq!(plan.place_in_line(plan.snapshot.target(ids[1]).unwrap()), None);
}
