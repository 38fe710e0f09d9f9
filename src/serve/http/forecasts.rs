//! `GET /api/v1/forecasts`: the forecasts of volumes, and how earlier ones did.

use super::{answer::Answer, error::ApiError, query::NoQuery, route::Route, state::AppState};
use crate::serve::report::Forecasts;
use std::sync::Arc;

pub(in crate::serve::http) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/forecasts",
            "forecasts",
            forecasts,
            "Forecasts of each volume's free space, and how accurate earlier ones were.",
        )
        .detail("For each volume: the median and the 80 % range after 1, 7 and 30 days, when it is full, and in how many of the last 30 forecasts the outcome was within the range. Until growth has been measured for two days, only the reason is given; no forecast reaches further ahead than twice the time measured. One forecast a day is kept for 400 days."),
    ]
}

async fn forecasts(state: AppState, _: NoQuery) -> Result<Answer<Forecasts>, ApiError> {
    let advice = Arc::clone(&state.advice.borrow());
    let plan = Arc::clone(&state.plan.borrow());
    Ok(Answer::of(&Forecasts::of(&advice, &plan)))
}
