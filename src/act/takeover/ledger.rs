//! Records of takeovers that survive this process, and how the journal stores them.

use super::{KEY, section};
use crate::store::journal::{Journal, Taken};
use futures::{FutureExt as _, future::BoxFuture};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A smoosh channel that is stopped on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// The node's name in CouchDB.
    pub node: String,
    /// The channel.
    pub channel: String,
    /// Its concurrency before; `None` if the key was absent.
    pub was: Option<String>,
}

/// Stores records of takeovers until the channels are restored. Errors are readable sentences.
///
/// There is one record per node and channel; an existing one is not overwritten.
pub trait Ledger: Send + Sync + std::fmt::Debug {
    /// All records of channels that are not restored yet.
    fn taken(&self) -> BoxFuture<'_, Result<Vec<TakenOver>, String>>;

    /// Stores a record; `Ok` only if it would survive a crash.
    fn take(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>>;

    /// Removes a record.
    fn give_back(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>>;
}

impl From<TakenOver> for Taken {
    fn from(taken: TakenOver) -> Self {
        let TakenOver { node, channel, was } = taken;
        Self { node, section: section(&channel), key: KEY.to_owned(), was }
    }
}

impl Ledger for Journal {
    fn taken(&self) -> BoxFuture<'_, Result<Vec<TakenOver>, String>> {
        let of_smoosh = |taken: Taken| {
            let channel = taken.section.strip_prefix("smoosh.").filter(|_| taken.key == KEY)?;
            let channel = channel.to_owned();
            Some(TakenOver { node: taken.node, channel, was: taken.was })
        };
        async move {
            let all = self.taken().await.map_err(|why| why.to_string())?;
            Ok(all.into_iter().filter_map(of_smoosh).collect())
        }
        .boxed()
    }

    fn take(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>> {
        async move { self.take(vec![taken.into()]).await.map_err(|why| why.to_string()) }.boxed()
    }

    fn give_back(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>> {
        async move { self.give_back(vec![taken.into()]).await.map_err(|why| why.to_string()) }
            .boxed()
    }
}

type Held = BTreeMap<(String, String), TakenOver>;

/// Records that are kept in memory only, for the demo and for tests.
#[derive(Clone, Debug, Default)]
pub struct Fleeting(Arc<Mutex<Held>>);

impl Fleeting {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger for Fleeting {
    fn taken(&self) -> BoxFuture<'_, Result<Vec<TakenOver>, String>> {
        std::future::ready(Ok(self.held().values().cloned().collect())).boxed()
    }

    fn take(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>> {
        self.held().entry((taken.node.clone(), taken.channel.clone())).or_insert(taken);
        std::future::ready(Ok(())).boxed()
    }

    fn give_back(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>> {
        self.held().remove(&(taken.node, taken.channel));
        std::future::ready(Ok(())).boxed()
    }
}
