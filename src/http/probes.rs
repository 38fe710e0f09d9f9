//! Probes for supervisors, and orders from operators.

use super::{Order, State};
use axum::{
    extract,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

type Answer = (StatusCode, String);

/// The process answers.
pub(super) async fn healthy() -> &'static str {
    "recliner is healthy\n"
}

/// One pass over the nodes that answer has ended.
pub(super) async fn ready(extract::State(state): extract::State<State>) -> Answer {
    let status = Arc::clone(&state.scanner.status.borrow());
    if status.is_ready(state.plan.borrow().snapshot.version()) {
        return (StatusCode::OK, "recliner is ready\n".into());
    }
    let why = status.problem.clone().or_else(|| status.last_error.clone());
    let why = why.map_or_else(String::new, |why| format!(": {why}"));
    (StatusCode::SERVICE_UNAVAILABLE, format!("the first sweep has not ended{why}\n"))
}

/// Reads the configuration again; a bad one leaves the old one in force.
pub(super) async fn reload(
    extract::State(state): extract::State<State>,
    method: Method,
) -> Response {
    let orders = match order(&state, &method) {
        Ok(orders) => orders,
        Err(refused) => return refused.into_response(),
    };
    let (answer, answered) = oneshot::channel();
    if orders.try_send(Order::Reload(answer)).is_err() {
        return (StatusCode::SERVICE_UNAVAILABLE, "a reload is under way\n").into_response();
    }
    match answered.await {
        Ok(Ok(())) => "the configuration was read and is in force\n".into_response(),
        Ok(Err(why)) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{why}\nthe old configuration stays in force\n"),
        )
            .into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "recliner is stopping\n").into_response(),
    }
}

/// Stops the program.
pub(super) async fn quit(extract::State(state): extract::State<State>, method: Method) -> Response {
    match order(&state, &method).map(|orders| orders.try_send(Order::Quit)) {
        Ok(Ok(())) => "recliner is stopping\n".into_response(),
        Ok(Err(_)) => {
            (StatusCode::SERVICE_UNAVAILABLE, "recliner is busy with an order\n").into_response()
        }
        Err(refused) => refused.into_response(),
    }
}

/// Any other path.
pub(super) async fn not_found() -> Answer {
    (StatusCode::NOT_FOUND, "no such page; see / for what there is\n".into())
}

/// Why an order is not taken.
enum Refused {
    Method,
    Off,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Method => {
                let allow = [(header::ALLOW, "POST, PUT")];
                (StatusCode::METHOD_NOT_ALLOWED, allow, "use POST or PUT\n").into_response()
            }
            Self::Off => {
                let why = "orders over HTTP are off; start recliner with --web.enable-lifecycle\n";
                (StatusCode::FORBIDDEN, why).into_response()
            }
        }
    }
}

fn order<'a>(state: &'a State, method: &Method) -> Result<&'a mpsc::Sender<Order>, Refused> {
    if !matches!(*method, Method::POST | Method::PUT) {
        return Err(Refused::Method);
    }
    state.orders.as_ref().ok_or(Refused::Off)
}
