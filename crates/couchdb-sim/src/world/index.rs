//! View indexes: how far they are built, and their sizes.

use super::{Sizes, ViewInfo, World, files::File};
use crate::{
    catalog::Db,
    config::{Database, Design},
    design::signature_of,
    growth::{CompactedView, DocCounts, EMPTY_VIEW, times, view_active, view_sizes},
};
use std::time::Duration;

/// How often CouchDB updates an index that it keeps built.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// Languages with a query server.
pub(super) const QUERY_SERVER_LANGUAGES: [&str; 3] = ["javascript", "query", "erlang"];

/// How far an index is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuildState {
    /// It follows the database's writes.
    Follows,
    /// It is built to this sequence.
    To(u64),
}

/// One index file: how far it is built, and its state after the last compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexState {
    pub(super) built: BuildState,
    pub(super) start: CompactedView,
}

/// Whether CouchDB can build its index.
fn is_buildable(design: &Design) -> bool {
    QUERY_SERVER_LANGUAGES.contains(&design.language.as_str()) && !design.views.is_empty()
}

/// The position of the first design document with the same index.
pub(super) fn index_place(description: &Database, name: &str) -> Option<usize> {
    let named = description.designs.iter().find(|design| design.name == name)?;
    description.designs.iter().position(|design| {
        (&design.language, &design.views, design.reduces)
            == (&named.language, &named.views, named.reduces)
    })
}

/// The positions of a database's indexes, one for each signature.
pub(super) fn index_places(description: &Database) -> impl Iterator<Item = usize> + '_ {
    description.designs.iter().enumerate().filter_map(|(place, design)| {
        (is_buildable(design) && index_place(description, &design.name) == Some(place))
            .then_some(place)
    })
}

impl World {
    /// The state of an index file.
    pub(super) fn index_state(&self, file: File, place: usize) -> Option<IndexState> {
        let touched = self.changed.get(&file).and_then(|touched| touched.indexes.get(&place));
        if let Some(state) = touched {
            return Some(*state);
        }
        let design = self.design(file, place)?;
        let stock = self.stock(file)?;
        let held = stock.doc_counts(0);
        let seq = times(held.seq, design.built);
        let file_bytes = match seq {
            0 => EMPTY_VIEW,
            _ => times(view_active(design, held, seq), design.bloat),
        };
        let built = match () {
            () if !is_buildable(design) => BuildState::To(0),
            () if design.built >= 1.0 && design.autoupdate => BuildState::Follows,
            () => BuildState::To(seq),
        };
        let start = CompactedView { seq, file: file_bytes.max(EMPTY_VIEW) };
        Some(IndexState { built, start })
    }

    pub(super) fn design(&self, file: File, place: usize) -> Option<&Design> {
        let File::Copy { db, .. } = file else { return None };
        self.catalog.description(db)?.designs.get(place)
    }

    /// The sequence to which an index is built, including a running build.
    pub(super) fn index_seq(&self, file: File, place: usize, held: DocCounts) -> u64 {
        if let Some(seq) = self.building_to(file, place) {
            return seq.min(held.seq);
        }
        match self.index_state(file, place).map(|state| state.built) {
            Some(BuildState::Follows) => {
                let rest = self.now.as_nanos() % REFRESH_INTERVAL.as_nanos();
                let rest = Duration::from_nanos(u64::try_from(rest).unwrap_or(0));
                let at = self.now.saturating_sub(rest);
                self.held_at(file, at).map_or(0, |then| then.seq)
            }
            Some(BuildState::To(seq)) => seq.min(held.seq),
            None => 0,
        }
    }

    /// The current sizes of an index file.
    pub(super) fn index_sizes(&self, file: File, place: usize) -> Option<Sizes> {
        let seq = self.index_seq(file, place, self.held_at(file, self.now)?);
        let state = self.index_state(file, place)?;
        // Later writes are not indexed yet.
        let stock = self.stock(file)?;
        let indexed = stock.doc_counts(seq.saturating_sub(stock.seq_at_start()));
        Some(view_sizes(self.design(file, place)?, indexed, seq, state.start))
    }

    /// The actual state of a design document's index on one copy, of any range; `None`: no such
    /// copy or document. HTTP shows only the range that contains the document.
    #[must_use]
    pub fn view(&self, node: &str, file: &str, ddoc: &str) -> Option<ViewInfo> {
        self.view_of(self.file(self.node_position(node)?, file)?, ddoc)
    }

