//! Why a request gave no answer that can be used.

use super::{Address, Route, Unaddressable};
use std::{fmt, sync::Arc, time::Duration};

/// A closed word for each way a request can fail: the metric label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// No answer in time, or none was waited for because the last ones did not come.
    Timeout,
    /// No connection, or it broke.
    Connect,
    /// No trust: certificate or handshake.
    Tls,
    /// A status that means nothing better here.
    Status,
    /// The node is known and down (HTTP 412).
    NodeDown,
    /// What was asked for is not there.
    NotFound,
    /// The login is right but may not read this.
    Forbidden,
    /// The login is refused, and nothing more is sent with it.
    Login,
    /// The body is larger than its route allows.
    TooLarge,
    /// The body is not what its route answers.
    Garbage,
    /// The server sends elsewhere.
    Redirect,
    /// A name that no request can carry.
    Unaddressable,
    /// The node has to be asked at its own address, and that is not known.
    NoOwnAddress,
    /// The cluster does not know the node.
    UnknownNode,
    /// The program is stopping.
    Stopped,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 15] = [
        Self::Timeout,
        Self::Connect,
        Self::Tls,
        Self::Status,
        Self::NodeDown,
        Self::NotFound,
        Self::Forbidden,
        Self::Login,
        Self::TooLarge,
        Self::Garbage,
        Self::Redirect,
        Self::Unaddressable,
        Self::NoOwnAddress,
        Self::UnknownNode,
        Self::Stopped,
    ];

    /// The word in metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Status => "status",
            Self::NodeDown => "node_down",
            Self::NotFound => "not_found",
            Self::Forbidden => "forbidden",
            Self::Login => "login",
            Self::TooLarge => "too_large",
            Self::Garbage => "garbage",
            Self::Redirect => "redirect",
            Self::Unaddressable => "unaddressable",
            Self::NoOwnAddress => "no_own_address",
            Self::UnknownNode => "unknown_node",
            Self::Stopped => "stopped",
        }
    }
}

/// What was asked of whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The route's label.
    pub route: &'static str,
    /// The verb.
    pub method: http::Method,
    /// Path and query as sent.
    pub path: String,
    /// The server.
    pub at: Address,
}

impl Asked {
    pub(super) fn new(route: &Route<'_>, path: &str, at: &Address) -> Arc<Self> {
        let (route, method) = (route.label(), route.method());
        Arc::new(Self { route, method, path: path.to_owned(), at: at.clone() })
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}{}", self.method, self.at, self.path)
    }
}

/// What to do where CouchDB wants a login and none was given.
pub const NO_USER: &str = "no user was given: set COUCHDB_USER and COUCHDB_PASSWORD, or --couchdb.username and --couchdb.password-file";

/// Why a request gave no answer that can be used. It never holds credentials.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No answer in time.
    #[error(
        "{asked}: no whole answer within {}; is the node overloaded, or couchdb.timeout too short?",
        humantime::format_duration(*.after)
    )]
    Timeout {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// How long it was waited for.
        after: Duration,
    },
    /// No answer, nor to a question that costs the server nothing, put to it meanwhile.
    #[error(
        "{asked}: no answer within {}, and none to GET {probe} meanwhile: it hangs",
        humantime::format_duration(rounded(*.after))
    )]
    Hangs {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// How long it was waited for.
        after: Duration,
        /// Path of the question that costs nothing.
        probe: String,
    },
    /// Not asked, because the last requests to the same node did not come back.
    #[error(
        "{whom} was not asked: its last {strikes} requests came to nothing; it is tried again in {again:?}"
    )]
    Resting {
        /// The node or the server.
        whom: String,
        /// How many in a row.
        strikes: u32,
        /// When the next one goes out.
        again: Duration,
    },
    /// No connection, or it broke.
    #[error("{asked}: {detail}; is CouchDB running there, and the address right?")]
    Connect {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// What the network said.
        detail: String,
    },
    /// No trust.
    #[error("{asked}: {detail}; check couchdb.tls.ca_file, cert_file and the name in the URL")]
    Tls {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// What TLS said.
        detail: String,
    },
    /// A status that means nothing better here.
    #[error("{asked}: HTTP {status}, {reason}; CouchDB's own log says more")]
    Status {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// The status.
        status: u16,
        /// What the server said.
        reason: String,
    },
    /// The node is known and down.
    #[error("{asked}: the node {node} is down")]
    NodeDown {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// The node.
        node: String,
    },
    /// The cluster does not know the node.
    #[error("{asked}: {reason}; the cluster does not know this node, see /_membership")]
    UnknownNode {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// What the server said.
        reason: String,
    },
    /// What was asked for is not there.
    #[error("{asked}: not found, {reason}")]
    NotFound {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// What the server said.
        reason: String,
    },
    /// The login is right but may not read this.
    #[error("{asked}: HTTP {status}, {reason}; the login may not read this, use a server admin")]
    Forbidden {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// 401 or 403.
        status: u16,
        /// What the server said.
        reason: String,
    },
    /// It wants a login, and there is none.
    #[error("{NO_USER}")]
    NoUser {
        /// What was asked of whom.
        asked: Arc<Asked>,
    },
    /// What answers at an address is something else.
    #[error("{at} answered, but it is not a CouchDB ({found}): check --couchdb.url")]
    NotCouchDb {
        /// The address.
        at: Address,
        /// What was found, in words.
        found: String,
    },
    /// The login is refused, and nothing is sent with it until it is proved again.
    #[error("nothing was sent: {why}")]
    LoginClosed {
        /// Who refused it, what they said, when it is tried again.
        why: Arc<str>,
    },
    /// The login could not be proved, because no server answered.
    #[error("nothing was sent, the login could not be proved: {0}")]
    Unproved(Arc<Self>),
    /// The body is larger than its route allows.
    #[error(
        "{asked}: the body is larger than {limit} bytes, which nothing sensible needs; is this CouchDB?"
    )]
    TooLarge {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// The route's limit in bytes.
        limit: usize,
    },
    /// The body is not what its route answers.
    #[error(
        "{asked}: the answer makes no sense, {detail}; is this CouchDB, or a proxy in front of it?"
    )]
    Garbage {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// What is wrong with it.
        detail: String,
    },
    /// The server sends elsewhere; nothing is followed.
    #[error(
        "{asked}: HTTP {status}, a redirect to {to}; recliner follows none, give CouchDB's own address"
    )]
    Redirect {
        /// What was asked of whom.
        asked: Arc<Asked>,
        /// The status.
        status: u16,
        /// Where to, without credentials and query.
        to: String,
    },
    /// A name that no request can carry.
    #[error(transparent)]
    Unaddressable(#[from] Unaddressable),
    /// The node has to be asked at its own address, and that is not known.
    #[error(
        "the own address of node {node} is not known: name it under couchdb.nodes, or repeat --couchdb.url for it"
    )]
    NoOwnAddress {
        /// The node.
        node: String,
    },
    /// The client's task ended.
    #[error("nothing was sent: recliner is stopping")]
    Stopped,
}

