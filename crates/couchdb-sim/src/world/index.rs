//! View and search indexes: how far they are built, and the sizes of views.

use super::{
    FileChanges, Sizes, ViewInfo, World,
    keys::{File, Index, JobKind},
};
use crate::{
    catalog::Db,
    config::{Database, Design},
    design::signature_of,
    growth::{CompactedView, DocCounts, EMPTY_VIEW, times, view_active, view_sizes},
};
use std::time::Duration;

/// How often CouchDB updates an index that it keeps built, in seconds.
const REFRESH_SECONDS: u64 = 5;

/// How far an index is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuildState {
    /// It follows the database's writes.
    Follows,
    /// It is built to this sequence.
    To(u64),
}

/// The position of the first design document with the same index.
pub(super) fn view_place(description: &Database, name: &str) -> Option<usize> {
    let named = description.designs.iter().find(|design| design.name == name)?;
    description.designs.iter().position(|design| {
        if design.saved.is_some() || named.saved.is_some() {
            return signature_of(design) == signature_of(named);
        }
        (&design.language, &design.views, design.reduces)
            == (&named.language, &named.views, named.reduces)
    })
}

impl World {
    /// The position of the first design document with the same index as this one.
    pub(super) fn view_place(&self, file: File, ddoc: &str) -> Option<usize> {
        let File::Copy { db, .. } = file else { return None };
        view_place(self.catalog.description(db), ddoc)
    }

    pub(super) fn design(&self, file: File, place: usize) -> Option<&Design> {
        let File::Copy { db, .. } = file else { return None };
        self.catalog.description(db).designs.get(place)
    }

    /// How far an index is built, ignoring a running build.
    pub(super) fn build_state(&self, file: File, index: Index) -> Option<BuildState> {
        let changed = self.changed.get(&file).and_then(|changes| changes.built.get(&index));
        if let Some(state) = changed {
            return Some(*state);
        }
        let design = self.design(file, index.design())?;
        let built = match index {
            Index::View(_) if !index.is_buildable(design) => 0.0,
            Index::View(_) => design.built,
            Index::Search(_, at) => design.searches.get(at)?.built,
        };
        Some(if built >= 1.0 && design.autoupdate {
            BuildState::Follows
        } else {
            BuildState::To(times(self.stock(file).seq_at_start(), built))
        })
    }

    /// A view index after its last compaction, or at the start.
    fn compacted_view(&self, file: File, place: usize) -> Option<CompactedView> {
        let changed = self.changed.get(&file).and_then(|changes| changes.compacted.get(&place));
        if let Some(compacted) = changed {
            return Some(*compacted);
        }
        let design = self.design(file, place)?;
        let held = self.stock(file).doc_counts(0);
        let seq = times(held.seq, design.built);
        let file = times(view_active(design, held, seq), design.bloat).max(EMPTY_VIEW);
        Some(CompactedView { seq, file })
    }

    /// The sequence to which an index is built, including a running build.
    pub(super) fn index_seq(&self, file: File, index: Index, held: DocCounts) -> u64 {
        if let Some(seq) = self.building_to(file, index) {
            return seq.min(held.seq);
        }
        match self.build_state(file, index) {
            Some(BuildState::Follows) => {
                let refreshed = self.now.as_secs() / REFRESH_SECONDS * REFRESH_SECONDS;
                self.held_at(file, Duration::from_secs(refreshed)).seq
            }
            Some(BuildState::To(seq)) => seq.min(held.seq),
            None => 0,
        }
    }

    /// The current sizes of a view index.
    pub(super) fn view_sizes(&self, file: File, place: usize) -> Option<Sizes> {
        let seq = self.index_seq(file, Index::View(place), self.held(file));
        // Later writes are not indexed yet.
        let stock = self.stock(file);
        let indexed = stock.doc_counts(seq.saturating_sub(stock.seq_at_start()));
        let compacted = self.compacted_view(file, place)?;
        let sizes = view_sizes(self.design(file, place)?, indexed, seq, compacted);
        // Alike documents compress as well as their tree, so external equals active bytes.
        let external = if stock.even { sizes.active } else { sizes.external };
        Some(Sizes { external, ..sizes })
    }

    /// The actual state of a design document's index on one copy, of any range; `None`: no such
    /// copy or document. HTTP shows only the range that contains the document.
    pub fn view(&self, node: &str, file: &str, ddoc: &str) -> Option<ViewInfo> {
        self.view_of(self.file(self.node_position(node)?, file)?, ddoc)
    }

    pub(super) fn view_of(&self, file: File, ddoc: &str) -> Option<ViewInfo> {
        let File::Copy { db, .. } = file else { return None };
        let place = self.view_place(file, ddoc)?;
        let design = self.design(file, place)?;
        let held = self.held(file);
        let update_seq = self.index_seq(file, Index::View(place), held);
        Some(ViewInfo {
            signature: *self.catalog.signatures(db).get(place)?,
            language: design.language.clone(),
            sizes: self.view_sizes(file, place)?,
            update_seq,
            pending: held.seq.saturating_sub(update_seq),
            updater_running: self.building_to(file, Index::View(place)).is_some(),
            compact_running: self.compacting(file, JobKind::View(place)),
            collators: design.collators.clone(),
        })
    }

