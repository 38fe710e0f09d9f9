//! Questions over HTTP to what is no CouchDB: a Prometheus, another recliner.
//!
//! Owns the client that asks them, and the bound on what is read of an answer. Follows no
//! redirect and no proxy of the environment, because the settings name the server to ask. CouchDB has a
//! client of its own.

use reqwest::{Client, Response, redirect::Policy};
use std::time::Duration;

/// A client whose questions are answered within this time, or fail.
///
/// # Errors
/// When the HTTP library cannot be set up.
pub(crate) fn client(within: Duration) -> Result<Client, reqwest::Error> {
    Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .timeout(within)
        .user_agent(concat!("recliner/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// An answer's body of so many bytes at most.
///
/// # Errors
/// Says that it is longer, or how it broke off.
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

/// An error with what is behind it, and without the address, which may hold a password.
#[must_use]
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
