//! A store that a test can read: every change that was kept, with the number of orders that
//! CouchDB had been given by then.

use couchdb_sim::Cluster;
use futures::{FutureExt as _, future::BoxFuture};
use recliner::model::memory::{Change, Fleeting, Keeper, Outcome, Recovered, Trouble};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;
use wall_clock::Moment;

/// One thing that was kept.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// How many orders CouchDB had been given by then.
    pub(crate) orders: usize,
    pub(crate) change: Change,
}

/// Keeps changes in memory, over any number of processes.
#[derive(Clone, Debug)]
pub(crate) struct RecordingStore {
    cluster: Cluster,
    held: Fleeting,
    trouble: Arc<Mutex<Option<Trouble>>>,
    entries: Arc<watch::Sender<Vec<Entry>>>,
}

impl RecordingStore {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let cluster = cluster.clone();
        Self {
            cluster,
            held: Fleeting::default(),
            trouble: Arc::default(),
            entries: Arc::default(),
        }
    }

    /// Everything that was kept so far.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.borrow().clone()
    }

    /// What is kept now, with every outcome as recent.
    pub(crate) fn kept(&self) -> Recovered {
        self.held.kept()
    }

    /// What a process that starts now reads back.
    pub(crate) fn recovered(&self, now: Moment) -> Recovered {
        let mut kept = self.kept();
        kept.recent.retain(|it: &Outcome| it.started_at.age(now) < Duration::from_secs(3_600));
        kept
    }

    /// From now on keeps nothing and says why, or keeps again.
    pub(crate) fn fails(&self, trouble: Option<Trouble>) {
        *self.trouble.lock().expect("no test panics with it") = trouble;
    }
}

impl Keeper for RecordingStore {
    fn keep(&self, changes: Vec<Change>) -> BoxFuture<'static, Result<(), Trouble>> {
        let store = self.clone();
        async move {
            if let Some(trouble) = store.trouble.lock().expect("no test panics with it").clone() {
                return Err(trouble);
            }
            store.held.keep(changes.clone()).await?;
            let orders = store.cluster.orders().len();
            store.entries.send_modify(|entries| {
                entries.extend(changes.into_iter().map(|change| Entry { orders, change }));
            });
            Ok(())
        }
        .boxed()
    }
}
