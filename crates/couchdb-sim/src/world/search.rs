//! Search indexes: how far they are built.

use super::{
    SearchInfo, World,
    database::LookupError,
    files::File,
    index::{BuildState, QUERY_SERVER_LANGUAGES, REFRESH_INTERVAL},
    jobs::{JobKey, JobKind},
};
use crate::{
    catalog::Db,
    config::{Design, Search},
    growth::{DocCounts, times},
};
use couchdb_names::Engine;
use std::{collections::BTreeMap, time::Duration};

/// The position of a search index: of its design document, and in it.
type SearchPosition = (usize, usize);

/// Bytes of an index without a document.
const EMPTY_SEARCH: u64 = 69;

impl World {
    fn search_at(&self, db: Db, (design, at): SearchPosition) -> Option<(&Design, &Search)> {
        let design = self.catalog.description(db)?.designs.get(design)?;
        Some((design, design.searches.get(at)?))
    }

    fn search_place(
        &self,
        db: Db,
        engine: Engine,
        ddoc: &str,
        index: &str,
    ) -> Option<SearchPosition> {
        let designs = &self.catalog.description(db)?.designs;
        let design = designs.iter().position(|design| design.name == ddoc)?;
        let searches = &designs.get(design)?.searches;
        let named = |search: &Search| search.engine == engine && search.name == index;
        Some((design, searches.iter().position(named)?))
    }

    /// The search index that a job builds.
    pub(super) fn search_of(&self, key: JobKey) -> Option<&Search> {
        let (File::Copy { db, .. }, JobKind::Search(design, at)) = (key.file, key.kind) else {
            return None;
        };
        self.search_at(db, (design, at)).map(|found| found.1)
    }

    fn search_state(&self, file: File, place: SearchPosition) -> Option<BuildState> {
        let touched = self.changed.get(&file).and_then(|touched| touched.searches.get(&place));
        if let Some(state) = touched {
            return Some(*state);
        }
        let File::Copy { db, .. } = file else { return None };
        let (design, search) = self.search_at(db, place)?;
        let at_start = self.stock(file)?.doc_counts(0).seq;
        Some(if search.built >= 1.0 && design.autoupdate {
            BuildState::Follows
        } else {
            BuildState::To(times(at_start, search.built))
        })
    }

    pub(super) fn set_search(&mut self, file: File, place: SearchPosition, built: BuildState) {
        self.changed.entry(file).or_default().searches.insert(place, built);
    }

    /// Records the end of an indexer.
    pub(super) fn finish_search(&mut self, file: File, place: SearchPosition, seq: u64) {
        let File::Copy { db, .. } = file else { return };
        let follows = self.search_at(db, place).is_some_and(|(design, _)| design.autoupdate);
        self.set_search(
            file,
            place,
            if follows { BuildState::Follows } else { BuildState::To(seq) },
        );
    }

    fn search_seq(&self, file: File, place: SearchPosition, held: DocCounts) -> u64 {
        let key = JobKey { file, kind: JobKind::Search(place.0, place.1) };
        if let Some(seq) = self.indexed_to(key) {
            return seq.min(held.seq);
        }
        match self.search_state(file, place) {
            Some(BuildState::Follows) => {
                let rest = self.now.as_nanos() % REFRESH_INTERVAL.as_nanos();
                let rest = Duration::from_nanos(u64::try_from(rest).unwrap_or(0));
                self.held_at(file, self.now.saturating_sub(rest)).map_or(0, |then| then.seq)
            }
            Some(BuildState::To(seq)) => seq.min(held.seq),
            None => 0,
        }
    }

    /// The actual state of one copy of a search index; `None`: no such copy or index.
    #[must_use]
    pub fn search(
        &self,
        node: &str,
        file: &str,
        (engine, ddoc, index): (Engine, &str, &str),
    ) -> Option<SearchInfo> {
        let file = self.file(self.node_position(node)?, file)?;
        let File::Copy { db, .. } = file else { return None };
        self.search_info(file, self.search_place(db, engine, ddoc, index)?)
    }

