//! The existing targets: the shard map compared with the files on each node.
//!
//! Owns one listing: the map's placement, the files listed by the nodes, the splits. Removes a target
//! only if the whole map and its node's whole list were read without it.

use super::{ScanSettings, views::IndexTables};
use crate::{
    model::target::{TargetKind, TargetState},
    sources::inventory::{
        Copy, CopyAt, MapEntry, MapRead, Reshard, state_of_absent, state_of_placed, state_of_stray,
    },
    table::{DbIx, DbName, Draft, IndexSet, NodeIx, ShardMapEntry, TargetIx, TargetRef},
};
use couchdb_names::{NameList, Range, ShardName};
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of databases that are requested one by one because their files are not where the map
/// places them. If there are more, the map is probably incomplete, and the state of their files stays unknown.
const MAX_DIFFERING_DATABASES: usize = 200;

/// One sweep's listing.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The splits, as they were read last; `None` before that.
    splits: Option<Reshard>,
    /// The previous reading of the splits: its ranges may just have been divided.
    splits_before: Reshard,
    /// Whether this sweep still has to read the splits.
    splits_due: bool,
    /// Whether a state could not be decided because the splits are due.
    undecided: bool,
    /// Targets that CouchDB refuses to open until a split is over.
    locked: IndexSet,
    /// Whether the states of the listed targets are decided.
    settled: bool,
    /// Whether anything was changing, so that the next sweep lists again.
    in_motion: bool,
    /// Whether an entry of the map could not be read again, or nodes disagree about one.
    disputed: bool,
    /// How much of the map was read; `None` until its end, or if reading was interrupted.
    map: Option<MapRead>,
    /// The databases in the map.
    databases: usize,
    /// Nodes with copies in the map.
    holders: BTreeSet<NodeIx>,
    /// The databases in the map, with their targets.
    dbs: IndexSet,
    mapped: IndexSet,
    /// Targets whose file was listed.
    on_disk: IndexSet,
    /// Nodes whose files were listed.
    listed: BTreeSet<NodeIx>,
    /// Entries of databases with moving copies; the other entries need not be kept.
    moving: BTreeMap<(String, String), MapEntry>,
    /// Files on nodes where the map does not place them.
    strays: Vec<Stray>,
    /// Databases that were requested one by one.
    asked: BTreeSet<String>,
    /// Whether every member's map was asked for the databases in `asked`.
    asks_every_map: bool,
}

#[derive(Debug)]
struct Stray {
    node: NodeIx,
    db: String,
    suffix: String,
    range: Range,
}

impl Stray {
    fn name(&self) -> DbName<'_> {
        DbName { db: &self.db, suffix: &self.suffix }
    }

    /// Its target, if the tables have one.
    fn find(&self, draft: &Draft) -> Option<TargetIx> {
        draft.find_copy(self.node, self.name(), Some(self.range))
    }

    /// Whether its name has the form that CouchDB gives to a shard, `db.1795222434`. A file whose
    /// name has another form belongs to an unknown storage engine.
    fn has_a_known_form(&self) -> bool {
        let Self { db, suffix, range, .. } = self;
        ShardName { range: *range, db, suffix }.has_a_known_form()
    }
}

impl Listing {
    /// Begins a new listing, and keeps the splits.
    pub(super) fn begin(&mut self) {
        self.dbs.clear();
        self.mapped.clear();
        self.on_disk.clear();
        *self = Self {
            dbs: std::mem::take(&mut self.dbs),
            mapped: std::mem::take(&mut self.mapped),
            on_disk: std::mem::take(&mut self.on_disk),
            splits: self.splits.take(),
            splits_before: std::mem::take(&mut self.splits_before),
            splits_due: self.splits_due,
            locked: std::mem::take(&mut self.locked),
            ..Self::default()
        };
    }

    /// Whether the states of the listed targets are decided.
    pub(super) const fn is_settled(&self) -> bool {
        self.settled
    }

