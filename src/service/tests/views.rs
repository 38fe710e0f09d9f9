//! Reported values of the cluster's views, from every endpoint, with and without reading
//! directories.

use super::*;
use crate::simulated::SimulatedDirectories;
use couchdb_sim::{Config, Database, Design};
use serde_json::Value;
use std::collections::BTreeMap;

const NODES: [&str; 3] = ["couchdb@sim-1.local", "couchdb@sim-2.local", "couchdb@sim-3.local"];

/// Two databases with views that are not written to; one has unused index files.
fn world() -> Config {
    let database = |name: &str, q| Database {
        q,
        docs: 400_000,
        bloat: 3.0,
        designs: vec![
            Design { bloat: 4.0, ..Design::new("by_day") },
            Design { views: vec!["names".to_owned()], ..Design::new("by_name") },
        ],
        ..Database::new(name)
    };
    let stale = Database { stale_index_bytes: 90_000_000, ..database("orders", 4) };
    Config::new(&NODES).with(stale).with(database("people", 2))
}

/// The sums of a metric family's values by the given labels.
fn metric(text: &str, name: &str, labels: &[&str]) -> BTreeMap<Vec<String>, u64> {
    let mut sums = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('{')) {
        let (pairs, value) = line.split_once("} ").unwrap();
        let pairs: BTreeMap<&str, &str> =
            pairs.split("\",").filter_map(|pair| pair.split_once("=\"")).collect();
        let key = labels.iter().map(|label| pairs[label].trim_end_matches('"').to_owned());
        *sums.entry(key.collect()).or_default() += value.parse::<u64>().unwrap();
    }
    sums
}

struct ReportedViews {
    metrics: String,
    targets: Vec<Value>,
}

async fn reported(directories: bool) -> ReportedViews {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::new(world(), 1, Clock::System).unwrap();
    let read: Arc<dyn Directories> = Arc::new(SimulatedDirectories(cluster.clone()));
    let machine = HostAccess {
        meter: Arc::new(SimulatedDisks(cluster.clone())),
        directories: directories.then_some(read),
    };
    let about = ProcessInfo::of_this_build(true);
    let transport = Transport::in_process(cluster.by_host());
    let settings = loaded(&flags(), FILE).unwrap().settings;
    let place = journal::InMemory::default();
    let service =
        Service::start(settings, transport, about, Clock::System, place, machine).await.unwrap();
    let url = format!("http://{}", service.address());
    let (mut status, mut plan) =
        (service.monitor().scanner.status.clone(), service.monitor().planner.plan.clone());
    let snapshots = service.monitor().scanner.snapshots.clone();
    let stop = service.stop_token();
    let mut tasks = JoinSet::new();
    tasks.spawn(service.run(Box::new(|| Err("no reload".to_owned()))));
    let swept = status.wait_for(|status| status.sweeps > 0);
    drop(time::timeout(PATIENCE, swept).await.expect("the sweep ends").unwrap());
    let version = snapshots.borrow().version();
    let planned = plan.wait_for(|plan| plan.snapshot.version() >= version);
    drop(time::timeout(PATIENCE, planned).await.expect("a plan follows").unwrap());
    let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
    let get = async |path: &str| {
        let answer = client.get(format!("{url}{path}")).send().await.unwrap();
        answer.text().await.unwrap()
    };
    let metrics = get("/metrics").await;
    let mut answer: Value = serde_json::from_str(&get("/api/v1/targets?limit=1000").await).unwrap();
    let Value::Array(targets) = answer["data"]["targets"].take() else { panic!("{answer}") };
    stop.cancel();
    let ended = time::timeout(PATIENCE, tasks.join_next()).await;
    assert_eq!(ended.unwrap().unwrap().unwrap(), ServiceEnd::Stopped);
    ReportedViews { metrics, targets }
}

#[tokio::test]
async fn cluster_views_include_all_copies_on_every_endpoint() {
    let mut sums = Vec::new();
    for directories in [false, true] {
        let ReportedViews { metrics, targets } = reported(directories).await;
        for (family, field) in [
            ("file_bytes", "file_bytes"),
            ("active_bytes", "active_bytes"),
            ("reclaimable_bytes", "reclaimable_bytes"),
        ] {
            let views =
                targets.iter().filter(|it| it["kind"] == "view" && it["node"] == "_cluster");
            let of_json: u64 = views.map(|view| view[field].as_u64().unwrap()).sum();
            let total = metric(&metrics, &format!("recliner_{family}"), &["node", "kind"]);
            let views: Vec<_> = total.iter().filter(|(labels, _)| labels[1] == "view").collect();
            let expected = vec!["_cluster".to_owned(), "view".to_owned()];
            assert_eq!(views, [(&expected, &of_json)], "no copy is counted twice");
            for name in ["target", "database"] {
                let kinds = metric(&metrics, &format!("recliner_{name}_{family}"), &["kind"]);
                assert_eq!(kinds[&vec!["view".to_owned()]], of_json, "{name} {family}");
                let dbs = total.iter().filter(|(labels, _)| labels[1] == "db");
                let dbs: u64 = dbs.map(|(_, bytes)| bytes).sum();
                // Node-local databases are included.
                assert_eq!(kinds[&vec!["db".to_owned()]], dbs, "{name} {family}");
            }
            if family == "file_bytes" {
                sums.push(of_json);
            }
        }
        // If directories are read, the same files also appear per node and per file.
        let on_nodes = metric(&metrics, "recliner_node_view_file_bytes", &[]);
        let parts = metric(&metrics, "recliner_view_part_file_bytes", &[]);
        let of_cluster = directories.then(|| *sums.last().unwrap());
        assert_eq!(
            (on_nodes.get(&vec![]), parts.get(&vec![])),
            (of_cluster.as_ref(), of_cluster.as_ref())
        );
        let states = metric(&metrics, "recliner_node_view_files", &["state"]);
        let count = |state: &str| states.get(&vec![state.to_owned()]).copied();
        // Two views over 12 and 6 files; stale files belong to no view.
        assert_eq!(count("ok"), directories.then_some(36));
        assert_eq!(count("orphan").is_some_and(|orphans| orphans > 0), directories);
    }
    let [estimated, exact] = sums[..] else { panic!("{sums:?}") };
    assert!(estimated.abs_diff(exact) < exact / 5, "{estimated} is not near {exact}");
}
