//! The client with which commands reach a running recliner.
//!
//! Owns the flags for its address and login. Sends one request and unwraps the response from
//! Prometheus's envelope. Knows no routes: each command has its own, with the type of the response.

#![expect(clippy::doc_markdown, reason = "the flags' comments are printed, not rendered")]

use super::{CommandError, Exit, print_error, printable};
use crate::{
    serve::report::{CLUSTER_HEADER, Failed, Success},
    sources::fetch,
};
use bytes::Bytes;
use clap::Args as Flags;
use couchdb_client::{Address, Tls};
use reqwest::{
    Client, ClientBuilder, RequestBuilder, Response, StatusCode, redirect, tls::Version,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::time::{self, Instant};

/// Maximum size of a file with a password.
const MAX_PASSWORD_BYTES: u64 = 64 << 10;

pub(super) const DEFAULT_URL: &str = "http://127.0.0.1:10984";

/// The maximum wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// The maximum wait for a complete response, because the service answers an order only once its effect is in the
/// journal: longer than it takes itself.
const ANSWER: Duration = Duration::from_secs(120);

/// The maximum wait for a response that needs many simulations of a large cluster: the service starts simulating
/// within 30 seconds, and gives up after five minutes.
pub(super) const WORK: Duration = Duration::from_secs(340);

/// The maximum wait for a complete file: the service first copies its journal, then sends the copy
/// for up to ten minutes.
const DOWNLOAD: Duration = Duration::from_secs(1_200);

/// The maximum wait for the head of a response to a GET, which a service sends at once; and to a GET that
/// waits for an event, a little longer than the service waits. While a longer answer is being prepared, the
/// service must answer another GET within `HEAD`.
const HEAD: Duration = Duration::from_secs(10);
const HEAD_WITH_EVENT: Duration = Duration::from_secs(35);

/// A response must bring `PIECE_BYTES` within this time or end: a server that sends more slowly is not a recliner.
const PIECE_TIME: Duration = Duration::from_secs(15);
const PIECE_BYTES: usize = 16 << 10;

/// The maximum size of a response, twice the largest page of a service (ten thousand targets).
const LONGEST: usize = 64 << 20;

/// The maximum number of values in a response: a value may need only three bytes of JSON, but a
/// hundred bytes in memory.
const VALUES: usize = 4_000_000;

/// Maximum number of candidates listed for an ambiguous name.
const MAX_CANDIDATES: usize = 10;

/// How a running recliner is reached.
#[derive(Clone, Debug, Default, Flags)]
pub(super) struct ServiceArgs {
    /// The URL of a running recliner [default: RECLINER_URL, else http://127.0.0.1:10984]
    #[arg(
        id = "recliner_url",
        long = "recliner.url",
        value_name = "URL",
        help_heading = "Connection"
    )]
    pub(super) url: Option<String>,
    #[command(flatten)]
    pub(super) login: ServiceLogin,
}

/// The login for a running recliner, and the trusted authorities.
#[derive(Clone, Debug, Default, Flags)]
#[command(next_help_heading = "Connection")]
pub(super) struct ServiceLogin {
    /// The user to log in as, if the recliner has users [or env: RECLINER_USER]
    #[arg(id = "recliner_username", long = "recliner.username", value_name = "USER")]
    username: Option<String>,
    /// A file with this user's password; the variable holds the password itself [or env:
    /// RECLINER_PASSWORD]
    #[arg(id = "recliner_password_file", long = "recliner.password-file", value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// CA certificates to trust for an https URL, in PEM [default: the system's]
    #[arg(id = "recliner_ca_file", long = "recliner.ca-file", value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// A client certificate in PEM, if the recliner requires one
    #[arg(
        id = "recliner_cert_file",
        long = "recliner.cert-file",
        value_name = "FILE",
        requires = "recliner_key_file"
    )]
    cert_file: Option<PathBuf>,
    /// The client certificate's private key, in PEM
    #[arg(
        id = "recliner_key_file",
        long = "recliner.key-file",
        value_name = "FILE",
        requires = "recliner_cert_file"
    )]
    key_file: Option<PathBuf>,
}

