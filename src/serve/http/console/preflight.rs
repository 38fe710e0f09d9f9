//! The page of a new index: the form for one design document or several, and what they will cost.
//!
//! A link only fills in the form: recliner reads a document of CouchDB for the answer.

use super::{answered, asked_in_turn, unanswered};
use crate::serve::{
    console::{self, Given},
    http::{
        error::ApiError,
        preflight::{self, MAX_BODY},
        state::AppState,
    },
    report::{PreflightQuestion, RehearsalQuestion, documents_in},
};
use axum::{
    extract::{self, Request},
    http::Uri,
    response::Response,
};
use serde_json::value::RawValue;

/// The page that a link opens, with the form filled in.
pub(super) async fn show(extract::State(state): extract::State<AppState>, uri: Uri) -> Response {
    unanswered(&state, &uri, |given| console::preflight(given, None))
}

/// The page that a form opens, with the answer.
pub(super) async fn ask(
    extract::State(state): extract::State<AppState>,
    request: Request,
) -> Response {
    match asked_in_turn(&state.limits.preflights, request, MAX_BODY).await {
        Ok((_place, turn, given)) => {
            let answer = match deployment(&given) {
                Some(question) => {
                    let answer = preflight::rehearse(&state, &turn, || Ok(question)).await;
                    answer.map(|answer| console::Predicted::Deployment(Box::new(answer)))
                }
                None => {
                    let asked = given.clone();
                    let answer = preflight::predict(&state, &turn, move || question(&asked)).await;
                    answer.map(|answer| console::Predicted::Document(Box::new(answer)))
                }
            };
            answered(&state, answer, |answer| console::preflight(&given, Some(answer)))
        }
        Err(refused) => super::failed(&state, &refused),
    }
}

/// The question about several documents; none if the text is not a list or bundle of them.
fn deployment(given: &Given) -> Option<RehearsalQuestion> {
    let text = given.get("design");
    let designs = documents_in(text).ok()?;
    let is_bundle = designs.len() != 1 || designs.first().is_some_and(|it| it.get() != text.trim());
    is_bundle.then(|| RehearsalQuestion { db: given.get("db").to_owned(), designs })
}

/// The question of a form, as the API's body has it.
fn question(given: &Given) -> Result<PreflightQuestion, ApiError> {
    let not_json = |why| ApiError::bad(format!("the document is not JSON: {why}"));
    let design = RawValue::from_string(given.get("design").to_owned()).map_err(not_json)?;
    let id = Some(given.get("id")).filter(|id| !id.is_empty()).map(ToOwned::to_owned);
    Ok(PreflightQuestion { db: given.get("db").to_owned(), design, id })
}
