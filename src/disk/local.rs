//! Free space of a local file system.
//!
//! Owns the one system call. The task's instruments ask here.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// What a file system says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileSystem {
    /// Bytes that a process without special rights may still write.
    pub(super) available: u64,
    /// Its size in bytes.
    pub(super) size: u64,
    /// What tells it from others.
    pub(super) device: u64,
}

fn look(directory: &Path) -> Result<FileSystem, String> {
    let refused = |why: String| {
        format!(
            "cannot ask for the free space of {}: {why}; check files.data_dir",
            directory.display()
        )
    };
    let space = rustix::fs::statvfs(directory).map_err(|why| refused(why.to_string()))?;
    let device = std::fs::metadata(directory).map_err(|why| refused(why.to_string()))?.dev();
    // Blocks that are kept for root are not available to CouchDB, and no part of the size
    // that it could ever fill.
    let kept = space.f_bfree.saturating_sub(space.f_bavail);
    Ok(FileSystem {
        available: space.f_bavail.saturating_mul(space.f_frsize),
        size: space.f_blocks.saturating_sub(kept).saturating_mul(space.f_frsize),
        device,
    })
}

/// Asks the file system that holds `directory`, on a thread of its own: a network file
/// system may take for ever.
pub(super) async fn ask(directory: PathBuf) -> Result<FileSystem, String> {
    let asked = tokio::task::spawn_blocking(move || look(&directory)).await;
    asked.unwrap_or_else(|_| Err("recliner is stopping".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_has_space_and_a_missing_one_a_reason() {
        let dir = tempfile::tempdir().unwrap();
        let found = ask(dir.path().to_owned()).await.unwrap();
        assert!(found.size > 0 && found.available <= found.size, "{found:?}");
        let same = ask(dir.path().join(".")).await.unwrap();
        assert_eq!(same.device, found.device);
        let error = ask(dir.path().join("gone")).await.unwrap_err();
        assert!(error.contains("gone") && error.contains("files.data_dir"), "{error}");
    }
}
