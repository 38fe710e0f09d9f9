//! Counters of what happened since the process started.

use crate::{
    jobs::Ended,
    model::{
        memory::{Ending, Owner},
        target::Kind,
    },
};
use std::{collections::BTreeMap, sync::Arc};

/// Buckets for durations of compactions, in seconds, from one second to one day.
const DURATIONS: [f64; 12] =
    [1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1_800.0, 3_600.0, 7_200.0, 21_600.0, 43_200.0, 86_400.0];

/// Buckets for actual size divided by predicted size; 1 is an exact prediction.
const RATIOS: [f64; 12] = [0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.01, 1.05, 1.1, 1.25, 2.0, 4.0];

/// Node, channel and kind.
pub type Place = (Arc<str>, Arc<str>, Kind);

/// Results of this process's own jobs since it started. Jobs of other programs are tracked and
/// remembered, but not counted here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Requests that CouchDB accepted or may have accepted.
    pub started: BTreeMap<Place, u64>,
    /// Ended jobs, by ending.
    pub finished: BTreeMap<(Place, Ending), u64>,
    /// Freed bytes, by node and kind.
    pub reclaimed: BTreeMap<(Arc<str>, Kind), u64>,
    /// Sizes of new files, by node and kind.
    pub rewritten: BTreeMap<(Arc<str>, Kind), u64>,
    /// Durations in seconds of jobs that ended with a new file.
    pub durations: BTreeMap<Kind, Distribution>,
    /// Size after divided by the predicted size.
    pub estimates: BTreeMap<Kind, Distribution>,
}

/// A histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Upper bounds with the number of values at or below each; the bound of infinity is omitted.
    pub buckets: Vec<(f64, u64)>,
    /// Number of values.
    pub count: u64,
    /// Sum of the values.
    pub sum: f64,
}

impl Distribution {
    fn new(bounds: &[f64]) -> Self {
        Self { buckets: bounds.iter().map(|bound| (*bound, 0)).collect(), count: 0, sum: 0.0 }
    }

    /// An empty histogram of durations.
    #[must_use]
    pub fn of_durations() -> Self {
        Self::new(&DURATIONS)
    }

    /// An empty histogram of size ratios.
    #[must_use]
    pub fn of_estimates() -> Self {
        Self::new(&RATIOS)
    }

    fn add(&mut self, value: f64) {
        for (_, count) in self.buckets.iter_mut().filter(|(bound, _)| value <= *bound) {
            *count += 1;
        }
        self.count += 1;
        self.sum += value;
    }
}

impl Counts {
    pub(super) fn start(&mut self, place: Place) {
        *self.started.entry(place).or_default() += 1;
    }

    pub(super) fn end(&mut self, ended: &Ended) {
        let outcome = &ended.outcome;
        if outcome.owner != Owner::Recliner {
            return;
        }
        let node: Arc<str> = outcome.node.as_str().into();
        let channel = outcome.channel.as_deref().unwrap_or_default().into();
        let place = (Arc::clone(&node), channel, outcome.kind);
        *self.finished.entry((place, outcome.ending)).or_default() += 1;
        if matches!(outcome.ending, Ending::Failed | Ending::Lost) {
            return;
        }
        let took = outcome.started_at.age(outcome.ended_at).as_secs_f64();
        let durations = self.durations.entry(outcome.kind);
        durations.or_insert_with(Distribution::of_durations).add(took);
        if let Some(ratio) = outcome.estimate_ratio() {
            let estimates = self.estimates.entry(outcome.kind);
            estimates.or_insert_with(Distribution::of_estimates).add(ratio);
        }
        if let Some(after) = outcome.after_bytes {
            *self.rewritten.entry((Arc::clone(&node), outcome.kind)).or_default() += after;
        }
        if let Some(freed) = outcome.freed_bytes().and_then(|freed| u64::try_from(freed).ok()) {
            *self.reclaimed.entry((node, outcome.kind)).or_default() += freed;
        }
    }
}
