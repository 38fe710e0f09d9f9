//! Small random clusters with every input of a plan.

use super::*;
use crate::{
    jobs::{BusyPeriod, Job, JobKey, JobKind, JobPhase, Jobs, TargetConstraints},
    model::{
        channel::Mode,
        records::{
            Backoff, CompactionOrder, JobOwner, JournalFailure, Runs, Suspension, SuspensionScope,
            Suspensions,
        },
        settings::{limits::Limits, work::EnforceViews},
        share::Share,
        window::{Days, Window},
    },
    plan::{
        disk::{Disks, Volume, VolumeSpace},
        pressure::{NodePressure, PressureHold, Pressures, Signal},
    },
    shared_limits::Allowance,
    table::{ShardMapEntry, View},
    text::Label,
};
use couchdb_names::{Range, Signature};

pub(super) const NOW: u64 = 1_795_222_434;

/// One database: its ranges, the nodes with a copy of each, and its facts.
#[derive(Clone, Debug)]
pub(super) struct Db {
    ranges: u32,
    homes: u8,
    /// Mebibytes of the file and of its active data; the second copy has one more.
    sizes: (u64, u64),
    resharding: bool,
    running: bool,
    /// Age of the facts in seconds; `None` if never measured.
    measured: Option<u64>,
    view: Option<(u64, u64, u64)>,
    cleanup: bool,
}

/// Every input of a plan, in small numbers.
#[derive(Clone, Debug)]
pub(super) struct WorldSpec {
    nodes: usize,
    dbs: Vec<Db>,
    /// For each channel: concurrency, whether it enforces, whether its window is open.
    channels: Vec<(usize, bool, Option<bool>)>,
    strict: bool,
    enforce: bool,
    limits: (usize, usize, u64, u64, bool),
    duty: u8,
    blind: u64,
    keep_free: u8,
    views: EnforceViews,
    /// Nodes, mebibytes available, whether the size is known, whether space is falling.
    volumes: Vec<(u8, Option<u64>, bool, bool)>,
    /// Jobs and bytes of a share of shared limits, and whether it is a lease.
    shared: Option<(usize, u64, bool)>,
    /// Target, node, whether recliner started it, whether it builds, mebibytes reserved.
    jobs: Vec<(usize, usize, bool, bool, u64)>,
    polled: u8,
    backoffs: Vec<(usize, u8)>,
    rounds: Vec<(usize, u8)>,
    /// Target, seconds ago.
    started: Vec<(usize, u64)>,
    /// Target, seconds ago, forced.
    orders: Vec<(usize, u64, bool)>,
    pub(super) suspended: Vec<u8>,
    under_pressure: u8,
    down: u8,
    in_maintenance: u8,
    upgrading: u8,
    last_starts: Vec<(usize, u64)>,
    /// Node, seconds of work, how many of two jobs have ended, seconds since the last end.
    busy: Vec<(usize, u64, u8, u64)>,
    enforcing_ago: Option<u64>,
    spent: Vec<(u64, u64)>,
    rate: Option<u64>,
    journal_trouble: bool,
}

/// The inputs of a plan.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) channels: Arc<Channels>,
    pub(super) conditions: Conditions,
    pub(super) rules: Arc<Rules>,
}

fn rarely() -> impl Strategy<Value = bool> {
    proptest::bool::weighted(0.1)
}

fn often() -> impl Strategy<Value = bool> {
    proptest::bool::weighted(0.9)
}

prop_compose! {
    fn any_db()(
        ranges in 1..3_u32,
        homes in 1..8_u8,
        sizes in (2..60_u64, 1..12_u64),
        (resharding, running) in (rarely(), rarely()),
        measured in prop_oneof![9 => (0..1_100_u64).prop_map(Some), 1 => Just(Some(5_000)), 1 => Just(None)],
        view in proptest::option::of((2..60_u64, 1..12_u64, prop_oneof![Just(0), Just(2_000_u64)])),
        cleanup in rarely(),
    ) -> Db {
        Db { ranges, homes, sizes, resharding, running, measured, view, cleanup }
    }
}

/// A bit for each node; mostly none.
fn some_nodes() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(0), 1 => 0..8_u8]
}

