//! What the scanner says of itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// What the scanner says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Whether one pass over the nodes that answer has ended.
    pub ready: bool,
    /// The first snapshot that holds that pass.
    pub ready_from: Option<u64>,
    /// Sweeps that ended.
    pub sweeps: u64,
    /// How many times it was told what was noticed of databases.
    pub noticed: u64,
    /// What the last sweep did about the shards on nodes that answer.
    pub shards: Shards,
    /// The sweep that runs.
    pub progress: Option<Progress>,
    /// How long the last sweep took.
    pub last_duration: Option<Duration>,
    /// When the last sweep ended.
    pub last_end: Option<Moment>,
    /// When a sweep last ended with nothing unread.
    pub last_success: Option<Moment>,
    /// What could not be read, by node and closed word, since the start.
    pub errors: BTreeMap<(Arc<str>, &'static str), u64>,
    /// What was forbidden, in sentences.
    pub missing_rights: BTreeSet<String>,
    /// Why nothing can be read at all.
    pub problem: Option<String>,
    /// The last thing that could not be read, in a sentence.
    pub last_error: Option<String>,
}

impl Status {
    /// Whether whoever has seen this version of the snapshot has seen one whole pass.
    #[must_use]
    pub fn is_ready(&self, version: u64) -> bool {
        self.ready && self.ready_from.is_none_or(|from| from <= version)
    }
}

/// Shards of one sweep, by where what is known of them comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shards {
    /// CouchDB was asked.
    pub asked: u64,
    /// CouchDB was not, because their headers were read and say the same.
    pub spared: u64,
    /// CouchDB was not, because feeds confirm what is known, or they are read beside the sweep.
    pub followed: u64,
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When it began.
    pub since: Moment,
    /// Targets and databases read.
    pub done: usize,
    /// How many there are to read, once that is known.
    pub total: Option<usize>,
}
