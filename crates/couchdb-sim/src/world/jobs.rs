//! Compactions and index builds: how they start, continue and end.
//!
//! The end of a job is computed when it starts, and the world jumps from end to end. If a
//! database compaction finds new writes at the end of a pass, another pass follows in another
//! process, as in CouchDB.

mod tasks;

use super::{
    Compaction, CompactionEnd, Obstacle, StartError, StartedBy, World,
    files::File,
    index::{BuildState, index_place},
};
use crate::growth::{CompactedView, DocCounts, ShardModel, between, mix, times};
use std::time::Duration;

/// The number of passes. The last one ends the compaction despite new writes.
const PASSES: u32 = 4;

/// The kind of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobKind {
    /// Compacts the shard.
    Shard,
    /// Compacts the index of the design document at this position.
    Index(usize),
    /// Builds the index of the design document at this position.
    Build(usize),
    /// Builds a search index: the position of its design document, and its own position there.
    Search(usize, usize),
}

/// The identity of a job: only one of each kind runs on a file at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobKey {
    pub(super) file: File,
    pub(super) kind: JobKind,
}

impl JobKey {
    pub(super) const fn is_index(self) -> bool {
        matches!(self.kind, JobKind::Index(_) | JobKind::Build(_) | JobKind::Search(..))
    }

    const fn is_build(self) -> bool {
        matches!(self.kind, JobKind::Build(_) | JobKind::Search(..))
    }
}

/// The cost of a job.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// Bytes to process.
    work: u64,
    /// Peak disk usage in bytes, including the files of an earlier run.
    needed: u64,
}

/// A running job.
#[derive(Clone, Debug)]
pub(super) struct Job {
    process: u64,
    pass: u32,
    began: Duration,
    ends: Duration,
    /// The documents at the start of the first pass.
    base: DocCounts,
    /// The documents at the start of this pass.
    pass_start: DocCounts,
    /// Changes that this pass copies or maps.
    changes: u64,
    /// The completed share at the start, from an earlier run's files.
    done_at_start: f64,
    /// The completed share at the end; below 1 if the disk will be full.
    done_at_end: f64,
    /// The bytes of the new file and of the sort.
    bytes: (u64, u64),
}

impl Job {
    /// The completed share at `now`.
    fn done(&self, now: Duration) -> f64 {
        let whole = self.ends.saturating_sub(self.began).as_secs_f64();
        let elapsed = now.saturating_sub(self.began).as_secs_f64();
        let part = if whole > 0.0 { (elapsed / whole).min(1.0) } else { 1.0 };
        self.done_at_start + (self.done_at_end - self.done_at_start) * part
    }

    /// Bytes of temporary files at `now`.
    pub(super) fn temporary(&self, kind: JobKind, now: Duration) -> u64 {
        let done = self.done(now);
        let (data, meta) = self.bytes;
        match kind {
            JobKind::Shard if self.pass > 1 => data.saturating_add(meta),
            JobKind::Shard => compaction_written(self.bytes, done),
            JobKind::Index(_) => times(data, done),
            JobKind::Build(_) | JobKind::Search(..) => 0,
        }
    }

    /// Bytes of temporary files that will still be written after `now`.
    fn remaining(&self, kind: JobKind, now: Duration) -> u64 {
        let (data, meta) = self.bytes;
        data.saturating_add(meta).saturating_sub(self.temporary(kind, now))
    }
}

/// The bytes that a shard's compaction has written at this completed share, given the final bytes
/// of the new file and of the sort.
pub(super) fn compaction_written((data, meta): (u64, u64), done: f64) -> u64 {
    let data = times(data, (done / 0.6).min(1.0));
    data.saturating_add(times(meta, ((done - 0.3) / 0.45).clamp(0.0, 1.0)))
}

/// The end of a stalled job: later than any test runs.
const NEVER: Duration = Duration::from_secs(u64::MAX / 4);

impl World {
    /// Starts to compact one file; false: a compaction is already running.
    ///
    /// # Errors
    /// If there is no such file, or its node is down.
    pub fn compact(&mut self, node: &str, file: &str) -> Result<bool, StartError> {
        let file = self.file_up(node, file)?;
        Ok(self.start_shard(file, StartedBy::Request))
    }

    /// Starts to compact one copy of a view index, of any range; false: a compaction is already
    /// running.
    ///
    /// # Errors
    /// If there is no such copy or design document, or the node is down.
    pub fn compact_view(&mut self, node: &str, file: &str, ddoc: &str) -> Result<bool, StartError> {
        let file = self.file_up(node, file)?;
        let File::Copy { db, .. } = file else { return Err(StartError::NoDesign) };
        let place =
            self.catalog.description(db).and_then(|description| index_place(description, ddoc));
        Ok(self.start_index(file, place.ok_or(StartError::NoDesign)?, StartedBy::Request))
    }

