//! `/api/v1/xray`: what the bytes of a database's files are.
//!
//! A reading takes minutes, so that a POST begins it, and both methods answer at once with what the
//! last one found. It reads files and changes nothing, so it needs the same rights as other reads; a
//! page of another site cannot begin it, because the body is JSON.

use super::{
    admin::{known_database, parse_object},
    answer::Answer,
    error::ApiError,
    route::{self, Route},
    state::AppState,
    turn::{Turn, in_turn},
};
use crate::sources::xray::DatabaseXray;
use axum::body::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// The maximum size of an order, in bytes.
const MAX_BODY: usize = 4 << 10;

pub(super) fn routes() -> Vec<Route> {
    const ERRORS: &[(u16, &str)] = &[
        (400, "The body is invalid."),
        route::FOREIGN,
        route::NO_DATABASE,
        route::LATE_BODY,
        route::WRONG_TYPE,
        (
            503,
            "recliner is stopping, or too many databases are waiting for their X-rays. Try again.",
        ),
    ];
    vec![
        Route::read("/api/v1/xray", "xray", xray, "What the bytes of a database's files consisted of when they were last read.")
            .errors(&[route::BAD, route::NO_DATABASE, route::BUSY]),
        Route::question::<XrayQuestion, _, _>(
            ("/api/v1/xray", "beginXray"),
            (|limits| &limits.preflights, MAX_BODY),
            begin,
            "Start reading a database's files, unless they were read in the last minute.",
            json!({ "db": "orders" }),
        )
        .errors(ERRORS)
        .detail("Needs only read access. It answers at once: ask again until `is_running` is false. The parts are those of `recliner xray`; large files are sampled, at `files.xray_rate`, for at most ten minutes. `unknown` lists the files about which nothing is known."),
    ]
}

/// A database.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct XrayQuestion {
    /// Its name.
    db: String,
}

/// What is known.
async fn xray(state: AppState, question: XrayQuestion) -> Result<Answer<DatabaseXray>, ApiError> {
    check_database(&state, &question.db).await?;
    Ok(Answer::of(&state.xrays.kept.borrow().of(&question.db)))
}

/// Begins a reading.
async fn begin(state: AppState, _turn: Turn, body: Bytes) -> Result<DatabaseXray, ApiError> {
    let question: XrayQuestion = parse_object(&body)?;
    begin_xray(&state, &question.db).await?;
    let known = state.xrays.kept.borrow().of(&question.db);
    Ok(known)
}

/// Begins a reading of a database that exists.
pub(super) async fn begin_xray(state: &AppState, db: &str) -> Result<(), ApiError> {
    check_database(state, db).await?;
    state.xrays.begin(db).await.map_err(ApiError::unavailable)
}

async fn check_database(state: &AppState, db: &str) -> Result<(), ApiError> {
    let db = db.to_owned();
    in_turn(state, move |plan| known_database(&plan, &db)).await
}
