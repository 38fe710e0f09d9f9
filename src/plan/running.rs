//! Running jobs and remembered constraints by target, as the admission needs them.

use super::{Conditions, Placement, room::Room};
use crate::{
    jobs::{Job, Work},
    model::{
        channel::Channels,
        memory::{Owner, Rest},
        target::Kind,
    },
    table::{Chunked, DbIx, Ix, NodeIx, Snapshot},
};
use couchdb_names::Range;
use hashbrown::{HashMap, HashSet};
use std::time::Duration;
use wall_clock::Moment;

/// How long a "compaction runs" fact counts for a node that does not answer: as long as its jobs
/// would. A node that is gone for good blocks nothing.
const COUNTS: Duration = Duration::from_secs(3_600);

/// State of a target in addition to its facts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Known {
    /// Start of the job that compacts it.
    pub(super) running: Option<Moment>,
    /// Start of the job that builds it.
    pub(super) building: Option<Moment>,
    /// Why it is not started for now.
    pub(super) rest: Option<Rest>,
    /// The time of its last start, if it was not measured since.
    pub(super) started: Option<Moment>,
    /// Whether no request can carry its name.
    pub(super) unaddressable: bool,
    /// Whether an operator ordered it.
    pub(super) ordered: bool,
    /// Whether that order is forced: it ignores missing channels and back-off.
    pub(super) forced: bool,
}

/// A set of targets with fast lookup.
#[derive(Clone, Debug, Default, PartialEq)]
struct Marks(Vec<u64>);

impl Marks {
    fn insert(&mut self, ix: Ix) {
        let at = ix.as_usize();
        if self.0.len() <= at / 64 {
            self.0.resize(at / 64 + 1, 0);
        }
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    fn has(&self, ix: Ix) -> bool {
        let at = ix.as_usize();
        self.0.get(at / 64).is_some_and(|word| word & (1 << (at % 64)) != 0)
    }
}

/// Running jobs and constraints by target.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Running {
    marked: Marks,
    known: HashMap<Ix, Known>,
    /// Ranges with a copy that is being compacted.
    ranges: HashMap<(DbIx, Range), NodeIx>,
    dbs: HashSet<DbIx>,
}

impl Running {
    /// Collects running jobs and constraints; counts the jobs in `room` on the way.
    ///
    /// `active` lists targets whose facts say that they are being compacted, with their queues.
    /// For a node that has not reported its tasks, these facts stand in for a limited time.
    pub(super) fn new(
        snapshot: &Snapshot,
        channels: &Channels,
        conditions: &Conditions,
        placements: &Chunked<Placement>,
        active: impl Iterator<Item = ((NodeIx, usize), Ix)>,
        room: &mut Room,
        now: Moment,
    ) -> Self {
        let mut running = Self::default();
        for (ix, rest) in &conditions.history.rests {
            running.known_of(*ix).rest = Some(*rest);
        }
        for (ix, at) in &conditions.history.started {
            running.known_of(*ix).started = Some(*at);
        }
        for (ix, ordered) in &conditions.history.orders {
            let known = running.known_of(*ix);
            (known.ordered, known.forced) = (true, ordered.force);
        }
        let mut counted = HashSet::new();
        let mut wholes = HashSet::new();
        for job in &conditions.jobs.list {
            if let Some(ix) = job.target {
                running.take_job(snapshot, job, ix);
            }
            if !job.compacts() {
                continue;
            }
            room.count_job(job.key.node);
            let channel = channel_of(job, snapshot, channels, placements);
            let counts_anew = job.target.is_none_or(|ix| counted.insert((job.key.node, ix)));
            if let Some(channel) = channel.filter(|_| counts_anew) {
                room.count_target(job.key.node, channel);
            }
            if whole(snapshot, job) && job.target.is_some_and(|ix| wholes.insert(ix)) {
                room.count_whole();
            }
        }
        let polled: HashSet<NodeIx> = conditions.jobs.polled.iter().map(|(at, _)| *at).collect();
        for ((node, channel), ix) in active {
            let known_elsewhere =
                if node == NodeIx::CLUSTER { !polled.is_empty() } else { polled.contains(&node) };
            let measured = snapshot.target(ix).and_then(|target| target.facts().measured_at);
            let long_ago = measured.is_none_or(|measured| measured.at.age(now) > COUNTS);
            if long_ago
                || known_elsewhere
                || running.known(ix).is_some_and(|known| known.running.is_some())
            {
                continue;
            }
            room.count_job(node);
            room.count_target(node, channel);
            running.take_range(snapshot, ix);
        }
        running
    }

    /// The state of a target in addition to its facts, if there is any.
    pub(super) fn known(&self, ix: Ix) -> Option<&Known> {
        if self.marked.has(ix) { self.known.get(&ix) } else { None }
    }

    /// Marks a target that no request can address.
    pub(super) fn exclude(&mut self, ix: Ix) {
        self.known_of(ix).unaddressable = true;
    }

    /// Marks the range of a shard that starts.
    pub(super) fn take_range(&mut self, snapshot: &Snapshot, ix: Ix) {
        let Some(target) = snapshot.target(ix) else { return };
        if let Some(range) = target.range() {
            self.ranges.insert((target.db(), range), target.node_ix());
            self.dbs.insert(target.db());
        }
    }

    /// Whether another copy of a shard's range is being compacted.
    pub(super) fn other_copy(&self, snapshot: &Snapshot, db: DbIx, ix: Ix) -> bool {
        !self.dbs.is_empty()
            && self.dbs.contains(&db)
            && snapshot
                .target(ix)
                .and_then(|target| target.range())
                .is_some_and(|range| self.ranges.contains_key(&(db, range)))
    }

    fn take_job(&mut self, snapshot: &Snapshot, job: &Job, ix: Ix) {
        let known = self.known_of(ix);
        if !job.compacts() {
            known.building = Some(known.building.map_or(job.since, |at| at.min(job.since)));
            return;
        }
        known.running = Some(known.running.map_or(job.since, |at| at.min(job.since)));
        if job.key.work == Work::Db {
            self.take_range(snapshot, ix);
        }
    }

    fn known_of(&mut self, ix: Ix) -> &mut Known {
        self.marked.insert(ix);
        self.known.entry(ix).or_default()
    }
}

/// The channel a job counts for: the one it was started for, or the one that takes its target.
fn channel_of(
    job: &Job,
    snapshot: &Snapshot,
    channels: &Channels,
    placements: &Chunked<Placement>,
) -> Option<usize> {
    let started_for = job.channel.as_deref().and_then(|name| channels.named(name));
    let takes = || placements.get(snapshot.target(job.target?)?.ix().as_usize())?.channel();
    started_for.map(|(at, _)| at).or_else(takes)
}

/// Whether a job belongs to a compaction of all copies of a view, which only recliner starts.
fn whole(snapshot: &Snapshot, job: &Job) -> bool {
    job.kind == Kind::View
        && job.owner == Owner::Recliner
        && job
            .target
            .and_then(|ix| snapshot.target(ix))
            .is_some_and(|target| target.node_ix() == NodeIx::CLUSTER && target.map().ranges > 1)
}
