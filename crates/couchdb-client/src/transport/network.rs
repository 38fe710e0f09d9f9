//! Sends requests over TCP and TLS, and keeps connections open.

use super::{
    OutgoingRequest, Reply, SendFailure, StreamingReply, TransportError, gzip, location, read_body,
    tls, url,
};
use crate::{Address, CertificateEnds, ClientSettings, credential::Cookie};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, ext};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use std::{sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle connections are closed before CouchDB closes them (mochiweb: five minutes).
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How often the system asks whether the other end of a silent connection is still there.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// So many answers may say that the answer is still to come (1xx); CouchDB sends none.
const MAX_INFORMATIONAL: u32 = 16;

/// A pool of connections. It follows no redirects and uses no proxy.
#[derive(Clone, Debug)]
pub(super) struct Network {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    user_agent: HeaderValue,
    own_authorities: bool,
    ends: CertificateEnds,
}

impl Network {
    /// A pool with the trusted authorities, client certificate and size of `settings`.
    pub(super) fn new(settings: &ClientSettings, user_agent: &str) -> Result<Self, TransportError> {
        let (tls, own_authorities) = tls::client_config(&settings.tls, settings.uses_tls())?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(settings.timeout.min(CONNECT_TIMEOUT)));
        tcp.set_keepalive(Some(KEEPALIVE));
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(settings.requests_in_flight.saturating_mul(2).max(8))
            .build(connector.enable_http1().wrap_connector(tcp));
        let ends = CertificateEnds::read(&settings.tls);
        Ok(Self { client, user_agent: user_agent.parse()?, own_authorities, ends })
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
        let announced = response.body().size_hint().exact();
        let announced = announced.and_then(|length| usize::try_from(length).ok());
        let expected = announced.unwrap_or_default();
        if expected > limit {
            return Err(SendFailure::TooLarge);
        }
        let (head, body) = response.into_parts();
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
        let (head, body) = self.request(at, out, None).await?.into_parts();
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
    ) -> Result<Response<Incoming>, SendFailure> {
        let mut request = http::Request::builder()
            .method(out.method.clone())
            .uri(url(at, out.path)?.as_str())
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
        // One permit for each.
        let informational = Arc::new(Semaphore::new(0));
        let counted = Arc::clone(&informational);
        ext::on_informational(&mut request, move |_| counted.add_permits(1));
        // A request that is given up closes its connection.
        let answer = tokio::select! {
            answer = self.client.request(request) => Some(answer),
            _ = informational.acquire_many(MAX_INFORMATIONAL + 1) => None,
        };
        // The answer may have come in one piece with all that was said before it.
        match answer.filter(|_| informational.available_permits() <= MAX_INFORMATIONAL as usize) {
            Some(answer) => answer.map_err(|error| SendFailure::of(&error)),
            None => Err(SendFailure::Malformed(
                "it only says, again and again, that the answer is still to come".to_owned(),
            )),
        }
    }
}

fn is_gzip(headers: &HeaderMap) -> bool {
    let encoding = headers.get(header::CONTENT_ENCODING);
    encoding.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"))
}
