//! Access to CouchDB's feeds.

use couchdb_client::{
    Client, Error,
    wire::{GLOBAL_CHANGES, MapChanges, UpdateLine},
};
use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use std::time::Duration;

/// Interval of heartbeats in `_db_updates`.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// How long `_dbs/_changes` waits for a change. Shorter than common proxy timeouts; it is the only
/// request that repeats while nothing changes.
const LONGPOLL_TIMEOUT: Duration = Duration::from_secs(25);

/// Lines in the order of their arrival; an error ends the stream.
pub(super) type UpdateLines = BoxStream<'static, Result<Vec<UpdateLine>, Error>>;

/// Provides CouchDB's feeds.
pub trait ChangeFeeds: std::fmt::Debug + Send + Sync + 'static {
    /// The current sequence of `_db_updates`.
    fn updates_seq(&self) -> BoxFuture<'static, Result<String, Error>>;

    /// When the database behind `_db_updates` was created, if CouchDB shows it.
    fn updates_created_at(&self) -> BoxFuture<'static, Option<String>>;

    /// Opens `_db_updates` after a sequence. The stream MUST end, possibly by an error, if nothing
    /// arrives for a while.
    fn updates(&self, since: String) -> BoxFuture<'static, Result<UpdateLines, Error>>;

    /// The current sequence of a node's shard map.
    fn map_seq(&self, node: String) -> BoxFuture<'static, Result<u64, Error>>;

    /// Waits for changes of a node's shard map after a sequence, for a limited time.
    fn wait_for_map(
        &self,
        node: String,
        since: u64,
    ) -> BoxFuture<'static, Result<MapChanges, Error>>;
}

impl ChangeFeeds for Client {
    fn updates_seq(&self) -> BoxFuture<'static, Result<String, Error>> {
        let client = self.clone();
        async move { client.db_updates_seq().await }.boxed()
    }

    fn updates_created_at(&self) -> BoxFuture<'static, Option<String>> {
        let client = self.clone();
        async move { client.database(GLOBAL_CHANGES).await.ok()?.instance_start_time }.boxed()
    }

    fn updates(&self, since: String) -> BoxFuture<'static, Result<UpdateLines, Error>> {
        let client = self.clone();
        async move {
            let open = client.db_updates(&since, HEARTBEAT).await?;
            let lines = stream::unfold(open, |mut open| async move {
                let lines = open.next().await.transpose()?;
                Some((lines, open))
            });
            Ok(lines.boxed())
        }
        .boxed()
    }

    fn map_seq(&self, node: String) -> BoxFuture<'static, Result<u64, Error>> {
        let client = self.clone();
        async move { client.shard_map_seq(&node).await }.boxed()
    }

    fn wait_for_map(
        &self,
        node: String,
        since: u64,
    ) -> BoxFuture<'static, Result<MapChanges, Error>> {
        let client = self.clone();
        async move { client.shard_map_changes(&node, since, LONGPOLL_TIMEOUT).await }.boxed()
    }
}

/// Classifies an error of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FeedFailure {
    /// The feed does not exist.
    Absent,
    /// The login may not read it, or is refused everywhere.
    Refused,
    /// The sequence is not accepted.
    BadSequence,
    /// The answer is invalid.
    Malformed,
    /// There was no answer, or it broke off.
    Broken,
}

impl FeedFailure {
    pub(super) fn from_error(error: &Error) -> Self {
        use couchdb_client::ErrorKind;
        // A sequence may be unaddressable, or too long for a server or proxy.
        let status = |status| matches!(status, 400 | 414 | 431);
        if matches!(error, Error::Status { status: it, .. } | Error::Proxy { status: it, .. } if status(*it))
            || matches!(error, Error::Unaddressable(_))
        {
            return Self::BadSequence;
        }
        match error.kind() {
            ErrorKind::NotFound => Self::Absent,
            ErrorKind::Forbidden | ErrorKind::Login => Self::Refused,
            ErrorKind::Malformed | ErrorKind::TooLarge | ErrorKind::Redirect | ErrorKind::Proxy => {
                Self::Malformed
            }
            ErrorKind::Timeout
            | ErrorKind::Connect
            | ErrorKind::Tls
            | ErrorKind::Status
            | ErrorKind::NodeDown
            | ErrorKind::Unaddressable
            | ErrorKind::NoOwnAddress
            | ErrorKind::UnknownNode
            | ErrorKind::Stopped => Self::Broken,
        }
    }
}
