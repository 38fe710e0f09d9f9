//! Why a request gave no usable answer.

use super::{Address, Route, Unaddressable};
use std::{fmt, sync::Arc, time::Duration};
use strum::{IntoStaticStr, VariantArray};

/// The ways in which a request can fail, a closed set: the metric label `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum ErrorKind {
    /// No answer in time, or the request was held back because the last ones got no answer.
    Timeout,
    /// No connection could be made, or it broke.
    Connect,
    /// No trust: certificate or handshake.
    Tls,
    /// Any other status.
    Status,
    /// The node is known and down (HTTP 412).
    NodeDown,
    /// The requested object does not exist.
    NotFound,
    /// Something other than CouchDB refused the request, or changed its path.
    Proxy,
    /// The login is valid but lacks the privilege.
    Forbidden,
    /// The login is refused, so nothing more is sent.
    Login,
    /// The body is larger than its route allows.
    TooLarge,
    /// The body is not a valid response for its route.
    Malformed,
    /// The server redirects.
    Redirect,
    /// A name that no request can carry.
    Unaddressable,
    /// The request has to go to the node's own address, which is unknown.
    NoOwnAddress,
    /// The cluster does not know the node.
    UnknownNode,
    /// The client is stopping.
    Stopped,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// The word in metric labels.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

/// The request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// The route's label.
    pub route: &'static str,
    /// The HTTP method.
    pub method: http::Method,
    /// Path and query as sent.
    pub path: String,
    /// The server.
    pub at: Address,
}

impl RequestInfo {
    pub(super) fn new(route: &Route<'_>, path: &str, at: &Address) -> Arc<Self> {
        let (route, method) = (route.label(), route.method());
        Arc::new(Self { route, method, path: path.to_owned(), at: at.clone() })
    }

    /// Whether a name in the path has a slash.
    pub(super) fn has_encoded_slash(&self) -> bool {
        self.path.split('?').next().is_some_and(|path| path.contains("%2F"))
    }
}

impl fmt::Display for RequestInfo {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}{}", self.method, self.at, self.path)
    }
}

/// How to configure proxies so that they pass `%2F` on.
const SLASH_REMEDY: &str = ", but it has to pass %2F on (nginx: `proxy_pass http://host:5984` without a path, not even `/`; Apache: `AllowEncodedSlashes NoDecode` and `nocanon`)";

