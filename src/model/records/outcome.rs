//! A decided start, and the outcome of a job.

use crate::model::target::{TargetId, TargetKind};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// A compaction that frees less than this share of a file counts as freeing nothing: it rewrites
/// all the rest for no gain.
const MIN_FREED_SHARE: f64 = 0.05;

/// Maximum delay with which the end of a job is noticed for it to count as known.
const KNOWN_END: Duration = Duration::from_secs(60);

/// Whether a compaction that leaves `left` bytes of a file frees nothing worthwhile.
pub fn frees_little(file: u64, left: u64) -> bool {
    (file.saturating_sub(left) as f64) < file as f64 * MIN_FREED_SHARE
}

/// Who started a job.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobOwner {
    /// This process, or an earlier one with the same store.
    Recliner,
    /// Any other client: smoosh, a person, another process.
    Other,
}

/// How a job ended.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobResult {
    /// The new file is smaller by at least 5 %.
    Freed,
    /// The new file is as large as the old one, or less than 5 % smaller.
    NothingFreed,
    /// The new file is larger.
    Grew,
    /// It succeeded, but the size of its file before or after is unknown.
    Unmeasured,
    /// CouchDB refused it, or it stopped without swapping the file.
    Failed,
    /// The result cannot be determined: the node or the database no longer exists, or the job is too long ago.
    Lost,
}

impl JobResult {
    /// Whether jobs of a kind usually end like this: the sizes of deleted index files are never
    /// known, those of a database's file are.
    pub const fn is_usual_for(self, kind: TargetKind) -> bool {
        match (kind, self) {
            (_, Self::Failed | Self::Lost) | (TargetKind::View, _) => true,
            (TargetKind::Db, _) => !matches!(self, Self::Unmeasured),
            (TargetKind::Cleanup | TargetKind::Search, _) => matches!(self, Self::Unmeasured),
        }
    }
}

/// A start that was decided. It is stored durably before the request is sent, until an [`Outcome`]
/// replaces it: after a crash it shows which jobs may be running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The target.
    pub target: TargetId,
    /// The node of the compacted file; `_cluster` for a job on all nodes.
    pub node: String,
    /// The shard file's name, if a single file is compacted.
    pub shard: Option<String>,
    /// A view's design document, by id.
    pub design: Option<String>,
    /// The channel that took it.
    pub channel: String,
    /// Who ordered it, if an operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_by: Option<String>,
    /// The run that ordered it, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u64>,
    /// When the request was about to be sent.
    pub at: Moment,
    /// Bytes on disk before.
    pub file_bytes: Option<u64>,
    /// Active bytes before.
    pub active_bytes: Option<u64>,
    /// The last sequence written before; dbs only.
    pub update_seq: Option<u64>,
    /// The sequence of the last compaction before; dbs only.
    pub compacted_seq: Option<u64>,
    /// Predicted bytes after.
    pub predicted_bytes: Option<u64>,
    /// The prediction by the fitted rule alone, which learned corrections are measured against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fitted_bytes: Option<u64>,
    /// Bytes it may need on its volume in addition to the old file, at its peak.
    pub peak_bytes: u64,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The target.
    pub target: TargetId,
    /// Its kind.
    pub kind: TargetKind,
    /// The node of the compacted file, or `_cluster`.
    pub node: String,
    /// A view's design document, by id.
    pub design: Option<String>,
    /// The channel that took it when it was started, or would have taken it.
    pub channel: Option<String>,
    /// Who started it.
    pub owner: JobOwner,
    /// Who ordered it, if an operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_by: Option<String>,
    /// When it was started, according to its node for a job that another client started; otherwise
    /// when it was first seen.
    pub started_at: Moment,
    /// Since when it may have ended, for a job that another client started: when it was last seen, or when its
    /// file was last read before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_after: Option<Moment>,
    /// When its end was noticed: it ended then or before.
    pub ended_at: Moment,
    /// Bytes that its start counts against `limits.bytes_per_hour`: those of its files when recliner decided to
    /// start it. `None` for jobs of others, for cleanups, and in records of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_bytes: Option<u64>,
    /// Bytes of the old file when it was last read: while the job ran, or before it.
    pub before_bytes: Option<u64>,
    /// Bytes on disk after.
    pub after_bytes: Option<u64>,
    /// Predicted bytes after, from before the start.
    pub predicted_bytes: Option<u64>,
    /// How it ended.
    pub ending: JobResult,
    /// CouchDB's reason, or recliner's conclusion, if it did not end well.
    pub why: Option<String>,
}

impl Outcome {
    /// How long it took; `None` if only its file shows that it ran, or if its end is not known precisely enough.
    pub fn took(&self) -> Option<Duration> {
        let took = self.started_at.age(self.ended_at);
        let is_known = self.owner == JobOwner::Recliner || !took.is_zero();
        (is_known && self.ended_since().is_none()).then_some(took)
    }

    /// Since when it may have ended, if that was more than a minute before its end was noticed.
    pub fn ended_since(&self) -> Option<Moment> {
        self.ended_after.filter(|since| since.age(self.ended_at) > KNOWN_END)
    }

    /// Bytes freed; negative if the file grew, unknown if either size is.
    pub fn freed_bytes(&self) -> Option<i64> {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Some(signed(self.before_bytes?).saturating_sub(signed(self.after_bytes?)))
    }

    /// Actual over predicted size after; above one if it freed less than predicted.
    pub fn estimate_ratio(&self) -> Option<f64> {
        let predicted = self.predicted_bytes.filter(|bytes| *bytes > 0)?;
        Some(self.after_bytes? as f64 / predicted as f64)
    }
}
