//! Corrects predicted sizes by the sizes that earlier compactions of the same database left.
//!
//! Owns the correction of one prediction, and the evidence that one compaction gives. Never learns:
//! [`records`](super::records) stores and weighs that evidence. Every prediction outside `model`
//! goes through [`Correction::predicted_bytes`]. The fitted rule in [`estimate`] is the prediction
//! before correction, and learning compares outcomes with it.
//!
//! # The rule
//!
//! Before CouchDB 3.4.3 active bytes include attachments of superseded and deleted revisions, and
//! before 3.3 their bodies, so the fitted rule predicts too much. A compaction drops these bytes,
//! so active bytes are right just after it. A constant ratio is therefore wrong: the error starts
//! at zero and grows with each write. What stays nearly constant is the size of a document. The
//! correction has two parts, learned for each database and kind of target:
//!
//! * **density**: bytes that compactions left for each document or, in a view, for each
//!   uncompressed byte of its rows. It gives a second prediction, from the number of documents.
//! * **trust**, 0 to 1: the share of the difference between the two predictions that compactions
//!   really removed.
//!
//! ```text
//! predicted = fitted - trust * min(fitted - by documents, 2 * density * changes)
//! ```
//!
//! The difference counts only where the fitted rule predicts more, and only as far as the writes
//! since the last compaction can explain it: a file that was just compacted is predicted by the
//! fitted rule alone. Without outcomes trust is zero, and the fitted rule applies unchanged.
//!
//! An X-ray of the file knows better than both, as long as it is of the same file.
//!
//! Measured on 18 databases of nine shapes on CouchDB 3.3.3, whose shards were compacted seven
//! times: the fitted rule is wrong by 59 % of the size after compaction (median, from the fourth
//! compaction on), the corrected prediction by 4 %. A learned ratio of the size after compaction to
//! the fitted prediction, from the same evidence, is wrong by 12 %.

use super::{
    estimate,
    facts::{Confidence, Facts, Inside, OptionalU64},
    rounding::to_bytes,
    target::TargetKind,
};
use std::collections::BTreeMap;
use wall_clock::Moment;

/// Bytes that a compaction keeps for a deleted document: its id, twice, and its last revisions. Any
/// value between 100 and 300 gives the same error.
pub const TOMBSTONE_BYTES: u64 = 200;

/// A single write may be this many times larger than the mean document.
const MAX_WRITE_DENSITY: f64 = 2.0;

/// A correction of more than this share of the fitted prediction counts as learned.
const NOTICEABLE_SHARE: f64 = 0.01;

/// Content of a file, from which its size can be predicted without active bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// Documents that are not deleted, or the uncompressed bytes of a view's rows.
    pub units: u64,
    /// Bytes of the file that do not depend on `units`: headers and deleted documents.
    pub overhead_bytes: u64,
}

impl Content {
    /// The content of a file with these facts; `None` if unknown or if the target has no file.
    pub fn of(kind: TargetKind, facts: &Facts) -> Option<Self> {
        match kind {
            TargetKind::Db => {
                let deleted = facts.deleted_docs.get()?.saturating_mul(TOMBSTONE_BYTES);
                let overhead_bytes = deleted.saturating_add(estimate::DB_HEADER_BYTES);
                Some(Self { units: facts.docs.get()?, overhead_bytes })
            }
            TargetKind::View => Some(Self {
                units: facts.external_bytes.get()?,
                overhead_bytes: estimate::VIEW_HEADER_BYTES,
            }),
            TargetKind::Cleanup | TargetKind::Search => None,
        }
    }
}

/// Evidence from one compaction of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionEvidence {
    /// When it ended.
    pub at: Moment,
    /// The size after the compaction that the fitted rule predicted from the facts before it.
    pub fitted_bytes: u64,
    /// Bytes in the new file that another compaction would keep.
    pub left_bytes: u64,
    /// What the new file contains.
    pub content: Content,
    /// Changes since the previous compaction; `None` for views.
    pub changes: Option<u64>,
}

impl CompactionEvidence {
    /// The share of the fitted prediction, -1 to 1, by which the file turned out smaller.
    pub(super) fn missed_share(&self) -> f64 {
        self.share(self.fitted_bytes as f64 - self.left_bytes as f64)
    }

    /// The share of the fitted prediction, 0 to 1, by which the prediction from `density` was
    /// lower.
    pub(super) fn difference_share(&self, density: f64) -> f64 {
        self.share(difference(self.fitted_bytes, self.content, density, self.changes))
    }

    fn share(&self, bytes: f64) -> f64 {
        (bytes / self.fitted_bytes.max(1) as f64).clamp(-1.0, 1.0)
    }
}

/// Bytes by which the fitted prediction exceeds the one from the density, as far as writes explain
/// it.
fn difference(fitted: u64, content: Content, density: f64, changes: Option<u64>) -> f64 {
    let by_content = content.overhead_bytes as f64 + density * content.units as f64;
    let more = (fitted as f64 - by_content).max(0.0);
    changes.map_or(more, |changes| more.min(MAX_WRITE_DENSITY * density * changes as f64))
}

/// How predictions for the files of one database and kind are corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Correction {
    /// Bytes left for each unit of content; zero if unknown.
    pub density: f32,
    /// The share of the difference that is subtracted, 0 to 1.
    pub trust: f32,
    /// Like `trust`, for files whose active bytes are known to be misleading; learned from other
    /// databases as well.
    pub trust_where_low: f32,
    /// Whether enough compactions were recorded to vouch for predictions, corrected or not.
    pub is_confirmed: bool,
    /// The last X-ray of the target's file; only in the correction of one target.
    pub inside: Option<Inside>,
}

