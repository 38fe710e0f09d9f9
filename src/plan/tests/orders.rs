//! Tests operators' orders against thresholds, back-off, limits and gates.

use super::*;
use crate::{
    jobs::TargetConstraints,
    model::{
        channel::Mode,
        records::{Backoff, CompactionOrder, JournalFailure},
        settings::limits::Limits,
    },
};
use world::{World, any_spec};

const NOW: u64 = 2_000;

/// A node with three databases: one worth compacting, a better one, and one that no channel takes.
pub(super) fn three() -> (Draft, Vec<TargetIx>) {
    let mut draft = Draft::new(5);
    let ids = node_with(&mut draft, &[("good", 100, 40), ("best", 100, 5), ("lean", 100, 99)]);
    for (ix, active) in ids.iter().zip([40, 5, 99]) {
        draft.set_facts(*ix, facts(100 * MIB, active * MIB, NOW));
    }
    (draft, ids)
}

pub(super) fn order(force: bool) -> CompactionOrder {
    CompactionOrder { at: at(NOW - 9), until: at(NOW + 9), by: "ann".into(), force, run: None }
}

pub(super) fn of(
    draft: &mut Draft,
    history: TargetConstraints,
    rules: Rules,
    change: impl Fn(&mut Channels),
) -> Plan {
    let mut channels = Channels::default();
    for channel in &mut channels.list {
        channel.min_changes = 0;
    }
    change(&mut channels);
    let snapshot = draft.publish(at(NOW));
    let mut queues = Queues::new(Arc::new(channels));
    queues.apply_snapshot(&snapshot, at(NOW));
    let conditions = Conditions { constraints: Arc::new(history), ..Conditions::default() };
    queues.make_plan(&snapshot, &conditions, &Arc::new(rules), at(NOW))
}

pub(super) fn enforcing() -> Rules {
    let limits = Limits { wait: std::time::Duration::ZERO, ..Limits::default() };
    Rules { mode: Mode::Enforce, limits, ..(*rules()).clone() }
}

fn ordered(ix: TargetIx, force: bool) -> TargetConstraints {
    TargetConstraints { orders: [(ix, order(force))].into(), ..TargetConstraints::default() }
}

#[test]
fn ordered_target_starts_before_a_better_candidate() {
    let (mut draft, ids) = three();
    let plan = of(&mut draft, TargetConstraints::default(), enforcing(), |_| {});
    assert_eq!(names(&plan, &starts(&plan)), ["best"]);
    let plan = of(&mut draft, ordered(ids[0], false), enforcing(), |_| {});
    assert_eq!(names(&plan, &starts(&plan)), ["good"]);
    assert_eq!(plan.starts[0].order, Some(order(false)));
    let counted: u64 = plan.decision_counts.iter().map(|it| it.starts).sum();
    let refused: u64 = plan
        .decision_counts
        .iter()
        .flat_map(DecisionCounts::refusals_by_reason)
        .map(|it| it.1)
        .sum();
    assert_eq!((counted, refused), (1, 1), "the ordered candidate is counted once");
}

#[test]
fn records_of_a_deleted_target_do_not_apply_to_a_reused_row() {
    // A useless compaction was ordered by force, and another database is quarantined. Then both are
    // deleted and other databases take their rows before the records are looked up again.
    let (mut draft, ids) = three();
    let node = NodeIx::from_usize(1).unwrap();
    let rest = Backoff::Quarantined { since: at(NOW - 5), failures: 5 };
    let history = TargetConstraints {
        backoffs: [(ids[1], rest)].into(),
        started_unmeasured: [(ids[0], at(NOW + 5))].into(),
        ..ordered(ids[2], true)
    };
    let plan = of(&mut draft, history.clone(), enforcing(), |_| {});
    assert_eq!(names(&plan, &starts(&plan)), ["lean"]);
    for ix in &ids {
        draft.remove(*ix);
    }
    // The row that became free last is reused first.
    for (name, active) in [("calm", 99), ("worth it", 5), ("too", 40)] {
        let db = draft.get_or_add_db(DbName { db: name, suffix: ".2" });
        let ix = draft.get_or_add_shard(node, db, None);
        draft.set_facts(ix, facts(100 * MIB, active * MIB, NOW));
        assert!(ids.iter().any(|gone| gone.as_usize() == ix.as_usize()) && !ids.contains(&ix));
    }
    let plan = of(&mut draft, history, enforcing(), |channels| {
        channels.list.iter_mut().for_each(|channel| channel.concurrency = 9);
    });
    let mut started = names(&plan, &starts(&plan));
    started.sort();
    assert_eq!(started, ["too", "worth it"], "not blocked by records of the previous targets");
}

