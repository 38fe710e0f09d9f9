//! `POST /api/v1/preflight`: what a design document will cost before it is deployed.
//!
//! It changes nothing, so it needs the same rights as other reads, although it is a POST: the question is a document.
//! It makes recliner read one design document with its own login, and shows names of views and not their code, as
//! other answers show names of databases. A page of another site cannot ask, because the body is JSON.

use super::{
    admin::{parse_object, read_body},
    api::{ApiError, Turn, success},
    guard::{self, ConcurrencyLimit},
    state::AppState,
};
use crate::{
    advice::preflight::PresentDesign,
    plan::Plan,
    serve::report::{PreflightQuestion, QuestionError},
};
use axum::{
    Extension,
    extract::{self, Request},
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, post},
};
use std::sync::Arc;

/// The maximum size of a question, in bytes.
const MAX_BODY: usize = 2 << 20;

/// Questions that are worked on at a time: each looks at every target.
const AT_A_TIME: usize = 2;

/// The turns of this route.
#[derive(Clone, Debug)]
struct Turns(ConcurrencyLimit);

/// The route, with its turns.
pub(super) fn route() -> MethodRouter<AppState> {
    post(preflight).layer(Extension(Turns(ConcurrencyLimit::new(AT_A_TIME))))
}

/// What a design document will cost.
async fn preflight(
    extract::State(state): extract::State<AppState>,
    Extension(Turns(turns)): Extension<Turns>,
    request: Request,
) -> Response {
    answer(&state, &turns, request).await.unwrap_or_else(ApiError::into_response)
}

async fn answer(
    state: &AppState,
    turns: &ConcurrencyLimit,
    request: Request,
) -> Result<Response, ApiError> {
    guard::check_question(&request).map_err(ApiError::forbidden)?;
    // Before the body is read, so that what waits takes no memory.
    let turn = Turn::of(turns).await?;
    let body = read_body(request, MAX_BODY).await?;
    let (now, status) = (state.clock.now(), Arc::clone(&state.status.borrow()));
    let resolve = move |plan: Arc<Plan>| {
        let question: PreflightQuestion = parse_object(&body)?;
        if !status.is_ready(plan.snapshot.version()) {
            // What is not read yet would look as if it were unknown.
            let why = "the first sweep has not ended yet; try again in a moment";
            return Err(ApiError::not_yet(why));
        }
        let resolved = question.resolve(&plan, now).map_err(|why| match why {
            QuestionError::Design(_) => ApiError::bad(why),
            QuestionError::NoDatabase(_) => ApiError::absent(why),
        })?;
        Ok((question.db, resolved))
    };
    let (db, resolved) = turn.work(state, resolve).await?;
    let present = PresentDesign::of(state.designs.design(&db, &resolved.design.id).await);
    let work = move |plan: Arc<Plan>| Ok(resolved.answer(&plan, &present, now));
    Ok(success(&turn.work(state, work).await?))
}
