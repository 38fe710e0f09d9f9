//! Who is left alone for a while, and why.

use crate::clock::Moment;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// What is remembered of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remembered {
    /// Failures in a row.
    pub failures: u32,
    /// Until when it rests after the last of them.
    pub rests_until: Option<Moment>,
    /// Since when it waits for an operator, after too many of them.
    pub quarantined_since: Option<Moment>,
    /// What a compaction that freed far less than promised left.
    pub futile: Option<Futile>,
    /// Nodes whose copy of a view was compacted since the first of them was: a view is done
    /// when all were.
    pub copies_done: BTreeSet<String>,
}

/// A compaction was of no use; it stays so until enough changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Futile {
    /// When it ended.
    pub at: Moment,
    /// Bytes on disk it left.
    pub file_bytes: u64,
    /// The last sequence written then, where known.
    pub update_seq: Option<u64>,
}

/// Why a target is left alone, as the planner reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It failed not long ago.
    CoolDown {
        /// Since when: the failure.
        since: Moment,
        /// Until when.
        until: Moment,
    },
    /// It failed repeatedly and waits to be released.
    Quarantined {
        /// Since when.
        since: Moment,
        /// After how many failures.
        failures: u32,
    },
    /// Its last compaction was of no use and too little changed since.
    Futile {
        /// When that one ended.
        since: Moment,
        /// Bytes on disk it left.
        file_bytes: u64,
    },
}
