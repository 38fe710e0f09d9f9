//! History of each index: since when it lags, which builds were requested, and their results. Pure;
//! one task owns it.

use super::{
    class::{BuildClass, LastBuild},
    index_lag::{DatabaseCopies, IndexLag},
};
use crate::{
    jobs::{FailedBuilds, Job, Jobs},
    model::settings::work::Warmer,
    table::{NodeIx, TargetIx},
};
use couchdb_names::Signature;
use hashbrown::HashMap;
use std::{collections::BTreeMap, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// How long a build may take to appear in the task list after its request, or to disappear after
/// its end.
const TASK_LIST_DELAY: Duration = Duration::from_secs(5);

/// A requested measurement that did not arrive within this time is requested again.
const REREAD_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Maximum pause after failures.
const MAX_BACKOFF: Duration = Duration::from_secs(3_600);

/// Indexers without progress for this long are stalled.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(600);

/// How a build ended.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuildResult {
    /// The index reached its target sequence.
    Built,
    /// CouchDB refused, no indexer ran, or it ended too early.
    Failed,
}

/// A build requested by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunningBuild {
    pub(super) class: BuildClass,
    pub(super) requested_at: Moment,
    /// The sequence it has to reach.
    target_seq: u64,
    indexed_seq: u64,
    /// Whether an indexer was seen.
    was_shown: bool,
    /// Since when no indexer is seen although the nodes were polled.
    absent_since: Option<Moment>,
}

/// Start of an index's lag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LagStart {
    /// Since when it lags and nothing has brought it forward.
    pub(super) since: Moment,
    /// What the grace period counts from: as `since`, or when an indexer or a build last ended.
    pub(super) grace_from: Moment,
    indexed_seq: u64,
}

/// History of one index.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexHistory {
    signature: Option<Signature>,
    pub(super) lag: Option<LagStart>,
    pub(super) running: Option<RunningBuild>,
    pub(super) last_build: Option<LastBuild>,
    /// Builds that failed in a row while it lagged.
    pub(super) failed: Option<FailedBuilds>,
    pub(super) backoff_until: Option<Moment>,
    /// A sequence not worth reaching: the database content has not changed since the index was
    /// current, or a build found nothing to do.
    phantom_seq: Option<u64>,
    /// When a measurement was last requested.
    reread_requested_at: Option<Moment>,
}

impl IndexHistory {
    /// Whether a measurement was requested and may still arrive.
    pub(super) fn awaits_reread(&self, measured_at: Moment, now: Moment) -> bool {
        self.reread_requested_at.is_some_and(|requested| {
            measured_at < requested && requested.age(now) < REREAD_RETRY_AFTER
        })
    }
}

/// Running indexers of one index, whoever started them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ActiveIndexers {
    /// Time of the last progress of any of them.
    pub(super) last_progress_at: Moment,
}

/// The running indexers, by index.
pub(super) fn active_indexers(jobs: &Jobs) -> HashMap<TargetIx, ActiveIndexers> {
    let mut all: HashMap<TargetIx, ActiveIndexers> = HashMap::new();
    let builds = jobs.list.iter().filter(|job| !job.is_compaction());
    for (ix, job) in builds.filter_map(|job: &Job| Some((job.target?, job))) {
        let indexers =
            all.entry(ix).or_insert(ActiveIndexers { last_progress_at: job.last_progress_at });
        indexers.last_progress_at = indexers.last_progress_at.max(job.last_progress_at);
    }
    all
}

/// Result of an update.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct HistoryChanges {
    /// Builds that ended.
    pub(super) ended: Vec<(TargetIx, BuildClass, BuildResult)>,
    /// Indexes to measure again.
    pub(super) reread: Vec<TargetIx>,
}

/// History of all indexes.
#[derive(Debug, Default)]
pub(super) struct BuildHistory {
    entries: BTreeMap<TargetIx, IndexHistory>,
    /// The content hash of a database when its index was last current.
    caught_up: HashMap<TargetIx, (Signature, u64)>,
}

impl BuildHistory {
    pub(super) fn get(&self, ix: TargetIx) -> Option<&IndexHistory> {
        self.entries.get(&ix)
    }

    /// The build of an index that this process requested and that has not ended.
    pub(super) fn running_build(&self, ix: TargetIx) -> Option<RunningBuild> {
        self.get(ix).and_then(|entry| entry.running)
    }

    /// Whether the missing sequences contain no documents. `_security`, revision limits and purges
    /// advance the sequence, and no indexer runs for them until the next write or query.
    pub(super) fn is_phantom(&self, lag: &IndexLag) -> bool {
        self.get(lag.ix).is_some_and(|entry| entry.phantom_seq == Some(lag.target_seq()))
    }

