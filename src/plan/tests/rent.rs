//! Tests channels by rent: time makes targets due, scarcity changes the horizon, and no target
//! starves.

use super::*;
use crate::{
    jobs::{BusyPeriod, Job, JobKey, JobKind, JobPhase, Jobs},
    model::{
        channel::{Channel, ChannelPreset},
        records::JobOwner,
        settings::{limits::Limits, work::EnforceViews},
        target::TargetKind,
    },
    plan::{
        disk::{Disks, Volume, VolumeSpace},
        pressure::{NodePressure, Pressures},
    },
    table::{ShardMapEntry, Snapshot, TargetRef, View},
    text::pattern::NameFilter,
};
use couchdb_names::Signature;
use std::time::Duration;

const HOUR: u64 = 3_600;
const READ: u64 = 1_000_000;

fn by_rent() -> Channels {
    Channels { list: ChannelPreset::Rent.channels(), ..Channels::default() }
}

/// A planner with its tables, queues and conditions.
struct Planner {
    draft: Draft,
    queues: Queues,
    conditions: Conditions,
    rules: Arc<Rules>,
}

impl Planner {
    fn new(sizes: &[(&str, u64, u64)]) -> (Self, Vec<TargetIx>) {
        Self::with_channels(by_rent(), sizes)
    }

    fn with_channels(channels: Channels, sizes: &[(&str, u64, u64)]) -> (Self, Vec<TargetIx>) {
        let mut draft = Draft::new(5);
        let node = member(&mut draft, "couchdb@a");
        let ids = sizes.iter().map(|(name, file, active)| {
            let db = draft.get_or_add_db(DbName { db: name, suffix: ".1" });
            let ix = draft.get_or_add_shard(node, db, None);
            draft.set_facts(ix, database(file * MIB, active * MIB, READ));
            ix
        });
        let ids = ids.collect();
        let (queues, conditions) = (Queues::new(Arc::new(channels)), Conditions::default());
        let fresh_for = Duration::from_secs(u64::from(u32::MAX));
        let rules = Arc::new(Rules { fresh_for, ..(*rules()).clone() });
        (Self { draft, queues, conditions, rules }, ids)
    }

    fn plan_at(&mut self, now: u64) -> Plan {
        let (snapshot, now) = (self.draft.publish(at(now)), at(now));
        self.queues.apply_snapshot(&snapshot, now);
        self.queues.update_prices(&snapshot, &self.conditions, &self.rules, now);
        self.queues.make_plan(&snapshot, &self.conditions, &self.rules, now)
    }
}

/// A channel of a preset that takes only databases whose names match a pattern.
fn only(preset: ChannelPreset, name: &str, databases: &str) -> Channel {
    let mut channels = preset.channels().into_iter();
    let channel = channels.find(|channel| &*channel.name == name).unwrap();
    Channel { databases: NameFilter::new(&[databases], &[]).unwrap(), ..channel }
}

/// A job that this process started.
fn job(start: &PlannedStart, target: TargetRef<'_>, node: NodeIx, now: u64) -> Job {
    let kind = if target.kind() == TargetKind::View {
        JobKind::CompactView("_design/app".into())
    } else {
        JobKind::CompactDb
    };
    Job {
        key: JobKey { node, shard: target.id().to_string().into(), kind },
        target: Some(start.ix),
        target_kind: target.kind(),
        owner: JobOwner::Recliner,
        channel: None,
        started_at: at(now),
        phase: JobPhase::Running,
        progress: None,
        last_progress_at: at(now),
        reserved_bytes: 0,
        file_bytes: None,
        predicted_bytes: None,
    }
}

/// A database without rewrites: a compaction leaves its active bytes and four header blocks.
fn database(file: u64, active: u64, measured: u64) -> Facts {
    Facts {
        docs: OptionalU64::new(1_000),
        deleted_docs: OptionalU64::new(0),
        update_seq: OptionalU64::new(1_000),
        compacted_seq: OptionalU64::new(0),
        ..facts(file, active, measured)
    }
}

