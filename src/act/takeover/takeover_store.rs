//! Records of takeovers that survive this process, and how the journal stores them.

use super::{CONCURRENCY_KEY, channel_section};
use crate::store::journal::{Journal, OverriddenSetting};
use futures::{FutureExt as _, future::BoxFuture};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A smoosh channel that is stopped on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeoverRecord {
    /// The node's name in CouchDB.
    pub node: String,
    /// The channel.
    pub channel: String,
    /// Its concurrency before; `None` if the key was absent.
    pub previous: Option<String>,
}

/// Stores records of takeovers until the channels are restored. Errors are readable sentences.
///
/// There is one record per node and channel; an existing one is not overwritten.
pub trait TakeoverStore: Send + Sync + std::fmt::Debug {
    /// All records of channels that are not restored yet.
    fn records(&self) -> BoxFuture<'_, Result<Vec<TakeoverRecord>, String>>;

    /// Stores a record; `Ok` only if it would survive a crash.
    fn insert(&self, taken: TakeoverRecord) -> BoxFuture<'_, Result<(), String>>;

    /// Removes a record.
    fn remove(&self, taken: TakeoverRecord) -> BoxFuture<'_, Result<(), String>>;
}

impl From<TakeoverRecord> for OverriddenSetting {
    fn from(taken: TakeoverRecord) -> Self {
        let TakeoverRecord { node, channel, previous: was } = taken;
        Self { node, section: channel_section(&channel), key: CONCURRENCY_KEY.to_owned(), was }
    }
}

impl TakeoverStore for Journal {
    fn records(&self) -> BoxFuture<'_, Result<Vec<TakeoverRecord>, String>> {
        let of_smoosh = |taken: OverriddenSetting| {
            let channel =
                taken.section.strip_prefix("smoosh.").filter(|_| taken.key == CONCURRENCY_KEY)?;
            let channel = channel.to_owned();
            Some(TakeoverRecord { node: taken.node, channel, previous: taken.was })
        };
        async move {
            let all = self.overridden_settings().await.map_err(|why| why.to_string())?;
            Ok(all.into_iter().filter_map(of_smoosh).collect())
        }
        .boxed()
    }

    fn insert(&self, taken: TakeoverRecord) -> BoxFuture<'_, Result<(), String>> {
        async move { self.record_overrides(vec![taken.into()]).await.map_err(|why| why.to_string()) }.boxed()
    }

    fn remove(&self, taken: TakeoverRecord) -> BoxFuture<'_, Result<(), String>> {
        async move { self.record_restored(vec![taken.into()]).await.map_err(|why| why.to_string()) }
            .boxed()
    }
}

type RecordMap = BTreeMap<(String, String), TakeoverRecord>;

/// Records that are kept in memory only, for the demo and for tests.
#[derive(Clone, Debug, Default)]
pub struct InMemoryTakeoverStore(Arc<Mutex<RecordMap>>);

impl InMemoryTakeoverStore {
    fn held(&self) -> MutexGuard<'_, RecordMap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakeoverStore for InMemoryTakeoverStore {
    fn records(&self) -> BoxFuture<'_, Result<Vec<TakeoverRecord>, String>> {
        std::future::ready(Ok(self.held().values().cloned().collect())).boxed()
    }

    fn insert(&self, taken: TakeoverRecord) -> BoxFuture<'_, Result<(), String>> {
        self.held().entry((taken.node.clone(), taken.channel.clone())).or_insert(taken);
        std::future::ready(Ok(())).boxed()
    }

    fn remove(&self, taken: TakeoverRecord) -> BoxFuture<'_, Result<(), String>> {
        self.held().remove(&(taken.node, taken.channel));
        std::future::ready(Ok(())).boxed()
    }
}