    /// Applies the current lags and jobs.
    pub(super) fn update(
        &mut self,
        lags: &[IndexLag],
        jobs: &Jobs,
        settings: &Warmer,
        now: Moment,
    ) -> HistoryChanges {
        let mut changes = HistoryChanges::default();
        let indexers = active_indexers(jobs);
        let signatures: HashMap<TargetIx, Signature> =
            lags.iter().map(|lag| (lag.ix, lag.signature)).collect();
        self.caught_up.retain(|ix, (signature, _)| signatures.get(ix) == Some(signature));
        self.entries.retain(|ix, entry| {
            let exists = signatures.get(ix).copied() == entry.signature;
            if let (false, Some(build)) = (exists, entry.running) {
                changes.ended.push((*ix, build.class, BuildResult::Failed));
            }
            exists
        });
        for lag in lags {
            self.update_lag(lag, indexers.contains_key(&lag.ix), now);
            let Some(build) = self.running_build(lag.ix) else { continue };
            let observed = ObservedIndex {
                lag,
                is_indexing: indexers.contains_key(&lag.ix),
                was_polled: polled_since(&lag.database, jobs, build.requested_at),
            };
            self.update_build(observed, settings, now, &mut changes);
        }
        self.entries.retain(|_, entry| {
            let is_old = entry
                .last_build
                .is_none_or(|last| last.ended_at.age(now) > settings.prune_interval);
            entry.lag.is_some() || entry.running.is_some() || !is_old
        });
        changes
    }

    /// Updates since when an index lags, and whether its lag is a phantom.
    fn update_lag(&mut self, lag: &IndexLag, is_indexing: bool, now: Moment) {
        let is_known = self.entries.contains_key(&lag.ix);
        if lag.pending == 0 && lag.database.newest_measurement <= Some(lag.measured_at) {
            self.caught_up.insert(lag.ix, (lag.signature, lag.database.content_hash));
        }
        if !is_known && lag.pending == 0 {
            return;
        }
        let content = (lag.signature, lag.database.content_hash);
        // A measurement of the database from before the lag proves nothing.
        let measured_since = lag.database.oldest_measurement >= Some(lag.measured_at);
        let is_unchanged = measured_since && self.caught_up.get(&lag.ix) == Some(&content);
        let entry = self.entries.entry(lag.ix).or_default();
        entry.signature = Some(lag.signature);
        if is_unchanged && lag.pending > 0 {
            entry.phantom_seq = Some(lag.target_seq());
        }
        if lag.pending == 0 {
            (entry.lag, entry.failed, entry.backoff_until) = (None, None, None);
        } else {
            let from = |since| LagStart { since, grace_from: since, indexed_seq: lag.indexed_seq };
            let start = entry.lag.get_or_insert_with(|| from(lag.measured_at));
            if lag.indexed_seq > start.indexed_seq {
                *start = from(now);
            } else if is_indexing {
                start.grace_from = now;
            }
        }
    }

    /// Follows a requested build.
    fn update_build(
        &mut self,
        observed: ObservedIndex<'_>,
        settings: &Warmer,
        now: Moment,
        changes: &mut HistoryChanges,
    ) {
        let lag = observed.lag;
        let Some(entry) = self.entries.get_mut(&lag.ix) else { return };
        let Some(mut build) = entry.running else { return };
        match build.advance(observed, entry.reread_requested_at, settings, now) {
            BuildProgress::Running => entry.running = Some(build),
            BuildProgress::NeedsReread => {
                entry.running = Some(build);
                entry.reread_requested_at = Some(now);
                changes.reread.push(lag.ix);
            }
            BuildProgress::Ended(result) => {
                entry.finish(result, &build, lag, settings, now);
                changes.ended.push((lag.ix, build.class, result));
            }
        }
    }

    /// Records that a measurement was requested.
    pub(super) fn record_reread(&mut self, ix: TargetIx, now: Moment) {
        if let Some(entry) = self.entries.get_mut(&ix) {
            entry.reread_requested_at = Some(now);
        }
    }

    /// Records that a build was requested.
    pub(super) fn record_start(&mut self, lag: &IndexLag, class: BuildClass, now: Moment) {
        let entry = self.entries.entry(lag.ix).or_default();
        entry.signature = Some(lag.signature);
        entry.running = Some(RunningBuild {
            class,
            requested_at: now,
            target_seq: lag.target_seq(),
            indexed_seq: lag.indexed_seq,
            was_shown: false,
            absent_since: None,
        });
    }

