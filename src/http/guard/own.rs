//! Whether an order is the operator's own.
//!
//! Browsers send along with a victim's reach, and password, whatever a page tells them to.
//! So an order has to be something that no page of somebody else can send: it is POST, of a
//! type that forms cannot have, marked with no other origin, and it calls this machine by a
//! name that nobody else can point here. The last goes for programs too: they send no mark,
//! and a page whose name was pointed at this address after it was loaded (DNS rebinding) is
//! of one origin with its orders.

use crate::http::{
    Allow,
    web::{Asker, InForce},
};
use axum::{
    extract::{ConnectInfo, Request},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// What an order needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Permit {
    /// `--web.enable-lifecycle`.
    Lifecycle,
    /// `--web.enable-admin-api`.
    Admin,
    /// The same, or to come from this machine: to hold everything back is the one order that
    /// must not wait for a restart.
    Suspend,
}

/// Why an order is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::http) enum NotTaken {
    /// Such orders are off.
    #[error("orders over HTTP are off; start recliner with --web.enable-lifecycle")]
    LifecycleOff,
    /// Such orders are off.
    #[error("orders over HTTP are off; start recliner with --web.enable-admin-api")]
    AdminOff,
    /// Such orders are off, but for this machine.
    #[error(
        "orders over HTTP are off, save suspend from recliner's own machine; start recliner with --web.enable-admin-api"
    )]
    SuspendOff,
    /// A page from elsewhere sent it.
    #[error("orders are taken from pages of this very address only")]
    Origin,
    /// It was sent to a name that anyone may point here.
    #[error(
        "an order calls recliner's machine by an IP address, localhost, its host name or a name in its certificate"
    )]
    Host,
    /// It is not of the type that no form can send.
    #[error("an order has a body of type application/json")]
    Type,
}

impl NotTaken {
    /// The status that says so.
    pub(in crate::http) const fn status(self) -> StatusCode {
        match self {
            Self::Type => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::LifecycleOff | Self::AdminOff | Self::SuspendOff | Self::Origin | Self::Host => {
                StatusCode::FORBIDDEN
            }
        }
    }
}

/// Headers that a proxy adds: what it passes on comes from anywhere.
const PASSED_ON: [&str; 4] = ["forwarded", "via", "x-forwarded-for", "x-real-ip"];

/// Whether an order may be taken; answers with who gives it, and from where.
pub(in crate::http) fn may_order(
    allow: &Allow,
    permit: Permit,
    request: &Request,
) -> Result<String, NotTaken> {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|info| info.0);
    let headers = request.headers();
    let local = peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
        && PASSED_ON.iter().all(|name| !headers.contains_key(*name));
    match permit {
        Permit::Lifecycle if !allow.lifecycle => return Err(NotTaken::LifecycleOff),
        Permit::Admin if !allow.admin => return Err(NotTaken::AdminOff),
        Permit::Suspend if !allow.admin && !local => return Err(NotTaken::SuspendOff),
        Permit::Lifecycle | Permit::Admin | Permit::Suspend => {}
    }
    let certified = |name: &str| {
        request.extensions().get::<Arc<InForce>>().is_some_and(|web| web.certifies(name))
    };
    let listed = |name: &str| {
        allow.names.iter().any(|own| own.eq_ignore_ascii_case(name)) || certified(name)
    };
    own(headers, permit, listed)?;
    let from = peer.map_or_else(|| "?".to_owned(), |peer| peer.ip().to_canonical().to_string());
    Ok(match request.extensions().get::<Asker>() {
        Some(Asker(user)) => format!("{user} from {from}"),
        None => from,
    })
}

/// Whether no page of somebody else can have sent these headers; `listed` says which names
/// are this machine's own.
fn own(headers: &HeaderMap, permit: Permit, listed: impl Fn(&str) -> bool) -> Result<(), NotTaken> {
    let json = |value: &HeaderValue| {
        let value = value.to_str().unwrap_or_default();
        let kind = value.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    };
    let mut types = headers.get_all(header::CONTENT_TYPE).iter().peekable();
    // Reload and quit have no body, as in Prometheus.
    if (permit != Permit::Lifecycle && types.peek().is_none()) || !types.all(json) {
        return Err(NotTaken::Type);
    }
    let mut hosts = headers.get_all(header::HOST).iter().map(HeaderValue::to_str);
    let (Some(Ok(host)), None) = (hosts.next(), hosts.next()) else {
        return Err(NotTaken::Host);
    };
    let same = |origin: &HeaderValue| {
        let place = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        place.is_some_and(|(_, place)| place.eq_ignore_ascii_case(host))
    };
    let mut sites = headers.get_all(HeaderName::from_static("sec-fetch-site")).iter();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    if !sites.all(|site| site == "same-origin" || site == "none") || !origins.all(same) {
        return Err(NotTaken::Origin);
    }
    let name = without_port(host);
    let local = name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok();
    if local || listed(name) { Ok(()) } else { Err(NotTaken::Host) }
}

/// The name or address of a `Host`.
fn without_port(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(bare, _)| bare),
        None => host.split_once(':').map_or(host, |(bare, _)| bare),
    }
}

#[cfg(test)]
mod tests;
