//! The files of a node, and their sizes.

use super::{
    ShardInfo, Sizes, World,
    keys::{File, JobKind},
};
use crate::{
    catalog::{Db, range_at},
    config::Database,
    growth::{Compacted, DocCounts, ShardModel, WritePattern, mix, times},
};
use couchdb_names::Version;
use std::{collections::BTreeMap, time::Duration};

/// The node-local databases of each node.
pub(super) const LOCAL: [&str; 3] = ["_dbs", "_nodes", "_users"];

/// A file outside the shard map: an orphan, or a target of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extra {
    pub(super) node: usize,
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) deleted: bool,
}

/// The share of a count that one of `q` ranges gets. All shares add up to the count.
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
                self.add_extra(node, orphan.file, orphan.bytes);
            }
        }
        for db in self.catalog.described().collect::<Vec<_>>() {
            self.add_split_files(db);
        }
    }

    pub(super) fn add_extra(&mut self, node: usize, name: String, bytes: u64) {
        self.extra.push(Extra { node, name, bytes, deleted: false });
    }

    /// A node's files outside the shard map, with their positions.
    fn extra_of(&self, node: usize) -> impl Iterator<Item = (usize, &Extra)> {
        let extra = self.extra.iter().enumerate();
        extra.filter(move |(_, extra)| extra.node == node && !extra.deleted)
    }

    /// Adds the target files of a database's split.
    pub(super) fn add_split_files(&mut self, db: Db) {
        if !self.catalog.description(db).splitting {
            return;
        }
        let Some(node) = self.catalog.nodes_of(db, 0).next() else { return };
        let bytes = self.sizes_of(File::Copy { db, range: 0, node }).active / 4;
        for name in self.split_targets(db) {
            self.add_extra(node, name, bytes);
        }
    }

    /// Deletes the target files of a database's split.
    pub(super) fn delete_split_files(&mut self, db: Db) {
        let targets = self.split_targets(db);
        for at in 0..self.extra.len() {
            if targets.contains(&self.extra[at].name) {
                self.extra[at].deleted = true;
                self.drop_jobs(|key| key.file == File::Extra(at));
                self.changed.remove(&File::Extra(at));
            }
        }
    }

    /// Cancels the split of a database: the source remains, the targets are removed.
    pub fn end_split(&mut self, db: &str) {
        let Some(db) = self.catalog.find(db) else { return };
        self.delete_split_files(db);
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

    pub(super) fn node_position(&self, node: &str) -> Option<usize> {
        self.nodes.iter().position(|state| state.node.name == node)
    }

    pub(super) fn node_of(&self, file: File) -> usize {
        match file {
            File::Extra(at) => self.extra[at].node,
            File::Copy { node, .. } | File::Local { node, .. } => node,
        }
    }

    /// The file of this name on a node's disk.
    pub(super) fn file(&self, node: usize, name: &str) -> Option<File> {
        if let Some(which) = LOCAL.iter().position(|local| *local == name) {
            return Some(File::Local { node, which });
        }
        if let Some((db, range)) = self.catalog.owner(name) {
            return self.catalog.has(db, range, node).then_some(File::Copy { db, range, node });
        }
        let (at, _) = self.extra_of(node).find(|(_, extra)| extra.name == name)?;
        Some(File::Extra(at))
    }

    pub(super) fn name_of(&self, file: File) -> String {
        match file {
            File::Copy { db, range, .. } => self.catalog.file(db, range),
            File::Local { which, .. } => LOCAL[which].to_owned(),
            File::Extra(at) => self.extra[at].name.clone(),
        }
    }

    pub(super) fn files_of(&self, node: usize) -> impl Iterator<Item = File> + '_ {
        let local = (0..LOCAL.len()).map(move |which| File::Local { node, which });
        let copies = self.catalog.all().flat_map(move |db| {
            let ranges = 0..self.catalog.ranges(db);
            let here = ranges.filter(move |range| self.catalog.has(db, *range, node));
            here.map(move |range| File::Copy { db, range, node })
        });
        local.chain(copies).chain(self.extra_of(node).map(|(at, _)| File::Extra(at)))
    }

    /// Every copy of a database that exists on a disk.
    pub(super) fn copies_of(&self, db: Db) -> Vec<File> {
        let ranges = 0..self.catalog.ranges(db);
        let copies = ranges.flat_map(|range| {
            self.catalog.homes_of(db, range).map(move |node| File::Copy { db, range, node })
        });
        copies.collect()
    }

    /// Calls `each` with every file of a node, sorted by name.
    pub(crate) fn each_file(&self, node: &str, mut each: impl FnMut(&str)) -> Option<()> {
        let node = self.node_position(node)?;
        LOCAL.iter().for_each(|local| each(local));
        let mut by_range: BTreeMap<_, Vec<Db>> = BTreeMap::new();
        for (db, _) in self.catalog.from("") {
            let q = self.catalog.ranges(db);
            for range in 0..q {
                if self.catalog.has(db, range, node) {
                    by_range.entry((range_at(q, range), q, range)).or_default().push(db);
                }
            }
        }
        let mut extra: Vec<&str> =
            self.extra_of(node).map(|(_, extra)| extra.name.as_str()).collect();
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
    pub fn files(&self, node: &str) -> Option<Vec<String>> {
        let mut names = Vec::new();
        self.each_file(node, |name| names.push(name.to_owned()))?;
        Some(names)
    }

    /// The model of a file's content.
    pub(super) fn stock(&self, file: File) -> ShardModel {
        match file {
            File::Copy { db, range, node } => {
                let description = self.catalog.description(db);
                let scale = self.catalog.scale(db);
                let part = |count| share(times(count, scale), description.q, range);
                let version = self.nodes[node].node.version;
                let dead = description.attachment_bytes > 0;
                let skew = if range == 0 { description.first_range } else { 1.0 };
                let key = mix(mix(self.catalog.key(db), range.into()), node as u64);
                ShardModel {
                    docs: times(part(description.docs), skew),
                    deleted: part(description.deleted_docs),
                    counts_dead: version < Version::ACTIVE_WITHOUT_OLD_ATTACHMENTS,
                    dead_at_start: if dead { (description.bloat - 1.0) * 0.8 } else { 0.0 },
                    ..ShardModel::of(description, key)
                }
            }
            File::Local { node, which } => {
                let (docs, doc_bytes) = match which {
                    0 => (self.catalog.len(), 900),
                    1 => (self.nodes.len() as u64, 150),
                    _ => (0, 300),
                };
                let description = Database { doc_bytes, ..Database::new("local") };
                ShardModel { docs, ..ShardModel::of(&description, mix(self.seed, node as u64)) }
            }
            File::Extra(at) => {
                let description = Database { bloat: 2.0, ..Database::new("left") };
                let docs = self.extra[at].bytes / 2_000;
                ShardModel { docs, ..ShardModel::of(&description, mix(self.seed, at as u64)) }
            }
        }
    }

    /// The number of writes to a file until `at`.
    pub(super) fn writes(&self, file: File, at: Duration) -> u64 {
        let File::Copy { db, range, .. } = file else { return 0 };
        let description = self.catalog.description(db);
        let own = if description.writes_per_second > 0.0 {
            self.rhythm(db, range).writes(at.saturating_sub(self.catalog.created_after(db)))
        } else {
            0
        };
        let written = self.written.get(&db).into_iter().flatten();
        let written = written.take_while(|(when, _)| *when <= at);
        written.fold(own, |sum, (_, count)| sum.saturating_add(share(*count, description.q, range)))
    }

    pub(super) fn rhythm(&self, db: Db, range: u32) -> WritePattern {
        let key = mix(self.catalog.key(db), u64::from(range).wrapping_add(1 << 32));
        let description = self.catalog.description(db);
        WritePattern::new(key, description.writes_per_second / f64::from(description.q))
    }

    /// The document counts of a file at `at`.
    pub(super) fn held_at(&self, file: File, at: Duration) -> DocCounts {
        self.stock(file).doc_counts(self.writes(file, at))
    }

    /// The current document counts of a file.
    pub(super) fn held(&self, file: File) -> DocCounts {
        self.held_at(file, self.now)
    }

    fn swap_of(&self, file: File) -> Option<Compacted> {
        self.changed.get(&file).and_then(|changes| changes.swap)
    }

    /// The current sizes of a file.
    pub(super) fn sizes_of(&self, file: File) -> Sizes {
        self.stock(file).sizes(self.held(file), self.swap_of(file))
    }

    /// The actual state of one shard copy or node-local database; `None`: no such file.
    pub fn shard(&self, node: &str, file: &str) -> Option<ShardInfo> {
        let found = self.file(self.node_position(node)?, file)?;
        Some(self.info_of(found, file.to_owned()))
    }

    /// Makes a copy lack some documents that the others have, as one whose disk lost them: no
    /// replication notices.
    pub fn lose_documents(&mut self, node: &str, file: &str, docs: u64) {
        let found = self.node_position(node).and_then(|node| self.file(node, file));
        if let Some(found) = found {
            self.changed.entry(found).or_default().lacks = docs;
        }
    }

    pub(super) fn info_of(&self, file: File, name: String) -> ShardInfo {
        let stock = self.stock(file);
        let held = stock.doc_counts(self.writes(file, self.now));
        let swap = self.swap_of(file);
        let lacks = self.changed.get(&file).map_or(0, |changes| changes.lacks);
        let opened = match file {
            File::Copy { db, .. } => self.catalog.created(db),
            File::Local { .. } | File::Extra(_) => self.config.created.unix(),
        };
        ShardInfo {
            name,
            doc_count: held.docs.saturating_sub(lacks),
            doc_del_count: held.deleted,
            update_seq: held.seq,
            compacted_seq: swap.map_or_else(|| stock.compacted_at_start(), |swap| swap.seq),
            compact_running: self.compacting(file, JobKind::Shard),
            sizes: stock.sizes(held, swap),
            instance_start_time: format!("{opened}{:06}", stock.copy % 1_000_000),
            uuid: format!("{:016x}{:016x}", stock.copy, mix(stock.copy, 5)),
        }
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
            even: description.even,
            new_share: description.new_share,
            delete_share: description.delete_share,
            replaced_bytes: description.replaced_bytes,
            counts_dead: false,
            dead_at_start: 0.0,
            copy,
        }
    }
}
