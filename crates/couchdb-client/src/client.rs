//! Takes one request from its route to its answer: where and when it is sent, and how often.

mod addresses;
pub(super) mod builder;
mod config_writes;
mod documents;
pub(super) mod entries;
pub(super) mod feeds;
mod hedge;
pub(super) mod reads;
mod searches;
pub(super) mod writes;

use super::{
    Address, CertificateEnds, ClientSettings, Error, Route,
    active_login::ActiveLogin,
    auth::{Auth, AuthTask, Verdict},
    credential::Credential,
    directory::{Call, Destination, Directory, Node},
    sender::{Answer, Refusal, Sender},
    wire,
};
use backon::{BackoffBuilder as _, ExponentialBuilder};
use serde::de::DeserializeOwned;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{AcquireError, OnceCell, SemaphorePermit},
    time::Instant,
};
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
    auth: Arc<Auth>,
    sender: Sender,
    /// Set once the entries were asked for their node names.
    entries_named: OnceCell<()>,
    /// Whether the log says already that CouchDB requires a login but none was configured.
    no_user_logged: AtomicBool,
}

/// What is known about a node's own address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OwnAddress {
    /// It has not been found yet, or was never searched for.
    #[default]
    Unknown,
    /// The settings give no address, and the host in the node's name must not get the login.
    NotConfigured,
    /// The server there has reported the node's name.
    Found(Address),
}

impl OwnAddress {
    /// The address, if it was found.
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
    auth_task: AuthTask,
    client: Client,
}

impl ClientTask {
    /// Runs until `stop`; requests that still wait then end with [`Error::Stopped`].
    pub async fn run(self, stop: CancellationToken) {
        let Self { auth_task, client } = self;
        let both = async { tokio::join!(auth_task.run(), client.keep_addresses()) };
        stop.run_until_cancelled(both).await;
    }
}

