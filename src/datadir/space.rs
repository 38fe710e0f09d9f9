//! What a file system has room for.

use rustix::fs::{StatVfs, statvfs};
use std::{io, os::unix::fs::MetadataExt as _, path::Path};

/// What the file system that holds a directory says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes that a process without special rights may still write.
    pub available: u64,
    /// Its size in bytes.
    pub size: u64,
    /// What tells it from others on this machine.
    pub device: u64,
}

impl Space {
    /// That of the file system which holds `directory`.
    ///
    /// # Errors
    /// What the system says.
    pub fn of(directory: &Path) -> io::Result<Self> {
        let device = std::fs::metadata(directory)?.dev();
        let StatVfs { f_bfree, f_bavail, f_blocks, f_frsize, .. } = statvfs(directory)?;
        // Blocks that are kept for root are not available to CouchDB, and no part of the size
        // that it could ever fill.
        let kept = f_bfree.saturating_sub(f_bavail);
        Ok(Self {
            available: f_bavail.saturating_mul(f_frsize),
            size: f_blocks.saturating_sub(kept).saturating_mul(f_frsize),
            device,
        })
    }
}
