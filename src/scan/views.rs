//! The view and search indexes of each database, and the evidence that some became stale.
//!
//! Owns the indexes and cleanup target of each database, and the sequences of its copies when its design
//! documents were requested. Requests nothing itself.

mod searches;

use crate::{
    model::{
        facts::{FactSource, Facts, Measurement, OptionalU64 as KnownNumber},
        target::{TargetKind, TargetState},
    },
    sources::inventory::{ReadError, SearchAnswer, ViewAnswer, doc_hash},
    table::{
        DbIx, DbName, Draft, IndexSet, NodeIx, Snapshot, TargetIx, TargetRef, View, ViewCopies,
    },
};
use couchdb_names::Signature;
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc};
use tokio::time::Instant;
use wall_clock::Moment;

/// If the smallest file of an index is smaller than the largest by more than this share of the largest,
/// each copy's size counts by itself.
const UNEQUAL_SHARE: f64 = 0.125;

/// The view targets of each database instance.
#[derive(Debug, Default)]
pub(super) struct IndexTables {
    dbs: BTreeMap<DbIx, DbViews>,
    /// By database, a digest of its copies' update sequences when its design documents were requested;
    /// zero if they were not, or could not be read.
    asked: Vec<u32>,
}

/// The result of reading one database's indexes.
#[derive(Debug)]
pub(super) struct ReadIndexes {
    pub(super) views: Result<Vec<ViewAnswer>, ReadError>,
    pub(super) searches: Vec<SearchAnswer>,
    /// The signatures that an index file may have, if all design documents were read.
    pub(super) signatures: Option<Vec<Signature>>,
    /// Whether index files of the database were found on a disk.
    pub(super) has_parts: bool,
    /// Whether the servers clean up by themselves.
    pub(super) cleans_itself: bool,
}

/// The indexes of one database.
#[derive(Debug, Default)]
struct DbViews {
    /// Its views and its search indexes.
    views: Vec<TargetIx>,
    cleanup: Option<TargetIx>,
    /// Every signature of the database's design documents, if all are known.
    designed: Option<Vec<Signature>>,
    /// Whether the signatures were requested since index files were found; before that they are not
    /// kept.
    judged: bool,
    /// The time of the database's last feed event.
    named: Option<Instant>,
}

impl IndexTables {
    /// The views of a database instance.
    pub(super) fn of(&self, db: DbIx) -> &[TargetIx] {
        self.dbs.get(&db).map_or(&[], |known| &known.views)
    }

    /// Whether a design document of a database has this signature; `None` if not all are known.
    pub(super) fn designed(&self, db: DbIx, signature: Signature) -> Option<bool> {
        let designed = self.dbs.get(&db)?.designed.as_ref()?;
        Some(designed.contains(&signature))
    }

    /// Sets the unused bytes of a database's index files, the evidence for its cleanup.
    pub(super) fn set_stale(&mut self, draft: &mut Draft, db: DbIx, bytes: u64, now: Moment) {
        let Some(cleanup) = self.dbs.get(&db).and_then(|known| known.cleanup) else { return };
        let mut facts =
            draft.current().target(cleanup).map_or_else(Facts::default, TargetRef::facts);
        facts.flags.evidence |= bytes > 0;
        facts.file_bytes = KnownNumber::new(bytes);
        facts.measured_at = Some(Measurement { at: now, source: FactSource::Files });
        draft.set_facts(cleanup, facts.marked_from_files());
    }

    /// Clears the evidence of databases whose unused index files are gone: another program cleaned
    /// up on all nodes.
    pub(super) fn clear_stale(
        &mut self,
        draft: &mut Draft,
        has_stale: impl Fn(DbIx) -> bool,
        now: Moment,
    ) {
        for (db, known) in &self.dbs {
            let Some(cleanup) = known.cleanup.filter(|_| known.designed.is_some()) else {
                continue;
            };
            let Some(target) = draft.current().target(cleanup) else { continue };
            let mut facts = target.facts();
            if facts.file_bytes.get().is_none_or(|bytes| bytes == 0) || has_stale(*db) {
                continue;
            }
            facts.flags.evidence = false;
            facts.file_bytes = KnownNumber::new(0);
            facts.measured_at = Some(Measurement { at: now, source: FactSource::Files });
            draft.set_facts(cleanup, facts.marked_from_files());
        }
    }

