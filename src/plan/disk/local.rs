//! Free space of a local file system.
//!
//! Owns how it is asked, and the words where it does not answer. The task's instruments ask here.

use crate::datadir::Space;
use std::path::{Path, PathBuf};

fn look(directory: &Path) -> Result<Space, String> {
    Space::of(directory).map_err(|why| {
        format!(
            "cannot ask for the free space of {}: {why}; check files.data_dir",
            directory.display()
        )
    })
}

/// Asks the file system that holds `directory`, on a thread of its own: a network file
/// system may take for ever.
pub(super) async fn ask(directory: PathBuf) -> Result<Space, String> {
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
