//! Errors of the API, in Prometheus's envelope.

use super::answer;
use crate::{
    serve::report::{Conflict, Failed},
    shared_limits::NOT_A_MEMBER,
};
use axum::{
    extract::rejection::QueryRejection,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use std::time::Duration;

/// The `Retry-After` of a response whose data is not available yet.
const SOON: Duration = Duration::from_secs(2);

/// An error response of the API.
pub(super) struct ApiError {
    pub(super) code: StatusCode,
    pub(super) kind: &'static str,
    pub(super) why: String,
    /// The details of an order's conflict.
    pub(super) data: Option<Box<Conflict>>,
    /// When the same request may succeed, if that is known.
    pub(super) retry_after: Option<HeaderValue>,
}

impl ApiError {
    fn new(code: StatusCode, kind: &'static str, why: impl ToString) -> Self {
        Self { code, kind, why: why.to_string(), data: None, retry_after: None }
    }

    pub(super) fn bad(why: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_data", why)
    }

    /// A query that cannot be read.
    pub(super) fn bad_query(why: QueryRejection) -> Self {
        // Removes the library's own prefix of the message.
        let text = why.body_text();
        Self::bad(text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text))
    }

    pub(super) fn absent(why: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", why)
    }

    pub(super) fn forbidden(code: StatusCode, why: impl ToString) -> Self {
        Self::new(code, "forbidden", why)
    }

    pub(super) fn wrong_method(why: impl ToString) -> Self {
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", why)
    }

    pub(super) fn conflict(why: impl ToString, data: Conflict) -> Self {
        Self { data: Some(Box::new(data)), ..Self::new(StatusCode::CONFLICT, "conflict", why) }
    }

    /// The client has no share of the shared limits.
    pub(super) fn not_a_member(code: StatusCode, why: impl ToString) -> Self {
        Self::new(code, NOT_A_MEMBER, why)
    }

    pub(super) fn unavailable(why: impl ToString) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why)
    }

    pub(super) fn failed(why: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "execution", why)
    }

    /// Data that the request needs is not available yet.
    pub(super) fn not_yet(why: impl ToString) -> Self {
        Self::again_after(SOON, why)
    }

    /// The same request may succeed after this time.
    pub(super) fn again_after(pause: Duration, why: impl ToString) -> Self {
        Self { retry_after: Some(pause.as_secs().into()), ..Self::unavailable(why) }
    }

    pub(super) fn late(patience: Duration) -> Self {
        let why = format!("the body did not arrive within {} seconds", patience.as_secs());
        Self::new(StatusCode::REQUEST_TIMEOUT, "timeout", why)
    }

    pub(super) fn stopping() -> Self {
        Self::unavailable("recliner is stopping")
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = Failed {
            status: "error".into(),
            error_type: self.kind.into(),
            error: self.why,
            data: self.data,
        };
        let mut response = (self.code, answer::whole(&body)).into_response();
        if let Some(pause) = self.retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, pause);
        }
        response
    }
}
