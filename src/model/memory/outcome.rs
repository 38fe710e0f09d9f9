//! A start that was decided, and how a job ended.

use crate::model::target::{Kind, TargetId};
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// Who started a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    /// This process, or an earlier one with the same memory.
    Recliner,
    /// Anybody else: smoosh, a person, another process.
    Other,
}

impl Owner {
    /// Every owner.
    pub const ALL: [Self; 2] = [Self::Recliner, Self::Other];

    /// The word in JSON and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Recliner => "recliner",
            Self::Other => "other",
        }
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The new file is smaller.
    Freed,
    /// The new file is as large as the old one.
    NothingFreed,
    /// The new file is larger.
    Grew,
    /// It ended well, and the size of its file before or after is not known.
    Unmeasured,
    /// CouchDB refused it, or it stopped with nothing swapped.
    Failed,
    /// Nobody can say any more: the node or the database went, or too long ago.
    Lost,
}

impl Ending {
    /// Every ending.
    pub const ALL: [Self; 6] =
        [Self::Freed, Self::NothingFreed, Self::Grew, Self::Unmeasured, Self::Failed, Self::Lost];

    /// Whether jobs of a kind usually end like this: of deleted index files nobody knows the
    /// sizes, of a db's file they are read.
    #[must_use]
    pub const fn is_usual_of(self, kind: Kind) -> bool {
        match (kind, self) {
            (_, Self::Failed | Self::Lost) | (Kind::View, _) => true,
            (Kind::Db, _) => !matches!(self, Self::Unmeasured),
            (Kind::Cleanup | Kind::Search, _) => matches!(self, Self::Unmeasured),
        }
    }

    /// The word in JSON and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Freed => "freed",
            Self::NothingFreed => "nothing_freed",
            Self::Grew => "grew",
            Self::Unmeasured => "unmeasured",
            Self::Failed => "failed",
            Self::Lost => "lost",
        }
    }
}

/// A start that was decided. It is kept durably before the request goes out, until an
/// [`Outcome`] takes its place: after a crash it says what may be running.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The target.
    pub target: TargetId,
    /// The node whose file is compacted; for what runs on all of them, `_cluster`.
    pub node: String,
    /// The shard file's name, where one file is compacted.
    pub shard: Option<String>,
    /// A view's design document, by id.
    pub design: Option<String>,
    /// The channel that took it.
    pub channel: String,
    /// Who ordered it, where an operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_by: Option<String>,
    /// When the request was about to go out.
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
    /// Bytes it may take on its volume beside the old file, at its peak.
    pub peak_bytes: u64,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The target.
    pub target: TargetId,
    /// Its kind.
    pub kind: Kind,
    /// The node whose file was compacted, or `_cluster`.
    pub node: String,
    /// A view's design document, by id.
    pub design: Option<String>,
    /// The channel that took it when it was started, or would have.
    pub channel: Option<String>,
    /// Who started it.
    pub owner: Owner,
    /// Who ordered it, where an operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordered_by: Option<String>,
    /// When it was started, as its node says of one that somebody else started; else when it was
    /// first seen.
    pub started_at: Moment,
    /// When it was last seen, or its end was noticed.
    pub ended_at: Moment,
    /// Bytes on disk before.
    pub before_bytes: Option<u64>,
    /// Bytes on disk after.
    pub after_bytes: Option<u64>,
    /// Bytes after, as predicted before the start.
    pub predicted_bytes: Option<u64>,
    /// How it ended.
    pub ending: Ending,
    /// What CouchDB said, or what was concluded, where it did not end well.
    pub why: Option<String>,
}

impl Outcome {
    /// Bytes that came free; negative where the file grew, unknown where either size is.
    #[must_use]
    pub fn freed_bytes(&self) -> Option<i64> {
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Some(signed(self.before_bytes?).saturating_sub(signed(self.after_bytes?)))
    }

    /// Actual over predicted size after; above one where it freed less than promised.
    #[must_use]
    pub fn estimate_ratio(&self) -> Option<f64> {
        let predicted = self.predicted_bytes.filter(|bytes| *bytes > 0)?;
        Some(self.after_bytes? as f64 / predicted as f64)
    }
}
