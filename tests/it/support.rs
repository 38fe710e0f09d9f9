//! Shared by the end-to-end tests: recliner over a simulated cluster on paused time, and the true
//! state of that cluster in recliner's own types.
//!
//! Its only expectation: whatever a test does, advise mode sends nothing but GETs and its login,
//! and enforce mode keeps every law of [`crate::scenario::judge`].

pub(crate) mod recording_store;
#[path = "../takeover_store/mod.rs"]
mod takeover_store;

pub(crate) use takeover_store::InMemoryTakeoverStore;

use crate::scenario::judge::{self, Life, Record};
use couchdb_client::Transport;
use couchdb_sim::{Cluster, Config, Database, Exchange};
use futures::FutureExt as _;
use recliner::{
    act::{
        takeover::{self, TakeoverRecord, TakeoverStore},
        warmer,
    },
    advice::AdviceHandle,
    config::{self, Flags},
    feeds::feed_client,
    model::{
        channel::Mode,
        facts::Facts,
        records::RecoveredState,
        settings::Settings,
        target::{TargetKind, TargetState},
    },
    plan::{Plan, disk::SpaceMeter},
    scan::{EarlierProcess, ScanCommand, ScanStatus},
    service::{ClusterMonitor, Dependencies, TaskSet},
    simulated::SimulatedDisks,
    store::journal::{self, ClusterIdentity, InMemory, Journal},
    table::{Node, TargetRef},
    text::Label,
};
use recording_store::RecordingStore;
use std::{
    collections::BTreeMap,
    future::ready,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment, TimeSource};

pub(crate) const A: &str = "couchdb@sim-1.local";
pub(crate) const B: &str = "couchdb@sim-2.local";
pub(crate) const C: &str = "couchdb@sim-3.local";
pub(crate) const NODES: [&str; 3] = [A, B, C];

/// Wall time at the start of a test, unless it sets another.
pub(crate) const START: Moment = Moment::from_unix(1_795_230_000);

/// Sweeps only when a test asks for it.
pub(crate) const ON_DEMAND: &str = "scan: {interval: 24h}\n";

/// An hour of paused time, as a timeout for everything that a test waits for.
const HOUR: Duration = Duration::from_secs(3_600);

/// The interval at which the judge checks the plan.
const LOOK: Duration = Duration::from_secs(60);

/// The clock of a machine that an operator or NTP sets forward or back.
#[derive(Debug)]
struct AdjustedClock {
    running: Clock,
    /// The offset in seconds by which the clock was set forward.
    seconds: AtomicI64,
}

impl AdjustedClock {
    fn starting_at(start: Moment) -> Self {
        Self { running: Clock::anchored(start), seconds: AtomicI64::new(0) }
    }
}

impl TimeSource for AdjustedClock {
    fn now(&self) -> Moment {
        let seconds = self.seconds.load(Ordering::Relaxed);
        Moment::from_unix(self.running.now().unix().saturating_add_signed(seconds))
    }
}

/// A process over a simulated cluster: all of a service except its web server, with a
/// [`RecordingStore`] as its journal.
pub(crate) struct Rig {
    pub(crate) cluster: Cluster,
    pub(crate) watch: ClusterMonitor,
    pub(crate) store: RecordingStore,
    /// The state of the takeover of smoosh, if the whole service runs.
    pub(crate) smoosh: Option<takeover::TakeoverHandle>,
    /// The warmer's handle, if the whole service runs.
    pub(crate) warmer: Option<warmer::WarmerHandle>,
    ledger: InMemoryTakeoverStore,
    clock: Clock,
    adjusted: &'static AdjustedClock,
    /// Whether the whole service runs, or only its observing part.
    whole: bool,
    settings: Settings,
    flags: Flags,
    tasks: TaskSet,
    stop: CancellationToken,
    record: Record,
    /// Measurements that the previous process left.
    earlier: EarlierProcess,
}

