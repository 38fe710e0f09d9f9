//! How large a file will be after compaction, and what that frees.
//!
//! Owns the prediction and its few fitted numbers. Never measures and never learns while
//! it runs. The snapshot's totals and every list of targets read it.
//!
//! # The rule
//!
//! A compaction copies what is active into a new file, so active bytes are the first guess.
//! Two things make the truth differ:
//!
//! * **Headers.** A new file carries a few header blocks that active does not count. They
//!   matter to a file of a hundred kilobytes and vanish in one of a terabyte.
//! * **What rewriting left in live trees.** In a db, the trees keep sizes and positions of
//!   superseded revisions, which compaction drops: bytes
//!   `55 · rewrites / (1 + rewrites / (10 · documents))`, at most a third of active. Rewrites
//!   are the changes since the last compaction that did not first write a document. In a view
//!   it is fragmentation: of the bytes that are tree and not rows, `active - external`, 35 %
//!   times the part of the file that is slack, `(file - active) / file`.
//!
//! Where document counts, sequences or external bytes are unknown, the second term is a small
//! share of active times that part. External bytes are not used for dbs: they are
//! uncompressed, so documents that compress well would hide the trees.
//!
//! Every term but the headers grows in proportion to the database, so a terabyte is predicted
//! as a gigabyte of the same make is. A file just compacted has neither rewrites nor slack:
//! nothing is reclaimable in it, unless the compaction had to catch up with writes. It copies
//! those into the same new file, beside what they supersede there, and that is slack again.
//!
//! # How well
//!
//! Fitted on 501 compactions of CouchDB 3.5.0, of files from 80 KB to 81 MB, by least absolute
//! error of the bytes freed, each shape of documents weighing the same. A shape's line in the
//! table is by numbers fitted without that shape; the form of the rule, its header blocks and
//! the bend at ten rewrites a document were chosen with all shapes in view.
//!
#![doc = include_str!("estimate/held_out.md")]

use crate::model::{
    facts::{Confidence, Facts},
    target::Kind,
};
use couchdb_names::Version;

#[cfg(test)]
mod tests;

/// Header blocks of a freshly compacted db, in bytes: headers are aligned to blocks of 4096
/// bytes, and a compaction writes about four. Outcomes have 9 to 22 KiB more than active, 15.5
/// at the median, and the largest files up to 44 KiB, one block every few megabytes.
const DB_HEADERS: u64 = 4 * 4096;

/// The one header of a freshly compacted view, in bytes, half a block of padding on average.
const VIEW_HEADERS: u64 = 2048;

/// From so many rewrites a document on, one more costs less than half of what the first did:
/// entries of one document resemble each other and compress together.
///
/// Chosen by hand; between 6 and 30 the median error stays below 0.7 %.
const BEND: f64 = 10.0;

/// No compaction seen shrank a db's active bytes by more than this part of them (largest:
/// 0.33), whatever the rewrites.
const LARGEST_DB_PART: u64 = 3;

/// The numbers that come from outcomes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fit {
    /// Bytes the live trees of a db keep for one superseded revision until a compaction
    /// empties its place in the revision tree (`couch_bt_engine_compactor:copy_docs`).
    bytes_per_rewrite: f64,
    /// The same as a share of active bytes, at full slack, where rewrites are not known.
    share_of_db: f64,
    /// Share of a view's tree bytes that fragmentation costs, at full slack.
    share_of_view_tree: f64,
    /// The same as a share of active bytes, where external bytes are not known.
    share_of_view: f64,
}

const FITTED: Fit = Fit {
    bytes_per_rewrite: 55.0,
    share_of_db: 0.075,
    share_of_view_tree: 0.35,
    share_of_view: 0.031,
};

/// Size of the file after a compaction, in bytes.
///
/// Unknown where file or active is; a cleanup rewrites no file and has none. It may exceed
/// the file: compacting a small fresh db does make it larger.
#[must_use]
pub fn predicted(kind: Kind, facts: &Facts) -> Option<u64> {
    FITTED.predicted(kind, facts)
}

