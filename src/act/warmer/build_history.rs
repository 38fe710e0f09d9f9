//! History of each index: since when it lags, which builds were requested, and their results. Pure;
//! one task owns it.

use super::{
    class::{BuildClass, LastBuild},
    index_lag::{DatabaseCopies, IndexLag},
};
use crate::{
    jobs::{Job, Jobs},
    model::settings::work::Warmer,
    table::{NodeIx, TargetIx},
};
use couchdb_names::Signature;
use hashbrown::HashMap;
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// How long a build may take to appear in the task list after its request, or to disappear after
/// its end.
const TASK_LIST_DELAY: Duration = Duration::from_secs(5);

/// A requested measurement that did not arrive within this time is requested again.
const REREAD_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Longest rest after failures.
const MAX_BACKOFF: Duration = Duration::from_secs(3_600);

/// Indexers without progress for this long are stalled.
pub(super) const STALLED_AFTER: Duration = Duration::from_secs(600);

/// How a build ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BuildResult {
    /// The index reached its target sequence.
    Built,
    /// CouchDB refused, no indexer ran, or it ended too early.
    Failed,
}

impl BuildResult {
    /// Every ending.
    pub const ALL: [Self; 2] = [Self::Built, Self::Failed];

    /// The value in JSON, events and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Built => "built",
            Self::Failed => "failed",
        }
    }
}

/// A build requested by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunningBuild {
    pub(super) class: BuildClass,
    pub(super) requested_at: Moment,
    /// The sequence it has to reach.
    target_seq: u64,
    /// The last indexed sequence.
    indexed_seq: u64,
    /// Whether an indexer was seen.
    was_shown: bool,
    /// Since when no indexer is seen although the nodes were polled.
    absent_since: Option<Moment>,
}

/// Start of an index's lag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LagStart {
    /// Since when it lags without an indexer.
    pub(super) since: Moment,
    indexed_seq: u64,
}

/// History of one index.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexHistory {
    signature: Option<Signature>,
    pub(super) lag: Option<LagStart>,
    pub(super) running: Option<RunningBuild>,
    pub(super) last_build: Option<LastBuild>,
    /// Number of failed builds in a row.
    pub(super) failures: u32,
    pub(super) backoff_until: Option<Moment>,
    /// Since when it lags despite builds.
    pub(super) stalled_since: Option<Moment>,
    /// A sequence not worth reaching: the database content has not changed since the index was
    /// current, or a build found nothing to do.
    phantom_seq: Option<u64>,
    /// When a measurement was last requested.
    reread_requested_at: Option<Moment>,
}