    fn search_info(&self, file: File, place: SearchPosition) -> Option<SearchInfo> {
        let held = self.held_at(file, self.now)?;
        let update_seq = self.search_seq(file, place, held);
        let share = update_seq as f64 / held.seq.max(1) as f64;
        let docs = times(held.docs, share.min(1.0));
        Some(SearchInfo {
            update_seq,
            pending: held.seq.saturating_sub(update_seq),
            docs,
            disk_size: docs.saturating_mul(100).saturating_add(EMPTY_SEARCH),
            exists: update_seq > 0,
        })
    }

    /// A search index, summed over one copy of each range.
    pub(crate) fn cluster_search(
        &self,
        db: &str,
        (engine, ddoc, index): (Engine, &str, &str),
    ) -> Result<SearchInfo, LookupError> {
        let db = self.find_db(db)?;
        let place = self.search_place(db, engine, ddoc, index).ok_or(LookupError::Design)?;
        let mut sum = SearchInfo { exists: true, ..SearchInfo::default() };
        for file in self.one_copy_each(db)? {
            let info = self.search_info(file, place).ok_or(LookupError::Design)?;
            sum.update_seq += info.update_seq;
            sum.pending += info.pending;
            sum.docs += info.docs;
            sum.disk_size += info.disk_size;
            sum.exists &= info.exists;
        }
        Ok(sum)
    }

    /// Starts to build each copy of a search index that is out of date, on running nodes.
    pub fn build_search(&mut self, db: &str, (engine, ddoc, index): (Engine, &str, &str)) {
        let Some(db) = self.catalog.find(db) else { return };
        let Some(place) = self.search_place(db, engine, ddoc, index) else { return };
        let served = self
            .search_at(db, place)
            .is_some_and(|(design, _)| QUERY_SERVER_LANGUAGES.contains(&design.language.as_str()));
        if !served {
            return;
        }
        for file in self.copies_of(db) {
            let Some(held) = self.held_at(file, self.now) else { continue };
            let built = self.search_seq(file, place, held);
            let key = JobKey { file, kind: JobKind::Search(place.0, place.1) };
            self.start_indexer(key, held, built);
        }
    }

    /// Whether an indexer of a search index is running anywhere.
    pub(crate) fn is_building_search(
        &self,
        db: &str,
        (engine, ddoc, index): (Engine, &str, &str),
    ) -> bool {
        let Some(db) = self.catalog.find(db) else { return false };
        let Some((design, at)) = self.search_place(db, engine, ddoc, index) else { return false };
        let what = JobKind::Search(design, at);
        self.copies_of(db)
            .into_iter()
            .any(|file| self.indexed_to(JobKey { file, kind: what }).is_some())
    }

    /// How far the search indexes of one copy are built, under the new design documents.
    pub(super) fn carried_searches(
        &self,
        file: File,
        old: &[Design],
        new: &[Design],
    ) -> BTreeMap<SearchPosition, BuildState> {
        let places = |designs: &[Design]| -> Vec<(SearchPosition, (String, Engine, String))> {
            let designs = designs.iter().enumerate();
            let of = |(place, design): (usize, &Design)| {
                let searches = design.searches.iter().enumerate();
                let name = design.name.clone();
                let named = move |(at, search): (usize, &Search)| {
                    ((place, at), (name.clone(), search.engine, search.name.clone()))
                };
                searches.map(named).collect::<Vec<_>>()
            };
            designs.flat_map(of).collect()
        };
        let before = places(old);
        let now = places(new).into_iter().map(|(place, name)| {
            let was = before.iter().find(|(_, known)| *known == name).map(|(place, _)| *place);
            (place, was.and_then(|was| self.search_state(file, was)).unwrap_or(BuildState::To(0)))
        });
        now.collect()
    }
}