prop_compose! {
    fn any_present()(
        jobs in proptest::collection::vec((0..20_usize, 1..4_usize, any::<bool>(), rarely(), 0..40_u64), 0..3),
        polled in any::<u8>(),
        backoffs in proptest::collection::vec((0..20_usize, 0..5_u8), 0..3),
        rounds in proptest::collection::vec((0..20_usize, 0..8_u8), 0..3),
        started in proptest::collection::vec((0..20_usize, 0..40_u64), 0..2),
        orders in proptest::collection::vec((0..20_usize, 0..90_u64, any::<bool>()), 0..3),
        suspended in proptest::collection::vec(0..40_u8, 0..2),
        [pressed, maintained, upgrading, down] in std::array::from_fn::<_, 4, _>(|_| some_nodes()),
        last_starts in proptest::collection::vec((0..4_usize, 0..60_u64), 0..2),
        busy in proptest::collection::vec((0..4_usize, 0..60_u64, 0..3_u8, 0..60_u64), 0..3),
        acting in proptest::option::of(0..120_u64),
        spent in proptest::collection::vec((0..5_000_u64, 0..80_u64), 0..3),
        rate in proptest::option::of(1..100_u64),
        journal_trouble in rarely(),
    ) -> WorldSpec {
        WorldSpec {
            jobs, polled, backoffs, rounds, started, orders, suspended, under_pressure: pressed, down, in_maintenance: maintained, upgrading, last_starts, busy, enforcing_ago: acting, spent,
            rate, journal_trouble,
            nodes: 1, dbs: Vec::new(), channels: Vec::new(), strict: false, enforce: true,
            limits: (0, 0, 0, 0, true), duty: 100, blind: 0, keep_free: 0, views: EnforceViews::All,
            volumes: Vec::new(),
            shared: None,
        }
    }
}

prop_compose! {
    pub(super) fn any_spec()(
        present in any_present(),
        nodes in 1..4_usize,
        dbs in proptest::collection::vec(any_db(), 1..9),
        channels in proptest::collection::vec((0..4_usize, often(), proptest::option::weighted(0.3, any::<bool>())), 7),
        (strict, enforce) in (any::<bool>(), any::<bool>()),
        limits in (0..5_usize, 0..9_usize, prop_oneof![Just(u64::MAX), (20 * MIB)..(300 * MIB)], prop_oneof![Just(0), Just(1), Just(30_u64)], any::<bool>()),
        duty in proptest::sample::select(vec![20, 50, 90, 100_u8]),
        blind in prop_oneof![Just(0), Just(20 * MIB), Just(u64::MAX)],
        keep_free in 0..20_u8,
        views in proptest::sample::select(EnforceViews::ALL.to_vec()),
        volumes in proptest::collection::vec((0..8_u8, proptest::option::weighted(0.9, 0..120_u64), any::<bool>(), rarely()), 0..4),
        shared in proptest::option::weighted(0.3, (0..9_usize, prop_oneof![Just(u64::MAX), 0..(300 * MIB)], any::<bool>())),
    ) -> WorldSpec {
        WorldSpec {
            nodes, dbs, channels, strict, enforce, limits, duty, blind, keep_free, views, volumes, shared,
            ..present
        }
    }
}

fn sized_facts(
    sizes: (u64, u64),
    measured: Option<u64>,
    flags: FactFlags,
    pending: Option<u64>,
) -> Facts {
    Facts {
        updates_pending: pending.into(),
        measured_at: measured
            .map(|ago| Measurement { at: at(NOW - ago), source: FactSource::Http }),
        flags,
        ..Facts::sized(sizes.0 * MIB, sizes.1 * MIB)
    }
}

fn nodes_in(bits: u8, nodes: usize) -> impl Iterator<Item = usize> {
    (0..nodes).filter(move |at| bits & (1 << at) != 0)
}

fn node_ix(at: usize) -> NodeIx {
    NodeIx::from_usize(at).unwrap()
}

