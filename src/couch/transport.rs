//! How bytes reach a server: over the network, or in this process.

mod tls;

pub use tls::TlsError;

use super::Settings;
use axum::Router;

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
            .connect_timeout(settings.timeout)
            .pool_max_idle_per_host(settings.requests_in_flight.saturating_mul(2).max(8));
        builder = builder.user_agent(concat!("recliner/", env!("CARGO_PKG_VERSION")));
        builder.build().map(Self::Http).map_err(TransportError::Http)
    }
}