#[derive(Debug)]
pub(super) struct ServiceClient {
    base: Address,
    /// Name of the recliner in messages: its URL or its Unix socket.
    name: String,
    client: Client,
    login: Option<(String, SecretString)>,
    /// Whether this recliner was chosen only because no CouchDB was named.
    is_fallback: bool,
    /// Whether it has answered before: the first answer names its cluster.
    has_answered: AtomicBool,
}

pub(super) fn url_in_environment() -> Option<String> {
    std::env::var("RECLINER_URL").ok().filter(|url| !url.is_empty())
}

impl ServiceArgs {
    /// Each flag that was given, with its value.
    pub(super) fn for_each_named(&self, add: &mut impl FnMut(&str, &str)) {
        let Self { url, login } = self;
        for (name, value) in [("--recliner.url", url), ("--recliner.username", &login.username)] {
            value.iter().for_each(|value| add(name, value));
        }
        for (name, file) in login.files() {
            file.iter().for_each(|file| add(name, &file.display().to_string()));
        }
    }

    /// A client for the given address, otherwise for the default one.
    ///
    /// # Errors
    /// If the address, the login or a TLS file cannot be used.
    pub(super) fn client(&self) -> Result<ServiceClient, CommandError> {
        match &self.url {
            Some(url) => self.login.client(url),
            None => self.login.default_client(),
        }
    }
}

impl ServiceLogin {
    /// The flags that name files, with those for TLS last.
    const fn files(&self) -> [(&'static str, &Option<PathBuf>); 4] {
        [
            ("--recliner.password-file", &self.password_file),
            ("--recliner.ca-file", &self.ca_file),
            ("--recliner.cert-file", &self.cert_file),
            ("--recliner.key-file", &self.key_file),
        ]
    }

    /// A client for the address in the environment, otherwise for the default one; prints a note that
    /// says which, because no flag named one.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub(super) fn default_client(&self) -> Result<ServiceClient, CommandError> {
        let named = url_in_environment();
        let client = self.client(named.as_deref().unwrap_or(DEFAULT_URL))?;
        let origin = if named.is_some() { "RECLINER_URL" } else { "the default of --recliner.url" };
        print_error(&format!("asking {}, {origin}", client.base));
        Ok(client)
    }

    /// A client for `url`.
    ///
    /// # Errors
    /// If the address, the login or a TLS file cannot be used.
    pub(super) fn client(&self, url: &str) -> Result<ServiceClient, CommandError> {
        // The text is not repeated, because it may contain a password.
        let base = url.parse::<Address>().map_err(|_| {
            CommandError::usage(format!(
                "--recliner.url or RECLINER_URL is not a URL of a recliner; write it without user and password, such as {DEFAULT_URL}"
            ))
        })?;
        let files = Tls {
            ca_file: self.ca_file.clone(),
            cert_file: self.cert_file.clone(),
            key_file: self.key_file.clone(),
        };
        let files = fetch::TlsFiles::read(&files).map_err(|unusable| {
            let [_, tls @ ..] = self.files();
            let names = |(_, path): &&(_, &Option<PathBuf>)| path.as_ref() == Some(&unusable.path);
            let flag = tls.iter().find(names).map_or("", |(flag, _)| flag);
            CommandError::usage(format!("{flag}={} {}", unusable.path.display(), unusable.why))
        })?;
        let with_files = || files.apply(builder());
        let client = fetch::build(with_files).map_err(|why| {
            CommandError::usage(format!(
                "cannot set up the client for {base}: {}",
                fetch::describe(why)
            ))
        })?;
        let (name, login) = (base.to_string(), self.login()?);
        let has_answered = AtomicBool::new(false);
        Ok(ServiceClient { name, base, client, login, is_fallback: false, has_answered })
    }

