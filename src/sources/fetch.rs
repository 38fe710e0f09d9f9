//! HTTP requests to servers other than CouchDB: a Prometheus, another recliner.
//!
//! Owns the client for them, and the limit on the size of a response. Follows no redirects and uses no
//! proxy from the environment, because the settings name the server to ask. CouchDB has its own client.

use couchdb_client::Tls;
use reqwest::{Certificate, Client, ClientBuilder, Identity, Response, redirect::Policy};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// The maximum size of a file with certificates or a key.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// A client whose requests fail unless they are answered within this time.
///
/// # Errors
/// If the HTTP library cannot be set up.
pub(crate) fn client(within: Duration) -> Result<Client, reqwest::Error> {
    build(|| builder(within))
}

/// The settings that all clients share.
pub(crate) fn builder(within: Duration) -> ClientBuilder {
    Client::builder()
        .no_proxy()
        .redirect(Policy::none())
        .timeout(within)
        .user_agent(concat!("recliner/", env!("CARGO_PKG_VERSION")))
}

/// The authorities to trust exclusively, and a client certificate.
#[derive(Default)]
pub(crate) struct TlsFiles {
    authorities: Option<Vec<Certificate>>,
    identity: Option<Identity>,
}

/// A file that cannot be used, and why.
pub(crate) struct UnusableFile {
    pub(crate) path: PathBuf,
    pub(crate) why: String,
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// The first file that cannot be used.
    pub(crate) fn read(tls: &Tls) -> Result<Self, UnusableFile> {
        let unusable = |path: &Path, why: &str| UnusableFile {
            path: path.to_owned(),
            why: format!("cannot be used: it contains {why}"),
        };
        let mut files = Self::default();
        if let Some(path) = &tls.ca_file {
            let found = Certificate::from_pem_bundle(&read_pem(path)?).ok();
            let found = found.filter(|it| !it.is_empty());
            files.authorities = Some(found.ok_or_else(|| unusable(path, "no PEM certificate"))?);
        }
        if let (Some(cert), Some(key)) = (&tls.cert_file, &tls.key_file) {
            let pem = [read_pem(cert)?, read_pem(key)?].join(&b'\n');
            files.identity = Some(
                Identity::from_pem(&pem)
                    .map_err(|_| unusable(cert, "no PEM certificate with its key"))?,
            );
        }
        Ok(files)
    }

    /// Applies the files to a client under construction.
    pub(crate) fn apply(&self, builder: ClientBuilder) -> ClientBuilder {
        let builder = match &self.authorities {
            Some(authorities) => builder.tls_certs_only(authorities.clone()),
            None => builder,
        };
        match &self.identity {
            Some(identity) => builder.identity(identity.clone()),
            None => builder,
        }
    }
}

fn read_pem(path: &Path) -> Result<Vec<u8>, UnusableFile> {
    named_file::read_at_most(path, MAX_PEM_BYTES).map_err(|why| UnusableFile {
        path: path.to_owned(),
        why: format!("cannot be read: {why}"),
    })
}

/// Builds the client. On a system without certificate authorities, such as an empty container, it
/// trusts none: http works, and https fails with the reason.
///
/// # Errors
/// If the HTTP library cannot be set up.
pub(crate) fn build(builder: impl Fn() -> ClientBuilder) -> Result<Client, reqwest::Error> {
    builder().build().or_else(|_| builder().tls_certs_only([]).build())
}

/// The body of a response, up to `longest` bytes.
///
/// # Errors
/// If it is longer, or ends early.
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

/// Why a request failed, without its address, which may contain a password: the innermost cause, because the outer
/// ones only say that it failed.
pub(crate) fn describe(error: reqwest::Error) -> String {
    if error.is_timeout() {
        return "it did not answer in time".to_owned();
    }
    let error = error.without_url();
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string()
}
