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

/// The maximum number of databases that are requested one by one because only stray files name them. If
/// there are more, the map is probably incomplete, and their state stays unknown.
const MAX_STRAY_DATABASES: usize = 200;

/// One sweep's listing.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The splits; `None` before they are known.
    splits: Option<Reshard>,
    /// Whether the states of the listed targets are decided.
    settled: bool,
    /// How much of the map was read; `None` before its end, or if it broke off.
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
    /// Databases that were requested one by one, with the suffix in the map.
    asked: BTreeMap<String, Option<String>>,
}

#[derive(Debug)]
struct Stray {
    node: NodeIx,
    db: String,
    suffix: String,
    range: Range,
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
            ..Self::default()
        };
    }

    /// Whether the states of the listed targets are decided.
    pub(super) const fn is_settled(&self) -> bool {
        self.settled
    }

    /// The map was read, to this extent.
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

    /// The splits; `None` before they are known.
    pub(super) const fn splits(&self) -> Option<&Reshard> {
        self.splits.as_ref()
    }

    pub(super) fn set_splits(&mut self, splits: Reshard) {
        self.splits = Some(splits);
    }

    pub(super) const fn take_splits(&mut self) -> Option<Reshard> {
        self.splits.take()
    }

    /// Adds a database of the map to the tables.
    pub(super) fn map_entry(
        &mut self,
        draft: &mut Draft,
        views: &mut IndexTables,
        settings: &ScanSettings,
        entry: MapEntry,
    ) {
        let db = draft.get_or_add_db(DbName { db: &entry.db, suffix: &entry.suffix });
        self.databases += 1;
        self.dbs.insert(db.as_usize());
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

    /// The map got this copy after the listing; CouchDB creates its file at the same time.
    pub(super) fn copy_added(&mut self, ix: TargetIx) {
        self.on_disk.insert(ix.as_usize());
    }

    /// The databases in the map.
    pub(super) const fn dbs(&self) -> &IndexSet {
        &self.dbs
    }

    /// A database is no longer in the map.
    pub(super) fn db_removed(&mut self, db: DbIx) {
        self.dbs.remove(db.as_usize());
    }

    /// A copy no longer exists.
    pub(super) fn copy_removed(&mut self, ix: TargetIx) {
        self.mapped.remove(ix.as_usize());
        self.on_disk.remove(ix.as_usize());
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
            let known = draft
                .find_db(DbName { db: shard.db, suffix: shard.suffix })
                .and_then(|db| draft.find_shard(node, db, Some(shard.range)))
                .filter(|ix| self.mapped.contains(ix.as_usize()));
            match known {
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

    /// Databases that only stray files name: they may have been created after the map was read.
    pub(super) fn unknown_strays(&self) -> Vec<String> {
        let names: BTreeSet<&str> = self
            .strays
            .iter()
            .filter(|stray| !self.moving.contains_key(&(stray.db.clone(), stray.suffix.clone())))
            .map(|stray| &*stray.db)
            .collect();
        names.into_iter().take(MAX_STRAY_DATABASES).map(ToOwned::to_owned).collect()
    }

    /// Adds the current map entry of such a database, if it has one.
    pub(super) fn stray(
        &mut self,
        draft: &mut Draft,
        views: &mut IndexTables,
        settings: &ScanSettings,
        db: &str,
        entry: Option<MapEntry>,
    ) {
        self.asked.insert(db.to_owned(), entry.as_ref().map(|entry| entry.suffix.clone()));
        if let Some(entry) = entry {
            self.map_entry(draft, views, settings, entry);
        }
    }

    /// Decides the states of everything listed, and removes targets that no longer exist.
    ///
    /// Removes nothing if the map broke off, and nothing from a member node that was not listed. Before
    /// the splits are known, a misplaced copy may be moving, so its state stays.
    pub(super) fn settle(&mut self, draft: &mut Draft, settings: &ScanSettings) {
        self.settled = true;
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
            let ours = node.is_some_and(|node| node.is_member && settings.nodes.has(&node.name));
            match (mapped, on_disk) {
                (true, true) => {
                    let state = self.placed(draft, ix);
                    draft.set_state(ix, state);
                }
                (true, false) if listed => {
                    if let Some(state) = self.absent(draft, ix) {
                        draft.set_state(ix, state);
                    }
                }
                // A node outside the cluster has none of its copies.
                (true, false) if members_known && node.is_some_and(|node| !node.is_member) => {
                    if let Some(state) = self.absent(draft, ix) {
                        draft.set_state(ix, state);
                    }
                }
                (true, false) => {}
                // A stray file, whose state was decided above.
                (false, true) => {}
                (false, false) if !ours || (self.is_map_whole() && listed) => draft.remove(ix),
                // Known only from a partial map that no longer contains it.
                (false, false) if self.is_readable_alone() && !measured => draft.remove(ix),
                (false, false) => {}
            }
        }
    }

    fn settle_strays(&mut self, draft: &mut Draft) {
        for stray in std::mem::take(&mut self.strays) {
            let name = DbName { db: &stray.db, suffix: &stray.suffix };
            let in_map = draft
                .find_db(name)
                .and_then(|db| draft.find_shard(stray.node, db, Some(stray.range)));
            if let Some(ix) = in_map.filter(|ix| self.mapped.contains(ix.as_usize())) {
                // Its database was created between the two reads.
                self.on_disk.insert(ix.as_usize());
                continue;
            }
            let known = draft.find_db(name).is_some_and(|db| draft.shard_map(db).copies > 0);
            let asked = self.asked.contains_key(&stray.db);
            if !self.is_map_whole() || !(known || asked) {
                // Unknown: its state stays, if it has one.
                if let Some(ix) = in_map {
                    self.on_disk.insert(ix.as_usize());
                }
                continue;
            }
            let entry = self.moving.get(&(stray.db.clone(), stray.suffix.clone()));
            let node = draft.current().node(stray.node).map(|node| node.name.to_string());
            let copy = Copy {
                db: &stray.db,
                range: stray.range,
                node: node.as_deref().unwrap_or_default(),
            };
            let absent = |at: &CopyAt| self.is_absent(draft, name, at);
            let known = self.splits.is_some();
            let nothing = Reshard::default();
            let splits = self.splits.as_ref().unwrap_or(&nothing);
            let state = state_of_stray(copy, entry, splits, absent);
            if state == TargetState::Orphan && !known {
                if let Some(ix) = in_map {
                    self.on_disk.insert(ix.as_usize());
                }
                self.strays.push(stray);
                continue;
            }
            let db = draft.get_or_add_db(name);
            let ix = draft.get_or_add_shard(stray.node, db, Some(stray.range));
            draft.set_state(ix, state);
            self.on_disk.insert(ix.as_usize());
        }
    }

    /// Whether a copy in the map is not on its node's disk, as far as that was listed.
    fn is_absent(&self, draft: &Draft, name: DbName<'_>, at: &CopyAt) -> bool {
        let Some(node) = draft.find_node(&at.node) else { return false };
        let ix = draft.find_db(name).and_then(|db| draft.find_shard(node, db, Some(at.range)));
        self.listed.contains(&node) && !ix.is_some_and(|ix| self.on_disk.contains(ix.as_usize()))
    }

    /// Sets the current splits; returns whether any state changed.
    pub(super) fn apply_splits(&mut self, draft: &mut Draft, splits: &Reshard) -> bool {
        self.splits = Some(splits.clone());
        let splits = |target: &TargetRef<'_>| {
            target.state() == TargetState::Ok
                && self.placed(draft, target.ix()) == TargetState::Resharding
        };
        let found: Vec<TargetIx> =
            draft.current().targets().filter(splits).map(TargetRef::ix).collect();
        for ix in &found {
            draft.set_state(*ix, TargetState::Resharding);
        }
        !found.is_empty()
    }

    /// The state of a copy in its place.
    fn placed(&self, draft: &Draft, ix: TargetIx) -> TargetState {
        let Some(target) = draft.current().target(ix) else { return TargetState::Ok };
        let Some(splits) = &self.splits else {
            let is_split = target.state() == TargetState::Resharding;
            return if is_split { TargetState::Resharding } else { TargetState::Ok };
        };
        let placed = target.range().filter(|_| !splits.is_empty()).map(|range| {
            let db = target.db_name().db;
            state_of_placed(Copy { db, range, node: target.node() }, splits)
        });
        placed.unwrap_or(TargetState::Ok)
    }

    /// The state of a misplaced copy, if it can be decided.
    fn absent(&self, draft: &Draft, ix: TargetIx) -> Option<TargetState> {
        let target = draft.current().target(ix)?;
        let name = target.db_name();
        let Some(range) = target.range() else { return Some(TargetState::Missing) };
        let copy = Copy { db: name.db, range, node: target.node() };
        let no_moves = MapEntry::default();
        let entry =
            self.moving.get(&(name.db.to_owned(), name.suffix.to_owned())).unwrap_or(&no_moves);
        let nothing = Reshard::default();
        let state = state_of_absent(copy, entry, self.splits.as_ref().unwrap_or(&nothing));
        (self.splits.is_some() || state == TargetState::Resharding).then_some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for db in listing.unknown_strays() {
            listing.stray(draft, &mut views, &ScanSettings::example(), &db, None);
        }
        listing.settle(draft, &ScanSettings::example());
        assert!(listing.is_settled());
        draft.current().targets().map(|target| target.state()).collect()
    }

    #[test]
    fn only_a_whole_map_and_a_listed_node_take_a_target_out() {
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
    fn before_it_is_known_what_is_split_a_missing_copy_may_be_on_the_move() {
        let (mut draft, mut listing) = (Draft::new(1), Listing::default());
        let whole = Some(MapRead::Whole);
        assert_eq!(states(&mut draft, &mut listing, (whole, Some(&[])), true), [TargetState::Ok]);
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
        splits.add("a", RANGE);
        assert!(listing.apply_splits(&mut draft, &splits));
        assert!(!listing.apply_splits(&mut draft, &splits), "it is known");
        assert_eq!(draft.current().targets().next().unwrap().state(), TargetState::Resharding);
    }
}
