//! What lies on a node's disk, as a walk over its directories finds it: files in use, and what
//! compactions, deleted files and forgotten indexes leave beside them.

use super::{
    ShardInfo, Sizes, World,
    files::File,
    jobs::{JobKey, What, written},
};
use crate::{
    catalog::key_of,
    config::Orphan,
    growth::{Stock, mix},
};
use couchdb_names::Signature;
use std::time::Duration;
use wall_clock::Moment;

/// How long before the start compactions were interrupted that are described so.
const LONG_AGO: Duration = Duration::from_secs(2 * 86_400);

/// What a walk over a node's directories finds.
#[derive(Clone, Debug, Default)]
pub struct DiskWalk {
    /// Every file that is in use, or is left over.
    pub files: Vec<DiskFile>,
    /// Bytes that were deleted and are not gone yet.
    pub trash: u64,
}

/// A file on a node's disk.
#[derive(Clone, Debug)]
pub enum DiskFile {
    /// A shard, or a node-local database.
    Shard(ShardInfo),
    /// A view index.
    View(ViewFile),
    /// What a compaction of a shard writes, or left behind.
    Compaction {
        /// The shard's file name.
        shard: String,
        /// The size of the file.
        bytes: u64,
        /// When it was last written to.
        changed: Moment,
    },
}

/// A view index beside one shard.
#[derive(Clone, Debug)]
pub struct ViewFile {
    /// The shard's file name.
    pub shard: String,
    /// What names the index.
    pub signature: Signature,
    /// Its bytes.
    pub sizes: Sizes,
    /// The sequence of the shard that it is built to.
    pub update_seq: u64,
    /// Collator versions it was written with.
    pub collators: Vec<String>,
}

/// What was deleted and is not gone yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deleted {
    node: u32,
    bytes: u64,
    gone: Duration,
}

/// Files that a compaction wrote.
struct Temporary {
    key: JobKey,
    bytes: u64,
    /// When they were last written to, since the start; zero: before.
    at: Duration,
}

impl World {
    /// Lays what interrupted compactions left onto the disks, as described.
    pub(super) fn lay_leftovers(&mut self) {
        let all: Vec<_> = self.catalog.described().collect();
        for db in all {
            let described = self.catalog.like(db).map(|like| like.interrupted.clone());
            for left in described.unwrap_or_default() {
                let Some(node) = self.place(&left.node) else { continue };
                let file = File::Copy { db, range: left.range, node };
                let there = self.is_there(file).then(|| self.stock(file)).flatten();
                let Some(stock) = there else { continue };
                let held = stock.held(0);
                let bytes = written((stock.copy_bytes(held), Stock::meta_bytes(held)), left.done);
                let touched = self.touched.entry(file).or_default();
                (touched.leftover, touched.resume) = (bytes, left.done.min(0.99));
            }
        }
    }

    fn is_there(&self, file: File) -> bool {
        let File::Copy { db, range, node } = file else { return true };
        self.catalog.maps(db, range, node) && !self.catalog.is_missing(db, range, node)
    }

    /// Gives the bytes of a file up: the disk lets go of them by and by.
    pub(super) fn discard(&mut self, file: File, bytes: u64) {
        let now = self.now;
        self.trash.retain(|deleted| deleted.gone > now);
        let (Some(rate), Some(node)) = (self.config.delete_rate, self.node_of(file)) else {
            return;
        };
        let length = Duration::from_secs(bytes / rate.max(1));
        self.trash.push(Deleted { node, bytes, gone: now.saturating_add(length) });
    }

    /// Bytes on a node that were deleted and are not gone yet.
    pub(super) fn trash(&self, node: u32) -> u64 {
        let there = self.trash.iter().filter(|it| it.node == node && it.gone > self.now);
        there.map(|deleted| deleted.bytes).sum()
    }

    /// View indexes on a node whose shard is gone.
    pub(super) fn orphan_indexes(&self, node: u32) -> impl Iterator<Item = &Orphan> {
        let here = move |index: &&Orphan| self.place(&index.node) == Some(node);
        self.config.orphan_indexes.iter().filter(here)
    }

    /// Bytes of temporary files on a node.
    pub(super) fn temporary(&self, node: u32) -> u64 {
        self.temporaries(node).map(|it| it.bytes).fold(0, u64::saturating_add)
    }

    /// What compactions on a node write, or left.
    fn temporaries(&self, node: u32) -> impl Iterator<Item = Temporary> {
        let here = move |file: File| self.node_of(file) == Some(node);
        let running = self.jobs.iter().filter(move |(key, _)| here(key.file));
        let running = running.map(|(key, job)| {
            let bytes = job.temporary(key.what, self.now);
            Temporary { key: *key, bytes, at: self.now }
        });
        let left = self.touched.iter();
        let left = left.filter(move |(file, _)| here(**file) && !self.compacting(**file));
        let left = left.map(|(file, touched)| {
            let key = JobKey { file: *file, what: What::Shard };
            Temporary { key, bytes: touched.leftover, at: touched.left_at }
        });
        running.chain(left).filter(|it| it.bytes > 0)
    }

    /// What a walk over a node's directories finds, where the world began at `start`; `None`:
    /// no such node.
    pub(crate) fn walk(&self, node: &str, start: Moment) -> Option<DiskWalk> {
        let node = self.place(node)?;
        let mut files = Vec::new();
        for file in self.files_of(node) {
            let Some(name) = self.name_of(file) else { continue };
            self.walk_file(file, &name, &mut files);
        }
        files.extend(self.orphan_indexes(node).map(|index| stale(&index.file, index.bytes)));
        for Temporary { key, bytes, at } in self.temporaries(node) {
            let changed = match at {
                Duration::ZERO => {
                    Moment::from_unix(start.unix().saturating_sub(LONG_AGO.as_secs()))
                }
                at => start.plus(at),
            };
            let Some(shard) = self.name_of(key.file) else { continue };
            files.push(DiskFile::Compaction { shard, bytes, changed });
        }
        Some(DiskWalk { files, trash: self.trash(node) })
    }

    /// A file, and the indexes that lie beside it.
    fn walk_file(&self, file: File, name: &str, files: &mut Vec<DiskFile>) {
        let Some(info) = self.info_of(file, name.to_owned()) else { return };
        files.push(DiskFile::Shard(info));
        let File::Copy { db, .. } = file else { return };
        let designs = self.catalog.like(db).map_or(&[][..], |like| &like.designs);
        for place in self.indexes(db) {
            let design = designs.get(place);
            let Some(view) = design.and_then(|design| self.view_of(file, &design.name)) else {
                continue;
            };
            files.push(DiskFile::View(ViewFile {
                shard: name.to_owned(),
                signature: view.signature,
                sizes: view.sizes,
                update_seq: view.update_seq,
                collators: view.collators,
            }));
        }
        let bytes = self.stale_of(file);
        if bytes > 0 {
            files.push(stale(name, bytes));
        }
    }
}

/// An index of views that nobody names any more.
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
