//! History of each index: since when it lags, which builds were requested, and their results. Pure;
//! one task owns it.

use super::{
    class::{Class, Last},
    look::{Database, Seen},
};
use crate::{
    jobs::{Job, Jobs},
    model::settings::work::Warmer,
    table::{Ix, NodeIx},
};
use couchdb_names::Signature;
use hashbrown::HashMap;
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// How long a build may take to appear in the task list after its request, or to disappear after
/// its end.
const SETTLES: Duration = Duration::from_secs(5);

/// A requested measurement that did not arrive within this time is requested again.
const ASKS_AGAIN: Duration = Duration::from_secs(30);

/// Longest rest after failures.
const RESTS_AT_MOST: Duration = Duration::from_secs(3_600);

/// Indexers without progress for this long are stalled.
pub(super) const STALLS: Duration = Duration::from_secs(600);

/// How a build ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    /// The index reached its target sequence.
    Built,
    /// CouchDB refused, no indexer ran, or it ended too early.
    Failed,
}

impl Ending {
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
pub(super) struct Out {
    pub(super) class: Class,
    pub(super) at: Moment,
    /// The sequence it has to reach.
    goal: u64,
    /// The last indexed sequence.
    indexed: u64,
    /// Whether an indexer was seen.
    shown: bool,
    /// Since when no indexer is seen although the nodes were polled.
    silent_since: Option<Moment>,
}

/// Start of an index's lag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lag {
    /// Since when it lags without an indexer.
    pub(super) since: Moment,
    indexed: u64,
}

/// History of one index.
#[derive(Clone, Debug, Default)]
pub(super) struct Entry {
    signature: Option<Signature>,
    pub(super) lag: Option<Lag>,
    pub(super) out: Option<Out>,
    pub(super) last: Option<Last>,
    /// Number of failed builds in a row.
    pub(super) failures: u32,
    pub(super) rests_until: Option<Moment>,
    /// Since when it lags despite builds.
    pub(super) stalled_since: Option<Moment>,
    /// A sequence not worth reaching: the database content has not changed since the index was
    /// current, or a build found nothing to do.
    phantom_at: Option<u64>,
    /// When a measurement was last requested.
    asked: Option<Moment>,
}

impl Entry {
    /// Whether a measurement was requested and may still arrive.
    pub(super) fn is_asked(&self, measured_at: Moment, now: Moment) -> bool {
        self.asked.is_some_and(|asked| measured_at < asked && asked.age(now) < ASKS_AGAIN)
    }
}

/// Running indexers of one index, whoever started them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AtWork {
    /// Time of the last progress of any of them.
    pub(super) last_progress: Moment,
}

/// The running indexers, by index.
pub(super) fn at_work(jobs: &Jobs) -> HashMap<Ix, AtWork> {
    let mut all: HashMap<Ix, AtWork> = HashMap::new();
    let builds = jobs.list.iter().filter(|job| !job.compacts());
    for (ix, job) in builds.filter_map(|job: &Job| Some((job.target?, job))) {
        let work = all.entry(ix).or_insert(AtWork { last_progress: job.last_progress });
        work.last_progress = work.last_progress.max(job.last_progress);
    }
    all
}

/// Result of an update.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// Builds that ended.
    pub(super) ended: Vec<(Ix, Class, Ending)>,
    /// Indexes to measure again.
    pub(super) reread: Vec<Ix>,
}

/// History of all indexes.
#[derive(Debug, Default)]
pub(super) struct Memory {
    entries: BTreeMap<Ix, Entry>,
    /// The content hash of a database when its index was last current.
    caught_up: HashMap<Ix, (Signature, u64)>,
}

impl Memory {
    pub(super) fn get(&self, ix: Ix) -> Option<&Entry> {
        self.entries.get(&ix)
    }

    /// Whether the missing sequences contain no documents. `_security`, revision limits and purges
    /// advance the sequence, and no indexer runs for them until the next write or query.
    pub(super) fn is_phantom(&self, seen: &Seen) -> bool {
        self.get(seen.ix).is_some_and(|entry| entry.phantom_at == Some(seen.goal()))
    }

    /// Applies the current lags and jobs.
    pub(super) fn see(
        &mut self,
        all: &[Seen],
        jobs: &Jobs,
        settings: &Warmer,
        now: Moment,
    ) -> Step {
        let mut step = Step::default();
        let work = at_work(jobs);
        let places: HashMap<Ix, Signature> =
            all.iter().map(|seen| (seen.ix, seen.signature)).collect();
        self.caught_up.retain(|ix, (signature, _)| places.get(ix) == Some(signature));
        self.entries.retain(|ix, entry| {
            let stays = places.get(ix).copied() == entry.signature;
            if let (false, Some(out)) = (stays, entry.out) {
                step.ended.push((*ix, out.class, Ending::Failed));
            }
            stays
        });
        for seen in all {
            self.one(seen, work.get(&seen.ix), jobs, settings, now, &mut step);
        }
        self.entries.retain(|_, entry| {
            let done = entry.last.is_none_or(|last| last.at.age(now) > settings.prune_interval);
            entry.lag.is_some() || entry.out.is_some() || !done
        });
        step
    }

