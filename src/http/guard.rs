//! What keeps strangers and crowds out.
//!
//! Owns the headers that tell browsers what an answer is not for, the check that an order
//! was not sent by a page of somebody else, and the turns that bound how much is worked
//! out at a time. Decides nothing about who may ask; the routes call it.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::Response,
};
use std::{net::IpAddr, sync::Arc};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The page has no script, no form, no picture, and one style sheet inside it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

/// Adds the headers that every answer has.
pub(super) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Why an order is not the operator's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Foreign {
    /// A page from elsewhere sent it.
    #[error("orders are taken from pages of this very address only")]
    Origin,
    /// A browser sent it to a name that anyone may point here.
    #[error("browsers may send orders to an IP address or localhost only, not to a name")]
    Name,
    /// It brings something that is no JSON, as forms do.
    #[error("an order has no body, or one of type application/json")]
    Body,
}

/// Whether an order may be taken. Browsers mark what they send with its origin, and send
/// along with a victim's reach whatever a page tells them to; programs send no mark.
///
/// A name can be pointed at this address after its page was loaded (DNS rebinding), and
/// page and order then have one origin: so a browser's order has to name the address
/// itself.
pub(super) fn own(headers: &HeaderMap) -> Result<(), Foreign> {
    let json = |value: &HeaderValue| {
        let value = value.to_str().unwrap_or_default();
        let kind = value.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    };
    if !headers.get_all(header::CONTENT_TYPE).iter().all(json) {
        return Err(Foreign::Body);
    }
    let mut sites = headers.get_all(HeaderName::from_static("sec-fetch-site")).iter().peekable();
    let mut origins = headers.get_all(header::ORIGIN).iter().peekable();
    if sites.peek().is_none() && origins.peek().is_none() {
        return Ok(());
    }
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let same = |origin: &HeaderValue| {
        let place = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        place.is_some_and(|(_, place)| place.eq_ignore_ascii_case(host))
    };
    if !sites.all(|site| site == "same-origin" || site == "none") || !origins.all(same) {
        return Err(Foreign::Origin);
    }
    if is_address(host) { Ok(()) } else { Err(Foreign::Name) }
}

/// Whether a `Host` is an IP address or localhost, with or without a port.
fn is_address(host: &str) -> bool {
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(bare, _)| bare),
        None => host.split_once(':').map_or(host, |(bare, _)| bare),
    };
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn orders_come_from_programs_and_from_the_own_page() {
        const HOST: (&str, &str) = ("host", "127.0.0.1:10984");
        const NAMED: (&str, &str) = ("host", "recliner.example:10984");
        for (lines, expected) in [
            (&[][..], Ok(())),
            (&[NAMED], Ok(())),
            (&[NAMED, ("content-type", "application/json; charset=utf-8")], Ok(())),
            (&[HOST, ("content-type", "application/x-www-form-urlencoded")], Err(Foreign::Body)),
            (&[HOST, ("content-type", "text/plain")], Err(Foreign::Body)),
            (&[HOST, ("origin", "http://127.0.0.1:10984")], Ok(())),
            (&[("host", "localhost:1"), ("origin", "http://localhost:1")], Ok(())),
            (&[("host", "[::1]:1"), ("origin", "http://[::1]:1")], Ok(())),
            (&[HOST, ("origin", "http://127.0.0.1:10985")], Err(Foreign::Origin)),
            (&[HOST, ("origin", "https://evil.example")], Err(Foreign::Origin)),
            (&[HOST, ("origin", "null")], Err(Foreign::Origin)),
            (&[("origin", "http://127.0.0.1:10984")], Err(Foreign::Origin)),
            (&[HOST, ("sec-fetch-site", "same-origin")], Ok(())),
            (&[HOST, ("sec-fetch-site", "none")], Ok(())),
            (&[HOST, ("sec-fetch-site", "same-site")], Err(Foreign::Origin)),
            (&[HOST, ("sec-fetch-site", "cross-site")], Err(Foreign::Origin)),
            (
                &[HOST, ("origin", "http://127.0.0.1:10984"), ("origin", "http://evil.example")],
                Err(Foreign::Origin),
            ),
            (&[NAMED, ("origin", "http://recliner.example:10984")], Err(Foreign::Name)),
            (&[NAMED, ("sec-fetch-site", "same-origin")], Err(Foreign::Name)),
            (
                &[("host", "127.0.0.1.evil.example"), ("sec-fetch-site", "same-origin")],
                Err(Foreign::Name),
            ),
        ] {
            assert_eq!(own(&headers(lines)), expected, "{lines:?}");
        }
    }
}
