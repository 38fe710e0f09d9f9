//! How bytes reach a server: over the network, or in this process.

#[cfg(test)]
pub(super) mod authority;
mod gzip;
mod network;
mod tls;

use network::Network;
pub use tls::TlsError;

use super::{Address, CertificateEnds, Settings, Unaddressable, credential::Cookie};
use axum::{Router, body::Body};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use http_body_util::{BodyExt as _, combinators::UnsyncBoxBody};
use std::error::Error as StdError;
use tower::ServiceExt as _;

/// Carries requests to servers.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Over the network.
    Http(Network),
    /// To a router in this process, whatever the address; its handlers tell servers
    /// apart by the `Host` header. It works on paused time.
    InProcess(Router),
}

/// Why there is no transport.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl Transport {
    /// The network, with the trust, certificate and pool of `settings`.
    ///
    /// # Errors
    /// When a file of `tls` cannot be read or used.
    pub fn http(settings: &Settings) -> Result<Self, TransportError> {
        Ok(Self::Http(Network::new(settings)?))
    }

    /// When the certificates in use end.
    pub(super) fn certificate_ends(&self) -> CertificateEnds {
        match self {
            Self::Http(network) => network.certificate_ends(),
            Self::InProcess(_) => CertificateEnds::default(),
        }
    }
}

/// What goes out.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    /// The header that shows the login.
    pub(super) login: Option<(HeaderName, HeaderValue)>,
    /// What the route adds.
    pub(super) header: Option<(HeaderName, HeaderValue)>,
    /// What is sent, in JSON.
    pub(super) form: Option<Bytes>,
    /// The largest body to accept, in bytes.
    pub(super) limit: usize,
}

impl Outgoing<'_> {
    fn write_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in self.login.iter().chain(&self.header) {
            headers.insert(name.clone(), value.clone());
        }
        if self.form.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
    }
}

/// What came back.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    /// A session that begins or goes on.
    pub(super) cookie: Option<Cookie>,
    pub(super) body: Bytes,
}

/// What comes back bit by bit.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    pub(super) cookie: Option<Cookie>,
    pub(super) body: Coming,
}

/// A body that is still coming.
pub(super) type Coming = UnsyncBoxBody<Bytes, Failure>;

/// The whole of a body that is still coming, of `limit` bytes at most; `expected` is what
/// the server announced.
pub(super) async fn collected(
    mut body: Coming,
    expected: usize,
    limit: usize,
) -> Result<Bytes, Failure> {
    let mut pieces = Collected::default();
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame?.into_data()
            && !pieces.add(piece, expected, limit)
        {
            return Err(Failure::TooLarge);
        }
    }
    Ok(pieces.whole())
}

/// Why nothing came back.
#[derive(Debug)]
pub(super) enum Failure {
    Connect(String),
    Tls(String),
    Garbage(String),
    TooLarge,
    Unaddressable(Unaddressable),
}

impl Transport {
    /// Whether TLS proves that a host is the one that was meant, under authorities of the
    /// operator's own: public ones prove a host to anybody who has a domain.
    pub(super) const fn proves_hosts(&self) -> bool {
        match self {
            Self::Http(network) => network.proves_hosts(),
            Self::InProcess(_) => false,
        }
    }

    /// Sends one request and reads the whole body that comes back.
    pub(super) async fn send(&self, at: &Address, out: Outgoing<'_>) -> Result<Reply, Failure> {
        match self {
            Self::Http(network) => network.send(at, out).await,
            Self::InProcess(router) => {
                let limit = out.limit;
                let Opened { status, location, cookie, body } = in_process(router, at, out).await?;
                Ok(Reply { status, location, cookie, body: collected(body, 0, limit).await? })
            }
        }
    }

    /// Sends one request whose answer is read as it comes.
    pub(super) async fn open(&self, at: &Address, out: Outgoing<'_>) -> Result<Opened, Failure> {
        match self {
            Self::Http(network) => network.open(at, out).await,
            Self::InProcess(router) => in_process(router, at, out).await,
        }
    }
}

