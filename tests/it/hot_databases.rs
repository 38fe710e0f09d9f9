//! What a first sweep opens and closes on nodes with more shards than CouchDB keeps open: 500 of 6,670.

use crate::support::{NODES, Rig, nodes, targets};
use couchdb_sim::{Config, Database, Design, Effect, Fault, Fleet};
use recliner::model::target::TargetKind;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};
use tokio::time::sleep;

const DATABASES: u32 = 6_670;

/// CouchDB's default of `max_dbs_open`.
const OPEN: usize = 500;

/// Databases that clients read on each node, and how often each of them is read.
const HOT: usize = 100;
const READ_EVERY: u32 = 4;

/// The shards that a node keeps open: opening one more closes the first in the order of `used_at`.
#[derive(Default)]
struct OpenShards {
    /// CouchDB's setting `update_lru_on_read`, by default false: a shard that is only read keeps the place in the
    /// order that it got when it was opened.
    reads_count: bool,
    used_at: BTreeMap<String, u64>,
    by_use: BTreeSet<(u64, String)>,
    uses: u64,
    /// How often the sweep opened a shard.
    opened: usize,
    closed_hot: usize,
}

impl OpenShards {
    /// Reads a shard; returns whether it had to be opened.
    fn read(&mut self, db: &str) -> bool {
        let opens = !self.used_at.contains_key(db);
        if !opens && !self.reads_count {
            return false;
        }
        self.uses += 1;
        if let Some(before) = self.used_at.insert(db.to_owned(), self.uses) {
            self.by_use.remove(&(before, db.to_owned()));
        }
        self.by_use.insert((self.uses, db.to_owned()));
        if self.by_use.len() > OPEN
            && let Some((_, closed)) = self.by_use.pop_first()
        {
            self.used_at.remove(&closed);
            self.closed_hot += usize::from(hot().any(|db| db == closed));
        }
        opens
    }
}

fn hot() -> impl Iterator<Item = String> {
    (0..HOT).map(|at| format!("tenant-{:05}", at * 61))
}

/// The database that a request reads.
fn database_in(path: &str) -> Option<&str> {
    let from = path.find("tenant-")?;
    path.get(from..from + "tenant-00000".len())
}

/// Whether a node opens its copy for a request: all do unless the path names one.
fn opens_for(path: &str, node: &str) -> bool {
    path.strip_prefix("/_node/").is_none_or(|rest| rest.split('/').next() == Some(node))
}

/// The shards that each node opened and the hot ones that it closed during a first sweep.
async fn sweep(yaml: &str, reads_count: bool) -> BTreeMap<&'static str, OpenShards> {
    let like = Database { q: 1, n: 3, docs: 10, ..Database::new("tenant-") };
    let mut config = nodes();
    config.fleets.push(Fleet::named(like, DATABASES, 12));
    let rig = Rig::new(config, yaml);
    let of_node = |node| (node, OpenShards { reads_count, ..OpenShards::default() });
    let mut open: BTreeMap<&str, OpenShards> = NODES.into_iter().map(of_node).collect();
    let mut second = 0;
    while !rig.status().ready {
        if second % READ_EVERY == 0 {
            for shards in open.values_mut() {
                for db in hot() {
                    shards.read(&db);
                }
            }
        }
        for exchange in rig.cluster.exchanges() {
            let Some(db) = database_in(&exchange.path) else { continue };
            for (_, shards) in open.iter_mut().filter(|(node, _)| opens_for(&exchange.path, node)) {
                shards.opened += usize::from(shards.read(db));
            }
        }
        rig.cluster.clear_exchanges();
        sleep(Duration::from_secs(1)).await;
        second += 1;
        assert!(second < 3_600, "the sweep ends");
    }
    open
}

#[tokio::test(start_paused = true)]
async fn first_sweep_opens_no_file_twice() {
    for (node, shards) in sweep("", false).await {
        let least = DATABASES as usize - OPEN;
        assert!((least..=DATABASES as usize).contains(&shards.opened), "{node}: {}", shards.opened);
        assert!(shards.closed_hot > 0, "CouchDB closes what is only read");
    }
}

#[tokio::test(start_paused = true)]
async fn first_sweep_closes_no_hot_database_where_reads_count() {
    for (node, shards) in sweep("", true).await {
        assert_eq!(shards.closed_hot, 0, "{node}");
    }
    let faster = sweep("couchdb: {cold_reads_per_second: 200}\n", true).await;
    assert!(faster.values().any(|shards| shards.closed_hot > 0), "the model closes shards");
}

/// Databases with a design document each.
const DESIGNED: usize = 200;

/// Ranges of all databases of [`some_with_designs`]: one copy of each is asked how many it holds.
const RANGES: u64 = 1_400;

/// Nodes with 1,400 shards, of which the databases of two ranges have a design document in one.
fn some_with_designs() -> Config {
    let tenant = Database { q: 1, n: 3, docs: 10, ..Database::new("tenant-") };
    let designed = Database {
        q: 2,
        designs: vec![Design { views: vec!["by_day".into()], ..Design::new("app") }],
        ..Database { name: "app-".into(), ..tenant.clone() }
    };
    let mut config = nodes();
    config.fleets.push(Fleet::named(tenant, 1_000, 12));
    config.fleets.push(Fleet::named(designed, 200, 8));
    config
}

#[tokio::test(start_paused = true)]
async fn design_documents_are_read_from_the_one_copy_that_holds_them() {
    let mut rig = Rig::new(some_with_designs(), "");
    let plan = rig.sweep().await;
    assert_eq!(targets(&plan, TargetKind::View).count(), DESIGNED);
    assert_eq!(rig.asked("/_design_docs?include_docs=true&limit=0").len() as u64, RANGES);
    let read = rig.asked("/_design_docs?include_docs=true&limit=201");
    assert_eq!(read.len(), DESIGNED, "{:?}", read.first());
    assert!(read.iter().all(|it| it.path.starts_with("/_node/")), "{:?}", read.first());
}

#[tokio::test(start_paused = true)]
async fn database_is_asked_for_design_documents_where_a_copy_does_not_answer() {
    let mut rig = Rig::new(some_with_designs(), "");
    let refused = Fault::everywhere(Effect::Status(404)).at("/_design_docs");
    rig.cluster.faults().plan(Fault { after: RANGES, ..refused.times(1) });
    let plan = rig.sweep().await;
    assert_eq!(targets(&plan, TargetKind::View).count(), DESIGNED);
    let asked = rig.asked("/_design_docs");
    assert_eq!(asked.iter().filter(|it| !it.path.starts_with("/_node/")).count(), 1);
}