    pub(super) fn view_of(&self, file: File, ddoc: &str) -> Option<ViewInfo> {
        let File::Copy { db, .. } = file else { return None };
        let place = index_place(self.catalog.description(db)?, ddoc)?;
        let design = self.design(file, place)?;
        let held = self.held_at(file, self.now)?;
        let update_seq = self.index_seq(file, place, held);
        Some(ViewInfo {
            signature: self.catalog.signature(db, place)?,
            language: design.language.clone(),
            sizes: self.index_sizes(file, place)?,
            update_seq,
            pending: held.seq.saturating_sub(update_seq),
            updater_running: self.building_to(file, place).is_some(),
            compact_running: self.compacting_index(file, place),
            collators: design.collators.clone(),
        })
    }

    /// Bytes of stale index files of a shard copy.
    pub(super) fn stale_of(&self, file: File) -> u64 {
        let File::Copy { db, .. } = file else { return 0 };
        let touched = self.changed.get(&file).and_then(|touched| touched.stale);
        touched.or_else(|| Some(self.catalog.description(db)?.stale_index_bytes)).unwrap_or(0)
    }

    /// Bytes of stale index files of a database, on all nodes.
    #[must_use]
    pub fn stale_index_bytes(&self, db: &str) -> Option<u64> {
        let db = self.catalog.find(db)?;
        Some(self.copies_of(db).into_iter().map(|file| self.stale_of(file)).sum())
    }

    /// Deletes the stale index files of a database on all running nodes.
    pub fn clean_up(&mut self, db: &str) {
        let Some(db) = self.catalog.find(db) else { return };
        for file in self.copies_of(db) {
            self.clean_up_file(file);
        }
    }

    pub(super) fn clean_up_file(&mut self, file: File) {
        let up = file.node().is_some_and(|node| self.is_up(node));
        let stale = self.stale_of(file);
        if up && stale > 0 {
            self.discard(file, stale);
            self.changed.entry(file).or_default().stale = Some(0);
        }
    }

    /// Adds a design document, or replaces the one of the same name. An index without any design
    /// document remains on disk as a stale file.
    pub fn put_design(&mut self, db: &str, design: Design) {
        let Some(db) = self.catalog.find(db) else { return };
        // All members of a fleet share their design documents.
        if matches!(db, Db::Member { .. }) {
            return;
        }
        let Some(old) = self.catalog.description(db).map(|description| description.designs.clone())
        else {
            return;
        };
        let mut new = old.clone();
        match new.iter_mut().find(|known| known.name == design.name) {
            Some(known) => *known = design,
            None => new.push(design),
        }
        for file in self.copies_of(db) {
            self.replace_indexes(file, &old, &new);
        }
        self.catalog.set_designs(db, new);
        self.written.entry(db).or_default().push((self.now, 1));
    }

    /// Keeps the indexes of one copy that the new design documents still define.
    fn replace_indexes(&mut self, file: File, old: &[Design], new: &[Design]) {
        let mut kept = std::collections::BTreeMap::new();
        let mut stale = self.stale_of(file);
        for (place, design) in old.iter().enumerate() {
            let first = old.iter().position(|other| signature_of(other) == signature_of(design));
            if first != Some(place) {
                continue;
            }
            match new.iter().position(|other| signature_of(other) == signature_of(design)) {
                Some(now) => kept.extend(self.index_state(file, place).map(|state| (now, state))),
                None => stale += self.index_sizes(file, place).map_or(0, |sizes| sizes.file),
            }
        }
        for (place, design) in new.iter().enumerate() {
            let known = old.iter().any(|other| signature_of(other) == signature_of(design));
            if !known {
                let start = CompactedView { seq: 0, file: EMPTY_VIEW };
                kept.entry(place).or_insert(IndexState { built: BuildState::To(0), start });
            }
        }
        self.drop_jobs(|key| key.file == file && key.is_index());
        let searches = self.carried_searches(file, old, new);
        let touched = self.changed.entry(file).or_default();
        touched.searches = searches;
        touched.indexes = kept;
        touched.stale = Some(stale);
    }

    /// Starts to build each copy of a design document's index that is out of date, on running
    /// nodes.
    pub fn build(&mut self, db: &str, ddoc: &str) {
        let Some(db) = self.catalog.find(db) else { return };
        let place = self.catalog.description(db).and_then(|description| {
            let place = index_place(description, ddoc)?;
            description.designs.get(place).is_some_and(is_buildable).then_some(place)
        });
        let Some(place) = place else { return };
        for file in self.copies_of(db) {
            self.start_build(file, place);
        }
    }

    /// The positions of a database's indexes.
    pub(super) fn indexes(&self, db: Db) -> Vec<usize> {
        self.catalog
            .description(db)
            .map_or_else(Vec::new, |description| index_places(description).collect())
    }
}
