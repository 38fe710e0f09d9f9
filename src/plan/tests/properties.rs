//! Properties of every plan.

use super::{
    naive::{Chosen, Naive},
    world::{NOW, World, any_calm_spec, any_spec},
    *,
};
use crate::model::records::{Suspension, SuspensionScope};
use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
use std::collections::BTreeSet;

fn naive_of<'a>(world: &'a World, plan: &'a Plan) -> Naive<'a> {
    let mut naive = Naive { world, plan, chosen: Vec::new(), reservation: None };
    naive.choose();
    naive
}

/// The starts, with the nodes of their files.
pub(super) fn chosen(plan: &Plan) -> Vec<Chosen> {
    let files = |start: &PlannedStart| {
        let target = plan.snapshot.target(start.ix).unwrap();
        match target.kind() {
            TargetKind::Cleanup | TargetKind::Search => Vec::new(),
            TargetKind::Db | TargetKind::View if start.node != NodeIx::CLUSTER => vec![start.node],
            TargetKind::Db | TargetKind::View => {
                let shards = plan.snapshot.targets();
                let shards =
                    shards.filter(|it| it.kind() == TargetKind::Db && it.db() == target.db());
                let mut nodes: Vec<NodeIx> = shards.map(TargetRef::node_ix).collect();
                nodes.sort();
                nodes
            }
        }
    };
    let starts = plan.starts.iter();
    starts
        .map(|start| Chosen { ix: start.ix, channel: start.channel, files: files(start) })
        .collect()
}

/// Seconds that everything has waited; mostly values at which a view may have a reservation.
fn any_wait() -> impl Strategy<Value = u64> {
    let claimed = (0..8_u32, 0..37_u64).prop_map(|(doublings, into)| (300 << doublings) + into);
    let later = (0..8_u32, 0..120_u64).prop_map(|(doublings, into)| (960 << doublings) + into);
    prop_oneof![0..40_000_u64, claimed, later]
}

fn reason(plan: &Plan, ix: TargetIx) -> Option<RefusalReason> {
    match plan.decision(plan.snapshot.target(ix).unwrap()) {
        Decision::Refused(refusal) => Some(refusal.reason),
        Decision::Start => None,
        Decision::NotTaken => panic!("{ix:?} must be queued"),
    }
}

/// The properties below would show little if some reason never occurred.
#[test]
fn generated_worlds_cover_every_reason_and_kind_of_start() {
    let mut runner = TestRunner::deterministic();
    let (mut reasons, mut kinds) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..1_500 {
        let plan = any_spec().new_tree(&mut runner).unwrap().current().build().plan(0);
        let counted = plan.decision_counts.iter().flat_map(DecisionCounts::refusals_by_reason);
        reasons.extend(counted.map(|(reason, _)| reason));
        kinds.extend(plan.starts.iter().map(|start| {
            (plan.snapshot.target(start.ix).unwrap().kind(), start.node == NodeIx::CLUSTER)
        }));
    }
    let all = RefusalReason::each();
    // A target without evidence is not queued.
    let missing: Vec<_> = all
        .filter(|reason| *reason != RefusalReason::NoEvidence && !reasons.contains(reason))
        .collect();
    assert_eq!(missing, []);
    let expected_kinds = [
        (TargetKind::Db, false),
        (TargetKind::View, false),
        (TargetKind::View, true),
        (TargetKind::Cleanup, true),
    ];
    assert_eq!(kinds, BTreeSet::from(expected_kinds));
}

/// Like the test above, for reservations.
#[test]
fn generated_calm_worlds_cover_every_kind_of_reservation() {
    let mut runner = TestRunner::deterministic();
    let (mut limit_reasons, mut ready, mut starts, mut large) = (BTreeSet::new(), 0, 0, 0);
    for _ in 0..1_500 {
        let plan = any_calm_spec().new_tree(&mut runner).unwrap().current().build().plan(960);
        let Some(reservation) = &plan.slot_reservation else { continue };
        ready += usize::from(reservation.slots_free);
        large += usize::from(!reservation.all_copies);
        starts += usize::from(plan.start(reservation.ix).is_some());
        limit_reasons.extend(plan.snapshot.targets().filter_map(|it| match plan.decision(it) {
            Decision::Refused(refusal) => plan.reservation_behind(&refusal).map(|_| refusal.reason),
            Decision::Start | Decision::NotTaken => None,
        }));
    }
    let limits = [
        RefusalReason::ChannelLimit,
        RefusalReason::NodeLimit,
        RefusalReason::ClusterLimit,
        RefusalReason::Budget,
    ];
    assert_eq!(limit_reasons, BTreeSet::from(limits));
    assert!(ready > 9 && starts > 9, "{ready} have all slots free, {starts} start");
    assert!(large > 9, "{large} are for large files");
}

