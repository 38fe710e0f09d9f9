//! X-rays as JSON: of a file, and of a database's files on some nodes.
//!
//! Owns these types on all sides: commands print them, the API sends them, and a recliner reads
//! those of its sidecars.

use crate::model::rounding::to_bytes;
use couchdb_files::{Part, PartBytes, Xray};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What the bytes of a database's files are, on the nodes whose files recliner or one of its
/// sidecars reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DatabaseXray {
    /// The database.
    pub db: String,
    /// Whether its files are being read, or wait for it; until then, everything else is from the previous reading.
    pub is_running: bool,
    /// When the last reading ended; null if there was none since recliner started.
    pub at: Option<String>,
    /// The nodes whose files were read.
    pub nodes: Vec<NodeXray>,
    /// Why other files of the database are unknown, in sentences.
    pub unknown: Vec<String>,
    /// The sum of all files that were read.
    pub sum: Option<XrayAnswer>,
}

/// What the bytes of a database's files on one node are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeXray {
    /// The node.
    pub node: String,
    /// Number of files that were read.
    pub files: u64,
    /// Their sum.
    pub sum: XrayAnswer,
}

/// What the bytes of one file, or of several, are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct XrayAnswer {
    /// The file, or what the files are.
    pub file: String,
    /// Bytes on disk.
    pub file_bytes: u64,
    /// Whether everything was read.
    pub exact: bool,
    /// What the bytes are.
    pub parts: Vec<PartLine>,
    /// Bytes on disk after a compaction without further writes; null if part of a file cannot be read.
    pub after_compaction_bytes: Option<u64>,
    /// Number of revisions that are kept of a document; null for indexes.
    pub revs_limit: Option<u64>,
    /// With 95 % probability, the size after compaction differs by no more than this; only in a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_bytes: Option<u64>,
}

/// One part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PartLine {
    /// The part.
    pub part: String,
    /// Its bytes.
    pub bytes: u64,
    /// Number of items that make up the part.
    pub count: u64,
    /// With 95 % probability, the bytes of this part differ by no more than this; only in a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_bytes: Option<u64>,
}

impl XrayAnswer {
    /// The answer about a file.
    pub fn of(path: &Path, xray: &Xray, is_sample: bool) -> Self {
        let part = |it: &PartBytes| PartLine {
            part: it.part.label().to_owned(),
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
            revs_limit: xray.revs_limit,
            error_bytes: is_sample.then_some(xray.error),
        }
    }

    /// The sum of these files; `None` without files.
    pub fn sum(name: &str, files: &[Self]) -> Option<Self> {
        files.first()?;
        let is_sample = files.iter().any(|file| file.error_bytes.is_some());
        // The errors are those of independent samples.
        let error = |errors: &mut dyn Iterator<Item = Option<u64>>| {
            let squares: f64 = errors.flatten().map(|error| (error as f64).powi(2)).sum();
            is_sample.then(|| to_bytes(squares.sqrt()))
        };
        let line = |part: Part| {
            let of_part = || {
                files.iter().flat_map(|file| &file.parts).filter(move |it| it.part == part.label())
            };
            of_part().next()?;
            Some(PartLine {
                part: part.label().to_owned(),
                bytes: of_part().map(|it| it.bytes).sum(),
                count: of_part().map(|it| it.count).sum(),
                error_bytes: error(&mut of_part().map(|it| it.error_bytes)),
            })
        };
        Some(Self {
            file: name.to_owned(),
            file_bytes: files.iter().map(|file| file.file_bytes).sum(),
            exact: files.iter().all(|file| file.exact),
            parts: Part::ALL.into_iter().filter_map(line).collect(),
            after_compaction_bytes: files.iter().map(|file| file.after_compaction_bytes).sum(),
            revs_limit: files.iter().filter_map(|file| file.revs_limit).max(),
            error_bytes: error(&mut files.iter().map(|file| file.error_bytes)),
        })
    }
}
