//! Whether an order is the operator's own.
//!
//! Browsers send along with a victim's reach, and password, whatever a page tells them to.
//! So an order has to be something that no page of somebody else can send: it is POST, of a
//! type that forms cannot have, marked with no other origin, and it calls this machine by a
//! name that nobody else can point here. The last goes for programs too: they send no mark,
//! and a page whose name was pointed at this address after it was loaded (DNS rebinding) is
//! of one origin with its orders.
//!
//! Over TCP each order needs its flag and, from another machine, a user: an address tells
//! nothing of who is behind it, and a proxy on this machine has this machine's. Whoever comes
//! over the Unix socket is the service's own user, as the kernel says, and may suspend and
//! resume without.

use super::place::{Host, Place, Scheme, origin};
use crate::serve::http::{
    Allow,
    peer::Connection,
    web::{Asker, InForce},
};
use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
};
use std::sync::Arc;

/// What an order needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve::http) enum Permit {
    /// `--web.enable-lifecycle`.
    Lifecycle,
    /// `--web.enable-admin-api`.
    Admin,
    /// The same, or to come over the Unix socket: to hold everything back must not wait for a
    /// restart, and what one may close one may open again.
    Suspend,
}

/// Why an order is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::serve::http) enum NotTaken {
    /// Such orders are off.
    #[error("orders over HTTP are off; start recliner with --web.enable-lifecycle")]
    LifecycleOff,
    /// Such orders are off.
    #[error("orders over HTTP are off; start recliner with --web.enable-admin-api")]
    AdminOff,
    /// Such orders are off, but for the Unix socket.
    #[error(
        "orders over TCP are off; run recliner suspend or resume on recliner's own machine, as its own user and without --recliner.url, or start recliner with --web.enable-admin-api"
    )]
    SuspendOff,
    /// It comes from another machine, and from nobody that is known.
    #[error("an order from another machine needs a user; name users in --web.config.file")]
    Nobody,
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
    pub(in crate::serve::http) const fn status(self) -> StatusCode {
        match self {
            Self::Type => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::LifecycleOff
            | Self::AdminOff
            | Self::SuspendOff
            | Self::Nobody
            | Self::Origin
            | Self::Host => StatusCode::FORBIDDEN,
        }
    }
}

/// Headers that a proxy may add: what it passes on comes from anywhere.
const PASSED_ON: [&str; 4] = ["forwarded", "via", "x-forwarded-for", "x-real-ip"];

/// Whether an order may be taken; answers with who gives it, and from where.
pub(in crate::serve::http) fn may_order(
    allow: &Allow,
    permit: Permit,
    request: &Request,
) -> Result<String, NotTaken> {
    let connection = request.extensions().get::<Connection>();
    let owner = connection.is_some_and(|it| it.peer.is_owner());
    match permit {
        Permit::Lifecycle if !allow.lifecycle => return Err(NotTaken::LifecycleOff),
        Permit::Admin if !allow.admin => return Err(NotTaken::AdminOff),
        Permit::Suspend if !allow.admin && !owner => return Err(NotTaken::SuspendOff),
        Permit::Lifecycle | Permit::Admin | Permit::Suspend => {}
    }
    let headers = request.headers();
    let asker = request.extensions().get::<Asker>();
    let local = connection.is_some_and(|it| it.peer.is_local())
        && PASSED_ON.iter().all(|name| !headers.contains_key(*name));
    if asker.is_none() && !local {
        return Err(NotTaken::Nobody);
    }
    let certified = |name: &str| {
        request.extensions().get::<Arc<InForce>>().is_some_and(|web| web.certifies(name))
    };
    let listed = |name: &str| {
        allow.names.iter().any(|own| own.eq_ignore_ascii_case(name)) || certified(name)
    };
    typed(headers, permit)?;
    if owner {
        // No name leads a browser to the socket; one that a proxy lets in is not the owner.
        if headers.contains_key(header::ORIGIN) || headers.contains_key(SITE) {
            return Err(NotTaken::Origin);
        }
    } else {
        let encrypted = connection.is_some_and(|it| it.encrypted);
        own(headers, if encrypted { Scheme::Https } else { Scheme::Http }, listed)?;
    }
    let from = connection.map_or_else(|| "?".to_owned(), |it| it.peer.to_string());
    Ok(match asker {
        Some(Asker(user)) => format!("{user} from {from}"),
        None => from,
    })
}

/// What browsers say of where a request comes from.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether the body is said to be JSON, as no form can.
fn typed(headers: &HeaderMap, permit: Permit) -> Result<(), NotTaken> {
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
    Ok(())
}

/// Whether no page of somebody else can have sent these headers over this scheme; `listed`
/// says which names are this machine's own.
fn own(headers: &HeaderMap, scheme: Scheme, listed: impl Fn(&str) -> bool) -> Result<(), NotTaken> {
    let mut hosts = headers.get_all(header::HOST).iter().map(HeaderValue::to_str);
    let (Some(Ok(host)), None) = (hosts.next(), hosts.next()) else {
        return Err(NotTaken::Host);
    };
    let place = Place::read(host).ok_or(NotTaken::Host)?;
    let same = |value: &HeaderValue| {
        let from = value.to_str().ok().and_then(origin);
        from.is_some_and(|(of, from)| of == scheme && from.same(&place, scheme))
    };
    let mut sites = headers.get_all(SITE).iter();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    if !sites.all(|site| site == "same-origin" || site == "none") || !origins.all(same) {
        return Err(NotTaken::Origin);
    }
    match place.host {
        Host::Address(_) => Ok(()),
        Host::Name(name) if name.eq_ignore_ascii_case("localhost") || listed(name) => Ok(()),
        Host::Name(_) => Err(NotTaken::Host),
    }
}

#[cfg(test)]
mod tests;
