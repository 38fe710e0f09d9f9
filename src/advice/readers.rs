//! The questions that access logs answer about an index.

use crate::{
    model::reads::{Asked, Reads},
    table::{Snapshot, TargetRef},
};
use access_log::Day;
use couchdb_names::Engine;
use std::collections::BTreeSet;
use wall_clock::Moment;

/// The language of Mango's indexes.
const MANGO: &str = "query";

/// An index, as logs name it.
#[derive(Clone, Debug)]
pub(crate) struct AskedIndex<'a> {
    /// The database.
    pub(crate) db: &'a str,
    /// The design documents that share it, by id.
    pub(crate) designs: Vec<&'a str>,
    /// Its name in logs, if it is a search index.
    pub(crate) search: Option<String>,
    /// Whether it is a Mango index.
    pub(crate) is_mango: bool,
}

impl<'a> AskedIndex<'a> {
    /// The index of a target.
    pub(crate) fn of(index: TargetRef<'a>) -> Self {
        let view = index.view();
        let designs = view.map_or(&[][..], |view| &view.designs);
        let search = view.and_then(|view| view.search_index.as_ref()).map(|search| {
            let handler = match search.engine {
                Engine::Nouveau => "_nouveau",
                Engine::Clouseau => "_search",
            };
            format!("{handler}/{}", search.index)
        });
        Self {
            db: index.db_name().db,
            designs: designs.iter().map(|design| &**design).collect(),
            is_mango: search.is_none() && view.is_some_and(|view| &*view.language == MANGO),
            search,
        }
    }

    /// The question about the whole index.
    pub(crate) fn whole(&self) -> Asked<'_> {
        let view = self.search.as_deref();
        Asked { db: self.db, designs: &self.designs, view, is_mango: self.is_mango }
    }

    /// The question about one of its views.
    pub(crate) fn view<'b>(&'b self, view: &'b str) -> Asked<'b> {
        Asked { view: Some(view), ..self.whole() }
    }
}

/// The first and the last day of the uninterrupted period in which every request to every member is
/// known.
pub(crate) fn covered_days(reads: &Reads, snapshot: &Snapshot, now: Moment) -> Option<(Day, Day)> {
    let nodes: BTreeSet<&str> = snapshot.members().map(|(_, node)| &*node.name).collect();
    reads.covered_days(&nodes, now)
}