/// Three nodes of 3.5.0 with one administrator and no databases.
pub(crate) fn nodes() -> Config {
    Config::new(&NODES)
}

/// A database without writes, with one range, three copies and `docs` documents.
pub(crate) fn small(name: &str, docs: u64) -> Database {
    Database { q: 1, docs, ..Database::new(name) }
}

/// The running parts of one process.
type Running = (
    ClusterMonitor,
    Option<takeover::TakeoverHandle>,
    Option<warmer::WarmerHandle>,
    TaskSet,
    CancellationToken,
);

impl Rig {
    /// A process on this cluster, logged in as its administrator.
    pub(crate) fn new(world: Config, yaml: &str) -> Self {
        Self::with_login(world, yaml, "admin", "secret")
    }

    /// A process on this cluster with this login.
    pub(crate) fn with_login(world: Config, yaml: &str, user: &str, password: &str) -> Self {
        let flags = login(urls_of(&world), user, password);
        Self::with_flags(world, yaml, flags)
    }

    /// A process on this cluster with these flags.
    pub(crate) fn with_flags(world: Config, yaml: &str, flags: Flags) -> Self {
        Self::beginning(START, world, yaml, flags, false)
    }

    /// The whole service in this mode, whatever the file says, from this moment on.
    pub(crate) fn in_mode(mode: Mode, start: Moment, world: Config, yaml: &str) -> Self {
        let flags = Flags { mode: Some(mode.label().to_owned()), ..urls_of(&world) };
        Self::beginning(start, world, yaml, login(flags, "admin", "secret"), true)
    }

    fn beginning(start: Moment, world: Config, yaml: &str, flags: Flags, whole: bool) -> Self {
        crate::watchdog::start();
        // The command installs this before anything else; a second installation has no effect.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let adjusted: &'static AdjustedClock =
            Box::leak(Box::new(AdjustedClock::starting_at(start)));
        let clock = Clock::Custom(adjusted);
        let cluster = Cluster::new(world, 1, clock).expect("the configuration is valid");
        let settings = load(&flags, yaml);
        let store = RecordingStore::of(&cluster);
        let ledger = InMemoryTakeoverStore::default();
        let whole = whole || settings.mode == Mode::Enforce;
        let earlier = EarlierProcess::default();
        let (watch, smoosh, warmer, tasks, stop) =
            run(&cluster, &settings, clock, &store, whole.then_some(&ledger), &earlier);
        let record = Record::beginning(start, &settings);
        Self {
            cluster,
            watch,
            store,
            smoosh,
            warmer,
            ledger,
            clock,
            adjusted,
            whole,
            settings,
            flags,
            tasks,
            stop,
            record,
            earlier,
        }
    }

    /// Reloads another configuration file.
    pub(crate) fn reconfigure(&mut self, yaml: &str) {
        let new = load(&self.flags, yaml);
        self.watch
            .reconfigure(&self.settings, &new, &mut self.tasks)
            .expect("the settings are valid");
        self.settings = new;
        self.record_life();
    }

    /// Kills the process and starts another one after this time.
    pub(crate) async fn kill_for(&mut self, span: Duration) {
        self.tasks = TaskSet::new();
        self.stop.cancel();
        time::sleep(span).await;
        self.start_again();
    }

    /// Kills the process and starts another one after this time, which finds the measurements that the archive
    /// stores after each sweep; meanwhile the clock is set by this many seconds.
    pub(crate) async fn kill_with_archive_for(&mut self, span: Duration, clock_set_by: i64) {
        let snapshot = self.watch.scanner.snapshots.borrow().clone();
        let numbers = 0..u32::try_from(snapshot.block_count()).expect("there are few");
        let blocks = numbers.map(|number| snapshot.build_block(number).compress()).collect();
        self.earlier = EarlierProcess { blocks, ..EarlierProcess::default() };
        self.shift_clock(clock_set_by);
        self.kill_for(span).await;
    }

