//! The files of a node, and their sizes.

use super::{FileChanges, ShardInfo, Sizes, World};
use crate::{
    catalog::{Db, range_at},
    config::Database,
    growth::{DocCounts, ShardModel, WritePattern, mix},
};
use couchdb_names::Version;
use std::{collections::BTreeMap, time::Duration};

/// One file of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum File {
    /// A shard copy.
    Copy {
        /// The database.
        db: Db,
        /// The position of the range.
        range: u32,
        /// The position of the node.
        node: u32,
    },
    /// A node-local database.
    Local {
        /// The position of the node.
        node: u32,
        /// The position in [`LOCAL`].
        which: usize,
    },
    /// A file outside the shard map, by its position.
    Extra(usize),
}

impl File {
    /// The position of its node; `None` for an extra file, which stores it itself.
    pub(super) const fn node(self) -> Option<u32> {
        match self {
            Self::Copy { node, .. } | Self::Local { node, .. } => Some(node),
            Self::Extra(_) => None,
        }
    }

    /// Whether both are copies of one range of one database.
    pub(super) fn is_copy_of(self, other: Self) -> bool {
        match (self, other) {
            (Self::Copy { db, range, .. }, Self::Copy { db: its_db, range: its_range, .. }) => {
                db == its_db && range == its_range
            }
            _ => false,
        }
    }
}

/// The node-local databases of each node.
pub(super) const LOCAL: [&str; 3] = ["_dbs", "_nodes", "_users"];

/// A file outside the shard map: an orphan, or a target of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extra {
    pub(super) node: u32,
    pub(super) name: String,
    pub(super) bytes: u64,
}

/// The share of a count for one of `q` ranges. All shares add up to the count.
pub(super) fn share(count: u64, q: u32, range: u32) -> u64 {
    let upto = |ranges: u32| {
        let part = u128::from(count) * u128::from(ranges) / u128::from(q.max(1));
        u64::try_from(part).unwrap_or(u64::MAX)
    };
    upto(range.saturating_add(1)).saturating_sub(upto(range))
}

impl World {
    /// Adds the described files outside the shard map.
    pub(super) fn add_extra_files(&mut self) {
        for orphan in std::mem::take(&mut self.config.orphans) {
            if let Some(node) = self.node_position(&orphan.node) {
                self.extra.push(Some(Extra { node, name: orphan.file, bytes: orphan.bytes }));
            }
        }
        let splitting: Vec<Db> = self.catalog.described().collect();
        for db in splitting {
            self.add_split_files(db);
        }
    }

    /// Adds the target files of a database's split.
    pub(super) fn add_split_files(&mut self, db: Db) {
        if !self.catalog.description(db).is_some_and(|description| description.splitting) {
            return;
        }
        let Some(node) = self.catalog.nodes_of(db, 0).next() else { return };
        let source = File::Copy { db, range: 0, node };
        let bytes = self.sizes_of(source).map_or(0, |sizes| sizes.active / 4);
        for name in self.split_targets(db) {
            self.extra.push(Some(Extra { node, name, bytes }));
        }
    }

    /// Cancels the split of a database: its source remains, its targets are removed.
    pub fn end_split(&mut self, db: &str) {
        let Some(db) = self.catalog.find(db) else { return };
        let targets = self.split_targets(db);
        for slot in &mut self.extra {
            slot.take_if(|extra| targets.contains(&extra.name));
        }
        self.catalog.set_splitting(db, false);
    }

    /// Starts to split the first range of a database.
    pub fn begin_split(&mut self, db: &str) {
        let Some(db) = self.catalog.find(db) else { return };
        self.catalog.set_splitting(db, true);
        self.add_split_files(db);
    }

    /// The target files of the split of a database's first range.
    pub(super) fn split_targets(&self, db: Db) -> [String; 2] {
        let whole = range_at(self.catalog.ranges(db), 0);
        let middle = whole.from + (whole.to - whole.from) / 2;
        let (name, suffix) = (self.catalog.name(db), self.catalog.suffix(db));
        [(whole.from, middle), (middle + 1, whole.to)]
            .map(|(from, to)| format!("shards/{from:08x}-{to:08x}/{name}{suffix}"))
    }

    /// The position of a node.
    pub(super) fn node_position(&self, node: &str) -> Option<u32> {
        let place = self.nodes.iter().position(|state| state.node.name == node)?;
        u32::try_from(place).ok()
    }

