//! Protection against cross-site requests.
//!
//! Owns the security headers of every response, and the check whether an order is allowed, which
//! the routes call. Authentication happens earlier, in `web`.

mod host_port;
mod order_check;

pub(super) use order_check::{
    OrderRefused, Permission, authorize_order, check_form, check_question, check_question_form,
    may_order,
};

use super::{error::ApiError, state::Allow};
use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{Html, IntoResponse as _, Response},
};
use maud::Markup;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

/// The policy of pages: they load only files of this server. A script inside a name does not run.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);

/// The policy of responses that are not pages.
const NOTHING: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// Lets a page load this server's style sheet, script and images, and send its forms. Forms need
/// the page's origin for the check of orders, so browsers send it to this server, and to no other.
pub(super) fn allow_own_files(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("same-origin"));
}

/// A page as it is sent.
pub(super) fn page(code: StatusCode, text: Markup) -> Response {
    let mut response = (code, Html(text.into_string())).into_response();
    allow_own_files(response.headers_mut());
    response
}

/// Adds the security headers that a response, or the web configuration file, has not set. A response without a caching
/// rule is not stored.
pub(super) async fn add_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in
        [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::X_FRAME_OPTIONS, "DENY")]
    {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::REFERRER_POLICY).or_insert(HeaderValue::from_static("no-referrer"));
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(NOTHING);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// How many refused host names are logged: the names of an attacker have no end.
const MAX_LOGGED: usize = 16;

/// The check of `Host`, and the refused names that were logged. A client that asked by such a name before an update
/// of recliner may show its operator only the status.
#[derive(Clone, Debug)]
pub(super) struct HostCheck {
    allow: Allow,
    logged: Arc<Mutex<BTreeSet<OrderRefused>>>,
}

impl HostCheck {
    pub(super) fn new(allow: Allow) -> Self {
        Self { allow, logged: Arc::default() }
    }

    fn log(&self, refused: &OrderRefused) {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() < MAX_LOGGED && logged.insert(refused.clone()) {
            tracing::warn!(why = %refused, "refused a request because of its Host header; this is logged once for each Host");
        }
    }
}

/// Refuses requests whose `Host` is a name that anybody could point at this machine.
pub(super) async fn refuse_unknown_host(
    State(check): State<HostCheck>,
    request: Request,
    next: Next,
) -> Response {
    match order_check::check_host(&check.allow, &request) {
        Ok(()) => next.run(request).await,
        Err(why) => {
            check.log(&why);
            refused_at(request.uri().path(), ApiError::from(why))
        }
    }
}

/// A refusal in the error format of the path: the API's envelope, or a line of text.
pub(super) fn refused_at(path: &str, refused: ApiError) -> Response {
    if path.starts_with("/api/") {
        refused.into_response()
    } else {
        (refused.code, [&*refused.why, "\n"].concat()).into_response()
    }
}

impl From<OrderRefused> for ApiError {
    fn from(refused: OrderRefused) -> Self {
        Self::forbidden(refused.status(), &refused)
    }
}
