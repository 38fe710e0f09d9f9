//! Tests slot reservations against a second, slow implementation, and in simulations over days.

use super::{
    naive::{Chosen, Naive},
    *,
};
use crate::{
    jobs::{BusyPeriod, Job, JobKey, JobKind, JobPhase, Jobs, TargetConstraints},
    model::{
        channel::Mode,
        records::JobOwner,
        settings::{limits::Limits, work::EnforceViews},
    },
    table::{ShardMapEntry, View},
};
use couchdb_names::{Range, Signature};
use std::collections::{BTreeMap, BTreeSet};

/// A slot reservation, as the slow implementation computes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpectedReservation {
    ix: TargetIx,
    channel: usize,
    files: Vec<NodeIx>,
    /// Whether nothing else may start on its nodes, because it only waits for the ramp.
    slots_free: bool,
}

/// Whether a reservation is active for a target that has waited this many seconds, with `wait`
/// seconds between starts on a node. Steps from one reservation to the next.
fn is_reservation_active(waited: u64, wait: u64) -> bool {
    let (mut begins, mut apart) = (300.max(32 * wait), 300.max(32 * wait));
    loop {
        if waited < begins + apart / 8 {
            return waited >= begins;
        }
        if 2 * apart / 8 <= 6 * 3_600 {
            apart *= 2;
            begins = apart;
        } else {
            begins += apart;
        }
    }
}

impl Naive<'_> {
    pub(super) fn has_reservation(&self, ix: TargetIx) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| reservation.ix == ix)
    }

    /// The slot reservation before anything starts.
    pub(super) fn reservation(&self) -> Option<ExpectedReservation> {
        let (world, now) = (self.world, self.plan.planned_at);
        let orders = &world.conditions.constraints.orders;
        let wait = world.rules.limits.wait.as_secs();
        let mut all = Vec::new();
        for queue in self.plan.queues.iter() {
            for ix in self.candidates(queue) {
                let Some(possible) = self.possible_reservation(queue.channel_index, ix) else {
                    continue;
                };
                let placed = self.plan.placement(ix).map(|(_, placed)| placed.queued_since);
                // For an open round without a channel, it is unknown when the wait began.
                let alone = orders.get(&ix).filter(|it| it.run.is_none());
                let Some(since) = alone.map(|it| it.at).or(placed) else { continue };
                let waited = since.age(now).as_secs();
                if alone.is_some() || waited >= 300.max(32 * wait) {
                    all.push((alone.is_none(), since, -self.worth(ix), possible));
                }
            }
        }
        all.sort_by(|a, b| {
            let ages = (a.0, a.1).cmp(&(b.0, b.1));
            ages.then(a.2.total_cmp(&b.2)).then(a.3.ix.cmp(&b.3.ix))
        });
        let (queued, since, _, possible) = all.into_iter().next()?;
        (!queued || is_reservation_active(since.age(now).as_secs(), wait)).then_some(possible)
    }

    /// The reservation that a target would get: it must be a view with several ranges, or a file
    /// larger than an eighth of the hourly budget, that only jobs and spent bytes keep from starting.
    fn possible_reservation(&self, channel: usize, ix: TargetIx) -> Option<ExpectedReservation> {
        let (world, target) = (self.world, self.target(ix));
        let limits = world.rules.limits;
        let whole = target.kind() == TargetKind::View && target.shard_map().ranges > 1;
        let large = target.kind() == TargetKind::Db
            && target.facts().file_bytes.get().is_some_and(|file| file > limits.bytes_per_hour / 8)
            && !(limits.one_copy_of_a_range && self.is_other_copy_running(target));
        if !(whole || large) || self.target_refusal(ix).is_some() {
            return None;
        }
        let files = if whole { self.copy_nodes(ix) } else { vec![target.node_ix()] };
        let nodes: BTreeSet<NodeIx> = files.iter().copied().collect();
        let file = target.facts().file_bytes.get().unwrap_or(0);
        let silent = |node: &NodeIx| {
            world.conditions.constraints.enforcing_since.is_some()
                && world.conditions.jobs.polled_nodes.iter().all(|(polled, _)| polled != node)
        };
        let closed = |node: &NodeIx| silent(node) || self.gate_refusal(*node, channel).is_some();
        if nodes.iter().any(closed) {
            return None;
        }
        if self.window_and_space(channel, ix, &files).is_some() {
            return None;
        }
        let on = |node: &NodeIx| files.iter().filter(|it| *it == node).count();
        let ever = world.channels.list[channel].concurrency > 0
            && nodes.iter().all(|node| on(node) <= limits.per_node)
            && files.len() <= limits.cluster
            && (world.rules.shared.is_none() || file * files.len() as u64 <= limits.bytes_per_hour)
            && !(whole && self.is_all_copies_job_running());
        let has_room = self.limit_refusal(channel, &nodes, &files, target).is_none();
        let only_ramp = has_room && self.check_files(channel, ix, files.clone()).is_err();
        ever.then_some(ExpectedReservation { ix, channel, files, slots_free: only_ramp })
    }

    /// Whether all copies of some view are being compacted or are about to be.
    pub(super) fn is_all_copies_job_running(&self) -> bool {
        let ranges = |ix: TargetIx| {
            let target = self.target(ix);
            if target.kind() == TargetKind::View { target.shard_map().ranges } else { 0 }
        };
        let ours = self.world.conditions.jobs.compactions().any(|job| {
            job.owner == JobOwner::Recliner && job.target.is_some_and(|ix| ranges(ix) > 1)
        });
        ours || self.chosen.iter().any(|chosen| ranges(chosen.ix) > 1)
    }

    /// Why a target must leave free slots to the reserved target.
    pub(super) fn reservation_refusal(
        &self,
        channel: usize,
        ix: TargetIx,
        files: &[NodeIx],
    ) -> Option<RefusalReason> {
        let reservation = self.reservation.as_ref()?;
        let goes_before = self.ordered_alone(ix);
        let started = self.chosen.iter().any(|chosen| chosen.ix == reservation.ix);
        if goes_before || started || reservation.ix == ix {
            return None;
        }
        let target = self.target(ix);
        let nodes: BTreeSet<NodeIx> = files.iter().copied().collect();
        // Counts as if the reserved target had started already.
        let (ix, channel_of_view, all) =
            (reservation.ix, reservation.channel, reservation.files.clone());
        let with_it = Chosen { ix, channel: channel_of_view, files: all };
        let chosen = self.chosen.iter().cloned().chain([with_it]).collect();
        let after = Naive { world: self.world, plan: self.plan, chosen, reservation: None };
        let limit = after.limit_refusal(channel, &nodes, files, target);
        let closed =
            reservation.slots_free && reservation.files.iter().any(|node| nodes.contains(node));
        match limit {
            Some(RefusalReason::ChannelLimit) => limit,
            _ if closed => Some(RefusalReason::NodeLimit),
            _ => limit,
        }
    }
}