    /// Finds the indexes of an earlier process in the tables.
    pub(super) fn restore(&mut self, tables: &Snapshot) {
        for target in tables.targets() {
            match target.kind() {
                TargetKind::Db => {}
                TargetKind::View | TargetKind::Search => {
                    self.dbs.entry(target.db()).or_default().views.push(target.ix())
                }
                TargetKind::Cleanup => {
                    self.dbs.entry(target.db()).or_default().cleanup = Some(target.ix());
                }
            }
        }
    }

    /// Whether the views of a database must be requested, given its copies; records that they are.
    ///
    /// A change of a design document changes the update sequence of every copy that receives it, so a
    /// database without views still has none if no copy changed. A database with views is always due,
    /// because an index grows and is compacted independently of its database, unless feeds confirm all of
    /// its indexes; then it is due only in its turn. Once its index files were found it is always due,
    /// because its documents show which of them are stale.
    pub(super) fn due(
        &mut self,
        tables: &Snapshot,
        copies: impl Iterator<Item = TargetIx>,
        has_parts: impl Fn(DbIx) -> bool,
        is_due: impl Fn(TargetIx) -> bool,
    ) -> bool {
        let mut far = Some(0_u32);
        let mut name = None;
        for target in copies.filter_map(|ix| tables.target(ix)) {
            let seq = target.facts().update_seq.get();
            far = far.zip(seq).map(|(far, seq)| far.wrapping_add(low_bits(seq)));
            name = Some((target.db(), target.db_name()));
        }
        let Some((db, name)) = name else { return true };
        let place = db.as_usize();
        if self.asked.len() <= place {
            self.asked.resize(place + 1, 0);
        }
        // The position may have belonged to another database before: the name distinguishes them.
        let far = far.map_or(0, |far| {
            far.wrapping_add(doc_hash(name.db)).wrapping_add(doc_hash(name.suffix)).max(1)
        });
        let Some(asked) = self.asked.get_mut(place) else { return true };
        let unmoved = far != 0 && *asked == far;
        *asked = far;
        let due =
            |known: &DbViews| known.views.is_empty() || known.views.iter().any(|ix| is_due(*ix));
        let indexes = self.dbs.get(&db);
        let unjudged = has_parts(db) && !indexes.is_some_and(|indexes| indexes.judged);
        !unmoved || unjudged || indexes.is_some_and(due)
    }

    /// Whether the design documents of a database were requested.
    pub(super) fn were_requested(&self, db: DbIx) -> bool {
        self.asked.get(db.as_usize()).is_some_and(|asked| *asked != 0)
    }

    /// Forgets what was requested: another source may define views by other documents.
    pub(super) fn ask_again(&mut self) {
        self.asked.clear();
    }

    /// The view index of this design document.
    pub(super) fn with_design(
        &self,
        draft: &Draft,
        db: &str,
        suffix: &str,
        design: &str,
    ) -> Option<TargetIx> {
        let db = draft.find_db(DbName { db, suffix })?;
        self.of(db).iter().copied().find(|ix| {
            draft
                .current()
                .target(*ix)
                .filter(|target| target.kind() == TargetKind::View)
                .and_then(|target| target.view())
                .is_some_and(|view| view.designs.iter().any(|id| **id == *design))
        })
    }

    /// Records a feed event of a database.
    pub(super) fn named(&mut self, db: DbIx, now: Instant) {
        if let Some(known) = self.dbs.get_mut(&db) {
            known.named = Some(now);
        }
    }

    /// Removes a database that no longer exists, with its views.
    pub(super) fn db_removed(&mut self, draft: &mut Draft, db: DbIx) {
        if let Some(known) = self.dbs.remove(&db) {
            known.views.into_iter().chain(known.cleanup).for_each(|ix| draft.remove(ix));
        }
    }

    /// Removes the views of databases that are no longer in the map.
    pub(super) fn remove_deleted(&mut self, draft: &mut Draft, there: &IndexSet) {
        self.dbs.retain(|db, known| {
            let stays = there.contains(db.as_usize());
            if !stays {
                for ix in known.views.drain(..).chain(known.cleanup.take()) {
                    draft.remove(ix);
                }
            }
            stays
        });
    }

    /// Removes all views and cleanups, because another process reads them.
    pub(super) fn forget(&mut self, draft: &mut Draft) {
        for known in std::mem::take(&mut self.dbs).into_values() {
            for ix in known.views.into_iter().chain(known.cleanup) {
                draft.remove(ix);
            }
        }
    }

