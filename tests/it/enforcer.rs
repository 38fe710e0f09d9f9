//! Enforcing, over a simulated cluster on paused time: what is sent is judged from the wire
//! and from the world's truth.

use crate::support::{A, B, C, NODES, START, nodes, urls_of};
use recliner::{
    channel::{Channels, Mode},
    clock::Clock,
    couch::{self, Client, Login, Metrics, Transport},
    enforcer::{self, Hands},
    follower,
    inventory::{HttpSettings, HttpSource, Source},
    memory::{Ending, Fleeting, Ordered, Owner, Recovered, Scope, Trouble},
    plan::{Plan, Rules},
    planner, scanner,
    settings::{
        Nodes,
        limits::{Failure, Limits},
        work::EnforceViews,
    },
    sim::{Cluster, Config, Database, Design, Effect, Fault},
    target::{Kind, TargetId},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{sync::watch, task::JoinSet, time};
use tokio_util::sync::{CancellationToken, DropGuard};

const SECOND: Duration = Duration::from_secs(1);

/// The whole chain, wired by hand: client, scanner, follower, planner, enforcer.
struct Chain {
    follower: follower::Handle,
    planner: planner::Handle,
    _settings: Vec<Box<dyn std::any::Any>>,
    _tasks: JoinSet<()>,
    _stop: DropGuard,
}

#[derive(Clone)]
struct Wish {
    rules: Rules,
    failure: Failure,
    poll: Duration,
}

impl Default for Wish {
    fn default() -> Self {
        let limits = Limits { wait: Duration::ZERO, ..Limits::default() };
        let rules = Rules { mode: Mode::Enforce, limits, ..Rules::default() };
        Self { rules, failure: Failure::default(), poll: Duration::from_secs(5) }
    }
}

impl Chain {
    fn start(
        cluster: &Cluster,
        world: &Config,
        clock: Clock,
        wish: &Wish,
        keeper: &Fleeting,
        recovered: Recovered,
    ) -> Self {
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let urls = urls_of(world)
            .couchdb_urls
            .iter()
            .map(|url| url.parse().expect("an address"))
            .collect();
        let mut couchdb = couch::Settings::new(urls);
        couchdb.login = Login::password("admin", "secret").expect("a login");
        let transport = Transport::InProcess(cluster.by_host());
        let metrics = Metrics::register(&prometheus::Registry::new()).expect("the registry is new");
        let (client, task) =
            Client::connect(couchdb, transport, metrics).expect("the settings are sound");
        tasks.spawn(task.run(stop.clone()));

        let http = HttpSettings {
            requests_in_flight: 8,
            languages: vec!["javascript".into()],
            named: vec![],
        };
        let source: Arc<dyn Source> = Arc::new(HttpSource::new(client.clone(), clock, http));
        let (source_tx, source) = watch::channel(source);
        let scan = scanner::Settings {
            interval: Duration::from_secs(300),
            poll: wish.poll,
            nodes: Nodes::All,
            views: true,
            top: 5,
        };
        let (scan_tx, scan) = watch::channel(Arc::new(scan));
        let (task, scanner) = scanner::Task::new(clock, source.clone(), scan);
        tasks.spawn(task.run(stop.clone()));

        let channels: Arc<Channels> = Arc::new(enforcing());
        let settings = follower::Settings {
            failure: wish.failure,
            headroom_factor: wish.rules.headroom.factor,
            channels: Arc::clone(&channels),
            acting: wish.rules.mode == Mode::Enforce,
        };
        let (follow_tx, follow) = watch::channel(Arc::new(settings));
        let (task, follower) =
            follower::Task::new(clock, scanner.clone(), follow, Arc::new(keeper.clone()));
        tasks.spawn(task.run(std::future::ready(Some(recovered)), stop.clone()));

        let settings = planner::Settings { channels, rules: wish.rules.clone() };
        let (plan_tx, plan) = watch::channel(Arc::new(settings));
        let inputs = planner::Inputs {
            jobs: follower.jobs.clone(),
            history: follower.history.clone(),
            ..planner::Inputs::facts_only(scanner.snapshots.clone())
        };
        let (task, planner) = planner::Task::new(clock, inputs, plan);
        tasks.spawn(task.run(stop.clone()));

        let hands: Arc<dyn Hands> = Arc::new(client);
        let (hands_tx, hands) = watch::channel(hands);
        let inputs = enforcer::Inputs {
            plans: planner.plan.clone(),
            source,
            hands,
            follower: follower.clone(),
            scanner,
        };
        tasks.spawn(enforcer::Task::new(clock, inputs).run(stop.clone()));
        Self {
            follower,
            planner,
            _settings: vec![
                Box::new(source_tx),
                Box::new(scan_tx),
                Box::new(follow_tx),
                Box::new(plan_tx),
                Box::new(hands_tx),
            ],
            _tasks: tasks,
            _stop: stop.drop_guard(),
        }
    }

    /// Orders the first file of a database, by force, for ten minutes; answers which.
    async fn order(&self, db: &str, clock: Clock) -> TargetId {
        let plan = self.plan();
        let mut targets = plan.snapshot.targets();
        let found = targets.find(|it| it.kind() == Kind::Db && it.db_name().db == db);
        let id = found.expect("it was seen").id();
        let (at, until) = (clock.now(), clock.now().plus(600 * SECOND));
        let ordered = Ordered { at, until, by: "ann".into(), force: true };
        self.follower.order(id.clone(), ordered).await.expect("it is kept");
        id
    }

    fn plan(&self) -> Arc<Plan> {
        Arc::clone(&self.planner.plan.borrow())
    }
}

/// smoosh's seven channels, each enforcing.
fn enforcing() -> Channels {
    let mut channels = Channels::default();
    for channel in &mut channels.list {
        channel.mode = Mode::Enforce;
        channel.min_changes = 0;
    }
    channels
}

/// A cluster, and what was seen of it each second.
struct Scene {
    world: Config,
    cluster: Cluster,
    clock: Clock,
    keeper: Fleeting,
    /// The most compactions that ran on one node at a time, and in the cluster.
    most: (usize, usize),
}

impl Scene {
    fn new(world: Config) -> Self {
        let clock = Clock::anchored(START);
        let cluster = Cluster::new(world.clone(), 1, clock).expect("the cluster is sound");
        Self { world, cluster, clock, keeper: Fleeting::default(), most: (0, 0) }
    }

    fn chain(&self, wish: &Wish) -> Chain {
        let recovered = self.keeper.kept();
        let keeper = &self.keeper;
        Chain::start(&self.cluster, &self.world, self.clock, wish, keeper, recovered)
    }

    /// Lets time pass and watches.
    async fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            time::sleep(SECOND).await;
            let tasks = self.cluster.world(|world| world.tasks());
            let mut nodes: BTreeMap<&str, usize> = BTreeMap::new();
            for task in tasks
                .iter()
                .filter(|task| !matches!(task.kind, recliner::sim::TaskKind::Indexer { .. }))
            {
                *nodes.entry(&task.node).or_default() += 1;
            }
            self.most.0 = self.most.0.max(nodes.values().copied().max().unwrap_or_default());
            self.most.1 = self.most.1.max(nodes.values().sum());
        }
    }

    /// Paths that were sent by POST and their number, but for logins.
    fn posts(&self) -> BTreeMap<String, usize> {
        let mut posts = BTreeMap::new();
        for exchange in self.cluster.orders() {
            *posts.entry(exchange.path).or_default() += 1;
        }
        posts
    }

    /// Endings of what this program started, and of what others did.
    fn endings(&self) -> Vec<(Kind, Owner, Ending)> {
        let kept = self.keeper.kept();
        kept.recent.iter().map(|outcome| (outcome.kind, outcome.owner, outcome.ending)).collect()
    }
}

