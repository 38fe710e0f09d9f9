//! The record of takeovers that survives this process.

use crate::clock::Moment;
use futures::{FutureExt as _, future::BoxFuture};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};
use tokio::sync::watch;

/// A channel of smoosh that is stopped on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenOver {
    /// The node, by CouchDB's name.
    pub node: String,
    /// The channel.
    pub channel: String,
    /// Its concurrency before; none where the key was absent.
    pub was: Option<String>,
    /// When it was taken.
    pub at: Moment,
}

/// Keeps what was taken over until it is given back. Errors are sentences.
///
/// A record is one of node and channel: taken again, its `was` is the newer one.
pub trait Ledger: Send + Sync + std::fmt::Debug {
    /// Everything that was taken and not given back.
    fn taken(&self) -> BoxFuture<'_, Result<Vec<TakenOver>, String>>;

    /// Keeps a record; `Ok` only when it would survive a crash.
    fn take(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>>;

    /// Forgets a record.
    fn give_back(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>>;
}

type Held = BTreeMap<(String, String), TakenOver>;

/// A ledger that lasts as long as the process, for the demo and for tests.
#[derive(Clone, Debug, Default)]
pub struct Fleeting(Arc<watch::Sender<Held>>);

impl Ledger for Fleeting {
    fn taken(&self) -> BoxFuture<'_, Result<Vec<TakenOver>, String>> {
        std::future::ready(Ok(self.0.borrow().values().cloned().collect())).boxed()
    }

    fn take(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>> {
        self.0.send_modify(|held| {
            held.insert((taken.node.clone(), taken.channel.clone()), taken);
        });
        std::future::ready(Ok(())).boxed()
    }

    fn give_back(&self, taken: TakenOver) -> BoxFuture<'_, Result<(), String>> {
        self.0.send_modify(|held| {
            held.remove(&(taken.node, taken.channel));
        });
        std::future::ready(Ok(())).boxed()
    }
}
