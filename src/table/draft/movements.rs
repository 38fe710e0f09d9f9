//! Converts changes of the tables to movements.

use super::*;
use crate::{
    model::cause::{Cause, changes_of_file, difference},
    table::movements::{Movement, MovementKey, Movements, NodeFiles},
};

impl TargetRef<'_> {
    /// The bytes counted for a target: those of its file or, for a cluster-wide view, those of the copies that
    /// are not known as parts. `None` without a file of known size.
    pub(super) fn counted_bytes(self) -> Option<u64> {
        if self.state() == TargetState::Missing {
            return None;
        }
        match self.kind() {
            TargetKind::Cleanup | TargetKind::Search => None,
            TargetKind::View if !self.is_part() => {
                let parts = self.view().map_or(0, |view| view.part_sums.file_bytes);
                Some(self.file_bytes()?.saturating_sub(parts))
            }
            TargetKind::Db | TargetKind::View => self.facts().file_bytes.get(),
        }
    }
}

impl Draft {
    /// Takes the movements since the last call.
    pub fn take_movements(&mut self) -> Movements {
        // The pseudo-node contains the index files of all nodes, so a process that serves only some
        // nodes does not count it.
        let serves_all = self.current.members().all(|(_, node)| node.is_served);
        let nodes = self.current.nodes.iter().enumerate().map(|(at, node)| NodeFiles {
            name: Arc::clone(&node.name),
            bytes: self.movements.bytes_of.get(at).copied().unwrap_or_default(),
            is_complete: node.last_success.is_some() && self.current.sweep_duration.is_some(),
            is_member: node.is_served && if at == 0 { serves_all } else { node.is_member },
            is_shown: self.movements.shown.contains(at),
            other_files: self.movements.other_files.get(at).cloned().unwrap_or_default(),
        });
        let nodes = nodes.collect();
        let entries = std::mem::take(&mut self.movements.entries).into_iter();
        let entries = entries.filter(|(_, bytes)| *bytes != 0).map(|(key, bytes)| {
            let MovementKey { node, cause, db, design } = key;
            Movement { node: node.as_usize(), cause, db, design, bytes }
        });
        Movements { nodes, entries: entries.collect() }
    }

    /// Records that these nodes' targets come from an earlier process, and drops the movements so
    /// far, which only restored them.
    pub(in crate::table) fn movements_restored(&mut self, nodes: &[NodeIx]) {
        nodes.iter().for_each(|node| self.movements.restored.insert(node.as_usize()));
        self.movements.entries.clear();
        self.movements.new_databases = <[IndexSet; 2]>::default();
        self.movements.knows_databases = true;
    }

    /// Records the change of a target's counted bytes; `read` are its facts before and after, if they were measured.
    pub(super) fn count_change(
        &mut self,
        ix: TargetIx,
        before: Option<u64>,
        read: Option<(&Facts, &Facts)>,
    ) {
        let Some(target) = self.current.target(ix) else { return };
        let after = target.counted_bytes();
        let is_rewritten = read.is_some_and(|(old, new)| old.active_bytes != new.active_bytes);
        if before == after && !(is_rewritten && after.is_some()) {
            return;
        }
        let mut appeared = None;
        let changes = match (before, after) {
            (None, None) => return,
            (None, Some(bytes)) => {
                // Files of a new index that were found before it are already counted on their nodes.
                let found = self.new_part_bytes(target).min(bytes);
                let new = bytes.saturating_sub(found);
                let cause = self.cause_of_new(target);
                let index = target.view().map(|view| (target.db().0, view.signature));
                appeared = index.filter(|_| cause == Cause::NewIndex);
                vec![(Cause::Measured, difference(0, found)), (cause, difference(0, new))]
            }
            (Some(bytes), None) => {
                let is_gone = target.state() == TargetState::Missing;
                let cause = if is_gone { self.cause_of_gone(target) } else { Cause::Measured };
                vec![(cause, difference(bytes, 0))]
            }
            (Some(old), Some(new)) => attributed(target.kind(), (old, new), read),
        };
        let is_new = self.is_new(target);
        self.movements.new_indexes[0].extend(appeared);
        for (cause, bytes) in changes {
            let cause = if is_new { filled(cause) } else { cause };
            self.add_movement(ix, cause, bytes);
        }
    }

