//! Reads one file: opens it once, takes its size and decodes its last header.

use super::{
    FileMeaning, file_meaning,
    open_file::{OpenFile, size},
    read_problem::ReadProblem,
};
use crate::model::facts::{OptionalU64, file_id};
use couchdb_files::{self, Bytes as _, DbHeader, Header, NEWEST_DISK_VERSION, ReportMatch, Trees};
use couchdb_names::Signature;
use rustix::{
    fd::AsFd,
    fs::{AtFlags, CWD, Stat, statat},
    io::Errno,
};
use std::{
    ffi::CStr,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    num::NonZeroU8,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    sync::Arc,
};

/// The values of a header that become facts. Unknown is not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderValues {
    /// The file's size in bytes.
    pub file_bytes: u64,
    /// Active bytes.
    pub active_bytes: OptionalU64,
    /// Uncompressed bytes.
    pub external_bytes: OptionalU64,
    /// The last sequence committed or indexed.
    pub update_seq: OptionalU64,
    /// The sequence at the last compaction; databases only.
    pub compacted_seq: OptionalU64,
    /// Documents that are not deleted; databases only.
    pub docs: OptionalU64,
    /// Deleted documents; databases only.
    pub deleted_docs: OptionalU64,
    /// The file's number; databases only.
    pub file_id: Option<NonZeroU8>,
    /// The last purge sequence; for a view index, the last one it has processed.
    pub purge_seq: OptionalU64,
    /// Bytes of the trees that record purges; databases only.
    pub purge_bytes: OptionalU64,
    /// Bytes of the tree of `_local` documents; databases only.
    pub local_bytes: OptionalU64,
    /// Number of purges that a compaction keeps in any case; databases only.
    pub purges_limit: Option<u32>,
    /// Whether a compaction would write a newer format or a single collation version.
    pub needs_upgrade: bool,
}

/// The reading of one file, and the file's state at that time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FileReading {
    /// A hash of device, inode, size and time of the last change.
    pub(super) change_stamp: u64,
    /// A hash of device and inode: a compaction replaces the file.
    pub(super) file_identity: u32,
    /// Whether it is the same file as in the previous walk.
    pub(super) is_same_file: bool,
    /// Whether CouchDB would report the values of this header; databases only.
    pub(super) reported: ReportMatch,
    pub(super) values: HeaderValues,
    pub(super) problem: Option<ReadProblem>,
    /// An index's collation versions, if it has a header.
    pub(super) collators: Option<Arc<[Arc<str>]>>,
}

impl FileReading {
    /// The reading of a file without a decoded header.
    fn without_header(stat: &Stat, values: HeaderValues) -> Self {
        Self {
            change_stamp: change_stamp_of(stat),
            file_identity: file_identity_of(stat),
            is_same_file: false,
            reported: ReportMatch::Different,
            values,
            problem: None,
            collators: None,
        }
    }
}

/// The expected content of a file, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedContent {
    Db,
    View(Signature),
}

/// Maximum distance of a header from the end of its file. CouchDB searches back to the beginning,
/// which would take a walk too long for files without a header. Data written by up to five seconds
/// of an index build, or by an upload, can follow the last header; by default no attachment is
/// larger than this.
const MAX_HEADER_DISTANCE: u64 = 1 << 30;

/// The maximum number of directory entries that a search for a few shards looks at.
const MAX_VISITS: usize = 1_000;

/// Reusable state of a reading thread.
#[derive(Debug)]
pub(super) struct FileReader {
    /// The collation versions read last, kept because most indexes share them.
    collators: Arc<[Arc<str>]>,
    no_versions: Arc<[Arc<str>]>,
}

impl FileReader {
    pub(super) fn new() -> Self {
        let no_versions: Arc<[Arc<str>]> = Arc::new([]);
        Self { collators: Arc::clone(&no_versions), no_versions }
    }

    /// The collation versions of an index whose header names none.
    pub(super) fn no_collators(&self) -> Arc<[Arc<str>]> {
        Arc::clone(&self.no_versions)
    }

    /// Reads the file `name` in `dir`, unless it is unchanged since `before`. `None` if it is
    /// gone.
    ///
    /// A file that changes, vanishes or is replaced during the read is read once more: a
    /// compaction replaces the file, and the second attempt finds the new one.
    pub(super) fn read_file(
        &mut self,
        dir: impl AsFd,
        name: &CStr,
        expected: ExpectedContent,
        before: Option<&FileReading>,
    ) -> Option<FileReading> {
        if let Some(before) = before
            && let Ok(stat) = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
            && change_stamp_of(&stat) == before.change_stamp
        {
            return Some(FileReading { is_same_file: true, ..before.clone() });
        }
        let mark_if_same = |file: FileReading| {
            let same = before.is_some_and(|before| before.file_identity == file.file_identity);
            Some(FileReading { is_same_file: same, ..file })
        };
        let first = self.read_once(&dir, name, expected);
        if let Ok(file) = first
            && file.problem.is_none()
        {
            return mark_if_same(file);
        }
        match self.read_once(&dir, name, expected) {
            Ok(file) => mark_if_same(file),
            Err(Errno::NOENT) => None,
            Err(why) => {
                let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
                let numbers = HeaderValues { file_bytes: size(&stat), ..HeaderValues::default() };
                // Permissions may change without a new stamp, so this reading is not cached as
                // valid.
                let file = FileReading::without_header(&stat, numbers);
                Some(FileReading { change_stamp: 0, problem: Some(why.into()), ..file })
            }
        }
    }