    /// The user and the password, each from its flag, otherwise from the environment.
    fn login(&self) -> Result<Option<(String, SecretString)>, CommandError> {
        let env = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let password = match &self.password_file {
            Some(path) => {
                let read = named_file::read_secret(path, MAX_PASSWORD_BYTES);
                Some(read.map_err(|why| {
                    let path = path.display();
                    let why = format!("--recliner.password-file={path} cannot be read: {why}");
                    CommandError::usage(why)
                })?)
            }
            None => env("RECLINER_PASSWORD"),
        };
        let password = password.map(SecretString::from);
        match (self.username.clone().or_else(|| env("RECLINER_USER")), password) {
            (Some(user), _) if user.contains(':') || user.contains(char::is_control) => {
                Err(CommandError::usage(
                    "--recliner.username has a colon or a control character, which HTTP logins cannot carry",
                ))
            }
            (Some(user), Some(password)) => Ok(Some((user, password))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(CommandError::usage(
                "a user is given without a password; give --recliner.password-file or RECLINER_PASSWORD",
            )),
            (None, Some(_)) => Err(CommandError::usage(
                "a password is given without a user; give --recliner.username or RECLINER_USER",
            )),
        }
    }
}

/// The settings that all clients share.
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
    /// A client for the recliner that listens on a Unix socket. No login is needed: the kernel
    /// tells the service which user connects.
    ///
    /// # Errors
    /// If the library cannot be set up.
    pub(super) fn over_socket(path: &Path) -> Result<Self, CommandError> {
        let name = format!("the Unix socket {}", path.display());
        let failed = |why: &dyn std::fmt::Display| {
            CommandError::failed(format!("cannot set up the client for {name}: {why}"))
        };
        // The host name is a placeholder and is never resolved.
        let base = "http://localhost".parse::<Address>().map_err(|why| failed(&why))?;
        let client = fetch::build(|| builder().unix_socket(path));
        let client = client.map_err(|why| failed(&fetch::describe(why)))?;
        let (login, has_answered) = (None, AtomicBool::new(false));
        Ok(Self { base, name, client, login, is_fallback: false, has_answered })
    }

    /// The base URL of requests.
    #[cfg(test)]
    pub(super) const fn base(&self) -> &Address {
        &self.base
    }

    /// The same client, whose errors say that no CouchDB was named if it cannot be reached.
    pub(super) const fn into_fallback(mut self) -> Self {
        self.is_fallback = true;
        self
    }

