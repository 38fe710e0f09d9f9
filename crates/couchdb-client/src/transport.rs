//! Carries requests to a server: over the network, or to a service in this process.
//!
//! It follows no redirects and uses no proxy.

#[cfg(test)]
pub(super) mod authority;
mod gzip;
mod network;
mod pinned;
mod tls;

pub use tls::TlsError;

use super::{Address, CertificateEnds, ClientSettings, Unaddressable, credential::Cookie};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::ext;
use std::{convert::Infallible, error::Error as StdError, fmt, sync::Arc};
use tokio::sync::Semaphore;
use tower::{Service, ServiceExt as _, util::BoxCloneSyncService};
use url::Url;

/// Carries requests to servers.
#[derive(Clone, Debug)]
pub struct Transport {
    service: BoxCloneSyncService<Request, http::Response<BodyStream>, SendFailure>,
    user_agent: HeaderValue,
    own_authorities: bool,
    ends: CertificateEnds,
}

type Request = http::Request<Full<Bytes>>;

impl Transport {
    /// The network, with the trusted authorities, client certificate and pool size of `settings`. Every
    /// request carries `user_agent`.
    ///
    /// # Errors
    /// When a file of `tls` cannot be used, or `user_agent` is not a valid header value.
    pub fn http(settings: &ClientSettings, user_agent: &str) -> Result<Self, TransportError> {
        let (tls, own_authorities) = tls::client_config(&settings.tls, settings.uses_tls())?;
        let service = network::client(settings, tls).map_err(|error| SendFailure::of(&error));
        let user_agent = user_agent.parse()?;
        let ends = CertificateEnds::read(&settings.tls);
        let failed = |error: hyper::Error| SendFailure::of(&error);
        Ok(Self { own_authorities, ends, ..Self::new(service, failed, user_agent) })
    }

    /// Sends to a service in this process, such as an `axum` router, whatever the address; the
    /// service can tell servers apart by the `Host` header. It works on tokio's paused time.
    pub fn in_process<S, B>(service: S) -> Self
    where
        S: Service<Request, Response = http::Response<B>, Error = Infallible>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: fmt::Display,
    {
        let service = service.map_err(|never| match never {});
        let failed = |error: B::Error| SendFailure::Connect(error.to_string());
        Self::new(service, failed, HeaderValue::from_static("in-process"))
    }

    fn new<S, B>(
        service: S,
        failed: impl FnMut(B::Error) -> SendFailure + Clone + Send + Sync + 'static,
        user_agent: HeaderValue,
    ) -> Self
    where
        S: Service<Request, Response = http::Response<B>, Error = SendFailure>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
    {
        let service = service.map_response(move |response| {
            response.map(|body| body.map_err(failed.clone()).boxed_unsync())
        });
        let (own_authorities, ends) = (false, CertificateEnds::default());
        let service = BoxCloneSyncService::new(service);
        Self { service, user_agent, own_authorities, ends }
    }

    /// When the certificates in use expire.
    pub(super) const fn certificate_ends(&self) -> CertificateEnds {
        self.ends
    }
}

/// Why a transport cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The user agent is not a valid header value.
    #[error("the HTTP client cannot be set up: {0}")]
    Http(#[from] header::InvalidHeaderValue),
}

/// Maximum number of informational responses (1xx) before the final one. `hyper` reads any number
/// of them; CouchDB sends none.
const MAX_INFORMATIONAL: u32 = 16;

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
    // Not `http_body_util::Limited`: it stores each piece, and a server may send single bytes.
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
        self.own_authorities
    }

    /// Sends one request and reads the whole body that comes back.
    pub(super) async fn send(
        &self,
        at: &Address,
        out: OutgoingRequest<'_>,
    ) -> Result<Reply, SendFailure> {
        let limit = out.limit;
        let (head, body) = self.request(at, out, Some("gzip")).await?.into_parts();
        let announced = body.size_hint().exact();
        let announced = announced.and_then(|length| usize::try_from(length).ok());
        let expected = announced.unwrap_or_default();
        if expected > limit {
            return Err(SendFailure::TooLarge);
        }
        let mut body = read_body(body, expected, limit).await?;
        if gzip::is_gzip(&head.headers) {
            body = gzip::decompress(&body, limit)?;
        }
        Ok(Reply {
            status: head.status.as_u16(),
            location: location(&head.headers),
            cookie: Cookie::read(&head.headers),
            body,
        })
    }

    /// Sends one request whose body is read as it arrives. The body must not be compressed, because
    /// a compressing proxy delays data.
    pub(super) async fn open(
        &self,
        at: &Address,
        out: OutgoingRequest<'_>,
    ) -> Result<StreamingReply, SendFailure> {
        let (head, body) = self.request(at, out, None).await?.into_parts();
        if gzip::is_gzip(&head.headers) {
            return Err(SendFailure::Malformed(
                "it is compressed, although the request did not allow that".to_owned(),
            ));
        }
        Ok(StreamingReply {
            status: head.status.as_u16(),
            location: location(&head.headers),
            cookie: Cookie::read(&head.headers),
            body,
        })
    }

    async fn request(
        &self,
        at: &Address,
        out: OutgoingRequest<'_>,
        accepts: Option<&'static str>,
    ) -> Result<http::Response<BodyStream>, SendFailure> {
        let url = url(at, out.path)?;
        let mut request = http::Request::builder()
            .method(out.method.clone())
            .uri(url.as_str())
            // Without the scheme's default port, like `hyper`.
            .header(header::HOST, url.authority())
            .header(header::USER_AGENT, &self.user_agent)
            .header(header::ACCEPT, "*/*")
            .body(Full::default())
            .map_err(|error| SendFailure::of(&error))?;
        let headers = request.headers_mut();
        if let Some(coding) = accepts {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(coding));
        }
        out.write_headers(headers);
        *request.body_mut() = out.form.map(Full::new).unwrap_or_default();
        // One permit for each informational answer.
        let informational = Arc::new(Semaphore::new(0));
        let counted = Arc::clone(&informational);
        ext::on_informational(&mut request, move |_| counted.add_permits(1));
        // Dropping a request closes its connection.
        let answer = tokio::select! {
            answer = self.service.clone().oneshot(request) => Some(answer),
            _ = informational.acquire_many(MAX_INFORMATIONAL + 1) => None,
        };
        // The final response may have arrived together with the informational ones before it.
        match answer.filter(|_| informational.available_permits() <= MAX_INFORMATIONAL as usize) {
            Some(answer) => answer,
            None => Err(SendFailure::Malformed(
                "it keeps announcing an answer that never comes".to_owned(),
            )),
        }
    }
}

/// The URL of a request, or an error if it would have another path than intended.
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

    /// The causes of a library's error. The error of the connection pool is left out: its causes
    /// say more.
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
                if let Some(why) = by_tls.and_then(pinned::distrust) {
                    return Self::Tls(why.to_owned());
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