    fn read_once(
        &mut self,
        dir: impl AsFd,
        name: &CStr,
        expected: ExpectedContent,
    ) -> Result<FileReading, Errno> {
        let opened = OpenFile::open_at(dir, name)?;
        let (stat, size) = (opened.metadata(), opened.size());
        let read = couchdb_files::read_within(&opened, MAX_HEADER_DISTANCE);
        let mut file = FileReading::without_header(
            stat,
            HeaderValues { file_bytes: size, ..HeaderValues::default() },
        );
        match (read.map(|headed| headed.header), expected) {
            (Ok(Header::Db(header)), ExpectedContent::Db) => {
                file.reported = ReportMatch::of(&header);
                file.values = HeaderValues {
                    file_bytes: size,
                    active_bytes: header.active.into(),
                    external_bytes: header.external.into(),
                    update_seq: OptionalU64::new(header.update_seq),
                    compacted_seq: OptionalU64::new(header.compacted_seq),
                    docs: header.docs.into(),
                    deleted_docs: header.deleted_docs.into(),
                    file_id: header.uuid.as_deref().and_then(file_id),
                    purge_seq: couchdb_files::last_purge(&opened, &header).into(),
                    purge_bytes: purge_bytes(&header.trees).into(),
                    local_bytes: header.trees.local.bytes().into(),
                    purges_limit: u32::try_from(header.purge_infos_limit).ok(),
                    needs_upgrade: header.disk_version < NEWEST_DISK_VERSION,
                };
            }
            (Ok(Header::View(header)), ExpectedContent::View(signature)) => {
                if header.signature != signature {
                    file.problem = Some(ReadProblem::WrongSignature);
                } else if let Some(index) = header.committed {
                    file.values.active_bytes = index.active.into();
                    file.values.external_bytes = index.external.into();
                    file.values.update_seq = OptionalU64::new(index.update_seq);
                    file.values.purge_seq = OptionalU64::new(index.purge_seq);
                    file.values.needs_upgrade = index.collators.len() >= 2;
                    file.collators = Some(self.intern_collators(&index.collators));
                } else {
                    // The index was opened or reset without a commit: CouchDB reports zeros.
                    file.values.active_bytes = OptionalU64::new(0);
                    file.values.external_bytes = OptionalU64::new(0);
                    file.values.update_seq = OptionalU64::new(0);
                }
            }
            (Ok(_), _) => file.problem = Some(ReadProblem::WrongKind),
            (Err(why), _) => {
                file.problem = Some((&why).into());
                if size == 0 {
                    // CouchDB makes a database without documents of an empty file.
                    file.values.active_bytes = OptionalU64::new(0);
                    file.values.external_bytes = OptionalU64::new(0);
                }
            }
        }
        Ok(file)
    }

    fn intern_collators(&mut self, collators: &[String]) -> Arc<[Arc<str>]> {
        if !self.collators.iter().map(|known| &**known).eq(collators.iter().map(String::as_str)) {
            self.collators = collators.iter().map(|version| Arc::from(&**version)).collect();
        }
        Arc::clone(&self.collators)
    }
}

/// Bytes of the two trees that record purges.
fn purge_bytes(trees: &Trees) -> Option<u64> {
    Some(trees.purge.bytes()?.saturating_add(trees.purge_seq.bytes()?))
}

/// The node that a data directory belongs to, according to the headers of its node-local
/// databases; for a directory restored elsewhere, the last node that wrote there.
#[must_use]
pub fn directory_owner(data: &Path) -> Option<String> {
    ["_dbs.couch", "_nodes.couch", "_users.couch"].into_iter().find_map(|name| {
        db_header(&data.join(name))?.epochs.into_iter().next().map(|epoch| epoch.node)
    })
}

/// The names and UUIDs of the first shards that a data directory lists, at most `limit`, and then of
/// its node-local databases. Files without a UUID or a readable header are left out.
#[must_use]
pub fn some_file_uuids(data: &Path, limit: usize) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut visits = MAX_VISITS;
    let mut directories = vec![data.join("shards")];
    while found.len() < limit
        && let Some(directory) = directories.pop()
    {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten().take(visits) {
            visits -= 1;
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(path);
            } else if found.len() < limit {
                found.extend(named_uuid(data, &path));
            }
        }
    }
    let local = ["_dbs.couch", "_nodes.couch"].map(|name| named_uuid(data, &data.join(name)));
    found.into_iter().chain(local.into_iter().flatten()).collect()
}

/// The name and the UUID of a database file below a data directory.
fn named_uuid(data: &Path, path: &Path) -> Option<(String, String)> {
    let FileMeaning::Db { shard } =
        file_meaning(path.strip_prefix(data).ok()?.as_os_str().as_bytes())
    else {
        return None;
    };
    Some((shard.to_owned(), db_header(path)?.uuid?))
}

fn db_header(path: &Path) -> Option<DbHeader> {
    let opened = OpenFile::open_at(CWD, path).ok()?;
    match couchdb_files::read_within(&opened, MAX_HEADER_DISTANCE).ok()?.header {
        Header::Db(header) => Some(header),
        Header::Compaction(_) | Header::View(_) => None,
    }
}

/// A hash that changes with every change of a file.
pub(super) fn change_stamp_of(stat: &Stat) -> u64 {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec).hash(&mut hasher);
    // Zero marks a file that was never read.
    hasher.finish().max(1)
}

/// A hash that distinguishes a file from earlier files with the same name.
fn file_identity_of(stat: &Stat) -> u32 {
    let mut hasher = DefaultHasher::new();
    (stat.st_dev, stat.st_ino).hash(&mut hasher);
    #[expect(clippy::cast_possible_truncation, reason = "the low half of a hash is a hash too")]
    let low = hasher.finish() as u32;
    low
}