    /// Stops the process and waits for its end.
    pub(crate) async fn stop(&mut self) {
        self.stop.cancel();
        let ended = async { while self.tasks.next_ended().await.is_some() {} };
        time::timeout(HOUR, ended).await.expect("it ends");
    }

    fn start_again(&mut self) {
        let ledger = self.whole.then_some(&self.ledger);
        (self.watch, self.smoosh, self.warmer, self.tasks, self.stop) =
            run(&self.cluster, &self.settings, self.clock, &self.store, ledger, &self.earlier);
        self.record_life();
    }

    fn record_life(&mut self) {
        let settings = self.settings.clone();
        self.record.lives.push(Life { from: self.cluster.elapsed(), settings });
    }

    /// Sets the process's clock forward or back by seconds. CouchDB's clocks are unchanged.
    pub(crate) fn shift_clock(&mut self, by: i64) {
        let sum = self.adjusted.seconds.fetch_add(by, Ordering::Relaxed) + by;
        self.record.clock.push((self.cluster.elapsed(), sum));
    }

    /// Releases every target that failed too often, as an operator would.
    pub(crate) async fn release_all(&mut self) {
        self.record.released.push(self.cluster.elapsed());
        self.watch.job_state.release(None).await.expect("the change is stored");
    }

    /// Lets time pass; the judge checks the plan each minute.
    pub(crate) async fn run_for(&mut self, span: Duration) {
        let end = Instant::now() + span;
        while Instant::now() < end {
            time::sleep_until(end.min(Instant::now() + LOOK)).await;
            let plan = Arc::clone(&self.watch.planner.plan.borrow());
            let undecided = judge::undecided(&plan);
            assert!(undecided.is_empty(), "\n{}", undecided.join("\n"));
        }
    }

    /// All evidence for the judge up to now.
    pub(crate) fn record(&self) -> Record {
        Record {
            orders: self.cluster.write_requests(),
            compactions: self.cluster.world(|world| world.compactions()),
            kept: self.store.entries(),
            now: self.cluster.elapsed(),
            ..self.record.clone()
        }
    }