/// A cluster whose single files keep every slot busy, and a view that needs all of them.
struct BusyCluster {
    snapshot: Arc<Snapshot>,
    queues: Queues,
    rules: Arc<Rules>,
    view: TargetIx,
    /// Running compactions: the target, the nodes of its files, and when it ends.
    jobs: Vec<(TargetIx, Vec<NodeIx>, u64)>,
    last_start: BTreeMap<NodeIx, Moment>,
    busy: BTreeMap<NodeIx, BusyPeriod>,
    /// The node of each file's compaction, and when it began and ended.
    log: Vec<(NodeIx, u64, u64)>,
}

const BEGIN: u64 = 1_000_000;
const PER_NODE: usize = 2;
/// Minimum time between two starts on a node.
const WAIT: std::time::Duration = std::time::Duration::from_secs(30);

impl BusyCluster {
    fn new(duty_percent: f64) -> Self {
        let mut draft = Draft::new(5);
        let nodes = ["a", "b", "c"].map(|name| member(&mut draft, name));
        let half = |at: u32| Range { from: at << 31, to: (at << 31) + (u32::MAX >> 1) };
        for (at, node) in (0..30).zip(nodes.iter().cycle()) {
            let db = draft.get_or_add_db(DbName { db: &format!("db{at}"), suffix: ".1" });
            let ix = draft.get_or_add_shard(*node, db, Some(half(0)));
            draft.set_facts(ix, facts((100 + at) * MIB, 10 * MIB, BEGIN));
        }
        let db = draft.get_or_add_db(DbName { db: "users", suffix: ".1" });
        for (node, at) in nodes.iter().flat_map(|node| [(node, 0), (node, 1)]) {
            let ix = draft.get_or_add_shard(*node, db, Some(half(at)));
            draft.set_facts(ix, facts(10 * MIB, 9 * MIB, BEGIN));
        }
        let view = View {
            signature: Signature([7; 16]),
            designs: ["_design/by_name".into()].into(),
            language: "javascript".into(),
            collators: [].into(),
            exact_range: true,
            ..View::default()
        };
        let view = draft.add_view(db, view);
        draft.set_facts(view, facts(50 * MIB, 5 * MIB, BEGIN));
        draft.set_shard_map(db, ShardMapEntry { copies: 6, ranges: 2 }, &[view]);
        let mut channels = Channels::default();
        for channel in &mut channels.list {
            channel.concurrency = PER_NODE;
        }
        let snapshot = draft.publish(at(BEGIN));
        let mut queues = Queues::new(Arc::new(channels));
        queues.apply_snapshot(&snapshot, at(BEGIN));
        let rules = Rules {
            mode: Mode::Enforce,
            limits: Limits {
                per_node: PER_NODE,
                bytes_per_hour: u64::MAX,
                wait: WAIT,
                duty_percent,
                ..Limits::default()
            },
            views: EnforceViews::All,
            fresh_for: std::time::Duration::MAX,
            ..(*rules()).clone()
        };
        let (jobs, log) = (Vec::new(), Vec::new());
        let (last_start, busy) = (BTreeMap::new(), BTreeMap::new());
        Self { snapshot, queues, rules: Arc::new(rules), view, jobs, last_start, busy, log }
    }

