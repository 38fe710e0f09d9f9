//! Results of the feeds, sent to the collector.

use couchdb_client::wire::DbChange;
use wall_clock::Moment;

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
    /// The same, from before this process followed the feed.
    MissedUpdates(Vec<FeedEvent>, FeedState),
    /// Databases whose shard map changed, from `_dbs/_changes`.
    MapChanges(Vec<Box<str>>, FeedState),
}

/// State of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FeedState {
    /// Whether the feed is open and up to date.
    pub(super) connected: bool,
    /// Since when no change was missed. Kept while the feed is connected or may still be resumed.
    pub(super) followed_since: Option<Moment>,
    /// How often the feed was started from now, instead of at the position of this process or an
    /// earlier one.
    pub(super) starts_from_now: u64,
    /// Whether the cluster does not have the feed.
    pub(super) absent: bool,
    /// Whether the login may not read the feed.
    pub(super) refused: bool,
    /// The sequence to continue from.
    pub(super) seq: Option<String>,
    /// When the database behind the feed was created, according to CouchDB.
    pub(super) created_at: Option<String>,
    /// The node that is queried.
    pub(super) node: Option<Box<str>>,
    /// How often the feed went back in time.
    pub(super) rewinds: u64,
    /// How often the feed broke off or could not be opened.
    pub(super) failures: u64,
    /// The current problem with the feed.
    pub(super) problem: Option<String>,
}
