//! `/api/v1/advice`: what to do about the cluster; `/api/v1/usage`: what fills the disks.

use super::{
    answer::Answer,
    error::ApiError,
    query::{Named, NoQuery},
    route::Route,
    state::AppState,
    turn::in_turn,
};
use crate::serve::report::{Advice, AttributeBy, Usage};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

pub(in crate::serve::http) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/advice",
            "advice",
            advice,
            "Advice about the cluster, the most severe and most valuable first.",
        )
        .detail("Each has its numbers (`evidence`), what it would gain (`gain`), what to type (`remedy`), where to read more (`learn`), and since when it applies. The twenty most valuable of each code are listed; `more` counts the rest. Muted advice is listed and marked. The rules are evaluated once a minute."),
        Route::read(
            "/api/v1/usage",
            "usage",
            usage,
            "Bytes on disk by database or by design document, the largest first.",
        )
        .detail("All copies of shards and all files of indexes count. By `design`, documents that share an index share a line."),
    ]
}

async fn advice(state: AppState, _: NoQuery) -> Result<Answer<Advice>, ApiError> {
    Ok(Answer::of(&advice_of(&state)))
}

/// The advice at present.
pub(super) fn advice_of(state: &AppState) -> Advice {
    let view = Arc::clone(&state.advice.borrow());
    Advice::of(&view, &state.plan.borrow(), state.clock.now())
}

/// The maximum number of databases or design documents listed.
const MAX_NAMED: usize = 10_000;

/// The unit to which bytes are attributed.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct UsageQuery {
    /// `database`, which is the default, or `design`.
    by: Option<Named<AttributeBy>>,
    /// Maximum number to list; the others are summed. Default 20, at most 10,000.
    #[schemars(range(min = 1, max = 10_000))]
    limit: Option<usize>,
}

/// The largest users of the disks, by database or design document.
async fn usage(state: AppState, query: UsageQuery) -> Result<Answer<Usage>, ApiError> {
    let by = query.by.map_or(AttributeBy::Database, |Named(by)| by);
    let limit = query.limit.unwrap_or(Usage::DEFAULT_LIMIT);
    if !(1..=MAX_NAMED).contains(&limit) {
        return Err(ApiError::bad(format!("limit must be from 1 to {MAX_NAMED}")));
    }
    in_turn(&state, move |plan| Ok(Answer::of(&Usage::of(&plan.snapshot, by, limit)))).await
}