/// Which server a request goes to.
#[derive(Clone, Copy, Debug)]
enum ServerChoice<'a> {
    /// Any live server.
    Any,
    /// The node's own address if known, otherwise any live server, which forwards the request.
    Node(&'a str),
    /// The node's own address and nothing else.
    Own(&'a str),
}

impl<'a> ServerChoice<'a> {
    /// The node that a route names, or any server.
    fn of(route: &Route<'a>) -> Self {
        route.node().map_or(Self::Any, Self::Node)
    }
}

/// The wait before the first retry.
const MIN_RETRY_WAIT: Duration = Duration::from_millis(100);
/// The longest wait before a retry.
const MAX_RETRY_WAIT: Duration = Duration::from_secs(2);
/// How often a failed request is retried.
const RETRIES: usize = 2;
/// How long the answer whether a proxy decodes `%2F` stays valid.
const SLASH_CHECK_TTL: Duration = Duration::from_secs(60);
/// How often a refused request is sent again: after a login, after a second login because the
/// session did not last, and with the password.
const MAX_LOGIN_RETRIES: u32 = 3;

impl Client {
    /// How `node` can be reached now.
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

    /// Whether `node` seems to hang: requests to it were held back at its own address and through
    /// other servers, and no answer has arrived since.
    pub fn seems_to_hang(&self, node: &str) -> bool {
        let Some(node) = self.shared.directory.known(node) else { return false };
        let own = node.own.load();
        own.as_ref().is_none_or(|own| own.breaker.is_tripped()) && node.breaker.is_tripped()
    }

    /// When the certificates in use for CouchDB expire.
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
    ) -> Result<T, Error> {
        self.get_checked(route, |_| Ok(())).await
    }

    /// Requests a route that names no node from the own address of `node`.
    async fn get_own<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        node: &str,
    ) -> Result<T, Error> {
        self.get_from(route, ServerChoice::Own(node), |_| Ok(())).await.map(|(read, _)| read)
    }

    /// Sends and reads; `check` says whether the answer fits the request.
    async fn get_checked<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<T, Error> {
        self.get_from(route, ServerChoice::of(&route), check).await.map(|(read, _)| read)
    }

    /// Like [`Self::get_checked`], from a chosen server, with the time that it took, not counting
    /// waits in this client.
    ///
    /// If any server can answer and the first one sends an invalid answer, another one is asked:
    /// one broken server says nothing about the cluster.
    async fn get_from<T: DeserializeOwned + Send + 'static>(
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
                    let took = answer.took;
                    let call = Call { route, path: &path, destination: &destination };
                    match self.shared.sender.read(call, answer, &check).await {
                        Ok(read) => return Ok((read, took)),
                        Err(error) => {
                            tried.push(destination.server.address.clone());
                            error
                        }
                    }
                }
                Err(error) => error,
            };
            // Unless a new server was asked, the loop would never end.
            let (old, new) = tried.split_at(before.min(tried.len()));
            let mut entries = self.shared.directory.entries.iter();
            let others = new.iter().any(|address| !old.contains(address))
                && entries.any(|entry| !tried.contains(&entry.address));
            if !(others && matches!(target, ServerChoice::Any) && error.is_of_one_server(&route)) {
                return Err(error);
            }
        }
    }

    /// The node that `target` names, once its own address has been searched for.
    async fn node(&self, target: ServerChoice<'_>) -> Option<Arc<Node>> {
        let (ServerChoice::Node(name) | ServerChoice::Own(name)) = target else { return None };
        let node = self.shared.directory.node(name);
        node.searched.get_or_init(|| Box::pin(self.find_own_address(&node))).await;
        Some(node)
    }

    /// Where the next request goes. Prefers servers that were not `tried`.
    fn choose(
        &self,
        target: ServerChoice<'_>,
        node: Option<&Arc<Node>>,
        tried: &[Address],
    ) -> Result<Destination, Error> {
        let (directory, generation) = (&self.shared.directory, self.shared.auth.generation());
        match (target, node) {
            (ServerChoice::Own(_), Some(node)) => node.own_destination(),
            (_, Some(node)) => directory.destination_for(node, tried, generation),
            (_, None) => directory.any(tried, generation).map(Destination::direct),
        }
    }

    /// Whether an entry refuses a login that others accept.
    fn is_refused_there_alone(&self, error: &Error) -> bool {
        matches!(error, Error::LoginClosed { .. }) && !self.shared.auth.is_unusable()
    }

    /// Sends a request within all limits, and retries it if that may help. Prefers servers that
    /// were not `tried`.
    async fn ask(
        &self,
        route: Route<'_>,
        path: &str,
        target: ServerChoice<'_>,
        tried: &mut Vec<Address>,
    ) -> Result<(Destination, Answer), Error> {
        let shared = &self.shared;
        let node = self.node(target).await;
        let _about = turn_about(node.as_deref()).await?;
        // Waiting for the proof of the login does not count as time of this request.
        shared.auth.login().await?;
        let start = Instant::now();
        // Leaves time for one retry after an unanswered request.
        let budget = shared.settings.timeout.saturating_add(shared.settings.timeout / 2);
        let mut waits = ExponentialBuilder::default()
            .with_min_delay(MIN_RETRY_WAIT)
            .with_max_delay(MAX_RETRY_WAIT)
            .with_max_times(RETRIES)
            .with_jitter()
            .build();
        let mut late = None;
        let mut last = None;
        loop {
            let destination = self.choose(target, node.as_ref(), tried);
            // The first error says more than "requests are held back" does.
            let destination = destination.map_err(|error| last.take().unwrap_or(error))?;
            let (destination, outcome) =
                if matches!(target, ServerChoice::Any) && route.is_answered_alone() {
                    self.attempt_hedged(route, path, &destination.server, tried).await
                } else {
                    let call = Call { route, path, destination: &destination };
                    let outcome = self.attempt(call).await;
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
            if first_there && self.is_refused_there_alone(&error) {
                last = Some(error);
                continue;
            }
            let in_time = start.elapsed() < budget;
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

    /// Sends a request to one destination, with a login that has been proved there.
    async fn attempt(&self, call: Call<'_>) -> Result<Answer, Error> {
        let _through = call.destination.server.in_flight.acquire().await.map_err(stopped)?;
        match self.send_authenticated(call).await {
            // CouchDB may have looked for another name, which a proxy had decoded.
            Err(Error::NotFound { asked, .. })
                if asked.has_encoded_slash() && self.decodes_slash(call.destination).await =>
            {
                Err(Error::SlashDecoded { at: asked.at.clone() })
            }
            sent => sent,
        }
    }

    /// Whether a proxy in front of this destination decodes `%2F` in paths.
    async fn decodes_slash(&self, destination: &Destination) -> bool {
        let cached = &destination.server.decodes_slash;
        if cached.load().0.elapsed() >= SLASH_CHECK_TTL {
            cached.store(Arc::new((Instant::now(), OnceCell::new())));
        }
        let check = Box::pin(async {
            let route = Route::LocalName { encoded: true };
            let direct = Destination::direct(Arc::clone(&destination.server));
            let call = Call { route, path: &route.path()?, destination: &direct };
            let answer = self.send_authenticated(call).await?;
            self.shared.sender.read(call, answer, |_: &wire::LocalName| Ok(())).await
        });
        let names_itself = async { check.await.is_ok_and(|local| local.name.is_some()) };
        *cached.load_full().1.get_or_init(|| names_itself).await
    }

    /// Sends a request with a login that is proved at its destination.
    async fn send_authenticated(&self, call: Call<'_>) -> Result<Answer, Error> {
        let sender = &self.shared.sender;
        let send = |login: Arc<ActiveLogin>, credential: Credential| async move {
            sender.send(call, &login, &credential).await
        };
        self.with_login(call, send).await
    }

    /// Sends a request with a login that has been proved at its destination, and finds out why if
    /// it is refused.
    async fn with_login<T, Sent>(
        &self,
        call: Call<'_>,
        send: impl Fn(Arc<ActiveLogin>, Credential) -> Sent,
    ) -> Result<T, Error>
    where
        Sent: Future<Output = Result<Result<T, Refusal>, Error>>,
    {
        let Call { destination, .. } = call;
        let auth = &self.shared.auth;
        let mut login_retries = 0;
        loop {
            let login = auth.login().await?;
            if !login.is_login() {
                let Ok(answer) = send(login, Credential::Basic).await? else {
                    self.log_no_user();
                    return Err(Error::NoUser { asked: call.info() });
                };
                return Ok(answer);
            }
            let Some(credential) = destination.credential(login.generation) else {
                auth.prove_endpoints(destination, &login).await?;
                continue;
            };
            let slots = &destination.server.auth.with_password;
            let _slot = match credential {
                Credential::Cookie(_) => None,
                Credential::Basic | Credential::SameAsEntry => {
                    Some(slots.acquire().await.map_err(stopped)?)
                }
            };
            // No `await` separates this check from the sending.
            let now = destination.credential(login.generation);
            if !(auth.is_current(&login) && now.is_some_and(|now| now.is_same(&credential))) {
                continue;
            }
            let refusal = match send(Arc::clone(&login), credential.clone()).await? {
                Ok(answer) => return Ok(answer),
                Err(refusal) => refusal,
            };
            let verdict = auth.examine(destination, &login, &credential, &refusal).await?;
            if verdict == Verdict::Forbidden || login_retries == MAX_LOGIN_RETRIES {
                let Refusal { status, reason, .. } = refusal;
                return Err(Error::Forbidden { asked: call.info(), status, reason });
            }
            login_retries += 1;
        }
    }
}

/// Waits for the turn of a request about `node`.
async fn turn_about(node: Option<&Node>) -> Result<Option<SemaphorePermit<'_>>, Error> {
    match node {
        Some(node) => node.in_flight.acquire().await.map(Some).map_err(stopped),
        None => Ok(None),
    }
}

/// A semaphore is closed only when the client ends.
fn stopped(_: AcquireError) -> Error {
    Error::Stopped
}

#[cfg(test)]
mod tests;
