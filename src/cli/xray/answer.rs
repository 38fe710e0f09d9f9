//! The JSON of an X-ray.

use couchdb_files::{PartBytes, Xray};
use serde::Serialize;
use std::path::Path;

/// What the bytes of one file are.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct XrayAnswer {
    pub(in crate::cli) file: String,
    pub(in crate::cli) file_bytes: u64,
    pub(in crate::cli) exact: bool,
    pub(in crate::cli) parts: Vec<PartLine>,
    pub(in crate::cli) after_compaction_bytes: Option<u64>,
    /// With 95 % probability, the size after compaction differs by no more; only in a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) error_bytes: Option<u64>,
}

/// One part of a file.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct PartLine {
    pub(in crate::cli) part: &'static str,
    pub(in crate::cli) bytes: u64,
    pub(in crate::cli) count: u64,
    /// The same for the bytes of this part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::cli) error_bytes: Option<u64>,
}

impl XrayAnswer {
    pub(in crate::cli) fn of(path: &Path, xray: Xray, is_sample: bool) -> Self {
        let part = |it: &PartBytes| PartLine {
            part: it.part.label(),
            bytes: it.bytes,
            count: it.count,
            error_bytes: is_sample.then_some(it.error),
        };
        Self {
            file: path.display().to_string(),
            file_bytes: xray.file_bytes,
            exact: xray.exact,
            parts: xray.parts.iter().map(part).collect(),
            after_compaction_bytes: xray.after_compaction,
            error_bytes: is_sample.then_some(xray.error),
        }
    }
}
