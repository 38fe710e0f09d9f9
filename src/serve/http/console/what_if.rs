//! The page of forecasts: its forms, and the answer to a form.
//!
//! Passes a form to the API's own forecast, which runs on its own thread and in turn. A link only
//! fills in the form: any page can contain the link, and a forecast is expensive.

use super::{MAX_FORM, asked_in_turn, given, parsed, response};
use crate::serve::{
    console::{self, Given},
    http::{error::ApiError, state::AppState, what_if},
    report::WhatIf,
};
use axum::{
    extract::{self, Request},
    http::{StatusCode, Uri},
    response::Response,
};

/// The page that a link opens, with the form filled in.
pub(super) async fn show(extract::State(state): extract::State<AppState>, uri: Uri) -> Response {
    match given(&uri) {
        Ok(given) => page(&state, &given, None),
        Err(refused) => super::failed(&state, &refused),
    }
}

/// The page that a form opens, with the forecast.
pub(super) async fn ask(
    extract::State(state): extract::State<AppState>,
    request: Request,
) -> Response {
    match asked_in_turn(&state.limits.forecasts, request, MAX_FORM).await {
        Ok((_place, turn, given)) => {
            let question = given.clone();
            let answer = what_if::forecast(&state, &turn, move || parsed(&question)).await;
            page(&state, &given, Some(answer))
        }
        Err(refused) => super::failed(&state, &refused),
    }
}

fn page(state: &AppState, given: &Given, answer: Option<Result<WhatIf, ApiError>>) -> Response {
    let code = match &answer {
        Some(Err(refused)) => refused.code,
        Some(Ok(_)) | None => StatusCode::OK,
    };
    let answer = answer.map(|answer| answer.map_err(|refused| refused.why));
    response(state, code, &console::what_if(given, answer.as_ref(), state.clock.now()))
}