    /// The file of this name on a node's disk.
    pub(super) fn file(&self, node: u32, name: &str) -> Option<File> {
        if let Some(which) = LOCAL.iter().position(|local| *local == name) {
            return Some(File::Local { node, which });
        }
        if let Some((db, range)) = self.catalog.owner(name) {
            let here =
                self.catalog.maps(db, range, node) && !self.catalog.is_missing(db, range, node);
            return here.then_some(File::Copy { db, range, node });
        }
        let extra = self.extra.iter().position(|extra| {
            extra.as_ref().is_some_and(|extra| extra.node == node && extra.name == name)
        })?;
        Some(File::Extra(extra))
    }

    /// A file's name.
    pub(super) fn name_of(&self, file: File) -> Option<String> {
        match file {
            File::Copy { db, range, .. } => Some(self.catalog.file(db, range)),
            File::Local { which, .. } => LOCAL.get(which).map(|name| (*name).to_owned()),
            File::Extra(at) => Some(self.extra.get(at)?.as_ref()?.name.clone()),
        }
    }

    /// Every file of a node.
    pub(super) fn files_of(&self, node: u32) -> impl Iterator<Item = File> + '_ {
        let local = (0..LOCAL.len()).map(move |which| File::Local { node, which });
        let copies = self.catalog.all().flat_map(move |db| {
            (0..self.catalog.ranges(db))
                .filter(move |range| {
                    self.catalog.maps(db, *range, node)
                        && !self.catalog.is_missing(db, *range, node)
                })
                .map(move |range| File::Copy { db, range, node })
        });
        let extra = self.extra.iter().enumerate().filter_map(move |(at, extra)| {
            extra.as_ref().is_some_and(|extra| extra.node == node).then_some(File::Extra(at))
        });
        local.chain(copies).chain(extra)
    }

    /// Every copy of a database that exists on a disk.
    pub(super) fn copies_of(&self, db: Db) -> Vec<File> {
        (0..self.catalog.ranges(db))
            .flat_map(|range| {
                self.catalog
                    .nodes_of(db, range)
                    .filter(move |node| !self.catalog.is_missing(db, range, *node))
                    .map(move |node| File::Copy { db, range, node })
            })
            .collect()
    }

    /// Calls `each` with every file of a node, sorted by name.
    pub(crate) fn each_file(&self, node: &str, mut each: impl FnMut(&str)) -> Option<()> {
        let node = self.node_position(node)?;
        LOCAL.iter().for_each(|local| each(local));
        let mut by_range: BTreeMap<_, Vec<Db>> = BTreeMap::new();
        for (db, _) in self.catalog.from("") {
            let q = self.catalog.ranges(db);
            for range in 0..q {
                if self.catalog.maps(db, range, node) && !self.catalog.is_missing(db, range, node) {
                    by_range.entry((range_at(q, range), q, range)).or_default().push(db);
                }
            }
        }
        let mut extra: Vec<&str> = self
            .extra
            .iter()
            .flatten()
            .filter(|extra| extra.node == node)
            .map(|extra| extra.name.as_str())
            .collect();
        extra.sort_unstable_by(|a, b| b.cmp(a));
        for ((_, _, range), databases) in by_range {
            for db in databases {
                let name = self.catalog.file(db, range);
                while let Some(first) = extra.pop_if(|first| **first < *name) {
                    each(first);
                }
                each(&name);
            }
        }
        extra.iter().rev().for_each(|last| each(last));
        Some(())
    }

    /// A node's files, as in its `_all_dbs`; `None`: no such node.
    #[must_use]
    pub fn files(&self, node: &str) -> Option<Vec<String>> {
        let mut names = Vec::new();
        self.each_file(node, |name| names.push(name.to_owned()))?;
        Some(names)
    }

    /// The model of a file's content.
    pub(super) fn stock(&self, file: File) -> Option<ShardModel> {
        match file {
            File::Copy { db, range, node } => {
                let description = self.catalog.description(db)?;
                let scale = self.catalog.scale(db);
                let part = |count| share(crate::growth::times(count, scale), description.q, range);
                let counts_dead = self.version(node) < Version::ACTIVE_WITHOUT_OLD_ATTACHMENTS;
                let dead = description.attachment_bytes > 0;
                let skew = if range == 0 { description.first_range } else { 1.0 };
                let key = mix(mix(self.catalog.key(db), u64::from(range)), u64::from(node));
                Some(ShardModel {
                    docs: crate::growth::times(part(description.docs), skew),
                    deleted: part(description.deleted_docs),
                    counts_dead,
                    dead_at_start: if dead { (description.bloat - 1.0) * 0.8 } else { 0.0 },
                    ..ShardModel::of(description, key)
                })
            }
            File::Local { node, which } => {
                let (docs, doc_bytes) = match which {
                    0 => (self.catalog.len(), 900),
                    1 => (self.nodes.len() as u64, 150),
                    _ => (0, 300),
                };
                let description = Database { doc_bytes, ..Database::new("local") };
                Some(ShardModel {
                    docs,
                    ..ShardModel::of(&description, mix(self.seed, u64::from(node)))
                })
            }
            File::Extra(at) => {
                let bytes = self.extra.get(at)?.as_ref()?.bytes;
                let description = Database { bloat: 2.0, ..Database::new("left") };
                let docs = bytes / 2_000;
                Some(ShardModel { docs, ..ShardModel::of(&description, mix(self.seed, at as u64)) })
            }
        }
    }

    /// The number of writes to a file until `at`.
    pub(super) fn writes(&self, file: File, at: Duration) -> u64 {
        let File::Copy { db, range, .. } = file else { return 0 };
        let Some(description) = self.catalog.description(db) else { return 0 };
        let own = if description.writes_per_second > 0.0 {
            self.rhythm(db, range, description)
                .writes(at.saturating_sub(self.catalog.created_after(db)))
        } else {
            0
        };
        let written = self.written.get(&db).map_or(0, |written| {
            written
                .iter()
                .take_while(|(when, _)| *when <= at)
                .map(|(_, count)| share(*count, description.q, range))
                .sum()
        });
        own.saturating_add(written)
    }

    /// The write pattern of a range.
    pub(super) fn rhythm(&self, db: Db, range: u32, description: &Database) -> WritePattern {
        let key = mix(self.catalog.key(db), u64::from(range).wrapping_add(1 << 32));
        WritePattern::new(key, description.writes_per_second / f64::from(description.q))
    }

    /// The document counts of a file at `at`.
    pub(super) fn held_at(&self, file: File, at: Duration) -> Option<DocCounts> {
        Some(self.stock(file)?.doc_counts(self.writes(file, at)))
    }

    /// The current sizes of a file.
    pub(super) fn sizes_of(&self, file: File) -> Option<Sizes> {
        let stock = self.stock(file)?;
        let held = stock.doc_counts(self.writes(file, self.now));
        Some(stock.sizes(held, self.changed.get(&file).and_then(|touched| touched.swap)))
    }

    /// The actual state of one shard copy or node-local database; `None`: no such file.
    #[must_use]
    pub fn shard(&self, node: &str, file: &str) -> Option<ShardInfo> {
        let found = self.file(self.node_position(node)?, file)?;
        self.info_of(found, file.to_owned())
    }

    pub(super) fn info_of(&self, file: File, name: String) -> Option<ShardInfo> {
        let stock = self.stock(file)?;
        let held = stock.doc_counts(self.writes(file, self.now));
        let swap = self.changed.get(&file).and_then(|FileChanges { swap, .. }| *swap);
        let opened = match file {
            File::Copy { db, .. } => self.catalog.created(db),
            File::Local { .. } | File::Extra(_) => self.config.created.unix(),
        };
        Some(ShardInfo {
            name,
            doc_count: held.docs,
            doc_del_count: held.deleted,
            update_seq: held.seq,
            compacted_seq: swap.map_or_else(|| stock.compacted_at_start(), |swap| swap.seq),
            compact_running: self.compacting(file),
            sizes: stock.sizes(held, swap),
            opened: opened.saturating_mul(1_000_000).saturating_add(stock.copy % 1_000_000),
            uuid: u128::from(stock.copy) << 64 | u128::from(mix(stock.copy, 5)),
        })
    }
}

impl ShardModel {
    /// The model of a database's copy, without its documents.
    pub(super) const fn of(description: &Database, copy: u64) -> Self {
        Self {
            docs: 0,
            deleted: 0,
            doc_bytes: description.doc_bytes,
            attachment_bytes: description.attachment_bytes,
            bloat: description.bloat,
            compacted: description.compacted,
            compacts_to: description.compacts_to,
            new_share: description.new_share,
            delete_share: description.delete_share,
            replaced_bytes: description.replaced_bytes,
            counts_dead: false,
            dead_at_start: 0.0,
            copy,
        }
    }
}