    fn one(
        &mut self,
        seen: &Seen,
        work: Option<&AtWork>,
        jobs: &Jobs,
        settings: &Warmer,
        now: Moment,
        step: &mut Step,
    ) {
        let known = self.entries.contains_key(&seen.ix);
        if seen.pending == 0 && seen.database.newest <= Some(seen.measured_at) {
            self.caught_up.insert(seen.ix, (seen.signature, seen.database.content));
        }
        if !known && seen.pending == 0 {
            return;
        }
        let before = (seen.signature, seen.database.content);
        // A measurement of the database from before the lag proves nothing.
        let measured_since = seen.database.oldest >= Some(seen.measured_at);
        let unmoved = measured_since && self.caught_up.get(&seen.ix) == Some(&before);
        let entry = self.entries.entry(seen.ix).or_default();
        entry.signature = Some(seen.signature);
        if unmoved && seen.pending > 0 {
            entry.phantom_at = Some(seen.goal());
        }
        if seen.pending == 0 {
            (entry.lag, entry.stalled_since, entry.rests_until) = (None, None, None);
            entry.failures = 0;
        } else {
            let lag =
                entry.lag.get_or_insert(Lag { since: seen.measured_at, indexed: seen.indexed });
            if work.is_some() || seen.indexed > lag.indexed {
                *lag = Lag { since: now, indexed: seen.indexed };
            }
        }
        let Some(mut out) = entry.out else { return };
        let quiet = quiet(&seen.database, jobs, out.at);
        match out.step(seen, work.is_some(), quiet, entry, settings, now) {
            Going::On => entry.out = Some(out),
            Going::Ask => {
                entry.out = Some(out);
                entry.asked = Some(now);
                step.reread.push(seen.ix);
            }
            Going::Over(ending) => {
                entry.end(ending, &out, seen, settings, now);
                step.ended.push((seen.ix, out.class, ending));
            }
        }
    }

    /// Records that a measurement was requested.
    pub(super) fn asked(&mut self, ix: Ix, now: Moment) {
        if let Some(entry) = self.entries.get_mut(&ix) {
            entry.asked = Some(now);
        }
    }

    /// Records that a build was requested.
    pub(super) fn start(&mut self, seen: &Seen, class: Class, now: Moment) {
        let entry = self.entries.entry(seen.ix).or_default();
        entry.signature = Some(seen.signature);
        entry.out = Some(Out {
            class,
            at: now,
            goal: seen.goal(),
            indexed: seen.indexed,
            shown: false,
            silent_since: None,
        });
    }

    /// Records that CouchDB refused a build; returns its class.
    pub(super) fn refused(&mut self, ix: Ix, settings: &Warmer, now: Moment) -> Option<Class> {
        let entry = self.entries.get_mut(&ix)?;
        let out = entry.out.take()?;
        entry.fail(settings, now);
        Some(out.class)
    }
}

enum Going {
    On,
    Ask,
    Over(Ending),
}

impl Out {
    fn step(
        &mut self,
        seen: &Seen,
        at_work: bool,
        quiet: bool,
        entry: &Entry,
        settings: &Warmer,
        now: Moment,
    ) -> Going {
        if at_work {
            (self.shown, self.silent_since) = (true, None);
            return Going::On;
        }
        if !quiet {
            return Going::On;
        }
        let silent_since = *self.silent_since.get_or_insert(now);
        let asked = entry.asked.filter(|asked| *asked >= silent_since);
        let Some(asked) = asked else { return Going::Ask };
        // An answer within the same second counts; an older one would show no more progress.
        if seen.measured_at < asked {
            return if asked.age(now) < ASKS_AGAIN { Going::On } else { Going::Ask };
        }
        // If it may be current, no more can be known.
        if seen.pending == 0 || seen.unsure || seen.indexed >= self.goal {
            return Going::Over(Ending::Built);
        }
        if seen.indexed > self.indexed {
            // The indexer of another copy is between two polls, or another pass begins.
            (self.indexed, self.silent_since) = (seen.indexed, None);
            return Going::On;
        }
        if silent_since.age(now) < settings.grace {
            return if asked.age(now) < ASKS_AGAIN { Going::On } else { Going::Ask };
        }
        Going::Over(Ending::Failed)
    }
}

impl Entry {
    fn end(&mut self, ending: Ending, out: &Out, seen: &Seen, settings: &Warmer, now: Moment) {
        self.out = None;
        self.last = Some(Last { at: now, goal: out.goal });
        match ending {
            Ending::Built => {
                (self.failures, self.rests_until, self.stalled_since) = (0, None, None);
                if seen.unsure {
                    // Until the database changes, another build would find nothing to do.
                    self.phantom_at = Some(seen.goal());
                }
            }
            Ending::Failed => {
                if !out.shown && seen.pending_of_a_shard() <= 1 {
                    self.phantom_at = Some(seen.goal());
                }
                self.fail(settings, now);
            }
        }
        if let Some(lag) = &mut self.lag {
            lag.since = now;
        }
    }

    /// ken retries a failed build after its delay; here repeated failures wait longer.
    fn fail(&mut self, settings: &Warmer, now: Moment) {
        let doublings = self.failures.min(16);
        let rest = settings.delay.max(Duration::from_secs(1)).saturating_mul(1 << doublings);
        self.failures = self.failures.saturating_add(1);
        self.rests_until = Some(now.plus(rest.min(RESTS_AT_MOST)));
        self.stalled_since = self.stalled_since.or(Some(now));
    }
}

/// Whether every node with a copy was polled after a request had time to appear. Nodes that do not
/// answer are ignored.
fn quiet(database: &Database, jobs: &Jobs, since: Moment) -> bool {
    let asked = |node: &NodeIx| jobs.polled.iter().find(|(polled, _)| polled == node);
    database.sites.keys().filter_map(asked).all(|(_, at)| *at >= since.plus(SETTLES))
        && database.sites.keys().any(|node| asked(node).is_some())
}

#[cfg(test)]
mod tests;