    /// Applies the read indexes of one database; returns what could not be read.
    ///
    /// An index that no longer exists has left files behind, which is evidence for a cleanup, unless the
    /// servers clean up by themselves.
    pub(super) fn apply(
        &mut self,
        draft: &mut Draft,
        db: DbIx,
        answer: ReadIndexes,
        (began, now): (Instant, Moment),
    ) -> Vec<ReadError> {
        let ReadIndexes { views, searches, signatures, has_parts, cleans_itself } = answer;
        let views = match views {
            Ok(views) => views,
            Err(unread) => {
                self.forget_request(db);
                return vec![unread];
            }
        };
        if views.is_empty() && searches.is_empty() && !has_parts && !self.dbs.contains_key(&db) {
            return Vec::new();
        }
        let indexes = self.dbs.entry(db).or_default();
        indexes.designed = signatures.filter(|_| has_parts);
        indexes.judged = has_parts;
        let mut unread = Vec::new();
        let mut current = Vec::new();
        for view in views {
            current.extend(indexes.view(draft, db, view, &mut unread));
        }
        for search in searches {
            current.push(indexes.search(draft, db, search, &mut unread));
        }
        let whole = unread.is_empty();
        let removed =
            indexes.views.iter().copied().filter(|ix| !current.contains(ix)).collect::<Vec<_>>();
        let left_files = removed.iter().any(|ix| is_view(draft, *ix));
        for ix in &removed {
            if whole {
                draft.remove(*ix);
            } else {
                current.push(*ix);
            }
        }
        indexes.views = current;
        if indexes.named.is_none_or(|named| named < began) {
            indexes.views.iter().for_each(|ix| draft.mark_confirmed(*ix));
        }
        let evidence = whole && left_files && !cleans_itself;
        let has_views = indexes.views.iter().any(|ix| is_view(draft, *ix));
        if has_views || has_parts || indexes.cleanup.is_some() {
            indexes.set_evidence(draft, db, evidence, now);
        }
        if !whole {
            self.forget_request(db);
        }
        unread
    }

    fn forget_request(&mut self, db: DbIx) {
        if let Some(asked) = self.asked.get_mut(db.as_usize()) {
            *asked = 0;
        }
    }
}

impl DbViews {
    /// Applies one read index; returns its position, if it has one.
    fn view(
        &self,
        draft: &mut Draft,
        db: DbIx,
        answer: ViewAnswer,
        unread: &mut Vec<ReadError>,
    ) -> Option<TargetIx> {
        let designs: Arc<[Arc<str>]> = answer.designs.iter().map(|id| Arc::from(&**id)).collect();
        let functions: Arc<[u64]> = answer.functions.into();
        let view = |signature, collators: &[String], exact_range, copies| View {
            copies,
            signature,
            functions: Arc::clone(&functions),
            designs: Arc::clone(&designs),
            language: answer.language.as_str().into(),
            collators: collators.iter().map(|version| Arc::from(&**version)).collect(),
            exact_range,
            build_query: answer.built_by.clone(),
            ..View::default()
        };
        let place = |draft: &mut Draft, view: View| match draft
            .current()
            .find_view(&self.views, view.signature)
        {
            Some(ix) => {
                draft.set_view(ix, view);
                ix
            }
            None => draft.add_view(db, view),
        };
        match answer.index {
            Ok(index) => {
                let snapshot = draft.current();
                let copies = copies_of(snapshot, snapshot.shard_map(db).copies, &index.copies);
                let facts = match &copies {
                    ViewCopies::Differ(copies) => copies.first().map(|(_, facts)| *facts),
                    ViewCopies::Unknown | ViewCopies::Alike => None,
                };
                let exact_range = index.copy.is_some();
                let ix = place(draft, view(index.signature, &index.collators, exact_range, copies));
                draft.set_facts(ix, facts.unwrap_or(index.facts));
                draft.set_state(ix, TargetState::Ok);
                Some(ix)
            }
            Err(_) if answer.unaddressable => {
                let ix =
                    place(draft, view(stand_in(&answer.designs), &[], false, ViewCopies::Unknown));
                draft.set_state(ix, TargetState::Unaddressable);
                Some(ix)
            }
            Err(why) => {
                unread.push(why);
                None
            }
        }
    }