/// Why a request gave no usable answer. It never holds credentials.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No answer arrived in time.
    #[error(
        "{asked}: no complete answer within {after:?}; is the node overloaded, or the timeout too short?"
    )]
    Timeout {
        /// The request.
        asked: Arc<RequestInfo>,
        /// How long the client waited.
        after: Duration,
    },
    /// No answer arrived, and none to a cheap request sent in the meantime.
    #[error(
        "{asked}: no answer within {:?}, nor to GET {probe} meanwhile: the node hangs",
        rounded(*.after)
    )]
    Hangs {
        /// The request.
        asked: Arc<RequestInfo>,
        /// How long the client waited.
        after: Duration,
        /// The path of the cheap request.
        probe: String,
    },
    /// Not sent, because the last requests to the same node got no answer.
    #[error(
        "{server} was not asked: its last {failures} requests failed; it is tried again in {again:?}"
    )]
    Resting {
        /// The node or the server.
        server: String,
        /// How many failed in a row.
        failures: u32,
        /// When the next request is sent.
        again: Duration,
    },
    /// No connection could be made, or it broke.
    #[error(
        "{asked}: {detail}; is CouchDB running there, and is the URL right (http or https, host, port)?"
    )]
    Connect {
        /// The request.
        asked: Arc<RequestInfo>,
        /// The network's words.
        detail: String,
    },
    /// No trust.
    #[error(
        "{asked}: {detail}; check the trusted authorities, the client certificate and the name in the URL"
    )]
    Tls {
        /// The request.
        asked: Arc<RequestInfo>,
        /// The TLS library's words.
        detail: String,
    },
    /// Any other status.
    #[error("{asked}: HTTP {status}, {reason}; CouchDB's own log says more")]
    Status {
        /// The request.
        asked: Arc<RequestInfo>,
        /// The status.
        status: u16,
        /// The server's words.
        reason: String,
    },
    /// The node is known and down.
    #[error("{asked}: the node {node} is down")]
    NodeDown {
        /// The request.
        asked: Arc<RequestInfo>,
        /// The node.
        node: String,
    },
    /// The cluster does not know the node.
    #[error("{asked}: {reason}; the cluster does not know this node; see /_membership")]
    UnknownNode {
        /// The request.
        asked: Arc<RequestInfo>,
        /// The server's words.
        reason: String,
    },
    /// The requested object does not exist.
    #[error("{asked}: not found, {reason}")]
    NotFound {
        /// The request.
        asked: Arc<RequestInfo>,
        /// The server's words.
        reason: String,
    },
    /// A refusal without CouchDB's JSON.
    #[error(
        "{asked}: HTTP {status} without CouchDB's JSON: a proxy between here and CouchDB answered{}",
        match .status {
            401 | 403 => "; let it allow this path",
            _ if .asked.has_encoded_slash() => SLASH_REMEDY,
            _ => "; let it pass this path on",
        }
    )]
    Proxy {
        /// The request.
        asked: Arc<RequestInfo>,
        /// The status.
        status: u16,
    },
    /// `%2F` arrives at CouchDB as `/`, so CouchDB is asked about other names.
    #[error("a proxy between here and CouchDB decodes %2F in the paths of {at}{SLASH_REMEDY}")]
    SlashDecoded {
        /// The address.
        at: Address,
    },
    /// The login is valid but lacks the privilege.
    #[error("{asked}: HTTP {status}, {reason}; the login may not read this; use a server admin")]
    Forbidden {
        /// The request.
        asked: Arc<RequestInfo>,
        /// 401 or 403.
        status: u16,
        /// The server's words.
        reason: String,
    },
    /// CouchDB requires a login, but none was configured.
    #[error("{asked}: CouchDB requires a login, but none was configured")]
    NoUser {
        /// The request.
        asked: Arc<RequestInfo>,
    },
    /// The server at an address is not a CouchDB, or one of a version that is not supported.
    #[error("{at} {found}")]
    NotCouchDb {
        /// The address.
        at: Address,
        /// What it is, as a predicate.
        found: String,
    },
    /// The login was refused, and nothing is sent with it until it is proved again.
    #[error("{why}")]
    LoginClosed {
        /// Who refused it, with what words, and when it is tried again.
        why: Arc<str>,
    },
    /// The login could not be proved, because no server answered.
    #[error("cannot log in: {0}")]
    Unproved(Arc<Self>),
    /// The body is larger than its route allows.
    #[error(
        "{asked}: the body is larger than {limit} bytes, more than this answer can need; is this CouchDB?"
    )]
    TooLarge {
        /// The request.
        asked: Arc<RequestInfo>,
        /// The route's limit in bytes.
        limit: usize,
    },
    /// The body is not a valid response for its route.
    #[error(
        "{asked}: the answer is malformed: {detail}; is this CouchDB, or a proxy in front of it?"
    )]
    Malformed {
        /// The request.
        asked: Arc<RequestInfo>,
        /// What is wrong with it.
        detail: String,
    },
    /// The server redirects; redirects are not followed.
    #[error(
        "{asked}: HTTP {status}, a redirect to {to}, which recliner does not follow; give CouchDB's own address"
    )]
    Redirect {
        /// The request.
        asked: Arc<RequestInfo>,
        /// The status.
        status: u16,
        /// The target, without credentials and query.
        to: String,
    },
    /// A name that no request can carry.
    #[error(transparent)]
    Unaddressable(#[from] Unaddressable),
    /// The request has to go to the node's own address, which is unknown.
    #[error("the direct address of node {node} is unknown: give it in the settings")]
    NoOwnAddress {
        /// The node.
        node: String,
    },
    /// The client's task ended.
    #[error("nothing was sent: the client is stopping")]
    Stopped,
}

