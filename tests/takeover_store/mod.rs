//! What was taken over, in memory. Included by path, so that the library's tests can use it too.

use super::{TakeoverRecord, TakeoverStore};
use futures::{FutureExt as _, future::BoxFuture};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type RecordMap = BTreeMap<(String, String), TakeoverRecord>;

/// Records that are kept in memory only.
#[derive(Clone, Debug, Default)]
pub(crate) struct InMemoryTakeoverStore(Arc<Mutex<RecordMap>>);

impl InMemoryTakeoverStore {
    fn records_mut(&self) -> MutexGuard<'_, RecordMap> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakeoverStore for InMemoryTakeoverStore {
    fn records(&self) -> BoxFuture<'_, Result<Vec<TakeoverRecord>, String>> {
        std::future::ready(Ok(self.records_mut().values().cloned().collect())).boxed()
    }

    fn insert(&self, record: TakeoverRecord) -> BoxFuture<'_, Result<(), String>> {
        self.records_mut().entry((record.node.clone(), record.channel.clone())).or_insert(record);
        std::future::ready(Ok(())).boxed()
    }

    fn remove(&self, record: TakeoverRecord) -> BoxFuture<'_, Result<(), String>> {
        self.records_mut().remove(&(record.node, record.channel));
        std::future::ready(Ok(())).boxed()
    }
}