    /// Adds a line to the timeline.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.record.notes.push((self.cluster.elapsed(), text.into()));
    }

    /// Adds to the timeline why targets are not started, with their numbers.
    pub(crate) fn note_refusals(&mut self) {
        let plan = Arc::clone(&self.watch.planner.plan.borrow());
        let mut refused: BTreeMap<String, u64> = BTreeMap::new();
        for (reason, count) in
            plan.decision_counts.iter().flat_map(|counts| counts.refusals_by_reason())
        {
            *refused.entry(reason.label().to_owned()).or_default() += count;
        }
        self.note_counts("refused", refused);
    }

    /// Adds to the timeline how jobs ended by the journal, with their numbers.
    pub(crate) fn note_outcomes(&mut self) {
        let mut ended: BTreeMap<String, u64> = BTreeMap::new();
        for outcome in self.store.kept().recent_outcomes {
            let what = format!("{} {}", outcome.owner.label(), outcome.ending.label());
            *ended.entry(what).or_default() += 1;
        }
        self.note_counts("ended", ended);
    }

    fn note_counts(&mut self, what: &str, counts: BTreeMap<String, u64>) {
        let all: Vec<String> = counts.iter().map(|(of, count)| format!("{of} {count}")).collect();
        let all = if all.is_empty() { "nothing".to_owned() } else { all.join(", ") };
        self.note(format!("{what}: {all}"));
    }

    /// Starts the task that works out advice, once.
    pub(crate) fn start_advice(&mut self) -> AdviceHandle {
        let settings = watch::channel(Arc::default()).1;
        let histories = watch::channel(Arc::default()).1;
        let (reads, failed) = (watch::channel(Arc::default()).1, watch::channel(Arc::default()).1);
        self.watch.start_advice(settings, (histories, reads, failed), &mut self.tasks)
    }

    /// Sweeps once more and returns the resulting plan.
    pub(crate) async fn sweep(&mut self) -> Arc<Plan> {
        let before = self.status().sweeps;
        assert_eq!(self.watch.scanner.send(ScanCommand::Sweep), None, "the scanner listens");
        self.until(|status| status.sweeps > before).await;
        self.planned().await
    }

    /// Waits until the scanner's status meets a condition.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&ScanStatus) -> bool) {
        let statuses = &mut self.watch.scanner.status;
        let waited = time::timeout(HOUR, statuses.wait_for(|status| wanted(status))).await;
        waited.expect("it comes within the hour").expect("the scanner lives");
    }

    /// The plan of the latest snapshot.
    pub(crate) async fn planned(&mut self) -> Arc<Plan> {
        let version = self.watch.scanner.snapshots.borrow().version();
        self.plan_where(|plan| plan.snapshot.version() >= version).await
    }

    /// The first plan from now on that meets a condition.
    pub(crate) async fn plan_where(&mut self, wanted: impl Fn(&Plan) -> bool) -> Arc<Plan> {
        let plan = time::timeout(HOUR, self.watch.planner.plan.wait_for(|plan| wanted(plan))).await;
        Arc::clone(&plan.expect("it comes within the hour").expect("the planner lives"))
    }

    pub(crate) fn status(&self) -> Arc<ScanStatus> {
        Arc::clone(&self.watch.scanner.status.borrow())
    }

    /// The errors so far, without their counts.
    pub(crate) fn errors(&self) -> Vec<(String, &'static str)> {
        self.status().errors.keys().map(|(node, reason)| (node.to_string(), *reason)).collect()
    }

    /// Requests whose path contains this text.
    pub(crate) fn asked(&self, part: &str) -> Vec<Exchange> {
        self.cluster
            .exchanges()
            .into_iter()
            .filter(|exchange| exchange.path.contains(part))
            .collect()
    }
}

/// The observing part of a service and, with a ledger, everything that measures and acts. In advise
/// mode the acting tasks run as well, and must do nothing.
fn run(
    cluster: &Cluster,
    settings: &Settings,
    clock: Clock,
    store: &RecordingStore,
    ledger: Option<&InMemoryTakeoverStore>,
    earlier: &EarlierProcess,
) -> Running {
    let (mut tasks, stop) = (TaskSet::new(), CancellationToken::new());
    let transport = Transport::in_process(cluster.by_host());
    let registry = prometheus::Registry::new();
    let recovered: RecoveredState = store.recovered(clock.now());
    let around = |_| Dependencies {
        state_store: Arc::new(store.clone()),
        recovery: recovered.into(),
        previous_facts: ready(earlier.clone()).boxed(),
        meter: ledger.map(|_| Arc::new(SimulatedDisks(cluster.clone())) as Arc<dyn SpaceMeter>),
        acts: ledger.is_some(),
        ..Dependencies::none()
    };
    let mut watch =
        ClusterMonitor::start(settings, transport, clock, &registry, &mut tasks, &stop, around)
            .expect("the settings are valid");
    watch.start_enforcer(&mut tasks);
    watch.start_scorecard(&mut tasks);
    let smoosh = ledger.map(|ledger| watch.start_takeover(Arc::new(ledger.clone()), &mut tasks));
    let warmer = ledger.map(|_| watch.start_warmer(None, 1, &mut tasks));
    (watch, smoosh, warmer, tasks, stop)
}

impl Rig {
    /// Follows feeds from now on, without a journal.
    pub(crate) fn follow_feeds(&mut self) -> feed_client::FeedClientHandle {
        self.watch.start_feed_client(None, &mut self.tasks)
    }

