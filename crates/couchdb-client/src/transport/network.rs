//! A pool of connections over TCP and TLS.

use crate::ClientSettings;
use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::ClientConfig;
use std::time::Duration;

/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle connections are closed before CouchDB closes them (mochiweb: five minutes).
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How often the operating system checks that the other end of a silent connection still exists.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// A pool of the size that `settings` demand.
pub(super) fn client(
    settings: &ClientSettings,
    tls: ClientConfig,
) -> Client<HttpsConnector<HttpConnector>, Full<Bytes>> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(settings.timeout.min(CONNECT_TIMEOUT)));
    tcp.set_keepalive(Some(KEEPALIVE));
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(settings.requests_in_flight.saturating_mul(2).max(8))
        .build(connector.enable_http1().wrap_connector(tcp))
}
