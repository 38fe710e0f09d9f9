//! Records of takeovers that survive this process, and how the journal stores them.

use super::{CONCURRENCY_KEY, channel_section};
use crate::store::journal::{Journal, OverriddenSetting};
use futures::{FutureExt as _, future::BoxFuture};

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
    fn insert(&self, record: TakeoverRecord) -> BoxFuture<'_, Result<(), String>>;

    /// Removes a record.
    fn remove(&self, record: TakeoverRecord) -> BoxFuture<'_, Result<(), String>>;
}

impl From<TakeoverRecord> for OverriddenSetting {
    fn from(record: TakeoverRecord) -> Self {
        let TakeoverRecord { node, channel, previous: was } = record;
        Self { node, section: channel_section(&channel), key: CONCURRENCY_KEY.to_owned(), was }
    }
}

impl TakeoverStore for Journal {
    fn records(&self) -> BoxFuture<'_, Result<Vec<TakeoverRecord>, String>> {
        let of_smoosh = |setting: OverriddenSetting| {
            let channel = setting
                .section
                .strip_prefix("smoosh.")
                .filter(|_| setting.key == CONCURRENCY_KEY)?;
            let channel = channel.to_owned();
            Some(TakeoverRecord { node: setting.node, channel, previous: setting.was })
        };
        async move {
            let all = self.overridden_settings().await.map_err(|why| why.to_string())?;
            Ok(all.into_iter().filter_map(of_smoosh).collect())
        }
        .boxed()
    }

    fn insert(&self, record: TakeoverRecord) -> BoxFuture<'_, Result<(), String>> {
        async move { self.record_overrides(vec![record.into()]).await.map_err(|why| why.to_string()) }.boxed()
    }

    fn remove(&self, record: TakeoverRecord) -> BoxFuture<'_, Result<(), String>> {
        async move { self.record_restored(vec![record.into()]).await.map_err(|why| why.to_string()) }
            .boxed()
    }
}
