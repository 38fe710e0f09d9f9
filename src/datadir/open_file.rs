//! A file opened for reading its header.

use couchdb_files::Bytes;
use rustix::{
    fd::{AsFd, OwnedFd},
    fs::{CWD, FileType, Mode, OFlags, SeekFrom, Stat, fstat, openat, seek},
    io::{Errno, pread},
    path::Arg,
};
use std::{io, path::Path};

/// First step backwards when searching for the start of a hole.
const FIRST_STEP_BYTES: u64 = 1 << 20;

/// An open regular file, with its metadata when it was opened.
#[derive(Debug)]
pub struct OpenFile {
    fd: OwnedFd,
    metadata: Stat,
}

impl OpenFile {
    /// Opens a path that a user gave, or that a name led to, and follows links. It must be a
    /// regular file: a pipe or a device could block or never end.
    ///
    /// # Errors
    /// If it cannot be read; the text completes a sentence that begins with the path.
    pub fn open_regular(path: &Path) -> Result<Self, String> {
        let failed = |why: io::Error| format!("cannot be opened: {why}");
        let metadata = path.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err("is a directory; name the .couch or .view files in it".to_owned());
        }
        if !metadata.is_file() {
            return Err("is not a file".to_owned());
        }
        Self::open(CWD, path, OFlags::empty()).map_err(|why| failed(why.into()))
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

    fn end_of_data(&self, end: u64) -> u64 {
        // The system seeks only forwards, so the start of the hole before `end` is searched for in
        // growing steps.
        let (mut start, mut step) = (end, FIRST_STEP_BYTES);
        while start > 0 {
            let from = start.saturating_sub(step);
            let is_hole = match seek(&self.fd, SeekFrom::Data(from)) {
                Ok(next) => next >= start,
                // There is no data up to the end of the file.
                Err(Errno::NXIO) => true,
                Err(_) => false,
            };
            match (is_hole, step) {
                (true, _) => (start, step) = (from, step.saturating_mul(2)),
                (false, FIRST_STEP_BYTES) => break,
                (false, _) => step = FIRST_STEP_BYTES,
            }
        }
        start
    }
}

/// A file's size; the kernel never reports a negative one.
pub(super) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::unix::fs::FileExt as _};
    use tokio::time::Instant;

    const MIB: u64 = 1 << 20;

    #[test]
    fn searches_a_sparse_terabyte_quickly() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sparse.couch");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 40).unwrap();
        let begun = Instant::now();
        let read = |path: &Path| couchdb_files::read(&OpenFile::open_regular(path).unwrap());
        assert!(read(&path).is_err());
        // Data far from the end is still found.
        for at in [3 * MIB + 77, 1 << 33, (1 << 39) + 5] {
            file.write_all_at(b"x", at).unwrap();
            let opened = OpenFile::open_regular(&path).unwrap();
            let end = opened.end_of_data(1 << 40);
            assert!(end > at && end <= at + 2 * MIB, "{end} for {at}");
            assert!(opened.end_of_data(end) > at);
        }
        assert!(read(&path).is_err());
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    }
}
