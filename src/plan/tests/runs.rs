//! Tests which members of a run go first, and when it ends.

use super::{
    orders::{enforcing, of, order, three},
    world::any_spec,
    *,
};
use crate::{
    jobs::{BusyPeriod, JobKey, JobKind, TargetConstraints},
    model::{
        channel::Mode,
        records::{
            Backoff, LeftOut, Run, RunEnding, RunScope, Runs, Suspension, SuspensionScope,
            Suspensions,
        },
    },
};
use std::time::Duration;

const NOW: u64 = 2_000;

fn run(scope: RunScope) -> Run {
    Run::beginning(scope, false, "ann".into(), at(NOW - 9))
}

fn paused(run: Run) -> Run {
    Run { paused: Some(Suspension { since: at(NOW - 3), by: None, why: None }), ..run }
}

fn forced(run: Run) -> Run {
    Run { force: true, ..run }
}

fn with(run: Run) -> TargetConstraints {
    TargetConstraints { runs: Runs([(7, run)].into()), ..TargetConstraints::default() }
}

fn database(name: &str) -> RunScope {
    RunScope::Database(name.into())
}

/// The names of targets in the order in which they start, with room for all.
fn started(draft: &mut Draft, history: TargetConstraints) -> Vec<String> {
    let plan = of(draft, history, enforcing(), |channels| {
        channels.list.iter_mut().for_each(|channel| channel.concurrency = 9);
    });
    names(&plan, &starts(&plan))
}

#[test]
fn members_of_active_runs_start_first_in_order_of_priority() {
    let all = || run(RunScope::All);
    for (run, expected) in [
        (run(database("good")), &["good", "best"][..]),
        (paused(run(database("good"))), &["best", "good"]),
        (run(database("lean")), &["best", "good"]),
        (forced(run(database("lean"))), &["lean", "best"]),
        (run(RunScope::Node("couchdb@z".into())), &["best", "good"]),
        (all(), &["best", "good"]),
    ] {
        let (mut draft, _) = three();
        let shown = format!("{run:?}");
        assert_eq!(started(&mut draft, with(run)), expected, "{shown}");
    }
    // A single order precedes the members of a run, and the number of the run is part of its order.
    let (mut draft, ids) = three();
    let orders = [(ids[0], order(false))].into();
    let plan = of(&mut draft, TargetConstraints { orders, ..with(all()) }, enforcing(), |_| {});
    assert_eq!(names(&plan, &starts(&plan)), ["good"]);
    assert_eq!(plan.starts[0].order.as_ref().and_then(|order| order.run), None);
    let plan = of(&mut draft, with(all()), enforcing(), |_| {});
    let order = plan.starts[0].order.clone().unwrap();
    assert_eq!((order.run, &*order.by), (Some(7), "ann (run 7)"));
}

#[test]
fn run_member_beyond_queue_capacity_starts_if_a_better_one_cannot() {
    let cooling = Backoff::CoolDown { since: at(NOW - 5), until: at(NOW + 99) };
    for (run, expected) in [(None, &[][..]), (Some(run(RunScope::All)), &["good"])] {
        let (mut draft, ids) = three();
        let history = run.map(with).unwrap_or_default();
        let history = TargetConstraints { backoffs: [(ids[1], cooling)].into(), ..history };
        let plan = of(&mut draft, history, enforcing(), |channels| {
            channels.list.iter_mut().for_each(|channel| channel.capacity = 1);
        });
        assert_eq!(names(&plan, &starts(&plan)), expected);
    }
}

proptest! {
    /// Progress looks up in the queues what is decided about most members.
    #[test]
    fn run_progress_counts_the_decision_about_each_member(spec in any_spec(), force in any::<bool>()) {
        let plan = spec.build().plan(0);
        let run = Run { force, ..run(RunScope::All) };
        let progress = plan.run_progress(SUPPOSED_RUN, &run, |_, _| None);
        let mut counts = [0; 3];
        let [mut waiting, mut left_out] = [BTreeMap::new(), BTreeMap::new()];
        for (_, member) in plan.run_members(SUPPOSED_RUN, &run) {
            match member {
                Member::Runs => counts[0] += 1,
                Member::Starts => counts[1] += 1,
                Member::Unmeasured => counts[2] += 1,
                Member::Waits(reason) => *waiting.entry(reason).or_insert(0) += 1,
                Member::LeftOut(reason) => *left_out.entry(reason).or_insert(0) += 1,
            }
        }
        let of = |groups: &BTreeMap<RefusalReason, LeftOut>| -> BTreeMap<_, _> {
            groups.iter().map(|(reason, group)| (*reason, group.members)).collect()
        };
        prop_assert_eq!(counts, [progress.running, progress.starting, progress.unmeasured]);
        prop_assert_eq!([of(&progress.waiting), of(&progress.left_out)], [waiting, left_out]);
    }
}

