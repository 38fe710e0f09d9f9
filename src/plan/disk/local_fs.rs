//! Free space of a local file system.
//!
//! Owns the measurement and its error messages. The disk task's meter calls it.

use crate::datadir::FileSystemSpace;
use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The unit of a file's blocks, whatever the file system's.
const BLOCK_BYTES: u64 = 512;

fn measure_blocking(directory: &Path) -> Result<FileSystemSpace, String> {
    FileSystemSpace::of(directory).map_err(|why| {
        format!(
            "cannot read the free space of {}: {why}; check files.data_dir",
            directory.display()
        )
    })
}

/// Bytes that these files take on a file system; files that do not exist take none. `None` if one cannot be
/// read.
fn held_by(files: &[PathBuf], device: u64) -> Option<u64> {
    files.iter().try_fold(0_u64, |sum, file| match std::fs::symlink_metadata(file) {
        Ok(file) if file.dev() == device => {
            Some(sum.saturating_add(file.blocks().saturating_mul(BLOCK_BYTES)))
        }
        Ok(_) => Some(sum),
        Err(why) => (why.kind() == io::ErrorKind::NotFound).then_some(sum),
    })
}

/// Measures the file system that holds `directory`, and the bytes that `files` take on it. Runs on a
/// blocking thread because a network file system may hang.
pub(super) async fn measure(
    directory: PathBuf,
    files: Option<Vec<PathBuf>>,
) -> Result<(FileSystemSpace, Option<u64>), String> {
    let measure = move || {
        let space = measure_blocking(&directory)?;
        let held = files.and_then(|files| held_by(&files, space.device));
        Ok((space, held))
    };
    let measured = tokio::task::spawn_blocking(measure).await;
    measured.unwrap_or_else(|_| Err("recliner is stopping".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn measures_existing_directory_and_fails_for_missing_one() {
        let dir = tempfile::tempdir().unwrap();
        let (found, held) = measure(dir.path().to_owned(), None).await.unwrap();
        assert_eq!(held, None);
        assert!(found.size > 0 && found.available <= found.size, "{found:?}");
        let (same, _) = measure(dir.path().join("."), None).await.unwrap();
        assert_eq!(same.device, found.device);
        let error = measure(dir.path().join("gone"), None).await.unwrap_err();
        assert!(error.contains("gone") && error.contains("files.data_dir"), "{error}");
    }
    #[tokio::test]
    async fn measures_disk_usage_of_unfinished_compaction_files() {
        let dir = tempfile::tempdir().unwrap();
        let [data, meta] =
            ["a.1.couch.compact.data", "a.1.couch.compact.meta"].map(|name| dir.path().join(name));
        let files = vec![data.clone(), meta];
        let held = async || measure(dir.path().to_owned(), Some(files.clone())).await.unwrap().1;
        assert_eq!(held().await, Some(0), "not begun");
        std::fs::write(&data, vec![7; 3 << 20]).unwrap();
        std::fs::File::open(&data).unwrap().sync_all().unwrap();
        let bytes = held().await.unwrap();
        assert!((3 << 20..4 << 20).contains(&bytes), "{bytes}");
        std::fs::rename(&data, dir.path().join("a.1.couch")).unwrap();
        assert_eq!(held().await, Some(0), "it replaced the old file");
    }
}
