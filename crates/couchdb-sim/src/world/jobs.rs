//! Compactions and index builds: how they start, continue and end.
//!
//! The end of a job is computed when it starts, and the world jumps from end to end. If a
//! database compaction finds new writes at the end of a pass, another pass follows in another
//! process, as in CouchDB.

mod tasks;

use super::{
    Compaction, CompactionEnd, Leftover, Obstacle, StartedBy, World,
    index::BuildState,
    keys::{File, Index, JobKey, JobKind},
};
use crate::growth::{CompactedView, DocCounts, ShardModel, between, mix, times};
use std::time::Duration;

/// The number of passes. The last one ends the compaction despite new writes.
const PASSES: u32 = 4;

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
    /// The completed share at the start, thanks to an earlier run's files.
    done_at_start: f64,
    /// The completed share at the end; below 1 if the disk fills up before.
    done_at_end: f64,
    /// The final bytes of the new file and of the sort.
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

    /// The disk usage at its peak, including the files of an earlier run.
    const fn needed(&self) -> u64 {
        self.bytes.0.saturating_add(self.bytes.1)
    }

    /// Bytes of temporary files at `now`.
    pub(super) fn temporary(&self, kind: JobKind, now: Duration) -> u64 {
        match kind {
            JobKind::Shard if self.pass > 1 => self.needed(),
            JobKind::Shard => compaction_written(self.bytes, self.done(now)),
            JobKind::View(_) => times(self.bytes.0, self.done(now)),
            JobKind::Build(_) => 0,
        }
    }

    /// The sequence that a build has reached.
    fn built_to(&self, now: Duration) -> u64 {
        let span = self.pass_start.seq.saturating_sub(self.base.seq);
        self.base.seq.saturating_add(times(span, self.done(now)))
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
    /// Starts to compact one file; false: a compaction is already running; `None`: there is no such
    /// file, or its node is down.
    pub fn compact(&mut self, node: &str, file: &str) -> Option<bool> {
        let file = self.file_up(node, file)?;
        Some(self.start_shard(file, StartedBy::Request))
    }

    /// Starts to compact one copy of a view index, of any range; false: a compaction is already
    /// running; `None`: there is no such copy or design document, or the node is down.
    pub fn compact_view(&mut self, node: &str, file: &str, ddoc: &str) -> Option<bool> {
        let file = self.file_up(node, file)?;
        let place = self.view_place(file, ddoc)?;
        Some(self.start_view(file, place, StartedBy::Request))
    }

    fn file_up(&self, node: &str, file: &str) -> Option<File> {
        let node = self.node_position(node).filter(|node| self.is_up(*node))?;
        self.file(node, file)
    }

    pub(super) fn start_shard(&mut self, file: File, by: StartedBy) -> bool {
        let (stock, held) = (self.stock(file), self.held(file));
        let bytes = (stock.copy_bytes(held), ShardModel::meta_bytes(held));
        let done_at_start = self.changed.get(&file).map_or(0.0, |changes| changes.leftover.resume);
        let changes = held.docs.saturating_add(held.deleted);
        let job = Job { done_at_start, bytes, ..self.job(held, changes) };
        let work = self.sizes_of(file).active;
        self.start(JobKey { file, kind: JobKind::Shard }, job, work, Some(by))
    }

    pub(super) fn start_view(&mut self, file: File, place: usize, by: StartedBy) -> bool {
        let Some(sizes) = self.view_sizes(file, place) else { return false };
        let held = self.held(file);
        let changes = held.docs.saturating_mul(2);
        let job = Job { bytes: (sizes.active, 0), ..self.job(held, changes) };
        self.start(JobKey { file, kind: JobKind::View(place) }, job, sizes.active, Some(by))
    }

    /// Starts to build an index on every running node where it is out of date.
    pub(super) fn start_builds(&mut self, files: Vec<File>, index: Index) {
        for file in files {
            let held = self.held(file);
            let built = self.index_seq(file, index, held);
            let behind = held.seq.saturating_sub(built);
            if behind > 0 {
                let rate = self.config.index_rate.max(1);
                let work = behind.saturating_mul(self.config.compaction_rate) / rate;
                let base = DocCounts { seq: built, ..held };
                let key = JobKey { file, kind: JobKind::Build(index) };
                self.start(key, Job { base, ..self.job(held, behind) }, work, None);
            }
        }
    }

    fn job(&self, held: DocCounts, changes: u64) -> Job {
        Job {
            process: 0,
            pass: 1,
            began: self.now,
            ends: self.now,
            base: held,
            pass_start: held,
            changes,
            done_at_start: 0.0,
            done_at_end: 1.0,
            bytes: (0, 0),
        }
    }

    /// How long it takes to process this many bytes. A file of many terabytes at one byte per
    /// second never ends.
    fn duration_of(&self, work: u64) -> Duration {
        let seconds = work as f64 / self.config.compaction_rate.max(1) as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX / 4)
    }

    /// Starts a job that processes `work` bytes; `by` names who started it, if it is a compaction.
    fn start(&mut self, key: JobKey, job: Job, work: u64, by: Option<StartedBy>) -> bool {
        let node = self.node_of(key.file);
        if !self.is_up(node) || self.jobs.contains_key(&key) {
            return false;
        }
        let needed = job.needed();
        let has = self.changed.get(&key.file).map_or(0, |changes| changes.leftover.bytes);
        let free = self.available(node).map(|free| free.saturating_add(has));
        let done_at_end = match free {
            Some(free) if free < needed => (free as f64 / needed as f64).max(job.done_at_start),
            _ => 1.0,
        };
        let share = (done_at_end - job.done_at_start).clamp(0.0, 1.0);
        let length = self.duration_of(work).mul_f64(share);
        let ends = self.now.saturating_add(length.max(self.config.shortest_job));
        if let Some(by) = by {
            self.record_start(key, node, needed.saturating_sub(has), by);
        }
        self.run(key, Job { done_at_end, ends, ..job });
        true
    }

    fn record_start(&mut self, key: JobKey, node: usize, needed: u64, by: StartedBy) {
        let is_compaction = |key: &&JobKey| !matches!(key.kind, JobKind::Build(_));
        let others: Vec<JobKey> = self.jobs.keys().filter(is_compaction).copied().collect();
        let compaction = Compaction {
            node: self.nodes[node].node.name.clone(),
            shard: self.name_of(key.file),
            ddoc: self.ddoc_of(key),
            by,
            began: self.now,
            running_on_node: others.iter().filter(|other| self.node_of(other.file) == node).count(),
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
    fn reserved(&self, node: usize) -> u64 {
        let sharing = self.sharing(node);
        let jobs = self.jobs.iter().filter(|(key, _)| sharing.contains(&self.node_of(key.file)));
        let remaining =
            jobs.map(|(key, job)| job.needed().saturating_sub(job.temporary(key.kind, self.now)));
        remaining.fold(0, u64::saturating_add)
    }

    /// The reasons not to start a compaction now.
    fn obstacles(&self, key: JobKey, node: usize) -> Vec<Obstacle> {
        let name = &self.nodes[node].node.name;
        let file = self.name_of(key.file);
        let all = [
            (
                self.setting(name, "couchdb", "maintenance_mode") == Some("true"),
                Obstacle::Maintenance,
            ),
            (
                self.split_jobs().iter().any(|split| split.node == *name && split.source == file),
                Obstacle::Splitting,
            ),
            (
                matches!(key.kind, JobKind::View(place)
                    if self.building_to(key.file, Index::View(place)).is_some()),
                Obstacle::Building,
            ),
        ];
        all.into_iter().filter(|(is, _)| *is).map(|(_, kind)| kind).collect()
    }

    fn record_end(&mut self, key: JobKey, swapped: bool) {
        let node = self.node_of(key.file);
        self.nodes[node].flushes += 10;
        let after = self.bytes_of(key);
        let clean = match key.kind {
            JobKind::Shard => self.stock(key.file).clean(self.held(key.file)).min(after),
            JobKind::View(_) | JobKind::Build(_) => after,
        };
        self.chronicle.ended(key, CompactionEnd { at: self.now, after, clean, swapped });
    }

    /// The size of the file that a compaction rewrites.
    fn bytes_of(&self, key: JobKey) -> u64 {
        match key.kind {
            JobKind::Shard => self.sizes_of(key.file).file,
            JobKind::View(place) => self.view_sizes(key.file, place).map_or(0, |sizes| sizes.file),
            JobKind::Build(_) => 0,
        }
    }

    fn ddoc_of(&self, key: JobKey) -> Option<String> {
        let place = match key.kind {
            JobKind::Shard => return None,
            JobKind::View(place) => place,
            JobKind::Build(index) => index.design(),
        };
        Some(format!("_design/{}", self.design(key.file, place)?.name))
    }

    /// Every compaction since the start, whoever started it, oldest first.
    #[must_use]
    pub fn compactions(&self) -> Vec<Compaction> {
        self.chronicle.kept()
    }

    fn run(&mut self, key: JobKey, job: Job) {
        self.processes += 1;
        self.insert_job(key, Job { process: self.processes, ..job });
    }

    fn insert_job(&mut self, key: JobKey, job: Job) {
        self.ends.insert((job.ends, key));
        self.jobs.insert(key, job);
    }

    fn remove_job(&mut self, key: JobKey) -> Option<Job> {
        let job = self.jobs.remove(&key)?;
        self.ends.remove(&(job.ends, key));
        Some(job)
    }

    /// Ends a job at its end time.
    pub(super) fn end(&mut self, key: JobKey) {
        self.note_peak(key);
        let Some(job) = self.remove_job(key) else { return };
        let held = self.held(key.file);
        match key.kind {
            _ if job.done_at_end < 1.0 => {
                self.leave_temporary(key, &job);
                self.record_end(key, false);
            }
            JobKind::Shard => self.end_pass(key, job, held),
            JobKind::View(place) => {
                let seq = self.index_seq(key.file, Index::View(place), held);
                let active = self.view_sizes(key.file, place).map_or(0, |sizes| sizes.active);
                let (low, high) =
                    if self.stock(key.file).even { (0.995, 1.005) } else { (0.97, 1.02) };
                let factor = between(mix(place as u64, held.docs), low, high);
                self.discard(key.file, self.bytes_of(key));
                let compacted = CompactedView { seq, file: times(active, factor) };
                self.changed.entry(key.file).or_default().compacted.insert(place, compacted);
                self.record_end(key, true);
            }
            JobKind::Build(index) => {
                let follows = self.design(key.file, index.design()).is_some_and(|it| it.autoupdate);
                let built = if follows { BuildState::Follows } else { BuildState::To(held.seq) };
                self.changed.entry(key.file).or_default().built.insert(index, built);
            }
        }
    }

    fn end_pass(&mut self, key: JobKey, job: Job, held: DocCounts) {
        let stock = self.stock(key.file);
        let changes = held.seq.saturating_sub(job.pass_start.seq);
        if changes > 0 && job.pass < PASSES {
            let length = self.duration_of(stock.catch_up_bytes(changes));
            let (pass, began) = (job.pass + 1, self.now);
            let ends = began.saturating_add(length.max(self.config.shortest_job / 4));
            self.run(
                key,
                Job { pass, began, ends, pass_start: held, changes, done_at_start: 0.0, ..job },
            );
            return;
        }
        self.discard(key.file, self.bytes_of(key));
        let changes = self.changed.entry(key.file).or_default();
        changes.swap = Some(stock.compacted_file(job.base, held));
        changes.leftover = Leftover::default();
        self.record_end(key, true);
    }

    /// Aborts jobs without a result, as a restart or a full disk does.
    pub(super) fn drop_jobs(&mut self, which: impl Fn(&JobKey) -> bool) {
        let dropped: Vec<JobKey> = self.jobs.keys().copied().filter(which).collect();
        for key in dropped {
            if let Some(job) = self.remove_job(key) {
                self.leave_temporary(key, &job);
                self.record_end(key, false);
            }
        }
    }

    /// Aborts every job on these nodes.
    pub(super) fn drop_jobs_on(&mut self, nodes: &[usize]) {
        let on_nodes = |key: &&JobKey| nodes.contains(&self.node_of(key.file));
        let dropped: Vec<JobKey> = self.jobs.keys().filter(on_nodes).copied().collect();
        self.drop_jobs(|key| dropped.contains(key));
    }

    /// Stalls every job on a node until the node restarts.
    pub fn stall(&mut self, node: &str) {
        let Some(place) = self.node_position(node) else { return };
        let here: Vec<JobKey> =
            self.jobs.keys().copied().filter(|key| self.node_of(key.file) == place).collect();
        for key in here {
            let Some(job) = self.remove_job(key) else { continue };
            let (done_at_start, began) = (job.done(self.now), self.now);
            self.insert_job(key, Job { done_at_start, began, ends: NEVER, ..job });
        }
    }

    /// Keeps the files of an interrupted compaction for the next one. A build keeps what it has
    /// indexed; an index compaction starts over.
    fn leave_temporary(&mut self, key: JobKey, job: &Job) {
        let changes = self.changed.entry(key.file).or_default();
        match key.kind {
            JobKind::Shard => {
                changes.leftover = Leftover {
                    bytes: job.temporary(key.kind, self.now),
                    written: self.now,
                    grows: false,
                    resume: job.done(self.now).min(0.99),
                };
            }
            JobKind::Build(index) => {
                changes.built.insert(index, BuildState::To(job.built_to(self.now)));
            }
            JobKind::View(_) => {}
        }
    }

    /// Whether a compaction of a shard, or of one of its view indexes, is running.
    pub(super) fn compacting(&self, file: File, kind: JobKind) -> bool {
        self.jobs.contains_key(&JobKey { file, kind })
    }

    /// The sequence that a running build has reached.
    pub(super) fn building_to(&self, file: File, index: Index) -> Option<u64> {
        let job = self.jobs.get(&JobKey { file, kind: JobKind::Build(index) })?;
        Some(job.built_to(self.now))
    }
}