fn priority(plan: &Plan, ix: TargetIx) -> Option<f64> {
    Some(plan.placement(ix)?.1.priority)
}

#[test]
fn waste_becomes_due_only_with_time() {
    let (mut planner, ids) = Planner::new(&[("half", 2_000, 1_000), ("tenth", 1_100, 1_000)]);
    let plan = planner.plan_at(READ);
    assert_eq!((starts(&plan), priority(&plan, ids[0])), (vec![], None));
    let half = plan.snapshot.target(ids[0]).unwrap();
    let misses: Vec<_> = plan.misses(half).map(|(_, miss)| miss.reason).collect();
    assert_eq!(misses[0], MissReason::BelowMinPriority);
    let plan = planner.plan_at(READ + 23 * HOUR);
    assert_eq!(priority(&plan, ids[0]), None);
    let plan = planner.plan_at(READ + 25 * HOUR);
    assert_eq!(starts(&plan), [ids[0]], "half waste is due after one horizon");
    assert!((priority(&plan, ids[0]).unwrap() - 25.0 / 24.0).abs() < 0.001);
    let plan = planner.plan_at(READ + 241 * HOUR);
    assert!((priority(&plan, ids[1]).unwrap() - 241.0 / 240.0).abs() < 0.001);
    assert_eq!(
        waits(plan.queue(NodeIx::from_usize(1).unwrap(), 0).unwrap()),
        [ids[0], ids[1]],
        "the most overdue target comes first"
    );
}

#[test]
fn file_that_was_never_read_has_unknown_rent() {
    let (mut planner, _) = Planner::new(&[]);
    let node = planner.draft.find_node("couchdb@a").unwrap();
    let db = planner.draft.get_or_add_db(DbName { db: "new", suffix: ".1" });
    let ix = planner.draft.get_or_add_shard(node, db, None);
    planner.draft.set_facts(ix, Facts { measured_at: None, ..database(2 << 30, 1 << 30, 0) });
    let plan = planner.plan_at(READ + 900 * HOUR);
    let target = plan.snapshot.target(ix).unwrap();
    let misses: Vec<_> = plan.misses(target).map(|(_, miss)| miss.reason).collect();
    assert_eq!(misses[0], MissReason::UnknownRent);
}

#[test]
fn file_without_live_bytes_is_due_within_a_minute() {
    let (mut planner, ids) = Planner::new(&[("empty", 2_000, 0)]);
    assert_eq!(starts(&planner.plan_at(READ)), []);
    assert_eq!(starts(&planner.plan_at(READ + 60)), ids, "writes 16 KiB to free 2 GiB");
}

