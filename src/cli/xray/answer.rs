//! The JSON of an X-ray.

use crate::{model::rounding::to_bytes, text::counted};
use couchdb_files::{Part, PartBytes, Xray};
use serde::Serialize;
use std::path::Path;

/// What the bytes of one file are.
#[derive(Clone, Debug, Serialize)]
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
#[derive(Clone, Debug, Serialize)]
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

    /// The sum of a database's files; none of no file.
    pub(in crate::cli) fn sum(db: &str, files: &[Self]) -> Option<Self> {
        let is_sample = files.first()?.error_bytes.is_some();
        // Errors of independent samples.
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
                part: part.label(),
                bytes: of_part().map(|it| it.bytes).sum(),
                count: of_part().map(|it| it.count).sum(),
                error_bytes: error(&mut of_part().map(|it| it.error_bytes)),
            })
        };
        Some(Self {
            file: format!("{db}, {}", counted(files.len() as u64, "file", "files")),
            file_bytes: files.iter().map(|file| file.file_bytes).sum(),
            exact: files.iter().all(|file| file.exact),
            parts: Part::ALL.into_iter().filter_map(line).collect(),
            after_compaction_bytes: files.iter().map(|file| file.after_compaction_bytes).sum(),
            error_bytes: error(&mut files.iter().map(|file| file.error_bytes)),
        })
    }
}