    /// Assigns a new index file to its design document once that is known.
    pub(super) fn count_design_found(&mut self, ix: TargetIx) {
        let Some(target) = self.current.target(ix) else { return };
        if target.view().is_none_or(|view| view.designs.is_empty()) {
            return;
        }
        let Some(bytes) = self.movements.unnamed_parts.remove(&ix) else { return };
        let key = MovementKey {
            node: target.node_ix(),
            cause: Cause::NewIndex,
            db: target.db_name().db.into(),
            design: Box::default(),
        };
        self.movements.add(key, bytes.saturating_neg());
        self.add_movement(ix, Cause::NewIndex, bytes);
    }

    /// Records that a database was deleted, before its targets are removed.
    pub fn database_deleted(&mut self, db: DbIx) {
        self.movements.deleted.insert(db.as_usize());
    }

    /// Records that a target's file is about to be forgotten.
    pub(super) fn count_removed(&mut self, ix: TargetIx) {
        let Some(target) = self.current.target(ix) else { return };
        if let Some(bytes) = target.counted_bytes() {
            let is_hidden = target.is_part() && !self.shows_files(target.node_ix());
            let cause = if is_hidden { Cause::Measured } else { self.cause_of_gone(target) };
            self.add_movement(ix, cause, difference(bytes, 0));
        }
    }

    /// Records whether all index files of a node are known one by one from now on. If so, other files are new, and a
    /// file that is no longer found was deleted.
    pub fn set_shows_files(&mut self, node: NodeIx, shows: bool) {
        match shows {
            true => self.movements.shown.insert(node.as_usize()),
            false => self.movements.shown.remove(node.as_usize()),
        }
    }

    fn shows_files(&self, node: NodeIx) -> bool {
        self.movements.shown.contains(node.as_usize())
    }

    /// Records the sizes of a node's files other than those of targets.
    pub fn count_other_files(&mut self, node: NodeIx, files: Vec<(Cause, u64)>) {
        let at = node.as_usize();
        if self.movements.other_files.len() <= at {
            self.movements.other_files.resize(at + 1, Vec::new());
        }
        let before = std::mem::replace(&mut self.movements.other_files[at], files.clone());
        for (cause, bytes) in files {
            let known = before.iter().find(|(other, _)| *other == cause).map(|(_, bytes)| *bytes);
            // The files found by the first walk existed before.
            let (cause, old) = known.map_or((Cause::Measured, 0), |old| (cause, old));
            let key = MovementKey { node, cause, db: Box::default(), design: Box::default() };
            self.movements.add(key, difference(old, bytes));
        }
    }

    fn add_movement(&mut self, ix: TargetIx, cause: Cause, bytes: i64) {
        let Some(target) = self.current.target(ix) else { return };
        // Files that existed before are not broken down, because the first sweep finds everything.
        let is_named = cause != Cause::Measured;
        let design = target.view().and_then(|view| view.designs.first());
        if cause == Cause::NewIndex && design.is_none() {
            self.movements.unnamed_parts.insert(ix, bytes);
        }
        let key = MovementKey {
            node: target.node_ix(),
            cause,
            db: if is_named { target.db_name().db.into() } else { Box::default() },
            design: design.filter(|_| is_named).map(|id| (&**id).into()).unwrap_or_default(),
        };
        self.movements.add(key, bytes);
    }

    /// Why a file appears. Until everything on its node was read once, it may have existed for long.
    fn cause_of_new(&self, target: TargetRef<'_>) -> Cause {
        let Some(node) = self.current.node(target.node_ix()) else { return Cause::Measured };
        let is_known = match target.is_part() {
            true => self.shows_files(target.node_ix()),
            false => {
                node.last_success.is_some()
                    || self.movements.restored.contains(target.node_ix().as_usize())
            }
        };
        match (is_known, target.kind(), target.range()) {
            (false, ..) => Cause::Measured,
            (_, TargetKind::Db, None) => Cause::NewDatabase,
            (_, TargetKind::Db, Some(range))
                if self.has_copy(target, |other| is_within(range, other)) =>
            {
                Cause::Split
            }
            (_, TargetKind::Db, Some(_)) if self.is_new(target) => Cause::NewDatabase,
            (_, TargetKind::Db, Some(_)) => Cause::ShardMovedIn,
            (_, TargetKind::View | TargetKind::Search | TargetKind::Cleanup, _) => Cause::NewIndex,
        }
    }