proptest! {
    #[test]
    fn plan_agrees_with_a_slow_second_implementation(
        spec in prop_oneof![any_spec(), any_calm_spec()],
        waited in any_wait(),
    ) {
        let world = spec.build();
        let plan = world.plan(waited);
        let naive = naive_of(&world, &plan);
        prop_assert_eq!(&chosen(&plan), &naive.chosen);
        for queue in plan.queues.iter() {
            for ix in naive.candidates(queue) {
                let starts = naive.chosen.iter().any(|chosen| chosen.ix == ix);
                let expected = naive.admitted(queue.channel_index, ix).err().filter(|_| !starts);
                let found = reason(&plan, ix);
                prop_assert_eq!(found, expected, "{}", plan.snapshot.target(ix).unwrap().id());
                prop_assert_eq!(found.is_none(), starts, "a candidate has no reason exactly if it starts");
            }
        }
    }

    #[test]
    fn every_candidate_has_one_decision_and_counts_once(
        spec in prop_oneof![any_spec(), any_calm_spec()],
        waited in any_wait(),
    ) {
        let world = spec.build();
        let plan = world.plan(waited);
        prop_assert_eq!(&chosen(&plan), &chosen(&world.plan(waited)), "planning again gives the same starts");
        prop_assert_eq!(plan.queues.len(), plan.decision_counts.len());
        let started: BTreeSet<TargetIx> = plan.starts.iter().map(|start| start.ix).collect();
        prop_assert_eq!(started.len(), plan.starts.len(), "nothing starts twice");
        let naive = Naive { world: &world, plan: &plan, chosen: Vec::new(), reservation: None };
        let mut starts = 0;
        for (queue, counts) in plan.queues.iter().zip(plan.decision_counts.iter()) {
            let mut expected = DecisionCounts::default();
            for ix in naive.candidates(queue) {
                match reason(&plan, ix) {
                    Some(reason) => expected.count_refusal(reason),
                    None => expected.starts += 1,
                }
            }
            prop_assert_eq!(*counts, expected);
            starts += counts.starts;
        }
        for (at, queue) in plan.queues.iter().enumerate() {
            let of_queue = plan.queued_targets().filter(|(node, _, channel, _)| {
                (*node, *channel) == (queue.node, queue.channel_index)
            });
            let may_start = of_queue.filter(|(.., reason)| !reason.is_some_and(RefusalReason::is_never));
            let frees = may_start.map(|(node, ix, ..)| {
                let target = plan.snapshot.target(ix).unwrap();
                let facts = target.facts();
                let left = target.correction().predicted_bytes(target.kind(), &facts);
                let files = if node == NodeIx::CLUSTER { target.file_count() } else { 1 };
                let file = facts.file_bytes.get().zip(left).map(|(file, left)| file.saturating_sub(left));
                file.unwrap_or(0) * u64::from(files)
            });
            prop_assert_eq!(plan.drainable_bytes(at), frees.sum::<u64>());
        }
        prop_assert_eq!(starts, started.len() as u64);
    }

    /// While nothing else happens, time alone changes a target's reason and never brings back an earlier one.
    /// Two kinds of reasons do come and go: the target's turn, and the space that others leave. Another
    /// target whose pause ends takes its slot until that target's own facts are too old.
    #[test]
    fn past_refusal_reason_does_not_return_while_nothing_happens(spec in any_spec()) {
        let world = spec.build();
        let mut queues = Queues::new(Arc::clone(&world.channels));
        queues.apply_snapshot(&world.snapshot, at(NOW));
        let mut shown: BTreeMap<TargetIx, Vec<Option<RefusalReason>>> = BTreeMap::new();
        for seconds in (0..90).chain((90..600).step_by(30)) {
            let now = at(NOW + seconds);
            let plan = queues.make_plan(&world.snapshot, &world.conditions, &world.rules, now);
            // A reservation for a large job comes and goes, and lets small jobs start in between.
            if plan.slot_reservation.is_some() {
                continue;
            }
            for (_, ix, _, reason) in plan.queued_targets() {
                let is_own = |it: &RefusalReason| !it.is_of_turn() && *it != RefusalReason::Headroom;
                let reason = reason.filter(is_own);
                let shown = shown.entry(ix).or_default();
                if shown.last() != Some(&reason) {
                    prop_assert!(!shown.contains(&reason), "{ix:?} after {seconds} s: {shown:?}, then {reason:?}");
                    shown.push(reason);
                }
            }
        }
    }

    /// The largest shard reported to fit is the largest whose peak does not exceed a volume's
    /// remaining space.
    #[test]
    fn shards_fit_exactly_up_to_the_reported_largest_one(spec in any_spec()) {
        let world = spec.build();
        let plan = world.plan(0);
        let naive = Naive { world: &world, plan: &plan, chosen: vec![], reservation: None };
        for volume in &world.conditions.disks.volumes {
            let largest = plan.largest_shard_that_fits(volume);
            let Some(left) = naive.free_bytes(volume, false) else {
                prop_assert_eq!(largest, None);
                continue;
            };
            for target in plan.snapshot.targets().filter(|it| it.kind() == TargetKind::Db) {
                let fits = i128::from(naive.peak(target.ix())) <= left.max(0);
                let active = target.active_bytes();
                prop_assert_eq!(fits, active <= largest, "{:?}, {:?}, {}", active, largest, left);
            }
        }
    }

    #[test]
    fn starts_exceed_no_limit_and_leave_reserved_space_free(spec in any_spec()) {
        let world = spec.build();
        let plan = world.plan(0);
        let limits = world.rules.limits;
        let naive = Naive { world: &world, plan: &plan, chosen: chosen(&plan), reservation: None };
        let files: Vec<NodeIx> =
            naive.chosen.iter().flat_map(|chosen| chosen.files.iter().copied()).collect();
        let jobs = &world.conditions.jobs;
        if !files.is_empty() {
            prop_assert!(jobs.compactions().count() + files.len() <= limits.cluster);
        }
        for node in files.iter().collect::<BTreeSet<_>>() {
            let here = files.iter().filter(|it| *it == node).count();
            let running = jobs.compactions().filter(|job| job.key.node == *node).count();
            prop_assert!(running + here <= limits.per_node);
            let name = &world.snapshot.node(*node).unwrap().name;
            for volume in world.conditions.disks.of_node(name) {
                prop_assert!(naive.free_bytes(volume, true).is_none_or(|left| left >= 0));
                prop_assert_eq!(volume.falling_since, None);
            }
        }
        let mut shards = BTreeSet::new();
        for start in plan.starts.iter().filter(|start| start.design.is_none()) {
            let target = plan.snapshot.target(start.ix).unwrap();
            if target.kind() == TargetKind::Db && limits.one_copy_of_a_range {
                prop_assert!(shards.insert((target.db(), target.range())), "only one copy of a range starts");
            }
        }
    }

    #[test]
    fn nothing_starts_behind_a_closed_gate(spec in any_spec(), which in 0..13_usize) {
        let mut world = spec.build();
        let before = world.plan(0);
        let name = |at: usize| world.channels.list[at].name.to_string();
        let scope = match which {
            0 => SuspensionScope::All,
            at @ 1..8 => SuspensionScope::Channel(name(at - 1)),
            8 => SuspensionScope::Node("_cluster".to_owned()),
            at => SuspensionScope::Node(format!("n{}", at - 9)),
        };
        let mut history = (*world.conditions.constraints).clone();
        let suspension = Suspension { since: at(5), by: None, why: None };
        history.suspensions.0.insert(scope.clone(), suspension);
        world.conditions.constraints = Arc::new(history);
        let plan = world.plan(0);
        let covered = |chosen: &Chosen| match &scope {
            SuspensionScope::All => true,
            SuspensionScope::Channel(name) => *plan.channels.list[chosen.channel].name == **name,
            SuspensionScope::Node(name) if name == "_cluster" => {
                plan.channels.list[chosen.channel].kind != TargetKind::Db
            }
            SuspensionScope::Node(name) => chosen.files.iter().any(|node| {
                *plan.snapshot.node(*node).unwrap().name == **name
            }),
        };
        let starts = chosen(&plan);
        prop_assert!(!starts.iter().any(covered));
        // If nothing behind the gate started before, closing it prevents no start. It may allow
        // other starts: slots that were reserved for a target behind the gate become free.
        if !chosen(&before).iter().any(covered) && which < 9 {
            let before = chosen(&before);
            prop_assert!(before.iter().all(|start| starts.contains(start)), "{before:?} {starts:?}");
        }
    }
}

proptest! {
    /// Without hypothetical facts, a plan's queues lead to the plan's own starts.
    #[test]
    fn unchanged_queues_give_the_starts_of_the_plan(spec in any_spec()) {
        let plan = spec.build().plan(0);
        let Conditions { constraints, .. } = &plan.conditions;
        let orders = constraints.orders.keys();
        let leading = orders.chain(constraints.partly_compacted_views.keys()).copied();
        let queues = plan.queues_if(&mut [], leading);
        let (starts, change) = queues.starts(&plan.conditions, &plan.rules, plan.planned_at);
        prop_assert_eq!(starts.as_slice(), &*plan.starts);
        prop_assert_eq!(change, plan.next_change);
    }
}