#[test]
fn full_disk_shortens_horizon_and_busy_node_lengthens_it() {
    let volume = |available: u64, size: Option<u64>| Volume {
        name: "/data".into(),
        nodes: vec!["couchdb@a".into()],
        space: Some(VolumeSpace { available, size, held: None, measured_at: at(READ) }),
        is_stated: false,
        falling_since: None,
        problem: None,
    };
    let node = NodeIx::from_usize(1).unwrap();
    for (case, volume, load, spent, factor) in [
        ("nothing known", None, None, 0, 1.0),
        ("comfortable", Some(volume(40, Some(100))), Some(0.0), 0, 1.0),
        ("half way down", Some(volume(25, Some(100))), None, 0, 0.1_f64.sqrt()),
        ("no more than is kept free", Some(volume(10, Some(100))), None, 0, 0.1),
        ("full", Some(volume(0, Some(100))), None, 0, 0.1),
        ("of unknown size", Some(volume(1, None)), None, 0, 1.0),
        ("half way to its high mark", None, Some(0.5), 0, 2.0),
        ("at its high mark", None, Some(1.0), 0, 4.0),
        ("half of the budget", None, None, 250, 1.0),
        ("three quarters of the budget", None, None, 375, 2.0),
        ("more than the budget", None, None, 900, 4.0),
        ("both", Some(volume(10, Some(100))), Some(1.0), 0, 0.4),
    ] {
        let (mut planner, ids) = Planner::new(&[("half", 2_000, 1_000)]);
        planner.conditions.disks = Arc::new(Disks { volumes: volume.into_iter().collect() });
        let pressure = load.map(|load| (node, NodePressure { load, ..NodePressure::default() }));
        planner.conditions.pressures =
            Arc::new(Pressures { nodes: pressure.into_iter().collect(), ..Pressures::default() });
        let now = READ + 24 * HOUR;
        let constraints = Arc::make_mut(&mut planner.conditions.constraints);
        constraints.recent_starts =
            vec![(at(now - 60), spent << 30), (at(now - 2 * HOUR), 1 << 50)];
        let plan = planner.plan_at(now);
        let ours = plan.horizon_factors.of_node(node).product();
        assert!((ours - factor).abs() < 1e-9, "{case}: {ours}, not {factor}");
        let cluster = plan.horizon_factors.of_node(NodeIx::CLUSTER).product();
        assert!(
            (cluster - factor).abs() < 1e-9,
            "{case}: views follow the fullest and busiest node"
        );
        let due = priority(&plan, ids[0]);
        assert_eq!(due.is_some(), factor < 1.0, "{case}: {due:?}");
    }
}

#[test]
fn changed_horizon_factor_takes_effect_at_once() {
    let (mut planner, ids) = Planner::new(&[("half", 2_000, 1_000)]);
    let now = READ + 12 * HOUR;
    assert_eq!(starts(&planner.plan_at(now)), []);
    let space = VolumeSpace {
        available: 20 << 30,
        size: Some(100 << 30),
        held: None,
        measured_at: at(now),
    };
    let volume = Volume {
        name: "/data".into(),
        nodes: vec!["couchdb@a".into()],
        space: Some(space),
        is_stated: false,
        falling_since: None,
        problem: None,
    };
    planner.conditions.disks = Arc::new(Disks { volumes: vec![volume] });
    assert_eq!(starts(&planner.plan_at(now)), ids);
}

