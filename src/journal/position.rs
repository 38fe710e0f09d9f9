//! How far a feed of CouchDB was followed.

use crate::clock::Moment;
use serde::{Deserialize, Serialize};

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
