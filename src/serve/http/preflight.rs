//! `POST /api/v1/preflight`: what a design document will cost before it is deployed; and how fast indexes were built.
//!
//! It changes nothing, so it needs the same rights as other reads; it is a POST because the
//! question is a document. recliner reads one design document with its own login, and shows the
//! names of views but not their code, just as other responses show names of databases. A page of
//! another site cannot send the question, because the body is JSON; the console has a form for it.

use super::{
    admin::parse_object,
    answer::Answer,
    error::ApiError,
    query::NoQuery,
    route::{self, Route},
    state::AppState,
    turn::Turn,
};
use crate::{
    advice::preflight::{LiveDesigns, PresentDesign},
    plan::Plan,
    serve::report::{
        MeasuredBuilds, Preflight, PreflightQuestion, QuestionError, Rehearsal, RehearsalQuestion,
    },
};
use axum::body::Bytes;
use serde_json::json;
use std::sync::Arc;
use wall_clock::Moment;

/// The maximum size of a question, in bytes.
pub(super) const MAX_BODY: usize = 2 << 20;

pub(super) fn routes() -> Vec<Route> {
    const ERRORS: &[(u16, &str)] = &[
        (400, "The body is invalid, or has no design document that CouchDB accepts."),
        route::FOREIGN,
        route::NO_DATABASE,
        route::LATE_BODY,
        route::WRONG_TYPE,
        (
            503,
            "recliner is stopping, the first sweep has not ended, or there are too many requests. Try again.",
        ),
    ];
    vec![
        Route::read(
            "/api/v1/builds",
            "builds",
            builds,
            "How fast CouchDB built view indexes; predicted times are based on this.",
        ),
        Route::question::<PreflightQuestion, _, _>(
            ("/api/v1/preflight", "preflight"),
            (|limits| &limits.preflights, MAX_BODY),
            preflight,
            "The predicted cost of a design document, before it is deployed.",
            json!({
                "db": "orders",
                "design": {
                    "_id": "_design/by_day",
                    "views": { "by_day": { "map": "function (doc) { emit(doc.day, 1); }", "reduce": "_sum" } },
                },
            }),
        )
        .errors(ERRORS)
        .detail("Needs only read access: recliner reads the current document with this id, and nothing else from CouchDB. The answer says which views change and what is built (`build`), the size of the new index and the duration of its build as ranges, what each node needs besides existing files (`peak_bytes`) and whether it fits (`verdict`), what that is based on, and what to do afterwards."),
        Route::question::<RehearsalQuestion, _, _>(
            ("/api/v1/rehearsal", "rehearsal"),
            (|limits| &limits.preflights, MAX_BODY),
            rehearsal,
            "The predicted cost of deploying several design documents, in the best order.",
            json!({
                "db": "orders",
                "designs": [{
                    "_id": "_design/by_day",
                    "views": { "by_day": { "map": "function (doc) { emit(doc.day, 1); }", "reduce": "_sum" } },
                }],
            }),
        )
        .errors(ERRORS)
        .detail("Like `preflight`, for all documents of a deployment: recliner reads the database's current design documents, says which are new, changed, renamed or unchanged, and what is built in which order, with the peak space of each step and of all at once (`steps`, `together`)."),
    ]
}

async fn builds(state: AppState, _: NoQuery) -> Result<Answer<MeasuredBuilds>, ApiError> {
    let plan = Arc::clone(&state.plan.borrow());
    Ok(Answer::of(&MeasuredBuilds::of(&plan.conditions.constraints.build_speeds)))
}

/// Predicts the cost of deploying a design document.
async fn preflight(state: AppState, turn: Turn, body: Bytes) -> Result<Preflight, ApiError> {
    predict(&state, &turn, move || parse_object(&body)).await
}

/// Answers a question.
pub(super) async fn predict(
    state: &AppState,
    turn: &Turn,
    question: impl FnOnce() -> Result<PreflightQuestion, ApiError> + Send + 'static,
) -> Result<Preflight, ApiError> {
    let now = state.clock.now();
    let resolve = PreflightQuestion::resolve;
    let (PreflightQuestion { db, .. }, resolved) =
        resolved((state, turn, now), question, resolve).await?;
    let present = PresentDesign::of(state.designs.design(&db, &resolved.design.id).await);
    turn.work(state, move |plan| Ok(resolved.answer(&plan, &present, None, now))).await
}

/// A question, and what its names mean in the cluster.
async fn resolved<Q: Send + 'static, R: Send + 'static>(
    (state, turn, now): (&AppState, &Turn, Moment),
    question: impl FnOnce() -> Result<Q, ApiError> + Send + 'static,
    resolve: fn(&Q, &Plan, Moment) -> Result<R, QuestionError>,
) -> Result<(Q, R), ApiError> {
    let status = Arc::clone(&state.status.borrow());
    let work = move |plan: Arc<Plan>| {
        let question = question()?;
        if !status.is_ready(plan.snapshot.version()) {
            // A database that was not read yet would look as if it did not exist.
            let why = "the first sweep has not ended yet; try again in a moment";
            return Err(ApiError::not_yet(why));
        }
        let resolved = resolve(&question, &plan, now).map_err(|why| match why {
            QuestionError::Design(_) => ApiError::bad(why),
            QuestionError::NoDatabase(_) => ApiError::absent(why),
        })?;
        Ok((question, resolved))
    };
    turn.work(state, work).await
}

/// Predicts the cost of a deployment.
async fn rehearsal(state: AppState, turn: Turn, body: Bytes) -> Result<Rehearsal, ApiError> {
    rehearse(&state, &turn, move || parse_object(&body)).await
}

/// Answers a question about several documents.
pub(super) async fn rehearse(
    state: &AppState,
    turn: &Turn,
    question: impl FnOnce() -> Result<RehearsalQuestion, ApiError> + Send + 'static,
) -> Result<Rehearsal, ApiError> {
    let now = state.clock.now();
    let resolve = RehearsalQuestion::resolve;
    let (RehearsalQuestion { db, .. }, resolved) =
        resolved((state, turn, now), question, resolve).await?;
    let live = LiveDesigns::of(state.designs.designs(&db).await);
    turn.work(state, move |plan| Ok(resolved.answer(&plan, &live, None, now))).await
}
