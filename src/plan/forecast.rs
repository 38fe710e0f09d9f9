//! What a compaction is expected to come to: as the estimator predicts, or, of a target whose
//! last compaction says that another one would be of no use, what that one left.

use super::{Plan, brief::Brief};
use crate::{
    model::{
        facts::{Fact, Known},
        memory::Rest,
    },
    table::{Ix, TargetRef},
};
use std::collections::BTreeMap;

/// What a compaction of a target is expected to come to, in bytes on disk of all its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// What it leaves.
    pub predicted: Option<u64>,
    /// What it frees.
    pub reclaimable: Option<u64>,
    /// How far that may be trusted: `high`; `low`, where active misleads; `learned`, where the
    /// target's own last compaction tells.
    pub confidence: &'static str,
}

/// The word for what a target's own last compaction tells.
const LEARNED: &str = "learned";

impl Plan {
    /// What a compaction of a target is expected to come to. It never promises what the
    /// decision about the same target denies.
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
    /// The same with what the target's last compaction says of another one, where it does.
    pub(super) fn learned(&self, rests: &BTreeMap<Ix, Rest>) -> Self {
        let learned = would_leave(rests, self.ix).map(Known::new);
        Self { predicted: learned.unwrap_or(self.predicted), ..*self }
    }
}

/// Bytes that another compaction would leave of one file, where the last one tells.
fn would_leave(rests: &BTreeMap<Ix, Rest>, ix: Ix) -> Option<u64> {
    match rests.get(&ix)? {
        Rest::Futile { would_leave, .. } => *would_leave,
        Rest::CoolDown { .. } | Rest::Quarantined { .. } => None,
    }
}