    /// The service's name in messages: its URL or its Unix socket.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The `data` of the response to a GET of `path`, which begins with a slash.
    ///
    /// # Errors
    /// If there is no response, or an error response. A request that the service considers invalid
    /// is bad usage.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<T, CommandError> {
        let mut at = self.url(path)?;
        if !query.is_empty() {
            at.query_pairs_mut().extend_pairs(query);
        }
        let waits = query.iter().any(|(key, _)| *key == "wait");
        let head = if waits { HEAD_WITH_EVENT } else { HEAD };
        self.head_within(head, self.client.get(at)).await?.data().await
    }

    /// Sends a request and waits at most this long for the head of its response. While it waits, the service
    /// must keep answering health checks. This is the only rule for how long a command waits.
    async fn head_within(
        &self,
        head: Duration,
        request: RequestBuilder,
    ) -> Result<Answer<'_>, CommandError> {
        let begun = time::timeout(head, self.send(request));
        let response = tokio::select! {
            begun = begun => begun.unwrap_or_else(|_| Err(self.unbegun(head))),
            silent = self.until_silent() => Err(silent),
        };
        Ok(Answer { client: self, response: response?, patience: PIECE_TIME, piece: 0 })
    }

    /// Completes once the service no longer answers health checks.
    async fn until_silent(&self) -> CommandError {
        loop {
            time::sleep(HEAD).await;
            let asked = match self.url("/-/healthy") {
                Ok(url) => time::timeout(HEAD, self.send(self.client.get(url))).await,
                Err(why) => return why,
            };
            match asked {
                // Any other status comes from a proxy that exposes only the API.
                Ok(Ok(answer)) if answer.status().is_server_error() => {
                    return self.unanswered(&format!("it answered {}", answer.status()));
                }
                Ok(Ok(_)) => {}
                Ok(Err(why)) => return why,
                Err(_) => return self.unbegun(HEAD),
            }
        }
    }

    fn unbegun(&self, within: Duration) -> CommandError {
        let seconds = within.as_secs();
        self.unanswered(&format!(
            "it did not begin to answer within {seconds} s; is it a recliner?"
        ))
    }

    /// The `data` of the response to a POST of `body` as JSON.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<T, CommandError> {
        self.post_within(path, body, ANSWER).await
    }

    /// Like [`post`](Self::post), with this limit on the time to a complete response.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub(super) async fn post_within<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
        within: Duration,
    ) -> Result<T, CommandError> {
        let body = serde_json::to_vec(body).map_err(CommandError::failed)?;
        let request = self.client.post(self.url(path)?).timeout(within);
        let request = request.header("content-type", "application/json").body(body);
        self.head_within(within, request).await?.data().await
    }

    /// Receives the file that a GET of `path` returns, piece by piece. Returns its size.
    ///
    /// # Errors
    /// As [`get`](Self::get), if the file is incomplete, or the first error of `receive`.
    pub(super) async fn download(
        &self,
        path: &str,
        mut receive: impl FnMut(&[u8]) -> Result<(), CommandError>,
    ) -> Result<u64, CommandError> {
        let request = self.client.get(self.url(path)?).timeout(DOWNLOAD);
        let mut answer = self.head_within(DOWNLOAD, request).await?;
        let status = answer.response.status();
        if status != StatusCode::OK {
            return Err(self.failure(status, path, &answer.body().await?));
        }
        // Without the length, a truncated file would look complete.
        let length = answer.number_in("content-length");
        let Some(length) = length else {
            return Err(self.unanswered("its response has no length; is it a recliner?"));
        };
        let mut received = 0_u64;
        while let Some(piece) = answer.piece().await? {
            receive(&piece)?;
            received = received.saturating_add(piece.len() as u64);
        }
        if received != length {
            return Err(self.unanswered("its response ended early"));
        }
        Ok(length)
    }

    /// Requests a route of which only the status matters.
    ///
    /// # Errors
    /// If there is no response, or its status is not 200.
    pub(super) async fn probe(&self, path: &str) -> Result<(), CommandError> {
        let answer = self.head_within(HEAD, self.client.get(self.url(path)?)).await?;
        match answer.response.status() {
            StatusCode::OK => Ok(()),
            status => Err(self.unanswered(&format!("it answered {status}"))),
        }
    }

    fn url(&self, path: &str) -> Result<reqwest::Url, CommandError> {
        reqwest::Url::parse(&[self.base.as_str(), path].concat()).map_err(CommandError::usage)
    }

    async fn send(&self, mut request: RequestBuilder) -> Result<Response, CommandError> {
        if let Some((user, password)) = &self.login {
            request = request.basic_auth(user, Some(password.expose_secret()));
        }
        let answer = request.send().await.map_err(|why| {
            let hint = if why.is_connect() {
                "; is recliner running there? Start it with recliner serve, or give its address with --recliner.url"
            } else {
                ""
            };
            self.unanswered(&format!("{}{hint}", fetch::describe(why)))
        })?;
        if !self.has_answered.swap(true, Ordering::Relaxed) {
            let cluster = answer.headers().get(CLUSTER_HEADER).and_then(|it| it.to_str().ok());
            cluster.iter().for_each(|name| print_error(&format!("answered for {name}")));
        }
        Ok(answer)
    }

    /// The error that an unsuccessful response describes.
    fn failure(&self, status: StatusCode, asked: &str, body: &[u8]) -> CommandError {
        if status == StatusCode::UNAUTHORIZED {
            let reason = match &self.login {
                None => {
                    "it requires a user; give --recliner.username and --recliner.password-file, or RECLINER_USER and RECLINER_PASSWORD"
                }
                Some(_) => "it refused the user or the password",
            };
            return self.unusable(reason);
        }
        match serde_json::from_slice::<Failed>(body) {
            // A service that lacks the route lists the ones it has.
            Ok(failed) if failed.error.starts_with("it has no /api/v1/") => {
                let route = failed.error.split([';', ' ']).nth(3).unwrap_or_default();
                CommandError::failed(format!(
                    "the recliner at {} is older than this command and has no {}; upgrade it",
                    self.name,
                    printable(route)
                ))
            }
            Ok(failed) => refused(status, failed),
            Err(why) => self.unreadable(status, asked, &why),
        }
    }

    fn unreadable(&self, status: StatusCode, asked: &str, why: &serde_json::Error) -> CommandError {
        let answer = format!("its answer to {} (status {status}) is not", printable(asked));
        self.unanswered(&if why.is_data() {
            format!(
                "{answer} a recliner's, or not this version's; check the address and the version"
            )
        } else {
            format!("{answer} a recliner's; check the address")
        })
    }

    fn too_large(&self) -> CommandError {
        self.unusable("its response is larger than any that recliner sends; is it a recliner?")
    }

    /// An error for an answer that another attempt would not improve.
    fn unusable(&self, why: &str) -> CommandError {
        CommandError::failed(format!("cannot ask recliner at {}: {why}", self.name))
    }

    fn unanswered(&self, why: &str) -> CommandError {
        let mut failure = self.unusable(why);
        if self.is_fallback {
            failure = CommandError::usage(format!(
                "no CouchDB is named (--couchdb.url), and {}",
                failure.why
            ));
        }
        CommandError { is_transient: true, ..failure }
    }
}

