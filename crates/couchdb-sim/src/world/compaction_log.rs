//! A record of all compactions, with which tests judge a client's behaviour.
//!
//! Owns a bounded list of compactions, each with the circumstances when it began. Never decides
//! anything; `jobs` writes it, tests read it.

use super::keys::JobKey;
use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

/// Who started a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedBy {
    /// A request.
    Request,
    /// The node's own built-in compactor.
    Smoosh,
}

/// A condition under which no compaction should be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The node was in maintenance mode.
    Maintenance,
    /// The shard was being split.
    Splitting,
    /// The index was being built.
    Building,
}

/// One compaction of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The node that ran it.
    pub node: String,
    /// The shard file's name.
    pub shard: String,
    /// The id of the design document, if an index was compacted.
    pub ddoc: Option<String>,
    /// Who started it.
    pub by: StartedBy,
    /// When it began, since the start of the world.
    pub began: Duration,
    /// Other compactions that were running on the node.
    pub running_on_node: usize,
    /// Other compactions that were running in the cluster.
    pub running_in_cluster: usize,
    /// Whether another copy of its range was being compacted.
    pub other_copy: bool,
    /// Free bytes on its node's disk; `None`: unlimited.
    pub available: Option<u64>,
    /// Additional disk bytes that it will need, without writes that arrive meanwhile.
    pub needed: u64,
    /// Bytes that other compactions on that disk will still need.
    pub reserved: u64,
    /// Why it should not have been started.
    pub obstacles: Vec<Obstacle>,
    /// The file's bytes before the compaction.
    pub before: u64,
    /// Its end, once it has ended.
    pub end: Option<CompactionEnd>,
}

/// How a compaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionEnd {
    /// The end time, since the start of the world.
    pub at: Duration,
    /// The file's bytes after the compaction.
    pub after: u64,
    /// The file's bytes after a compaction of the same content without concurrent writes.
    pub clean: u64,
    /// Whether the new file replaced the old one; not after a full disk or a restart.
    pub swapped: bool,
}

/// The recorded compactions, and which of them are still running.
#[derive(Debug)]
pub(super) struct CompactionLog {
    /// The maximum number of entries; the oldest are removed first.
    capacity: usize,
    kept: VecDeque<Compaction>,
    /// The number of removed entries.
    removed: usize,
    running: BTreeMap<JobKey, usize>,
}

impl CompactionLog {
    pub(super) const fn of(capacity: usize) -> Self {
        Self { capacity, kept: VecDeque::new(), removed: 0, running: BTreeMap::new() }
    }

    pub(super) fn began(&mut self, key: JobKey, compaction: Compaction) {
        if self.kept.len() >= self.capacity {
            self.kept.pop_front();
            self.removed += 1;
        }
        self.running.insert(key, self.removed + self.kept.len());
        self.kept.push_back(compaction);
    }

    pub(super) fn ended(&mut self, key: JobKey, end: CompactionEnd) {
        let Some(number) = self.running.remove(&key) else { return };
        let place = number.checked_sub(self.removed);
        if let Some(compaction) = place.and_then(|place| self.kept.get_mut(place)) {
            compaction.end = Some(end);
        }
    }

    /// Who started a running compaction, if it is still recorded.
    pub(super) fn starter(&self, key: JobKey) -> Option<StartedBy> {
        let place = self.running.get(&key)?.checked_sub(self.removed)?;
        Some(self.kept.get(place)?.by)
    }

    pub(super) fn kept(&self) -> Vec<Compaction> {
        self.kept.iter().cloned().collect()
    }
}