/// Two ranges, two copies of each, nine tenths of every file slack: 20 MB active a file.
fn bloated(name: &str) -> Database {
    Database { q: 2, n: 2, docs: 40_000, doc_bytes: 1_000, bloat: 10.0, ..Database::new(name) }
}

/// Compactions of some tens of seconds.
fn slow(world: Config) -> Config {
    Config { compaction_rate: 1_000_000, ..world }
}

#[tokio::test(start_paused = true)]
async fn what_is_bloated_is_compacted_once_within_the_limits_and_remembered() {
    let world = slow(nodes().with(bloated("orders")).with(bloated("users")));
    let mut scene = Scene::new(world);
    let chain = scene.chain(&Wish::default());
    scene.pass(1_200).await;

    let posts = scene.posts();
    let compacts = posts.keys().filter(|path| path.ends_with("/_compact")).count();
    assert_eq!((compacts, posts.len()), (8, 8), "each copy, and nothing else: {posts:#?}");
    assert!(posts.values().all(|count| *count == 1), "once each: {posts:#?}");
    assert!(posts.keys().all(|path| path.starts_with("/_node/couchdb@sim")), "{posts:#?}");
    assert!(scene.most.0 <= 2 && scene.most.1 <= 8, "{:?}", scene.most);
    assert_eq!(scene.endings(), vec![(Kind::Db, Owner::Recliner, Ending::Freed); 8]);
    let kept = scene.keeper.kept();
    assert_eq!(kept.intents, []);
    assert!(kept.remembered.is_empty(), "{:?}", kept.remembered);
    assert!(
        kept.calibration.rate.is_some_and(|rate| (5e5..2e6).contains(&rate)),
        "{:?}",
        kept.calibration
    );
    for outcome in &kept.recent {
        let after = outcome.after_bytes.unwrap();
        let promised = outcome.predicted_bytes.unwrap();
        assert!(after.abs_diff(promised) * 4 < promised, "{after} and not {promised}");
    }
    let counts = chain.follower.counts.borrow().clone();
    assert_eq!(counts.started.values().sum::<u64>(), 8);
    assert_eq!(counts.finished.values().sum::<u64>(), 8);
    assert!(counts.reclaimed.values().sum::<u64>() > 8 * 100_000_000);
    assert_eq!(chain.follower.jobs.borrow().list, []);
}

