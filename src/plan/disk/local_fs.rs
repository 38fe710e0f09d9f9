//! Free space of a local file system.
//!
//! Owns the measurement and its error messages. The disk task's meter calls it.

use crate::datadir::FileSystemSpace;
use std::path::{Path, PathBuf};

fn measure_blocking(directory: &Path) -> Result<FileSystemSpace, String> {
    FileSystemSpace::of(directory).map_err(|why| {
        format!(
            "cannot read the free space of {}: {why}; check files.data_dir",
            directory.display()
        )
    })
}

/// Measures the file system that holds `directory`, on a blocking thread: a network file system may
/// hang.
pub(super) async fn measure(directory: PathBuf) -> Result<FileSystemSpace, String> {
    let measured = tokio::task::spawn_blocking(move || measure_blocking(&directory)).await;
    measured.unwrap_or_else(|_| Err("recliner is stopping".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn measures_existing_directory_and_fails_for_missing_one() {
        let dir = tempfile::tempdir().unwrap();
        let found = measure(dir.path().to_owned()).await.unwrap();
        assert!(found.size > 0 && found.available <= found.size, "{found:?}");
        let same = measure(dir.path().join(".")).await.unwrap();
        assert_eq!(same.device, found.device);
        let error = measure(dir.path().join("gone")).await.unwrap_err();
        assert!(error.contains("gone") && error.contains("files.data_dir"), "{error}");
    }
}
