//! Finds the targets that a person's text refers to.

use crate::{
    model::target::{TargetId, TargetKind, TargetSelector},
    plan::Plan,
    table::{DbIx, DbName, TargetIx, TargetRef},
    text::Label,
};
use percent_encoding::percent_decode_str;

/// The minimum similarity, from 0 to 1, between a name and the typed text for a suggestion.
const ALIKE: f64 = 0.8;

/// The targets that a text matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Exactly one target.
    One(TargetIx),
    /// All targets of one database, or all indexes of one design document.
    Several(Vec<TargetIx>),
    /// No target has this id or name.
    None,
}

impl Found {
    /// Every target that matches.
    pub fn all(self) -> Vec<TargetIx> {
        match self {
            Self::One(ix) => vec![ix],
            Self::Several(all) => all,
            Self::None => Vec::new(),
        }
    }
}

/// A selector for what a text names, among the targets of a plan and those that no longer exist.
pub fn selector(plan: &Plan, text: &str) -> TargetSelector {
    // Other texts are used as an id.
    let found = if text.contains("/_design/") { find(plan, text).all() } else { Vec::new() };
    let views = found.into_iter().filter_map(|ix| plan.snapshot.target(ix));
    let views = views.filter(|target| target.kind() == TargetKind::View);
    TargetSelector::new(text, views.map(TargetRef::id))
}

/// The error that no target has a name or id, with a suggestion.
pub fn no_match(plan: &Plan, text: &str) -> String {
    let kind = text.split_once(':').and_then(|(kind, _)| TargetKind::from_label(kind));
    if kind.is_some() {
        return match text.parse::<TargetId>() {
            Ok(_) => format!("no target has the id {text:?}"),
            Err(why) => why.to_string(),
        };
    }
    format!("no database, view or shard matches {text:?}{}", hint(nearest(plan, text, true)))
}

/// The error that no database has a name, with a suggestion.
pub fn no_database(plan: &Plan, text: &str) -> String {
    format!("no database is called {text:?}{}", hint(nearest(plan, text, false)))
}

fn hint(nearest: Option<String>) -> String {
    nearest.map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

/// The database, or with `with_designs` also the design document, whose name is most similar to a
/// text.
fn nearest(plan: &Plan, text: &str, with_designs: bool) -> Option<String> {
    // A name may be copied from a URL.
    let typed = percent_decode_str(text).decode_utf8_lossy().to_lowercase();
    let similarity = |name: &str| {
        let (one, other) = (name.chars().count(), typed.chars().count());
        if one.abs_diff(other) > one.max(other) / 2 {
            return 0.0;
        }
        strsim::jaro_winkler(&typed, &name.to_lowercase())
    };
    let mut best: Option<(f64, String)> = None;
    let mut offer = |similarity: f64, name: &dyn Fn() -> String| {
        if similarity > ALIKE && best.as_ref().is_none_or(|(so_far, _)| similarity > *so_far) {
            best = Some((similarity, name()));
        }
    };
    let mut last = None;
    for target in plan.snapshot.targets() {
        let db = target.db_name().db;
        if last.replace(target.db()) != Some(target.db()) {
            offer(similarity(db), &|| db.to_owned());
        }
        let views = target.view().filter(|_| with_designs && !target.is_part());
        for design in views.iter().flat_map(|view| view.designs.iter()) {
            // People omit `_design/`, or the database.
            let name = couchdb_names::design_name(design);
            let (short, whole) = (format!("{db}/{name}"), format!("{db}/{design}"));
            let like = [&whole, &short, &**design, name].map(similarity);
            offer(like.into_iter().fold(0.0, f64::max), &|| whole.clone());
        }
    }
    best.map(|(_, name)| name)
}

/// Whether a shard file's name may belong to a database instance.
fn is_file_of(file: &str, name: DbName<'_>) -> bool {
    file.strip_suffix(name.suffix).is_some_and(|rest| rest.ends_with(name.db))
}

/// Whether an id may belong to a target of a database instance.
fn is_id_of(id: &TargetId, name: DbName<'_>) -> bool {
    match id {
        TargetId::Db { shard: file, .. } | TargetId::View { db: file, .. } => {
            is_file_of(file, name)
        }
        TargetId::Cleanup { db } | TargetId::Search { db, .. } => db == name.db,
    }
}

/// The text after a database's name and a slash: a design document, if the database has one of that name.
fn design_of<'a>(text: &'a str, name: DbName<'_>) -> Option<&'a str> {
    text.strip_prefix(name.db)?.strip_prefix('/')
}

/// The wanted targets of some databases. There are far more targets than databases, so databases
/// are selected first, by their names.
fn matching(
    plan: &Plan,
    is_db: impl Fn(DbName<'_>) -> bool,
    is_wanted: impl Fn(TargetRef<'_>) -> bool,
) -> Found {
    let dbs = plan.snapshot.databases().filter(|(_, name)| is_db(*name));
    let dbs: Vec<DbIx> = dbs.map(|(ix, _)| ix).collect();
    if dbs.is_empty() {
        return Found::None;
    }
    let targets = plan.snapshot.targets().filter(|target| dbs.contains(&target.db()));
    let found: Vec<TargetIx> =
        targets.filter(|target| is_wanted(*target)).map(TargetRef::ix).collect();
    match *found {
        [] => Found::None,
        [one] => Found::One(one),
        _ => Found::Several(found),
    }
}

/// Finds targets by id, shard file name, database, or `<db>/_design/x`.
///
/// A text that is an id matches only that id. A database may itself be called `app/_design/x`: then
/// the text names the database, and its views must be named by their ids.
pub fn find(plan: &Plan, text: &str) -> Found {
    if let Ok(id) = text.parse::<TargetId>() {
        let is_it = |target: TargetRef<'_>| target.kind() == id.kind() && target.id() == id;
        return matching(plan, |name| is_id_of(&id, name), is_it);
    }
    let by_db = matching(plan, |name| name.db == text, |_| true);
    if by_db != Found::None {
        return by_db;
    }
    let has_file = |target: TargetRef<'_>| {
        target.kind() == TargetKind::Db && target.shard_name().as_deref() == Some(text)
    };
    let by_shard = matching(plan, |name| is_file_of(text, name), has_file);
    if by_shard != Found::None {
        return by_shard;
    }
    // A database's name may contain `/_design/` as well, so the text is not split there.
    let of_design = |is_wanted: &dyn Fn(TargetRef<'_>) -> bool| {
        let has_design = |target: TargetRef<'_>| {
            let id = design_of(text, target.db_name());
            let view = target.view();
            view.is_some_and(|view| view.designs.iter().any(|design| Some(&**design) == id))
        };
        let is_db = |name: DbName<'_>| design_of(text, name).is_some();
        matching(plan, is_db, |target| is_wanted(target) && has_design(target))
    };
    // The text means the view itself if it is a target, not its parts; and search indexes only if
    // there is no view.
    let is_view = |target: TargetRef<'_>| target.kind() == TargetKind::View;
    match of_design(&|target| !target.is_part() && is_view(target)) {
        Found::None => {}
        found @ (Found::One(_) | Found::Several(_)) => return found,
    }
    match of_design(&is_view) {
        Found::None => of_design(&|_| true),
        found @ (Found::One(_) | Found::Several(_)) => found,
    }
}
