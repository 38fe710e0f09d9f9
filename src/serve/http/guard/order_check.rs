//! Checks that an order was sent by the operator, not by a foreign web page.
//!
//! A browser sends any request that a page triggers, from inside the operator's network and with
//! the saved password. An order must therefore be a request that no foreign page can send: a POST
//! with a content type that HTML forms cannot have, without a foreign origin, and with a `Host`
//! that nobody else can point at this machine. The `Host` check also covers requests without an
//! `Origin`: after DNS rebinding, a foreign page has the same origin as its orders.
//!
//! Over TCP, each order needs its flag and, from another machine, a user. The peer's address does
//! not identify the sender, since a proxy on this machine has a local address. Over the Unix
//! socket, the kernel guarantees that the peer is the service's own user, who may suspend, resume
//! and back up without the flag.
//!
//! A backup is a GET, which a foreign page can send although it cannot read the response. The
//! checks of `Host` and origin apply to it as well.

use super::host_port::{Host, HostPort, Scheme, origin};
use crate::serve::http::{
    peer::Connection,
    state::Allow,
    web::{ActiveWebConfig, AuthenticatedUser, PUBLIC_PATHS},
};
use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
};
use std::sync::Arc;

/// The permission that an order needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve::http) enum Permission {
    /// `--web.enable-lifecycle`.
    Lifecycle,
    /// `--web.enable-admin-api`.
    Admin,
    /// `--web.enable-admin-api`, or the Unix socket: suspending must not require a restart, and
    /// whoever may suspend may also resume.
    Suspend,
    /// `--web.enable-admin-api`, or the Unix socket: its owner can read the journal's file anyway.
    Backup,
}

/// Why an order is refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(in crate::serve::http) enum OrderRefused {
    /// The lifecycle orders are disabled.
    #[error("reload and quit over HTTP are disabled; start recliner with --web.enable-lifecycle")]
    LifecycleOff,
    /// The admin API is disabled.
    #[error("this order is disabled; start recliner with --web.enable-admin-api")]
    AdminOff,
    /// The admin API is disabled, and the request came over TCP.
    #[error(
        "suspend and resume over TCP are disabled; run recliner suspend or resume on the service's machine, as the service's user and without --recliner.url, or start recliner with --web.enable-admin-api"
    )]
    SuspendOff,
    /// The admin API is disabled, and the request for a backup came over TCP.
    #[error(
        "backups over TCP are disabled; run recliner backup on the service's machine, as the service's user and without --recliner.url, or start recliner with --web.enable-admin-api"
    )]
    BackupOff,
    /// The order comes from another machine, without a user.
    #[error("orders from another machine need a user; configure users in --web.config.file")]
    NoUser,
    /// A page of another origin sent the order.
    #[error("orders and questions from web pages of another origin are refused")]
    ForeignOrigin,
    /// The `Host` header has this name, which anybody could point at this machine, or no valid name.
    #[error(
        "the Host of a request must be an IP address, localhost, this machine's host name, a name in its certificate, or one that --web.allowed-host gives{}",
        allowed_by(.0.as_deref())
    )]
    UnknownHost(Option<String>),
    /// The content type is not JSON; HTML forms can send all others that browsers allow.
    #[error("orders and questions need a body with Content-Type: application/json")]
    ContentType,
}

impl OrderRefused {
    /// The HTTP status of the refusal.
    pub(in crate::serve::http) const fn status(&self) -> StatusCode {
        match self {
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::LifecycleOff
            | Self::AdminOff
            | Self::SuspendOff
            | Self::BackupOff
            | Self::NoUser
            | Self::ForeignOrigin
            | Self::UnknownHost(_) => StatusCode::FORBIDDEN,
        }
    }
}

/// What to do if clients rightly use this name.
fn allowed_by(name: Option<&str>) -> String {
    name.map_or_else(String::new, |name| {
        format!("; if {name} is this service, start recliner with --web.allowed-host={name}")
    })
}