    /// Follows feeds from now on, with an in-memory journal.
    pub(crate) async fn follow_feeds_with_journal(
        &mut self,
    ) -> (feed_client::FeedClientHandle, Journal) {
        let settings = watch::channel(self.settings.journal).1;
        let (task, journal) = journal::JournalTask::open(InMemory::default(), self.clock, settings)
            .expect("an in-memory journal opens");
        let ended = self.stop.clone();
        self.tasks.spawn("journal", task.run(ended));
        let nodes = NODES.map(ToOwned::to_owned).into();
        journal
            .claim(ClusterIdentity { nodes, ..ClusterIdentity::default() })
            .await
            .expect("it is new");
        (self.watch.start_feed_client(Some(journal.clone()), &mut self.tasks), journal)
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
        if std::thread::panicking() {
            return;
        }
        let sent = self.cluster.exchanges();
        assert!(!sent.is_empty(), "some request was sent");
        if self.settings.mode == Mode::Advise {
            let other = self.cluster.write_requests();
            assert!(other.is_empty(), "advise mode only reads and logs in: {other:?}");
            return;
        }
        let breaches = judge::breaches(&self.record());
        assert!(breaches.is_empty(), "\n{}", breaches.join("\n"));
    }
}

fn login(flags: Flags, user: &str, password: &str) -> Flags {
    Flags { couchdb_username: Some(user.to_owned()), env_password: Some(password.into()), ..flags }
}

/// The nodes' addresses as flags of a process.
pub(crate) fn urls_of(world: &Config) -> Flags {
    let host = |name: &str| name.split_once('@').map_or(name, |(_, host)| host).to_owned();
    Flags {
        couchdb_urls: world
            .nodes
            .iter()
            .map(|node| format!("http://{}:5984", host(&node.name)))
            .collect(),
        ..Flags::default()
    }
}

fn load(flags: &Flags, yaml: &str) -> Settings {
    let file = config::File { name: Path::new("recliner.yml"), bytes: yaml.as_bytes() };
    match config::load(flags, Some(file)) {
        Ok(loaded) => loaded.settings,
        Err(problems) => panic!("the configuration is valid: {problems}"),
    }
}

/// The state and numbers of a db target; `None` is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Db {
    pub(crate) state: TargetState,
    pub(crate) sizes: Option<[u64; 3]>,
    pub(crate) seqs: Option<[u64; 2]>,
    pub(crate) docs: Option<[u64; 2]>,
    pub(crate) compact_running: bool,
}

impl Db {
    /// A copy of which only the state is known.
    pub(crate) const fn unmeasured(state: TargetState) -> Self {
        Self { state, sizes: None, seqs: None, docs: None, compact_running: false }
    }
}

fn sizes(facts: &Facts) -> Option<[u64; 3]> {
    Some([facts.file_bytes.get()?, facts.active_bytes.get()?, facts.external_bytes.get()?])
}

/// Every db target that recliner sees, by id.
pub(crate) fn dbs_seen(plan: &Plan) -> BTreeMap<String, Db> {
    let of = |target: TargetRef<'_>| {
        let facts = target.facts();
        let both = |one: Option<u64>, other: Option<u64>| Some([one?, other?]);
        Db {
            state: target.state(),
            sizes: sizes(&facts),
            seqs: both(facts.update_seq.get(), facts.compacted_seq.get()),
            docs: both(facts.docs.get(), facts.deleted_docs.get()),
            compact_running: facts.flags.compact_running,
        }
    };
    targets(plan, TargetKind::Db).map(|target| (target.id().to_string(), of(target))).collect()
}

/// Every file of every node in the simulated world, by target id. `state` gives the state of a
/// file.
pub(crate) fn dbs_there(
    cluster: &Cluster,
    state: impl Fn(&str, &str) -> TargetState,
) -> BTreeMap<String, Db> {
    cluster.world(|world| {
        let mut dbs = BTreeMap::new();
        for node in world.nodes() {
            for file in world.files(&node).expect("the node is known") {
                let state = state(&node, &file);
                if world.is_locked(&file) {
                    dbs.insert(db_id(&node, &file), Db::unmeasured(state));
                    continue;
                }
                let info = world.shard(&node, &file).expect("the file is there");
                let db = Db {
                    state,
                    sizes: Some([info.sizes.file, info.sizes.active, info.sizes.external]),
                    seqs: Some([info.update_seq, info.compacted_seq]),
                    docs: Some([info.doc_count, info.doc_del_count]),
                    compact_running: info.compact_running,
                };
                dbs.insert(db_id(&node, &file), db);
            }
        }
        dbs
    })
}