impl Error {
    /// Held back by a breaker.
    pub(super) const fn resting(whom: String, rest: super::breaker::Resting) -> Self {
        Self::Resting { whom, strikes: rest.strikes, again: rest.again }
    }

    /// The login could not be proved for this reason; one that says all by itself stays alone.
    pub(super) fn unproved(why: Self) -> Self {
        if matches!(why, Self::NotCouchDb { .. }) { why } else { Self::Unproved(Arc::new(why)) }
    }

    /// Whether it may well be that no CouchDB answered.
    pub(super) const fn is_strange(&self) -> bool {
        matches!(
            self,
            Self::Garbage { .. }
                | Self::NotFound { .. }
                | Self::TooLarge { .. }
                | Self::Status { status: 400..=499 | 501, .. }
        )
    }

    /// The closed word for it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Timeout { .. } | Self::Hangs { .. } | Self::Resting { .. } => Kind::Timeout,
            Self::Connect { .. } => Kind::Connect,
            Self::Tls { .. } => Kind::Tls,
            Self::Status { .. } => Kind::Status,
            Self::NodeDown { .. } => Kind::NodeDown,
            Self::UnknownNode { .. } => Kind::UnknownNode,
            Self::NotFound { .. } => Kind::NotFound,
            Self::Forbidden { .. } | Self::NoUser { .. } => Kind::Forbidden,
            Self::LoginClosed { .. } => Kind::Login,
            Self::Unproved(cause) => cause.kind(),
            Self::TooLarge { .. } => Kind::TooLarge,
            Self::Garbage { .. } | Self::NotCouchDb { .. } => Kind::Garbage,
            Self::Redirect { .. } => Kind::Redirect,
            Self::Unaddressable(_) => Kind::Unaddressable,
            Self::NoOwnAddress { .. } => Kind::NoOwnAddress,
            Self::Stopped => Kind::Stopped,
        }
    }

    /// Whether it tells of the server that was asked and not of the cluster, so that
    /// another server may do better. A page of design documents may well be too large.
    pub(super) const fn is_of_one_server(&self, route: &Route<'_>) -> bool {
        let too_large = matches!(self, Self::TooLarge { .. });
        matches!(
            self,
            Self::Garbage { .. }
                | Self::NotCouchDb { .. }
                | Self::Redirect { .. }
                | Self::Tls { .. }
        ) || (too_large && !matches!(route, Route::DesignDocs { .. }))
    }

    /// Whether the same request may well succeed a moment later.
    pub(super) fn passes(&self) -> bool {
        match self {
            Self::Timeout { .. } | Self::Hangs { .. } | Self::Connect { .. } => true,
            // What a busy or starting server says; 501, 505 and 507 stay as they are.
            Self::Status { status, .. } => matches!(status, 500 | 502 | 503 | 504),
            Self::Resting { .. }
            | Self::Tls { .. }
            | Self::NodeDown { .. }
            | Self::UnknownNode { .. }
            | Self::NotFound { .. }
            | Self::Forbidden { .. }
            | Self::NoUser { .. }
            | Self::NotCouchDb { .. }
            | Self::LoginClosed { .. }
            | Self::Unproved(_)
            | Self::TooLarge { .. }
            | Self::Garbage { .. }
            | Self::Redirect { .. }
            | Self::Unaddressable(_)
            | Self::NoOwnAddress { .. }
            | Self::Stopped => false,
        }
    }
}

/// A measured span as precisely as a person reads it: seconds, below ten with their tenths.
fn rounded(span: Duration) -> Duration {
    let grain = if span < Duration::from_secs(10) { 100 } else { 1_000 };
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis.saturating_add(grain / 2) / grain * grain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measured_span_has_no_digits_that_say_nothing() {
        for (nanos, shown) in [
            (12_999_887_925_u64, "13s"),
            (3_534_000_001, "3s 500ms"),
            (99_949_999, "100ms"),
            (61_200_000_000, "1m 1s"),
        ] {
            let span = rounded(Duration::from_nanos(nanos));
            assert_eq!(humantime::format_duration(span).to_string(), shown);
        }
    }
}