#[test]
fn node_limit_of_zero_is_reported_instead_of_the_ramp() {
    let (mut draft, ids) = three();
    let node = NodeIx::from_usize(1).unwrap();
    let just_started = || TargetConstraints {
        last_start_by_node: [(node, at(NOW - 1))].into(),
        ..TargetConstraints::default()
    };
    let wait = std::time::Duration::from_secs(3);
    for (per_node, expected) in [(2, RefusalReason::Ramp), (0, RefusalReason::NodeLimit)] {
        let limits = Limits { wait, per_node, ..Limits::default() };
        let rules = Rules { limits, ..enforcing() };
        let plan = of(&mut draft, just_started(), rules, |_| {});
        for ix in &ids[..2] {
            let Decision::Refused(refusal) = plan.decision(plan.snapshot.target(*ix).unwrap())
            else {
                panic!("the target must wait")
            };
            assert_eq!(refusal.reason, expected, "{per_node} on the node");
        }
    }
}

#[test]
fn does_not_rewrite_a_file_to_free_less_than_5_percent() {
    let mut draft = Draft::new(5);
    let ids = node_with(&mut draft, &[("much", 20_000, 18_000), ("little", 20_000, 19_100)]);
    for (ix, active) in ids.iter().zip([18_000, 19_100]) {
        draft.set_facts(*ix, facts(20_000 * MIB, active * MIB, NOW));
    }
    let decision = |plan: &Plan| plan.decision(plan.snapshot.target(ids[1]).unwrap());
    let plan = of(&mut draft, TargetConstraints::default(), enforcing(), |_| {});
    assert_eq!(names(&plan, &starts(&plan)), ["much"]);
    assert!(matches!(decision(&plan), Decision::Refused(it) if it.reason == RefusalReason::Futile));
    let plan = of(&mut draft, ordered(ids[1], true), enforcing(), |_| {});
    assert_eq!(decision(&plan), Decision::Start, "a forced order starts it");
    let mut upgraded = facts(20_000 * MIB, 19_100 * MIB, NOW);
    upgraded.flags.needs_upgrade = true;
    draft.set_facts(ids[1], upgraded);
    draft.remove(ids[0]);
    let plan = of(&mut draft, TargetConstraints::default(), enforcing(), |_| {});
    assert_eq!(decision(&plan), Decision::Start, "an upgrade is worth it regardless");
}

#[test]
fn only_forced_order_overrides_missing_channel_and_back_off() {
    let (mut draft, ids) = three();
    let answer = |plan: &Plan, ix: TargetIx| plan.order_answer(plan.snapshot.target(ix).unwrap());
    let plan = of(&mut draft, ordered(ids[2], false), enforcing(), |_| {});
    assert_eq!(answer(&plan, ids[2]), OrderAnswer::NotTaken);
    assert_eq!(names(&plan, &starts(&plan)), ["best"]);
    let plan = of(&mut draft, ordered(ids[2], true), enforcing(), |_| {});
    assert_eq!(names(&plan, &starts(&plan)), ["lean"]);
    assert!(matches!(answer(&plan, ids[2]), OrderAnswer::Starts(_)));
    let channel = |plan: &Plan| {
        let target = plan.snapshot.target(ids[2]).unwrap();
        plan.start_channel(target).map(|channel| channel.name.to_string())
    };
    assert_eq!(channel(&plan).as_deref(), Some("ratio_dbs"), "the first channel whose names match");
    let elsewhere = crate::text::pattern::NameFilter::new(&["other"], &[]).unwrap();
    let plan = of(&mut draft, ordered(ids[2], true), enforcing(), |channels| {
        for channel in &mut channels.list {
            channel.databases = elsewhere.clone();
        }
    });
    assert_eq!(answer(&plan, ids[2]), OrderAnswer::NotTaken, "force does not override names");

    let (since, until) = (at(NOW - 5), at(NOW + 5));
    for (rest, yields) in [
        (Backoff::CoolDown { since, until }, false),
        (Backoff::Quarantined { since, failures: 5 }, false),
        // Most of the file is waste.
        (Backoff::Futile { since, file_bytes: MIB, caught_up: false }, true),
        (Backoff::Unsettled { since, until }, true),
    ] {
        let resting = |force| TargetConstraints {
            backoffs: [(ids[0], rest)].into(),
            ..ordered(ids[0], force)
        };
        let plan = of(&mut draft, resting(false), enforcing(), |_| {});
        let answered = answer(&plan, ids[0]);
        let refused = matches!(answered, OrderAnswer::Refused(_, None));
        assert_eq!(matches!(answered, OrderAnswer::Starts(_)), yields, "{rest:?}: {answered:?}");
        assert_ne!(refused, yields, "{rest:?}");
        let plan = of(&mut draft, resting(true), enforcing(), |_| {});
        assert!(matches!(answer(&plan, ids[0]), OrderAnswer::Starts(_)), "{rest:?}");
    }
}