impl Correction {
    /// Nothing was learned: the fitted rule applies unchanged.
    pub const NONE: Self =
        Self { density: 0.0, trust: 0.0, trust_where_low: 0.0, is_confirmed: false, inside: None };

    /// Size of a file after a compaction, in bytes; unknown where the fitted rule gives no size.
    pub fn predicted_bytes(self, kind: TargetKind, facts: &Facts) -> Option<u64> {
        if let Some(seen) = self.bytes_seen(facts) {
            return Some(seen);
        }
        let fitted = estimate::fitted_bytes(kind, facts)?;
        Some(fitted.saturating_sub(self.bytes_less(kind, facts, fitted)))
    }

    /// Bytes that a compaction of a file would free, never below zero; unknown if file or active is
    /// unknown.
    pub fn reclaimable_bytes(self, kind: TargetKind, facts: &Facts) -> Option<u64> {
        Some(facts.file_bytes.get()?.saturating_sub(self.predicted_bytes(kind, facts)?))
    }

    /// The size after a compaction according to the X-ray, if it belongs to this file.
    fn bytes_seen(self, facts: &Facts) -> Option<u64> {
        self.inside?.predicted_bytes(facts)
    }

    /// The confidence in the prediction: an X-ray's if there is one; learned if compactions of the
    /// database changed it, or, where active bytes are misleading, if enough of them confirmed it.
    pub fn confidence(self, kind: TargetKind, facts: &Facts) -> Confidence {
        if self.bytes_seen(facts).is_some() {
            return Confidence::Xray;
        }
        let Some(fitted) = estimate::fitted_bytes(kind, facts) else { return facts.confidence };
        let less = self.bytes_less(kind, facts, fitted);
        let is_changed = less as f64 > fitted as f64 * NOTICEABLE_SHARE;
        if is_changed || (self.is_confirmed && facts.confidence == Confidence::Low) {
            return Confidence::Learned;
        }
        facts.confidence
    }

    fn bytes_less(self, kind: TargetKind, facts: &Facts, fitted: u64) -> u64 {
        let trust = match facts.confidence {
            Confidence::Low => self.trust_where_low,
            Confidence::High | Confidence::Xray | Confidence::Learned => self.trust,
        };
        if trust <= 0.0 || self.density <= 0.0 {
            return 0;
        }
        let Some(content) = Content::of(kind, facts) else { return 0 };
        let changes = changes_since_compaction(kind, facts);
        to_bytes(f64::from(trust) * difference(fitted, content, self.density.into(), changes))
    }
}

/// Live bytes in a file of this size that a compaction has just written.
pub fn active_bytes_of_new_file(kind: TargetKind, facts: &Facts, file_bytes: u64) -> u64 {
    let empty = Facts { active_bytes: OptionalU64::new(0), ..*facts };
    let headers = estimate::fitted_bytes(kind, &empty).unwrap_or_default();
    file_bytes.saturating_sub(headers)
}

/// Changes of a database since its last compaction, if known; `None` for a view, which does not count them.
pub fn changes_since_compaction(kind: TargetKind, facts: &Facts) -> Option<u64> {
    let changes = facts.changes_since_compaction().filter(|_| kind == TargetKind::Db)?;
    Some(u64::try_from(changes).unwrap_or_default())
}

/// The corrections of one database: for db targets and for views.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DbCorrections {
    /// The correction for its shards.
    pub db: Correction,
    /// The correction for its views.
    pub view: Correction,
}

impl DbCorrections {
    /// The correction for a kind of target.
    pub const fn of_kind(&self, kind: TargetKind) -> Correction {
        match kind {
            TargetKind::Db => self.db,
            TargetKind::View => self.view,
            TargetKind::Cleanup | TargetKind::Search => Correction::NONE,
        }
    }

    /// Mutable access to the correction for a kind; `None` for a kind that has no prediction.
    pub const fn of_kind_mut(&mut self, kind: TargetKind) -> Option<&mut Correction> {
        match kind {
            TargetKind::Db => Some(&mut self.db),
            TargetKind::View => Some(&mut self.view),
            TargetKind::Cleanup | TargetKind::Search => None,
        }
    }
}

/// The corrections in force, by database instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Corrections {
    /// By database name, then by the suffix of its instance.
    by_db: BTreeMap<Box<str>, Vec<(Box<str>, DbCorrections)>>,
}

impl Corrections {
    /// Sets the correction of one instance and kind.
    pub fn set(&mut self, db: &str, suffix: &str, kind: TargetKind, correction: Correction) {
        let instances = self.by_db.entry(db.into()).or_default();
        let at = instances.iter().position(|(other, _)| **other == *suffix).unwrap_or_else(|| {
            instances.push((suffix.into(), DbCorrections::default()));
            instances.len() - 1
        });
        if let Some(place) = instances.get_mut(at).and_then(|(_, it)| it.of_kind_mut(kind)) {
            *place = correction;
        }
    }

    /// The corrections of an instance; `None` if nothing was learned from it.
    pub fn of(&self, db: &str, suffix: &str) -> Option<&DbCorrections> {
        let instances = self.by_db.get(db)?;
        instances.iter().find(|(other, _)| **other == *suffix).map(|(_, corrections)| corrections)
    }

    /// Every instance with its corrections: name, suffix, corrections.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &DbCorrections)> {
        self.by_db.iter().flat_map(|(db, instances)| {
            instances.iter().map(move |(suffix, it)| (&**db, &**suffix, it))
        })
    }

    /// Whether nothing was learned.
    pub fn is_empty(&self) -> bool {
        self.by_db.is_empty()
    }
}

#[cfg(test)]
mod tests;
