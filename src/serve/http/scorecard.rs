//! `GET /api/v1/scorecard`: what recliner would have done while it only advised.

use super::{
    api::{ApiError, ValidQuery, success},
    query::time,
    state::AppState,
};
use crate::serve::report::Scorecard;
use axum::{
    extract,
    response::{IntoResponse as _, Response},
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

/// How far it looks back, unless asked otherwise.
pub(super) const SINCE: &str = "7d";

/// The time to look back to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ScorecardQuery {
    /// Since this timestamp (`2026-11-21T00:54:00Z`), day or age (`2h`, `7d`), from the full hour on; default
    /// `7d`. Hours are kept for 35 days.
    since: Option<String>,
}

/// The scorecard.
pub(super) async fn scorecard(
    extract::State(state): extract::State<AppState>,
    ValidQuery(query): ValidQuery<ScorecardQuery>,
) -> Response {
    let now = state.clock.now();
    match time(query.since.as_deref().unwrap_or(SINCE), now) {
        Err(why) => ApiError::bad(why).into_response(),
        Ok(since) => {
            let view = Arc::clone(&state.scorecard.borrow());
            success(&Scorecard::of(&view, since, now))
        }
    }
}
