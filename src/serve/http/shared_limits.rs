//! `POST /api/v1/shared-limits/lease`: what a member may use of limits that several clusters share.

use super::{
    answer::Answer,
    error::ApiError,
    guard::{self, Permission},
    route::Route,
    state::AppState,
    turn::read_body,
};
use crate::{
    act::sharing::NotGranted,
    shared_limits::{Lease, LeaseRequest, keeper::Refused},
};
use axum::{
    extract::{Request, State},
    http::StatusCode,
    routing::post,
};
use serde_json::json;

/// The largest request.
const MAX_BODY: usize = 1 << 12;

/// The longest name of a journal.
const MAX_INSTANCE: usize = 100;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::order::<LeaseRequest, Lease>(
            "/api/v1/shared-limits/lease",
            "leaseSharedLimits",
            post(lease),
            "What a recliner may use of the limits that this one divides (`shared_limits.keeper`).",
            json!({
                "name": "orders",
                "instance": "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
                "acts_on": 17,
                "used": { "jobs": 2, "bytes_per_hour": 53_687_091_200_u64 },
                "wanted": { "jobs": 8, "bytes_per_hour": 536_870_912_000_u64 },
            }),
        )
        .detail("Member recliners call this. Returns the lease, how long it lasts from the request on, and what may be used without one. Refused with 409 if another process uses the name."),
    ]
}

async fn lease(State(state): State<AppState>, request: Request) -> Result<Answer<Lease>, ApiError> {
    guard::authorize_order(&state.allow, Permission::Admin, &request)?;
    let body = read_body(request, MAX_BODY).await?;
    let request: LeaseRequest = serde_json::from_slice(&body)
        .map_err(|why| ApiError::bad(format!("the body is not a request for a lease: {why}")))?;
    if request.instance.is_empty() || request.instance.len() > MAX_INSTANCE {
        let why = format!("instance must have 1 to {MAX_INSTANCE} bytes");
        return Err(ApiError::bad(why));
    }
    match state.sharing.keeper.grant(request).await {
        Ok(lease) => Ok(Answer::of(&lease)),
        Err(why @ (NotGranted::NoKeeper | NotGranted::Refused(Refused::Unknown(_)))) => {
            Err(ApiError::not_a_member(StatusCode::NOT_FOUND, why))
        }
        Err(why @ NotGranted::Refused(Refused::OtherInstance { .. })) => {
            Err(ApiError::not_a_member(StatusCode::CONFLICT, why))
        }
        Err(why @ (NotGranted::NotStored(_) | NotGranted::Busy)) => Err(ApiError::not_yet(why)),
    }
}