#[test]
fn compacted_target_is_no_longer_due() {
    let (mut planner, ids) = Planner::new(&[("half", 2_000, 1_000)]);
    let now = READ + 48 * HOUR;
    assert_eq!(starts(&planner.plan_at(now)), ids);
    let compacted = Facts {
        compacted_seq: OptionalU64::new(1_000),
        ..database(1_000 * MIB + 16_384, 1_000 * MIB, now + 60)
    };
    planner.draft.set_facts(ids[0], compacted);
    assert_eq!(priority(&planner.plan_at(now + 60), ids[0]), None);
    assert_eq!(priority(&planner.plan_at(now + 9_000 * HOUR), ids[0]), None, "no waste is left");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every target with waste starts, even with one compaction at a time in the whole cluster and
    /// more work than it can do.
    #[test]
    fn no_target_starves(
        dbs in proptest::collection::vec((1_u64..4_000, 2_u64..4_000, 0_u64..50), 2..12),
        minutes in 30_u64..600,
    ) {
        // Waste of less than a twentieth of a file is not worth a compaction.
        let worth = |(waste, active, busy): (u64, u64, u64)| (waste.max(active / 10 + 1), active, busy);
        let dbs: Vec<_> = dbs.into_iter().map(worth).collect();
        let names: Vec<String> = (0..dbs.len()).map(|at| format!("db{at}")).collect();
        let sizes: Vec<(&str, u64, u64)> = names
            .iter()
            .zip(&dbs)
            .map(|(name, (waste, active, _))| (name.as_str(), waste + active, *active))
            .collect();
        let (mut planner, ids) = Planner::new(&sizes);
        let limits = Limits { cluster: 1, per_node: 1, ..Limits::default() };
        planner.rules = Arc::new(Rules { limits, ..(*planner.rules).clone() });
        let mut times = vec![0_u32; ids.len()];
        let mut files: Vec<u64> = sizes.iter().map(|(_, file, _)| *file).collect();
        let mut now = READ;
        // The slowest target is due after as many days as its size divided by its waste.
        let bound = dbs.iter().map(|(waste, active, _)| 2 + active.div_ceil(*waste)).max().unwrap();
        let rounds = (bound * 24 * 60 / minutes + 4) * u64::try_from(ids.len()).unwrap();
        for _ in 0..rounds {
            now += minutes * 60;
            for (at, ix) in ids.iter().enumerate() {
                // A busy database creates waste of up to a twentieth of its data in each round.
                files[at] += dbs[at].2 * dbs[at].1 / 1_000;
                planner.draft.set_facts(*ix, database(files[at] * MIB, dbs[at].1 * MIB, now));
            }
            let plan = planner.plan_at(now);
            if let Some(start) = plan.starts.first() {
                let at = ids.iter().position(|ix| *ix == start.ix).unwrap();
                times[at] += 1;
                files[at] = dbs[at].1;
                planner.draft.set_facts(start.ix, database(files[at] * MIB, dbs[at].1 * MIB, now));
            }
            if times.iter().all(|times| *times > 0) {
                return Ok(());
            }
        }
        prop_assert!(false, "after {rounds} rounds of {minutes} minutes: {times:?} of {dbs:?}");
    }

    /// Targets of a channel by rent start in bounded time although a threshold channel always has
    /// targets that have waited for days, and the other way round.
    #[test]
    fn rent_and_threshold_channels_do_not_starve_each_other(
        backlog in 6_usize..14,
        by_rent in 1_usize..6,
        hours in 2_u64..10,
    ) {
        let list = vec![
            only(ChannelPreset::Smoosh, "ratio_dbs", "t*"),
            only(ChannelPreset::Rent, "rent_dbs", "r*"),
        ];
        let channels = Channels { list, ..Channels::default() };
        let names: Vec<String> = (0..backlog)
            .map(|at| format!("t{at}"))
            .chain((0..by_rent).map(|at| format!("r{at}")))
            .collect();
        let size = |at: usize| if at < backlog { (40_000, 4_000) } else { (2_000, 1_000) };
        let sizes: Vec<(&str, u64, u64)> =
            names.iter().enumerate().map(|(at, name)| (name.as_str(), size(at).0, size(at).1)).collect();
        let (mut planner, ids) = Planner::with_channels(channels, &sizes);
        let limits = Limits { cluster: 1, per_node: 1, ..Limits::default() };
        planner.rules = Arc::new(Rules { limits, ..(*planner.rules).clone() });
        let mut times = vec![0_u32; ids.len()];
        // One day until they are due, then as long as the others have waited, plus a day because
        // the others free more.
        let count = u64::try_from(ids.len()).unwrap();
        let rounds = (48 + 6 * 8) / hours + 3 * count;
        let mut now = READ;
        for _ in 0..rounds {
            now += hours * HOUR;
            if let Some(start) = planner.plan_at(now).starts.first() {
                let at = ids.iter().position(|ix| *ix == start.ix).unwrap();
                times[at] += 1;
                let (file, active) = size(at);
                let ix = start.ix;
                planner.draft.set_facts(ix, database(active * MIB, active * MIB, now));
                planner.plan_at(now + 1);
                // A minute later the file is as large as before.
                planner.draft.set_facts(ix, database(file * MIB, active * MIB, now + 60));
                planner.plan_at(now + 60);
            }
        }
        prop_assert!(times.iter().all(|times| *times > 0), "{times:?} in {rounds} rounds");
    }

    /// Like `no_target_starves`, on several nodes, with views, two channels by rent for databases,
    /// rest between jobs, and jobs that last several rounds.
    #[test]
    fn no_target_starves_with_several_nodes_views_and_rest_periods(
        dbs in proptest::collection::vec((500_u64..4_000, 200_u64..4_000), 2..6),
        nodes in 1_usize..4,
        lasts in 1_u64..4,
        minutes in 30_u64..240,
    ) {
        let small = ChannelPreset::Rent.channels().remove(0);
        let large = Channel {
            name: "rent_large".into(),
            min_size: 2_000 * MIB,
            horizon: Duration::from_secs(6 * HOUR),
            ..small.clone()
        };
        let list = std::iter::once(large).chain(ChannelPreset::Rent.channels()).collect();
        let channels = Channels { list, ..Channels::default() };
        let (mut planner, _) = Planner::with_channels(channels, &[]);
        let limits = Limits { cluster: 2, per_node: 1, duty_percent: 50.0, ..Limits::default() };
        let views = EnforceViews::All;
        planner.rules = Arc::new(Rules { limits, views, ..(*planner.rules).clone() });
        let draft = &mut planner.draft;
        let nodes: Vec<NodeIx> = (0..nodes).map(|at| member(draft, &format!("couchdb@{at}"))).collect();
        let mut targets = Vec::new();
        for (at, (waste, active)) in dbs.iter().enumerate() {
            let db = draft.get_or_add_db(DbName { db: &format!("db{at}"), suffix: ".1" });
            let node = nodes[at % nodes.len()];
            targets.push((draft.get_or_add_shard(node, db, None), node, *waste, *active));
            let designs = [Arc::from("_design/app")].into();
            let view = View { signature: Signature([7; 16]), designs, ..View::default() };
            let view = draft.add_view(db, view);
            draft.set_shard_map(db, ShardMapEntry { copies: 1, ranges: 1 }, &[view]);
            targets.push((view, node, *waste, *active));
        }
        let facts_of = |ix: TargetIx, snapshot: &Snapshot, file, active, now| {
            let is_db = snapshot.target(ix).is_some_and(|it| it.kind() == TargetKind::Db);
            if is_db { database(file, active, now) } else { facts(file, active, now) }
        };
        for (ix, _, waste, active) in &targets {
            let facts = facts_of(*ix, planner.draft.current(), (waste + active) * MIB, active * MIB, READ);
            planner.draft.set_facts(*ix, facts);
        }
        let mut times = vec![0_u32; targets.len()];
        let mut running: Vec<(u64, usize, Job)> = Vec::new();
        let bound = dbs.iter().map(|(waste, active)| 2 + active.div_ceil(*waste)).max().unwrap();
        let each = 2 * lasts + 2;
        let rounds = bound * 24 * 60 / minutes + each * u64::try_from(targets.len()).unwrap() + 8;
        for round in 0..rounds {
            let now = READ + (round + 1) * minutes * 60;
            let (ended, still_running): (Vec<_>, Vec<_>) =
                running.into_iter().partition(|(ends, ..)| *ends <= round);
            running = still_running;
            for (_, at, _) in ended {
                let (ix, _, _, active) = targets[at];
                let facts = facts_of(ix, planner.draft.current(), active * MIB, active * MIB, now);
                planner.draft.set_facts(ix, facts);
                times[at] += 1;
            }
            let constraints = Arc::make_mut(&mut planner.conditions.constraints);
            let keys = running.iter().map(|(.., job)| &job.key).collect();
            BusyPeriod::update_all(&mut constraints.busy_periods, &keys, at(now));
            let list = running.iter().map(|(.., job)| job.clone()).collect();
            planner.conditions.jobs = Arc::new(Jobs { list, ..Jobs::default() });
            let plan = planner.plan_at(now);
            for start in plan.starts.iter() {
                let at = targets.iter().position(|(ix, ..)| *ix == start.ix).unwrap();
                let target = plan.snapshot.target(start.ix).unwrap();
                running.push((round + lasts, at, job(start, target, targets[at].1, now)));
            }
            if times.iter().all(|times| *times > 0) {
                return Ok(());
            }
        }
        prop_assert!(false, "after {rounds} rounds of {minutes} minutes: {times:?} of {dbs:?}");
    }
}
