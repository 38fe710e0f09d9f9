//! How bytes reach a server: over the network, or in this process.

mod tls;

pub use tls::TlsError;

use super::{Address, Settings, Unaddressable, credential::Cookie};
use axum::{Router, body::Body};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::BodyExt as _;
use std::{error::Error as StdError, time::Duration};
use tower::ServiceExt as _;

/// Carries requests to servers.
#[derive(Clone, Debug)]
pub enum Transport {
    /// Over the network.
    Http(reqwest::Client),
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
    /// The HTTP library refused its settings.
    #[error("the HTTP client cannot be set up")]
    Http(#[source] reqwest::Error),
}

impl Transport {
    /// The network, with the trust, certificate and pool of `settings`.
    ///
    /// # Errors
    /// When a file of `tls` cannot be read or used.
    pub fn http(settings: &Settings) -> Result<Self, TransportError> {
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client_config(&settings.tls)?)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .http1_only()
            .gzip(true)
            .tcp_nodelay(true)
            .connect_timeout(settings.timeout.min(CONNECT))
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(settings.requests_in_flight.saturating_mul(2).max(8));
        builder = builder.user_agent(concat!("recliner/", env!("CARGO_PKG_VERSION")));
        builder.build().map(Self::Http).map_err(TransportError::Http)
    }
}

/// What goes out.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) path: &'a str,
    /// The header that shows the login.
    pub(super) login: Option<(HeaderName, HeaderValue)>,
    /// What is posted, in JSON; nothing is asked for with GET.
    pub(super) form: Option<Bytes>,
    /// The largest body to accept, in bytes.
    pub(super) limit: usize,
}

impl Outgoing<'_> {
    fn method(&self) -> Method {
        if self.form.is_some() { Method::POST } else { Method::GET }
    }

    fn write_headers(&self, headers: &mut HeaderMap) {
        if let Some((name, value)) = &self.login {
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

/// Why nothing came back.
#[derive(Debug)]
pub(super) enum Failure {
    Connect(String),
    Tls(String),
    Garbage(String),
    TooLarge,
    Unaddressable(Unaddressable),
}

/// The longest wait for a connection alone.
const CONNECT: Duration = Duration::from_secs(10);

/// Keeps idle connections for less than CouchDB does (mochiweb: five minutes).
const IDLE: Duration = Duration::from_secs(60);

impl Transport {
    /// Sends one request and reads the whole body that comes back.
    pub(super) async fn send(&self, at: &Address, out: Outgoing<'_>) -> Result<Reply, Failure> {
        match self {
            Self::Http(client) => over_the_network(client, at, out).await,
            Self::InProcess(router) => in_process(router, at, out).await,
        }
    }
}

/// Compares what the library would send with what was meant: it may fold or re-encode.
fn same(intended: &str, sent: &str) -> Result<(), Failure> {
    if intended == sent {
        return Ok(());
    }
    Err(Failure::Unaddressable(Unaddressable::Rewritten {
        intended: intended.to_owned(),
        sent: sent.to_owned(),
    }))
}

fn split(path: &str) -> (&str, Option<&str>) {
    path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)))
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

async fn over_the_network(
    client: &reqwest::Client,
    at: &Address,
    out: Outgoing<'_>,
) -> Result<Reply, Failure> {
    let url = reqwest::Url::parse(&[at.as_str(), out.path].concat())
        .map_err(|error| Failure::Connect(error.to_string()))?;
    let (only_path, query) = split(out.path);
    same(only_path, url.path().strip_prefix(at.prefix()).unwrap_or_default())?;
    same(query.unwrap_or_default(), url.query().unwrap_or_default())?;
    let mut request = reqwest::Request::new(out.method(), url);
    out.write_headers(request.headers_mut());
    let limit = out.limit;
    *request.body_mut() = out.form.map(reqwest::Body::from);
    let mut response = client.execute(request).await.map_err(Failure::of)?;
    let expected = response
        .content_length()
        .and_then(|length| usize::try_from(length).ok())
        .unwrap_or_default();
    if expected > limit {
        return Err(Failure::TooLarge);
    }
    let mut body = Collected::default();
    while let Some(piece) = response.chunk().await.map_err(Failure::of)? {
        if !body.add(piece, expected, limit) {
            return Err(Failure::TooLarge);
        }
    }
    Ok(Reply {
        status: response.status().as_u16(),
        location: location(response.headers()),
        cookie: Cookie::read(response.headers()),
        body: body.whole(),
    })
}

async fn in_process(
    router: &Router,
    at: &Address,
    mut out: Outgoing<'_>,
) -> Result<Reply, Failure> {
    let refused = |error: http::Error| Failure::Connect(error.to_string());
    let mut request = http::Request::builder()
        .method(out.method())
        .uri([at.prefix(), out.path].concat())
        .header(header::HOST, at.authority())
        .body(Body::empty())
        .map_err(refused)?;
    let (only_path, query) = split(out.path);
    same(only_path, request.uri().path().strip_prefix(at.prefix()).unwrap_or_default())?;
    same(query.unwrap_or_default(), request.uri().query().unwrap_or_default())?;
    out.write_headers(request.headers_mut());
    *request.body_mut() = out.form.take().map_or_else(Body::empty, Body::from);
    let Ok(response) = router.clone().oneshot(request).await;
    let (head, mut stream) = response.into_parts();
    let mut body = Collected::default();
    while let Some(frame) = stream.frame().await {
        let frame = frame.map_err(|error| Failure::Connect(error.to_string()))?;
        if let Ok(piece) = frame.into_data()
            && !body.add(piece, 0, out.limit)
        {
            return Err(Failure::TooLarge);
        }
    }
    Ok(Reply {
        status: head.status.as_u16(),
        location: location(&head.headers),
        cookie: Cookie::read(&head.headers),
        body: body.whole(),
    })
}

impl Failure {
    /// The library's error in our words, without its URL.
    fn of(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let mut detail = error.to_string();
        let mut garbled = false;
        let mut tls = false;
        let mut cause = error.source();
        while let Some(inner) = cause {
            // An io error's source skips what the error itself wraps.
            let mut wrapped = Some(inner);
            while let Some(error) = wrapped {
                tls |= error.is::<rustls::Error>();
                let io = error.downcast_ref::<std::io::Error>();
                garbled |= io.is_some_and(|io| io.kind() == std::io::ErrorKind::InvalidData);
                wrapped = io.and_then(|io| io.get_ref()).map(|inner| inner as _);
            }
            let text = inner.to_string();
            if !detail.ends_with(&text) {
                detail = format!("{detail}: {text}");
            }
            cause = inner.source();
        }
        if tls {
            Self::Tls(detail)
        } else if garbled {
            Self::Garbage(detail)
        } else {
            Self::Connect(detail)
        }
    }
}

#[cfg(test)]
mod tests;
