//! What the listener says of itself.

use super::heard::Standing;
use couchdb_client::wire::DbChange;
use std::collections::BTreeMap;
use wall_clock::Moment;

/// What the listener says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The feeds, by CouchDB's names; empty where they are not to be followed.
    pub feeds: BTreeMap<&'static str, Feed>,
    /// Since when nothing that happened to a database was missed; none while something may be.
    pub followed_since: Option<Moment>,
    /// Events that came, by kind.
    pub events: BTreeMap<DbChange, u64>,
    /// Events that wait to be written to the journal.
    pub pending: usize,
    /// When the last event came.
    pub last_event: Option<Moment>,
}

/// One feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// Whether it is open and has told everything so far.
    pub connected: bool,
    /// Since when it missed nothing.
    pub followed_since: Option<Moment>,
    /// Whether the cluster does not have it.
    pub absent: bool,
    /// The sequence it goes on from.
    pub seq: Option<String>,
    /// The node that is asked, where it is one.
    pub node: Option<String>,
    /// How often it went back in time.
    pub rewinds: u64,
    /// How often it broke off or could not be had.
    pub failures: u64,
    /// What is wrong with it.
    pub problem: Option<String>,
}

impl From<&Standing> for Feed {
    fn from(standing: &Standing) -> Self {
        Self {
            connected: standing.connected,
            followed_since: standing.followed_since,
            absent: standing.absent,
            seq: standing.seq.clone(),
            node: standing.node.as_deref().map(ToOwned::to_owned),
            rewinds: standing.rewinds,
            failures: standing.failures,
            problem: standing.problem.clone(),
        }
    }
}