    fn file_up(&self, node: &str, file: &str) -> Result<File, StartError> {
        let node = self.node_position(node).ok_or(StartError::NoNode)?;
        if !self.is_up(node) {
            return Err(StartError::NodeDown);
        }
        self.file(node, file).ok_or(StartError::NoFile)
    }

    /// The node of any file.
    pub(super) fn node_of(&self, file: File) -> Option<u32> {
        match file {
            File::Extra(at) => Some(self.extra.get(at)?.as_ref()?.node),
            File::Copy { node, .. } | File::Local { node, .. } => Some(node),
        }
    }

    pub(super) fn start_shard(&mut self, file: File, by: StartedBy) -> bool {
        let (Some(stock), Some(held)) = (self.stock(file), self.held_at(file, self.now)) else {
            return false;
        };
        let bytes = (stock.copy_bytes(held), ShardModel::meta_bytes(held));
        let leftover = self.changed.get(&file).map_or(0.0, |touched| touched.resume);
        let job = self.job(held, held.docs.saturating_add(held.deleted), bytes, leftover);
        let needed = bytes.0.saturating_add(bytes.1);
        let active = self.sizes_of(file).map_or(0, |sizes| sizes.active);
        self.start(
            JobKey { file, kind: JobKind::Shard },
            job,
            Cost { work: active, needed },
            Some(by),
        )
    }

    pub(super) fn start_index(&mut self, file: File, place: usize, by: StartedBy) -> bool {
        let (Some(sizes), Some(held)) =
            (self.index_sizes(file, place), self.held_at(file, self.now))
        else {
            return false;
        };
        let job = self.job(held, held.docs.saturating_mul(2), (sizes.active, 0), 0.0);
        let key = JobKey { file, kind: JobKind::Index(place) };
        let cost = Cost { work: sizes.active, needed: sizes.active };
        self.start(key, job, cost, Some(by))
    }

    pub(super) fn start_build(&mut self, file: File, place: usize) -> bool {
        let Some(held) = self.held_at(file, self.now) else { return false };
        let built = self.index_seq(file, place, held);
        self.start_indexer(JobKey { file, kind: JobKind::Build(place) }, held, built)
    }

    /// Starts an indexer from this sequence; false: nothing to do, or it is already running.
    pub(super) fn start_indexer(&mut self, key: JobKey, held: DocCounts, built: u64) -> bool {
        let behind = held.seq.saturating_sub(built);
        if behind == 0 {
            return false;
        }
        let rate = self.config.index_rate.max(1);
        let work = behind.saturating_mul(self.config.compaction_rate) / rate;
        let job =
            Job { base: DocCounts { seq: built, ..held }, ..self.job(held, behind, (0, 0), 0.0) };
        self.start(key, job, Cost { work, needed: 0 }, None)
    }

    fn job(&self, held: DocCounts, changes: u64, bytes: (u64, u64), from: f64) -> Job {
        Job {
            process: 0,
            pass: 1,
            began: self.now,
            ends: self.now,
            base: held,
            pass_start: held,
            changes,
            done_at_start: from,
            done_at_end: 1.0,
            bytes,
        }
    }

    /// Starts a job; `by` is who started a compaction.
    fn start(&mut self, key: JobKey, job: Job, cost: Cost, by: Option<StartedBy>) -> bool {
        let Cost { work, needed } = cost;
        let Some(node) = self.node_of(key.file).filter(|node| self.is_up(*node)) else {
            return false;
        };
        if self.jobs.contains_key(&key) {
            return false;
        }
        let has = self.changed.get(&key.file).map_or(0, |touched| touched.leftover);
        let free = self.available(node).map(|free| free.saturating_add(has));
        let until = match free {
            Some(free) if free < needed => (free as f64 / needed as f64).max(job.done_at_start),
            _ => 1.0,
        };
        let whole = work as f64 / self.config.compaction_rate.max(1) as f64;
        // A file of many terabytes at one byte per second never ends.
        let whole = Duration::try_from_secs_f64(whole).unwrap_or(Duration::MAX / 4);
        let length = whole.mul_f64((until - job.done_at_start).clamp(0.0, 1.0));
        let ends = self.now.saturating_add(length.max(self.config.shortest_job));
        if let Some(by) = by {
            self.record_start(key, node, needed.saturating_sub(has), by);
        }
        self.run(key, Job { done_at_end: until, ends, ..job });
        true
    }

