//! What a completed compaction shows about predictions.

use crate::{
    jobs::verdict::FileBefore,
    model::{
        correction::{CompactionEvidence, Content, Correction},
        facts::Facts,
        records::{AfterCompaction, CorrectionKey},
        target::TargetKind,
    },
    table::TargetRef,
};
use wall_clock::Moment;

/// The evidence of a compaction that ended `at`, given one file before and after it; `None` if its
/// sizes or its content are unknown.
///
/// Writes during a compaction leave waste in the new file that says nothing about the data: a
/// compaction without writes would free it. So `left_bytes` counts only what another compaction
/// would keep, unless nothing was written.
pub(super) fn of_compaction(
    before: &FileBefore,
    (target, facts): (TargetRef<'_>, Facts),
    after: &AfterCompaction,
    at: Moment,
) -> Option<(CorrectionKey, CompactionEvidence)> {
    let (kind, db) = (target.kind(), target.db_name());
    let file = after.file_bytes?;
    let unchanged = match kind {
        TargetKind::Db => facts.changes_since_compaction() == Some(0),
        TargetKind::View | TargetKind::Cleanup | TargetKind::Search => true,
    };
    let left_bytes = if after.changes == Some(0) && unchanged {
        file
    } else {
        file.min(Correction::NONE.predicted_bytes(kind, &facts)?)
    };
    let changes = before.update_seq.zip(before.compacted_seq);
    let changes = changes.map(|(update, compacted)| update.saturating_sub(compacted));
    let key = CorrectionKey { db: db.db.into(), suffix: db.suffix.into(), kind };
    let evidence = CompactionEvidence {
        at,
        fitted_bytes: before.fitted_bytes?,
        left_bytes,
        content: Content::of(kind, &facts)?,
        changes: changes.filter(|_| kind == TargetKind::Db),
    };
    Some((key, evidence))
}
