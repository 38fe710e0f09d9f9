//! Reads one file: opens it once, takes its size and decodes its last header.

use super::{
    opened::{Opened, size},
    problem::Problem,
};
use crate::model::facts::Known;
use couchdb_files::{self, Bytes as _, Header, Reported};
use couchdb_names::Signature;
use rustix::{
    fd::AsFd,
    fs::{AtFlags, CWD, Stat, statat},
    io::Errno,
};
use std::{
    ffi::CStr,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::Path,
    sync::Arc,
};

/// The values of a header that become facts. Unknown is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The file's size in bytes.
    pub file: u64,
    /// Active bytes.
    pub active: Known,
    /// Uncompressed bytes.
    pub external: Known,
    /// The last sequence committed or indexed.
    pub update_seq: Known,
    /// The sequence at the last compaction; databases only.
    pub compacted_seq: Known,
    /// Documents that are not deleted; databases only.
    pub docs: Known,
    /// Deleted documents; databases only.
    pub deleted_docs: Known,
    /// Whether a compaction would write a newer format or a single collation version.
    pub needs_upgrade: bool,
}

/// The reading of one file, and the file's state at that time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct File {
    /// A hash of device, inode, size and time of the last change.
    pub(super) stamp: u64,
    /// A hash of device and inode: a compaction replaces the file.
    pub(super) inode: u32,
    /// Whether it is the same file as in the previous walk.
    pub(super) same: bool,
    /// Whether CouchDB would report the same values; databases only.
    pub(super) reported: Reported,
    pub(super) numbers: Numbers,
    pub(super) problem: Option<Problem>,
    /// An index's collation versions, if it has a header.
    pub(super) collators: Option<Arc<[Arc<str>]>>,
}

impl File {
    /// A file without a decoded header.
    fn unread(stat: &Stat, numbers: Numbers) -> Self {
        Self {
            stamp: stamp(stat),
            inode: inode(stat),
            same: false,
            reported: Reported::Otherwise,
            numbers,
            problem: None,
            collators: None,
        }
    }
}

/// The expected content of a file, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Db,
    View(Signature),
}

/// The newest format version that a 3.x server writes.
const LATEST_FORMAT: u8 = 8;

/// Maximum distance of a header from the end of its file. CouchDB searches back to the beginning,
/// which would take a walk too long for files without a header. Data written by up to five seconds
/// of an index build, or by an upload, can follow the last header; by default no attachment is
/// larger than this.
const FURTHEST: u64 = 1 << 30;

/// Reusable state of a reading thread.
#[derive(Debug)]
pub(super) struct Reader {
    /// The most recent collation versions: most indexes share them.
    collators: Arc<[Arc<str>]>,
    none: Arc<[Arc<str>]>,
}

impl Reader {
    pub(super) fn new() -> Self {
        let none: Arc<[Arc<str>]> = Arc::new([]);
        Self { collators: Arc::clone(&none), none }
    }

    /// The collation versions of an index whose header names none.
    pub(super) fn no_collators(&self) -> Arc<[Arc<str>]> {
        Arc::clone(&self.none)
    }

    /// Reads the file `name` in `dir`, unless it is unchanged since `before`. `None` if it is
    /// gone.
    ///
    /// A file that changes, vanishes or is replaced during the read is read once more: a
    /// compaction replaces the file, and the second attempt finds the new one.
    pub(super) fn file(
        &mut self,
        dir: impl AsFd,
        name: &CStr,
        expected: Expected,
        before: Option<&File>,
    ) -> Option<File> {
        if let Some(before) = before
            && let Ok(stat) = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
            && stamp(&stat) == before.stamp
        {
            return Some(File { same: true, ..before.clone() });
        }
        let held = |file: File| {
            let same = before.is_some_and(|before| before.inode == file.inode);
            Some(File { same, ..file })
        };
        let first = self.once(&dir, name, expected);
        if let Ok(file) = first
            && file.problem.is_none()
        {
            return held(file);
        }
        match self.once(&dir, name, expected) {
            Ok(file) => held(file),
            Err(Errno::NOENT) => None,
            Err(why) => {
                let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                let numbers = Numbers { file: size(&stat), ..Numbers::default() };
                // Permissions may change without a new stamp, so this reading is not cached as
                // valid.
                let file = File::unread(&stat, numbers);
                Some(File { stamp: 0, problem: Some(why.into()), ..file })
            }
        }
    }

    fn once(&mut self, dir: impl AsFd, name: &CStr, expected: Expected) -> Result<File, Errno> {
        let opened = Opened::at(dir, name)?;
        let (stat, size) = (opened.stat(), opened.size());
        let read = couchdb_files::read_within(&opened, FURTHEST);
        let mut file = File::unread(stat, Numbers { file: size, ..Numbers::default() });
        match (read.map(|headed| headed.header), expected) {
            (Ok(Header::Db(header)), Expected::Db) => {
                file.reported = Reported::of(&header);
                file.numbers = Numbers {
                    file: size,
                    active: header.active.into(),
                    external: header.external.into(),
                    update_seq: Known::new(header.update_seq),
                    compacted_seq: Known::new(header.compacted_seq),
                    docs: header.docs.into(),
                    deleted_docs: header.deleted_docs.into(),
                    needs_upgrade: header.disk_version < LATEST_FORMAT,
                };
            }
            (Ok(Header::View(header)), Expected::View(signature)) => {
                if header.signature != signature {
                    file.problem = Some(Problem::WrongSignature);
                } else if let Some(index) = header.committed {
                    file.numbers.active = index.active.into();
                    file.numbers.external = index.external.into();
                    file.numbers.update_seq = Known::new(index.update_seq);
                    file.numbers.needs_upgrade = index.collators.len() >= 2;
                    file.collators = Some(self.shared(&index.collators));
                } else {
                    // Opened or reset without a commit: CouchDB reports zeros.
                    file.numbers.active = Known::new(0);
                    file.numbers.external = Known::new(0);
                    file.numbers.update_seq = Known::new(0);
                }
            }
            (Ok(_), _) => file.problem = Some(Problem::WrongKind),
            (Err(why), _) => file.problem = Some((&why).into()),
        }
        Ok(file)
    }

    fn shared(&mut self, collators: &[String]) -> Arc<[Arc<str>]> {
        if !self.collators.iter().map(|known| &**known).eq(collators.iter().map(String::as_str)) {
            self.collators = collators.iter().map(|version| Arc::from(&**version)).collect();
        }
        Arc::clone(&self.collators)
    }
}

/// The node that a data directory belongs to, according to the headers of its node-local
/// databases; for a directory restored elsewhere, the last node that wrote there.
#[must_use]
pub fn owner(data: &Path) -> Option<String> {
    ["_dbs.couch", "_nodes.couch", "_users.couch"].into_iter().find_map(|name| {
        let opened = Opened::at(CWD, data.join(name)).ok()?;
        let read = couchdb_files::read_within(&opened, FURTHEST);
        let Ok(Header::Db(header)) = read.map(|headed| headed.header) else { return None };
        header.epochs.into_iter().next().map(|epoch| epoch.node)
    })
}

/// A hash that changes with every change of a file.
pub(super) fn stamp(stat: &Stat) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec).hash(&mut hasher);
    // Zero marks a file that was never read.
    hasher.finish().max(1)
}

/// A hash that distinguishes a file from earlier files with the same name.
fn inode(stat: &Stat) -> u32 {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino).hash(&mut hasher);
    #[expect(clippy::cast_possible_truncation, reason = "the low half of a hash is one")]
    let low = hasher.finish() as u32;
    low
}