    /// Whether the decided states can be kept until an event names their database.
    pub(super) const fn is_settled_for_good(&self) -> bool {
        self.settled && !self.in_motion && !self.disputed
    }

    /// Records that an entry of the map could not be read again, or that nodes disagree about one.
    pub(super) const fn disputed(&mut self) {
        self.disputed = true;
    }

    /// The targets among `targets` that the map contains.
    pub(super) fn mapped_of(&self, targets: &BTreeSet<TargetIx>) -> BTreeSet<TargetIx> {
        targets.iter().copied().filter(|ix| self.mapped.contains(ix.as_usize())).collect()
    }

    /// Records to what extent the map was read.
    pub(super) const fn map_read(&mut self, map: MapRead) {
        self.map = Some(map);
    }

    pub(super) const fn is_map_whole(&self) -> bool {
        matches!(self.map, Some(MapRead::Whole))
    }

    /// Whether the map consists of the databases that the login may read, requested one by one.
    pub(super) const fn is_readable_alone(&self) -> bool {
        matches!(self.map, Some(MapRead::Readable))
    }

    /// Whether there is no map to read, so that every file on a disk is in its place.
    pub(super) const fn is_without_map(&self) -> bool {
        matches!(self.map, Some(MapRead::None))
    }

    /// Whether the map is empty.
    pub(super) const fn is_map_empty(&self) -> bool {
        self.databases == 0
    }

    /// The splits, as they were read last; `None` before that.
    pub(super) const fn splits(&self) -> Option<&Reshard> {
        self.splits.as_ref()
    }

    /// Expects this sweep to read the splits. Until then, no file becomes an orphan and no copy
    /// missing: either may belong to a split that has just begun.
    pub(super) const fn expect_splits(&mut self) {
        self.splits_due = true;
    }

    /// Sets the splits; returns whether any state may depend on the change.
    pub(super) fn set_splits(&mut self, splits: Reshard) -> bool {
        self.splits_due = false;
        let is_news = self.splits.as_ref() != Some(&splits);
        self.splits_before = self.splits.replace(splits).unwrap_or_default();
        is_news || self.undecided
    }

    /// Records whether CouchDB refuses to open a target because of a split; returns whether that
    /// changed.
    pub(super) fn set_locked(&mut self, ix: TargetIx, locked: bool) -> bool {
        let is_news = self.locked.contains(ix.as_usize()) != locked;
        if locked {
            self.locked.insert(ix.as_usize());
        } else {
            self.locked.remove(ix.as_usize());
        }
        is_news
    }

    /// Adds a database of the map to the tables, or replaces its entry there.
    pub(super) fn map_entry(
        &mut self,
        draft: &mut Draft,
        views: &mut IndexTables,
        settings: &ScanSettings,
        entry: MapEntry,
    ) {
        let db = draft.get_or_add_db(DbName { db: &entry.db, suffix: &entry.suffix });
        if self.dbs.contains(db.as_usize()) {
            self.unmap_copies(draft, db);
        } else {
            self.databases += 1;
            self.dbs.insert(db.as_usize());
        }
        let map = ShardMapEntry {
            copies: u32::try_from(entry.copies.len()).unwrap_or(u32::MAX),
            ranges: u32::try_from(entry.ranges()).unwrap_or(u32::MAX),
        };
        draft.set_shard_map(db, map, views.of(db));
        for copy in &entry.copies {
            if settings.nodes.has(&copy.node) {
                let node = draft.get_or_add_node(&copy.node);
                self.holders.insert(node);
                let ix = draft.get_or_add_shard(node, db, Some(copy.range));
                self.mapped.insert(ix.as_usize());
            }
        }
        if !entry.arriving.is_empty() || !entry.leaving.is_empty() {
            self.moving.insert((entry.db.clone(), entry.suffix.clone()), entry);
        }
    }