#[test]
fn target_compacted_since_the_run_began_is_no_longer_a_member() {
    let (mut draft, ids) = three();
    for (done, is_member) in [(6, true), (7, false), (8, false)] {
        let history = TargetConstraints {
            done_in_run: [(ids[0], done)].into(),
            ..with(run(database("good")))
        };
        let plan = of(&mut draft, history, enforcing(), |_| {});
        let (number, run) = plan.conditions.constraints.runs.open().next().unwrap();
        assert_eq!(plan.run_progress(number, run, |_, _| None).remaining(), u64::from(is_member));
        let first = if is_member { "good" } else { "best" };
        assert_eq!(names(&plan, &starts(&plan)), [first]);
    }
}

#[test]
fn run_waits_while_a_node_rests_but_a_single_order_does_not() {
    let (mut draft, ids) = three();
    let node = NodeIx::from_usize(1).unwrap();
    let first_job = JobKey { node, shard: "s".into(), kind: JobKind::CompactDb };
    let worked = BusyPeriod {
        first_ended_at: Some(at(NOW - 5)),
        ended_at: Some(at(NOW - 5)),
        ..BusyPeriod::beginning(first_job, at(NOW - 105))
    };
    let rests =
        |history| TargetConstraints { busy_periods: [(node, worked.clone())].into(), ..history };
    assert_eq!(started(&mut draft, rests(with(run(database("good"))))), [""; 0]);
    let orders = [(ids[0], order(false))].into();
    let ordered = rests(TargetConstraints { orders, ..TargetConstraints::default() });
    assert_eq!(started(&mut draft, ordered), ["good"]);
}

/// Counts members by what the run does with them: start, wait, leave out.
fn counted(plan: &Plan) -> (u64, u64, u64) {
    let (number, run) = plan.conditions.constraints.runs.open().next().unwrap();
    let progress = plan.run_progress(number, run, |_, _| None);
    let of = |groups: &BTreeMap<RefusalReason, LeftOut>| {
        groups.values().map(|group| group.members).sum()
    };
    (progress.starting, of(&progress.waiting), of(&progress.left_out))
}

