//! The state of a database as of the last event published about it.
//!
//! Restored facts date from the last sweep, but published events are newer: this record tells the
//! next process which events were already published.

use super::{DbIx, DbName, Draft, NodeIx};
use couchdb_names::Range;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

/// The recorded state of a database instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedDbState {
    /// The database.
    pub db: Box<str>,
    /// The suffix that identifies the instance.
    pub suffix: Box<str>,
    /// Whether it existed.
    pub there: bool,
    /// Whether it was created a short while ago, so that all its content was written since then.
    pub fresh: bool,
    /// The progress of each copy that had been read: its node, the bounds of its range, its update
    /// sequence.
    pub copies: Vec<(Box<str>, u32, u32, u64)>,
}

/// Published update sequences, by copy.
pub type PublishedUpdateSeqs = HashMap<(DbIx, NodeIx, Range), u64>;

impl Draft {
    /// The current state of a database instance, for a record.
    pub fn published_state_of(
        &self,
        db: DbIx,
        there: bool,
        fresh: bool,
    ) -> Option<PublishedDbState> {
        let name = self.current().db_name(db)?;
        let copies = if there { self.copies_of(db) } else { Vec::new() };
        let progress = copies.into_iter().filter_map(|ix| {
            let copy = self.current().target(ix)?;
            let (range, seq) = (copy.range()?, copy.facts().update_seq.get()?);
            Some((copy.node().into(), range.from, range.to, seq))
        });
        let copies = progress.collect();
        Some(PublishedDbState {
            db: name.db.into(),
            suffix: name.suffix.into(),
            there,
            fresh,
            copies,
        })
    }

    /// The database instance of a record; adds the update sequences of its copies to `update_seqs`.
    pub fn apply_published_state(
        &mut self,
        record: &PublishedDbState,
        update_seqs: &mut PublishedUpdateSeqs,
    ) -> DbIx {
        let db = self.get_or_add_db(DbName { db: &record.db, suffix: &record.suffix });
        for (node, from, to, seq) in &record.copies {
            if let Some(node) = self.find_node(node) {
                update_seqs.insert((db, node, Range { from: *from, to: *to }), *seq);
            }
        }
        db
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::{Facts, OptionalU64};

    #[test]
    fn records_update_sequence_of_each_copy_that_was_read() {
        const RANGE: Range = Range { from: 0, to: 9 };
        let mut draft = Draft::new(5);
        let (a, b) = (draft.get_or_add_node("couchdb@a"), draft.get_or_add_node("couchdb@b"));
        let db = draft.get_or_add_db(DbName { db: "app", suffix: ".17" });
        let read = draft.get_or_add_shard(a, db, Some(RANGE));
        draft.get_or_add_shard(b, db, Some(RANGE));
        draft.set_facts(read, Facts { update_seq: OptionalU64::new(7), ..Facts::default() });
        let mark = draft.published_state_of(db, true, false).unwrap();
        assert_eq!((&*mark.db, &*mark.suffix, mark.there, mark.fresh), ("app", ".17", true, false));
        assert_eq!(mark.copies, [("couchdb@a".into(), 0, 9, 7)]);
        assert_eq!(draft.published_state_of(db, false, false).unwrap().copies, []);

        let (mut next, mut marked) = (Draft::new(5), PublishedUpdateSeqs::new());
        let a = next.get_or_add_node("couchdb@a");
        let db = next.apply_published_state(&mark, &mut marked);
        assert_eq!(marked, PublishedUpdateSeqs::from_iter([((db, a, RANGE), 7)]));
    }
}
