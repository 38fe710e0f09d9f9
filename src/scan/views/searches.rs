//! Which search indexes each database has, among its views.

use super::{DbViews, IndexTables};
use crate::{
    model::target::TargetState,
    sources::inventory::{ReadError, SearchAnswer},
    table::{DbIx, DbName, Draft, IndexQuery, SearchAttributes, TargetIx, TargetRef, View},
};
use std::sync::Arc;

impl IndexTables {
    /// The search index of this name in a design document. If both engines have one, returns that
    /// of the first engine, because CouchDB's tasks do not say which engine builds.
    pub(in crate::scan) fn search(
        &self,
        draft: &Draft,
        name: DbName<'_>,
        design: &str,
        index: &str,
    ) -> Option<TargetIx> {
        let all = self.of(draft.find_db(name)?).iter().copied();
        let target = |ix| draft.current().target(ix);
        all.filter_map(target).find(|it| is_named(*it, design, index)).map(TargetRef::ix)
    }
}

impl DbViews {
    /// Applies one read search index; returns its position.
    pub(super) fn search(
        &self,
        draft: &mut Draft,
        db: DbIx,
        answer: SearchAnswer,
        unread: &mut Vec<ReadError>,
    ) -> TargetIx {
        let SearchAnswer { engine, offered, unaddressable, .. } = answer;
        let design: Arc<str> = answer.design.as_str().into();
        let index: Arc<str> = answer.index.as_str().into();
        let query = IndexQuery { design: Arc::clone(&design), view: Arc::clone(&index) };
        let view = View {
            designs: [design].into(),
            language: answer.language.as_str().into(),
            build_query: answer.autoupdate.then_some(query),
            search_index: Some(SearchAttributes { engine, index, is_supported: offered }),
            ..View::default()
        };
        let tables = draft.current();
        let existing = self.views.iter().filter_map(|ix| tables.target(*ix)).find(|it| {
            let same = it.search().is_some_and(|search| search.engine == engine);
            same && is_named(*it, &answer.design, &answer.index)
        });
        let ix = match existing.map(TargetRef::ix) {
            Some(ix) => {
                draft.set_view(ix, view);
                ix
            }
            None => draft.add_view(db, view),
        };
        let state = if unaddressable { TargetState::Unaddressable } else { TargetState::Ok };
        draft.set_state(ix, state);
        match answer.facts {
            Ok(Some(mut facts)) => {
                // The nodes' task lists show whether it is being built.
                facts.flags.updater_running = is_built(draft, ix);
                draft.set_facts(ix, facts);
            }
            // The engine is not available: the last measurements stay, with their age.
            Ok(None) => {}
            Err(_) if unaddressable => {}
            Err(why) => unread.push(why),
        }
        ix
    }
}

fn is_built(draft: &Draft, ix: TargetIx) -> bool {
    draft.current().target(ix).is_some_and(|target| target.facts().flags.updater_running)
}

fn is_named(target: TargetRef<'_>, design: &str, index: &str) -> bool {
    let Some(view) = target.view() else { return false };
    view.search_index.as_ref().is_some_and(|search| *search.index == *index)
        && view.designs.iter().any(|id| **id == *design)
}