    /// Seconds before `until` in which compactions ran on a node.
    fn busy_seconds(&self, on: NodeIx, until: u64) -> u64 {
        let mut runs: Vec<_> = self.log.iter().filter(|(node, ..)| *node == on).collect();
        runs.sort();
        let (mut busy, mut counted) = (0, BEGIN);
        for (_, begin, end) in runs {
            let (begin, end) = (counted.max(*begin), (*end).min(until));
            busy += end.saturating_sub(begin);
            counted = counted.max(end);
        }
        busy
    }

    /// The job of each file that is being compacted.
    fn job_keys(&self) -> Vec<(TargetIx, JobKey)> {
        let keys = |(ix, nodes, _): &(TargetIx, Vec<NodeIx>, u64)| {
            let (ix, nodes) = (*ix, nodes.clone());
            let kind = if self.snapshot.target(ix).unwrap().kind() == TargetKind::Db {
                JobKind::CompactDb
            } else {
                JobKind::CompactView("_design/v".into())
            };
            nodes.into_iter().enumerate().map(move |(number, node)| {
                let shard = format!("{ix:?} {number}").into();
                (ix, JobKey { node, shard, kind: kind.clone() })
            })
        };
        self.jobs.iter().flat_map(keys).collect()
    }

    fn plan(&mut self, now: u64) -> Plan {
        let keys = self.job_keys();
        let running = keys.iter().map(|(_, key)| key).collect();
        BusyPeriod::update_all(&mut self.busy, &running, at(now));
        let job = |(ix, key): (TargetIx, JobKey)| Job {
            key,
            target: Some(ix),
            target_kind: self.snapshot.target(ix).unwrap().kind(),
            owner: JobOwner::Recliner,
            channel: None,
            started_at: at(now),
            phase: JobPhase::Running,
            progress: None,
            last_progress_at: at(now),
            reserved_bytes: 0,
            file_bytes: None,
            predicted_bytes: None,
        };
        let list = keys.into_iter().map(job).collect();
        let history = TargetConstraints {
            last_start_by_node: self.last_start.clone(),
            busy_periods: self.busy.clone(),
            ..TargetConstraints::default()
        };
        let conditions = Conditions {
            jobs: Arc::new(Jobs { list, ..Jobs::default() }),
            constraints: Arc::new(history),
            ..Conditions::default()
        };
        self.queues.make_plan(&self.snapshot, &conditions, &self.rules, at(now))
    }

    /// Simulates time, from one plan to the next change; each job takes the next of `lengths`, in
    /// seconds. Stops when the view starts; returns the time of the start and the average number of
    /// busy slots before it.
    fn simulate(&mut self, hours: u64, lengths: &[u64]) -> (Option<u64>, f64) {
        let mut lengths = lengths.iter().copied().cycle();
        let (mut now, mut busy) = (BEGIN, 0);
        while now < BEGIN + hours * 3_600 {
            self.jobs.retain(|(_, _, end)| *end > now);
            let plan = self.plan(now);
            for (start, chosen) in plan.starts.iter().zip(properties::chosen(&plan)) {
                if start.ix == self.view {
                    return (Some(now - BEGIN), busy as f64 / (now - BEGIN) as f64);
                }
                let end = now + lengths.next().unwrap();
                self.last_start.extend(chosen.files.iter().map(|node| (*node, at(now))));
                self.log.extend(chosen.files.iter().map(|node| (*node, now, end)));
                self.jobs.push((start.ix, chosen.files, end));
            }
            // A start may change the next time at which the plan changes.
            let changes = self.plan(now).next_change.map(Moment::unix);
            let ends = self.jobs.iter().map(|(_, _, end)| *end);
            let next = ends.chain(changes).min().expect("a job or a change is pending");
            busy += self.jobs.len() as u64 * (next - now);
            now = next;
        }
        (None, busy as f64 / (now - BEGIN) as f64)
    }
}

