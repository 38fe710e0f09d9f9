//! Counters of what happened since the process started.

use crate::{
    jobs::EndedJob,
    model::{
        records::{JobOwner, JobResult},
        target::TargetKind,
    },
};
use std::{collections::BTreeMap, sync::Arc};

/// Buckets for durations of compactions, in seconds, from one second to one day.
const DURATION_BUCKETS: [f64; 12] =
    [1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 43_200.0, 86_400.0];

/// Buckets for actual size divided by predicted size; 1 is an exact prediction.
const RATIO_BUCKETS: [f64; 12] =
    [0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.01, 1.05, 1.1, 1.25, 2.0, 4.0];

/// Node, channel and kind.
pub(crate) type CounterKey = (Arc<str>, Arc<str>, TargetKind);

/// Results of this process's own jobs since it started. Jobs of other programs are tracked and
/// remembered, but not counted here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobCounters {
    /// Requests that CouchDB accepted or may have accepted.
    pub started: BTreeMap<CounterKey, u64>,
    /// Ended jobs, by ending.
    pub finished: BTreeMap<(CounterKey, JobResult), u64>,
    /// Freed bytes, by node and kind.
    pub reclaimed_bytes: BTreeMap<(Arc<str>, TargetKind), u64>,
    /// Sizes of new files, by node and kind.
    pub rewritten_bytes: BTreeMap<(Arc<str>, TargetKind), u64>,
    /// Durations in seconds of jobs that ended with a new file.
    pub durations: BTreeMap<TargetKind, Histogram>,
    /// Size after divided by the predicted size.
    pub estimate_ratios: BTreeMap<TargetKind, Histogram>,
}

/// A histogram with cumulative buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Upper bounds with the number of values at or below each; the bound of infinity is omitted.
    pub buckets: Vec<(f64, u64)>,
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    pub sum: f64,
}

impl Histogram {
    fn new(bounds: &[f64]) -> Self {
        Self { buckets: bounds.iter().map(|bound| (*bound, 0)).collect(), count: 0, sum: 0.0 }
    }

    /// An empty histogram of durations.
    pub fn durations() -> Self {
        Self::new(&DURATION_BUCKETS)
    }

    /// An empty histogram of size ratios.
    pub fn estimate_ratios() -> Self {
        Self::new(&RATIO_BUCKETS)
    }

    fn observe(&mut self, value: f64) {
        for (_, count) in self.buckets.iter_mut().filter(|(bound, _)| value <= *bound) {
            *count += 1;
        }
        self.count += 1;
        self.sum += value;
    }
}

impl JobCounters {
    pub(super) fn count_start(&mut self, place: CounterKey) {
        *self.started.entry(place).or_default() += 1;
    }

    pub(super) fn count_end(&mut self, ended: &EndedJob) {
        let outcome = &ended.outcome;
        if outcome.owner != JobOwner::Recliner {
            return;
        }
        let node: Arc<str> = outcome.node.as_str().into();
        let channel = outcome.channel.as_deref().unwrap_or_default().into();
        let place = (Arc::clone(&node), channel, outcome.kind);
        *self.finished.entry((place, outcome.ending)).or_default() += 1;
        if matches!(outcome.ending, JobResult::Failed | JobResult::Lost) {
            return;
        }
        let took = outcome.started_at.age(outcome.ended_at).as_secs_f64();
        let durations = self.durations.entry(outcome.kind);
        durations.or_insert_with(Histogram::durations).observe(took);
        if let Some(ratio) = outcome.estimate_ratio() {
            let estimates = self.estimate_ratios.entry(outcome.kind);
            estimates.or_insert_with(Histogram::estimate_ratios).observe(ratio);
        }
        if let Some(after) = outcome.after_bytes {
            *self.rewritten_bytes.entry((Arc::clone(&node), outcome.kind)).or_default() += after;
        }
        if let Some(freed) = outcome.freed_bytes().and_then(|freed| u64::try_from(freed).ok()) {
            *self.reclaimed_bytes.entry((node, outcome.kind)).or_default() += freed;
        }
    }
}
