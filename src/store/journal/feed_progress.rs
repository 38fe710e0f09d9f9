//! How far the sources of database events were read.

use crate::table::PublishedDbState;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// Position in `_db_updates`. All events up to it are in the journal or were counted as dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedPosition {
    /// The sequence to continue from, as CouchDB wrote it.
    pub seq: String,
    /// When the `_global_changes` database of this sequence was created, if CouchDB shows it. A
    /// database that replaces it starts a new series of sequences.
    #[serde(default)]
    #[serde(rename = "made")]
    pub created_at: Option<String>,
    /// When the feed was last known to have no later events.
    pub at: Moment,
}

/// How far the sources of database events were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventProgress {
    /// Position in the feed, if one is followed.
    pub position: Option<FeedPosition>,
    /// States of databases as the scanner read them.
    pub marks: Vec<PublishedDbState>,
}

impl EventProgress {
    /// Combines two values; `newer` wins.
    pub(super) fn join(&mut self, newer: Self) {
        self.position = newer.position.or_else(|| self.position.take());
        self.marks.extend(newer.marks);
    }

    /// Whether there is no progress to store.
    pub(super) const fn is_empty(&self) -> bool {
        self.position.is_none() && self.marks.is_empty()
    }
}
