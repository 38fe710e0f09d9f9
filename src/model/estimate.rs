//! Predicts the size of a file after compaction by a fitted rule.
//!
//! Owns the rule and its few fitted numbers. Never measures and does not learn at run time: what
//! compactions of a database really left is learned in [`correction`](super::correction), through
//! which every other room reads the prediction.
//!
//! # The rule
//!
//! A compaction copies active data into a new file, so active bytes are the first guess. Two
//! things cause a difference:
//!
//! * **Headers.** A new file has a few header blocks that are not part of active bytes. They
//!   matter for a file of a hundred kilobytes and are negligible for one of a terabyte.
//! * **Remains of rewriting in live trees.** In a database, the trees keep sizes and positions of
//!   superseded revisions, which compaction drops: `55 · rewrites / (1 + rewrites / (10 ·
//!   documents))` bytes, at most a third of active, and no more than the file has besides active
//!   and headers. Rewrites are the changes since the last compaction that did not create a
//!   document. In a view, the difference is fragmentation: of the bytes that belong to the tree and
//!   not to rows, `active - external`, 35 % times the file's share of slack, `(file - active) /
//!   file`.
//!
//! If document counts, sequences or external bytes are unknown, the second term is a small share
//! of active times the share of slack. External bytes are not used for databases: they are
//! uncompressed, so documents that compress well would hide the trees.
//!
//! Every term except the headers grows in proportion to the database, so the prediction for a
//! terabyte is the one for a gigabyte of the same structure, scaled up. A file that was just
//! compacted has neither rewrites nor slack, so nothing in it is reclaimable, unless the
//! compaction had to catch up with concurrent writes: it appends those to the same new file
//! together with the data that they supersede, and that is slack again.
//!
//! # Accuracy
//!
//! Fitted on 501 compactions of CouchDB 3.5.0, of files from 80 KB to 81 MB, by least absolute
//! error of the bytes freed, with equal weight for each shape of documents. A shape's line in the
//! table uses numbers fitted without that shape; the form of the rule, its header blocks and the
//! bend at ten rewrites per document were chosen with all shapes known.
//!
#![doc = include_str!("estimate/held_out.md")]

use crate::model::{
    facts::{Confidence, Facts},
    rounding::to_bytes,
    target::TargetKind,
};
use couchdb_names::Version;

#[cfg(test)]
mod tests;

/// Header blocks of a freshly compacted database, in bytes: headers are aligned to blocks of 4096
/// bytes, and a compaction writes about four. Outcomes have 9 to 22 KiB more than active, 15.5 at
/// the median, and the largest files up to 44 KiB, one block every few megabytes.
pub(super) const DB_HEADER_BYTES: u64 = 4 * 4096;

/// The single header of a freshly compacted view, in bytes, plus half a block of padding on
/// average.
pub(super) const VIEW_HEADER_BYTES: u64 = 2048;

/// Above this number of rewrites per document, one more rewrite costs less than half as much as the
/// first: the entries of one document are similar and compress well together.
///
/// Chosen by hand; between 6 and 30 the median error stays below 0.7 %.
const REWRITES_HALF_POINT: f64 = 10.0;

/// Inverse of the largest part of its active bytes that a database may lose, whatever the number
/// of rewrites. The largest observed part is 0.33.
const MAX_DROPPED_DIVISOR: u64 = 3;

/// Numbers fitted to outcomes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct FittedParameters {
    /// Bytes that a database's live trees keep for one superseded revision until a compaction
    /// empties its entry in the revision tree (`couch_bt_engine_compactor:copy_docs`).
    bytes_per_rewrite: f64,
    /// `bytes_per_rewrite` as a share of active bytes at full slack, used where rewrites are
    /// unknown.
    share_of_db: f64,
    /// Share of a view's tree bytes that are lost to fragmentation at full slack.
    share_of_view_tree: f64,
    /// `share_of_view_tree` as a share of active bytes, used where external bytes are unknown.
    share_of_view: f64,
}

const FITTED: FittedParameters = FittedParameters {
    bytes_per_rewrite: 55.0,
    share_of_db: 0.075,
    share_of_view_tree: 0.35,
    share_of_view: 0.031,
};

