//! Carries requests to a server: over the network, or to a service in this process.

#[cfg(test)]
pub(super) mod authority;
mod gzip;
mod network;
mod pinned;
mod tls;

use network::Network;
pub use tls::TlsError;

use super::{Address, CertificateEnds, ClientSettings, Unaddressable, credential::Cookie};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use std::{convert::Infallible, error::Error as StdError, fmt};
use tower::{Service, ServiceExt as _, util::BoxCloneSyncService};
use url::Url;

/// Carries requests to servers.
#[derive(Clone, Debug)]
pub struct Transport(Carrier);

#[derive(Clone, Debug)]
enum Carrier {
    Network(Network),
    InProcess(InProcess),
}

/// A service that answers in this process.
#[derive(Clone)]
struct InProcess(
    BoxCloneSyncService<http::Request<Full<Bytes>>, http::Response<BodyStream>, Infallible>,
);

impl fmt::Debug for InProcess {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("InProcess")
    }
}

impl Transport {
    /// The network, with the trusted authorities, client certificate and pool size of `settings`. Every
    /// request carries `user_agent`.
    ///
    /// # Errors
    /// When a file of `tls` cannot be used, or `user_agent` is no value of a header.
    pub fn http(settings: &ClientSettings, user_agent: &str) -> Result<Self, TransportError> {
        Network::new(settings, user_agent).map(Carrier::Network).map(Self)
    }

    /// To a service in this process, such as an `axum` router, whatever the address; it can tell
    /// servers apart by the `Host` header. It works on tokio's paused time.
    pub fn in_process<S, B>(service: S) -> Self
    where
        S: Service<http::Request<Full<Bytes>>, Response = http::Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: fmt::Display,
    {
        let boxed =
            |body: B| body.map_err(|error| SendFailure::Connect(error.to_string())).boxed_unsync();
        let service = service.map_response(move |response| response.map(boxed));
        Self(Carrier::InProcess(InProcess(BoxCloneSyncService::new(service))))
    }

    /// When the certificates in use expire.
    pub(super) fn certificate_ends(&self) -> CertificateEnds {
        match &self.0 {
            Carrier::Network(network) => network.certificate_ends(),
            Carrier::InProcess(_) => CertificateEnds::default(),
        }
    }
}

/// Why a transport cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The name of the program is no value of a header.
    #[error("the HTTP client cannot be set up: {0}")]
    Http(#[from] header::InvalidHeaderValue),
}

/// A request to send.
#[derive(Debug)]
pub(super) struct OutgoingRequest<'a> {
    pub(super) method: Method,
    pub(super) path: &'a str,
    /// The header that carries the login.
    pub(super) login: Option<(HeaderName, HeaderValue)>,
    /// A header that the route needs.
    pub(super) header: Option<(HeaderName, HeaderValue)>,
    /// The JSON body.
    pub(super) form: Option<Bytes>,
    /// The largest body to accept, in bytes.
    pub(super) limit: usize,
}

impl OutgoingRequest<'_> {
    fn write_headers(&self, headers: &mut HeaderMap) {
        for (name, value) in self.login.iter().chain(&self.header) {
            headers.insert(name.clone(), value.clone());
        }
        if self.form.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
    }
}

/// A complete answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    /// The cookie of a session that begins or is renewed.
    pub(super) cookie: Option<Cookie>,
    pub(super) body: Bytes,
}

/// An answer whose body is still arriving.
#[derive(Debug)]
pub(super) struct StreamingReply {
    pub(super) status: u16,
    pub(super) location: Option<String>,
    pub(super) cookie: Option<Cookie>,
    pub(super) body: BodyStream,
}

/// A body that is still arriving.
pub(super) type BodyStream = UnsyncBoxBody<Bytes, SendFailure>;