#[test]
fn run_ends_when_every_member_is_compacted_or_left_out() {
    let day = 86_400;
    let quarantined = Backoff::Quarantined { since: at(NOW - 5), failures: 5 };
    let futile = Backoff::Futile { since: at(NOW - 5), file_bytes: 100 * MIB, caught_up: false };
    let cooling = Backoff::CoolDown { since: at(NOW - 5), until: at(NOW + day * 30) };
    let blind = |rules: Rules| Rules {
        headroom: Headroom { blind_limit: MIB, ..rules.headroom.clone() },
        ..rules
    };
    let full = |rules: Rules| {
        let limits = crate::model::settings::limits::Limits { per_node: 0, ..rules.limits };
        Rules { limits, ..rules }
    };
    let same = |rules: Rules| rules;
    type Change = fn(Rules) -> Rules;
    let good = || run(database("good"));
    // Columns: what holds `good` back; the run; seconds until the plan is looked at; the counts;
    // how the run ends.
    for (backoff, change, run, later, counts, how) in [
        (None, same as Change, good(), 0, (1, 0, 0), None),
        (None, same, good(), 9 * day, (1, 0, 0), Some(RunEnding::Stalled)),
        (None, same, paused(good()), 9 * day, (0, 1, 0), None),
        (Some(quarantined), same, good(), 0, (0, 0, 1), Some(RunEnding::Done)),
        (Some(futile), same, good(), 0, (0, 0, 1), Some(RunEnding::Done)),
        (Some(futile), same, forced(good()), 0, (1, 0, 0), None),
        (Some(cooling), same, good(), 0, (0, 1, 0), None),
        (Some(cooling), same, good(), 9 * day, (0, 1, 0), Some(RunEnding::Stalled)),
        (None, blind, good(), 0, (0, 0, 1), Some(RunEnding::Done)),
        (None, full, good(), 0, (0, 0, 1), Some(RunEnding::Done)),
        (None, same, run(database("lean")), 0, (0, 0, 0), Some(RunEnding::Done)),
    ] {
        let (mut draft, ids) = three();
        let name = format!("{backoff:?} {run:?} {later}");
        let backoffs = backoff.map(|rest| (ids[0], rest)).into_iter().collect();
        let history = TargetConstraints { backoffs, ..with(run) };
        let plan = of(&mut draft, history, change(enforcing()), |_| {});
        assert_eq!(counted(&plan), counts, "{name}");
        let (number, run) = plan.conditions.constraints.runs.open().next().unwrap();
        let end = plan.run_end(number, run, at(NOW + later));
        assert_eq!(end.as_ref().map(|end| end.how), how, "{name}");
        if let Some(end) = end {
            let left: u64 = end.left_out.iter().map(|left| left.members).sum();
            assert_eq!(left, counts.0 + counts.1 + counts.2, "{name}");
        }
    }
}

#[test]
fn run_leaves_out_members_of_channels_that_only_advise() {
    let (mut draft, _) = three();
    let plan = of(&mut draft, with(run(RunScope::All)), enforcing(), |channels| {
        channels.list.iter_mut().for_each(|channel| channel.mode = Mode::Advise);
    });
    assert_eq!(counted(&plan), (0, 0, 2));
}

/// Also before the run exists, so that no plan has its orders: the answer to the order says it.
#[test]
fn forced_run_waits_for_a_closed_gate_before_its_turn() {
    for (suspended, reason) in
        [(true, RefusalReason::Suspended), (false, RefusalReason::ChannelLimit)]
    {
        let (mut draft, _) = three();
        let mut history = TargetConstraints::default();
        if suspended {
            let all = Suspension { since: at(NOW - 3), by: None, why: None };
            history.suspensions = Suspensions([(SuspensionScope::All, all)].into());
        }
        let plan = of(&mut draft, history, enforcing(), |_| {});
        let run = forced(run(database("lean")));
        let members: Vec<Member> = plan.run_members(SUPPOSED_RUN, &run).map(|(_, it)| it).collect();
        assert_eq!(members, [Member::Waits(reason)]);
    }
}

#[test]
fn run_waits_for_members_of_unknown_size() {
    let (mut draft, _) = three();
    let node = NodeIx::from_usize(1).unwrap();
    let db = draft.get_or_add_db(DbName { db: "dark", suffix: ".1" });
    draft.get_or_add_shard(node, db, None);
    let plan = of(&mut draft, with(run(database("dark"))), enforcing(), |_| {});
    assert_eq!(counted(&plan), (0, 1, 0));
    let (number, run) = plan.conditions.constraints.runs.open().next().unwrap();
    assert_eq!(plan.run_end(number, run, at(NOW)), None);
}

#[test]
fn remaining_time_of_a_run_follows_from_rate_and_duty() {
    let (mut draft, _) = three();
    for (rate, expected) in [(None, None), (Some(MIB as f64), Some(90.0))] {
        let history =
            TargetConstraints { rewrite_bytes_per_second: rate, ..with(run(RunScope::All)) };
        let mut rules = enforcing();
        rules.limits.duty_percent = 50.0;
        rules.limits.wait = Duration::ZERO;
        let plan = of(&mut draft, history, rules, |_| {});
        let (number, run) = plan.conditions.constraints.runs.open().next().unwrap();
        let left = plan.run_progress(number, run, |_, _| None).seconds_left(&plan);
        // 45 MiB are left to write.
        assert!(
            left.zip(expected).is_none_or(|(left, wanted)| (left - wanted).abs() < 10.0),
            "{left:?}"
        );
        assert_eq!(left.is_some(), expected.is_some());
    }
}
