//! What all compactions did since the process started, whoever started them.

use crate::model::{
    records::{JobResult, Outcome},
    target::TargetKind,
};

/// Sums over compactions of databases and views that ended with a new file. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionTotals {
    /// Number of compactions.
    pub compactions: u64,
    /// Number of compactions whose sizes are unknown.
    pub unmeasured: u64,
    /// Bytes freed, where sizes are known.
    pub freed_bytes: u64,
    /// Bytes of the new files, where sizes are known.
    pub rewritten_bytes: u64,
}

impl CompactionTotals {
    /// Counts a job that ended.
    pub(crate) fn count(&mut self, outcome: &Outcome) {
        let has_file = matches!(outcome.kind, TargetKind::Db | TargetKind::View);
        if !has_file || matches!(outcome.ending, JobResult::Failed | JobResult::Lost) {
            return;
        }
        self.compactions += 1;
        match (outcome.freed_bytes(), outcome.after_bytes) {
            (Some(freed), Some(after)) => {
                let freed = u64::try_from(freed).unwrap_or_default();
                self.freed_bytes = self.freed_bytes.saturating_add(freed);
                self.rewritten_bytes = self.rewritten_bytes.saturating_add(after);
            }
            _ => self.unmeasured += 1,
        }
    }

    /// The increase since earlier sums.
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            compactions: self.compactions.saturating_sub(earlier.compactions),
            unmeasured: self.unmeasured.saturating_sub(earlier.unmeasured),
            freed_bytes: self.freed_bytes.saturating_sub(earlier.freed_bytes),
            rewritten_bytes: self.rewritten_bytes.saturating_sub(earlier.rewritten_bytes),
        }
    }
}
