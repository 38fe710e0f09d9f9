//! How feeds are asked for.

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

/// From one sign of life of `_db_updates` to the next.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// How long `_dbs/_changes` waits for a change: shorter than what proxies cut off, and it is
/// the one request that comes again and again while nothing changes.
const LONGPOLL: Duration = Duration::from_secs(25);

/// Lines as they come, in their order; an error ends them.
pub type Lines = BoxStream<'static, Result<Vec<UpdateLine>, Error>>;

/// Where events come from.
pub trait Feeds: std::fmt::Debug + Send + Sync + 'static {
    /// How far `_db_updates` is.
    fn updates_now(&self) -> BoxFuture<'static, Result<String, Error>>;

    /// When the database was made that `_db_updates` reads from; none where that is not told.
    fn updates_made(&self) -> BoxFuture<'static, Option<String>>;

    /// Opens `_db_updates` behind a sequence. The lines MUST end, be it by an error, where
    /// nothing comes for a while.
    fn updates(&self, since: String) -> BoxFuture<'static, Result<Lines, Error>>;

    /// How far a node's shard map is.
    fn map_now(&self, node: String) -> BoxFuture<'static, Result<u64, Error>>;

    /// Waits for changes of a node's shard map behind a sequence, but not for long.
    fn map(&self, node: String, since: u64) -> BoxFuture<'static, Result<MapChanges, Error>>;
}

impl Feeds for Client {
    fn updates_now(&self) -> BoxFuture<'static, Result<String, Error>> {
        let client = self.clone();
        async move { client.db_updates_now().await }.boxed()
    }

    fn updates_made(&self) -> BoxFuture<'static, Option<String>> {
        let client = self.clone();
        async move { client.database(GLOBAL_CHANGES).await.ok()?.instance_start_time }.boxed()
    }

    fn updates(&self, since: String) -> BoxFuture<'static, Result<Lines, Error>> {
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

    fn map_now(&self, node: String) -> BoxFuture<'static, Result<u64, Error>> {
        let client = self.clone();
        async move { client.map_changes_now(&node).await }.boxed()
    }

    fn map(&self, node: String, since: u64) -> BoxFuture<'static, Result<MapChanges, Error>> {
        let client = self.clone();
        async move { client.map_changes(&node, since, LONGPOLL).await }.boxed()
    }
}

/// What an error of a feed means for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failed {
    /// There is no such feed.
    Absent,
    /// The login may not read it, or is refused everywhere.
    Refused,
    /// Its sequence is not taken.
    BadSequence,
    /// What came makes no sense.
    Garbage,
    /// Nothing came, or it broke off.
    Broken,
}

impl Failed {
    pub(super) fn of(error: &Error) -> Self {
        use couchdb_client::Kind;
        // What cannot be sent, or is too long for a server or a proxy, is the sequence.
        if matches!(error, Error::Status { status: 400 | 414 | 431, .. } | Error::Unaddressable(_))
        {
            return Self::BadSequence;
        }
        match error.kind() {
            Kind::NotFound => Self::Absent,
            Kind::Forbidden | Kind::Login => Self::Refused,
            Kind::Garbage | Kind::TooLarge | Kind::Redirect => Self::Garbage,
            Kind::Timeout
            | Kind::Connect
            | Kind::Tls
            | Kind::Status
            | Kind::NodeDown
            | Kind::Unaddressable
            | Kind::NoOwnAddress
            | Kind::UnknownNode
            | Kind::Stopped => Self::Broken,
        }
    }
}
