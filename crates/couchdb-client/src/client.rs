//! Takes one request from its route to its answer: where it is sent, when, and how often.

mod addresses;
mod builder;
mod config_writes;
mod entries;
mod feeds;
mod hedge;
mod proofs;
mod reads;
mod searches;
mod writes;

pub use builder::{Builder, OpenError};
pub use entries::EntryStatus;
pub use feeds::Updates;
pub use reads::{Cache, MapPage};
pub use writes::WriteOutcome;

use super::{
    Address, CertificateEnds, ClientSettings, Error, Route,
    auth_gate::{AuthGate, Rejection, Verdict, is_about_login, login_task::LoginTask},
    credential::Credential,
    directory::{Destination, Directory},
    sender::{Sender, ServerResponse, reason_text},
    wire,
};
use backon::{BackoffBuilder as _, ExponentialBuilder};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::OnceCell, time::Instant};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

/// A client of one cluster. Cheap to clone; its [`ClientTask`] has to run.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    /// Keeps the background task running, if the client runs it itself.
    #[expect(dead_code, reason = "it is dropped with the last clone, which ends the task")]
    task: Option<Arc<AbortOnDropHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    settings: ClientSettings,
    directory: Arc<Directory>,
    gate: AuthGate,
    sender: Sender,
    /// Set once the entries were asked for their node names.
    entries_named: OnceCell<()>,
    /// Whether the log says already that CouchDB requires a login but none was configured.
    no_user_logged: AtomicBool,
}

/// What is known about a node's own address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OwnAddress {
    /// It was not found yet, or not searched for.
    #[default]
    Unknown,
    /// The settings give none, and the host in the node's name must not get the login.
    NotConfigured,
    /// The server there has told the node's name.
    Found(Address),
}

impl OwnAddress {
    /// The address, if it was found.
    #[must_use]
    pub const fn found(&self) -> Option<&Address> {
        match self {
            Self::Found(address) => Some(address),
            Self::Unknown | Self::NotConfigured => None,
        }
    }
}

/// How a node can be reached now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAccess {
    /// Its own address.
    pub own: OwnAddress,
    /// Whether requests about it are held back because the last ones failed.
    pub held_back: bool,
}

/// Proves the login and learns addresses, as long as it runs.
#[derive(Debug)]
pub struct ClientTask {
    login_task: LoginTask,
    client: Client,
}

impl ClientTask {
    /// Runs until `stop`; requests that still wait then end with [`Error::Stopped`].
    pub async fn run(self, stop: CancellationToken) {
        let Self { login_task, client } = self;
        let both = async { tokio::join!(login_task.run(), client.keep_addresses()) };
        stop.run_until_cancelled(both).await;
    }
}