/// The URI to send, if it says what was meant: a name may be none that it can carry.
fn uri(at: &Address, path: &str) -> Result<Uri, Failure> {
    let uri = at.uri(path);
    let sent = uri.as_ref().and_then(Uri::path_and_query).map(|sent| sent.as_str());
    let sent = sent.unwrap_or_default();
    match uri {
        Some(uri) if sent.strip_prefix(at.prefix()) == Some(path) => Ok(uri),
        _ => Err(Failure::Unaddressable(Unaddressable::Rewritten {
            intended: path.to_owned(),
            sent: sent.to_owned(),
        })),
    }
}

fn location(headers: &HeaderMap) -> Option<String> {
    headers.get(header::LOCATION)?.to_str().ok().map(str::to_owned)
}

/// A body that arrives in pieces.
#[derive(Default)]
struct Collected {
    first: Option<Bytes>,
    rest: Vec<u8>,
}

impl Collected {
    /// Adds a piece; `false` when the whole would be larger than `limit`. `expected` is
    /// what the server announced.
    fn add(&mut self, piece: Bytes, expected: usize, limit: usize) -> bool {
        let held = self.first.as_ref().map_or(0, Bytes::len).max(self.rest.len());
        if held.saturating_add(piece.len()) > limit {
            return false;
        }
        match &self.first {
            None => self.first = Some(piece),
            Some(first) => {
                if self.rest.is_empty() {
                    self.rest.reserve(expected.min(limit).max(first.len() + piece.len()));
                    self.rest.extend_from_slice(first);
                }
                self.rest.extend_from_slice(&piece);
            }
        }
        true
    }

    fn whole(self) -> Bytes {
        if self.rest.is_empty() { self.first.unwrap_or_default() } else { self.rest.into() }
    }
}

async fn in_process(
    router: &Router,
    at: &Address,
    mut out: Outgoing<'_>,
) -> Result<Opened, Failure> {
    let refused = |error: http::Error| Failure::Connect(error.to_string());
    let path = uri(at, out.path)?.into_parts().path_and_query;
    let mut request = http::Request::builder()
        .method(out.method.clone())
        .uri(path.map_or_else(Uri::default, Uri::from))
        .header(header::HOST, at.authority())
        .body(Body::empty())
        .map_err(refused)?;
    out.write_headers(request.headers_mut());
    *request.body_mut() = out.form.take().map_or_else(Body::empty, Body::from);
    let Ok(response) = router.clone().oneshot(request).await;
    let (head, body) = response.into_parts();
    Ok(Opened {
        status: head.status.as_u16(),
        location: location(&head.headers),
        cookie: Cookie::read(&head.headers),
        body: body.map_err(|error| Failure::Connect(error.to_string())).boxed_unsync(),
    })
}

impl Failure {
    /// What happened, in words.
    pub(super) fn detail(self) -> String {
        match self {
            Self::Connect(detail) | Self::Tls(detail) | Self::Garbage(detail) => detail,
            Self::TooLarge => "it is too large".to_owned(),
            Self::Unaddressable(why) => why.to_string(),
        }
    }

    /// An error of the network in our words.
    fn of(error: &(dyn StdError + 'static)) -> Self {
        let mut detail = error.to_string();
        let mut tls = false;
        let mut cause = error.source();
        while let Some(inner) = cause {
            // An io error's source skips what the error itself wraps.
            let mut wrapped = Some(inner);
            while let Some(error) = wrapped {
                tls |= error.is::<rustls::Error>();
                let io = error.downcast_ref::<std::io::Error>();
                wrapped = io.and_then(|io| io.get_ref()).map(|inner| inner as _);
            }
            let text = inner.to_string();
            if !detail.ends_with(&text) {
                detail = format!("{detail}: {text}");
            }
            cause = inner.source();
        }
        if tls { Self::Tls(detail) } else { Self::Connect(detail) }
    }
}

#[cfg(test)]
mod tests;
