//! The page of forecasts: its forms, and the answer to a form.
//!
//! Passes a form to the API's own forecast, which runs on its own thread and in turn. A link only
//! fills in the form: any page can contain the link, and a forecast is expensive.

use super::{MAX_FORM, answered, asked_in_turn, parsed, unanswered};
use crate::serve::{
    console,
    http::{state::AppState, what_if},
};
use axum::{
    extract::{self, Request},
    http::Uri,
    response::Response,
};

/// The page that a link opens, with the form filled in.
pub(super) async fn show(extract::State(state): extract::State<AppState>, uri: Uri) -> Response {
    unanswered(&state, &uri, |given| console::what_if(given, None))
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
            answered(&state, answer, |answer| console::what_if(&given, Some(answer)))
        }
        Err(refused) => super::failed(&state, &refused),
    }
}