    fn set_evidence(&mut self, draft: &mut Draft, db: DbIx, evidence: bool, now: Moment) {
        let ix = *self.cleanup.get_or_insert_with(|| draft.get_or_add_cleanup(db));
        let before = draft.current().target(ix).map_or_else(Facts::default, TargetRef::facts);
        if before.measured_at.is_none() || (evidence && !before.flags.evidence) {
            let mut facts = before;
            facts.flags.evidence |= evidence;
            facts.measured_at = Some(Measurement { at: now, source: FactSource::Http });
            draft.set_facts(ix, facts);
        }
    }
}

/// How the copies of an index that were read differ, out of `all` copies.
fn copies_of(snapshot: &Snapshot, all: u32, read: &[(TargetIx, Facts)]) -> ViewCopies {
    let files = || read.iter().filter_map(|(_, facts)| facts.file_bytes.get());
    let sizes = files().min().zip(files().max());
    let are_alike =
        sizes.is_none_or(|(least, most)| (most - least) as f64 <= most as f64 * UNEQUAL_SHARE);
    match u32::try_from(read.len()).unwrap_or(u32::MAX) {
        0 => ViewCopies::Unknown,
        count if are_alike && count < all => ViewCopies::Unknown,
        _ if are_alike => ViewCopies::Alike,
        _ => {
            let node = |ix| Some(snapshot.target(ix)?.node_ix());
            let copies = read.iter().filter_map(|(ix, facts)| Some((node(*ix)?, *facts)));
            let mut copies: Vec<(NodeIx, Facts)> = copies.collect();
            let waste = |facts: &Facts| {
                let sizes = facts.file_bytes.get().zip(facts.active_bytes.get());
                sizes.map(|(file, active)| file.saturating_sub(active))
            };
            copies.sort_by_key(|(_, facts)| Reverse(waste(facts)));
            ViewCopies::Differ(copies.into())
        }
    }
}

fn is_view(draft: &Draft, ix: TargetIx) -> bool {
    draft.current().target(ix).is_some_and(|target| target.kind() == TargetKind::View)
}

/// The low half of a sequence: nearby sequences differ in it.
const fn low_bits(seq: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
    let low = seq as u32;
    low
}

