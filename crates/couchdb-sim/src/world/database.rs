//! What the cluster as a whole tells of a database: sums over one copy of each range.

use super::{Sizes, StartedBy, ViewInfo, World, files::File};
use crate::{
    catalog::{Db, range_at, range_of_doc},
    config::Database,
};
use couchdb_names::Range;

/// Why the cluster cannot tell of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// There is none of that name.
    Database,
    /// It has no such design document.
    Design,
    /// No copy of one of its ranges is on a node that is up.
    Range,
}

/// A database as `GET /{db}` tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) q: u32,
    pub(crate) n: u32,
    pub(crate) docs: u64,
    pub(crate) deleted: u64,
    pub(crate) seq: u64,
    pub(crate) sizes: Sizes,
    pub(crate) compact_running: bool,
    pub(crate) created: u64,
}

/// One database of the shard map.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    pub(crate) name: String,
    pub(crate) suffix: String,
    pub(crate) ranges: Vec<(Range, Vec<String>)>,
}

/// A split that runs.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    pub(crate) node: String,
    pub(crate) source: String,
    pub(crate) targets: [String; 2],
}

impl World {
    pub(super) fn found(&self, db: &str) -> Result<Db, Gone> {
        self.catalog.find(db).ok_or(Gone::Database)
    }

    /// The copy of a range that answers first just now: another one each second, so that
    /// sums flap as CouchDB's do.
    fn answering(&self, db: Db, range: u32) -> Result<File, Gone> {
        let up: Vec<u32> = self
            .catalog
            .nodes_of(db, range)
            .filter(|node| self.is_up(*node) && !self.catalog.is_missing(db, range, *node))
            .collect();
        let turn = self.now.as_secs().wrapping_add(u64::from(range));
        let at = usize::try_from(turn % (up.len().max(1) as u64)).unwrap_or(0);
        up.get(at).map(|node| File::Copy { db, range, node: *node }).ok_or(Gone::Range)
    }

    pub(super) fn one_copy_each(&self, db: Db) -> Result<Vec<File>, Gone> {
        (0..self.catalog.ranges(db)).map(|range| self.answering(db, range)).collect()
    }

    pub(crate) fn known(&self, db: &str) -> Result<Known, Gone> {
        let db = self.found(db)?;
        let mut known = Known {
            q: self.catalog.ranges(db),
            n: u32::try_from(self.catalog.nodes_of(db, 0).count()).unwrap_or(u32::MAX),
            created: self.catalog.created(db),
            ..Known::default()
        };
        for file in self.one_copy_each(db)? {
            let Some(info) = self.info_of(file, String::new()) else { continue };
            known.docs += info.doc_count;
            known.deleted += info.doc_del_count;
            known.seq += info.update_seq;
            known.compact_running |= info.compact_running;
            known.sizes = added(known.sizes, info.sizes);
        }
        Ok(known)
    }

    /// A view index over one copy of each range.
    pub(crate) fn known_view(&self, db: &str, ddoc: &str) -> Result<ViewInfo, Gone> {
        let db = self.found(db)?;
        let mut sum: Option<ViewInfo> = None;
        for file in self.one_copy_each(db)? {
            let info = self.view_of(file, ddoc).ok_or(Gone::Design)?;
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
        sum.ok_or(Gone::Range)
    }

    /// The index of a design document on one copy, as the node itself shows it: only on
    /// the range that holds the document.
    pub(crate) fn shown_view(&self, node: &str, file: &str, ddoc: &str) -> Option<ViewInfo> {
        let found = self.file(self.place(node)?, file)?;
        self.holds_design(found, ddoc).then(|| self.view_of(found, ddoc)).flatten()
    }

    /// Whether the range of a copy holds a design document.
    fn holds_design(&self, file: File, ddoc: &str) -> bool {
        let File::Copy { db, range, .. } = file else { return false };
        let q = self.catalog.ranges(db);
        range_of_doc(q, &format!("_design/{ddoc}")) == range
    }

    /// What a database is like.
    pub(crate) fn described(&self, db: &str) -> Option<&Database> {
        self.catalog.like(self.catalog.find(db)?)
    }

    /// The shard map from a database's name on, that one included.
    pub(crate) fn shard_map(&self, from: &str) -> impl Iterator<Item = Mapped> + '_ {
        self.catalog.from(from).map(|(db, name)| self.mapped(db, name.into_owned()))
    }

    /// The shard map's entry for one database.
    pub(crate) fn mapped_db(&self, name: &str) -> Option<Mapped> {
        Some(self.mapped(self.catalog.find(name)?, name.to_owned()))
    }

    fn mapped(&self, db: Db, name: String) -> Mapped {
        let q = self.catalog.ranges(db);
        let node = |place: u32| self.nodes.get(place as usize).map(|state| state.node.name.clone());
        let ranges = (0..q)
            .map(|range| {
                let nodes = self.catalog.nodes_of(db, range).filter_map(node).collect();
                (range_at(q, range), nodes)
            })
            .collect();
        Mapped { name, suffix: self.catalog.suffix(db), ranges }
    }

    /// How many databases there are.
    #[must_use]
    pub fn database_count(&self) -> u64 {
        self.catalog.len()
    }

    /// The splits that run.
    pub(crate) fn split_jobs(&self) -> Vec<Split> {
        self.catalog
            .described()
            .filter(|db| self.catalog.like(*db).is_some_and(|like| like.splitting))
            .filter_map(|db| {
                let node = self.catalog.nodes_of(db, 0).next()?;
                Some(Split {
                    node: self.nodes.get(node as usize)?.node.name.clone(),
                    source: self.catalog.file(db, 0),
                    targets: self.split_targets(db),
                })
            })
            .collect()
    }

    /// Starts to compact every copy of a database on nodes that are up.
    pub(crate) fn compact_all(&mut self, db: &str) -> Result<(), Gone> {
        for file in self.copies_of(self.found(db)?) {
            self.start_shard(file, StartedBy::Request);
        }
        Ok(())
    }

    /// Starts to compact every copy of a design document's index on nodes that are up.
    pub(crate) fn compact_all_views(&mut self, db: &str, ddoc: &str) -> Result<(), Gone> {
        let found = self.found(db)?;
        let place = self.catalog.like(found).and_then(|like| super::index::index_place(like, ddoc));
        let place = place.ok_or(Gone::Design)?;
        for file in self.copies_of(found) {
            self.start_index(file, place, StartedBy::Request);
        }
        Ok(())
    }

    /// Deletes the stale index files beside one copy.
    pub(crate) fn clean_up_at(&mut self, node: &str, file: &str) {
        if let Some(file) = self.place(node).and_then(|node| self.file(node, file)) {
            self.clean_up_file(file);
        }
    }
}

const fn added(a: Sizes, b: Sizes) -> Sizes {
    Sizes {
        file: a.file.saturating_add(b.file),
        active: a.active.saturating_add(b.active),
        external: a.external.saturating_add(b.external),
    }
}
