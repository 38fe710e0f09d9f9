//! Search indexes in the warmer: which are found, which queries are sent, and which never are.

use super::{MINUTE, YAML, warming};
use crate::support::{NODES, Rig, START, nodes, small};
use couchdb_names::Engine;
use couchdb_sim::{Config, Database, Design, Effect, Fault, Search};
use recliner::{
    act::warmer::{BuildRefusal, BuildResult, BuildStatus},
    model::channel::Mode,
};
use std::time::Duration;

/// The cluster with both search engines on each node.
fn searching(world: Config) -> Config {
    let mut world = world;
    for node in &mut world.nodes {
        node.settings.push(("nouveau".into(), "enable".into(), "true".into()));
        node.clouseau = true;
    }
    world
}

/// A database with one search index that has processed this share of its documents.
fn lagging(name: &str, engine: Engine, index: &str, built: f64) -> Database {
    let search = Search { built, ..Search::new(engine, index) };
    let design = Design { views: vec![], searches: vec![search], ..Design::new("x") };
    Database { designs: vec![design], ..small(name, 40_000) }
}

fn nouveau(name: &str) -> Database {
    lagging(name, Engine::Nouveau, "text", 0.5)
}

impl Rig {
    /// The sequences that each copy of a search index has not processed.
    fn unseen(&self, db: &str, engine: Engine, index: &str) -> Vec<u64> {
        self.cluster.world(|world| {
            let of = |node: &&str| {
                let files = world.files(node).unwrap_or_default();
                let files = files.into_iter().filter(|file| file.contains(&format!("/{db}.")));
                let seen = files.filter_map(|file| world.search(node, &file, (engine, "x", index)));
                seen.map(|info| info.pending).collect::<Vec<_>>()
            };
            NODES.iter().flat_map(of).collect()
        })
    }
}