/// Clusters where few conditions matter besides limits; they exercise slot reservations.
pub(super) fn any_calm_spec() -> impl Strategy<Value = WorldSpec> {
    any_spec().prop_map(|spec| {
        let dbs = spec.dbs.into_iter().map(|db| Db {
            measured: Some(1),
            running: false,
            resharding: false,
            view: db.view.map(|(file, active, _)| (file + 20, active, 0)),
            ..db
        });
        let channels =
            spec.channels.into_iter().map(|(concurrency, _, _)| (concurrency, true, None));
        WorldSpec {
            dbs: dbs.collect(),
            channels: channels.collect(),
            blind: u64::MAX,
            views: EnforceViews::All,
            volumes: Vec::new(),
            suspended: Vec::new(),
            under_pressure: 0,
            down: 0,
            in_maintenance: 0,
            upgrading: 0,
            polled: u8::MAX,
            journal_trouble: false,
            started: Vec::new(),
            ..spec
        }
    })
}

impl WorldSpec {
    pub(super) fn build(&self) -> World {
        let (snapshot, all) = self.snapshot();
        let channels = self.channels();
        World {
            conditions: self.conditions(&snapshot, &all, &channels),
            rules: Arc::new(self.rules()),
            channels: Arc::new(channels),
            snapshot,
        }
    }

    fn snapshot(&self) -> (Arc<Snapshot>, Vec<TargetIx>) {
        let mut draft = Draft::new(5);
        let nodes: Vec<NodeIx> =
            (0..self.nodes).map(|at| member(&mut draft, &format!("n{at}"))).collect();
        for at in nodes_in(self.down, self.nodes) {
            draft.update_node(nodes[at], |node| node.is_up = Some(false));
        }
        let mut all = Vec::new();
        for (number, spec) in self.dbs.iter().enumerate() {
            let db = draft.get_or_add_db(DbName { db: &format!("db{number}"), suffix: ".1" });
            let mut homes: Vec<NodeIx> =
                nodes_in(spec.homes, self.nodes).map(|at| nodes[at]).collect();
            if homes.is_empty() {
                homes.push(nodes[0]);
            }
            for at in 0..spec.ranges {
                let width = u32::MAX / spec.ranges;
                let range = Range { from: at * width, to: at * width + (width - 1) };
                for (copy, node) in homes.iter().enumerate() {
                    let ix = draft.get_or_add_shard(*node, db, Some(range));
                    let flags = FactFlags {
                        compact_running: spec.running && copy == 0,
                        ..FactFlags::default()
                    };
                    let sizes = (spec.sizes.0 + copy as u64, spec.sizes.1);
                    draft.set_facts(ix, sized_facts(sizes, spec.measured, flags, None));
                    if spec.resharding && at == 0 {
                        draft.set_state(ix, TargetState::Resharding);
                    }
                    all.push(ix);
                }
            }
            let copies = u32::try_from(homes.len()).unwrap() * spec.ranges;
            if let Some((file, active, pending)) = spec.view {
                let view = View {
                    signature: Signature([u8::try_from(number).unwrap(); 16]),
                    designs: ["_design/v".into()].into(),
                    language: "javascript".into(),
                    collators: [].into(),
                    exact_range: true,
                    ..View::default()
                };
                let ix = draft.add_view(db, view);
                draft.set_facts(
                    ix,
                    sized_facts((file, active), spec.measured, FactFlags::default(), Some(pending)),
                );
                draft.set_shard_map(db, ShardMapEntry { copies, ranges: spec.ranges }, &[ix]);
                all.push(ix);
            }
            if spec.cleanup {
                let ix = draft.get_or_add_cleanup(db);
                let flags = FactFlags { evidence: true, ..FactFlags::default() };
                draft.set_facts(ix, sized_facts((0, 0), spec.measured, flags, None));
                all.push(ix);
            }
        }
        (draft.publish(at(NOW)), all)
    }

    fn channels(&self) -> Channels {
        let mut channels = Channels::default();
        for (channel, (concurrency, enforces, window)) in
            channels.list.iter_mut().zip(&self.channels)
        {
            channel.concurrency = *concurrency;
            channel.mode = if *enforces { Mode::Enforce } else { Mode::Advise };
            channel.strict_window = self.strict;
            // The time of the plan is seven minutes past a full hour, so both windows are open.
            channel.windows = window
                .map(|open| Window {
                    days: Days::ALL,
                    from: crate::model::window::parse_time(
                        "00:00",
                        crate::model::window::WindowEnd::From,
                    )
                    .unwrap(),
                    to: crate::model::window::parse_time(
                        if open { "01:00" } else { "00:30" },
                        crate::model::window::WindowEnd::To,
                    )
                    .unwrap(),
                    zone: crate::model::window::parse_zone("UTC").unwrap(),
                })
                .into_iter()
                .collect();
        }
        channels
    }