/// Which server a request goes to.
#[derive(Clone, Copy, Debug)]
enum ServerChoice<'a> {
    /// Any live one.
    Any,
    /// The node's own address if it is known, else any live server, which forwards the request.
    Node(&'a str),
    /// The node's own address and nothing else.
    Own(&'a str),
}

/// The wait before the first retry.
const MIN_RETRY_WAIT: Duration = Duration::from_millis(100);
/// The longest wait before a retry.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(2);
/// How often a failed request is retried.
const RETRIES: usize = 2;
/// How long it is known whether a proxy decodes `%2F`.
const SLASH_CHECK_TTL: Duration = Duration::from_secs(60);
/// How often a refused request is sent again: after a login, after another one because the session
/// did not last, and with the password.
const MAX_LOGIN_RETRIES: u32 = 3;

impl Client {
    /// How `node` can be reached now.
    #[must_use]
    pub fn access(&self, node: &str) -> NodeAccess {
        let Some(node) = self.shared.directory.known(node) else { return NodeAccess::default() };
        let own = node.own.load();
        let own_rests = own.as_ref().is_none_or(|own| own.breaker.is_resting());
        NodeAccess {
            own: match own.as_ref() {
                Some(own) => OwnAddress::Found(own.address.clone()),
                None if node.no_address_given.load(Ordering::Relaxed) => OwnAddress::NotConfigured,
                None => OwnAddress::Unknown,
            },
            held_back: own_rests && node.breaker.is_resting(),
        }
    }

    /// Whether `node` seems to hang: requests were held back at its own address and through other
    /// servers, and no answer has come since.
    #[must_use]
    pub fn seems_to_hang(&self, node: &str) -> bool {
        let Some(node) = self.shared.directory.known(node) else { return false };
        let own = node.own.load();
        own.as_ref().is_none_or(|own| own.breaker.is_tripped()) && node.breaker.is_tripped()
    }

    /// When the certificates in use for CouchDB expire.
    #[must_use]
    pub fn certificate_ends(&self) -> CertificateEnds {
        self.shared.sender.transport.certificate_ends()
    }

    /// Logs once that CouchDB requires a login but none was configured.
    fn log_no_user(&self) {
        if !self.shared.no_user_logged.swap(true, Ordering::Relaxed) {
            tracing::warn!("CouchDB requires a login, but none was configured");
        }
    }

    async fn get<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        target: ServerChoice<'_>,
    ) -> Result<T, Error> {
        self.get_checked(route, target, |_| Ok(())).await
    }

    /// Sends and reads; `check` says whether the answer fits the request.
    async fn get_checked<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        target: ServerChoice<'_>,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<T, Error> {
        self.get_timed(route, target, check).await.map(|(read, _)| read)
    }

    /// The same, with the time that the server took. Time spent waiting here is not included.
    ///
    /// If any server can answer and the first one answers nonsense, another one is asked: that
    /// nonsense says nothing about the cluster.
    async fn get_timed<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        target: ServerChoice<'_>,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<(T, Duration), Error> {
        let path = route.path()?;
        if self.shared.directory.entries.is_empty() {
            return Err(Error::Stopped);
        }
        let mut tried = Vec::new();
        loop {
            let before = tried.len();
            let error = match Box::pin(self.ask(route, &path, target, &mut tried)).await {
                Ok((destination, answer)) => {
                    let took = answer.2;
                    match self.shared.sender.read(route, &path, &destination, answer, &check).await
                    {
                        Ok(read) => return Ok((read, took)),
                        Err(error) => {
                            tried.push(destination.server.address.clone());
                            error
                        }
                    }
                }
                Err(error) => error,
            };
            // Without a server that was not asked before, the loop would never end.
            let (old, new) = tried.split_at(before.min(tried.len()));
            let mut entries = self.shared.directory.entries.iter();
            let others = new.iter().any(|address| !old.contains(address))
                && entries.any(|entry| !tried.contains(&entry.address));
            if !(others && matches!(target, ServerChoice::Any) && error.is_of_one_server(&route)) {
                return Err(error);
            }
        }
    }

    /// Sends a request within every limit, and retries it if that may help; preferably not at
    /// servers that were `tried`.
    async fn ask(
        &self,
        route: Route<'_>,
        path: &str,
        target: ServerChoice<'_>,
        tried: &mut Vec<Address>,
    ) -> Result<(Destination, (Bytes, u16, Duration)), Error> {
        let shared = &self.shared;
        let node = match target {
            ServerChoice::Any => None,
            ServerChoice::Node(name) | ServerChoice::Own(name) => Some(shared.directory.node(name)),
        };
        if let Some(node) = &node {
            node.searched.get_or_init(|| Box::pin(self.find_own_address(node))).await;
        }
        let _about = match &node {
            Some(node) => Some(node.in_flight.acquire().await.map_err(|_| Error::Stopped)?),
            None => None,
        };
        // Waiting for the proof of the login does not count as time of this request.
        shared.gate.proven_login().await?;
        let start = Instant::now();
        // Leaves time for one retry after a request that was not answered.
        let budget = shared.settings.timeout.saturating_add(shared.settings.timeout / 2);
        let mut waits = None;
        let mut late = None;
        let mut last = None;
        loop {
            let generation = shared.gate.generation();
            let destination = match (target, &node) {
                (ServerChoice::Own(_), Some(node)) => node.own_destination(),
                (ServerChoice::Node(_), Some(node)) => {
                    shared.directory.destination_for(node, tried, generation)
                }
                _ => shared.directory.any(tried, generation).map(Destination::direct),
            };
            // The first error says more than that requests are held back now.
            let destination = destination.map_err(|error| last.take().unwrap_or(error))?;
            let (destination, outcome) =
                if matches!(target, ServerChoice::Any) && route.is_answered_alone() {
                    self.attempt_hedged(route, path, &destination.server, tried).await
                } else {
                    let outcome = self.attempt(route, path, &destination).await;
                    (destination, outcome)
                };
            let error = match outcome {
                Ok(answer) => {
                    // Another destination answered in time, so the entry was the cause.
                    if let Some(entry) =
                        late.filter(|entry| !Arc::ptr_eq(entry, &destination.server))
                    {
                        entry.breaker.record_failure();
                    }
                    return Ok((destination, answer));
                }
                Err(error) => error,
            };
            let (first_there, address) =
                (!tried.contains(&destination.server.address), destination.server.address.clone());
            tried.push(address);
            // Skip an entry that refuses a login which others accept.
            let refused = matches!(error, Error::LoginClosed { .. }) && !shared.gate.is_unusable();
            if refused && first_there {
                last = Some(error);
                continue;
            }
            let in_time = start.elapsed() < budget;
            let waits = waits.get_or_insert_with(|| {
                ExponentialBuilder::default()
                    .with_min_delay(MIN_RETRY_WAIT)
                    .with_max_delay(MAX_RETRY_WAIT)
                    .with_max_times(RETRIES)
                    .with_jitter()
                    .build()
            });
            let Some(wait) = waits.next().filter(|_| in_time && error.passes()) else {
                return Err(error);
            };
            if matches!(error, Error::Timeout { .. }) && destination.forwarded_to.is_some() {
                late = Some(destination.server);
            }
            last = Some(error);
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends a request to one destination, with a login that is proved there.
    async fn attempt(
        &self,
        route: Route<'_>,
        path: &str,
        destination: &Destination,
    ) -> Result<(Bytes, u16, Duration), Error> {
        let _through = destination.server.in_flight.acquire().await.map_err(|_| Error::Stopped)?;
        match self.send_authenticated(route, path, destination, None).await {
            Ok(ServerResponse::Complete { body, status, took, .. }) => Ok((body, status, took)),
            // CouchDB has looked for another name.
            Err(Error::NotFound { asked, .. })
                if asked.has_encoded_slash() && self.decodes_slash(destination).await =>
            {
                Err(Error::SlashDecoded { at: asked.at.clone() })
            }
            Err(error) => Err(error),
            Ok(ServerResponse::Refused { .. } | ServerResponse::Streaming(_)) => {
                let asked = super::RequestInfo::new(&route, path, &destination.server.address);
                Err(Error::Malformed { asked, detail: "it has no end".to_owned() })
            }
        }
    }

    /// Whether a proxy in front of this destination decodes `%2F` in paths.
    async fn decodes_slash(&self, destination: &Destination) -> bool {
        let known = &destination.server.decodes_slash;
        if known.load().0.elapsed() >= SLASH_CHECK_TTL {
            known.store(Arc::new((Instant::now(), OnceCell::new())));
        }
        let check = async {
            let route = Route::DecodedLocalName;
            let Ok(path) = route.path() else { return false };
            let direct = Destination::direct(Arc::clone(&destination.server));
            let sent = Box::pin(self.send_authenticated(route, &path, &direct, None)).await;
            let Ok(ServerResponse::Complete { body, status, took, .. }) = sent else {
                return false;
            };
            let answer = (body, status, took);
            let read = self.shared.sender.read(route, &path, &direct, answer, |_| Ok(())).await;
            read.is_ok_and(|local: wire::LocalName| local.name.is_some())
        };
        *known.load_full().1.get_or_init(|| check).await
    }

    /// Sends a request with a login that is proved at its destination, and never returns a refusal.
    /// The answer is complete; with `head_within` it streams once its head has come.
    async fn send_authenticated(
        &self,
        route: Route<'_>,
        path: &str,
        destination: &Destination,
        head_within: Option<Duration>,
    ) -> Result<ServerResponse, Error> {
        let shared = &self.shared;
        let mut login_retries = 0;
        loop {
            let proven = shared.gate.proven_login().await?;
            let credential = if proven.is_login() {
                match destination.credential(proven.generation) {
                    Some(credential) => credential,
                    None => {
                        Box::pin(self.prove_endpoints(destination, &proven)).await?;
                        continue;
                    }
                }
            } else {
                Credential::Basic
            };
            let slots = &destination.server.auth.with_password;
            let _slot = if proven.is_login() && matches!(credential, Credential::Basic) {
                Some(slots.acquire().await.map_err(|_| Error::Stopped)?)
            } else {
                None
            };
            // Nothing awaits between this check of the gate and the sending.
            if !shared.gate.is_current(&proven) {
                continue;
            }
            let sender = &shared.sender;
            let sent = match head_within {
                None => sender.send(route, path, destination, &proven, &credential).await?,
                Some(within) => {
                    sender.open(route, path, destination, (&proven, &credential), within).await?
                }
            };
            let (status, refusal) = match sent {
                ServerResponse::Refused { status, refusal } => (status, refusal),
                answer @ (ServerResponse::Complete { .. } | ServerResponse::Streaming(_)) => {
                    return Ok(answer);
                }
            };
            let reason = proven.scrub(&credential, &reason_text(&refusal));
            let about_login = is_about_login(&refusal);
            let rejection = Rejection { status, reason: reason.as_str().into(), about_login };
            match shared.gate.refused(destination, &proven, &credential, rejection).await {
                Verdict::Again if login_retries < MAX_LOGIN_RETRIES => login_retries += 1,
                Verdict::Again | Verdict::Forbidden => {
                    let asked = super::RequestInfo::new(&route, path, &destination.server.address);
                    return Err(if proven.is_login() {
                        Error::Forbidden { asked, status, reason }
                    } else {
                        self.log_no_user();
                        Error::NoUser { asked }
                    });
                }
                Verdict::Failed(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests;