    /// Takes the copies of a database out of the map. Their listed files become strays, unless the map names
    /// them again.
    fn unmap_copies(&mut self, draft: &Draft, db: DbIx) {
        let Some(DbName { db: name, suffix }) = draft.current().db_name(db) else { return };
        self.moving.remove(&(name.to_owned(), suffix.to_owned()));
        for ix in draft.copies_of(db) {
            let at = ix.as_usize();
            let was_mapped = self.mapped.contains(at);
            self.mapped.remove(at);
            if let Some(copy) = draft.current().target(ix).filter(|_| was_mapped)
                && let Some(range) = copy.range()
                && self.on_disk.contains(at)
            {
                let (db, suffix) = (name.to_owned(), suffix.to_owned());
                self.strays.push(Stray { node: copy.node_ix(), db, suffix, range });
            }
        }
    }

    /// Records a copy that the map got after the listing; CouchDB creates its file at the same
    /// time.
    pub(super) fn copy_added(&mut self, ix: TargetIx) {
        self.on_disk.insert(ix.as_usize());
    }

    /// The databases in the map.
    pub(super) const fn dbs(&self) -> &IndexSet {
        &self.dbs
    }

    /// Clears the map entry and the views of databases that the map no longer contains but whose
    /// files are left.
    pub(super) fn forget_deleted(&self, draft: &mut Draft) {
        let dbs = draft.current().targets().map(TargetRef::db);
        let deleted: Vec<DbIx> = dbs.filter(|db| !self.dbs.contains(db.as_usize())).collect();
        for db in deleted {
            draft.set_shard_map(db, ShardMapEntry::default(), &[]);
        }
    }

    /// Records that a database is no longer in the map.
    pub(super) fn db_removed(&mut self, db: DbIx) {
        self.dbs.remove(db.as_usize());
    }

    /// Removes a copy that no longer exists.
    pub(super) fn copy_removed(&mut self, ix: TargetIx) {
        self.mapped.remove(ix.as_usize());
        self.on_disk.remove(ix.as_usize());
        self.locked.remove(ix.as_usize());
    }

    /// Whether a node's files were listed.
    pub(super) fn has_listed(&self, node: NodeIx) -> bool {
        self.listed.contains(&node)
    }

    /// Nodes with copies in the map.
    pub(super) const fn holders(&self) -> &BTreeSet<NodeIx> {
        &self.holders
    }

    /// Adds one node's files to the tables.
    pub(super) fn files(&mut self, draft: &mut Draft, node: NodeIx, names: &NameList) {
        self.listed.insert(node);
        for name in names.iter() {
            let Some(shard) = ShardName::split(name) else {
                let db = draft.get_or_add_db(DbName { db: name, suffix: "" });
                let ix = draft.get_or_add_shard(node, db, None);
                self.mapped.insert(ix.as_usize());
                self.on_disk.insert(ix.as_usize());
                continue;
            };
            let mapped_ix = draft
                .find_copy(node, DbName { db: shard.db, suffix: shard.suffix }, Some(shard.range))
                .filter(|ix| self.mapped.contains(ix.as_usize()));
            match mapped_ix {
                Some(ix) => self.on_disk.insert(ix.as_usize()),
                None => self.strays.push(Stray {
                    node,
                    db: shard.db.to_owned(),
                    suffix: shard.suffix.to_owned(),
                    range: shard.range,
                }),
            }
        }
    }

    /// Databases whose listed files differ from the map, which was read before: they may have been
    /// created, deleted, split or moved since.
    pub(super) fn differing_databases(&self, draft: &Draft) -> Vec<String> {
        let absent = draft.current().targets().filter(|target| {
            let at = target.ix().as_usize();
            let is_listed = self.listed.contains(&target.node_ix());
            is_listed && self.mapped.contains(at) && !self.on_disk.contains(at)
        });
        let absent = absent.map(|target| target.db_name().db);
        let names: BTreeSet<&str> =
            self.strays.iter().map(|stray| &*stray.db).chain(absent).collect();
        names.into_iter().take(MAX_DIFFERING_DATABASES).map(ToOwned::to_owned).collect()
    }