    fn rules(&self) -> Rules {
        let (per_node, cluster, bytes_per_hour, wait, one_copy_of_a_range) = self.limits;
        Rules {
            mode: if self.enforce { Mode::Enforce } else { Mode::Advise },
            limits: Limits {
                per_node,
                cluster,
                bytes_per_hour,
                wait: std::time::Duration::from_secs(wait),
                duty_percent: f64::from(self.duty),
                one_copy_of_a_range,
            },
            headroom: Headroom {
                keep_free_percent: f64::from(self.keep_free),
                blind_limit: self.blind,
                ..Headroom::default()
            },
            views: self.views,
            ..Rules::default()
        }
        .bounded_by(self.shared.map(|(jobs, bytes_per_hour, ends)| Allowance {
            share: Share { jobs, bytes_per_hour },
            until: ends.then(|| at(NOW + 20)),
            most: Share::ALL,
        }))
    }

    fn conditions(&self, snapshot: &Snapshot, all: &[TargetIx], channels: &Channels) -> Conditions {
        let pick = |at: usize| snapshot.target(all[at % all.len()]).unwrap();
        let list =
            self.jobs.iter().enumerate().map(|(number, (at, on, ours, builds, reserved))| {
                let target = pick(*at);
                let on_cluster = target.node_ix() == NodeIx::CLUSTER;
                let node = if on_cluster { node_ix(1 + on % self.nodes) } else { target.node_ix() };
                let work = match (target.kind(), builds) {
                    (TargetKind::Db, _) => JobKind::CompactDb,
                    (TargetKind::Search, _) => JobKind::BuildSearch("_design/v".into(), "i".into()),
                    (TargetKind::View | TargetKind::Cleanup, true) => {
                        JobKind::BuildView("_design/v".into())
                    }
                    (TargetKind::View | TargetKind::Cleanup, false) => {
                        JobKind::CompactView("_design/v".into())
                    }
                };
                Job {
                    key: JobKey { node, shard: format!("shard{number}").into(), kind: work },
                    target: Some(target.ix()),
                    target_kind: target.kind(),
                    owner: if *ours { JobOwner::Recliner } else { JobOwner::Other },
                    channel: None,
                    started_at: at_ago(100),
                    phase: JobPhase::Running,
                    progress: None,
                    last_progress_at: at_ago(0),
                    reserved_bytes: reserved * MIB,
                    file_bytes: None,
                    predicted_bytes: None,
                }
            });
        let polled = nodes_in(self.polled, self.nodes).map(|at| (node_ix(at + 1), at_ago(1)));
        let jobs = Jobs { list: list.collect(), polled_nodes: polled.collect(), ..Jobs::default() };
        let volumes =
            self.volumes.iter().enumerate().map(|(at, (nodes, available, sized, falling))| {
                Volume {
                    name: format!("v{at}").into(),
                    nodes: nodes_in(*nodes, self.nodes).map(|at| format!("n{at}").into()).collect(),
                    space: available.map(|available| VolumeSpace {
                        available: available * MIB,
                        size: sized.then_some(200 * MIB),
                        held: None,
                        measured_at: at_ago(0),
                    }),
                    is_stated: false,
                    falling_since: falling.then_some(at_ago(9)),
                    problem: None,
                }
            });
        let nodes = (0..self.nodes).map(|at| {
            let held =
                PressureHold { signal: Signal::RunQueue, since: at_ago(5), value: 9.0, low: 4.0 };
            let pressure = NodePressure {
                hold: (self.under_pressure & (1 << at) != 0).then_some(held),
                maintenance_since: (self.in_maintenance & (1 << at) != 0).then_some(at_ago(6)),
                upgrade_since: (self.upgrading & (1 << at) != 0).then_some(at_ago(7)),
                ..NodePressure::default()
            };
            (node_ix(at + 1), pressure)
        });
        Conditions {
            jobs: Arc::new(jobs),
            constraints: Arc::new(self.history(snapshot, all, channels)),
            disks: Arc::new(Disks { volumes: volumes.collect() }),
            pressures: Arc::new(Pressures { nodes: nodes.collect(), ..Pressures::default() }),
        }
    }

