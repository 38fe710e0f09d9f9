//! How far whoever tells of databases had come.

use crate::table::Mark;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// Everything up to here that `_db_updates` told is in the journal, or was counted as dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The sequence to go on from, as CouchDB wrote it.
    pub seq: String,
    /// When the `_global_changes` was made of which that is, as CouchDB tells it; none where it
    /// did not. One that takes its place counts anew.
    #[serde(default)]
    pub made: Option<String>,
    /// When the feed was last known to be no further.
    pub at: Moment,
}

/// How far whoever told of databases had come with that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reached {
    /// The feed, where one was followed.
    pub position: Option<Position>,
    /// Databases that the scanner read.
    pub marks: Vec<Mark>,
}

impl Reached {
    /// Both, of which the other one is the newer.
    pub(super) fn join(&mut self, newer: Self) {
        self.position = newer.position.or_else(|| self.position.take());
        self.marks.extend(newer.marks);
    }

    /// Whether nothing is said.
    pub(super) const fn is_blank(&self) -> bool {
        self.position.is_none() && self.marks.is_empty()
    }
}