/// A substitute for the signature of an index that cannot be requested: derived from its documents' ids
/// so that it stays the same, and shown as unknown.
fn stand_in(designs: &[String]) -> Signature {
    let mut bytes = [0; 16];
    for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
        let hash = doc_hash(&format!("{at}:{}", designs.join("\n")));
        chunk.copy_from_slice(&hash.to_be_bytes());
    }
    Signature(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sources::inventory::IndexAnswer, table::ShardMapEntry};
    use couchdb_names::Range;

    fn unread() -> ReadError {
        ReadError { reason: "timeout", message: "no answer".to_owned(), right: None }
    }

    fn view(signature: u8, read: bool) -> ViewAnswer {
        let index = IndexAnswer {
            copies: Vec::new(),
            signature: Signature([signature; 16]),
            facts: Facts::default(),
            collators: vec![],
            copy: None,
        };
        ViewAnswer {
            designs: vec![format!("_design/{signature}")],
            language: "javascript".into(),
            built_by: None,
            functions: vec![],
            index: if read { Ok(index) } else { Err(unread()) },
            unaddressable: false,
        }
    }

    fn answer(views: Vec<ViewAnswer>) -> ReadIndexes {
        let (searches, signatures) = (vec![], None);
        ReadIndexes {
            views: Ok(views),
            searches,
            signatures,
            has_parts: false,
            cleans_itself: false,
        }
    }

    fn one_db() -> (Draft, DbIx, TargetIx) {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let db = draft.get_or_add_db(DbName { db: "a", suffix: ".1" });
        let ix = draft.get_or_add_shard(node, db, Some(Range { from: 0, to: u32::MAX }));
        (draft, db, ix)
    }

    fn asked() -> (Instant, Moment) {
        (Instant::now(), Moment::from_unix(9))
    }

    #[test]
    fn removed_index_is_cleanup_evidence_unless_couchdb_cleans_up() {
        for cleans_itself in [false, true] {
            let (mut draft, db, _) = one_db();
            let mut views = IndexTables::default();
            let both = answer(vec![view(1, true), view(2, true)]);
            assert_eq!(views.apply(&mut draft, db, both, asked()), []);
            let evidence = |draft: &Draft| {
                let cleanup = draft.current().targets().find(|it| it.kind() == TargetKind::Cleanup);
                cleanup.map(|it| it.facts().flags.evidence)
            };
            assert_eq!((views.of(db).len(), evidence(&draft)), (2, Some(false)));
            let one = ReadIndexes { cleans_itself, ..answer(vec![view(2, true)]) };
            assert_eq!(views.apply(&mut draft, db, one, asked()), []);
            assert_eq!((views.of(db).len(), evidence(&draft)), (1, Some(!cleans_itself)));
            views.db_removed(&mut draft, db);
            assert_eq!((views.of(db).len(), evidence(&draft)), (0, None));
        }
    }

    /// Two copies were compacted and the third was not; then the third is compacted too.
    #[test]
    fn only_uncompacted_copy_of_a_view_counts_with_its_own_size() {
        let (mut draft, db, first) = one_db();
        draft.set_shard_map(db, ShardMapEntry { copies: 3, ranges: 1 }, &[]);
        let whole = Some(Range { from: 0, to: u32::MAX });
        let shards = ["couchdb@b", "couchdb@c"].map(|node| {
            let node = draft.get_or_add_node(node);
            draft.get_or_add_shard(node, db, whole)
        });
        let shards = [first, shards[0], shards[1]];
        let mut views = IndexTables::default();
        let of = |file| Facts {
            file_bytes: KnownNumber::new(file),
            active_bytes: KnownNumber::new(90_397),
            ..Facts::default()
        };
        // The sum, whether it is estimated, and the size of the copy that stands for the target.
        for (copies, expected, is_estimated, shown) in [
            (vec![98_462, 98_462, 188_574], 385_498, false, 188_574),
            (vec![98_462, 188_574], 475_610, true, 188_574),
            (vec![98_462, 98_462, 98_462], 295_386, true, 98_462),
            (vec![], 295_386, true, 98_462),
        ] {
            let mut found = view(1, true);
            let index = found.index.as_mut().unwrap();
            index.facts = of(98_462);
            index.copies = shards.into_iter().zip(copies.into_iter().map(of)).collect();
            views.apply(&mut draft, db, answer(vec![found]), asked());
            let target = draft.current().target(views.of(db)[0]).unwrap();
            assert_eq!(target.file_bytes(), Some(expected));
            assert_eq!(target.is_estimated(), is_estimated);
            assert_eq!(target.facts(), of(shown));
        }
    }

    #[test]
    fn keeps_index_that_could_not_be_read() {
        let (mut draft, db, _) = one_db();
        let mut views = IndexTables::default();
        views.apply(&mut draft, db, answer(vec![view(1, true), view(2, true)]), asked());
        let failed = answer(vec![view(1, false)]);
        assert_eq!(views.apply(&mut draft, db, failed, asked()), [unread()]);
        assert_eq!(views.of(db).len(), 2);
        let failed = ReadIndexes { views: Err(unread()), ..answer(vec![]) };
        assert_eq!(views.apply(&mut draft, db, failed, asked()), [unread()]);
        assert_eq!(views.of(db).len(), 2);
    }

    #[test]
    fn views_are_reread_after_writes_growth_or_new_files() {
        let (mut draft, db, ix) = one_db();
        let mut views = IndexTables::default();
        let write = |draft: &mut Draft, seq| {
            draft.set_facts(ix, Facts { update_seq: KnownNumber::new(seq), ..Facts::default() });
        };
        let due = |views: &mut IndexTables, draft: &Draft, has_parts, is_turn| {
            views.due(draft.current(), [ix].into_iter(), |_| has_parts, |_| is_turn)
        };
        write(&mut draft, 5);
        assert!(due(&mut views, &draft, false, true), "it was never asked");
        assert!(!due(&mut views, &draft, false, true), "no write, no view");
        write(&mut draft, 6);
        assert!(due(&mut views, &draft, false, true));
        assert!(due(&mut views, &draft, true, true), "its index files were never judged");
        let judged = ReadIndexes { has_parts: true, ..answer(vec![]) };
        views.apply(&mut draft, db, judged, asked());
        assert!(due(&mut views, &draft, true, true), "only files: asked in each sweep");
        views.apply(&mut draft, db, answer(vec![view(1, true)]), asked());
        assert!(due(&mut views, &draft, false, true), "an index grows without its database");
        assert!(!due(&mut views, &draft, false, false), "feeds confirm the index");
        views.ask_again();
        assert!(due(&mut views, &draft, false, false), "the source changed");
    }
}
