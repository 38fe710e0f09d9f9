//! What keeps strangers and crowds out.
//!
//! Owns the headers that tell browsers what an answer is not for, the check that an order
//! may be taken, and the turns that bound how much is worked out at a time. Who may ask at
//! all, `web` decides before; the routes call it.

mod own;
mod place;

pub(super) use own::{NotTaken, Permit, may_order};

use axum::{
    http::{HeaderValue, header},
    response::Response,
};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The page has no script, no form, no picture, and one style sheet inside it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// Adds the headers that every answer has, and forbids to keep one that says nothing of that.
pub(super) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// How much may be worked out at a time.
#[derive(Clone, Debug)]
pub(super) struct Turns(Arc<Semaphore>);

impl Turns {
    pub(super) fn new(at_a_time: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_a_time)))
    }

    /// A turn, if one is free.
    pub(super) fn now(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// A turn, as soon as one is free; nothing closes the semaphore.
    pub(super) async fn wait(self) -> Option<OwnedSemaphorePermit> {
        self.0.acquire_owned().await.ok()
    }
}
