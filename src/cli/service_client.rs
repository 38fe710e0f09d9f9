//! How commands reach a running recliner.
//!
//! Owns the flags that say where it is and who asks, and one request with its answer taken
//! out of Prometheus's envelope. Knows no route: each command names its own, and the type of its
//! answer.

#![expect(clippy::doc_markdown, reason = "the flags' comments are printed, not rendered")]

use super::{CommandError, Exit, print_error, printable};
use crate::serve::report::{Failed, Success};
use clap::Args as Flags;
use couchdb_client::Address;
use reqwest::{
    Certificate, Client, ClientBuilder, Identity, RequestBuilder, Response, StatusCode, redirect,
    tls::Version,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// Where a recliner listens unless it is told otherwise.
pub(super) const DEFAULT_URL: &str = "http://127.0.0.1:10984";

/// The longest wait for a connection, and for a whole answer: an order waits until what it
/// ordered is safe in the journal.
const CONNECT: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(120);

/// The largest answer that is read: ten thousand targets, as many as a service gives at once,
/// take half of it.
const LONGEST: usize = 64 << 20;

/// The values that an answer holds at most: three letters make one, which takes a hundred bytes
/// once it is read.
const VALUES: usize = 4_000_000;

/// How a running recliner is reached.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct ServiceArgs {
    /// A running recliner [default: http://127.0.0.1:10984]
    #[arg(id = "recliner_url", long = "recliner.url", value_name = "URL")]
    pub(super) url: Option<String>,
    #[command(flatten)]
    pub(super) login: ServiceLogin,
}

/// Who asks a running recliner, and whom to trust.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct ServiceLogin {
    /// The user to ask a running recliner as, where it has users [or env: RECLINER_USER]
    #[arg(id = "recliner_username", long = "recliner.username", value_name = "USER")]
    username: Option<String>,
    /// A file that holds this user's password [or env: RECLINER_PASSWORD]
    #[arg(id = "recliner_password_file", long = "recliner.password-file", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The authorities to trust in an https URL, in PEM, and no others [default: the system's]
    #[arg(id = "recliner_ca_file", long = "recliner.ca-file", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A client certificate, in PEM, for a recliner that asks for one
    #[arg(
        id = "recliner_cert_file",
        long = "recliner.cert-file",
        value_name = "FILE",
        requires = "recliner_key_file"
    )]
    cert_file: Option<PathBuf>,
    /// Its private key, in PEM
    #[arg(
        id = "recliner_key_file",
        long = "recliner.key-file",
        value_name = "FILE",
        requires = "recliner_cert_file"
    )]
    key_file: Option<PathBuf>,
}

/// Asks one recliner.
#[derive(Debug)]
pub(super) struct ServiceClient {
    base: Address,
    /// What it is called in messages: its URL, or its Unix socket.
    name: String,
    client: Client,
    login: Option<(String, SecretString)>,
}

impl ServiceArgs {
    /// A client for the address that was given, else for the default one.
    ///
    /// # Errors
    /// When the address, the login or a file for TLS cannot be used: bad usage.
    pub(super) fn client(&self) -> Result<ServiceClient, CommandError> {
        match &self.url {
            Some(url) => self.login.client(url),
            None => self.login.default_client(),
        }
    }
}