#[tokio::test(start_paused = true)]
async fn advise_sends_nothing_but_questions() {
    let mut scene = Scene::new(slow(nodes().with(bloated("orders"))));
    let mut wish = Wish::default();
    wish.rules.mode = Mode::Advise;
    let chain = scene.chain(&wish);
    scene.pass(900).await;
    assert!(!chain.plan().starts.is_empty(), "it says what it would start");
    assert_eq!(scene.posts(), BTreeMap::new());
    assert_eq!(scene.most, (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_at_any_moment_leaves_nothing_that_is_started_twice() {
    for lives in [[11, 13, 17], [40, 3, 29], [7, 60, 5]] {
        let mut scene = Scene::new(slow(nodes().with(bloated("orders"))));
        for seconds in lives {
            let chain = scene.chain(&Wish::default());
            scene.pass(seconds).await;
            drop(chain);
        }
        let chain = scene.chain(&Wish::default());
        scene.pass(1_200).await;
        let posts = scene.posts();
        assert_eq!(posts.len(), 4, "{posts:#?}");
        assert!(posts.values().all(|count| *count == 1), "{lives:?}: {posts:#?}");
        let kept = scene.keeper.kept();
        assert_eq!(kept.intents, [], "every start has its outcome");
        let endings = scene.endings();
        assert_eq!(endings, vec![(Kind::Db, Owner::Recliner, Ending::Freed); 4], "{lives:?}");
        drop(chain);
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_journal_cannot_be_written_nothing_is_started() {
    let mut scene = Scene::new(slow(nodes().with(bloated("orders"))));
    scene.keeper.fails(Some(Trouble("the disk is full".into())));
    let chain = scene.chain(&Wish::default());
    scene.pass(300).await;
    assert_eq!(scene.posts(), BTreeMap::new());
    let trouble = chain.follower.history.borrow().journal_trouble.clone();
    assert!(trouble.is_some_and(|(_, why)| why.contains("full")));
    scene.keeper.fails(None);
    scene.pass(900).await;
    assert_eq!(scene.posts().len(), 4, "it goes on by itself");
    assert_eq!(chain.follower.history.borrow().journal_trouble, None);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_makes_no_storm() {
    let database = Database { q: 1, n: 1, placed_on: vec![A.into()], ..bloated("orders") };
    let mut scene = Scene::new(slow(nodes().with(database)));
    scene.cluster.faults().full_disk(A, true);
    let chain = scene.chain(&Wish::default());
    scene.pass(3_000).await;
    let posts: usize = scene.posts().values().sum();
    // At once, after ten minutes, after twenty more.
    assert_eq!(posts, 3, "{:#?}", scene.posts());
    assert!(
        scene.endings().iter().all(|(.., ending)| *ending == Ending::Failed),
        "{:?}",
        scene.endings()
    );
    scene.cluster.faults().full_disk(A, false);
    scene.pass(3_000).await;
    assert_eq!(scene.endings().last(), Some(&(Kind::Db, Owner::Recliner, Ending::Freed)));
    assert_eq!(chain.follower.history.borrow().rests.len(), 0, "a success forgets the failures");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_goes_down_takes_its_jobs_along_and_they_are_not_taken_for_done() {
    let database =
        Database { q: 1, n: 1, placed_on: vec![B.into()], docs: 80_000, ..bloated("orders") };
    let mut scene = Scene::new(slow(nodes().with(database)));
    let chain = scene.chain(&Wish::default());
    scene.pass(30).await;
    assert_eq!(chain.follower.jobs.borrow().list.len(), 1);
    scene.cluster.faults().down(B);
    scene.pass(60).await;
    assert_eq!(scene.endings(), [], "silence ends nothing");
    scene.cluster.faults().up(B);
    scene.pass(60).await;
    assert_eq!(scene.endings(), [(Kind::Db, Owner::Recliner, Ending::Failed)]);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_answer_is_lost_is_not_sent_again() {
    let database = Database { q: 1, n: 1, placed_on: vec![A.into()], ..bloated("orders") };
    let mut scene = Scene::new(slow(nodes().with(database)));
    let post = Fault { method: Some(http::Method::POST), ..Fault::everywhere(Effect::HalfBody) };
    scene.cluster.faults().plan(post.at("/_compact").times(1));
    let _chain = scene.chain(&Wish::default());
    scene.pass(300).await;
    assert_eq!(scene.posts().values().sum::<usize>(), 1, "{:#?}", scene.posts());
    assert_eq!(scene.endings(), [(Kind::Db, Owner::Recliner, Ending::Freed)]);
}

#[tokio::test(start_paused = true)]
async fn jobs_of_others_are_followed_too() {
    let mut scene = Scene::new(slow(nodes().with(bloated("orders"))));
    let mut wish = Wish::default();
    wish.rules.mode = Mode::Advise;
    let chain = scene.chain(&wish);
    scene.pass(10).await;
    let snapshot = Arc::clone(&chain.plan().snapshot);
    let mut targets = snapshot.targets().filter(|it| it.node() == C && it.db_name().db == "orders");
    let file = targets.find_map(|target| target.shard_name()).expect("one lies there");
    scene.cluster.world(|world| world.compact(C, &file)).unwrap();
    scene.pass(10).await;
    let jobs = chain.follower.jobs.borrow().clone();
    let [job] = jobs.list.as_slice() else { panic!("{jobs:?}") };
    assert_eq!((&*job.key.shard, job.owner), (file.as_str(), Owner::Other));
    assert!(job.progress.is_some_and(|share| share > 0.0) && job.reserved > 0);
    scene.pass(120).await;
    assert_eq!(scene.endings(), [(Kind::Db, Owner::Other, Ending::Freed)]);
    assert_eq!(chain.follower.counts.borrow().finished.len(), 0, "it was not ours");
}

#[tokio::test(start_paused = true)]
async fn what_ran_before_the_process_began_counts_from_the_first_start_on() {
    // Lean, so that no queue has it: only the node's tasks say that it is compacted.
    let created = Some(START);
    let one = |name: &str, at: &str| Database {
        q: 1,
        n: 1,
        placed_on: vec![at.to_owned()],
        created,
        ..bloated(name)
    };
    let lean = Database { bloat: 1.0, docs: 80_000, ..one("lean", A) };
    let mut scene = Scene::new(slow(nodes().with(lean).with(one("orders", B))));
    let file = format!("shards/00000000-ffffffff/lean.{}", START.unix());
    assert_eq!(scene.cluster.world(|world| world.compact(A, &file)), Ok(true));
    let mut wish = Wish::default();
    wish.rules.limits.cluster = 1;
    let _chain = scene.chain(&wish);
    scene.pass(30).await;
    assert_eq!(scene.posts(), BTreeMap::new(), "one in the cluster is what may run");
    scene.pass(300).await;
    assert_eq!(scene.posts().len(), 1);
    assert_eq!(scene.most.1, 1);
}

#[tokio::test(start_paused = true)]
async fn a_view_of_one_range_is_compacted_copy_by_copy() {
    let design = Design { bytes_per_doc: 1_000, bloat: 8.0, ..Design::new("by_date") };
    let database = Database {
        q: 1,
        n: 3,
        docs: 20_000,
        bloat: 1.0,
        designs: vec![design],
        ..Database::new("orders")
    };
    let mut scene = Scene::new(slow(nodes().with(database)));
    let chain = scene.chain(&Wish::default());
    scene.pass(600).await;
    let posts = scene.posts();
    assert_eq!(posts.len(), 3, "{posts:#?}");
    for node in NODES {
        let one = posts.keys().filter(|path| path.starts_with(&format!("/_node/{node}/")));
        assert!(one.clone().all(|path| path.ends_with("/_compact/by_date")), "{posts:#?}");
        assert_eq!(one.count(), 1, "{posts:#?}");
    }
    let known: Vec<bool> =
        scene.keeper.kept().recent.iter().map(|it| it.after_bytes.is_some()).collect();
    assert_eq!(known.iter().filter(|known| **known).count(), 1, "one copy shows its size");
    assert!(chain.follower.history.borrow().rounds.is_empty(), "the round is over");
}

#[tokio::test(start_paused = true)]
async fn a_whole_design_document_is_one_request_and_one_outcome() {
    let design = Design { bytes_per_doc: 1_000, bloat: 8.0, ..Design::new("by_date") };
    let database = Database {
        q: 2,
        n: 2,
        docs: 20_000,
        bloat: 1.0,
        designs: vec![design],
        ..Database::new("orders")
    };
    let mut scene = Scene::new(slow(nodes().with(database)));
    let mut wish = Wish::default();
    wish.rules.views = EnforceViews::All;
    let chain = scene.chain(&wish);
    scene.pass(600).await;
    let posts = scene.posts();
    assert_eq!(posts.into_iter().collect::<Vec<_>>(), [("/orders/_compact/by_date".to_owned(), 1)]);
    assert_eq!(scene.endings(), [(Kind::View, Owner::Recliner, Ending::Freed)]);
    assert_eq!(chain.follower.jobs.borrow().list, []);
}

#[tokio::test(start_paused = true)]
async fn what_is_suspended_starts_nothing_until_it_is_resumed_by_another_process() {
    let mut scene = Scene::new(slow(nodes().with(bloated("orders"))));
    let chain = scene.chain(&Wish::default());
    chain.follower.suspend(Scope::All, Some("backup".into())).await.unwrap();
    scene.pass(300).await;
    drop(chain);
    assert_eq!(scene.posts(), BTreeMap::new());
    let chain = scene.chain(&Wish::default());
    scene.pass(300).await;
    assert_eq!(scene.posts(), BTreeMap::new(), "it survives a restart");
    chain.follower.resume(Scope::All).await.unwrap();
    scene.pass(600).await;
    assert_eq!(scene.posts().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_node_in_maintenance_is_left_alone() {
    let database = Database { q: 1, n: 1, placed_on: vec![A.into()], ..bloated("orders") };
    let mut scene = Scene::new(slow(nodes().with(database)));
    scene.cluster.faults().maintenance(A, true);
    let _chain = scene.chain(&Wish::default());
    scene.pass(600).await;
    assert_eq!(scene.posts(), BTreeMap::new());
    scene.cluster.faults().maintenance(A, false);
    scene.pass(300).await;
    assert_eq!(scene.posts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn each_node_is_asked_for_its_tasks_once_a_poll_and_once_a_start() {
    let mut scene = Scene::new(slow(nodes().with(bloated("orders"))));
    let _chain = scene.chain(&Wish::default());
    scene.pass(300).await;
    let wire = scene.cluster.wire();
    let asked = wire.iter().filter(|it| it.path.ends_with("/_active_tasks")).count();
    let starts: usize = scene.posts().values().sum();
    assert!(asked <= 3 * 61 + starts, "{asked} questions for {starts} starts");
}

/// Nothing of it is worth a compaction.
fn lean(name: &str) -> Database {
    Database { bloat: 1.0, ..bloated(name) }
}

#[tokio::test(start_paused = true)]
async fn what_was_ordered_is_compacted_once_though_no_channel_takes_it() {
    let mut scene = Scene::new(slow(nodes().with(lean("orders"))));
    let chain = scene.chain(&Wish::default());
    scene.pass(60).await;
    assert_eq!(scene.posts(), BTreeMap::new());
    let id = chain.order("orders", scene.clock).await;
    scene.pass(300).await;
    let posts = scene.posts();
    assert_eq!(posts.values().copied().collect::<Vec<_>>(), [1], "{posts:#?}");
    let kept = scene.keeper.kept();
    let [outcome] = kept.recent.as_slice() else { panic!("{kept:?}") };
    assert_eq!((&outcome.target, outcome.ordered_by.as_deref()), (&id, Some("ann")));
    assert!(chain.follower.history.borrow().orders.is_empty(), "it is done");
    assert!(kept.remembered.values().all(|it| it.ordered.is_none()), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn an_order_waits_over_a_restart_and_lapses_when_its_time_is_over() {
    let mut scene = Scene::new(slow(nodes().with(lean("orders"))));
    let chain = scene.chain(&Wish::default());
    scene.pass(60).await;
    chain.follower.suspend(Scope::All, None).await.unwrap();
    let id = chain.order("orders", scene.clock).await;
    scene.pass(60).await;
    drop(chain);
    let chain = scene.chain(&Wish::default());
    scene.pass(60).await;
    let orders = chain.follower.history.borrow().orders.clone();
    assert_eq!(orders.values().map(|it| it.by.as_str()).collect::<Vec<_>>(), ["ann"]);
    assert!(scene.keeper.kept().remembered.contains_key(&id));
    scene.pass(600).await;
    assert!(scene.keeper.kept().remembered.is_empty(), "nobody waits for it any more");
    chain.follower.resume(Scope::All).await.unwrap();
    scene.pass(300).await;
    assert_eq!(scene.posts(), BTreeMap::new());
}
