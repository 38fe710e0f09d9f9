//! The fleet on a server of its own, without a cluster: its page, its answer and its metrics.

use crate::{
    fleet::Fleet,
    serve::{
        console::{self, Around, Shown},
        http::{
            self, Allow, WebAccess,
            answer::{Answer, success},
            compression,
            console::asset,
            error::ApiError,
            guard,
            metrics::{self, list},
            probes,
        },
        report::FleetAnswer,
    },
};
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse as _, Response},
    routing::get,
};
use metrics_text::{Encoding, Writer, negotiate};
use std::sync::Arc;
use tokio::sync::watch;
use wall_clock::Clock;

/// How often an open page is loaded again, in seconds.
const REFRESH: HeaderValue = HeaderValue::from_static("30");

/// What the handlers need.
#[derive(Clone, Debug)]
pub struct FleetState {
    /// The other recliners.
    pub fleet: watch::Receiver<Arc<Fleet>>,
    /// The clock for ages.
    pub clock: Clock,
}

/// The routes of a server that shows only the fleet.
pub fn fleet_router(state: FleetState, allow: Allow, web: WebAccess) -> Router {
    let router = Router::new()
        .route("/", get(page))
        .route("/fleet", get(page))
        .route("/api/v1/fleet", get(answer))
        .route("/assets/{name}", get(asset))
        .layer(middleware::from_fn(compression::compress))
        .route("/metrics", get(scrape))
        .route("/-/healthy", get(probes::healthy))
        .route("/-/ready", get(probes::healthy))
        .fallback(async || probes::not_found())
        .method_not_allowed_fallback(probes::wrong_method)
        .with_state(state);
    http::guarded(router, allow, web)
}

async fn page(State(state): State<FleetState>) -> Response {
    let now = state.clock.now();
    let mut page = console::fleet(&FleetAnswer::of(&state.fleet.borrow(), now), now);
    page.is_live = false;
    let around = Around {
        version: env!("CARGO_PKG_VERSION"),
        mode: "",
        simulation: None,
        shown: Shown::Fleet,
    };
    let mut response = guard::page(StatusCode::OK, console::document(&page, &around));
    response.headers_mut().insert(header::REFRESH, REFRESH);
    response
}

async fn answer(State(state): State<FleetState>) -> Result<Answer<FleetAnswer>, ApiError> {
    Ok(success(&FleetAnswer::of(&state.fleet.borrow(), state.clock.now())).into())
}

async fn scrape(State(state): State<FleetState>, headers: HeaderMap) -> Response {
    let format = negotiate(list(&headers, header::ACCEPT).as_deref());
    let mut writer = Writer::new(format, Encoding::Identity);
    metrics::fleet::write(&mut writer, &state.fleet.borrow(), state.clock.now());
    ([(header::CONTENT_TYPE, format.content_type())], writer.finish()).into_response()
}