impl Error {
    /// A breaker holds the request back.
    pub(super) const fn resting(server: String, rest: super::breaker::Resting) -> Self {
        Self::Resting { server, failures: rest.failures, again: rest.retry_in }
    }

    /// The login could not be proved for this reason. An error that needs no more words stays as it
    /// is.
    pub(super) fn unproved(why: Self) -> Self {
        if matches!(why, Self::NotCouchDb { .. }) { why } else { Self::Unproved(Arc::new(why)) }
    }

    /// Where the answer came from, if that may be something other than CouchDB.
    pub(super) fn strange_at(&self) -> Option<&Address> {
        let (Self::Malformed { asked, .. }
        | Self::NotFound { asked, .. }
        | Self::Proxy { asked, .. }
        | Self::TooLarge { asked, .. }
        | Self::Status { asked, status: 400..=499 | 501, .. }) = self
        else {
            return None;
        };
        Some(&asked.at)
    }

    /// Whether CouchDB refuses to open a shard until the split that creates it has ended
    /// (`couch_server:lock/2`).
    pub fn is_of_split(&self) -> bool {
        matches!(self, Self::Status { status: 500, reason, .. } if reason.contains("shard splitting"))
    }

    /// The kind of error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Timeout { .. } | Self::Hangs { .. } | Self::Resting { .. } => ErrorKind::Timeout,
            Self::Connect { .. } => ErrorKind::Connect,
            Self::Tls { .. } => ErrorKind::Tls,
            Self::Status { .. } => ErrorKind::Status,
            Self::NodeDown { .. } => ErrorKind::NodeDown,
            Self::UnknownNode { .. } => ErrorKind::UnknownNode,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Proxy { .. } | Self::SlashDecoded { .. } => ErrorKind::Proxy,
            Self::Forbidden { .. } | Self::NoUser { .. } => ErrorKind::Forbidden,
            Self::LoginClosed { .. } => ErrorKind::Login,
            Self::Unproved(cause) => cause.kind(),
            Self::TooLarge { .. } => ErrorKind::TooLarge,
            Self::Malformed { .. } | Self::NotCouchDb { .. } => ErrorKind::Malformed,
            Self::Redirect { .. } => ErrorKind::Redirect,
            Self::Unaddressable(_) => ErrorKind::Unaddressable,
            Self::NoOwnAddress { .. } => ErrorKind::NoOwnAddress,
            Self::Stopped => ErrorKind::Stopped,
        }
    }

    /// Whether the error is about this server and not about the cluster, so that another server may
    /// answer. A page of design documents may really be too large.
    pub(super) const fn is_of_one_server(&self, route: &Route<'_>) -> bool {
        let too_large = matches!(self, Self::TooLarge { .. });
        matches!(
            self,
            Self::Malformed { .. }
                | Self::NotCouchDb { .. }
                | Self::Proxy { .. }
                | Self::SlashDecoded { .. }
                | Self::Redirect { .. }
                | Self::Tls { .. }
        ) || (too_large && !route.is_of_designs())
    }

    /// Whether the same request may succeed a moment later.
    pub(super) fn passes(&self) -> bool {
        let unanswered =
            matches!(self, Self::Timeout { .. } | Self::Hangs { .. } | Self::Connect { .. });
        // Statuses of a busy or starting server; 501, 505 and 507 do not go away.
        let busy = matches!(self, Self::Status { status: 500 | 502 | 503 | 504, .. });
        unanswered || (busy && !self.is_of_split())
    }
}

/// A measured time, rounded for people: to seconds, below ten seconds to tenths.
fn rounded(span: Duration) -> Duration {
    let grain = if span < Duration::from_secs(10) { 100 } else { 1_000 };
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Duration::from_millis(millis.saturating_add(grain / 2) / grain * grain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_measured_durations_for_people() {
        for (nanos, shown) in [
            (12_999_887_925_u64, "13s"),
            (3_534_000_001, "3.5s"),
            (99_949_999, "100ms"),
            (61_200_000_000, "61s"),
        ] {
            let span = rounded(Duration::from_nanos(nanos));
            assert_eq!(format!("{span:?}"), shown);
        }
    }
}
