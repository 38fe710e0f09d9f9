//! `GET /api/v1/fleet`: other recliners, each for its own cluster.

mod alone;

pub use alone::{FleetState, fleet_router};

use super::{answer::Answer, error::ApiError, query::NoQuery, route::Route, state::AppState};
use crate::serve::report::FleetAnswer;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/fleet",
            "fleet",
            fleet,
            "The recliners of several clusters, those that need attention first.",
        )
        .detail("The recliners listed in `fleet`, asked for their status every `fleet.interval`: why each needs attention (`attention`, `says`), version, mode, suspensions, `overview`. If one did not answer, all of these are null (`silent_since`)."),
    ]
}

async fn fleet(state: AppState, _: NoQuery) -> Result<Answer<FleetAnswer>, ApiError> {
    Ok(Answer::of(&fleet_of(&state)))
}

/// The other recliners at present.
pub(super) fn fleet_of(state: &AppState) -> FleetAnswer {
    FleetAnswer::of(&state.fleet.borrow(), state.clock.now())
}
