//! The free space of a file system.

use rustix::fs::{StatVfs, statvfs};
use std::{io, os::unix::fs::MetadataExt as _, path::Path};

/// The space that a file system reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemSpace {
    /// Bytes that a process without special rights may still write.
    pub available: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The device number, which identifies it on this machine.
    pub device: u64,
}

impl FileSystemSpace {
    /// The space of the file system that holds `directory`.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn of(directory: &Path) -> io::Result<Self> {
        let device = std::fs::metadata(directory)?.dev();
        let StatVfs { f_bfree, f_bavail, f_blocks, f_frsize, .. } = statvfs(directory)?;
        // Blocks reserved for root are neither available to CouchDB nor part of the size that it
        // could ever fill.
        let reserved = f_bfree.saturating_sub(f_bavail);
        Ok(Self {
            available: f_bavail.saturating_mul(f_frsize),
            size: f_blocks.saturating_sub(reserved).saturating_mul(f_frsize),
            device,
        })
    }
}
