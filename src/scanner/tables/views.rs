//! Which view indexes each database has, and what says that some became stale.

use crate::{
    clock::Moment,
    facts::{Facts, Measured, Source},
    inventory::{Unread, ViewSeen, doc_hash},
    snapshot::{DbIx, DbName, Draft, Ix, View},
    target::{Signature, State},
};
use std::{collections::BTreeMap, sync::Arc};

/// The view targets of each database instance.
#[derive(Debug, Default)]
pub(super) struct Views {
    dbs: BTreeMap<(String, String), Known>,
}

/// What is known of one database's views.
#[derive(Debug, Default)]
struct Known {
    views: Vec<Ix>,
    cleanup: Option<Ix>,
    /// Whether the map had the database in this sweep.
    mapped: bool,
}

impl Views {
    /// The views of a database instance.
    pub(super) fn of(&self, db: &str, suffix: &str) -> &[Ix] {
        self.known(db, suffix).map_or(&[], |known| &known.views)
    }

    /// Every view of a database that this document belongs to.
    pub(super) fn with_design(
        &self,
        draft: &Draft,
        db: &str,
        suffix: &str,
        design: &str,
    ) -> Option<Ix> {
        self.of(db, suffix).iter().copied().find(|ix| {
            draft
                .now()
                .target(*ix)
                .and_then(|target| target.view())
                .is_some_and(|view| view.designs.iter().any(|id| **id == *design))
        })
    }

    /// Notes that the map still has a database.
    pub(super) fn mapped(&mut self, db: &str, suffix: &str) {
        if let Some(known) = self.known_mut(db, suffix) {
            known.mapped = true;
        }
    }

    /// Takes out the views of databases the map no longer has.
    pub(super) fn forget_gone(&mut self, draft: &mut Draft) {
        self.dbs.retain(|_, known| {
            let stays = std::mem::take(&mut known.mapped);
            if !stays {
                for ix in known.views.drain(..).chain(known.cleanup.take()) {
                    draft.remove(ix);
                }
            }
            stays
        });
    }

    /// Takes out all views and cleanups: another process reads them.
    pub(super) fn forget(&mut self, draft: &mut Draft) {
        for known in std::mem::take(&mut self.dbs).into_values() {
            for ix in known.views.into_iter().chain(known.cleanup) {
                draft.remove(ix);
            }
        }
    }

    /// Takes in the indexes of one database; answers with what could not be read.
    ///
    /// A signature that was there and is no more left files behind: that is the evidence a
    /// cleanup waits for, unless the servers clean up by themselves.
    pub(super) fn seen(
        &mut self,
        draft: &mut Draft,
        db: &str,
        suffix: &str,
        views: Result<Vec<ViewSeen>, Unread>,
        cleans_itself: bool,
        now: Moment,
    ) -> Vec<Unread> {
        let views = match views {
            Ok(views) => views,
            Err(unread) => return vec![unread],
        };
        let Some(place) = draft.find_db(DbName { db, suffix }) else { return Vec::new() };
        if views.is_empty() && self.known(db, suffix).is_none() {
            return Vec::new();
        }
        let known = self.dbs.entry((db.to_owned(), suffix.to_owned())).or_default();
        let mut unread = Vec::new();
        let mut current = Vec::new();
        for view in views {
            current.extend(known.view(draft, place, view, &mut unread));
        }
        let whole = unread.is_empty();
        let gone =
            known.views.iter().copied().filter(|ix| !current.contains(ix)).collect::<Vec<_>>();
        for ix in &gone {
            if whole {
                draft.remove(*ix);
            } else {
                current.push(*ix);
            }
        }
        known.views = current;
        let evidence = whole && !gone.is_empty() && !cleans_itself;
        known.note_cleanup(draft, place, evidence, now);
        unread
    }

    fn known(&self, db: &str, suffix: &str) -> Option<&Known> {
        self.dbs.get(&(db.to_owned(), suffix.to_owned()))
    }

    fn known_mut(&mut self, db: &str, suffix: &str) -> Option<&mut Known> {
        self.dbs.get_mut(&(db.to_owned(), suffix.to_owned()))
    }
}

impl Known {
    /// Takes in one index and answers with its place, if it has one.
    fn view(
        &self,
        draft: &mut Draft,
        db: DbIx,
        seen: ViewSeen,
        unread: &mut Vec<Unread>,
    ) -> Option<Ix> {
        let designs: Arc<[Arc<str>]> = seen.designs.iter().map(|id| Arc::from(&**id)).collect();
        let view = |signature, collators: &[String], exact_range| View {
            signature,
            designs: Arc::clone(&designs),
            language: seen.language.as_str().into(),
            collators: collators.iter().map(|version| Arc::from(&**version)).collect(),
            exact_range,
        };
        let place = |draft: &mut Draft, view: View| match draft
            .now()
            .find_view(&self.views, view.signature)
        {
            Some(ix) => {
                draft.set_view(ix, view);
                ix
            }
            None => draft.add_view(db, view),
        };
        match seen.index {
            Ok(index) => {
                let ix = place(draft, view(index.signature, &index.collators, index.exact_range));
                draft.set_facts(ix, index.facts);
                draft.set_state(ix, State::Ok);
                Some(ix)
            }
            Err(_) if seen.unaddressable => {
                let ix = place(draft, view(stand_in(&seen.designs), &[], false));
                draft.set_state(ix, State::Unaddressable);
                Some(ix)
            }
            Err(why) => {
                unread.push(why);
                None
            }
        }
    }

    fn note_cleanup(&mut self, draft: &mut Draft, db: DbIx, evidence: bool, now: Moment) {
        let ix = *self.cleanup.get_or_insert_with(|| draft.cleanup_target(db));
        let before = draft.now().target(ix).map_or_else(Facts::default, |target| *target.facts());
        if before.measured_at.is_none() || (evidence && !before.flags.evidence) {
            let mut facts = before;
            facts.flags.evidence |= evidence;
            facts.measured_at = Some(Measured { at: now, by: Source::Http });
            draft.set_facts(ix, facts);
        }
    }
}

/// What stands where a signature would, for an index no request can ask after: made from
/// its documents' ids so that it stays the same, and shown as unknown.
fn stand_in(designs: &[String]) -> Signature {
    let mut bytes = [0; 16];
    for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
        let hash = doc_hash(&format!("{at}:{}", designs.join("\n")));
        chunk.copy_from_slice(&hash.to_be_bytes());
    }
    Signature(bytes)
}
