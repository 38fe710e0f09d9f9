//! The files on a node's disk, as a walk over its directories finds them: files in use, and the
//! leftovers of compactions, deleted files and obsolete indexes.

use super::{
    FileChanges, Leftover, ShardInfo, Sizes, World, jobs::compaction_written, keys::File,
    keys::JobKind,
};
use crate::{
    config::Orphan,
    growth::{ShardModel, key_of, mix},
};
use couchdb_names::Signature;
use std::time::Duration;
use wall_clock::Moment;

/// How long before the start the described compactions were interrupted.
const LONG_AGO: Duration = Duration::from_secs(2 * 86_400);

/// The first instant after the start.
const SOON: Duration = Duration::from_nanos(1);

/// The result of a walk over a node's directories.
#[derive(Clone, Debug, Default)]
pub struct DiskWalk {
    /// Every file that is in use or left over.
    pub files: Vec<DiskFile>,
    /// Bytes of deleted files that are not freed yet.
    pub trash: u64,
    /// Bytes of deleted databases that are kept for recovery.
    pub recoverable: u64,
}

/// A file on a node's disk.
#[derive(Clone, Debug)]
pub enum DiskFile {
    /// A shard, or a node-local database.
    Shard(ShardInfo),
    /// A view index.
    View(ViewFile),
    /// A file that a compaction of a shard writes, or left behind.
    Compaction {
        /// The shard's file name.
        shard: String,
        /// The size of the file.
        bytes: u64,
        /// When it was last written.
        changed: Moment,
    },
}

/// A view index of one shard.
#[derive(Clone, Debug)]
pub struct ViewFile {
    /// The shard's file name.
    pub shard: String,
    /// The signature of the index.
    pub signature: Signature,
    /// Its sizes.
    pub sizes: Sizes,
    /// The shard's sequence to which it is built.
    pub update_seq: u64,
    /// The collator versions that built it.
    pub collators: Vec<String>,
}

/// A deleted file that is not freed yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeletedFile {
    node: usize,
    bytes: u64,
    freed: Duration,
}

/// Files that a compaction has written.
struct TemporaryFile {
    file: File,
    bytes: u64,
    /// When they were last written, since the start; zero: before the start.
    at: Duration,
}

impl World {
    /// Adds the described leftovers of interrupted compactions.
    pub(super) fn add_leftovers(&mut self) {
        let all: Vec<_> = self.catalog.described().collect();
        for db in all {
            for left in self.catalog.description(db).interrupted.clone() {
                let Some(node) = self.node_position(&left.node) else { continue };
                if !self.catalog.has(db, left.range, node) {
                    continue;
                }
                let file = File::Copy { db, range: left.range, node };
                let stock = self.stock(file);
                let held = stock.doc_counts(0);
                let needed = (stock.copy_bytes(held), ShardModel::meta_bytes(held));
                let bytes = compaction_written(needed, left.done);
                self.changed.entry(file).or_default().leftover = Leftover {
                    bytes: left.grown_to.unwrap_or(bytes),
                    written: Duration::ZERO,
                    grows: left.grown_to.is_some(),
                    resume: left.done.min(0.99),
                };
            }
        }
    }

    /// Deletes the bytes of a file; the disk frees them gradually.
    pub(super) fn discard(&mut self, file: File, bytes: u64) {
        let now = self.now;
        self.trash.retain(|deleted| deleted.freed > now);
        let Some(rate) = self.config.delete_rate else { return };
        let node = self.node_of(file);
        let length = Duration::from_secs(bytes / rate.max(1));
        self.trash.push(DeletedFile { node, bytes, freed: now.saturating_add(length) });
    }

    /// Deleted bytes on a node that are not freed yet.
    pub(super) fn trash(&self, node: usize) -> u64 {
        let not_freed = self.trash.iter().filter(|it| it.node == node && it.freed > self.now);
        not_freed.map(|deleted| deleted.bytes).sum()
    }

