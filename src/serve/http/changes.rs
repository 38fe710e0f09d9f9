//! `GET /api/v1/changes`: what changed on the disks, by cause.

use super::{
    answer::Answer,
    error::ApiError,
    journal::{in_turn, journal_of},
    kept_reasons::Reasons,
    query::{Named, time},
    route::{self, Route},
    state::AppState,
    turn,
};
use crate::{
    ledger::{AccountChanges, Bucket, ChangesBy, ChangesQuery, changes},
    serve::report::{Changes, database_of, waste_reasons},
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::{collections::BTreeSet, sync::Arc};
use wall_clock::Moment;

pub(in crate::serve::http) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/changes",
            "changes",
            answer,
            "What changed on the disks, by cause: the causes add up exactly.",
        )
        .errors(&[route::BAD, (404, "This recliner keeps no journal, or nothing has this name."), route::BUSY])
        .detail("For each volume, `after_bytes` - `before_bytes` is the sum of `bytes` of its entries. If no volume is known, the files of a node replace it. Small changes are summed up: such entries have no database, and their number in `others`. Hours are kept for 14 days, days for 400."),
    ]
}

/// The default begin.
const SINCE: &str = "24h";

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ChangesParameters {
    /// The begin: a timestamp (`2026-11-21T00:54:00Z`), day, age (`2h`, `7d`), or `yesterday`, which is 24 hours ago;
    /// rounded down to a full hour. Default `24h`.
    since: Option<String>,
    /// The end, rounded up to a full hour; default now.
    until: Option<String>,
    /// Sums the entries by `cause`, `database`, `design` or `node`.
    by: Option<Named<ChangesBy>>,
    /// Only this volume or node; or this database or `<db>/_design/<name>`, together with one entry `rest` for all
    /// others.
    name: Option<String>,
}

async fn answer(state: AppState, query: ChangesParameters) -> Result<Answer<Changes>, ApiError> {
    Ok(Answer::of(&changes_of(&state, query).await?))
}

/// What changed, for a program or a page.
pub(super) async fn changes_of(
    state: &AppState,
    query: ChangesParameters,
) -> Result<Changes, ApiError> {
    let now = state.clock.now();
    let read = |name, text: &str| match text {
        "yesterday" => time(name, SINCE, now),
        text => time(name, text, now),
    };
    let since = read("since", query.since.as_deref().unwrap_or(SINCE)).map_err(ApiError::bad)?;
    let until = query.until.as_deref().map(|text| read("until", text)).transpose();
    let until = until.map_err(ApiError::bad)?;
    if since > now {
        return Err(ApiError::bad(format!("since: {} is in the future", since.rfc3339())));
    }
    let by = query.by.map(|Named(by)| by);
    changes_found(state, &ChangesQuery { since, until, by, name: query.name }).await
}

/// What changed, for a program, a page or a report.
pub(super) async fn changes_found(
    state: &AppState,
    query: &ChangesQuery,
) -> Result<Changes, ApiError> {
    let books = Arc::clone(&state.ledger.borrow());
    let stored = journal_of(state)?.ledger_buckets(books.needed(query.since));
    let stored = in_turn(state, stored).await?;
    let buckets: Vec<Bucket> =
        stored.iter().filter_map(|(_, bytes)| Bucket::decode(bytes)).collect();
    let found = changes(&books, &buckets, query);
    if let Some(name) = query.name.as_deref().filter(|name| !is_known(state, name, &found)) {
        return Err(ApiError::absent(format!(
            "no database, volume or node is called {name:?}, and no recorded change has this name"
        )));
    }
    let (wasted, now) = (Changes::wasted(&found), state.clock.now());
    let reasons = match query.until {
        // The reasons that keep waste today say nothing about an earlier time.
        None if !wasted.is_empty() => kept_reasons(state, wasted, now).await?,
        _ => Reasons::default(),
    };
    Ok(Changes::of(&found, &reasons, (query.since, now)))
}

/// The reasons as of the last sweep.
async fn kept_reasons(
    state: &AppState,
    wasted: BTreeSet<String>,
    now: Moment,
) -> Result<Reasons, ApiError> {
    let sweep = state.status.borrow().sweeps;
    if let Some(known) = state.waste_reasons.known(sweep, &wasted) {
        return Ok(known);
    }
    let names = wasted.clone();
    let found = turn::in_turn(state, move |plan| Ok(waste_reasons(&plan, &names, now))).await?;
    Ok(state.waste_reasons.keep(sweep, wasted, found))
}

/// Whether a name is that of a volume, a node or a database, or of something that changed.
fn is_known(state: &AppState, name: &str, found: &[AccountChanges]) -> bool {
    let is_account = |it: &AccountChanges| {
        it.volume.as_deref() == Some(name) || it.nodes.iter().any(|node| node == name)
    };
    let changed = |it: &AccountChanges| it.entries.iter().any(|entry| !entry.is_rest);
    let database = database_of(name);
    found.iter().any(|it| is_account(it) || changed(it))
        || state.plan.borrow().snapshot.databases().any(|(_, known)| known.db == database)
}