    /// Sets whether every member's map is asked for the databases of stray files.
    pub(super) const fn set_asks_every_map(&mut self, all: bool) {
        self.asks_every_map = all;
    }

    /// Replaces the map entry of a database with the current one, if it exists. A missing entry counts only
    /// if every member's map was asked.
    pub(super) fn stray(
        &mut self,
        draft: &mut Draft,
        views: &mut IndexTables,
        settings: &ScanSettings,
        db: &str,
        entry: Option<MapEntry>,
    ) {
        self.asked.insert(db.to_owned());
        for instance in draft.instances_of(db) {
            let suffix = draft.current().db_name(instance).map(|name| name.suffix);
            let is_other = entry.as_ref().is_none_or(|entry| Some(&*entry.suffix) != suffix);
            let is_gone = entry.is_some() || self.asks_every_map;
            if is_other && is_gone && self.dbs.contains(instance.as_usize()) {
                self.dbs.remove(instance.as_usize());
                self.databases = self.databases.saturating_sub(1);
                self.unmap_copies(draft, instance);
            }
        }
        if let Some(entry) = entry {
            self.map_entry(draft, views, settings, entry);
        }
    }

    /// Decides the states of everything listed, and removes targets that no longer exist.
    ///
    /// Removes nothing if the map was only partly read, and nothing from a member node that was not
    /// listed.
    pub(super) fn settle(&mut self, draft: &mut Draft, settings: &ScanSettings) {
        (self.settled, self.undecided, self.in_motion) = (true, false, false);
        self.settle_strays(draft);
        let places = draft.current().row_count();
        // Without the right to read the members, no member is known.
        let members_known = draft.current().nodes().iter().any(|node| node.is_member);
        for at in 0..places {
            let Some(target) = draft.current().target_at(at) else { continue };
            let ix = target.ix();
            if target.kind() != TargetKind::Db {
                continue;
            }
            let (mapped, on_disk) =
                (self.mapped.contains(ix.as_usize()), self.on_disk.contains(ix.as_usize()));
            let listed = self.listed.contains(&target.node_ix());
            let measured = target.facts().measured_at.is_some();
            let node = draft.current().node(target.node_ix());
            let is_member = node.is_some_and(|node| node.is_member);
            let ours = is_member && node.is_some_and(|node| settings.nodes.has(&node.name));
            match (mapped, on_disk) {
                (true, true) => {
                    let state = self.placed(draft, ix);
                    draft.set_state(ix, state);
                }
                // The disk of a node outside the cluster cannot be read, if the node exists at all.
                (true, false) if members_known && !is_member => {
                    draft.set_state(ix, TargetState::Unknown);
                }
                (true, false) if listed => {
                    let state = self.absent(draft, ix);
                    self.decide(draft, ix, state);
                }
                (true, false) => {}
                // A stray file, whose state was decided above.
                (false, true) => {}
                // The node's list leaves the file out; walks of its directories show whether it
                // exists.
                (false, false) if is_hidden(target) => {}
                (false, false)
                    if !ours
                        || (self.is_map_whole() && listed)
                        // Known only from a partial map that no longer contains it.
                        || (self.is_readable_alone() && !measured) =>
                {
                    self.locked.remove(ix.as_usize());
                    if self.is_map_whole() && !self.dbs.contains(target.db().as_usize()) {
                        draft.database_deleted(target.db());
                    }
                    draft.remove(ix);
                }
                (false, false) => {}
            }
        }
    }

    /// Sets a state as far as it can be decided before the splits are read.
    fn decide(&mut self, draft: &mut Draft, ix: TargetIx, state: TargetState) {
        let before = draft.current().target(ix).map(TargetRef::state);
        let rests_on_splits = matches!(state, TargetState::Orphan | TargetState::Missing);
        if self.splits_due && rests_on_splits && before != Some(state) {
            self.undecided = true;
            draft.set_state(ix, TargetState::Unknown);
        } else {
            draft.set_state(ix, state);
        }
    }

