//! What the end-to-end tests share: recliner over a simulated cluster on paused time, and
//! the world's truth in the form in which recliner tells it.
//!
//! Owns no expectation of its own but one: whatever a test does, advise sends nothing but GET
//! and its login, and enforce keeps every law of [`crate::scenario::judge`].

use crate::scenario::judge;
use recliner::{
    channel::Mode,
    clock::{Clock, Moment},
    config::{self, Flags},
    couch::Transport,
    facts::Facts,
    plan::Plan,
    scanner::{Command, Status},
    service::{Surroundings, Tasks, Watch},
    settings::Settings,
    sim::{Cluster, Config, Database, Disks, Exchange},
    snapshot::{Node, TargetRef},
    target::{Kind, State},
};
use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};
use tokio::time;
use tokio_util::sync::CancellationToken;

pub(crate) const A: &str = "couchdb@sim-1.local";
pub(crate) const B: &str = "couchdb@sim-2.local";
pub(crate) const C: &str = "couchdb@sim-3.local";
pub(crate) const NODES: [&str; 3] = [A, B, C];

/// Wall time at the start of every test.
pub(crate) const START: Moment = Moment::from_unix(1_795_230_000);

/// Sweeps when told, and not while a test looks away.
pub(crate) const ON_DEMAND: &str = "scan: {interval: 24h}\n";

/// An hour of paused time: longer than anything that ends.
const HOUR: Duration = Duration::from_secs(3_600);

/// Client, scanner and planner over a simulated cluster.
pub(crate) struct Rig {
    pub(crate) cluster: Cluster,
    pub(crate) watch: Watch,
    settings: Settings,
    flags: Flags,
    tasks: Tasks,
    stop: CancellationToken,
}

/// Three nodes of 3.5.0 with one administrator and no databases.
pub(crate) fn nodes() -> Config {
    Config::new(&NODES)
}

/// A quiet database of one range, three copies, and as many documents.
pub(crate) fn small(name: &str, docs: u64) -> Database {
    Database { q: 1, docs, ..Database::new(name) }
}

impl Rig {
    /// Over a cluster like this, as its administrator.
    pub(crate) fn new(world: Config, yaml: &str) -> Self {
        Self::with_login(world, yaml, "admin", "secret")
    }

    /// The same with another login.
    pub(crate) fn with_login(world: Config, yaml: &str, user: &str, password: &str) -> Self {
        let flags = Flags {
            couchdb_username: Some(user.to_owned()),
            env_password: Some(password.into()),
            ..urls_of(&world)
        };
        Self::with_flags(world, yaml, flags)
    }

    /// The same with flags of one's own.
    pub(crate) fn with_flags(world: Config, yaml: &str, flags: Flags) -> Self {
        // What the command installs before anything else; a second time does nothing.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let clock = Clock::anchored(START);
        let cluster = Cluster::new(world, 1, clock).expect("the cluster is sound");
        let settings = load(&flags, yaml);
        let (mut tasks, stop) = (Tasks::new(), CancellationToken::new());
        let transport = Transport::InProcess(cluster.by_host());
        let registry = prometheus::Registry::new();
        let enforces = settings.mode == Mode::Enforce;
        let around = |_: &_| {
            if enforces {
                Surroundings::fleeting(Arc::new(Disks(cluster.clone())))
            } else {
                Surroundings::none()
            }
        };
        let watch = Watch::start(&settings, transport, clock, &registry, &mut tasks, &stop, around)
            .expect("the settings are sound");
        // In advise it is there as well, and must do nothing.
        watch.enforce(&mut tasks);
        Self { cluster, watch, settings, flags, tasks, stop }
    }

    /// Takes over another configuration file.
    pub(crate) fn reconfigure(&mut self, yaml: &str) {
        let new = load(&self.flags, yaml);
        self.watch
            .reconfigure(&self.settings, &new, &mut self.tasks)
            .expect("the settings are sound");
        self.settings = new;
    }

    /// Sweeps once more and answers with the plan that follows from it.
    pub(crate) async fn sweep(&mut self) -> Arc<Plan> {
        let before = self.status().sweeps;
        assert_eq!(self.watch.scanner.send(Command::Sweep), None, "the scanner listens");
        self.until(|status| status.sweeps > before).await;
        self.planned().await
    }

    /// Waits for what the scanner says of itself.
    pub(crate) async fn until(&mut self, wanted: impl Fn(&Status) -> bool) {
        let statuses = &mut self.watch.scanner.status;
        let waited = time::timeout(HOUR, statuses.wait_for(|status| wanted(status))).await;
        waited.expect("it comes within the hour").expect("the scanner lives");
    }

    /// The plan of the latest snapshot.
    pub(crate) async fn planned(&mut self) -> Arc<Plan> {
        let version = self.watch.scanner.snapshots.borrow().version();
        self.plan_where(|plan| plan.snapshot.version() >= version).await
    }

    /// The first plan from now on that is as wanted.
    pub(crate) async fn plan_where(&mut self, wanted: impl Fn(&Plan) -> bool) -> Arc<Plan> {
        let plan = time::timeout(HOUR, self.watch.planner.plan.wait_for(|plan| wanted(plan))).await;
        Arc::clone(&plan.expect("it comes within the hour").expect("the planner lives"))
    }

    pub(crate) fn status(&self) -> Arc<Status> {
        Arc::clone(&self.watch.scanner.status.borrow())
    }

    /// Errors so far, without their numbers.
    pub(crate) fn errors(&self) -> Vec<(String, &'static str)> {
        self.status().errors.keys().map(|(node, reason)| (node.to_string(), *reason)).collect()
    }

