//! `GET /api/v1/scorecard`: what recliner would have done while it only advised.

use super::{answer::Answer, error::ApiError, query::time, route::Route, state::AppState};
use crate::serve::report::Scorecard;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

pub(in crate::serve::http) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/scorecard",
            "scorecard",
            scorecard,
            "What recliner would have done in advise mode, compared with what happened.",
        )
        .detail("Two sides, `real` and `advised`: mean and peak waste, bytes freed and written, compactions, and peak extra space; `conflicts` with other programs' compactions; the seconds covered and missing; and `says`, whether to switch to enforce. Null if nothing is known."),
    ]
}

/// The default start of the time span.
pub(super) const SINCE: &str = "7d";

/// The time to look back to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ScorecardQuery {
    /// The start: a timestamp (`2026-11-21T00:54:00Z`), day or age (`2h`, `7d`), rounded down to the hour;
    /// default `7d`. Hours are kept for 35 days.
    since: Option<String>,
}

/// The scorecard since a time.
async fn scorecard(state: AppState, query: ScorecardQuery) -> Result<Answer<Scorecard>, ApiError> {
    let now = state.clock.now();
    let since = time("since", query.since.as_deref().unwrap_or(SINCE), now);
    let since = since.map_err(ApiError::bad)?;
    let view = Arc::clone(&state.scorecard.borrow());
    Ok(Answer::of(&Scorecard::of(&view, since, now)))
}
