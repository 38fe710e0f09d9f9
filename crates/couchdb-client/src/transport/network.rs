//! Requests over TCP and TLS, on connections that are kept.

use super::{
    Failure, Opened, Outgoing, Reply, TransportError, collected, gzip, location, tls, uri,
};
use crate::{Address, CertificateEnds, Settings, credential::Cookie};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use std::time::Duration;

/// The longest wait for a connection alone.
const CONNECT: Duration = Duration::from_secs(10);

/// Keeps idle connections for less than CouchDB does (mochiweb: five minutes).
const IDLE: Duration = Duration::from_secs(60);

/// A pool of connections. It follows no redirect and asks no proxy.
#[derive(Clone, Debug)]
pub struct Network {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    own_authorities: bool,
    ends: CertificateEnds,
}

impl Network {
    /// The trust, certificate and pool of `settings`.
    pub(super) fn new(settings: &Settings) -> Result<Self, TransportError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(settings.timeout.min(CONNECT)));
        let (tls, own_authorities) = tls::client_config(&settings.tls, settings.uses_tls())?;
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(settings.requests_in_flight.saturating_mul(2).max(8))
            .build(connector);
        let ends = CertificateEnds::read(&settings.tls);
        Ok(Self { client, own_authorities, ends })
    }

    pub(super) const fn proves_hosts(&self) -> bool {
        self.own_authorities
    }

    /// When the certificates in use end.
    pub(super) const fn certificate_ends(&self) -> CertificateEnds {
        self.ends
    }

    pub(super) async fn send(&self, at: &Address, out: Outgoing<'_>) -> Result<Reply, Failure> {
        let limit = out.limit;
        let (head, body) = self.request(at, out, Some("gzip")).await?.into_parts();
        let expected = body.size_hint().exact().and_then(|length| usize::try_from(length).ok());
        let expected = expected.unwrap_or_default();
        if expected > limit {
            return Err(Failure::TooLarge);
        }
        let body = body.map_err(|error| Failure::of(&error)).boxed_unsync();
        let mut body = collected(body, expected, limit).await?;
        if is_packed(&head.headers) {
            body = gzip::unpacked(&body, limit)?;
        }
        Ok(Reply {
            status: head.status.as_u16(),
            location: location(&head.headers),
            cookie: Cookie::read(&head.headers),
            body,
        })
    }

    /// An answer that is read as it comes; nothing is to pack it on the way, for who packs
    /// waits for more.
    pub(super) async fn open(&self, at: &Address, out: Outgoing<'_>) -> Result<Opened, Failure> {
        let (head, body) = self.request(at, out, None).await?.into_parts();
        if is_packed(&head.headers) {
            return Err(Failure::Garbage("it is compressed, which nobody asked for".to_owned()));
        }
        Ok(Opened {
            status: head.status.as_u16(),
            location: location(&head.headers),
            cookie: Cookie::read(&head.headers),
            body: body.map_err(|error| Failure::of(&error)).boxed_unsync(),
        })
    }

    async fn request(
        &self,
        at: &Address,
        out: Outgoing<'_>,
        accepts: Option<&'static str>,
    ) -> Result<Response<Incoming>, Failure> {
        const AGENT: &str = concat!("recliner/", env!("CARGO_PKG_VERSION"));
        let mut request = Request::new(Full::default());
        *request.method_mut() = out.method.clone();
        *request.uri_mut() = uri(at, out.path)?;
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, HeaderValue::from_static(AGENT));
        if let Some(coding) = accepts {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(coding));
        }
        out.write_headers(headers);
        if let Some(form) = out.form {
            *request.body_mut() = Full::new(form);
        }
        self.client.request(request).await.map_err(|error| Failure::of(&error))
    }
}

fn is_packed(headers: &HeaderMap) -> bool {
    let encoding = headers.get(header::CONTENT_ENCODING);
    encoding.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"))
}