    /// Whether a database or an index appeared within the last hour or two, so that its content is new too.
    fn is_new(&self, target: TargetRef<'_>) -> bool {
        let db = target.db();
        match target.view() {
            Some(view) => {
                let index = (db.0, view.signature);
                self.movements.new_indexes.iter().any(|all| all.contains(&index))
            }
            None => self.movements.new_databases.iter().any(|all| all.contains(db.as_usize())),
        }
    }

    /// Why a file disappears.
    fn cause_of_gone(&self, target: TargetRef<'_>) -> Cause {
        match (target.kind(), target.range()) {
            (TargetKind::Db, Some(_))
                if self.movements.deleted.contains(target.db().as_usize()) =>
            {
                Cause::DatabaseDeleted
            }
            (TargetKind::Db, Some(range)) if target.shard_map().copies > 0 => {
                match self.has_copy(target, |other| is_within(other, range)) {
                    true => Cause::Split,
                    false => Cause::ShardMovedOut,
                }
            }
            (TargetKind::Db, _) => Cause::DatabaseDeleted,
            (TargetKind::View | TargetKind::Search | TargetKind::Cleanup, _) => Cause::IndexDeleted,
        }
    }

    /// Bytes of a cluster-wide view's files that were found before it, and counted as new.
    fn new_part_bytes(&self, target: TargetRef<'_>) -> u64 {
        let Some(view) = target.view().filter(|_| !target.is_part()) else { return 0 };
        if self.movements.unnamed_parts.is_empty() {
            return 0;
        }
        let copies = self.copies_of(target.db());
        let shards = copies.iter().filter_map(|ix| self.current.target(*ix));
        let parts = shards.filter_map(|shard| {
            self.find_part(shard.node_ix(), shard.db(), shard.range(), view.signature)
        });
        let new = parts.filter_map(|ix| self.movements.unnamed_parts.get(&ix));
        new.filter_map(|bytes| u64::try_from(*bytes).ok()).fold(0, u64::saturating_add)
    }

    /// Whether the node has another shard of the database whose range meets a condition.
    fn has_copy(&self, target: TargetRef<'_>, is_like: impl Fn(Range) -> bool) -> bool {
        let ranges = self.current.ranges.iter().filter(|range| is_like(**range));
        ranges
            .filter_map(|range| self.find_shard(target.node_ix(), target.db(), Some(*range)))
            .filter_map(|ix| self.current.target(ix))
            .any(|other| other.counted_bytes().is_some())
    }
}

/// The cause to which content of a new database or index is attributed.
fn filled(cause: Cause) -> Cause {
    if matches!(cause, Cause::Documents | Cause::Waste) {
        Cause::NewDatabase
    } else if matches!(cause, Cause::IndexRows | Cause::IndexWaste) {
        Cause::NewIndex
    } else {
        cause
    }
}

/// Whether a range is a part of another one.
fn is_within(part: Range, whole: Range) -> bool {
    part != whole && part.from >= whole.from && part.to <= whole.to
}

/// The change of counted bytes by cause. The sizes of a cluster-wide view are those of one file, multiplied.
fn attributed(
    kind: TargetKind,
    (old, new): (u64, u64),
    read: Option<(&Facts, &Facts)>,
) -> Vec<(Cause, i64)> {
    let total = difference(old, new);
    let file = |facts: &Facts| facts.file_bytes.get().filter(|bytes| *bytes > 0);
    let copies = read.and_then(|(known, _)| old.checked_div(file(known)?));
    let copies = copies.and_then(|copies| i64::try_from(copies).ok()).unwrap_or(1);
    let changes = read.map(|(known, seen)| changes_of_file(kind, known, seen));
    let changes = changes.unwrap_or_default().into_iter();
    let changes: Vec<_> =
        changes.map(|(cause, bytes)| (cause, bytes.saturating_mul(copies))).collect();
    match changes.iter().map(|(_, bytes)| *bytes).sum::<i64>() == total {
        true => changes,
        false => vec![(Cause::Measured, total)],
    }
}

