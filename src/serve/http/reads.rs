//! `/api/v1/indexes` and `/api/v1/reads`: who reads the indexes, as access logs tell.

use super::{
    answer::Answer,
    error::ApiError,
    query::{LARGEST, NoQuery, PageRange},
    route::{self, Route},
    state::AppState,
    turn::in_turn,
};
use crate::{reads::ReadsAnswer, serve::report::Indexes};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

pub(in crate::serve::http) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/indexes",
            "indexes",
            indexes,
            "View and search indexes: their size, the cost of building them, and who reads them.",
        )
        .errors(&[route::BAD, route::BUSY])
        .detail("Reads are known where access logs are followed (`reads.logs`, here or on sidecars). Logs do not say which index a Mango query used, so it counts as a read of every Mango index of its database."),
        Route::read(
            "/api/v1/reads",
            "reads",
            reads,
            "What access logs say about readers, by source, for other recliners.",
        )
        .detail("Of a request only database, design document, view, day and a coarse class of clients are kept, for 400 days."),
    ]
}

/// Which indexes are asked for.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct IndexQuery {
    /// Only indexes of this database.
    db: Option<String>,
    /// The maximum number of indexes, the largest first; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
}

async fn indexes(state: AppState, query: IndexQuery) -> Result<Answer<Indexes>, ApiError> {
    Ok(Answer::of(&indexes_of(&state, query).await?))
}

/// The indexes, for a program or a page.
pub(super) async fn indexes_of(state: &AppState, query: IndexQuery) -> Result<Indexes, ApiError> {
    let PageRange { limit, .. } = PageRange::new(None, query.limit).map_err(ApiError::bad)?;
    let (reads, now) = (Arc::clone(&state.reads.borrow()), state.clock.now());
    in_turn(state, move |plan| Ok(Indexes::of(&plan, &reads, query.db.as_deref(), limit, now)))
        .await
}

async fn reads(state: AppState, _: NoQuery) -> Result<Answer<ReadsAnswer>, ApiError> {
    Ok(Answer::of(&ReadsAnswer::of(&state.reads.borrow())))
}