#[test]
fn hypothetical_start_agrees_with_a_plan_that_has_the_order() {
    let (mut draft, ids) = three();
    let none = || TargetConstraints::default();
    let plan = of(&mut draft, none(), enforcing(), |_| {});
    let if_ordered =
        |plan: &Plan, ix: TargetIx| plan.start_if_ordered(plan.snapshot.target(ix).unwrap());
    for (ix, path) in [(ids[0], "good"), (ids[1], "best"), (ids[2], "lean")] {
        let start = if_ordered(&plan, ix).unwrap();
        assert_eq!(start.request.path, format!("/_node/couchdb@a/{path}.1/_compact"));
        assert_eq!(start.file_bytes, Some(100 * MIB));
        // It equals what a plan with that order starts.
        let ordered = of(&mut draft, ordered(ix, true), enforcing(), |_| {});
        let expected = PlannedStart { order: None, ..ordered.start(ix).unwrap().clone() };
        assert_eq!(start, expected);
    }
    let elsewhere = crate::text::pattern::NameFilter::new(&["other"], &[]).unwrap();
    let plan = of(&mut draft, none(), enforcing(), |channels| {
        for channel in &mut channels.list {
            channel.databases = elsewhere.clone();
        }
    });
    assert_eq!(if_ordered(&plan, ids[2]), None, "force does not override names");
}

#[test]
fn order_waits_only_for_transient_refusals() {
    let (mut draft, ids) = three();
    let answer = |plan: &Plan| plan.order_answer(plan.snapshot.target(ids[0]).unwrap());
    let waiting = |plan: &Plan| match answer(plan) {
        OrderAnswer::Waits(request, refusal) => {
            assert!(request.path.ends_with("good.1/_compact"), "{request}");
            Some(refusal.reason)
        }
        OrderAnswer::Starts(_) | OrderAnswer::Refused(..) | OrderAnswer::NotTaken => None,
    };
    let spent =
        TargetConstraints { recent_starts: vec![(at(NOW - 1), 9 * MIB)], ..ordered(ids[0], true) };
    let tight = Limits { bytes_per_hour: MIB, ..enforcing().limits };
    let plan = of(&mut draft, spent, Rules { limits: tight, ..enforcing() }, |_| {});
    assert_eq!(waiting(&plan), Some(RefusalReason::Budget));
    let stale = Rules { fresh_for: std::time::Duration::ZERO, ..enforcing() };
    draft.set_facts(ids[0], facts(100 * MIB, 40 * MIB, NOW - 50));
    let plan = of(&mut draft, ordered(ids[0], true), stale, |_| {});
    assert_eq!(waiting(&plan), Some(RefusalReason::Stale));
    // A limit of zero never passes.
    let none = Rules { limits: Limits { per_node: 0, ..enforcing().limits }, ..enforcing() };
    let plan = of(&mut draft, ordered(ids[0], true), none, |_| {});
    assert!(
        matches!(answer(&plan), OrderAnswer::Refused(it, None) if it.reason == RefusalReason::NodeLimit)
    );
    let failure = Some((at(1), JournalFailure::NotWritable("full".to_owned())));
    let unwritable = TargetConstraints { journal_failure: failure, ..ordered(ids[0], true) };
    let plan = of(&mut draft, unwritable, enforcing(), |_| {});
    assert!(
        matches!(answer(&plan), OrderAnswer::Refused(it, None) if it.reason == RefusalReason::Journal)
    );
}

#[test]
fn advise_mode_answers_with_the_request_it_would_send() {
    let (mut draft, ids) = three();
    let mode = Refusal::without_numbers(RefusalReason::Mode);
    let refusal_of = |plan: &Plan, ix: TargetIx| {
        let answer = plan.order_answer(plan.snapshot.target(ix).unwrap());
        let OrderAnswer::Refused(refusal, request) = answer else { panic!("{answer:?}") };
        (refusal, request.map(|it| it.to_string()))
    };
    let path = "POST /_node/couchdb@a/lean.1/_compact".to_owned();
    let advising = Rules { mode: Mode::Advise, ..enforcing() };
    let plan = of(&mut draft, ordered(ids[2], true), advising, |_| {});
    assert_eq!(refusal_of(&plan, ids[2]), (mode, Some(path.clone())));
    let plan = of(&mut draft, ordered(ids[2], true), enforcing(), |channels| {
        for channel in &mut channels.list {
            channel.mode = Mode::Advise;
        }
    });
    assert_eq!(refusal_of(&plan, ids[2]), (mode, Some(path)), "a channel in advise mode");
}

proptest! {
    #[test]
    fn force_overrides_only_thresholds_and_back_off(spec in any_spec(), which in 0..20_usize) {
        let mut world = spec.build();
        let all: Vec<TargetIx> = world.snapshot.targets().map(TargetRef::ix).collect();
        let ix = all[which % all.len()];
        let decision = |world: &mut World, force| {
            let mut history = (*world.conditions.constraints).clone();
            history.orders = [(ix, order(force))].into();
            world.conditions.constraints = Arc::new(history);
            let plan = world.plan(0);
            plan.decision(plan.snapshot.target(ix).unwrap())
        };
        let lifted = |decision: &Decision| match decision {
            Decision::NotTaken => true,
            Decision::Refused(refusal) => matches!(
                refusal.reason,
                RefusalReason::CoolDown
                    | RefusalReason::Quarantined
                    | RefusalReason::Futile
                    | RefusalReason::NoEvidence
            ),
            Decision::Start => false,
        };
        let (plain, forced) = (decision(&mut world, false), decision(&mut world, true));
        prop_assert!(!lifted(&forced), "{:?}", forced);
        if !lifted(&plain) {
            prop_assert_eq!(plain, forced);
        }
    }
}
