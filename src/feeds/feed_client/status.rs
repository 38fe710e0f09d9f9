//! Status of the feed client.

use couchdb_client::wire::DbChange;
use std::collections::BTreeMap;
use wall_clock::Moment;

/// Status of the feed client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedClientStatus {
    /// The feeds, by CouchDB's names; empty if feeds are disabled.
    pub feeds: BTreeMap<&'static str, FeedState>,
    /// Since when no change of a database was missed; `None` while changes may be missed.
    pub followed_since: Option<Moment>,
    /// Number of received events, by type.
    pub events: BTreeMap<DbChange, u64>,
    /// Events that wait to be written to the journal.
    pub pending_events: usize,
    /// Time of the last event.
    pub last_event_at: Option<Moment>,
}

/// State of a feed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedState {
    /// Whether the feed is open and up to date.
    pub connected: bool,
    /// Since when no change was missed. Kept while the feed is connected or may still be resumed.
    pub followed_since: Option<Moment>,
    /// How often the feed was started from now, instead of at the position of this process or an
    /// earlier one.
    pub starts_from_now: u64,
    /// Whether the cluster does not have the feed.
    pub absent: bool,
    /// Whether the login may not read the feed.
    pub refused: bool,
    /// The sequence to continue from.
    pub seq: Option<String>,
    /// When the database behind the feed was created, according to CouchDB.
    pub created_at: Option<String>,
    /// The node that is queried.
    pub node: Option<Box<str>>,
    /// How often the feed went back in time.
    pub rewinds: u64,
    /// How often the feed broke off or could not be opened.
    pub failures: u64,
    /// The current problem with the feed.
    pub problem: Option<String>,
}
