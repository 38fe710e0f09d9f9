//! Results of the feeds, sent to the collector.

use super::status::FeedState;
use couchdb_client::wire::DbChange;

/// A change of a database reported by a feed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FeedEvent {
    pub(super) db: Box<str>,
    pub(super) change: DbChange,
}

/// Result of one step of a feed.
#[derive(Debug)]
pub(super) enum FeedStep {
    /// Changes from `_db_updates`.
    Updates(Vec<FeedEvent>, FeedState),
    /// Changes from `_db_updates` made before this process followed the feed.
    MissedUpdates(Vec<FeedEvent>, FeedState),
    /// Databases whose shard map changed, from `_dbs/_changes`.
    MapChanges(Vec<Box<str>>, FeedState),
}
