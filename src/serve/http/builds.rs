//! Indexes that lag, in JSON.

use crate::act::warmer::{Builds, Line, Standing};
use couchdb_client::Route;
use serde_json::{Value, json};
use wall_clock::Moment;

/// What lags, and what is or would be done about it.
pub(super) fn shown(builds: &Builds) -> Value {
    json!({
        "looked_at": builds.at.map(Moment::rfc3339),
        "acting": builds.acting,
        "stalled": builds.stalled,
        "indexes": builds.lines.iter().map(line).collect::<Vec<_>>(),
    })
}

fn line(line: &Line) -> Value {
    let (standing, reason) = match line.standing {
        Standing::Starts => ("starts", None),
        Standing::Builds => ("builds", None),
        Standing::Waits(reason) => ("waits", Some(reason.label())),
    };
    json!({
        "id": line.id.to_string(),
        "kind": line.id.kind().label(),
        "engine": line.search.as_ref().map(|search| search.engine.label()),
        "db": line.db,
        "ddoc": line.design,
        "name": line.search.as_ref().map(|search| &*search.index),
        "class": line.class.label(),
        "updates_pending": line.pending,
        "decision": standing,
        "reason": reason,
        "since": line.since.map(Moment::rfc3339),
        "stalled_since": line.stalled_since.map(Moment::rfc3339),
        "request": request(line),
    })
}

/// The request that has CouchDB build it; none where no request may, or can carry its names.
fn request(line: &Line) -> Option<String> {
    let query = line.query.as_ref()?;
    let (db, ddoc) = (line.db.as_str(), &*query.design);
    let route = match &line.search {
        None => Route::BuildView { db, ddoc, view: &query.view },
        Some(search) if search.offered != Some(true) => return None,
        Some(search) => {
            Route::BuildSearch { engine: search.engine, db, ddoc, index: &search.index }
        }
    };
    Some(format!("{} {}", route.method(), route.path().ok()?))
}
