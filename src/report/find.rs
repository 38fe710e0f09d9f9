//! From what a person types to the targets it means.

use crate::{
    plan::Plan,
    snapshot::{Ix, TargetRef},
    target::{Kind, TargetId},
};

/// What a text meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Exactly one target.
    One(Ix),
    /// All targets of one database, or all indexes of one design document.
    Several(Vec<Ix>),
    /// An id or a name that nothing has.
    None,
}

/// Finds targets by id, shard file name, database, or `<db>/_design/x`.
///
/// A text that is an id is only that. A database may itself be called `app/_design/x`: the
/// database then wins, and its views are named by their ids.
#[must_use]
pub fn find(plan: &Plan, text: &str) -> Found {
    let targets = || plan.snapshot.targets();
    let matching = |wanted: &dyn Fn(TargetRef<'_>) -> bool| {
        let ids: Vec<Ix> = targets().filter(|target| wanted(*target)).map(TargetRef::ix).collect();
        match *ids {
            [] => Found::None,
            [one] => Found::One(one),
            _ => Found::Several(ids),
        }
    };
    if let Ok(id) = text.parse::<TargetId>() {
        return matching(&|target| target.kind() == id.kind() && target.id() == id);
    }
    let by_db = matching(&|target| target.db_name().db == text);
    if by_db != Found::None {
        return by_db;
    }
    let by_shard = matching(&|target| {
        target.kind() == Kind::Db && target.shard_name().as_deref() == Some(text)
    });
    if by_shard != Found::None {
        return by_shard;
    }
    // The name of a database may hold `/_design/` as well, so the text is not cut there.
    let has_design = |target: TargetRef<'_>| {
        let id = text.strip_prefix(target.db_name().db).and_then(|rest| rest.strip_prefix('/'));
        target.view().is_some_and(|view| view.designs.iter().any(|design| Some(&**design) == id))
    };
    // The view itself is meant, where it is a target, and not its parts; search indexes where
    // there is no view.
    let is_view = |target: TargetRef<'_>| target.kind() == Kind::View && has_design(target);
    match matching(&|target| !target.is_part() && is_view(target)) {
        Found::None => {}
        found @ (Found::One(_) | Found::Several(_)) => return found,
    }
    match matching(&is_view) {
        Found::None => matching(&has_design),
        found @ (Found::One(_) | Found::Several(_)) => found,
    }
}