    fn settle_strays(&mut self, draft: &mut Draft) {
        let (mut strays, mut placed) = (std::mem::take(&mut self.strays), Vec::new());
        strays.retain(|stray| {
            let ix = stray.find(draft).filter(|ix| self.mapped.contains(ix.as_usize()));
            placed.extend(ix);
            ix.is_none()
        });
        // The map was read again after the files. All copies in it must be known before the others are
        // judged.
        for ix in placed {
            self.on_disk.insert(ix.as_usize());
        }
        for stray in &strays {
            let (name, existing) = (stray.name(), stray.find(draft));
            // A file that an incomplete map does not name is probably where it belongs.
            if !self.is_map_whole() && existing.is_none() {
                continue;
            }
            let db = draft.get_or_add_db(name);
            let ix = draft.get_or_add_shard(stray.node, db, Some(stray.range));
            self.on_disk.insert(ix.as_usize());
            let mut state = self.stray_state(draft, stray, ix);
            let node = draft.current().node(stray.node).map(|node| &*node.name);
            let copy = Copy { db: &stray.db, range: stray.range, node: node.unwrap_or_default() };
            if state == TargetState::Orphan && self.splits_before.covers(copy) {
                (state, self.in_motion) = (TargetState::Unknown, true);
            }
            self.decide(draft, ix, state);
        }
        self.strays = strays;
    }

    /// The state of a file on a node where the map does not place it. It is an orphan only if
    /// everything that could still need it was read after the file was listed, and none of it needs
    /// the file.
    fn stray_state(&self, draft: &Draft, stray: &Stray, ix: TargetIx) -> TargetState {
        if self.locked.contains(ix.as_usize()) {
            return TargetState::Resharding;
        }
        let before = draft.current().target(ix).map_or(TargetState::Unknown, TargetRef::state);
        if !self.is_map_whole() {
            return if before == TargetState::Orphan { TargetState::Unknown } else { before };
        }
        let name = stray.name();
        let entry = self.moving.get(&(stray.db.clone(), stray.suffix.clone()));
        let node = draft.current().node(stray.node);
        let node = node.map(|node| &*node.name).unwrap_or_default();
        let copy = Copy { db: &stray.db, range: stray.range, node };
        let absent = |at: &CopyAt| self.is_absent(draft, name, at);
        let state = state_of_stray(copy, entry, self.known_splits(), absent);
        let is_live = |db: &DbIx| self.dbs.contains(db.as_usize());
        let holds = match draft.find_db(name).filter(is_live) {
            Some(db) => self.is_held_elsewhere(draft, db, stray.range),
            None => self.asks_every_map && stray.has_a_known_form(),
        };
        let is_looked_up = holds && self.asked.contains(&stray.db);
        if state == TargetState::Orphan && !is_looked_up { TargetState::Unknown } else { state }
    }

    /// Whether every copy of a range in the map was found on its node's disk.
    fn is_held_elsewhere(&self, draft: &Draft, db: DbIx, range: Range) -> bool {
        let copies = draft.copies_of(db);
        let mapped = || copies.iter().filter(|ix| self.mapped.contains(ix.as_usize()));
        // Copies on nodes that this process does not serve are not known here.
        let all = u32::try_from(mapped().count()).is_ok_and(|n| n == draft.shard_map(db).copies);
        let of_range = mapped().filter(|ix| {
            let other = draft.current().target(**ix).and_then(TargetRef::range);
            other.is_some_and(|other| other.from <= range.to && range.from <= other.to)
        });
        let mut presence = of_range.map(|ix| self.on_disk.contains(ix.as_usize())).peekable();
        all && presence.peek().is_some() && presence.all(|there| there)
    }

