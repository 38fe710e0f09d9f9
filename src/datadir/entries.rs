//! The names in a directory, one after the other.
//!
//! Owns the two ways to read them: on Linux into a buffer that is reused for the next directory; elsewhere, where that
//! call does not exist, through libc's stream, which opens the directory a second time.

#[cfg(any(test, not(target_os = "linux")))]
use rustix::fs::Dir;
use rustix::{fd::OwnedFd, fs::FileType, io::Errno};
use std::{ffi::CStr, ops::ControlFlow};

/// The buffer for a directory's entries, in bytes.
#[cfg(target_os = "linux")]
const BUFFER_BYTES: usize = 16 << 10;

/// Passes each entry with its type, which may be unknown, to `take` until `take` breaks. A
/// directory that was deleted meanwhile has no more entries.
///
/// # Errors
///
/// The system's error.
#[cfg(target_os = "linux")]
pub(super) fn for_each_entry(
    directory: &OwnedFd,
    buffer: &mut Vec<u8>,
    mut take: impl FnMut(&CStr, FileType) -> ControlFlow<()>,
) -> Result<(), Errno> {
    buffer.clear();
    buffer.reserve(BUFFER_BYTES);
    let mut entries = rustix::fs::RawDir::new(directory, buffer.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = match entry {
            Err(Errno::NOENT) => break,
            other => other?,
        };
        if take(entry.file_name(), entry.file_type()).is_break() {
            break;
        }
    }
    Ok(())
}

/// Like the Linux version, but reads through libc, without a buffer.
#[cfg(not(target_os = "linux"))]
pub(super) fn for_each_entry(
    directory: &OwnedFd,
    _buffer: &mut Vec<u8>,
    take: impl FnMut(&CStr, FileType) -> ControlFlow<()>,
) -> Result<(), Errno> {
    for_each_entry_of_stream(directory, take)
}

/// Reads entries through libc's directory stream, which every system has.
#[cfg(any(test, not(target_os = "linux")))]
fn for_each_entry_of_stream(
    directory: &OwnedFd,
    mut take: impl FnMut(&CStr, FileType) -> ControlFlow<()>,
) -> Result<(), Errno> {
    for entry in Dir::read_from(directory)? {
        let entry = match entry {
            Err(Errno::NOENT) => break,
            other => other?,
        };
        if take(entry.file_name(), entry.file_type()).is_break() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags, open};
    use std::{collections::BTreeMap, ffi::CString, fs, path::Path};

    fn opened(path: &Path) -> OwnedFd {
        open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap()
    }

    type Entries = BTreeMap<CString, FileType>;

    /// The entries that each of the two readers returns, from the same open directory.
    fn by_both_ways(path: &Path) -> [Result<Entries, Errno>; 2] {
        let directory = opened(path);
        let mut buffer = Vec::new();
        let mut own = Entries::new();
        let by_own = for_each_entry(&directory, &mut buffer, |name, kind| {
            own.insert(name.to_owned(), kind);
            ControlFlow::Continue(())
        });
        let mut streamed = Entries::new();
        let by_stream = for_each_entry_of_stream(&directory, |name, kind| {
            streamed.insert(name.to_owned(), kind);
            ControlFlow::Continue(())
        });
        [by_own.map(|()| own), by_stream.map(|()| streamed)]
    }

    #[test]
    fn both_readers_find_every_entry_of_a_large_directory() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..3000 {
            fs::write(folder.path().join(format!("{number}-{}", "x".repeat(100))), "").unwrap();
        }
        fs::create_dir(folder.path().join("below")).unwrap();
        std::os::unix::fs::symlink("below", folder.path().join("link")).unwrap();
        let [own, streamed] = by_both_ways(folder.path());
        let own = own.unwrap();
        assert_eq!(own.len(), 3000 + 2 + 2, "with the directory itself and the one above");
        assert_eq!(own, streamed.unwrap());
        assert_eq!(own.get(c"below"), Some(&FileType::Directory));
        assert_eq!(own.get(c"link"), Some(&FileType::Symlink));
    }

    #[test]
    fn deleted_directory_has_no_entries() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone");
        fs::create_dir(&path).unwrap();
        let directory = opened(&path);
        fs::remove_dir(&path).unwrap();
        let callback =
            |_: &CStr, _| -> ControlFlow<()> { panic!("a deleted directory has no entries") };
        assert_eq!(for_each_entry(&directory, &mut Vec::new(), callback), Ok(()));
    }

    #[test]
    fn both_readers_stop_when_the_callback_breaks() {
        let folder = tempfile::tempdir().unwrap();
        let directory = opened(folder.path());
        let mut calls = 0;
        let mut take = |_: &CStr, _| {
            calls += 1;
            ControlFlow::Break(())
        };
        for_each_entry(&directory, &mut Vec::new(), &mut take).unwrap();
        for_each_entry_of_stream(&directory, &mut take).unwrap();
        assert_eq!(calls, 2);
    }
}