/// Headers that proxies add. A forwarded request may come from any machine.
const PROXY_HEADERS: [&str; 4] = ["forwarded", "via", "x-forwarded-for", "x-real-ip"];

/// Checks whether an order is allowed; returns its user and address for the log.
pub(in crate::serve::http) fn authorize_order(
    allow: &Allow,
    permit: Permission,
    request: &Request,
) -> Result<String, OrderRefused> {
    let by = may_order(allow, permit, request)?;
    check_content_type(request.headers(), permit)?;
    Ok(by)
}

/// Checks whether the sender of this request may give an order; returns its user and address for
/// the log.
pub(in crate::serve::http) fn may_order(
    allow: &Allow,
    permit: Permission,
    request: &Request,
) -> Result<String, OrderRefused> {
    let connection = request.extensions().get::<Connection>();
    let owner = connection.is_some_and(|it| it.peer.is_owner());
    match permit {
        Permission::Lifecycle if !allow.lifecycle => return Err(OrderRefused::LifecycleOff),
        Permission::Admin if !allow.admin => return Err(OrderRefused::AdminOff),
        Permission::Suspend if !allow.admin && !owner => return Err(OrderRefused::SuspendOff),
        Permission::Backup if !allow.admin && !owner => return Err(OrderRefused::BackupOff),
        Permission::Lifecycle | Permission::Admin | Permission::Suspend | Permission::Backup => {}
    }
    let headers = request.headers();
    let asker = request.extensions().get::<AuthenticatedUser>();
    let local = connection.is_some_and(|it| it.peer.is_local())
        && PROXY_HEADERS.iter().all(|name| !headers.contains_key(*name));
    if asker.is_none() && !local {
        return Err(OrderRefused::NoUser);
    }
    if owner {
        // Browsers cannot reach the socket, so a browser's request came through a proxy and is not
        // the owner's.
        if headers.contains_key(header::ORIGIN) || headers.contains_key(SEC_FETCH_SITE) {
            return Err(OrderRefused::ForeignOrigin);
        }
    } else {
        let place = known_host(allow, request)?;
        check_origin(headers, scheme_of(request), &place)?;
    }
    let from = connection.map_or_else(|| "?".to_owned(), |it| it.peer.to_string());
    Ok(match asker {
        Some(AuthenticatedUser(user)) => format!("{user} from {from}"),
        None => from,
    })
}

/// The header in which browsers name the relation between a page and its request.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Checks that a form was sent by a page of this server. Any page can send a form, so the browser
/// must state the origin; [`may_order`] checks the rest.
pub(in crate::serve::http) fn check_form(request: &Request) -> Result<(), OrderRefused> {
    let headers = request.headers();
    let same_site = headers.get(SEC_FETCH_SITE).is_some_and(|site| site == "same-origin");
    // Older browsers send only the origin; the check of the order compares it with this server's.
    let origin = headers.get(header::ORIGIN).is_some_and(|origin| origin != "null");
    if same_site || (origin && !headers.contains_key(SEC_FETCH_SITE)) {
        Ok(())
    } else {
        Err(OrderRefused::ForeignOrigin)
    }
}

/// Checks that an expensive question was sent by a program, or by a page of this server.
pub(in crate::serve::http) fn check_question(request: &Request) -> Result<(), OrderRefused> {
    require_json(request.headers())?;
    check_origin(request.headers(), scheme_of(request), &host_of(request)?)
}

/// Checks that a form without an order was sent by a page of this server, under any host name and
/// behind any proxy.
pub(in crate::serve::http) fn check_question_form(request: &Request) -> Result<(), OrderRefused> {
    check_form(request)?;
    if request.headers().contains_key(SEC_FETCH_SITE) {
        return Ok(());
    }
    check_origin(request.headers(), scheme_of(request), &host_of(request)?)
}

fn scheme_of(request: &Request) -> Scheme {
    let encrypted = request.extensions().get::<Connection>().is_some_and(|it| it.encrypted);
    if encrypted { Scheme::Https } else { Scheme::Http }
}