    /// The splits, as far as they are known.
    fn known_splits(&self) -> &Reshard {
        static UNREAD: Reshard = Reshard::unread();
        self.splits.as_ref().unwrap_or(&UNREAD)
    }

    /// Whether a copy in the map is missing on its node's disk, if that disk was listed.
    fn is_absent(&self, draft: &Draft, name: DbName<'_>, at: &CopyAt) -> bool {
        let Some(node) = draft.find_node(&at.node) else { return false };
        let ix = draft.find_copy(node, name, Some(at.range));
        self.listed.contains(&node) && !ix.is_some_and(|ix| self.on_disk.contains(ix.as_usize()))
    }

    /// Applies the splits without a new listing; returns whether any state changed. Only a listing
    /// finds shards that are no longer split.
    pub(super) fn apply_splits(&self, draft: &mut Draft) -> bool {
        let splits = self.known_splits();
        let changed = |target: TargetRef<'_>| {
            let range = target.range().filter(|_| target.kind() == TargetKind::Db)?;
            let copy = Copy { db: target.db_name().db, range, node: target.node() };
            let state = match target.state() {
                TargetState::Ok => state_of_placed(copy, splits),
                TargetState::Resharding | TargetState::Unaddressable => target.state(),
                _ if splits.covers(copy) => TargetState::Resharding,
                _ if splits.is_unread() => TargetState::Unknown,
                TargetState::Orphan | TargetState::Missing | TargetState::Unknown => target.state(),
            };
            (state != target.state()).then_some((target.ix(), state))
        };
        let changed: Vec<_> = draft.current().targets().filter_map(changed).collect();
        for (ix, state) in &changed {
            draft.set_state(*ix, *state);
        }
        !changed.is_empty()
    }

    /// The state of a copy found where the map places it.
    fn placed(&self, draft: &Draft, ix: TargetIx) -> TargetState {
        let Some(target) = draft.current().target(ix) else { return TargetState::Ok };
        let Some(range) = target.range() else { return TargetState::Ok };
        let was_split = target.state() == TargetState::Resharding;
        let splits = self.known_splits();
        if self.locked.contains(ix.as_usize()) || (splits.is_unread() && was_split) {
            return TargetState::Resharding;
        }
        state_of_placed(Copy { db: target.db_name().db, range, node: target.node() }, splits)
    }

    /// The state of a copy in the map that is missing on its node's disk.
    fn absent(&self, draft: &Draft, ix: TargetIx) -> TargetState {
        let Some(target) = draft.current().target(ix) else { return TargetState::Missing };
        let name = target.db_name();
        let Some(range) = target.range() else { return TargetState::Missing };
        let copy = Copy { db: name.db, range, node: target.node() };
        let no_moves = MapEntry::default();
        let entry =
            self.moving.get(&(name.db.to_owned(), name.suffix.to_owned())).unwrap_or(&no_moves);
        state_of_absent(copy, entry, self.known_splits())
    }
}