pub(crate) fn db_id(node: &str, file: &str) -> String {
    recliner::model::target::TargetId::Db { node: node.to_owned(), shard: file.to_owned() }
        .to_string()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViewLine {
    pub(crate) state: TargetState,
    pub(crate) designs: Vec<String>,
    pub(crate) exact: bool,
    pub(crate) copies: u32,
    pub(crate) sizes: Option<[u64; 3]>,
    pub(crate) pending: Option<u64>,
}

/// Every view target that recliner sees, by database and first design document.
pub(crate) fn views_seen(plan: &Plan) -> BTreeMap<(String, String), ViewLine> {
    targets(plan, TargetKind::View)
        .map(|target| {
            let view = target.view().expect("a view target has a view");
            let designs: Vec<String> = view.designs.iter().map(ToString::to_string).collect();
            let first = designs.first().cloned().unwrap_or_default();
            let line = ViewLine {
                state: target.state(),
                designs,
                exact: view.exact_range,
                copies: target.file_count(),
                sizes: sizes(&target.facts()),
                pending: target.facts().updates_pending.get(),
            };
            ((target.db_name().db.to_owned(), first), line)
        })
        .collect()
}

/// What recliner should see of a readable view: the copy on the range of its first design document,
/// on the first node by name.
pub(crate) fn view_there(cluster: &Cluster, db: &str, designs: &[&str]) -> ViewLine {
    cluster.world(|world| {
        let first = designs.first().expect("there is one");
        let name = first.strip_prefix("_design/").expect("the id begins with _design/");
        let range = world.range_of(db, first).expect("the database is there").to_string();
        let (mut copies, mut exact) = (0, None);
        for node in world.nodes() {
            for file in world.files(&node).expect("the node is known") {
                let Some(shard) = couchdb_names::ShardName::split(&file) else { continue };
                if shard.db == db {
                    copies += 1;
                    if shard.range.to_string() == range && exact.is_none() {
                        exact = world.view(&node, &file, name);
                    }
                }
            }
        }
        let exact = exact.expect("some node has the range");
        ViewLine {
            state: TargetState::Ok,
            designs: designs.iter().map(|id| (*id).to_owned()).collect(),
            exact: true,
            copies,
            sizes: Some([exact.sizes.file, exact.sizes.active, exact.sizes.external]),
            pending: Some(exact.pending),
        }
    })
}

pub(crate) fn targets(plan: &Plan, kind: TargetKind) -> impl Iterator<Item = TargetRef<'_>> {
    plan.snapshot.targets().filter(move |target| target.kind() == kind)
}

pub(crate) fn target<'a>(plan: &'a Plan, id: &str) -> Option<TargetRef<'a>> {
    plan.snapshot.targets().find(|target| target.id().to_string() == id)
}

pub(crate) fn node<'a>(plan: &'a Plan, name: &str) -> &'a Node {
    plan.snapshot.nodes().iter().find(|node| &*node.name == name).expect("the node is known")
}

/// The number of a channel's waiting targets on all nodes, and of its running ones.
pub(crate) fn queue(plan: &Plan, channel: &str) -> (usize, usize) {
    let of_channel = |at: usize| plan.channels.list.get(at).is_some_and(|it| *it.name == *channel);
    plan.queues.iter().filter(|queue| of_channel(queue.channel_index)).fold(
        (0, 0),
        |(waiting, active), queue| {
            (waiting + queue.queued().len() + queue.overflow, active + queue.active_jobs)
        },
    )
}
