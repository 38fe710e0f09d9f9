//! Protection against cross-site requests and overload.
//!
//! Owns the security headers of every response, the check whether an order is allowed, and
//! the limit on concurrent work. The routes call it. Authentication happens earlier, in `web`.

mod host_port;
mod order_check;

pub(super) use order_check::{OrderRefused, Permission, authorize_order};

use axum::{
    http::{HeaderValue, header},
    response::Response,
};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Nothing but styles within the page, and what is named.
macro_rules! content_security_policy {
    ($allowed:literal) => {
        concat!(
            "default-src 'none'; style-src 'unsafe-inline'; ",
            $allowed,
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
    };
}

/// The page has no scripts, forms or images, and only one inline style sheet.
const CONTENT_SECURITY_POLICY: &str = content_security_policy!("");

/// The same for pages with images from this server.
pub(super) const fn policy_with_images() -> HeaderValue {
    HeaderValue::from_static(content_security_policy!("img-src 'self'; "))
}

/// Adds the headers that every response has. A response without a caching rule is not stored.
pub(super) async fn add_security_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderValue::from_static(CONTENT_SECURITY_POLICY);
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(policy);
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Limits how many requests of one kind are computed at the same time.
#[derive(Clone, Debug)]
pub(super) struct ConcurrencyLimit(Arc<Semaphore>);

impl ConcurrencyLimit {
    pub(super) fn new(at_a_time: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_a_time)))
    }

    /// A permit, if one is free now.
    pub(super) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// Waits for a permit. `None` never occurs, because nothing closes the semaphore.
    pub(super) async fn acquire(self) -> Option<OwnedSemaphorePermit> {
        self.0.acquire_owned().await.ok()
    }
}
