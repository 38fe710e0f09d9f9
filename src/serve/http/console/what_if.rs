//! The page of forecasts: its forms, and the answer to one of them.
//!
//! Owns the way from a form to the API's own forecast, which is worked out on a thread of its own and in
//! turn. A link only fills in the form: its address may be on any page, and an answer takes work.

use super::{form_of, given, parsed, response};
use crate::serve::{
    console::{self, Given},
    http::{
        error::ApiError,
        guard,
        state::AppState,
        turn::Turn,
        what_if::{self, Turns},
    },
    report::WhatIf,
};
use axum::{
    Extension,
    extract::{self, Request},
    http::{StatusCode, Uri},
    response::Response,
};

/// The page of a link.
pub(super) async fn show(extract::State(state): extract::State<AppState>, uri: Uri) -> Response {
    match given(&uri) {
        Ok(given) => page(&state, &given, None),
        Err(refused) => super::failed(&state, &refused),
    }
}

/// The page of a form.
pub(super) async fn ask(
    extract::State(state): extract::State<AppState>,
    Extension(Turns(turns)): Extension<Turns>,
    request: Request,
) -> Response {
    let asked = async {
        guard::check_question_form(&request).map_err(ApiError::from)?;
        let turn = Turn::of(&turns).await?;
        Ok((turn, form_of(request.into_body()).await?))
    };
    match asked.await {
        Ok((turn, given)) => {
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
