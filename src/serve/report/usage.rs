//! The largest users of the disks, by database or design document.

use super::words::{self, Word};
use crate::{
    advice::{AttributeBy, Attributed, AttributedBytes, attribute},
    table::Snapshot,
    text::Label,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes by database or by design document, the largest first. All copies count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// What they are attributed to.
    #[schemars(with = "words::AttributeBy")]
    pub by: Word,
    /// The largest.
    pub largest: Vec<UsageLine>,
    /// The number of all others.
    pub others: u64,
    /// The bytes of all others.
    pub other_bytes: UsageBytes,
}

/// A database, or the design documents that share an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageLine {
    /// The database.
    pub db: String,
    /// The ids of the design documents that share the index; empty for a database.
    pub designs: Vec<String>,
    /// Its bytes.
    #[serde(flatten)]
    pub bytes: UsageBytes,
}

/// Bytes on disk; what is unknown adds nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageBytes {
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Those of view indexes.
    pub view_bytes: u64,
    /// What compactions would free.
    pub reclaimable_bytes: u64,
    /// Number of shards and indexes whose size is unknown.
    pub unmeasured: u64,
    /// Number of views of which some copies were not measured and count as large as the one that was.
    #[serde(default)]
    pub estimated: u64,
}

impl From<&AttributedBytes> for UsageBytes {
    fn from(bytes: &AttributedBytes) -> Self {
        Self {
            file_bytes: bytes.file_bytes(),
            view_bytes: bytes.view_bytes,
            reclaimable_bytes: bytes.reclaimable_bytes,
            unmeasured: bytes.unmeasured,
            estimated: bytes.estimated,
        }
    }
}

impl Usage {
    /// The disk usage of a snapshot, with at most `limit` lines.
    #[must_use]
    pub fn of(snapshot: &Snapshot, by: AttributeBy, limit: usize) -> Self {
        let found = attribute(snapshot, by, limit);
        let line = |Attributed { db, designs, bytes }: Attributed| UsageLine {
            db,
            designs,
            bytes: (&bytes).into(),
        };
        Self {
            by: by.label().into(),
            largest: found.largest.into_iter().map(line).collect(),
            others: found.others,
            other_bytes: (&found.other_bytes).into(),
        }
    }
}
