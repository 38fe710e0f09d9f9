//! A store for tests: every stored change, with the number of orders that CouchDB had received by
//! then.

use couchdb_sim::Cluster;
use futures::{FutureExt as _, future::BoxFuture};
use recliner::model::records::{
    InMemoryStore, Outcome, RecoveredState, StateChange, StateStore, StoreError,
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::sync::watch;
use wall_clock::Moment;

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The number of orders that CouchDB had received by then.
    pub(crate) orders: usize,
    pub(crate) change: StateChange,
}

/// Stores changes in memory, across any number of processes.
#[derive(Clone, Debug)]
pub(crate) struct RecordingStore {
    cluster: Cluster,
    held: InMemoryStore,
    trouble: Arc<Mutex<Option<StoreError>>>,
    entries: Arc<watch::Sender<Vec<Entry>>>,
}

impl RecordingStore {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let cluster = cluster.clone();
        Self {
            cluster,
            held: InMemoryStore::default(),
            trouble: Arc::default(),
            entries: Arc::default(),
        }
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.entries.borrow().clone()
    }

    /// The stored state, with every outcome as recent.
    pub(crate) fn kept(&self) -> RecoveredState {
        self.held.kept()
    }

    /// The state that a process would read if it started now.
    pub(crate) fn recovered(&self, now: Moment) -> RecoveredState {
        let mut kept = self.kept();
        kept.recent_outcomes
            .retain(|it: &Outcome| it.started_at.age(now) < Duration::from_secs(3_600));
        kept
    }

    /// Makes every further write fail with this error; `None`: writes succeed again.
    pub(crate) fn fails(&self, trouble: Option<StoreError>) {
        *self.trouble.lock().expect("no test panics while holding the lock") = trouble;
    }
}

impl StateStore for RecordingStore {
    fn store(&self, changes: Vec<StateChange>) -> BoxFuture<'static, Result<(), StoreError>> {
        let store = self.clone();
        async move {
            if let Some(trouble) =
                store.trouble.lock().expect("no test panics while holding the lock").clone()
            {
                return Err(trouble);
            }
            store.held.store(changes.clone()).await?;
            let orders = store.cluster.write_requests().len();
            store.entries.send_modify(|entries| {
                entries.extend(changes.into_iter().map(|change| Entry { orders, change }));
            });
            Ok(())
        }
        .boxed()
    }
}
