//! The expected result of a compaction: the estimator's prediction or, where a target's last
//! compaction showed that another one would be useless, the size that one left.

use super::{Plan, brief::Brief};
use crate::{
    model::{
        facts::{Fact, Known},
        memory::Rest,
    },
    table::{Ix, TargetRef},
};
use std::collections::BTreeMap;

/// The expected result of compacting a target, in bytes on disk over all its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Bytes left.
    pub predicted: Option<u64>,
    /// Bytes freed.
    pub reclaimable: Option<u64>,
    /// Confidence in these numbers: `high`; `low` where active bytes are misleading; `learned`
    /// where the target's own last compaction provides them.
    pub confidence: &'static str,
}

/// The label for numbers from a target's own last compaction.
const LEARNED: &str = "learned";

impl Plan {
    /// The expected result of compacting a target. It never contradicts the decision about the
    /// same target.
    #[must_use]
    pub fn forecast(&self, target: TargetRef<'_>) -> Forecast {
        let facts = target.facts();
        let rests = &self.conditions.history.rests;
        let confidence = match rests.get(&target.ix()) {
            Some(Rest::Futile { would_leave: Some(_), .. }) => LEARNED,
            Some(Rest::Futile { would_leave: None, .. }) => {
                crate::model::facts::Confidence::Low.label()
            }
            Some(Rest::CoolDown { .. } | Rest::Quarantined { .. }) | None => {
                facts.confidence.label()
            }
        };
        let learned = would_leave(rests, target.ix()).zip(facts.active.get());
        let Some((left, active)) = learned.filter(|(_, active)| *active > 0) else {
            let (predicted, reclaimable) = (target.predicted(), target.reclaimable());
            return Forecast { predicted, reclaimable, confidence };
        };
        let all = |bytes: u64| {
            let all = u128::from(bytes) * u128::from(left) / u128::from(active);
            u64::try_from(all).unwrap_or(u64::MAX)
        };
        let predicted = target.on_disk(Fact::Active).map(all);
        let file = target.on_disk(Fact::File);
        let reclaimable = file.zip(predicted).map(|(file, left)| file.saturating_sub(left));
        Forecast { predicted, reclaimable, confidence }
    }
}

impl Brief {
    /// The same summary with the prediction from the target's last compaction, if there is one.
    pub(super) fn learned(&self, rests: &BTreeMap<Ix, Rest>) -> Self {
        let learned = would_leave(rests, self.ix).map(Known::new);
        Self { predicted: learned.unwrap_or(self.predicted), ..*self }
    }
}

/// Bytes that another compaction would leave of one file, if the last one provides that number.
fn would_leave(rests: &BTreeMap<Ix, Rest>, ix: Ix) -> Option<u64> {
    match rests.get(&ix)? {
        Rest::Futile { would_leave, .. } => *would_leave,
        Rest::CoolDown { .. } | Rest::Quarantined { .. } => None,
    }
}