/// Whether a file has a name of a form that CouchDB lists nowhere.
pub(super) fn is_hidden(target: TargetRef<'_>) -> bool {
    let DbName { db, suffix } = target.db_name();
    let name = target.range().map(|range| ShardName { range, db, suffix });
    target.kind() == TargetKind::Db && name.is_some_and(|name| !name.has_a_known_form())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        cause::Cause,
        facts::{Facts, OptionalU64},
    };

    const RANGE: Range = Range { from: 0, to: u32::MAX };
    const FILE: &str = "shards/00000000-ffffffff/a.1";

    fn entry() -> MapEntry {
        let copy = CopyAt { range: RANGE, node: "n".into() };
        MapEntry {
            db: "a".into(),
            suffix: ".1".into(),
            copies: BTreeSet::from([copy]),
            ..MapEntry::default()
        }
    }

    /// The states of all targets after a listing of one member node.
    fn states(
        draft: &mut Draft,
        listing: &mut Listing,
        (map, files): (Option<MapRead>, Option<&[&str]>),
        mapped: bool,
    ) -> Vec<TargetState> {
        let mut views = IndexTables::default();
        listing.begin();
        let node = draft.get_or_add_node("n");
        draft.update_node(node, |node| node.is_member = true);
        if mapped {
            listing.map_entry(draft, &mut views, &ScanSettings::example(), entry());
        }
        if let Some(map) = map {
            listing.map_read(map);
        }
        if let Some(files) = files {
            listing.files(draft, node, &files.iter().copied().collect());
        }
        listing.set_asks_every_map(true);
        for db in listing.differing_databases(draft) {
            let entry = mapped.then(entry);
            listing.stray(draft, &mut views, &ScanSettings::example(), &db, entry);
        }
        listing.settle(draft, &ScanSettings::example());
        assert!(listing.is_settled());
        draft.current().targets().map(|target| target.state()).collect()
    }

    #[test]
    fn removes_target_only_if_map_and_node_were_read_whole() {
        let whole = Some(MapRead::Whole);
        let all: Option<&[&str]> = Some(&[FILE]);
        let none: Option<&[&str]> = Some(&[]);
        for (map, files, mapped, expected) in [
            (whole, all, true, vec![TargetState::Ok]),
            (whole, none, true, vec![TargetState::Missing]),
            (whole, None, true, vec![TargetState::Ok]),
            (whole, all, false, vec![TargetState::Orphan]),
            (whole, none, false, vec![]),
            (whole, None, false, vec![TargetState::Ok]),
            (None, all, false, vec![TargetState::Ok]),
            (None, none, false, vec![TargetState::Ok]),
        ] {
            let (mut draft, mut listing) = (Draft::new(1), Listing::default());
            listing.set_splits(Reshard::default());
            states(&mut draft, &mut listing, (whole, all), true);
            let found = states(&mut draft, &mut listing, (map, files), mapped);
            assert_eq!(found, expected, "{map:?} {files:?} {mapped}");
        }
    }

    #[test]
    fn removed_file_of_an_unlisted_database_counts_as_deleted() {
        let whole = Some(MapRead::Whole);
        let (mut draft, mut listing) = (Draft::new(1), Listing::default());
        listing.set_splits(Reshard::default());
        states(&mut draft, &mut listing, (whole, Some(&[FILE])), true);
        let ix = draft.current().targets().next().unwrap().ix();
        let file_bytes = OptionalU64::new(7);
        draft.set_facts(ix, Facts { file_bytes, ..Facts::default() });
        draft.take_movements();
        assert_eq!(states(&mut draft, &mut listing, (whole, Some(&[])), false), []);
        let moved = draft.take_movements().entries;
        let [gone] = &*moved else { panic!("one file is gone: {moved:?}") };
        assert_eq!((gone.cause, gone.bytes, &*gone.db), (Cause::DatabaseDeleted, -7, "a"));
    }

    #[test]
    fn map_entry_of_a_deleted_database_with_files_is_forgotten() {
        let (mut draft, mut listing) = (Draft::new(1), Listing::default());
        listing.set_splits(Reshard::default());
        let there = (Some(MapRead::Whole), Some(&[FILE][..]));
        states(&mut draft, &mut listing, there, true);
        assert_eq!(states(&mut draft, &mut listing, there, false), [TargetState::Orphan]);
        listing.forget_deleted(&mut draft);
        let db = draft.current().targets().next().unwrap().db();
        assert_eq!(draft.shard_map(db), ShardMapEntry::default());
    }

    #[test]
    fn file_that_couchdb_may_still_need_is_not_an_orphan() {
        let whole = Some(MapRead::Whole);
        let half = "shards/00000000-7fffffff/a.1";
        for (case, file, mapped, expected) in [
            (
                "of an unknown storage engine",
                "shards/00000000-ffffffff/a.1795222434.1",
                false,
                TargetState::Unknown,
            ),
            ("of no database", half, false, TargetState::Orphan),
            (
                "of a live database whose copy is not on its node's disk",
                half,
                true,
                TargetState::Unknown,
            ),
        ] {
            let (mut draft, mut listing) = (Draft::new(1), Listing::default());
            listing.set_splits(Reshard::default());
            states(&mut draft, &mut listing, (whole, Some(&[file])), mapped);
            let stray =
                draft.current().targets().find(|it| it.shard_name().as_deref() == Some(file));
            assert_eq!(stray.map(TargetRef::state), Some(expected), "{case}");
        }
        let (mut draft, mut listing) = (Draft::new(1), Listing::default());
        for (splits, expected) in
            [(Reshard::unread(), TargetState::Unknown), (Reshard::default(), TargetState::Orphan)]
        {
            listing.set_splits(splits);
            let found = states(&mut draft, &mut listing, (whole, Some(&[half])), false);
            assert_eq!(found, [expected]);
        }
        listing.set_locked(draft.current().targets().next().unwrap().ix(), true);
        let found = states(&mut draft, &mut listing, (whole, Some(&[half])), false);
        assert_eq!(found, [TargetState::Resharding], "CouchDB reports that a split is creating it");
    }

    #[test]
    fn file_of_a_newly_begun_split_is_not_an_orphan() {
        let (mut draft, mut listing) = (Draft::new(1), Listing::default());
        listing.set_splits(Reshard::default());
        listing.expect_splits();
        let half: Option<&[&str]> = Some(&["shards/00000000-7fffffff/a.1"]);
        let whole = Some(MapRead::Whole);
        assert_eq!(states(&mut draft, &mut listing, (whole, half), false), [TargetState::Unknown]);
        let mut splits = Reshard::default();
        splits.add("a", RANGE, false);
        assert!(listing.set_splits(splits));
        listing.settle(&mut draft, &ScanSettings::example());
        assert_eq!(draft.current().targets().next().unwrap().state(), TargetState::Resharding);
    }

    #[test]
    fn halves_of_a_split_that_has_just_ended_are_not_orphans() {
        let (mut draft, mut listing) = (Draft::new(1), Listing::default());
        let mut splits = Reshard::default();
        splits.add("a", RANGE, true);
        listing.set_splits(splits);
        listing.set_splits(Reshard::default());
        let half: Option<&[&str]> = Some(&["shards/00000000-7fffffff/a.1"]);
        let whole = Some(MapRead::Whole);
        assert_eq!(states(&mut draft, &mut listing, (whole, half), false), [TargetState::Unknown]);
        assert!(!listing.is_settled_for_good(), "the next sweep lists again");
        listing.set_splits(Reshard::default());
        assert_eq!(states(&mut draft, &mut listing, (whole, half), false), [TargetState::Orphan]);
        assert!(listing.is_settled_for_good());
    }

    #[test]
    fn absent_copy_is_not_missing_until_splits_are_known() {
        let (mut draft, mut listing) = (Draft::new(1), Listing::default());
        let whole = Some(MapRead::Whole);
        assert_eq!(
            states(&mut draft, &mut listing, (whole, Some(&[])), true),
            [TargetState::Unknown]
        );
        listing.set_splits(Reshard::default());
        assert_eq!(
            states(&mut draft, &mut listing, (whole, Some(&[])), true),
            [TargetState::Missing]
        );
        assert_eq!(
            states(&mut draft, &mut listing, (whole, Some(&[FILE])), true),
            [TargetState::Ok]
        );
        let mut splits = Reshard::default();
        splits.add("a", RANGE, true);
        assert!(listing.set_splits(splits) && listing.apply_splits(&mut draft));
        assert!(!listing.apply_splits(&mut draft), "nothing changes the second time");
        assert_eq!(draft.current().targets().next().unwrap().state(), TargetState::Resharding);
    }
}