#[tokio::test(start_paused = true)]
async fn lagging_nouveau_index_is_built_once() {
    let mut rig = warming(searching(nodes().with(nouveau("orders"))));
    rig.run_for(MINUTE).await;
    assert_eq!(rig.line("orders").unwrap().status, BuildStatus::Waiting(BuildRefusal::Grace));
    assert_eq!(rig.queries(), [""; 0]);
    rig.run_for(5 * MINUTE).await;
    assert_eq!(rig.queries(), ["/orders/_design/x/_nouveau/text?q=*:*&limit=1"]);
    assert_eq!(rig.unseen("orders", Engine::Nouveau, "text"), [0, 0, 0]);
    let builds = rig.builds();
    let finished: Vec<_> = builds.finished.iter().map(|((_, end), count)| (*end, *count)).collect();
    assert_eq!(finished, [(BuildResult::Built, 1)]);
    assert_eq!((builds.indexes.len(), builds.stalled), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn advise_mode_names_the_query_without_sending_it() {
    let world = searching(nodes().with(nouveau("orders")));
    let mut rig = Rig::in_mode(Mode::Advise, START, world, YAML);
    rig.run_for(10 * MINUTE).await;
    let line = rig.line("orders").unwrap();
    assert_eq!(line.status, BuildStatus::Starting);
    assert_eq!(line.id.to_string(), "search:orders/nouveau/_design%2Fx/text");
    assert_eq!(rig.queries(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn absent_search_engine_gets_no_requests() {
    let both = Design {
        views: vec![],
        searches: [Engine::Nouveau, Engine::Clouseau].map(|it| Search::new(it, "text")).to_vec(),
        ..Design::new("x")
    };
    let orders = Database { designs: vec![both], ..small("orders", 4_000) };
    let mut rig = warming(nodes().with(orders));
    rig.run_for(10 * MINUTE).await;
    let lines: Vec<_> =
        rig.builds().indexes.iter().map(|line| (line.id.to_string(), line.status)).collect();
    let absent = BuildStatus::Waiting(BuildRefusal::NotOffered);
    assert_eq!(
        lines,
        [
            ("search:orders/nouveau/_design%2Fx/text".to_owned(), absent),
            ("search:orders/clouseau/_design%2Fx/text".to_owned(), absent),
        ]
    );
    assert_eq!(rig.builds().waiting, [].into());
    for of_search in ["_nouveau", "_search"] {
        assert_eq!(rig.asked(of_search), []);
    }
}

#[tokio::test(start_paused = true)]
async fn no_query_while_one_node_lacks_the_engine() {
    let mut world = searching(nodes().with(nouveau("orders")));
    world.nodes[1].settings.clear();
    let mut rig = warming(world);
    rig.run_for(10 * MINUTE).await;
    assert_eq!(rig.line("orders").unwrap().status, BuildStatus::Waiting(BuildRefusal::NotOffered));
    assert_eq!(rig.asked("_nouveau"), []);
    // The engine is enabled there, which the next sweep notices.
    rig.cluster.world(|world| world.set(NODES[1], "nouveau", "enable", "true"));
    rig.run_for(10 * MINUTE).await;
    assert_eq!(rig.queries(), ["/orders/_design/x/_nouveau/text?q=*:*&limit=1"]);
}

#[tokio::test(start_paused = true)]
async fn clouseau_index_is_built_by_its_own_query() {
    let orders = lagging("orders", Engine::Clouseau, "text", 0.25);
    let mut rig = warming(searching(nodes().with(orders)));
    rig.run_for(10 * MINUTE).await;
    assert_eq!(rig.queries(), ["/orders/_design/x/_search/text?q=*:*&limit=1"]);
    assert_eq!(rig.unseen("orders", Engine::Clouseau, "text"), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn never_built_index_lags_by_all_sequences() {
    let mut rig = warming(searching(nodes().with(lagging("new", Engine::Nouveau, "text", 0.0))));
    rig.run_for(MINUTE).await;
    assert!(rig.line("new").unwrap().pending >= Some(40_000));
    rig.run_for(10 * MINUTE).await;
    assert_eq!(rig.queries().len(), 1);
    assert_eq!(rig.builds().indexes, []);
}

#[tokio::test(start_paused = true)]
async fn odd_names_are_percent_encoded() {
    let search = Search { built: 0.5, ..Search::new(Engine::Nouveau, "by/text 50%?") };
    let design = Design { views: vec![], searches: vec![search], ..Design::new("a/b +ü") };
    let odd = Database { designs: vec![design], ..small("app/orders+x", 40_000) };
    let mut rig = warming(searching(nodes().with(odd)));
    rig.run_for(10 * MINUTE).await;
    let name = "app%2Forders%2Bx/_design/a%2Fb%20%2B%C3%BC";
    let index = "by%2Ftext%2050%25%3F";
    assert_eq!(rig.queries(), [format!("/{name}/_nouveau/{index}?q=*:*&limit=1")]);
    assert_eq!(rig.builds().indexes, []);
}

#[tokio::test(start_paused = true)]
async fn unanswered_query_counts_as_a_running_build() {
    // A build takes some minutes for each copy, and the query waits for all of them.
    let world = Config { index_rate: 100, ..nodes().with(nouveau("orders")) };
    let mut rig = warming(searching(world));
    rig.run_for(4 * MINUTE).await;
    let line = rig.line("orders").unwrap();
    assert_eq!((line.status, line.stalled_since), (BuildStatus::Building, None));
    let tasks = rig.cluster.world(|world| world.tasks());
    assert_eq!(tasks.len(), 3, "{tasks:?}");
    rig.run_for(30 * MINUTE).await;
    assert_eq!(rig.queries().len(), 1);
    let finished: u64 = rig.builds().finished.values().sum();
    assert_eq!((finished, rig.builds().stalled), (1, 0));
    assert!(rig.builds().finished.keys().all(|(_, ending)| *ending == BuildResult::Built));
    assert_eq!(rig.unseen("orders", Engine::Nouveau, "text"), [0, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn error_response_to_a_query_is_a_failure() {
    // So few documents that the query is answered before its client gives up.
    let orders = lagging("orders", Engine::Nouveau, "text", 0.9);
    let mut rig = warming(searching(Config { index_rate: 100_000, ..nodes().with(orders) }));
    rig.cluster.faults().plan(Fault::everywhere(Effect::Status(500)).at("/_nouveau/"));
    rig.run_for(10 * MINUTE).await;
    let finished: Vec<_> = rig.builds().finished.keys().map(|(_, ending)| *ending).collect();
    assert_eq!((finished, rig.queries().len()), (vec![BuildResult::Failed], 1));
}

#[tokio::test(start_paused = true)]
async fn excluded_search_indexes_are_not_built() {
    let mut by_hand = nouveau("orders");
    by_hand.designs[0].autoupdate = false;
    let mut rig = warming(searching(nodes().with(by_hand).with(nouveau("scratch-1"))));
    rig.reconfigure(&YAML.replace("enabled: true", "enabled: true, ignore: ['scratch-*']"));
    rig.run_for(10 * MINUTE).await;
    assert_eq!(rig.queries(), [""; 0]);
    for db in ["orders", "scratch-1"] {
        assert_eq!(
            rig.line(db).unwrap().status,
            BuildStatus::Waiting(BuildRefusal::Excluded),
            "{db}"
        );
    }
}

/// Indexers that CouchDB starts by itself count, and the warmer waits for them.
#[tokio::test(start_paused = true)]
async fn foreign_indexers_are_recognised() {
    let world = Config { index_rate: 100, ..nodes().with(nouveau("orders")) };
    let mut rig = warming(searching(world));
    rig.run_for(Duration::from_secs(70)).await;
    rig.cluster.world(|world| world.build_search("orders", (Engine::Nouveau, "x", "text")));
    rig.run_for(2 * MINUTE).await;
    assert_eq!(rig.line("orders").unwrap().status, BuildStatus::Waiting(BuildRefusal::Running));
    assert_eq!(rig.queries(), [""; 0]);
}

/// A scenario: an index is built, written to, built again, and left alone while nothing changes.
#[tokio::test(start_paused = true)]
async fn search_index_is_rebuilt_only_after_writes() {
    let mut rig = warming(searching(nodes().with(nouveau("orders"))));
    rig.run_for(10 * MINUTE).await;
    assert_eq!(rig.queries().len(), 1);
    // Without writes for hours, no query is sent.
    rig.run_for(120 * MINUTE).await;
    assert_eq!((rig.queries().len(), rig.builds().indexes.len()), (1, 0));
    // The engine disappears: it gets no more queries, and the reason is shown.
    for node in NODES {
        rig.cluster.world(|world| world.set(node, "nouveau", "enable", "false"));
    }
    rig.run_for(5 * MINUTE).await;
    assert_eq!(rig.line("orders").unwrap().status, BuildStatus::Waiting(BuildRefusal::NotOffered));
    let since = rig.cluster.elapsed();
    rig.run_for(30 * MINUTE).await;
    assert!(rig.asked("_nouveau").iter().all(|exchange| exchange.at < since));
}
