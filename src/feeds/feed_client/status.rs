//! Status of the feed client.

use super::feed_step::FeedState;
use couchdb_client::wire::DbChange;
use std::collections::BTreeMap;
use wall_clock::Moment;

/// Status of the feed client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeedClientStatus {
    /// The feeds, by CouchDB's names; empty if feeds are disabled.
    pub feeds: BTreeMap<&'static str, FeedStatus>,
    /// Since when no change of a database was missed; `None` while changes may be missed.
    pub followed_since: Option<Moment>,
    /// Number of received events, by type.
    pub events: BTreeMap<DbChange, u64>,
    /// Events that wait to be written to the journal.
    pub pending_events: usize,
    /// Time of the last event.
    pub last_event_at: Option<Moment>,
}

/// Status of one feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedStatus {
    /// Whether the feed is open and up to date.
    pub connected: bool,
    /// Since when the feed missed nothing.
    pub followed_since: Option<Moment>,
    /// Whether the cluster does not have the feed.
    pub absent: bool,
    /// The sequence to continue from.
    pub seq: Option<String>,
    /// The node that is queried, for a node's feed.
    pub node: Option<String>,
    /// How often the feed went back in time.
    pub rewinds: u64,
    /// How often the feed broke off or could not be opened.
    pub failures: u64,
    /// The current problem with the feed.
    pub problem: Option<String>,
}

impl From<&FeedState> for FeedStatus {
    fn from(state: &FeedState) -> Self {
        Self {
            connected: state.connected,
            followed_since: state.followed_since,
            absent: state.absent,
            seq: state.seq.clone(),
            node: state.node.as_deref().map(ToOwned::to_owned),
            rewinds: state.rewinds,
            failures: state.failures,
            problem: state.problem.clone(),
        }
    }
}
