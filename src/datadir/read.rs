//! One file: opened once, measured, and read by its last header.

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

/// What a header says, as far as facts go. Unknown is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Numbers {
    /// The file's size in bytes.
    pub file: u64,
    /// Live bytes.
    pub active: Known,
    /// Bytes uncompressed.
    pub external: Known,
    /// The last sequence committed, or indexed.
    pub update_seq: Known,
    /// The sequence at the last compaction; dbs only.
    pub compacted_seq: Known,
    /// Documents that are not deleted; dbs only.
    pub docs: Known,
    /// Deleted documents; dbs only.
    pub deleted_docs: Known,
    /// Whether a compaction would write a newer format, or end a mix of collations.
    pub needs_upgrade: bool,
}

/// What was read of one file, and the state in which it was.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct File {
    /// Of device, inode, size and time of the last change.
    pub(super) stamp: u64,
    /// Of device and inode: a compaction puts another file in its place.
    pub(super) inode: u32,
    /// Whether it is the file that was there before.
    pub(super) same: bool,
    /// Whether CouchDB says the same of it; databases only.
    pub(super) reported: Reported,
    pub(super) numbers: Numbers,
    pub(super) problem: Option<Problem>,
    /// Of an index with a header, its collations.
    pub(super) collators: Option<Arc<[Arc<str>]>>,
}

impl File {
    /// One of which no header was read.
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

/// What a file should be, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    Db,
    View(Signature),
}

/// The newest format a 3.x server writes.
const LATEST_FORMAT: u8 = 8;

/// How far behind its end a file's header is looked for. CouchDB looks as far as the begin, which
/// no walk can do for each file that has none. Behind a header stand what an index build wrote
/// within five seconds, or an upload: by default no attachment is larger than this.
const FURTHEST: u64 = 1 << 30;

/// What a walk needs again and again.
#[derive(Debug)]
pub(super) struct Reader {
    /// The collations met last: most indexes share theirs.
    collators: Arc<[Arc<str>]>,
    none: Arc<[Arc<str>]>,
}

impl Reader {
    pub(super) fn new() -> Self {
        let none: Arc<[Arc<str>]> = Arc::new([]);
        Self { collators: Arc::clone(&none), none }
    }

    /// Collations of an index whose header names none.
    pub(super) fn no_collators(&self) -> Arc<[Arc<str>]> {
        Arc::clone(&self.none)
    }

    /// Reads the file called `name` in `dir`, unless it is as it was `before`. `None` where
    /// it is gone.
    ///
    /// What changes, vanishes or is swapped meanwhile is tried once more: a compaction puts
    /// another file in its place, and the next look finds that.
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
                // Rights may change without the file: nothing of it is remembered as read.
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
                    // Opened or reset, and nothing committed: CouchDB reports zeros.
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

/// The node that a data directory belongs to, as the headers of its node-local databases name
/// it; of one that was restored elsewhere, the last that wrote there.
#[must_use]
pub fn owner(data: &Path) -> Option<String> {
    ["_dbs.couch", "_nodes.couch", "_users.couch"].into_iter().find_map(|name| {
        let opened = Opened::at(CWD, data.join(name)).ok()?;
        let read = couchdb_files::read_within(&opened, FURTHEST);
        let Ok(Header::Db(header)) = read.map(|headed| headed.header) else { return None };
        header.epochs.into_iter().next().map(|epoch| epoch.node)
    })
}

/// What changes with every change of a file.
pub(super) fn stamp(stat: &Stat) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec).hash(&mut hasher);
    // Zero stands for what was never read.
    hasher.finish().max(1)
}

/// What tells one file from another that had its name before it.
fn inode(stat: &Stat) -> u32 {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino).hash(&mut hasher);
    #[expect(clippy::cast_possible_truncation, reason = "the low half of a hash is one")]
    let low = hasher.finish() as u32;
    low
}
