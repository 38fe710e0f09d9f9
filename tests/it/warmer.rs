//! The warmer over a simulated cluster on paused time: its requests are judged from the wire, and
//! their effect by the world's true state.

mod search;

use crate::support::{A, B, NODES, Rig, START, nodes, small};
use couchdb_sim::{Config, Database, Design, Effect, Fault};
use recliner::{
    act::warmer::{BuildClass, BuildRefusal, BuildResult, BuildStatus, IndexBuilds, LaggingIndex},
    model::channel::Mode,
};
use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Sweeps every minute, and no compactions.
const YAML: &str = "channels: []\nscan: {interval: 1m, fresh_for: 5m}\nwarmer: {enabled: true}\n";

/// A database whose index has processed half of its documents, as after a node's restart: CouchDB's
/// ken does not build it before the next write.
fn lagging(name: &str) -> Database {
    let design = Design { built: 0.5, views: vec!["by_date".into()], ..Design::new("x") };
    Database { designs: vec![design], ..small(name, 40_000) }
}

fn warming(world: Config) -> Rig {
    Rig::in_mode(Mode::Enforce, START, world, YAML)
}

impl Rig {
    fn builds(&self) -> Arc<IndexBuilds> {
        Arc::clone(&self.warmer.as_ref().expect("it runs").builds.borrow())
    }

    fn line(&self, db: &str) -> Option<LaggingIndex> {
        self.builds().indexes.iter().find(|line| line.db == db).cloned()
    }

    /// The paths of queries that build an index.
    fn queries(&self) -> Vec<String> {
        self.cluster.write_requests().into_iter().map(|order| order.path).collect()
    }