impl ServiceLogin {
    /// A client for the address at which a recliner listens unless told otherwise, and a line that
    /// says so: nobody named it.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub(super) fn default_client(&self) -> Result<ServiceClient, CommandError> {
        let client = self.client(DEFAULT_URL)?;
        print_error(&format!("asking {}, the default of --recliner.url", client.base));
        Ok(client)
    }

    /// A client for `url`.
    ///
    /// # Errors
    /// When the address, the login or a file for TLS cannot be used: bad usage.
    pub(super) fn client(&self, url: &str) -> Result<ServiceClient, CommandError> {
        // The text is not repeated: it may hold a password.
        let base = url.parse::<Address>().map_err(|_| {
            CommandError::usage(format!(
                "--recliner.url is no URL of a recliner; write it without user and password, such as {DEFAULT_URL}"
            ))
        })?;
        let mut builder = builder();
        if let Some(path) = &self.ca_file {
            let pem = read("--recliner.ca-file", path)?;
            let authorities = Certificate::from_pem_bundle(&pem)
                .ok()
                .filter(|found| !found.is_empty())
                .ok_or_else(|| unusable("--recliner.ca-file", path, "no certificate in PEM"))?;
            builder = builder.tls_certs_only(authorities);
        }
        if let (Some(cert), Some(key)) = (&self.cert_file, &self.key_file) {
            let mut pem = read("--recliner.cert-file", cert)?;
            pem.push(b'\n');
            pem.extend(read("--recliner.key-file", key)?);
            let identity = Identity::from_pem(&pem).map_err(|_| {
                unusable("--recliner.cert-file", cert, "no certificate with its key in PEM")
            })?;
            builder = builder.identity(identity);
        }
        let client = builder.build().map_err(|why| {
            CommandError::usage(format!("cannot set up the client for {base}: {}", causes(&why)))
        })?;
        Ok(ServiceClient { name: base.to_string(), base, client, login: self.login()? })
    }

    /// The user by flag, else by environment; the password likewise, each on its own.
    fn login(&self) -> Result<Option<(String, SecretString)>, CommandError> {
        let env = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let password = match &self.password_file {
            Some(path) => {
                let bytes = read("--recliner.password-file", path)?;
                let text = String::from_utf8(bytes)
                    .map_err(|_| unusable("--recliner.password-file", path, "no UTF-8 text"))?;
                let password = text.trim_end_matches(['\r', '\n']);
                if password.is_empty() {
                    return Err(unusable("--recliner.password-file", path, "no password"));
                }
                Some(SecretString::from(password))
            }
            None => env("RECLINER_PASSWORD").map(SecretString::from),
        };
        match (self.username.clone().or_else(|| env("RECLINER_USER")), password) {
            (Some(user), _) if user.contains(':') || user.contains(char::is_control) => {
                Err(CommandError::usage(
                    "--recliner.username holds a colon or a control character, which no login can carry",
                ))
            }
            (Some(user), Some(password)) => Ok(Some((user, password))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(CommandError::usage(
                "there is a user, but no password; give --recliner.password-file or RECLINER_PASSWORD",
            )),
            (None, Some(_)) => Err(CommandError::usage(
                "there is a password, but no user; give --recliner.username or RECLINER_USER",
            )),
        }
    }
}