/// A response whose head has arrived.
struct Answer<'a> {
    client: &'a ServiceClient,
    response: Response,
    /// How much longer the current piece may take; only the time spent waiting for it counts.
    patience: Duration,
    /// The bytes of the current piece received so far.
    piece: usize,
}

impl Answer<'_> {
    fn number_in(&self, header: &str) -> Option<u64> {
        self.response.headers().get(header)?.to_str().ok()?.parse().ok()
    }

    async fn data<T: DeserializeOwned>(mut self) -> Result<T, CommandError> {
        let (client, status) = (self.client, self.response.status());
        let asked = self.response.url().path().to_owned();
        let retry_after = self.number_in("retry-after").map(Duration::from_secs);
        let body = self.body().await?;
        if !status.is_success() {
            return Err(CommandError { retry_after, ..client.failure(status, &asked, &body) });
        }
        let answer: Success<T> =
            serde_json::from_slice(&body).map_err(|why| client.unreadable(status, &asked, &why))?;
        Ok(answer.data)
    }

    async fn body(&mut self) -> Result<Vec<u8>, CommandError> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            if body.len().saturating_add(piece.len()) > LONGEST {
                return Err(self.client.too_large());
            }
            body.extend_from_slice(&piece);
        }
        if count_values(&body) > VALUES {
            return Err(self.client.too_large());
        }
        Ok(body)
    }

    /// The next bytes of the body; `None` at its end.
    async fn piece(&mut self) -> Result<Option<Bytes>, CommandError> {
        let begun = Instant::now();
        let Ok(bytes) = time::timeout(self.patience, self.response.chunk()).await else {
            let (size, seconds) = (PIECE_BYTES >> 10, PIECE_TIME.as_secs());
            return Err(self.client.unanswered(&format!(
                "its response did not end and brought less than {size} KiB within {seconds} s"
            )));
        };
        let bytes = bytes.map_err(|why| self.client.unanswered(&fetch::describe(why)))?;
        self.piece = self.piece.saturating_add(bytes.as_ref().map_or(0, Bytes::len));
        self.patience = self.patience.saturating_sub(begun.elapsed());
        if self.piece >= PIECE_BYTES {
            (self.piece, self.patience) = (0, PIECE_TIME);
        }
        Ok(bytes)
    }
}

/// An upper bound on the number of values in a JSON text.
fn count_values(body: &[u8]) -> usize {
    body.iter().filter(|byte| b",[{".contains(byte)).count().saturating_add(1)
}

