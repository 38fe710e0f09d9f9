//! View indexes: how far they are built, and their bytes.

use super::{Sizes, ViewInfo, World, files::File};
use crate::{
    catalog::Db,
    config::{Database, Design},
    design::signature_of,
    growth::{EMPTY_VIEW, Held, ViewSwap, times, view_active, view_sizes},
};
use std::time::Duration;

/// How often CouchDB refreshes an index that it keeps built.
pub(super) const REFRESH: Duration = Duration::from_secs(5);

/// Languages that a query server serves here.
pub(super) const SERVED: [&str; 3] = ["javascript", "query", "erlang"];

/// How far an index is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Built {
    /// It follows the database's writes.
    Follows,
    /// To this sequence.
    To(u64),
}

/// One index file: how far it is built, and what its last compaction left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexState {
    pub(super) built: Built,
    pub(super) start: ViewSwap,
}

/// Whether CouchDB can build an index for it.
fn is_served(design: &Design) -> bool {
    SERVED.contains(&design.language.as_str()) && !design.views.is_empty()
}

/// The place of the first design document that shares this one's index.
pub(super) fn index_place(like: &Database, name: &str) -> Option<usize> {
    let named = like.designs.iter().find(|design| design.name == name)?;
    like.designs.iter().position(|design| {
        (&design.language, &design.views, design.reduces)
            == (&named.language, &named.views, named.reduces)
    })
}

/// The places of a database's indexes, one a signature.
pub(super) fn index_places(like: &Database) -> impl Iterator<Item = usize> + '_ {
    like.designs.iter().enumerate().filter_map(|(place, design)| {
        (is_served(design) && index_place(like, &design.name) == Some(place)).then_some(place)
    })
}

impl World {
    /// The state of an index file.
    pub(super) fn index_state(&self, file: File, place: usize) -> Option<IndexState> {
        let touched = self.touched.get(&file).and_then(|touched| touched.indexes.get(&place));
        if let Some(state) = touched {
            return Some(*state);
        }
        let design = self.design(file, place)?;
        let stock = self.stock(file)?;
        let held = stock.held(0);
        let seq = times(held.seq, design.built);
        let file_bytes = match seq {
            0 => EMPTY_VIEW,
            _ => times(view_active(design, held, seq), design.bloat),
        };
        let built = match () {
            () if !is_served(design) => Built::To(0),
            () if design.built >= 1.0 && design.autoupdate => Built::Follows,
            () => Built::To(seq),
        };
        let start = ViewSwap { seq, file: file_bytes.max(EMPTY_VIEW) };
        Some(IndexState { built, start })
    }

    pub(super) fn design(&self, file: File, place: usize) -> Option<&Design> {
        let File::Copy { db, .. } = file else { return None };
        self.catalog.like(db)?.designs.get(place)
    }

    /// The sequence an index is built to, a running build included.
    pub(super) fn index_seq(&self, file: File, place: usize, held: Held) -> u64 {
        if let Some(seq) = self.building_to(file, place) {
            return seq.min(held.seq);
        }
        match self.index_state(file, place).map(|state| state.built) {
            Some(Built::Follows) => {
                let rest = self.now.as_nanos() % REFRESH.as_nanos();
                let rest = Duration::from_nanos(u64::try_from(rest).unwrap_or(0));
                let at = self.now.saturating_sub(rest);
                self.held_at(file, at).map_or(0, |then| then.seq)
            }
            Some(Built::To(seq)) => seq.min(held.seq),
            None => 0,
        }
    }

    /// The bytes of an index file now.
    pub(super) fn index_sizes(&self, file: File, place: usize) -> Option<Sizes> {
        let seq = self.index_seq(file, place, self.held_at(file, self.now)?);
        let state = self.index_state(file, place)?;
        // What was written since it was built is not in it.
        let stock = self.stock(file)?;
        let indexed = stock.held(seq.saturating_sub(stock.seq_at_start()));
        Some(view_sizes(self.design(file, place)?, indexed, seq, state.start))
    }

    /// The truth of one copy of a design document's index, on whatever range it lies;
    /// `None`: no such copy or document. HTTP shows it only where the document lies.
    #[must_use]
    pub fn view(&self, node: &str, file: &str, ddoc: &str) -> Option<ViewInfo> {
        self.view_of(self.file(self.place(node)?, file)?, ddoc)
    }

    pub(super) fn view_of(&self, file: File, ddoc: &str) -> Option<ViewInfo> {
        let File::Copy { db, .. } = file else { return None };
        let place = index_place(self.catalog.like(db)?, ddoc)?;
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

    /// Bytes of stale index files beside a shard copy.
    pub(super) fn stale_of(&self, file: File) -> u64 {
        let File::Copy { db, .. } = file else { return 0 };
        let touched = self.touched.get(&file).and_then(|touched| touched.stale);
        touched.or_else(|| Some(self.catalog.like(db)?.stale_index_bytes)).unwrap_or(0)
    }

    /// Bytes of stale index files of a database, over every node.
    #[must_use]
    pub fn stale_index_bytes(&self, db: &str) -> Option<u64> {
        let db = self.catalog.find(db)?;
        Some(self.copies_of(db).into_iter().map(|file| self.stale_of(file)).sum())
    }

    /// Deletes the stale index files of a database, on every node that is up.
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
            self.touched.entry(file).or_default().stale = Some(0);
        }
    }

    /// Puts a design document in the place of the one of its name, or adds it, now. An
    /// index that no document names any more stays on the disks as a stale file.
    pub fn put_design(&mut self, db: &str, design: Design) {
        let Some(db) = self.catalog.find(db) else { return };
        // A fleet's members share their design documents.
        if matches!(db, Db::Member { .. }) {
            return;
        }
        let Some(old) = self.catalog.like(db).map(|like| like.designs.clone()) else { return };
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

    /// Carries the indexes of one copy over to other design documents.
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
                let start = ViewSwap { seq: 0, file: EMPTY_VIEW };
                kept.entry(place).or_insert(IndexState { built: Built::To(0), start });
            }
        }
        self.drop_jobs(|key| key.file == file && key.is_index());
        let searches = self.carried_searches(file, old, new);
        let touched = self.touched.entry(file).or_default();
        touched.searches = searches;
        touched.indexes = kept;
        touched.stale = Some(stale);
    }

    /// Starts to build every copy of a design document's index that is behind, on nodes
    /// that are up.
    pub fn build(&mut self, db: &str, ddoc: &str) {
        let Some(db) = self.catalog.find(db) else { return };
        let place = self.catalog.like(db).and_then(|like| {
            let place = index_place(like, ddoc)?;
            like.designs.get(place).is_some_and(is_served).then_some(place)
        });
        let Some(place) = place else { return };
        for file in self.copies_of(db) {
            self.start_build(file, place);
        }
    }

    /// The places of a database's indexes.
    pub(super) fn indexes(&self, db: Db) -> Vec<usize> {
        self.catalog.like(db).map_or_else(Vec::new, |like| index_places(like).collect())
    }
}
