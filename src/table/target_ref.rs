//! The readers' view of one target.

use super::{
    DbIx, DbName, NodeIx, PackedFacts, PartSums, SearchAttributes, ShardMapEntry, SizeHistory,
    Snapshot, TargetIx, TargetRow, View, ViewCopies, totals::Contribution,
};
use crate::{
    datadir::ReadProblem,
    model::{
        correction::Correction,
        facts::{Confidence, Facts, Inside, Overhead},
        growth::Growth,
        records::frees_little,
        rent::Rent,
        target::{CLUSTER_NODE, TargetId, TargetKind, TargetState},
    },
};
use couchdb_names::{Engine, Range};
use std::collections::BTreeSet;

/// One target of a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct TargetRef<'a> {
    snapshot: &'a Snapshot,
    row: &'a TargetRow,
    facts: &'a PackedFacts,
    ix: TargetIx,
    kind: TargetKind,
}

impl<'a> TargetRef<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, ix: TargetIx) -> Option<Self> {
        let row = snapshot.rows.get(ix.as_usize())?;
        if row.generation != ix.generation() {
            return None;
        }
        let facts = snapshot.facts.get(ix.as_usize()).unwrap_or(&PackedFacts::UNKNOWN);
        Some(Self { snapshot, row, facts, ix, kind: row.kind? })
    }

    /// Its index in the snapshot.
    pub const fn ix(self) -> TargetIx {
        self.ix
    }

    /// Its kind.
    pub const fn kind(self) -> TargetKind {
        self.kind
    }

    /// Its relation to the shard map.
    pub const fn state(self) -> TargetState {
        self.row.state
    }

    /// Its facts, per file.
    pub fn facts(self) -> Facts {
        self.facts.unpack(self.kind)
    }

    /// The facts of its file on a node; `None` if its copies differ and that one was not read.
    pub fn facts_on(self, node: NodeIx) -> Option<Facts> {
        match self.copies() {
            ViewCopies::Differ(copies) => {
                copies.iter().find(|(at, _)| *at == node).map(|(_, facts)| *facts)
            }
            ViewCopies::Unknown | ViewCopies::Alike => Some(self.facts()),
        }
    }

    /// How the copies of a view differ.
    pub fn copies(self) -> &'a ViewCopies {
        self.view().map_or(&ViewCopies::Unknown, |view| &view.copies)
    }

    /// Whether compacting a file with these facts would free almost nothing, according to its sizes and to
    /// earlier compactions of its database. If active bytes are too large, they hide reclaimable bytes; an
    /// upgrade is worth it anyway.
    pub fn promises_little(self, facts: &Facts) -> bool {
        let (kind, correction) = (self.kind, self.correction());
        let is_lower_bound = correction.confidence(kind, facts) == Confidence::Low;
        let sizes = facts.file_bytes.get().zip(correction.predicted_bytes(kind, facts));
        !facts.flags.needs_upgrade
            && !is_lower_bound
            && sizes.is_some_and(|(file, left)| frees_little(file, left))
    }

    /// Whether it is known that compacting its copy on a node would free almost nothing.
    pub fn is_copy_lean(self, node: NodeIx) -> bool {
        match self.copies() {
            ViewCopies::Unknown => false,
            ViewCopies::Alike => self.promises_little(&self.facts()),
            ViewCopies::Differ(_) => {
                self.facts_on(node).is_none_or(|facts| self.promises_little(&facts))
            }
        }
    }

    /// Whether a round over its copies has nothing left to do after it compacted these.
    pub fn is_round_over(self, done: &BTreeSet<NodeIx>) -> bool {
        match self.copies() {
            ViewCopies::Differ(copies) => copies
                .iter()
                .all(|(node, facts)| done.contains(node) || self.promises_little(facts)),
            ViewCopies::Unknown | ViewCopies::Alike => done.len() >= self.file_count() as usize,
        }
    }

    /// Its waste over time, per file.
    pub fn rent(self) -> Rent {
        self.history().rent
    }

    /// How fast it grows, per file.
    pub fn growth(self) -> Growth {
        self.history().growth
    }

    pub(super) fn history(self) -> SizeHistory {
        self.snapshot.histories.get(self.ix.as_usize()).copied().unwrap_or_default()
    }

    /// The correction of its predictions, learned from compactions of its database, or from an X-ray
    /// of its file.
    pub fn correction(self) -> Correction {
        let corrections = self.snapshot.corrections.get(&self.db());
        let correction = corrections.map_or(Correction::NONE, |it| it.of_kind(self.kind));
        Correction { inside: self.inside(), ..correction }
    }

    /// The last X-ray of its file, if there is one.
    pub fn inside(self) -> Option<Inside> {
        self.snapshot.insides.get(&self.ix).copied()
    }

    /// The confidence in its predicted size.
    pub fn confidence(self) -> Confidence {
        self.correction().confidence(self.kind, &self.facts())
    }

    /// Why the header of its file could not be read, if it could not.
    pub fn problem(self) -> Option<ReadProblem> {
        self.snapshot.problems.get(&self.ix).copied()
    }

    /// Contents of its file other than documents, if they are large.
    pub fn overhead(self) -> Option<Overhead> {
        self.snapshot.overheads.get(&self.ix).copied()
    }

    /// The index of its node.
    pub const fn node_ix(self) -> NodeIx {
        self.row.node
    }

    /// The name of its node, or of the pseudo-node.
    pub fn node(self) -> &'a str {
        self.snapshot.node(self.row.node).map_or(CLUSTER_NODE, |node| &node.name)
    }

    /// The database's index: equal for all targets of one database instance.
    pub const fn db(self) -> DbIx {
        DbIx::of(self.row.db)
    }

    /// The database instance's name.
    pub fn db_name(self) -> DbName<'a> {
        self.snapshot.names.get(self.db().as_usize()).unwrap_or(DbName { db: "", suffix: "" })
    }

    /// The shard map's entry for its database.
    pub fn shard_map(self) -> ShardMapEntry {
        self.snapshot.shard_map(self.db())
    }

    /// Whether it is the part of a view that indexes one shard.
    pub fn is_part(self) -> bool {
        self.kind == TargetKind::View && self.row.node != NodeIx::CLUSTER
    }

    /// The shard range of a db target or of a view's part; `None` for node-local databases and
    /// stray files.
    pub fn range(self) -> Option<Range> {
        if self.kind == TargetKind::View {
            return self.view()?.range;
        }
        let at = (self.kind == TargetKind::Db)
            .then_some(self.row.range_or_view_index)?
            .checked_sub(1)?;
        self.snapshot.ranges.get(at as usize).copied()
    }

    /// The shard of a db target or of a view's part, by CouchDB's name:
    /// `shards/<range>/<db><suffix>`.
    pub fn shard_name(self) -> Option<String> {
        if self.kind != TargetKind::Db && !self.is_part() {
            return None;
        }
        let name = self.db_name();
        Some(match self.range() {
            Some(range) => ["shards/", range.text().as_str(), "/", name.db, name.suffix].concat(),
            None => name.to_string(),
        })
    }

    /// The attributes of a view or a search index.
    pub fn view(self) -> Option<&'a View> {
        let at = matches!(self.kind, TargetKind::View | TargetKind::Search)
            .then_some(self.row.range_or_view_index)?;
        self.snapshot.views.get(at as usize).map(AsRef::as_ref)
    }

    /// The attributes that only a search index has.
    pub fn search(self) -> Option<&'a SearchAttributes> {
        self.view()?.search_index.as_ref()
    }

    /// Its identity.
    pub fn id(self) -> TargetId {
        match (self.kind, self.view()) {
            (TargetKind::View, Some(view)) => TargetId::View {
                node: self.node().to_owned(),
                db: self.shard_name().unwrap_or_else(|| self.db_name().to_string()),
                signature: view.signature,
            },
            (TargetKind::Cleanup, _) => TargetId::Cleanup { db: self.db_name().db.to_owned() },
            (TargetKind::Search, view) => {
                let search = view.and_then(|view| view.search_index.as_ref());
                TargetId::Search {
                    db: self.db_name().db.to_owned(),
                    engine: search.map_or(Engine::Nouveau, |search| search.engine),
                    design: view
                        .and_then(|view| view.designs.first())
                        .map_or_else(String::new, ToString::to_string),
                    index: search.map_or_else(String::new, |search| search.index.to_string()),
                }
            }
            (TargetKind::Db | TargetKind::View, _) => TargetId::Db {
                node: self.node().to_owned(),
                shard: self.shard_name().unwrap_or_default(),
            },
        }
    }

    /// Number of files that one compaction rewrites: a cluster-wide view or search index has one
    /// for every copy of every range.
    pub fn file_count(self) -> u32 {
        match self.kind {
            TargetKind::View | TargetKind::Search if self.row.node == NodeIx::CLUSTER => {
                self.shard_map().copies.max(1)
            }
            TargetKind::Db | TargetKind::View | TargetKind::Cleanup | TargetKind::Search => 1,
        }
    }

    /// Bytes on disk: for a view, the known sums of its parts plus the size of one file for each
    /// other copy.
    pub fn file_bytes(self) -> Option<u64> {
        self.file_bytes_with(&self.facts())
    }

    /// Active bytes of the files that [`Self::file_bytes`] counts.
    pub fn active_bytes(self) -> Option<u64> {
        self.active_bytes_with(&self.facts())
    }

    /// Uncompressed bytes in the files that [`Self::file_bytes`] counts.
    pub fn external_bytes(self) -> Option<u64> {
        self.external_bytes_with(&self.facts())
    }

    /// Predicted bytes on disk after a compaction.
    pub fn predicted_bytes(self) -> Option<u64> {
        let facts = self.facts();
        self.learned_bytes_with(&facts).or_else(|| {
            self.with_estimated_copies(
                self.part_sums().predicted_bytes,
                self.correction().predicted_bytes(self.kind, &facts),
            )
        })
    }

    /// Bytes on disk after another compaction, as the last one showed them, in proportion to live bytes.
    fn learned_bytes_with(self, facts: &Facts) -> Option<u64> {
        let left = u128::from(*self.snapshot.left_bytes.get(&self.ix)?);
        let of_one = facts.active_bytes.get().filter(|bytes| *bytes > 0)?;
        let all = u128::from(self.active_bytes_with(facts)?) * left / u128::from(of_one);
        Some(u64::try_from(all).unwrap_or(u64::MAX))
    }

    /// Predicted bytes on disk that a compaction would free. An orphan is removed, never compacted.
    pub fn reclaimable_bytes(self) -> Option<u64> {
        self.reclaimable_bytes_with(&self.facts())
    }

    /// Predicted bytes that a compaction would free judging by the target's sizes alone, regardless of its last
    /// compaction: correct once no writes interfere. `None` if only sizes are known.
    pub fn reclaimable_by_sizes(self) -> Option<u64> {
        let facts = self.facts();
        self.learned_bytes_with(&facts)?;
        self.unlearned_reclaimable_bytes(&facts)
    }

    /// Whether some of its copies were not measured and are assumed to be as large as the one of their
    /// range that was.
    pub fn is_estimated(self) -> bool {
        let of_every_range = self.view().is_some_and(|view| !view.exact_range);
        let measured = if of_every_range { self.shard_map().ranges.max(1) } else { 1 };
        self.file_count() > self.part_sums().count.max(measured)
    }

    /// The sums over its known files: those found in directories, or else the copies that were read one by one.
    fn part_sums(self) -> PartSums {
        let view = self.view().filter(|_| !self.is_part());
        let found = view.map_or_else(PartSums::default, |view| view.part_sums);
        match self.copies() {
            ViewCopies::Differ(copies) if found.count == 0 => {
                self.sums_of(copies).unwrap_or_default()
            }
            ViewCopies::Unknown | ViewCopies::Alike | ViewCopies::Differ(_) => found,
        }
    }

    /// The sums over the copies with these facts; `None` if a size is unknown.
    fn sums_of(self, copies: &[(NodeIx, Facts)]) -> Option<PartSums> {
        let (kind, correction) = (self.kind, self.correction());
        let mut sums = PartSums::default();
        for (_, facts) in copies {
            sums.add(&PartSums {
                count: 1,
                file_bytes: facts.file_bytes.get()?,
                active_bytes: facts.active_bytes.get()?,
                external_bytes: facts.external_bytes.get().unwrap_or_default(),
                predicted_bytes: correction.predicted_bytes(kind, facts)?,
                reclaimable_bytes: correction.reclaimable_bytes(kind, facts)?,
            });
        }
        Some(sums)
    }

    fn file_bytes_with(self, facts: &Facts) -> Option<u64> {
        self.with_estimated_copies(self.part_sums().file_bytes, facts.file_bytes.get())
    }

    fn active_bytes_with(self, facts: &Facts) -> Option<u64> {
        self.with_estimated_copies(self.part_sums().active_bytes, facts.active_bytes.get())
    }

    fn external_bytes_with(self, facts: &Facts) -> Option<u64> {
        self.with_estimated_copies(self.part_sums().external_bytes, facts.external_bytes.get())
    }

    fn reclaimable_bytes_with(self, facts: &Facts) -> Option<u64> {
        if self.row.state == TargetState::Orphan {
            return Some(0);
        }
        if let Some(left) = self.learned_bytes_with(facts) {
            return Some(self.file_bytes_with(facts)?.saturating_sub(left));
        }
        self.unlearned_reclaimable_bytes(facts)
    }

    fn unlearned_reclaimable_bytes(self, facts: &Facts) -> Option<u64> {
        self.with_estimated_copies(
            self.part_sums().reclaimable_bytes,
            self.correction().reclaimable_bytes(self.kind, facts),
        )
    }

    fn with_estimated_copies(self, parts: u64, per_file: Option<u64>) -> Option<u64> {
        let (copies, known) = (self.file_count(), self.part_sums().count);
        if known >= copies {
            return Some(parts);
        }
        Some(parts.saturating_add(per_file?.saturating_mul(u64::from(copies - known))))
    }

    /// Its contribution to the sums. Its facts are unpacked once, because this runs twice for each
    /// change.
    pub(super) fn contribution(self) -> Contribution {
        let facts = self.facts();
        Contribution {
            node: self.row.node,
            kind: self.kind,
            state: self.row.state,
            file_count: self.file_count(),
            is_estimated: self.is_estimated(),
            file_bytes: self.file_bytes_with(&facts),
            active_bytes: self.active_bytes_with(&facts),
            external_bytes: self.external_bytes_with(&facts),
            reclaimable_bytes: self.reclaimable_bytes_with(&facts),
        }
    }
}