/// The maximum age at which a view starts if no job takes longer than `longest`: the end of the
/// first reservation that outlasts both the longest job and the pause after that job. The pause is
/// the start interval, or the rest after the longest busy period, in which one more job joined just
/// before the first one ended.
fn latest_start(longest: u64, duty: u64) -> u64 {
    let enough = longest + 30.max((2 * longest * (100 - duty)).div_ceil(duty));
    let apart = std::iter::successors(Some(960), |apart| Some(apart * 2));
    let apart = apart.take_while(|apart| apart / 8 <= 6 * 3_600).find(|it| it / 8 >= enough);
    let apart = apart.expect("a reservation can last as long");
    apart + enough
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn view_with_all_copies_starts_despite_competing_files(
        lengths in proptest::collection::vec(1..2_400_u64, 1..40),
        duty in proptest::sample::select(vec![100, 80, 50_u64]),
    ) {
        let longest = *lengths.iter().max().unwrap();
        let mut cluster = BusyCluster::new(duty as f64);
        let (started, _) = cluster.simulate(20, &lengths);
        let latest = latest_start(longest, duty);
        prop_assert!(started.is_some_and(|age| age <= latest), "{started:?} after {latest}");
        let ended = BEGIN + started.unwrap();
        for node in [1, 2, 3].map(|at| NodeIx::from_usize(at).unwrap()) {
            // The rest that follows the last busy period has not happened yet.
            let most = (duty * (ended - BEGIN)).div_ceil(100) + 2 * longest;
            let busy = cluster.busy_seconds(node, ended);
            prop_assert!(busy <= most, "{node:?}: {busy} of {} s, and at most {most}", ended - BEGIN);
        }
    }
}

#[test]
fn reservations_expire_while_one_job_never_ends() {
    let mut busy = BusyCluster::new(100.0);
    let forever = busy.snapshot.targets().next().unwrap();
    busy.jobs.push((forever.ix(), vec![forever.node_ix()], u64::MAX));
    let (started, share) = busy.simulate(72, &[600, 1_500, 900, 1_200, 700]);
    assert_eq!(started, None);
    assert!(share > 0.8 * 6.0, "{share} of 6");
}

#[test]
fn refuses_view_that_needs_more_slots_than_the_limit() {
    let mut busy = BusyCluster::new(100.0);
    let limits = Limits { per_node: 1, ..busy.rules.limits };
    busy.rules = Arc::new(Rules { limits, ..(*busy.rules).clone() });
    let plan = busy.plan(BEGIN + 960);
    let never = Refusal::with_numbers(RefusalReason::Excluded, 2.0, 1.0);
    let view = plan.snapshot.target(busy.view).unwrap();
    let Decision::Refused(refusal) = plan.decision(view) else { panic!("it must never start") };
    assert_eq!(Refusal { since: None, ..refusal }, never);
    assert!(matches!(plan.order_answer(view), OrderAnswer::Refused(..)));
    assert_eq!(plan.slot_reservation, None);
}

