//! The page of forecasts: asked by a link for ready rules, by a form for a pasted configuration.
//!
//! Owns the way from both to the API's own forecast, which is worked out on a thread of its own and in
//! turn. A configuration may hold what no address should, so it never stands in one.

use super::{form_of, given, parsed, response};
use crate::serve::{
    console::{self, Given},
    http::{
        AppState,
        api::ApiError,
        guard,
        what_if::{self, Turns},
    },
};
use axum::{
    Extension,
    extract::{self, Request},
    http::{StatusCode, Uri},
    response::Response,
};

/// The page of a link.
pub(super) async fn show(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<Turns>,
    uri: Uri,
) -> Response {
    match given(&uri) {
        Ok(given) => page(&state, turns, &given).await,
        Err(refused) => super::failed(&state, &refused),
    }
}

/// The page of a form.
pub(super) async fn ask(
    extract::State(state): extract::State<AppState>,
    Extension(turns): Extension<Turns>,
    request: Request,
) -> Response {
    if let Err(refused) = guard::check_question(&request) {
        return super::failed(&state, &ApiError::forbidden(refused));
    }
    match form_of(request.into_body()).await {
        Ok(given) => page(&state, turns, &given).await,
        Err(refused) => super::failed(&state, &refused),
    }
}

async fn page(state: &AppState, turns: Turns, given: &Given) -> Response {
    let asked = async { what_if::forecast(state, turns, parsed(given)?).await };
    let (code, answer) = match given.is_empty() {
        true => (StatusCode::OK, None),
        false => match asked.await {
            Ok(answer) => (StatusCode::OK, Some(Ok(answer))),
            Err(refused) => (refused.code, Some(Err(refused.why))),
        },
    };
    response(state, code, &console::what_if(given, answer.as_ref(), state.clock.now()))
}
