//! The world's own record of compactions, by which a client's doings are judged.
//!
//! Owns a bounded list of them, each with what was true at the instant it began. Never
//! decides anything; `jobs` writes it, tests read it.

use super::jobs::JobKey;
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

/// A state in which a node or a file should be left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The node was in maintenance.
    Maintenance,
    /// The shard was being split.
    Splitting,
    /// The index was being built.
    Building,
}

/// One compaction of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The node.
    pub node: String,
    /// The shard file's name.
    pub shard: String,
    /// The design document whose index it was, by id.
    pub ddoc: Option<String>,
    /// Who started it.
    pub by: StartedBy,
    /// When it began, since the world's start.
    pub began: Duration,
    /// Compactions that ran on its node at that instant, itself not counted.
    pub running_on_node: usize,
    /// The same in the whole cluster.
    pub running_in_cluster: usize,
    /// Whether another copy of its range was being compacted at that instant.
    pub other_copy: bool,
    /// Bytes that were free on its node's disk at that instant; `None`: without limit.
    pub available: Option<u64>,
    /// Bytes it was going to take beside what it had, before writes that come meanwhile.
    pub needed: u64,
    /// Bytes that other compactions on that disk were still going to take.
    pub promised: u64,
    /// What should have kept anybody from it.
    pub obstacles: Vec<Obstacle>,
    /// Bytes of the file before.
    pub before: u64,
    /// Its end, once it has come.
    pub end: Option<CompactionEnd>,
}

/// How a compaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionEnd {
    /// When, since the world's start.
    pub at: Duration,
    /// Bytes of the file after.
    pub after: u64,
    /// Bytes that a compaction of the same content leaves during which nothing is written.
    pub clean: u64,
    /// Whether the new file took the old one's place; not after a full disk or a restart.
    pub swapped: bool,
}

/// The compactions that began, and which of them still run.
#[derive(Debug)]
pub(super) struct Chronicle {
    /// How many are kept; the oldest go first.
    most: usize,
    kept: VecDeque<Compaction>,
    /// How many went from the front.
    gone: usize,
    running: BTreeMap<JobKey, usize>,
}

impl Chronicle {
    pub(super) const fn of(most: usize) -> Self {
        Self { most, kept: VecDeque::new(), gone: 0, running: BTreeMap::new() }
    }

    pub(super) fn began(&mut self, key: JobKey, compaction: Compaction) {
        if self.kept.len() >= self.most {
            self.kept.pop_front();
            self.gone += 1;
        }
        self.running.insert(key, self.gone + self.kept.len());
        self.kept.push_back(compaction);
    }

    pub(super) fn ended(&mut self, key: JobKey, end: CompactionEnd) {
        let Some(number) = self.running.remove(&key) else { return };
        let place = number.checked_sub(self.gone);
        if let Some(compaction) = place.and_then(|place| self.kept.get_mut(place)) {
            compaction.end = Some(end);
        }
    }

    /// Who started a compaction that runs, as far as that is kept.
    pub(super) fn starter(&self, key: JobKey) -> Option<StartedBy> {
        let place = self.running.get(&key)?.checked_sub(self.gone)?;
        Some(self.kept.get(place)?.by)
    }

    pub(super) fn kept(&self) -> Vec<Compaction> {
        self.kept.iter().cloned().collect()
    }
}