    /// Records that CouchDB refused a build; returns its class.
    pub(super) fn record_refusal(
        &mut self,
        ix: TargetIx,
        why: &str,
        settings: &Warmer,
        now: Moment,
    ) -> Option<BuildClass> {
        let entry = self.entries.get_mut(&ix)?;
        let build = entry.running.take()?;
        entry.record_failure(Some(why.to_owned()), settings, now);
        Some(build.class)
    }
}

/// What is known about an index while a requested build of it runs.
#[derive(Clone, Copy, Debug)]
struct ObservedIndex<'a> {
    lag: &'a IndexLag,
    /// Whether an indexer works on it.
    is_indexing: bool,
    /// Whether its nodes were polled after the request had time to appear.
    was_polled: bool,
}

enum BuildProgress {
    Running,
    NeedsReread,
    Ended(BuildResult),
}

impl RunningBuild {
    fn advance(
        &mut self,
        ObservedIndex { lag, is_indexing, was_polled }: ObservedIndex<'_>,
        reread_requested_at: Option<Moment>,
        settings: &Warmer,
        now: Moment,
    ) -> BuildProgress {
        if is_indexing {
            (self.was_shown, self.absent_since) = (true, None);
            return BuildProgress::Running;
        }
        if !was_polled {
            return BuildProgress::Running;
        }
        let absent_since = *self.absent_since.get_or_insert(now);
        let requested_at = reread_requested_at.filter(|at| *at >= absent_since);
        let Some(requested_at) = requested_at else { return BuildProgress::NeedsReread };
        let wait_for_reread = || {
            if requested_at.age(now) < REREAD_RETRY_AFTER {
                BuildProgress::Running
            } else {
                BuildProgress::NeedsReread
            }
        };
        // A measurement from the same second counts; an older one cannot show progress.
        if lag.measured_at < requested_at {
            return wait_for_reread();
        }
        // If the index may be current, nothing more can be learned.
        if lag.pending == 0 || lag.may_be_current || lag.indexed_seq >= self.target_seq {
            return BuildProgress::Ended(BuildResult::Built);
        }
        if lag.indexed_seq > self.indexed_seq {
            // The indexer of another copy is between two polls, or another pass begins.
            (self.indexed_seq, self.absent_since) = (lag.indexed_seq, None);
            return BuildProgress::Running;
        }
        if absent_since.age(now) < settings.grace {
            return wait_for_reread();
        }
        BuildProgress::Ended(BuildResult::Failed)
    }
}

impl IndexHistory {
    fn finish(
        &mut self,
        result: BuildResult,
        build: &RunningBuild,
        lag: &IndexLag,
        settings: &Warmer,
        now: Moment,
    ) {
        self.running = None;
        self.last_build = Some(LastBuild { ended_at: now, target_seq: build.target_seq });
        match result {
            BuildResult::Built => {
                (self.failed, self.backoff_until) = (None, None);
                if lag.may_be_current {
                    // Until the database changes, another build would find nothing to do.
                    self.phantom_seq = Some(lag.target_seq());
                }
            }
            BuildResult::Failed => {
                if !build.was_shown && lag.pending_per_shard() <= 1 {
                    self.phantom_seq = Some(lag.target_seq());
                }
                self.record_failure(None, settings, now);
            }
        }
        if let Some(lag) = &mut self.lag {
            lag.grace_from = now;
        }
    }

    /// ken retries a failed build after its delay; here repeated failures wait longer.
    fn record_failure(&mut self, refused_because: Option<String>, settings: &Warmer, now: Moment) {
        let (failures, since) =
            self.failed.as_ref().map_or((0, now), |failed| (failed.count, failed.since));
        let doublings = failures.min(16);
        let pause = settings.delay.max(Duration::from_secs(1)).saturating_mul(1 << doublings);
        self.backoff_until = Some(now.plus(pause.min(MAX_BACKOFF)));
        self.failed =
            Some(FailedBuilds { count: failures.saturating_add(1), since, refused_because });
    }
}

/// Whether every node with a copy was polled after a request had time to appear. Nodes that do not
/// answer are ignored.
fn polled_since(database: &DatabaseCopies, jobs: &Jobs, since: Moment) -> bool {
    let polled = |node: &NodeIx| jobs.polled_nodes.iter().find(|(name, _)| name == node);
    database
        .copies_by_node
        .keys()
        .filter_map(polled)
        .all(|(_, at)| *at >= since.plus(TASK_LIST_DELAY))
        && database.copies_by_node.keys().any(|node| polled(node).is_some())
}

#[cfg(test)]
mod tests;