#[test]
fn refusal_names_the_reservation_that_causes_it() {
    let mut busy = BusyCluster::new(100.0);
    let ixs: Vec<TargetIx> = busy.snapshot.targets().map(TargetRef::ix).collect();
    let node = |ix: TargetIx| busy.snapshot.target(ix).unwrap().node_ix();
    busy.jobs = (0..4).map(|at| (ixs[at], vec![node(ixs[at])], u64::MAX)).collect();
    let refusal = |plan: &Plan, ix: TargetIx| match plan.decision(plan.snapshot.target(ix).unwrap())
    {
        Decision::Refused(refusal) => refusal,
        decision @ (Decision::Start | Decision::NotTaken) => panic!("{decision:?}"),
    };
    let before = busy.plan(BEGIN + 959);
    assert_eq!(
        (before.slot_reservation.clone(), before.starts.len()),
        (None, 2),
        "one on each node"
    );
    assert_eq!(before.next_change, Some(at(BEGIN + 960)));
    let plan = busy.plan(BEGIN + 960);
    assert_eq!(starts(&plan), []);
    let (view, reservation) =
        plan.reservation_behind(&refusal(&plan, ixs[4])).expect("it leaves its slot to the view");
    assert_eq!(view.ix(), busy.view);
    assert_eq!(
        (reservation.active_from, reservation.active_until),
        (at(BEGIN + 960), at(BEGIN + 1_080))
    );
    assert_eq!(plan.next_change, Some(reservation.active_until));
    let expected = Refusal {
        since: Some(reservation.active_from),
        ..Refusal::with_numbers(RefusalReason::NodeLimit, 1.0, 2.0)
    };
    assert_eq!(refusal(&plan, ixs[4]), expected);
    assert_eq!(refusal(&plan, busy.view).reason, RefusalReason::NodeLimit);
    let own = plan.reservation_behind(&refusal(&plan, busy.view));
    assert!(own.is_none(), "a reservation does not refuse its own target");
    // Where a limit is reached, the refusal names the limit and not the reservation.
    assert!(plan.reservation_behind(&refusal(&plan, ixs[3])).is_none());
    let after = busy.plan(BEGIN + 1_080);
    assert_eq!((after.slot_reservation.clone(), after.starts.len()), (None, 2));
    busy.jobs.clear();
    busy.last_start = [(NodeIx::from_usize(2).unwrap(), at(BEGIN + 1_900))].into();
    let plan = busy.plan(BEGIN + 1_925);
    assert_eq!(starts(&plan), [], "a start now would delay the view's start");
    assert_eq!(starts(&busy.plan(BEGIN + 1_930)), [busy.view]);
}

/// Small files always use up the hourly budget, and one file needs more than half of it.
#[test]
fn large_file_starts_although_small_files_use_up_the_budget() {
    let mut draft = Draft::new(5);
    let node = member(&mut draft, "a");
    let sizes = (0..40).map(|at| (80 + at) * MIB).chain([700 * MIB]);
    let ixs: Vec<TargetIx> = sizes
        .enumerate()
        .map(|(at, size)| {
            let db = draft.get_or_add_db(DbName { db: &format!("db{at}"), suffix: ".1" });
            let ix = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
            // Among files with equal gain ratios, the smaller one comes first.
            let active = if size == 700 * MIB { size / 3 } else { size / 10 };
            draft.set_facts(ix, facts(size, active, BEGIN));
            ix
        })
        .collect();
    let large = ixs[40];
    let snapshot = draft.publish(at(BEGIN));
    let mut queues = Queues::new(Arc::default());
    queues.apply_snapshot(&snapshot, at(BEGIN));
    let rules = Rules {
        mode: Mode::Enforce,
        limits: Limits { bytes_per_hour: 1_000 * MIB, wait: WAIT, ..Limits::default() },
        fresh_for: std::time::Duration::MAX,
        ..(*rules()).clone()
    };
    let rules = Arc::new(rules);
    let (mut now, mut spent, mut small, mut most) = (BEGIN, Vec::new(), 0, 0);
    let started = loop {
        let history =
            TargetConstraints { recent_starts: spent.clone(), ..TargetConstraints::default() };
        let conditions = Conditions { constraints: Arc::new(history), ..Conditions::default() };
        let plan = queues.make_plan(&snapshot, &conditions, &rules, at(now));
        if plan.starts.iter().any(|start| start.ix == large) {
            break now - BEGIN;
        }
        for start in plan.starts.iter() {
            small += 1;
            let file = snapshot.target(start.ix).unwrap().facts().file_bytes.get().unwrap();
            spent.push((at(now), file));
        }
        let within = spent.iter().filter(|(since, _)| since.age(at(now)).as_secs() < 3_600);
        most = most.max(within.map(|(_, bytes)| *bytes).sum());
        if let Some(reservation) = &plan.slot_reservation {
            assert_eq!((reservation.ix, reservation.all_copies), (large, false));
        }
        now += 30;
        assert!(now < BEGIN + 12 * 3_600, "the large file starves");
    };
    assert!(started < 10 * 3_600, "{started}");
    assert!(small > 60, "{small} others started meanwhile");
    assert!(most <= 1_000 * MIB, "{most}");
}
