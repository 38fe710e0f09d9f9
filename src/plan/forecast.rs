//! The expected result of a compaction: from what the target's last compaction left, if that showed
//! more than the sizes do; otherwise from the corrected prediction.

use super::published::Plan;
use crate::{
    model::{facts::Confidence, records::Backoff},
    table::TargetRef,
    text::Label,
};

/// The expected result of compacting a target, in bytes on disk summed over all its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// Bytes left.
    pub predicted_bytes: Option<u64>,
    /// Bytes freed.
    pub reclaimable_bytes: Option<u64>,
    /// Confidence in these numbers: `high`; `low` where active bytes are misleading; `learned`
    /// where compactions of the target or of its database corrected or confirmed them.
    pub confidence: &'static str,
}

impl Plan {
    /// The expected result of compacting a target. It never contradicts the decision about the
    /// same target.
    #[must_use]
    pub fn forecast(&self, target: TargetRef<'_>) -> Forecast {
        let facts = target.facts();
        let constraints = &self.conditions.constraints;
        let learned = constraints.remaining_bytes.get(&target.ix()).copied();
        let confidence = match constraints.backoffs.get(&target.ix()) {
            _ if learned.is_some() => Confidence::Learned,
            Some(Backoff::Futile { .. }) => Confidence::Low,
            Some(Backoff::CoolDown { .. } | Backoff::Quarantined { .. }) | None => {
                target.confidence()
            }
        }
        .label();
        let learned = learned.zip(facts.active_bytes.get());
        let Some((left, active)) = learned.filter(|(_, active)| *active > 0) else {
            let (predicted, reclaimable) = (target.predicted_bytes(), target.reclaimable_bytes());
            return Forecast {
                predicted_bytes: predicted,
                reclaimable_bytes: reclaimable,
                confidence,
            };
        };
        let all = |bytes: u64| {
            let all = u128::from(bytes) * u128::from(left) / u128::from(active);
            u64::try_from(all).unwrap_or(u64::MAX)
        };
        let predicted = target.active_bytes().map(all);
        let file = target.file_bytes();
        let reclaimable = file.zip(predicted).map(|(file, left)| file.saturating_sub(left));
        Forecast { predicted_bytes: predicted, reclaimable_bytes: reclaimable, confidence }
    }
}