    /// What was asked whose path contains this.
    pub(crate) fn asked(&self, part: &str) -> Vec<Exchange> {
        self.cluster.wire().into_iter().filter(|exchange| exchange.path.contains(part)).collect()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.stop.cancel();
        if std::thread::panicking() {
            return;
        }
        let sent = self.cluster.wire();
        assert!(!sent.is_empty(), "something was asked");
        if self.settings.mode == Mode::Advise {
            let other = self.cluster.orders();
            assert!(other.is_empty(), "advise reads and logs in, no more: {other:?}");
            return;
        }
        let breaches = judge::breaches(&self.cluster, &self.settings);
        assert!(breaches.is_empty(), "\n{}", breaches.join("\n"));
    }
}

/// The nodes' addresses, as a process is given them.
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
        Err(problems) => panic!("the configuration is sound: {problems}"),
    }
}

/// A db target's state and numbers; unknown is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Db {
    pub(crate) state: State,
    pub(crate) sizes: Option<[u64; 3]>,
    pub(crate) seqs: Option<[u64; 2]>,
    pub(crate) docs: Option<[u64; 2]>,
    pub(crate) compact_running: bool,
}

impl Db {
    /// A copy of which only the state can be known.
    pub(crate) const fn unmeasured(state: State) -> Self {
        Self { state, sizes: None, seqs: None, docs: None, compact_running: false }
    }
}

fn sizes(facts: &Facts) -> Option<[u64; 3]> {
    Some([facts.file.get()?, facts.active.get()?, facts.external.get()?])
}

/// Every db target as recliner sees it, by id.
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
    targets(plan, Kind::Db).map(|target| (target.id().to_string(), of(target))).collect()
}

/// Every file of every node as the world knows it, by the id of its target. `state` says
/// how a file stands to the shard map.
pub(crate) fn dbs_there(
    cluster: &Cluster,
    state: impl Fn(&str, &str) -> State,
) -> BTreeMap<String, Db> {
    cluster.world(|world| {
        let mut dbs = BTreeMap::new();
        for node in world.nodes() {
            for file in world.files(&node).expect("the node is known") {
                let info = world.shard(&node, &file).expect("the file is there");
                let db = Db {
                    state: state(&node, &file),
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

/// The id of a db target.
pub(crate) fn db_id(node: &str, file: &str) -> String {
    recliner::target::TargetId::Db { node: node.to_owned(), shard: file.to_owned() }.to_string()
}

/// A view target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ViewLine {
    pub(crate) state: State,
    pub(crate) designs: Vec<String>,
    pub(crate) exact: bool,
    pub(crate) copies: u32,
    pub(crate) sizes: Option<[u64; 3]>,
    pub(crate) pending: Option<u64>,
}

/// Every view target as recliner sees it, by database and first design document.
pub(crate) fn views_seen(plan: &Plan) -> BTreeMap<(String, String), ViewLine> {
    targets(plan, Kind::View)
        .map(|target| {
            let view = target.view().expect("a view target has a view");
            let designs: Vec<String> = view.designs.iter().map(ToString::to_string).collect();
            let first = designs.first().cloned().unwrap_or_default();
            let line = ViewLine {
                state: target.state(),
                designs,
                exact: view.exact_range,
                copies: target.copies(),
                sizes: sizes(&target.facts()),
                pending: target.facts().updates_pending.get(),
            };
            ((target.db_name().db.to_owned(), first), line)
        })
        .collect()
}

/// What recliner should see of a view that can be asked for: the copy on the range of its
/// first design document, on the first node by name.
pub(crate) fn view_there(cluster: &Cluster, db: &str, designs: &[&str]) -> ViewLine {
    cluster.world(|world| {
        let first = designs.first().expect("there is one");
        let name = first.strip_prefix("_design/").expect("it is an id");
        let range = world.range_of(db, first).expect("the database is there").to_string();
        let (mut copies, mut exact) = (0, None);
        for node in world.nodes() {
            for file in world.files(&node).expect("the node is known") {
                let Some(shard) = recliner::target::ShardName::split(&file) else { continue };
                if shard.db == db {
                    copies += 1;
                    if shard.range.to_string() == range && exact.is_none() {
                        exact = world.view(&node, &file, name);
                    }
                }
            }
        }
        let exact = exact.expect("some node holds it");
        ViewLine {
            state: State::Ok,
            designs: designs.iter().map(|id| (*id).to_owned()).collect(),
            exact: true,
            copies,
            sizes: Some([exact.sizes.file, exact.sizes.active, exact.sizes.external]),
            pending: Some(exact.pending),
        }
    })
}

/// The targets of a kind.
pub(crate) fn targets(plan: &Plan, kind: Kind) -> impl Iterator<Item = TargetRef<'_>> {
    plan.snapshot.targets().filter(move |target| target.kind() == kind)
}

/// The target of this id.
pub(crate) fn target<'a>(plan: &'a Plan, id: &str) -> Option<TargetRef<'a>> {
    plan.snapshot.targets().find(|target| target.id().to_string() == id)
}

/// The node of this name.
pub(crate) fn node<'a>(plan: &'a Plan, name: &str) -> &'a Node {
    plan.snapshot.nodes().iter().find(|node| &*node.name == name).expect("the node is known")
}

/// Targets that wait in a channel over all nodes, and those it takes that run.
pub(crate) fn queue(plan: &Plan, channel: &str) -> (usize, usize) {
    let of_channel = |at: usize| plan.channels.list.get(at).is_some_and(|it| *it.name == *channel);
    plan.queues.iter().filter(|queue| of_channel(queue.channel)).fold(
        (0, 0),
        |(waiting, active), queue| {
            (waiting + queue.waiting.len() + queue.overflow, active + queue.active)
        },
    )
}