/// Converts a refusal by the service; lists the candidates of an ambiguous name.
fn refused(status: StatusCode, failed: Failed) -> CommandError {
    let exit = if status == StatusCode::BAD_REQUEST { Exit::Usage } else { Exit::Failed };
    let mut why = printable(&failed.error);
    let candidates: Vec<_> = failed.data.iter().flat_map(|it| it.candidates()).collect();
    for candidate in candidates.iter().take(MAX_CANDIDATES) {
        why.push_str(&format!("\n  {}", printable(candidate)));
    }
    if let Some(more) = candidates.len().checked_sub(MAX_CANDIDATES).filter(|more| *more > 0) {
        why.push_str(&format!(
            "\n  and {more} more; `recliner explain` with the same name prints all"
        ));
    }
    let is_transient = status.is_server_error();
    CommandError { exit, conflict: failed.data, is_transient, ..CommandError::failed(why) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{Router, body::Body, routing::get};
    use futures::{StreamExt as _, stream};
    use serde_json::{Value, json};
    use tempfile::TempDir;
    use tokio::{net::UnixListener, task::JoinSet};

    /// A client of a server with these routes; the server runs until the other two values are dropped. It uses a Unix
    /// socket, because a busy kernel delivers bytes over TCP only after a paused clock has advanced.
    fn client_of(router: Router) -> (ServiceClient, TempDir, JoinSet<std::io::Result<()>>) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let mut servers = JoinSet::new();
        servers.spawn(async move { axum::serve(listener, router).await });
        let _installed = rustls::crypto::ring::default_provider().install_default();
        (ServiceClient::over_socket(&path).unwrap(), directory, servers)
    }

    async fn order(client: &ServiceClient, within: Duration) -> (Result<Value, String>, u64) {
        let begun = Instant::now();
        let answer = client.post_within("/api/v1/compact", &json!({}), within).await;
        (answer.map_err(|failed| failed.why), begun.elapsed().as_secs())
    }

    /// A response after this time.
    async fn after(seconds: u64) -> String {
        time::sleep(Duration::from_secs(seconds)).await;
        r#"{"status":"success","data":7}"#.to_owned()
    }

    #[tokio::test(start_paused = true)]
    async fn commands_end_soon_when_nothing_answers() {
        let silent = Router::new().fallback(async || after(10_000).await);
        let (client, _directory, _server) = client_of(silent);
        for within in [ANSWER, WORK] {
            let (failed, seconds) = order(&client, within).await;
            assert!(failed.unwrap_err().contains("it did not begin to answer within 10 s"));
            assert_eq!(seconds, 20);
        }
        let begun = Instant::now();
        let failed = client.download("/api/v1/backup", |_| Ok(())).await.unwrap_err();
        assert!(failed.why.contains("it did not begin to answer within 10 s"), "{}", failed.why);
        assert_eq!(begun.elapsed().as_secs(), 20);
        assert!(client.get::<Value>("/api/v1/runs", &[]).await.is_err());
        assert_eq!(begun.elapsed().as_secs(), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn commands_wait_for_a_service_that_is_busy() {
        let working = Router::new()
            .route("/-/healthy", get(async || after(3).await))
            .fallback(async || after(100).await);
        let (client, _directory, _server) = client_of(working);
        assert_eq!(order(&client, ANSWER).await, (Ok(json!(7)), 100));
        let never = Router::new()
            .route("/-/healthy", get(async || after(3).await))
            .fallback(async || after(10_000).await);
        let (client, _directory, _server) = client_of(never);
        for within in [ANSWER, WORK] {
            let (failed, seconds) = order(&client, within).await;
            assert!(failed.is_err());
            assert_eq!(seconds, within.as_secs());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn response_that_arrives_too_slowly_is_given_up() {
        // Each piece arrives after this delay.
        let pieces = |seconds: u64, bytes: usize| {
            Router::new().fallback(async move || {
                let pieces = stream::repeat(()).then(move |()| async move {
                    time::sleep(Duration::from_secs(seconds)).await;
                    Ok::<_, std::io::Error>(" ".repeat(bytes))
                });
                Body::from_stream(pieces)
            })
        };
        for seconds in [1, 5, 10_000] {
            let (client, _directory, _server) = client_of(pieces(seconds, 1));
            let (failed, waited) = order(&client, ANSWER).await;
            let failed = failed.unwrap_err();
            assert!(
                failed.contains("did not end and brought less than 16 KiB within 15 s"),
                "{failed}"
            );
            assert_eq!(waited, 15);
        }
        // A slow connection that delivers enough is accepted.
        let (client, _directory, _server) = client_of(pieces(5, PIECE_BYTES));
        let (failed, waited) = order(&client, ANSWER).await;
        assert!(failed.is_err());
        assert_eq!(waited, ANSWER.as_secs());
    }

    #[test]
    fn count_of_json_values_is_never_too_low() {
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
            assert!(count_values(value.to_string().as_bytes()) >= all(&value), "{value}");
        }
    }
}
