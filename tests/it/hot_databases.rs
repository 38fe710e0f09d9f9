//! A first sweep closes no shard that clients read: of 20,000 shards CouchDB keeps 500 open on a node.

use crate::support::{NODES, Rig, nodes};
use couchdb_sim::{Database, Fleet};
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

/// The shards that a node keeps open: opening one more closes the one that was used least recently.
#[derive(Default)]
struct OpenShards {
    used_at: BTreeMap<String, u64>,
    by_use: BTreeSet<(u64, String)>,
    uses: u64,
    opened: usize,
    closed_hot: usize,
}

impl OpenShards {
    fn touch(&mut self, db: &str) {
        self.uses += 1;
        match self.used_at.insert(db.to_owned(), self.uses) {
            Some(before) => drop(self.by_use.remove(&(before, db.to_owned()))),
            None => self.opened += 1,
        }
        self.by_use.insert((self.uses, db.to_owned()));
        if self.by_use.len() > OPEN
            && let Some((_, closed)) = self.by_use.pop_first()
        {
            self.used_at.remove(&closed);
            self.closed_hot += usize::from(hot().any(|db| db == closed));
        }
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

/// The shards that each node opened and the hot ones that it closed during a first sweep.
async fn sweep(yaml: &str) -> BTreeMap<String, OpenShards> {
    let like = Database { q: 1, n: 3, docs: 10, ..Database::new("tenant-") };
    let mut config = nodes();
    config.fleets.push(Fleet::named(like, DATABASES, 12));
    let rig = Rig::new(config, yaml);
    let mut open: BTreeMap<String, OpenShards> = BTreeMap::new();
    let mut second = 0;
    while !rig.status().ready {
        for node in NODES.iter().filter(|_| second % READ_EVERY == 0) {
            hot().for_each(|db| open.entry((*node).to_owned()).or_default().touch(&db));
        }
        for exchange in rig.cluster.exchanges() {
            let node = open.entry(exchange.node).or_default();
            database_in(&exchange.path).into_iter().for_each(|db| node.touch(db));
        }
        rig.cluster.clear_exchanges();
        sleep(Duration::from_secs(1)).await;
        second += 1;
        assert!(second < 3_600, "the sweep ends");
    }
    open
}

#[tokio::test(start_paused = true)]
async fn first_sweep_over_twenty_thousand_shards_closes_no_hot_database() {
    let paced = sweep("").await;
    assert_eq!(paced.len(), NODES.len());
    for (node, shards) in &paced {
        assert!(shards.opened >= DATABASES as usize, "{node} opened {}", shards.opened);
        assert_eq!(shards.closed_hot, 0, "{node}");
    }
    let faster = sweep("couchdb: {cold_reads_per_second: 200}\n").await;
    assert!(faster.values().any(|shards| shards.closed_hot > 0), "the model closes shards");
}