impl IndexHistory {
    /// Whether a measurement was requested and may still arrive.
    pub(super) fn awaits_reread(&self, measured_at: Moment, now: Moment) -> bool {
        self.reread_requested_at
            .is_some_and(|asked| measured_at < asked && asked.age(now) < REREAD_RETRY_AFTER)
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
        let work =
            all.entry(ix).or_insert(ActiveIndexers { last_progress_at: job.last_progress_at });
        work.last_progress_at = work.last_progress_at.max(job.last_progress_at);
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

    /// Whether the missing sequences contain no documents. `_security`, revision limits and purges
    /// advance the sequence, and no indexer runs for them until the next write or query.
    pub(super) fn is_phantom(&self, seen: &IndexLag) -> bool {
        self.get(seen.ix).is_some_and(|entry| entry.phantom_seq == Some(seen.target_seq()))
    }

    /// Applies the current lags and jobs.
    pub(super) fn update(
        &mut self,
        all: &[IndexLag],
        jobs: &Jobs,
        settings: &Warmer,
        now: Moment,
    ) -> HistoryChanges {
        let mut step = HistoryChanges::default();
        let work = active_indexers(jobs);
        let places: HashMap<TargetIx, Signature> =
            all.iter().map(|seen| (seen.ix, seen.signature)).collect();
        self.caught_up.retain(|ix, (signature, _)| places.get(ix) == Some(signature));
        self.entries.retain(|ix, entry| {
            let stays = places.get(ix).copied() == entry.signature;
            if let (false, Some(out)) = (stays, entry.running) {
                step.ended.push((*ix, out.class, BuildResult::Failed));
            }
            stays
        });
        for seen in all {
            self.update_index(seen, work.get(&seen.ix), jobs, settings, now, &mut step);
        }
        self.entries.retain(|_, entry| {
            let done = entry
                .last_build
                .is_none_or(|last| last.ended_at.age(now) > settings.prune_interval);
            entry.lag.is_some() || entry.running.is_some() || !done
        });
        step
    }

    fn update_index(
        &mut self,
        seen: &IndexLag,
        work: Option<&ActiveIndexers>,
        jobs: &Jobs,
        settings: &Warmer,
        now: Moment,
        step: &mut HistoryChanges,
    ) {
        let known = self.entries.contains_key(&seen.ix);
        if seen.pending == 0 && seen.database.newest_measurement <= Some(seen.measured_at) {
            self.caught_up.insert(seen.ix, (seen.signature, seen.database.content_hash));
        }
        if !known && seen.pending == 0 {
            return;
        }
        let before = (seen.signature, seen.database.content_hash);
        // A measurement of the database from before the lag proves nothing.
        let measured_since = seen.database.oldest_measurement >= Some(seen.measured_at);
        let unmoved = measured_since && self.caught_up.get(&seen.ix) == Some(&before);
        let entry = self.entries.entry(seen.ix).or_default();
        entry.signature = Some(seen.signature);
        if unmoved && seen.pending > 0 {
            entry.phantom_seq = Some(seen.target_seq());
        }
        if seen.pending == 0 {
            (entry.lag, entry.stalled_since, entry.backoff_until) = (None, None, None);
            entry.failures = 0;
        } else {
            let lag = entry
                .lag
                .get_or_insert(LagStart { since: seen.measured_at, indexed_seq: seen.indexed_seq });
            if work.is_some() || seen.indexed_seq > lag.indexed_seq {
                *lag = LagStart { since: now, indexed_seq: seen.indexed_seq };
            }
        }
        let Some(mut out) = entry.running else { return };
        let quiet = polled_since(&seen.database, jobs, out.requested_at);
        match out.advance(seen, work.is_some(), quiet, entry, settings, now) {
            BuildProgress::Running => entry.running = Some(out),
            BuildProgress::NeedsReread => {
                entry.running = Some(out);
                entry.reread_requested_at = Some(now);
                step.reread.push(seen.ix);
            }
            BuildProgress::Ended(ending) => {
                entry.finish(ending, &out, seen, settings, now);
                step.ended.push((seen.ix, out.class, ending));
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
    pub(super) fn record_start(&mut self, seen: &IndexLag, class: BuildClass, now: Moment) {
        let entry = self.entries.entry(seen.ix).or_default();
        entry.signature = Some(seen.signature);
        entry.running = Some(RunningBuild {
            class,
            requested_at: now,
            target_seq: seen.target_seq(),
            indexed_seq: seen.indexed_seq,
            was_shown: false,
            absent_since: None,
        });
    }

    /// Records that CouchDB refused a build; returns its class.
    pub(super) fn record_refusal(
        &mut self,
        ix: TargetIx,
        settings: &Warmer,
        now: Moment,
    ) -> Option<BuildClass> {
        let entry = self.entries.get_mut(&ix)?;
        let out = entry.running.take()?;
        entry.record_failure(settings, now);
        Some(out.class)
    }
}

enum BuildProgress {
    Running,
    NeedsReread,
    Ended(BuildResult),
}

impl RunningBuild {
    fn advance(
        &mut self,
        seen: &IndexLag,
        at_work: bool,
        quiet: bool,
        entry: &IndexHistory,
        settings: &Warmer,
        now: Moment,
    ) -> BuildProgress {
        if at_work {
            (self.was_shown, self.absent_since) = (true, None);
            return BuildProgress::Running;
        }
        if !quiet {
            return BuildProgress::Running;
        }
        let silent_since = *self.absent_since.get_or_insert(now);
        let asked = entry.reread_requested_at.filter(|asked| *asked >= silent_since);
        let Some(asked) = asked else { return BuildProgress::NeedsReread };
        // An answer within the same second counts; an older one would show no more progress.
        if seen.measured_at < asked {
            return if asked.age(now) < REREAD_RETRY_AFTER {
                BuildProgress::Running
            } else {
                BuildProgress::NeedsReread
            };
        }
        // If it may be current, no more can be known.
        if seen.pending == 0 || seen.may_be_current || seen.indexed_seq >= self.target_seq {
            return BuildProgress::Ended(BuildResult::Built);
        }
        if seen.indexed_seq > self.indexed_seq {
            // The indexer of another copy is between two polls, or another pass begins.
            (self.indexed_seq, self.absent_since) = (seen.indexed_seq, None);
            return BuildProgress::Running;
        }
        if silent_since.age(now) < settings.grace {
            return if asked.age(now) < REREAD_RETRY_AFTER {
                BuildProgress::Running
            } else {
                BuildProgress::NeedsReread
            };
        }
        BuildProgress::Ended(BuildResult::Failed)
    }
}

impl IndexHistory {
    fn finish(
        &mut self,
        ending: BuildResult,
        out: &RunningBuild,
        seen: &IndexLag,
        settings: &Warmer,
        now: Moment,
    ) {
        self.running = None;
        self.last_build = Some(LastBuild { ended_at: now, target_seq: out.target_seq });
        match ending {
            BuildResult::Built => {
                (self.failures, self.backoff_until, self.stalled_since) = (0, None, None);
                if seen.may_be_current {
                    // Until the database changes, another build would find nothing to do.
                    self.phantom_seq = Some(seen.target_seq());
                }
            }
            BuildResult::Failed => {
                if !out.was_shown && seen.pending_per_shard() <= 1 {
                    self.phantom_seq = Some(seen.target_seq());
                }
                self.record_failure(settings, now);
            }
        }
        if let Some(lag) = &mut self.lag {
            lag.since = now;
        }
    }

    /// ken retries a failed build after its delay; here repeated failures wait longer.
    fn record_failure(&mut self, settings: &Warmer, now: Moment) {
        let doublings = self.failures.min(16);
        let rest = settings.delay.max(Duration::from_secs(1)).saturating_mul(1 << doublings);
        self.failures = self.failures.saturating_add(1);
        self.backoff_until = Some(now.plus(rest.min(MAX_BACKOFF)));
        self.stalled_since = self.stalled_since.or(Some(now));
    }
}

/// Whether every node with a copy was polled after a request had time to appear. Nodes that do not
/// answer are ignored.
fn polled_since(database: &DatabaseCopies, jobs: &Jobs, since: Moment) -> bool {
    let asked = |node: &NodeIx| jobs.polled_nodes.iter().find(|(polled, _)| polled == node);
    database
        .copies_by_node
        .keys()
        .filter_map(asked)
        .all(|(_, at)| *at >= since.plus(TASK_LIST_DELAY))
        && database.copies_by_node.keys().any(|node| asked(node).is_some())
}

#[cfg(test)]
mod tests;