/// Size of the file after a compaction, in bytes, before any correction.
///
/// Unknown if file or active is unknown; a cleanup rewrites no file and has none. It may exceed
/// the file: compacting a small fresh database does make it larger.
pub(crate) fn fitted_bytes(kind: TargetKind, facts: &Facts) -> Option<u64> {
    FITTED.predicted_bytes(kind, facts)
}

/// The confidence in active bytes, and so in the prediction.
///
/// `version` is that of the node that holds the file; `has_attachments` is `None` if unknown. Low
/// for a database before 3.3, where active counts bodies of superseded revisions, and before 3.4.3
/// unless it is known to have no attachments, where active counts attachments of superseded and
/// deleted revisions. Both make active too large, so the reclaimable bytes are then a lower bound.
/// A view has neither: its active bytes are the size of its trees in every version.
///
/// Sums stored by those versions stay wrong after an upgrade until the file is compacted, and
/// CouchDB shows nothing that identifies such a file, so the running version decides. An unknown
/// version gives no reason to doubt active bytes.
pub(crate) fn confidence(
    kind: TargetKind,
    version: Option<Version>,
    has_attachments: Option<bool>,
) -> Confidence {
    let Some(version) = version.filter(|_| kind == TargetKind::Db) else { return Confidence::High };
    let old_bodies = version < Version::ACTIVE_WITHOUT_OLD_BODIES;
    let old_attachments =
        version < Version::ACTIVE_WITHOUT_OLD_ATTACHMENTS && has_attachments != Some(false);
    if old_bodies || old_attachments { Confidence::Low } else { Confidence::High }
}

impl FittedParameters {
    fn predicted_bytes(&self, kind: TargetKind, facts: &Facts) -> Option<u64> {
        let active = facts.active_bytes.get()?;
        let file = facts.file_bytes.get()?;
        let slack = slack_share(file, active);
        let waste = file.saturating_sub(active.saturating_add(DB_HEADER_BYTES));
        let (dropped, headers) = match kind {
            TargetKind::Db => {
                let dropped = match weighted_rewrites(facts) {
                    Some(rewrites) => self.bytes_per_rewrite * rewrites,
                    None => self.share_of_db * slack * active as f64,
                };
                // Each superseded revision left its body in the file, so a file no larger than its
                // active bytes has none, regardless of its sequences.
                let most = active / MAX_DROPPED_DIVISOR;
                (to_bytes(dropped).min(most).min(waste), DB_HEADER_BYTES)
            }
            TargetKind::View => {
                let dropped = match facts.external_bytes.get() {
                    Some(rows) => {
                        self.share_of_view_tree * slack * active.saturating_sub(rows) as f64
                    }
                    None => self.share_of_view * slack * active as f64,
                };
                (to_bytes(dropped), VIEW_HEADER_BYTES)
            }
            TargetKind::Cleanup | TargetKind::Search => return None,
        };
        Some(active.saturating_sub(dropped).saturating_add(headers))
    }
}

/// The share of the file that is not active, 0 to 1.
fn slack_share(file: u64, active: u64) -> f64 {
    if file == 0 { 0.0 } else { file.saturating_sub(active) as f64 / file as f64 }
}

/// Revisions superseded since the last compaction, with lower weight for later ones of the same
/// document ([`REWRITES_HALF_POINT`]).
///
/// Every document's first revision is a change but supersedes nothing. First revisions since the
/// last compaction cannot be distinguished from earlier ones, so this is the smaller of the
/// changes since then and all rewrites ever: exact for a database that was never compacted and for
/// one that was just compacted.
fn weighted_rewrites(facts: &Facts) -> Option<f64> {
    let documents = facts.docs.get()?.saturating_add(facts.deleted_docs.get()?);
    let ever = facts.update_seq.get()?.saturating_sub(documents);
    let since = u64::try_from(facts.changes_since_compaction()?).unwrap_or_default();
    let rewrites = since.min(ever);
    if rewrites == 0 || documents == 0 {
        return Some(0.0);
    }
    let (rewrites, documents) = (rewrites as f64, documents as f64);
    Some(rewrites / (1.0 + rewrites / (REWRITES_HALF_POINT * documents)))
}