/// Checks the `Host` of any request without a user: after DNS rebinding, a foreign page has this
/// server's origin and could read whatever a program may read where its browser runs.
pub(super) fn check_host(allow: &Allow, request: &Request) -> Result<(), OrderRefused> {
    let extensions = request.extensions();
    let is_trusted = extensions.get::<AuthenticatedUser>().is_some()
        || extensions.get::<Connection>().is_some_and(|it| it.peer.is_owner());
    if is_trusted || PUBLIC_PATHS.contains(&request.uri().path()) {
        return Ok(());
    }
    known_host(allow, request).map(drop)
}

/// Checks that the body's content type is JSON, which no HTML form can send.
fn check_content_type(headers: &HeaderMap, permit: Permission) -> Result<(), OrderRefused> {
    // Reload and quit have no body, as in Prometheus, and a backup is a GET.
    let has_body = match permit {
        Permission::Admin | Permission::Suspend => true,
        Permission::Lifecycle | Permission::Backup => false,
    };
    if !has_body && !headers.contains_key(header::CONTENT_TYPE) {
        Ok(())
    } else {
        require_json(headers)
    }
}

/// Requires a JSON body. A page of another origin cannot send one: the browser sends a preflight
/// request first, and this server never approves it.
fn require_json(headers: &HeaderMap) -> Result<(), OrderRefused> {
    let json = |value: &HeaderValue| {
        let value = value.to_str().unwrap_or_default();
        let kind = value.split(';').next().unwrap_or_default().trim();
        kind.eq_ignore_ascii_case("application/json")
    };
    let mut types = headers.get_all(header::CONTENT_TYPE).iter().peekable();
    if types.peek().is_none() || !types.all(json) {
        return Err(OrderRefused::ContentType);
    }
    Ok(())
}

/// The `Host` of a request, which must have exactly one, or the host of a complete URL, which a proxy would obey.
fn host_of(request: &Request) -> Result<HostPort<'_>, OrderRefused> {
    if let Some(authority) = request.uri().authority() {
        return HostPort::parse(authority.as_str()).ok_or(OrderRefused::UnknownHost(None));
    }
    let mut hosts = request.headers().get_all(header::HOST).iter().map(HeaderValue::to_str);
    let (Some(Ok(host)), None) = (hosts.next(), hosts.next()) else {
        return Err(OrderRefused::UnknownHost(None));
    };
    HostPort::parse(host).ok_or(OrderRefused::UnknownHost(None))
}

/// The `Host` of a request, if nobody else can point it at this machine: an address, or a name of
/// this machine.
fn known_host<'a>(allow: &Allow, request: &'a Request) -> Result<HostPort<'a>, OrderRefused> {
    let place = host_of(request)?;
    let Host::Name(name) = place.host else { return Ok(place) };
    let web = request.extensions().get::<Arc<ActiveWebConfig>>();
    let is_known = name.eq_ignore_ascii_case("localhost")
        || allow.names.iter().any(|own| own.eq_ignore_ascii_case(name))
        || web.is_some_and(|web| web.certifies(name));
    is_known.then_some(place).ok_or_else(|| OrderRefused::UnknownHost(Some(name.to_owned())))
}

/// Checks that no foreign page can have sent these headers to this host over this scheme.
fn check_origin(
    headers: &HeaderMap,
    scheme: Scheme,
    place: &HostPort<'_>,
) -> Result<(), OrderRefused> {
    let same = |value: &HeaderValue| {
        let from = value.to_str().ok().and_then(origin);
        from.is_some_and(|(of, from)| of == scheme && from.same_endpoint(place, scheme))
    };
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    if sites.all(|site| site == "same-origin" || site == "none") && origins.all(same) {
        Ok(())
    } else {
        Err(OrderRefused::ForeignOrigin)
    }
}

#[cfg(test)]
mod tests;
