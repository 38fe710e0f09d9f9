//! The cluster's view of a database: sums over one copy of each range.

use super::{Sizes, StartedBy, ViewInfo, World, index::view_place, keys::File};
use crate::{
    catalog::{Db, range_at, range_of_doc},
    config::Database,
};
use couchdb_names::Range;

/// Why the cluster cannot answer for a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupError {
    /// No database has this name.
    Database,
    /// The database has no such design document.
    Design,
    /// No copy of one of its ranges is on a running node.
    Range,
}

/// The information in `GET /{db}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatabaseInfo {
    pub(crate) q: u32,
    pub(crate) n: u32,
    pub(crate) docs: u64,
    pub(crate) deleted: u64,
    pub(crate) seq: u64,
    pub(crate) sizes: Sizes,
    pub(crate) compact_running: bool,
    pub(crate) created: u64,
}

/// One database in the shard map.
#[derive(Clone, Debug)]
pub(crate) struct ShardMapEntry {
    pub(crate) name: String,
    pub(crate) suffix: String,
    pub(crate) ranges: Vec<(Range, Vec<String>)>,
}

/// A running split.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub(crate) node: String,
    pub(crate) source: String,
    pub(crate) targets: [String; 2],
}

impl World {
    pub(super) fn find_db(&self, db: &str) -> Result<Db, LookupError> {
        self.catalog.find(db).ok_or(LookupError::Database)
    }

    /// The copy of a range that currently responds first. It changes every second, so that the
    /// sums vary as CouchDB's do.
    fn responding_copy(&self, db: Db, range: u32) -> Result<File, LookupError> {
        let homes = self.catalog.homes_of(db, range);
        let up: Vec<usize> = homes.filter(|node| self.is_up(*node)).collect();
        let turn = self.now.as_secs().wrapping_add(range.into()) % up.len().max(1) as u64;
        let node = *up.get(usize::try_from(turn).unwrap_or(0)).ok_or(LookupError::Range)?;
        Ok(File::Copy { db, range, node })
    }

    pub(super) fn one_copy_each(&self, db: Db) -> Result<Vec<File>, LookupError> {
        (0..self.catalog.ranges(db)).map(|range| self.responding_copy(db, range)).collect()
    }

    pub(crate) fn database_info(&self, db: &str) -> Result<DatabaseInfo, LookupError> {
        let db = self.find_db(db)?;
        let mut totals = DatabaseInfo {
            q: self.catalog.ranges(db),
            n: u32::try_from(self.catalog.nodes_of(db, 0).count()).unwrap_or(u32::MAX),
            created: self.catalog.created(db),
            ..DatabaseInfo::default()
        };
        for file in self.one_copy_each(db)? {
            let info = self.info_of(file, String::new());
            totals.docs += info.doc_count;
            totals.deleted += info.doc_del_count;
            totals.seq += info.update_seq;
            totals.compact_running |= info.compact_running;
            totals.sizes = added(totals.sizes, info.sizes);
        }
        Ok(totals)
    }

    /// A view index, summed over one copy of each range.
    pub(crate) fn cluster_view(&self, db: &str, ddoc: &str) -> Result<ViewInfo, LookupError> {
        let db = self.find_db(db)?;
        let mut sum: Option<ViewInfo> = None;
        for file in self.one_copy_each(db)? {
            let info = self.view_of(file, ddoc).ok_or(LookupError::Design)?;
            sum = Some(match sum {
                None => info,
                Some(sum) => ViewInfo {
                    sizes: added(sum.sizes, info.sizes),
                    update_seq: sum.update_seq + info.update_seq,
                    pending: sum.pending + info.pending,
                    updater_running: sum.updater_running || info.updater_running,
                    compact_running: sum.compact_running || info.compact_running,
                    ..sum
                },
            });
        }
        sum.ok_or(LookupError::Range)
    }

    /// The index of a design document on one copy, as the node shows it: only on the range that
    /// contains the document.
    pub(crate) fn node_view(&self, node: &str, file: &str, ddoc: &str) -> Option<ViewInfo> {
        let copy = self.file(self.node_position(node)?, file)?;
        self.holds_design(copy, ddoc).then(|| self.view_of(copy, ddoc)).flatten()
    }

    /// Whether a copy's range contains a design document.
    fn holds_design(&self, file: File, ddoc: &str) -> bool {
        let File::Copy { db, range, .. } = file else { return false };
        let q = self.catalog.ranges(db);
        range_of_doc(q, &format!("_design/{ddoc}")) == range
    }

    pub(crate) fn description(&self, db: &str) -> Option<&Database> {
        Some(self.catalog.description(self.catalog.find(db)?))
    }

    /// The shard map, starting at this database name.
    pub(crate) fn shard_map(&self, from: &str) -> impl Iterator<Item = ShardMapEntry> + '_ {
        self.catalog.from(from).map(|(db, name)| self.map_entry(db, name.into_owned()))
    }

    /// The shard map's entry for one database.
    pub(crate) fn map_entry_of(&self, name: &str) -> Option<ShardMapEntry> {
        Some(self.map_entry(self.catalog.find(name)?, name.to_owned()))
    }

    fn map_entry(&self, db: Db, name: String) -> ShardMapEntry {
        let q = self.catalog.ranges(db);
        let node = |place: usize| self.nodes[place].node.name.clone();
        let nodes = |range| self.catalog.nodes_of(db, range).map(node).collect();
        let ranges = (0..q).map(|range| (range_at(q, range), nodes(range))).collect();
        ShardMapEntry { name, suffix: self.catalog.suffix(db), ranges }
    }

    /// The number of databases.
    pub(crate) fn database_count(&self) -> u64 {
        self.catalog.len()
    }

    /// The running splits.
    pub(crate) fn split_jobs(&self) -> Vec<Split> {
        let splitting = |db: &Db| self.catalog.description(*db).splitting;
        let split = |db| {
            Some(Split {
                node: self.nodes[self.catalog.nodes_of(db, 0).next()?].node.name.clone(),
                source: self.catalog.file(db, 0),
                targets: self.split_targets(db),
            })
        };
        self.catalog.described().filter(splitting).filter_map(split).collect()
    }

    /// Whether CouchDB cannot open a file until the split that creates it is over.
    pub fn is_locked(&self, file: &str) -> bool {
        self.split_jobs().iter().any(|split| split.targets.iter().any(|target| target == file))
    }

    /// Starts compactions of every copy of a database on running nodes.
    pub(crate) fn compact_all(&mut self, db: &str) -> Result<(), LookupError> {
        for file in self.copies_of(self.find_db(db)?) {
            self.start_shard(file, StartedBy::Request);
        }
        Ok(())
    }

    /// Starts compactions of every copy of a design document's index on running nodes.
    pub(crate) fn compact_all_views(&mut self, db: &str, ddoc: &str) -> Result<(), LookupError> {
        let db = self.find_db(db)?;
        let place = view_place(self.catalog.description(db), ddoc).ok_or(LookupError::Design)?;
        for file in self.copies_of(db) {
            self.start_view(file, place, StartedBy::Request);
        }
        Ok(())
    }
}

const fn added(a: Sizes, b: Sizes) -> Sizes {
    Sizes {
        file: a.file.saturating_add(b.file),
        active: a.active.saturating_add(b.active),
        external: a.external.saturating_add(b.external),
    }
}