/// What a compaction would free, in bytes, never below zero; unknown where file or active is.
#[must_use]
pub fn reclaimable(kind: Kind, facts: &Facts) -> Option<u64> {
    Some(facts.file.get()?.saturating_sub(predicted(kind, facts)?))
}

/// File less active bytes, smoosh's slack, never below zero: what [`reclaimable`] is held
/// against.
#[must_use]
pub fn naive_reclaimable(facts: &Facts) -> Option<u64> {
    Some(facts.file.get()?.saturating_sub(facts.active.get()?))
}

/// How far active, and so the prediction, may be trusted.
///
/// `version` is that of the node that holds the file; `has_attachments` is `None` where it
/// was not looked at. Low for a db before 3.3, where active counts bodies of superseded
/// revisions, and before 3.4.3 unless it is known to hold no attachments, where active counts
/// those of superseded and deleted revisions. Both make active too large, so what is
/// reclaimable is then a lower bound. A view holds neither: its active is the size of its
/// trees on every version.
///
/// Sums stored by those versions stay wrong after an upgrade until the file is compacted, and
/// nothing that CouchDB shows tells such a file apart, so the version that runs now decides.
/// An unknown version is no evidence against active.
#[must_use]
pub fn confidence(
    kind: Kind,
    version: Option<Version>,
    has_attachments: Option<bool>,
) -> Confidence {
    let Some(version) = version.filter(|_| kind == Kind::Db) else { return Confidence::High };
    let old_bodies = version < Version::ACTIVE_WITHOUT_OLD_BODIES;
    let old_attachments =
        version < Version::ACTIVE_WITHOUT_OLD_ATTACHMENTS && has_attachments != Some(false);
    if old_bodies || old_attachments { Confidence::Low } else { Confidence::High }
}

impl Fit {
    fn predicted(&self, kind: Kind, facts: &Facts) -> Option<u64> {
        let active = facts.active.get()?;
        let slack = slack(facts.file.get()?, active);
        let (dropped, headers) = match kind {
            Kind::Db => {
                let dropped = match weighed_rewrites(facts) {
                    Some(rewrites) => self.bytes_per_rewrite * rewrites,
                    None => self.share_of_db * slack * active as f64,
                };
                (whole(dropped).min(active / LARGEST_DB_PART), DB_HEADERS)
            }
            Kind::View => {
                let dropped = match facts.external.get() {
                    Some(rows) => {
                        self.share_of_view_tree * slack * active.saturating_sub(rows) as f64
                    }
                    None => self.share_of_view * slack * active as f64,
                };
                (whole(dropped), VIEW_HEADERS)
            }
            Kind::Cleanup | Kind::Search => return None,
        };
        Some(active.saturating_sub(dropped).saturating_add(headers))
    }
}

/// The part of the file that is not active, 0 to 1.
fn slack(file: u64, active: u64) -> f64 {
    if file == 0 { 0.0 } else { file.saturating_sub(active) as f64 / file as f64 }
}

/// Revisions superseded since the last compaction, later ones of a document counting less
/// ([`BEND`]).
///
/// Every document's first revision is a change but supersedes nothing. Those written since
/// the last compaction cannot be told from those before, so this is the lesser of changes
/// since then and rewrites ever: exact for a db never compacted and for one just compacted.
fn weighed_rewrites(facts: &Facts) -> Option<f64> {
    let documents = facts.docs.get()?.saturating_add(facts.deleted_docs.get()?);
    let ever = facts.update_seq.get()?.saturating_sub(documents);
    let since = u64::try_from(facts.changes()?).unwrap_or_default();
    let rewrites = since.min(ever);
    if rewrites == 0 || documents == 0 {
        return Some(0.0);
    }
    let (rewrites, documents) = (rewrites as f64, documents as f64);
    Some(rewrites / (1.0 + rewrites / (BEND * documents)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and a conversion from float saturates"
)]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}