/// The counted bytes of each node, from the rows.
#[cfg(test)]
pub(crate) fn recount(snapshot: &Snapshot) -> Vec<i64> {
    let mut sums = vec![0_i64; snapshot.nodes().len()];
    for target in snapshot.targets() {
        sums[target.node_ix().as_usize()] +=
            difference(0, target.counted_bytes().unwrap_or_default());
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::ShardMapEntry;
    use couchdb_names::Signature;

    const MIB: u64 = 1 << 20;
    const RANGE: Range = Range { from: 0, to: u32::MAX };
    const SIGNATURE: Signature = Signature([7; 16]);

    /// Two copies of one shard on two nodes, one of which shows its files; everything was read once.
    fn two_copies() -> (Draft, DbIx, [NodeIx; 2]) {
        let mut draft = Draft::new(1);
        let db = draft.get_or_add_db(DbName { db: "orders", suffix: ".1" });
        draft.set_shard_map(db, ShardMapEntry { copies: 2, ranges: 1 }, &[]);
        let nodes = ["couchdb@a", "couchdb@b"].map(|name| draft.get_or_add_node(name));
        for node in nodes {
            draft.get_or_add_shard(node, db, Some(RANGE));
        }
        for node in [NodeIx::CLUSTER, nodes[0], nodes[1]] {
            draft.update_node(node, |node| node.last_success = Some(Moment::from_unix(1)));
        }
        draft.set_shows_files(nodes[0], true);
        draft.take_movements();
        (draft, db, nodes)
    }

    fn view() -> View {
        let designs = Arc::new(["_design/clients".into()]);
        View { signature: SIGNATURE, designs, ..View::default() }
    }

    fn add_part(draft: &mut Draft, node: NodeIx, db: DbIx) -> TargetIx {
        let ix = draft.get_or_add_part(node, db, Some(RANGE), SIGNATURE);
        draft.set_facts(ix, Facts::sized(MIB, MIB));
        ix
    }

    fn add_view(draft: &mut Draft, db: DbIx) -> TargetIx {
        let ix = draft.add_view(db, view());
        draft.set_facts(ix, Facts::sized(MIB, MIB));
        ix
    }

    /// Bytes in MiB by node, cause and design document.
    fn taken(draft: &mut Draft) -> Vec<(usize, Cause, String, i64)> {
        let entries = draft.take_movements().entries.into_iter();
        let mut all: Vec<_> = entries
            .map(|it| (it.node, it.cause, it.design.into_string(), it.bytes >> 20))
            .collect();
        all.sort();
        all
    }

    #[test]
    fn index_found_first_as_a_file_is_booked_as_new_once() {
        let (mut draft, db, [a, _]) = two_copies();
        let part = add_part(&mut draft, a, db);
        let entry = add_view(&mut draft, db);
        draft.set_view(part, view());
        draft.set_parts(entry, PartSums { count: 1, file_bytes: MIB, ..PartSums::default() });
        let design = || "_design/clients".to_owned();
        assert_eq!(
            taken(&mut draft),
            [(0, Cause::NewIndex, design(), 1), (1, Cause::NewIndex, design(), 1)],
            "one file is on node a, and the other is counted for the cluster"
        );
    }

    #[test]
    fn index_files_that_become_visible_or_hidden_are_no_growth() {
        let (mut draft, db, [_, b]) = two_copies();
        let entry = add_view(&mut draft, db);
        taken(&mut draft);
        let part = add_part(&mut draft, b, db);
        draft.set_parts(entry, PartSums { count: 1, file_bytes: MIB, ..PartSums::default() });
        let measured = |node, mib| (node, Cause::Measured, String::new(), mib);
        assert_eq!(taken(&mut draft), [measured(0, -1), measured(2, 1)]);

        draft.remove(part);
        draft.set_parts(entry, PartSums::default());
        assert_eq!(taken(&mut draft), [measured(0, 1), measured(2, -1)], "its sidecar is away");
    }
}