    fn history(
        &self,
        snapshot: &Snapshot,
        all: &[TargetIx],
        channels: &Channels,
    ) -> TargetConstraints {
        let pick = |at: usize| all[at % all.len()];
        let backoffs = self.backoffs.iter().map(|(which, kind)| {
            let since = at_ago(500);
            let rest = match kind {
                0 => Backoff::CoolDown { since, until: at(NOW + 60) },
                1 => Backoff::CoolDown { since, until: at_ago(60) },
                2 => Backoff::Quarantined { since, failures: 5 },
                3 => Backoff::Unsettled { since, until: at(NOW + 60) },
                _ => Backoff::Futile { since, file_bytes: MIB, caught_up: false },
            };
            (pick(*which), rest)
        });
        let rounds = self.rounds.iter().filter_map(|(at, done)| {
            let view =
                snapshot.target(pick(*at)).filter(|target| target.kind() == TargetKind::View)?;
            Some((view.ix(), nodes_in(*done, self.nodes).map(|at| node_ix(at + 1)).collect()))
        });
        let suspended = self.suspended.iter().map(|which| {
            let scope = match usize::from(*which) {
                0 => SuspensionScope::All,
                at @ 1..8 => SuspensionScope::Channel(channels.list[at - 1].name.to_string()),
                8 => SuspensionScope::Node("_cluster".to_owned()),
                at => SuspensionScope::Node(format!("n{}", at % 5)),
            };
            (scope, Suspension { since: at_ago(7), by: None, why: None })
        });
        let started = self.started.iter().map(|(which, ago)| (pick(*which), at_ago(*ago)));
        let last_starts = self.last_starts.iter().map(|(at, ago)| (node_ix(*at), at_ago(*ago)));
        let busy = self.busy.iter().map(|(on, worked, ended, ago)| {
            let (node, key) = (node_ix(*on), "shard");
            let first_job = JobKey { node, shard: key.into(), kind: JobKind::CompactDb };
            let period = BusyPeriod {
                first_ended_at: (*ended > 0).then_some(at_ago(*ago)),
                ended_at: (*ended > 1).then_some(at_ago(*ago)),
                ..BusyPeriod::beginning(first_job, at_ago(ago + worked))
            };
            (node, period)
        });
        let orders = self.orders.iter().map(|(which, ago, force)| {
            let (at, until) = (at_ago(*ago), at(NOW + 60));
            let (by, run) = ("ann".into(), (ago % 2 == 1).then_some(3));
            (pick(*which), CompactionOrder { at, until, by, force: *force, run })
        });
        TargetConstraints {
            remaining_bytes: BTreeMap::new(),
            orders: orders.collect(),
            runs: Runs::default(),
            done_in_run: BTreeMap::new(),
            backoffs: backoffs.collect(),
            partly_compacted_views: rounds.collect(),
            started_unmeasured: started.collect(),
            suspensions: Suspensions(suspended.collect()),
            recent_starts: self
                .spent
                .iter()
                .map(|(ago, size)| (at_ago(*ago), size * MIB))
                .collect(),
            last_start_by_node: last_starts.collect(),
            busy_periods: busy.collect(),
            enforcing_since: self.enforcing_ago.map(at_ago),
            learned_headroom_factor: None,
            build_speeds: Arc::default(),
            rewrite_bytes_per_second: self.rate.map(|rate| rate as f64 * 1_000.0),
            journal_failure: self
                .journal_trouble
                .then(|| (at_ago(3), JournalFailure::NotWritable("full".to_owned()))),
        }
    }
}

fn at_ago(seconds: u64) -> Moment {
    at(NOW - seconds)
}

impl World {
    /// The plan of queues in which every target has waited for `waited` seconds.
    pub(super) fn plan(&self, waited: u64) -> Plan {
        let mut queues = Queues::new(Arc::clone(&self.channels));
        queues.apply_snapshot(&self.snapshot, at(NOW - waited));
        queues.make_plan(&self.snapshot, &self.conditions, &self.rules, at(NOW))
    }
}