    /// View indexes on a node whose shard no longer exists.
    pub(super) fn orphan_indexes(&self, node: usize) -> impl Iterator<Item = &Orphan> {
        let here = move |index: &&Orphan| self.node_position(&index.node) == Some(node);
        self.config.orphan_indexes.iter().filter(here)
    }

    /// Bytes of deleted databases on a node that are kept for recovery.
    pub(super) fn recoverable(&self, node: usize) -> u64 {
        let deleted = self.config.recoverable.iter();
        let here = deleted.filter(|file| self.node_position(&file.node) == Some(node));
        here.map(|file| file.bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of temporary files on a node.
    pub(super) fn temporary(&self, node: usize) -> u64 {
        self.temporaries(node).map(|it| it.bytes).fold(0, u64::saturating_add)
    }

    /// The files of running and interrupted compactions on a node.
    fn temporaries(&self, node: usize) -> impl Iterator<Item = TemporaryFile> {
        let running = self.jobs.iter().map(|(key, job)| {
            let bytes = job.temporary(key.kind, self.now);
            TemporaryFile { file: key.file, bytes, at: self.now }
        });
        let interrupted = self.changed.iter();
        let interrupted = interrupted.filter(|(file, _)| !self.compacting(**file, JobKind::Shard));
        let interrupted = interrupted.map(|(file, FileChanges { leftover, .. })| {
            let at = if leftover.grows { self.now.max(SOON) } else { leftover.written };
            TemporaryFile { file: *file, bytes: leftover.bytes, at }
        });
        running.chain(interrupted).filter(move |it| it.bytes > 0 && self.node_of(it.file) == node)
    }

    /// The files that a walk over a node's directories finds, if the world began at `start`; `None`: no such node.
    pub(crate) fn walk(&self, node: &str, start: Moment) -> Option<DiskWalk> {
        let node = self.node_position(node)?;
        let mut files = Vec::new();
        for file in self.files_of(node) {
            self.walk_file(file, &self.name_of(file), &mut files);
        }
        files.extend(self.orphan_indexes(node).map(|index| stale(&index.file, index.bytes)));
        for TemporaryFile { file, bytes, at } in self.temporaries(node) {
            let changed = match at {
                Duration::ZERO => {
                    Moment::from_unix(start.unix().saturating_sub(LONG_AGO.as_secs()))
                }
                at => start.plus(at),
            };
            files.push(DiskFile::Compaction { shard: self.name_of(file), bytes, changed });
        }
        Some(DiskWalk { files, trash: self.trash(node), recoverable: self.recoverable(node) })
    }

    /// Adds a file and the files of its indexes.
    fn walk_file(&self, file: File, name: &str, files: &mut Vec<DiskFile>) {
        files.push(DiskFile::Shard(self.info_of(file, name.to_owned())));
        let File::Copy { db, .. } = file else { return };
        let designs = &self.catalog.description(db).designs;
        let views = self.views_of(db).filter_map(|place| self.view_of(file, &designs[place].name));
        files.extend(views.map(|view| {
            DiskFile::View(ViewFile {
                shard: name.to_owned(),
                signature: view.signature,
                sizes: view.sizes,
                update_seq: view.update_seq,
                collators: view.collators,
            })
        }));
        let bytes = self.stale_of(file);
        if bytes > 0 {
            files.push(stale(name, bytes));
        }
    }
}

/// An index that no design document defines any more.
fn stale(shard: &str, bytes: u64) -> DiskFile {
    let key = key_of(shard);
    let signature = u128::from(mix(key, 21)) << 64 | u128::from(mix(key, 22));
    DiskFile::View(ViewFile {
        shard: shard.to_owned(),
        signature: Signature(signature.to_be_bytes()),
        sizes: Sizes { file: bytes, active: bytes / 3, external: bytes / 2 },
        update_seq: 0,
        collators: Vec::new(),
    })
}
