//! The record of takeovers that survives this process.
//!
//! Owns what has to be kept, and how the journal keeps it.

use super::{KEY, section};
use crate::store::journal::{Journal, Taken};
use futures::{FutureExt as _, future::BoxFuture};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A channel of smoosh that is stopped on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenOver {
    /// The node, by CouchDB's name.
    pub node: String,
    /// The channel.
    pub channel: String,
    /// Its concurrency before; none where the key was absent.
    pub was: Option<String>,
}

/// Keeps what was taken over until it is given back. Errors are sentences.
///
/// A record is one of node and channel; one that is there stays as it is.
pub trait Ledger: Send + Sync + std::fmt::Debug {
    /// Everything that was taken and not given back.
    fn taken(&self) -> BoxFuture<'_, Result<Vec<TakenOver>, String>>;

    /// Keeps a record; `Ok` only when it would survive a crash.
    fn take(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>>;

    /// Forgets a record.
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

/// A ledger that lasts as long as the process, for the demo and for tests.
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