/// Reads a body to its end, at most `limit` bytes; `expected` is the size that the server
/// announced.
pub(super) async fn read_body(
    mut body: BodyStream,
    expected: usize,
    limit: usize,
) -> Result<Bytes, SendFailure> {
    let mut whole = BytesMut::new();
    // Not `http_body_util::Limited`: it keeps each piece, and a server may send single bytes.
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame?.into_data() else { continue };
        if whole.len().saturating_add(piece.len()) > limit {
            return Err(SendFailure::TooLarge);
        }
        if whole.is_empty() {
            whole.reserve(expected.min(limit).max(piece.len()));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum SendFailure {
    Connect(String),
    Tls(String),
    Malformed(String),
    TooLarge,
    Unaddressable(Unaddressable),
}

impl Transport {
    /// Whether TLS proves the identity of hosts under the operator's own authorities. Public
    /// authorities would certify any host for the owner of its domain.
    pub(super) const fn proves_hosts(&self) -> bool {
        match &self.0 {
            Carrier::Network(network) => network.proves_hosts(),
            Carrier::InProcess(_) => false,
        }
    }

    /// Sends one request and reads the whole body that comes back.
    pub(super) async fn send(
        &self,
        at: &Address,
        out: OutgoingRequest<'_>,
    ) -> Result<Reply, SendFailure> {
        match &self.0 {
            Carrier::Network(network) => network.send(at, out).await,
            Carrier::InProcess(service) => {
                let limit = out.limit;
                let StreamingReply { status, location, cookie, body } =
                    service.open(at, out).await?;
                Ok(Reply { status, location, cookie, body: read_body(body, 0, limit).await? })
            }
        }
    }

    /// Sends one request whose body is read as it arrives.
    pub(super) async fn open(
        &self,
        at: &Address,
        out: OutgoingRequest<'_>,
    ) -> Result<StreamingReply, SendFailure> {
        match &self.0 {
            Carrier::Network(network) => network.open(at, out).await,
            Carrier::InProcess(service) => service.open(at, out).await,
        }
    }
}

/// The URL of a request, unless it would carry another path than the intended one.
fn url(at: &Address, path: &str) -> Result<Url, SendFailure> {
    let bytes = at.prefix().len() + path.len();
    if bytes > Unaddressable::MAX_BYTES {
        return Err(SendFailure::Unaddressable(Unaddressable::TooLong { bytes }));
    }
    at.url(path).map_err(|sent| {
        let intended = path.to_owned();
        SendFailure::Unaddressable(Unaddressable::Rewritten { intended, sent })
    })
}

fn location(headers: &HeaderMap) -> Option<String> {
    headers.get(header::LOCATION)?.to_str().ok().map(str::to_owned)
}

impl InProcess {
    async fn open(
        &self,
        at: &Address,
        mut out: OutgoingRequest<'_>,
    ) -> Result<StreamingReply, SendFailure> {
        let refused = |error: http::Error| SendFailure::Connect(error.to_string());
        url(at, out.path)?;
        let mut request = http::Request::builder()
            .method(out.method.clone())
            .uri(format!("{}{}", at.prefix(), out.path))
            .header(header::HOST, at.authority())
            .body(Full::default())
            .map_err(refused)?;
        out.write_headers(request.headers_mut());
        *request.body_mut() = out.form.take().map_or_else(Full::default, Full::new);
        let Ok(response) = self.0.clone().oneshot(request).await;
        let (head, body) = response.into_parts();
        Ok(StreamingReply {
            status: head.status.as_u16(),
            location: location(&head.headers),
            cookie: Cookie::read(&head.headers),
            body,
        })
    }
}

/// How an answer in plain HTTP looks to the TLS library.
const NOT_TLS: rustls::Error =
    rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);

impl SendFailure {
    /// What happened, for messages.
    pub(super) fn detail(self) -> String {
        match self {
            Self::Connect(detail) | Self::Tls(detail) | Self::Malformed(detail) => detail,
            Self::TooLarge => "it is too large".to_owned(),
            Self::Unaddressable(why) => why.to_string(),
        }
    }

    /// The causes of a library's error. That of the pool of connections says nothing that the rest does not.
    fn of(error: &(dyn StdError + 'static)) -> Self {
        let pool = error.to_string().starts_with("client error (");
        let mut cause = error.source().filter(|_| pool).or(Some(error));
        let mut detail = cause.map(ToString::to_string).unwrap_or_default();
        let mut tls = false;
        while let Some(inner) = cause {
            // The source of an io error skips the error that it wraps.
            let mut wrapped = Some(inner);
            while let Some(error) = wrapped {
                let by_tls = error.downcast_ref::<rustls::Error>();
                if by_tls.is_some_and(|error| *error == NOT_TLS) {
                    return Self::Connect("the server does not speak TLS there".to_owned());
                }
                tls |= by_tls.is_some();
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
