//! One file that was opened to be read by its header.

use couchdb_files::Bytes;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat},
    io::{Errno, pread},
    path::Arg,
};
use std::{io, path::Path};

/// What is a regular file, however it is called, and how it stood when it was opened.
#[derive(Debug)]
pub struct Opened {
    fd: OwnedFd,
    stat: Stat,
}

impl Opened {
    /// What somebody named, links and all.
    ///
    /// # Errors
    /// What the system says; `InvalidInput` where it is no file.
    pub fn named(path: &Path) -> io::Result<Self> {
        Ok(Self::open(CWD, path, OFlags::empty())?)
    }

    /// What has this name in `dir`, where that is a file and no link to one.
    pub(super) fn at(dir: impl AsFd, name: impl Arg) -> Result<Self, Errno> {
        Self::open(dir, name, OFlags::NOFOLLOW)
    }

    fn open(dir: impl AsFd, name: impl Arg, more: OFlags) -> Result<Self, Errno> {
        // What is no regular file by now must not block.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | more;
        let fd = openat(dir, name, flags, Mode::empty())?;
        let stat = fstat(&fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        Ok(Self { fd, stat })
    }

    /// How it stood.
    pub(super) const fn stat(&self) -> &Stat {
        &self.stat
    }
}

impl Bytes for Opened {
    fn size(&self) -> u64 {
        size(&self.stat)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(pread(&self.fd, buf, offset)?)
    }
}

/// A file's size; the kernel never says less than zero.
pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}
