//! What the feeds told, on its way from those that follow them to the one that acts.

use couchdb_client::wire::DbChange;
use wall_clock::Moment;

/// Something that happened to a database.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Event {
    pub(super) db: Box<str>,
    pub(super) change: DbChange,
}

/// What came of one step.
#[derive(Debug)]
pub(super) enum Heard {
    /// Of `_db_updates`.
    Updates(Vec<Event>, Standing),
    /// The same, of the time before this process listened.
    Missed(Vec<Event>, Standing),
    /// Of `_dbs/_changes`: databases whose map changed.
    Map(Vec<Box<str>>, Standing),
}

/// How a feed stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Whether it is open and has told everything so far.
    pub(super) connected: bool,
    /// Since when nothing was missed, for as long as it is connected, and while it may yet be
    /// resumed.
    pub(super) followed_since: Option<Moment>,
    /// How often it was begun from now, and not where this process or an earlier one was.
    pub(super) begun: u64,
    /// Whether the cluster does not have it.
    pub(super) absent: bool,
    /// Whether the login may not read it.
    pub(super) refused: bool,
    /// The sequence it goes on from.
    pub(super) seq: Option<String>,
    /// When the database was made that it reads from, as CouchDB tells it.
    pub(super) made: Option<String>,
    /// The node that is asked.
    pub(super) node: Option<Box<str>>,
    /// How often it went back in time.
    pub(super) rewinds: u64,
    /// How often it broke off or could not be had.
    pub(super) failures: u64,
    /// What is wrong with it.
    pub(super) problem: Option<String>,
}
