//! The largest users of the disks, by database or design document.

use super::vocabulary::{self, Word};
use crate::{
    advice::{AttributeBy, Attributed, AttributedBytes, attribute},
    table::Snapshot,
    text::Label,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes by database or by design document, the largest first, with all copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    /// Whether bytes are listed by database or by design document.
    #[schemars(with = "vocabulary::AttributeBy")]
    pub by: Word,
    /// The largest databases or design documents.
    pub largest: Vec<UsageLine>,
    /// Number of all others.
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
    /// The bytes of the database or index.
    #[serde(flatten)]
    pub bytes: UsageBytes,
}

/// Bytes on disk; files of unknown size add none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageBytes {
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Bytes of view indexes among them.
    pub view_bytes: u64,
    /// Bytes that compactions would free.
    pub reclaimable_bytes: u64,
    /// Number of shards and indexes of unknown size.
    pub unmeasured: u64,
    /// Number of views of which some copies were not measured; they count as large as the measured one.
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
