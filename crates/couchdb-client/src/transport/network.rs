//! Sends requests over TCP and TLS, and keeps connections open.

use super::{
    OutgoingRequest, Reply, SendFailure, StreamingReply, TransportError, gzip, location, read_body,
    tls, url,
};
use crate::{Address, CertificateEnds, ClientSettings, credential::Cookie};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::BodyExt as _;
use reqwest::{Body, Client, Request, redirect::Policy, retry};
use std::time::Duration;

/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle connections are closed before CouchDB closes them (mochiweb: five minutes).
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// A pool of connections. It follows no redirects and uses no proxy.
#[derive(Clone, Debug)]
pub(super) struct Network {
    client: Client,
    own_authorities: bool,
    ends: CertificateEnds,
}

impl Network {
    /// A pool with the trusted authorities, client certificate and size of `settings`.
    pub(super) fn new(settings: &ClientSettings, user_agent: &str) -> Result<Self, TransportError> {
        let (tls, own_authorities) = tls::client_config(&settings.tls, settings.uses_tls())?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .no_proxy()
            .redirect(Policy::none())
            .referer(false)
            // The client decides itself what may be sent again.
            .retry(retry::never())
            .user_agent(user_agent)
            .tcp_nodelay(true)
            .connect_timeout(settings.timeout.min(CONNECT_TIMEOUT))
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(settings.requests_in_flight.saturating_mul(2).max(8))
            .build()
            .map_err(|why| TransportError::Http(SendFailure::of(&why).detail()))?;
        let ends = CertificateEnds::read(&settings.tls);
        Ok(Self { client, own_authorities, ends })
    }

    pub(super) const fn proves_hosts(&self) -> bool {
        self.own_authorities
    }

    /// When the certificates in use expire.
    pub(super) const fn certificate_ends(&self) -> CertificateEnds {
        self.ends
    }

    pub(super) async fn send(
        &self,
        at: &Address,
        out: OutgoingRequest<'_>,
    ) -> Result<Reply, SendFailure> {
        let limit = out.limit;
        let response = self.request(at, out, Some("gzip")).await?;
        let announced = response.content_length().and_then(|length| usize::try_from(length).ok());
        let expected = announced.unwrap_or_default();
        if expected > limit {
            return Err(SendFailure::TooLarge);
        }
        let (head, body) = Response::from(response).into_parts();
        let body = body.map_err(|error| SendFailure::of(&error)).boxed_unsync();
        let mut body = read_body(body, expected, limit).await?;
        if is_gzip(&head.headers) {
            body = gzip::decompress(&body, limit)?;
        }
        Ok(Reply {
            status: head.status.as_u16(),
            location: location(&head.headers),
            cookie: Cookie::read(&head.headers),
            body,
        })
    }

    /// An answer that is read as it arrives. It must not be compressed, because a proxy that
    /// compresses holds data back.
    pub(super) async fn open(
        &self,
        at: &Address,
        out: OutgoingRequest<'_>,
    ) -> Result<StreamingReply, SendFailure> {
        let (head, body) = Response::from(self.request(at, out, None).await?).into_parts();
        if is_gzip(&head.headers) {
            return Err(SendFailure::Malformed(
                "it is compressed, although the request did not allow that".to_owned(),
            ));
        }
        Ok(StreamingReply {
            status: head.status.as_u16(),
            location: location(&head.headers),
            cookie: Cookie::read(&head.headers),
            body: body.map_err(|error| SendFailure::of(&error)).boxed_unsync(),
        })
    }

    async fn request(
        &self,
        at: &Address,
        out: OutgoingRequest<'_>,
        accepts: Option<&'static str>,
    ) -> Result<reqwest::Response, SendFailure> {
        let mut request = Request::new(out.method.clone(), url(at, out.path)?);
        let headers = request.headers_mut();
        if let Some(coding) = accepts {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(coding));
        }
        out.write_headers(headers);
        *request.body_mut() = out.form.map(Body::from);
        self.client.execute(request).await.map_err(|error| SendFailure::of(&error))
    }
}

fn is_gzip(headers: &HeaderMap) -> bool {
    let encoding = headers.get(header::CONTENT_ENCODING);
    encoding.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"))
}
