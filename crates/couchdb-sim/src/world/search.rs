//! Search indexes as nodes and the cluster show them.

use super::{SearchInfo, World, database::LookupError, keys::File, keys::Index};
use crate::{catalog::Db, config::Search, growth::times};
use couchdb_names::Engine;

/// The engine, design document and name of a search index.
type SearchName<'a> = (Engine, &'a str, &'a str);

/// Bytes of a search index without documents.
const EMPTY_SEARCH: u64 = 69;

impl World {
    pub(super) fn search_place(&self, file: File, name: SearchName<'_>) -> Option<Index> {
        let File::Copy { db, .. } = file else { return None };
        self.search_called(db, name)
    }

    fn search_called(&self, db: Db, (engine, ddoc, index): SearchName<'_>) -> Option<Index> {
        let designs = &self.catalog.description(db).designs;
        let design = designs.iter().position(|design| design.name == ddoc)?;
        let named = |search: &Search| search.engine == engine && search.name == index;
        Some(Index::Search(design, designs[design].searches.iter().position(named)?))
    }

    /// The actual state of one copy of a search index; `None`: no such copy or index.
    pub fn search(&self, node: &str, file: &str, name: SearchName<'_>) -> Option<SearchInfo> {
        let file = self.file(self.node_position(node)?, file)?;
        Some(self.search_info(file, self.search_place(file, name)?))
    }

    fn search_info(&self, file: File, index: Index) -> SearchInfo {
        let held = self.held(file);
        let update_seq = self.index_seq(file, index, held);
        let share = update_seq as f64 / held.seq.max(1) as f64;
        let docs = times(held.docs, share.min(1.0));
        SearchInfo {
            update_seq,
            pending: held.seq.saturating_sub(update_seq),
            docs,
            disk_size: docs.saturating_mul(100).saturating_add(EMPTY_SEARCH),
            exists: update_seq > 0,
        }
    }

    /// A search index, summed over one copy of each range.
    pub(crate) fn cluster_search(
        &self,
        db: &str,
        name: SearchName<'_>,
    ) -> Result<SearchInfo, LookupError> {
        let db = self.find_db(db)?;
        let index = self.search_called(db, name).ok_or(LookupError::Design)?;
        let mut sum = SearchInfo { exists: true, ..SearchInfo::default() };
        for file in self.one_copy_each(db)? {
            let info = self.search_info(file, index);
            sum.update_seq += info.update_seq;
            sum.pending += info.pending;
            sum.docs += info.docs;
            sum.disk_size += info.disk_size;
            sum.exists &= info.exists;
        }
        Ok(sum)
    }

    /// Starts to build each copy of a search index that is out of date, on running nodes.
    pub fn build_search(&mut self, db: &str, name: SearchName<'_>) {
        let Some(db) = self.catalog.find(db) else { return };
        if let Some(index) = self.search_called(db, name) {
            self.start_builds_of(db, index);
        }
    }

    /// Whether an indexer of a search index is running anywhere.
    pub(crate) fn is_building_search(&self, db: &str, name: SearchName<'_>) -> bool {
        let Some(db) = self.catalog.find(db) else { return false };
        let Some(index) = self.search_called(db, name) else { return false };
        self.copies_of(db).into_iter().any(|file| self.building_to(file, index).is_some())
    }
}