    /// Bytes of stale index files of a shard copy.
    pub(super) fn stale_of(&self, file: File) -> u64 {
        let File::Copy { db, .. } = file else { return 0 };
        let changed = self.changed.get(&file).and_then(|changes| changes.stale);
        changed.unwrap_or_else(|| self.catalog.description(db).stale_index_bytes)
    }

    /// Deletes the stale index files of a database on all running nodes.
    pub fn clean_up(&mut self, db: &str) {
        let Some(db) = self.catalog.find(db) else { return };
        for file in self.copies_of(db) {
            self.clean_up_file(file);
        }
    }

    fn clean_up_file(&mut self, file: File) {
        let stale = self.stale_of(file);
        if self.is_up(self.node_of(file)) && stale > 0 {
            self.discard(file, stale);
            self.changed.entry(file).or_default().stale = Some(0);
        }
    }

    /// Deletes the stale index files of one copy.
    pub(crate) fn clean_up_at(&mut self, node: &str, file: &str) {
        if let Some(file) = self.node_position(node).and_then(|node| self.file(node, file)) {
            self.clean_up_file(file);
        }
    }

    /// Adds a design document, or replaces the one of the same name. An index without any design
    /// document remains on disk as a stale file.
    pub fn put_design(&mut self, db: &str, design: Design) {
        let name = design.name.clone();
        self.change_design(db, &name, Some(design));
    }

    /// Adds, replaces or deletes a design document.
    pub(crate) fn change_design(&mut self, db: &str, name: &str, design: Option<Design>) {
        // All members of a fleet share their design documents.
        let Some(db @ Db::Named(_)) = self.catalog.find(db) else { return };
        let old = self.catalog.description(db).designs.clone();
        let mut new = old.clone();
        let place = new.iter().position(|known| known.name == name);
        match (place, design) {
            (Some(place), Some(design)) => new[place] = design,
            (Some(place), None) => drop(new.remove(place)),
            (None, design) => new.extend(design),
        }
        for file in self.copies_of(db) {
            self.replace_indexes(file, &old, &new);
        }
        self.catalog.set_designs(db, new);
        self.written.entry(db).or_default().push((self.now, 1));
    }

    /// Keeps those indexes of one copy that the new design documents still define.
    fn replace_indexes(&mut self, file: File, old: &[Design], new: &[Design]) {
        let place_of = |design: &Design, among: &[Design]| {
            among.iter().position(|other| signature_of(other) == signature_of(design))
        };
        let mut changes = FileChanges::default();
        let mut stale = self.stale_of(file);
        for (place, design) in old.iter().enumerate() {
            if place_of(design, old) == Some(place) && place_of(design, new).is_none() {
                stale += self.view_sizes(file, place).map_or(0, |sizes| sizes.file);
            }
        }
        for (place, design) in new.iter().enumerate() {
            let before = place_of(design, old);
            let built = before.and_then(|before| self.build_state(file, Index::View(before)));
            changes.built.insert(Index::View(place), built.unwrap_or(BuildState::To(0)));
            let compacted = before.and_then(|before| self.compacted_view(file, before));
            let empty = CompactedView { seq: 0, file: EMPTY_VIEW };
            changes.compacted.insert(place, compacted.unwrap_or(empty));
            for (at, search) in design.searches.iter().enumerate() {
                let before = self.search_place(file, (search.engine, &design.name, &search.name));
                let built = before.and_then(|before| self.build_state(file, before));
                let built = built.unwrap_or(BuildState::To(0));
                changes.built.insert(Index::Search(place, at), built);
            }
        }
        self.drop_jobs(|key| key.file == file && key.kind != JobKind::Shard);
        let before = self.changed.remove(&file).unwrap_or_default();
        let FileChanges { built, compacted, .. } = changes;
        self.changed.insert(file, FileChanges { built, compacted, stale: Some(stale), ..before });
    }

    /// Starts to build each copy of a design document's index that is out of date, on running
    /// nodes.
    pub fn build(&mut self, db: &str, ddoc: &str) {
        let Some(db) = self.catalog.find(db) else { return };
        let description = self.catalog.description(db);
        let Some(place) = view_place(description, ddoc) else { return };
        self.start_builds_of(db, Index::View(place));
    }

    /// Starts to build each copy of an index that is out of date, on running nodes.
    pub(super) fn start_builds_of(&mut self, db: Db, index: Index) {
        if index.is_buildable(&self.catalog.description(db).designs[index.design()]) {
            self.start_builds(self.copies_of(db), index);
        }
    }

    /// The positions of a database's view indexes, one for each signature.
    pub(super) fn views_of(&self, db: Db) -> impl Iterator<Item = usize> + '_ {
        let description = self.catalog.description(db);
        description.designs.iter().enumerate().filter_map(|(place, design)| {
            let is_first = view_place(description, &design.name) == Some(place);
            (Index::View(place).is_buildable(design) && is_first).then_some(place)
        })
    }
}