    fn record_start(&mut self, key: JobKey, node: u32, needed: u64, by: StartedBy) {
        let others: Vec<JobKey> =
            self.jobs.keys().copied().filter(|other| !other.is_build()).collect();
        let compaction = Compaction {
            node: self.nodes.get(node as usize).map_or_else(String::new, |it| it.node.name.clone()),
            shard: self.name_of(key.file).unwrap_or_default(),
            ddoc: self.ddoc_of(key),
            by,
            began: self.now,
            running_on_node: others.iter().filter(|it| self.node_of(it.file) == Some(node)).count(),
            running_in_cluster: others.len(),
            other_copy: others.iter().any(|other| {
                other.kind == key.kind && other.file != key.file && other.file.is_copy_of(key.file)
            }),
            available: self.available(node),
            needed,
            reserved: self.reserved(node),
            obstacles: self.obstacles(key, node),
            before: self.bytes_of(key),
            end: None,
        };
        self.chronicle.began(key, compaction);
    }

    /// Bytes that compactions on a node's disk will still need.
    fn reserved(&self, node: u32) -> u64 {
        let sharing = self.sharing(node);
        let there = |key: &JobKey| self.node_of(key.file).is_some_and(|it| sharing.contains(&it));
        let jobs = self.jobs.iter().filter(|(key, _)| there(key));
        jobs.map(|(key, job)| job.remaining(key.kind, self.now)).fold(0, u64::saturating_add)
    }

    /// The reasons not to start a compaction now.
    fn obstacles(&self, key: JobKey, node: u32) -> Vec<Obstacle> {
        let name = self.nodes.get(node as usize).map_or("", |state| &state.node.name);
        let maintenance = self.setting(name, "couchdb", "maintenance_mode") == Some("true");
        let file = self.name_of(key.file).unwrap_or_default();
        let splits =
            self.split_jobs().iter().any(|split| split.node == *name && split.source == file);
        let builds = match key.kind {
            JobKind::Index(place) => self.building_to(key.file, place).is_some(),
            JobKind::Shard | JobKind::Build(_) | JobKind::Search(..) => false,
        };
        let all = [
            (maintenance, Obstacle::Maintenance),
            (splits, Obstacle::Splitting),
            (builds, Obstacle::Building),
        ];
        all.into_iter().filter(|(is, _)| *is).map(|(_, kind)| kind).collect()
    }

    fn record_end(&mut self, key: JobKey, swapped: bool) {
        let after = self.bytes_of(key);
        let clean = match key.kind {
            JobKind::Shard => self.stock(key.file).zip(self.held_at(key.file, self.now)),
            JobKind::Index(_) | JobKind::Build(_) | JobKind::Search(..) => None,
        };
        let clean = clean.map_or(after, |(stock, held)| stock.clean(held).min(after));
        self.chronicle.ended(key, CompactionEnd { at: self.now, after, clean, swapped });
    }

    /// The size of a job's file.
    fn bytes_of(&self, key: JobKey) -> u64 {
        let sizes = match key.kind {
            JobKind::Shard => self.sizes_of(key.file),
            JobKind::Index(place) | JobKind::Build(place) => self.index_sizes(key.file, place),
            JobKind::Search(..) => None,
        };
        sizes.map_or(0, |sizes| sizes.file)
    }

    fn ddoc_of(&self, key: JobKey) -> Option<String> {
        match key.kind {
            JobKind::Shard => None,
            JobKind::Index(place) | JobKind::Build(place) | JobKind::Search(place, _) => {
                Some(format!("_design/{}", self.design(key.file, place)?.name))
            }
        }
    }

    /// Every compaction since the start, whoever started it, oldest first.
    #[must_use]
    pub fn compactions(&self) -> Vec<Compaction> {
        self.chronicle.kept()
    }

    fn run(&mut self, key: JobKey, job: Job) {
        self.processes += 1;
        self.ends.insert((job.ends, key));
        self.jobs.insert(key, Job { process: self.processes, ..job });
    }

    /// Ends a job at its time.
    pub(super) fn end(&mut self, key: JobKey) {
        let Some(job) = self.jobs.remove(&key) else {
            self.ends.retain(|(_, other)| *other != key);
            return;
        };
        self.ends.remove(&(job.ends, key));
        let Some(held) = self.held_at(key.file, self.now) else { return };
        match key.kind {
            _ if job.done_at_end < 1.0 => {
                self.leave_temporary(key, &job);
                self.record_end(key, false);
            }
            JobKind::Shard => self.end_pass(key, job, held),
            JobKind::Index(place) => {
                let seq = self.index_seq(key.file, place, held);
                let active = self.index_sizes(key.file, place).map_or(0, |sizes| sizes.active);
                let factor = between(mix(place as u64, held.docs), 0.97, 1.02);
                let start = CompactedView { seq, file: times(active, factor) };
                self.discard(key.file, self.bytes_of(key));
                self.change_index(key.file, place, |state| state.start = start);
                self.record_end(key, true);
            }
            JobKind::Build(place) => {
                let follows = self.design(key.file, place).is_some_and(|design| design.autoupdate);
                let built = if follows { BuildState::Follows } else { BuildState::To(held.seq) };
                self.change_index(key.file, place, |state| state.built = built);
            }
            JobKind::Search(design, at) => self.finish_search(key.file, (design, at), held.seq),
        }
    }