/// What every client is made of.
fn builder() -> ClientBuilder {
    Client::builder()
        .user_agent(concat!("recliner/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .http1_only()
        .tls_version_min(Version::TLS_1_2)
        .connect_timeout(CONNECT)
        .timeout(ANSWER)
}

impl ServiceClient {
    /// A client for the recliner that listens on a Unix socket. It needs no login: the kernel
    /// says who asks.
    ///
    /// # Errors
    /// When the library cannot be set up.
    pub(super) fn over_socket(path: &Path) -> Result<Self, CommandError> {
        let name = format!("the Unix socket {}", path.display());
        let failed = |why: &dyn std::fmt::Display| {
            CommandError::failed(format!("cannot set up the client for {name}: {why}"))
        };
        // No name is looked up for it.
        let base = "http://localhost".parse::<Address>().map_err(|why| failed(&why))?;
        let client = builder().unix_socket(path).build().map_err(|why| failed(&causes(&why)))?;
        Ok(Self { base, name, client, login: None })
    }

    /// The base URL that is asked.
    #[cfg(test)]
    pub(super) const fn base(&self) -> &Address {
        &self.base
    }

    /// The `data` of the answer to a GET of `path`, which begins with a slash.
    ///
    /// # Errors
    /// When there is no answer, or one that says why not. A question that the service calls
    /// bad is bad usage.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, CommandError> {
        let mut at = self.url(path)?;
        if !query.is_empty() {
            at.query_pairs_mut().extend_pairs(query);
        }
        let answer = self.send(self.client.get(at)).await?;
        self.data(answer).await
    }

    /// The `data` of the answer to a POST of `body` as JSON.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<T, CommandError> {
        let body = serde_json::to_vec(body).map_err(CommandError::failed)?;
        let request = self.client.post(self.url(path)?);
        let request = request.header("content-type", "application/json").body(body);
        let answer = self.send(request).await?;
        self.data(answer).await
    }

    fn url(&self, path: &str) -> Result<reqwest::Url, CommandError> {
        reqwest::Url::parse(&[self.base.as_str(), path].concat()).map_err(CommandError::usage)
    }

    async fn send(&self, mut request: RequestBuilder) -> Result<Response, CommandError> {
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password.expose_secret()));
        }
        request.send().await.map_err(|why| self.unanswered(&causes(&why)))
    }

    async fn data<T: DeserializeOwned>(&self, mut answer: Response) -> Result<T, CommandError> {
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(piece) =
            answer.chunk().await.map_err(|why| self.unanswered(&causes(&why)))?
        {
            if body.len().saturating_add(piece.len()) > LONGEST {
                return Err(self.too_large());
            }
            body.extend_from_slice(&piece);
        }
        if values(&body) > VALUES {
            return Err(self.too_large());
        }
        if status == StatusCode::UNAUTHORIZED {
            let says = match &self.login {
                None => {
                    "it wants a user; give --recliner.username and --recliner.password-file, or RECLINER_USER and RECLINER_PASSWORD"
                }
                Some(_) => "it refused the user or the password",
            };
            return Err(CommandError { is_transient: false, ..self.unanswered(says) });
        }
        let strange = |why: serde_json::Error| {
            self.unanswered(&if why.is_data() {
                format!("it answered {status} and not as recliner does: {why}")
            } else {
                format!("it answered {status} and no JSON of recliner's")
            })
        };
        if status.is_success() {
            let answer: Success<T> = serde_json::from_slice(&body).map_err(strange)?;
            return Ok(answer.data);
        }
        let failed: Failed = serde_json::from_slice(&body).map_err(strange)?;
        Err(refused(status, failed))
    }

    fn too_large(&self) -> CommandError {
        let why = "its answer is larger than any of recliner's; is that a recliner?";
        CommandError { is_transient: false, ..self.unanswered(why) }
    }

    fn unanswered(&self, why: &str) -> CommandError {
        let why = format!("cannot ask recliner at {}: {why}", self.name);
        CommandError { is_transient: true, ..CommandError::failed(why) }
    }
}

/// How many values a text of JSON has at most.
fn values(body: &[u8]) -> usize {
    body.iter().filter(|byte| b",[{".contains(byte)).count().saturating_add(1)
}

/// What the service refused, with the targets that a text may have meant.
fn refused(status: StatusCode, failed: Failed) -> CommandError {
    let exit = if status == StatusCode::BAD_REQUEST { Exit::Usage } else { Exit::Failed };
    let mut why = printable(&failed.error);
    for candidate in failed.data.iter().flat_map(|conflict| conflict.candidates()) {
        why.push_str(&format!("\n  {}", printable(candidate)));
    }
    CommandError { exit, why, conflict: failed.data, is_transient: status.is_server_error() }
}

fn read(flag: &str, path: &PathBuf) -> Result<Vec<u8>, CommandError> {
    fs::read(path).map_err(|why| {
        CommandError::usage(format!("{flag}={} cannot be read: {why}", path.display()))
    })
}

fn unusable(flag: &str, path: &Path, holds: &str) -> CommandError {
    CommandError::usage(format!("{flag}={} cannot be used: it holds {holds}", path.display()))
}

/// An error of the library with what caused it, in one line, without its URL.
fn causes(why: &reqwest::Error) -> String {
    let mut cause = std::error::Error::source(why);
    let mut last = None;
    while let Some(inner) = cause {
        last = Some(inner.to_string());
        cause = inner.source();
    }
    match last {
        // The innermost says it; the outer ones say that a request failed.
        Some(last) => last,
        None if why.is_timeout() => "it did not answer in time".to_owned(),
        None => why.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn no_json_has_more_values_than_are_counted() {
        fn all(value: &Value) -> usize {
            1 + match value {
                Value::Array(list) => list.iter().map(all).sum(),
                Value::Object(map) => map.values().map(all).sum(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
            }
        }
        for value in [
            json!(1),
            json!([]),
            json!([1, 2, [3, {}]]),
            json!({"a": {"b": [], "c": null}, "d": "x,y"}),
        ] {
            assert!(values(value.to_string().as_bytes()) >= all(&value), "{value}");
        }
    }
}