    /// The sequences that each copy of a database's index has not processed.
    fn pending(&self, db: &str) -> Vec<u64> {
        self.cluster.world(|world| {
            let files = |node: &str| {
                let files = world.files(node).expect("the node is known");
                let of = move |file: &String| file.contains(&format!("/{db}."));
                files.into_iter().filter(of).collect::<Vec<_>>()
            };
            let copies =
                NODES.iter().flat_map(|node| files(node).into_iter().map(move |file| (node, file)));
            copies.filter_map(|(node, file)| Some(world.view(node, &file, "x")?.pending)).collect()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn index_lagging_past_the_grace_period_is_built_once() {
    let mut rig = warming(nodes().with(lagging("orders")));
    rig.run_for(MINUTE).await;
    assert_eq!(rig.line("orders").unwrap().status, BuildStatus::Waiting(BuildRefusal::Grace));
    assert_eq!(rig.queries(), [""; 0]);
    rig.run_for(5 * MINUTE).await;
    assert_eq!(rig.queries(), ["/orders/_design/x/_view/by_date?limit=0&update=lazy"]);
    assert_eq!(rig.pending("orders"), [0, 0, 0]);
    let builds = rig.builds();
    assert_eq!(builds.started, [(BuildClass::Batch, 1)].into());
    assert_eq!(builds.finished, [((BuildClass::Batch, BuildResult::Built), 1)].into());
    assert_eq!((builds.indexes.len(), builds.stalled), (0, 0));
}

/// A buffer of log lines.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("nobody panicked").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The log lines about index builds, each from its message on.
    fn of_builds(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().expect("nobody panicked").clone());
        let text = text.expect("it is text");
        let lines = text.lines().filter_map(|line| line.find("index build").map(|at| &line[at..]));
        lines.map(str::to_owned).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn log_shows_start_and_duration_of_a_build() {
    let log = Log::default();
    let writer = log.clone();
    let shown = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
    // With one dispatcher, tracing caches whether the thread that first reaches a call site has a listener, and that
    // may be another test's thread. With two it asks each time.
    let _second = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::default());
    let _until_the_end = tracing::subscriber::set_default(shown.finish());
    let mut rig = warming(nodes().with(lagging("orders")));
    rig.run_for(6 * MINUTE).await;
    let lines = log.of_builds();
    let [begins, ends] = &*lines else { panic!("{lines:#?}") };
    let about = |line: &str| {
        let at = line.find("view:_cluster/orders").unwrap_or_else(|| panic!("no index: {line}"));
        line[at..].split([' ', '"']).next().expect("a word").to_owned()
    };
    assert!(begins.starts_with("index build started "), "{begins}");
    assert!(ends.starts_with("index build ended "), "{ends}");
    assert_eq!(about(begins), about(ends));
    let took = ends.split("took=").nth(1).expect("it says how long");
    let took = took.trim_matches('"');
    assert!(humantime::parse_duration(took).is_ok_and(|took| took < 2 * MINUTE), "{ends}");
}

#[tokio::test(start_paused = true)]
async fn advise_mode_names_the_builds_without_starting_them() {
    let world = nodes().with(lagging("orders"));
    let mut rig = Rig::in_mode(Mode::Advise, START, world, YAML);
    rig.run_for(10 * MINUTE).await;
    let line = rig.line("orders").unwrap();
    assert_eq!(line.status, BuildStatus::Starting);
    assert_eq!(line.query.unwrap().view.as_ref(), "by_date");
    assert_eq!(rig.builds().waiting, [(BuildClass::Batch, 1)].into());
}

#[tokio::test(start_paused = true)]
async fn disabled_warmer_builds_nothing() {
    let world = nodes().with(lagging("orders"));
    let mut rig = Rig::in_mode(Mode::Enforce, START, world, "channels: []\n");
    rig.run_for(20 * MINUTE).await;
    assert_eq!(rig.queries(), [""; 0]);
    assert_eq!(rig.line("orders").unwrap().status, BuildStatus::Starting);
}

#[tokio::test(start_paused = true)]
async fn excluded_indexes_are_not_built() {
    let mut by_hand = lagging("orders");
    by_hand.designs[0].autoupdate = false;
    let mut rig = warming(nodes().with(by_hand).with(lagging("scratch-1")));
    rig.reconfigure(&YAML.replace("enabled: true", "enabled: true, ignore: ['scratch-*']"));
    rig.run_for(20 * MINUTE).await;
    assert_eq!(rig.queries(), [""; 0]);
    for db in ["orders", "scratch-1"] {
        assert_eq!(
            rig.line(db).unwrap().status,
            BuildStatus::Waiting(BuildRefusal::Excluded),
            "{db}"
        );
    }
    assert_eq!(rig.builds().waiting, [].into());
}

#[tokio::test(start_paused = true)]
async fn builds_respect_each_nodes_concurrency() {
    let databases = ["a", "b", "c", "d"].map(lagging);
    let world = databases.into_iter().fold(nodes(), Config::with);
    // Each build takes some minutes.
    let mut rig = warming(Config { index_rate: 100, ..world });
    let few = "enabled: true, batch_channels: 2, incremental_channels: 0";
    rig.reconfigure(&YAML.replace("enabled: true", few));
    for _ in 0..60 {
        rig.run_for(MINUTE).await;
        let tasks = rig.cluster.world(|world| world.tasks());
        let most = NODES.iter().map(|node| tasks.iter().filter(|it| it.node == **node).count());
        assert!(most.max() <= Some(2), "{tasks:?}");
    }
    assert_eq!(rig.queries().len(), 4);
    assert_eq!(rig.builds().finished, [((BuildClass::Batch, BuildResult::Built), 4)].into());
}

#[tokio::test(start_paused = true)]
async fn error_response_to_a_build_is_a_failure() {
    let mut rig = warming(nodes().with(lagging("orders")));
    rig.cluster.faults().plan(Fault::everywhere(Effect::Status(500)).at("/_view/"));
    rig.run_for(10 * MINUTE).await;
    // The simulated CouchDB builds the index nevertheless, so that nothing is left to request.
    assert_eq!(rig.queries().len(), 1);
    assert_eq!(rig.builds().finished, [((BuildClass::Batch, BuildResult::Failed), 1)].into());
    assert_eq!((rig.builds().stalled, rig.builds().indexes.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn indexers_without_progress_are_reported_as_stalled() {
    let world = nodes().with(lagging("orders"));
    let mut rig = warming(Config { index_rate: 10, ..world });
    rig.run_for(5 * MINUTE).await;
    let line = rig.line("orders").unwrap();
    assert_eq!((line.status, line.stalled_since), (BuildStatus::Building, None));
    for node in NODES {
        rig.cluster.world(|world| world.stall(node));
    }
    rig.run_for(20 * MINUTE).await;
    let line = rig.line("orders").unwrap();
    assert!(line.stalled_since.is_some(), "{line:?}");
    assert_eq!((rig.queries().len(), rig.builds().stalled), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn node_in_maintenance_delays_builds() {
    let mut rig = warming(nodes().with(lagging("orders")));
    rig.cluster.faults().maintenance(B, true);
    rig.run_for(10 * MINUTE).await;
    assert_eq!(rig.queries(), [""; 0]);
    assert_eq!(rig.line("orders").unwrap().status, BuildStatus::Waiting(BuildRefusal::Maintenance));
    rig.cluster.faults().maintenance(B, false);
    rig.run_for(10 * MINUTE).await;
    assert_eq!(rig.queries().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn disk_near_its_threshold_delays_builds() {
    let mut world = nodes().with(lagging("orders"));
    // A quarter of the disk is used, or a little more.
    world.nodes[0].disk = Some(200_000_000);
    let volume = format!(
        "headroom: {{volumes: [{{nodes: [{A}], prometheus: {{url: \"http://simulation\", query: {A}, max_age: 5m}}}}]}}\n"
    );
    let mut rig = Rig::in_mode(Mode::Enforce, START, world, &format!("{YAML}{volume}"));
    rig.cluster.world(|world| {
        world.set(A, "disk_monitor", "enable", "true");
        world.set(A, "disk_monitor", "background_view_indexing_threshold", "30");
    });
    rig.run_for(15 * MINUTE).await;
    assert_eq!(rig.line("orders").unwrap().status, BuildStatus::Waiting(BuildRefusal::Headroom));
    assert_eq!(rig.queries(), [""; 0]);
    rig.cluster.world(|world| world.set(A, "disk_monitor", "enable", "false"));
    rig.run_for(20 * MINUTE).await;
    assert_eq!(rig.queries().len(), 1);
}