    fn change_index(
        &mut self,
        file: File,
        place: usize,
        change: impl FnOnce(&mut super::index::IndexState),
    ) {
        let Some(mut state) = self.index_state(file, place) else { return };
        change(&mut state);
        self.changed.entry(file).or_default().indexes.insert(place, state);
    }

    fn end_pass(&mut self, key: JobKey, job: Job, held: DocCounts) {
        let Some(stock) = self.stock(key.file) else { return };
        let changes = held.seq.saturating_sub(job.pass_start.seq);
        if changes > 0 && job.pass < PASSES {
            let work = stock.catch_up_bytes(changes) as f64;
            let seconds = work / self.config.compaction_rate.max(1) as f64;
            let length = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4);
            let pass = job.pass + 1;
            let began = self.now;
            let ends = began.saturating_add(length.max(self.config.shortest_job / 4));
            self.run(
                key,
                Job { pass, began, ends, pass_start: held, changes, done_at_start: 0.0, ..job },
            );
            return;
        }
        self.discard(key.file, self.bytes_of(key));
        let touched = self.changed.entry(key.file).or_default();
        touched.swap = Some(stock.compacted_file(job.base, held));
        touched.leftover = 0;
        touched.leftover_grows = false;
        touched.resume = 0.0;
        self.record_end(key, true);
    }

    /// Aborts jobs without a result, as a restart or a full disk does.
    pub(super) fn drop_jobs(&mut self, which: impl Fn(&JobKey) -> bool) {
        let dropped: Vec<JobKey> = self.jobs.keys().copied().filter(which).collect();
        for key in dropped {
            if let Some(job) = self.jobs.remove(&key) {
                self.ends.remove(&(job.ends, key));
                self.leave_temporary(key, &job);
                self.record_end(key, false);
            }
        }
    }

    /// Stalls every job on a node until the node restarts.
    pub fn stall(&mut self, node: &str) {
        let Some(place) = self.node_position(node) else { return };
        let here: Vec<JobKey> =
            self.jobs.keys().copied().filter(|key| self.node_of(key.file) == Some(place)).collect();
        for key in here {
            let Some(mut job) = self.jobs.remove(&key) else { continue };
            self.ends.remove(&(job.ends, key));
            job.done_at_start = job.done(self.now);
            job.began = self.now;
            job.ends = NEVER;
            self.ends.insert((job.ends, key));
            self.jobs.insert(key, job);
        }
    }

    /// Keeps the files of an interrupted compaction for the next one. A build keeps what it has
    /// indexed; an index compaction starts over.
    fn leave_temporary(&mut self, key: JobKey, job: &Job) {
        let done = job.done(self.now);
        match key.kind {
            JobKind::Shard => {
                let touched = self.changed.entry(key.file).or_default();
                touched.leftover = job.temporary(key.kind, self.now);
                touched.leftover_written = self.now;
                touched.leftover_grows = false;
                touched.resume = done.min(0.99);
            }
            JobKind::Build(place) => {
                let seq = built_by(job, self.now);
                self.change_index(key.file, place, |state| state.built = BuildState::To(seq));
            }
            JobKind::Search(design, at) => {
                let seq = built_by(job, self.now);
                self.set_search(key.file, (design, at), BuildState::To(seq));
            }
            JobKind::Index(_) => {}
        }
    }

    /// Whether a compaction of a file is running.
    pub(super) fn compacting(&self, file: File) -> bool {
        self.jobs.contains_key(&JobKey { file, kind: JobKind::Shard })
    }

    /// Whether a compaction of an index is running.
    pub(super) fn compacting_index(&self, file: File, place: usize) -> bool {
        self.jobs.contains_key(&JobKey { file, kind: JobKind::Index(place) })
    }

    /// The sequence that a running build has reached.
    pub(super) fn building_to(&self, file: File, place: usize) -> Option<u64> {
        self.indexed_to(JobKey { file, kind: JobKind::Build(place) })
    }

    /// The sequence that a running indexer has reached.
    pub(super) fn indexed_to(&self, key: JobKey) -> Option<u64> {
        Some(built_by(self.jobs.get(&key)?, self.now))
    }
}

/// The sequence that a build has reached.
fn built_by(job: &Job, now: Duration) -> u64 {
    let span = job.pass_start.seq.saturating_sub(job.base.seq);
    job.base.seq.saturating_add(times(span, job.done(now)))
}
