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
    /// where compactions of the target or of its database corrected or confirmed them; `xray` where
    /// its file was looked into; `estimated` where most files of an index were not measured.
    pub confidence: &'static str,
}

impl Plan {
    /// The expected result of compacting a target of this plan's snapshot. It never contradicts the decision
    /// about the same target.
    #[must_use]
    pub fn forecast(&self, target: TargetRef<'_>) -> Forecast {
        let constraints = &self.conditions.constraints;
        let is_learned = constraints.remaining_bytes.contains_key(&target.ix());
        let confidence = match constraints.backoffs.get(&target.ix()) {
            _ if is_learned => Confidence::Learned,
            Some(Backoff::Futile { .. }) => Confidence::Low,
            Some(
                Backoff::CoolDown { .. } | Backoff::Quarantined { .. } | Backoff::Unsettled { .. },
            )
            | None => target.confidence(),
        }
        .label();
        let is_sampled = target.is_estimated() && target.shard_map().ranges > 1;
        let confidence = if is_sampled && confidence == Confidence::High.label() {
            "estimated"
        } else {
            confidence
        };
        Forecast {
            predicted_bytes: target.predicted_bytes(),
            reclaimable_bytes: target.reclaimable_bytes(),
            confidence,
        }
    }
}
