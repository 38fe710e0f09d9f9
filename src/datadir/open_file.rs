//! A file opened for reading its header.

use couchdb_files::Bytes;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat},
    io::{Errno, pread},
    path::Arg,
};
use std::{io, path::Path};

/// An open regular file and its metadata at that time.
#[derive(Debug)]
pub struct OpenFile {
    fd: OwnedFd,
    metadata: Stat,
}

impl OpenFile {
    /// Opens a path that a user gave, following links.
    ///
    /// # Errors
    ///
    /// The system's error; `InvalidInput` if it is not a regular file.
    pub fn open_path(path: &Path) -> io::Result<Self> {
        Ok(Self::open(CWD, path, OFlags::empty())?)
    }

    /// Opens a name in `dir`, if it is a regular file and not a link.
    pub(super) fn open_at(dir: impl AsFd, name: impl Arg) -> Result<Self, Errno> {
        Self::open(dir, name, OFlags::NOFOLLOW)
    }

    fn open(dir: impl AsFd, name: impl Arg, more: OFlags) -> Result<Self, Errno> {
        // A file that was replaced by a pipe or device must not block.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | more;
        let fd = openat(dir, name, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        Ok(Self { fd, metadata: stat })
    }

    /// Its metadata when it was opened.
    pub(super) const fn metadata(&self) -> &Stat {
        &self.metadata
    }
}

impl Bytes for OpenFile {
    fn size(&self) -> u64 {
        size(&self.metadata)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(pread(&self.fd, buf, offset)?)
    }
}

/// A file's size; the kernel never reports a negative one.
pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}
