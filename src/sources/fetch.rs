//! HTTP requests to servers other than CouchDB: a Prometheus, another recliner.
//!
//! Owns the client for them, and the limit on the size of a response. Follows no redirects and uses no
//! proxy from the environment, because the settings name the server to ask. CouchDB has its own client.

use reqwest::{Client, ClientBuilder, Response, redirect::Policy};
use std::time::Duration;

/// A client whose requests are answered within this time, or fail.
///
/// # Errors
/// If the HTTP library cannot be set up.
pub(crate) fn client(within: Duration) -> Result<Client, reqwest::Error> {
    build(|| {
        Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .timeout(within)
            .user_agent(concat!("recliner/", env!("CARGO_PKG_VERSION")))
    })
}

/// The client of a builder. On a system without certificate authorities, such as an empty container,
/// it trusts none: http works, and https fails with the reason.
///
/// # Errors
/// If the HTTP library cannot be set up.
pub(crate) fn build(builder: impl Fn() -> ClientBuilder) -> Result<Client, reqwest::Error> {
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}

/// The body of a response, up to this many bytes.
///
/// # Errors
/// If it is longer, or breaks off.
pub(crate) async fn read_body(mut answer: Response, longest: usize) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    while let Some(piece) = answer.chunk().await.map_err(describe)? {
        if body.len() + piece.len() > longest {
            return Err(format!("its answer is larger than {longest} bytes"));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// An error with its causes, without the address, which may contain a password.
pub(crate) fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
