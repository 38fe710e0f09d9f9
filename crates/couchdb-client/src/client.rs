//! One request from its route to its answer: whom to ask, when, how often.

mod addresses;
mod beside;
mod config_writes;
mod doors;
mod entries;
mod feeds;
mod reads;
mod searches;
mod writes;

pub use entries::Entry;
pub use feeds::Updates;
pub use reads::MapPage;
pub use writes::Written;

use super::{
    Address, CertificateEnds, Error, Metrics, NO_USER, Route, Settings, Transport, TransportError,
    credential::Credential,
    directory::{Directory, Way},
    gate::{Gate, Said, Verdict, keeper::Keeper, speaks_of_login},
    sender::{Answer, Sender, words},
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
use tokio_util::sync::CancellationToken;

/// Reads from a cluster. Cheap to clone; its [`Task`] has to run.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    directory: Arc<Directory>,
    gate: Gate,
    sender: Sender,
    /// Set once the entries were asked for their names.
    entries_named: OnceCell<()>,
    /// Whether it was said that a login is wanted and none given.
    said_no_user: AtomicBool,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// TLS or the HTTP library refused its settings.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

/// What is known of a node's own address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OwnAddress {
    /// It was not found yet, or was not looked for.
    #[default]
    Unknown,
    /// Nobody gave one, and the host in the node's name may not be given the login.
    Ungiven,
    /// The server there said the node's name.
    Found(Address),
}

impl OwnAddress {
    /// The address, where it was found.
    #[must_use]
    pub const fn found(&self) -> Option<&Address> {
        match self {
            Self::Found(address) => Some(address),
            Self::Unknown | Self::Ungiven => None,
        }
    }
}

/// How a node can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAccess {
    /// Its own address.
    pub own: OwnAddress,
    /// Whether requests about it are held back because the last ones came to nothing.
    pub resting: bool,
}

/// Proves the login and learns addresses, as long as it runs.
#[derive(Debug)]
pub struct Task {
    keeper: Keeper,
    client: Client,
}

impl Task {
    /// Runs until `stop`; requests that wait then end with [`Error::Stopped`].
    pub async fn run(self, stop: CancellationToken) {
        let Self { keeper, client } = self;
        let both = async { tokio::join!(keeper.run(), client.keep_addresses()) };
        stop.run_until_cancelled(both).await;
    }
}

/// Which server a request goes to.
#[derive(Clone, Copy, Debug)]
enum Whom<'a> {
    /// Any that lives.
    Any,
    /// The node's own address where it is known, else any.
    Node(&'a str),
    /// The node's own address and nothing else.
    Own(&'a str),
}

/// The first wait before a request is sent once more.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How often a request is sent once more.
const RETRIES: usize = 2;
/// How often a request that was refused is sent once more: after a login, after another
/// one because the session did not last, and with the password.
const LOOKS: u32 = 3;

impl Client {
    /// A client and the task that has to run beside it. Nothing is sent before the task
    /// runs. Without a URL nothing is sent at all: every request ends with [`Error::Stopped`].
    ///
    /// # Errors
    /// When TLS or the HTTP library refuses its settings.
    pub fn connect(
        settings: Settings,
        transport: Transport,
        metrics: Metrics,
    ) -> Result<(Self, Task), ConnectError> {
        let directory = Arc::new(Directory::new(&settings));
        let sender = Sender { transport, metrics, timeout: settings.timeout };
        let (gate, orders) = Gate::new();
        let keeper = Keeper::new(&settings, &gate, orders, Arc::clone(&directory), sender.clone());
        let entries_named = OnceCell::new();
        let said_no_user = AtomicBool::new(false);
        let shared = Shared { settings, directory, gate, sender, entries_named, said_no_user };
        let client = Self { shared: Arc::new(shared) };
        Ok((client.clone(), Task { keeper, client }))
    }

    /// How `node` can be reached at this moment.
    #[must_use]
    pub fn access(&self, node: &str) -> NodeAccess {
        let Some(node) = self.shared.directory.known(node) else { return NodeAccess::default() };
        let own = node.own.load();
        let own_rests = own.as_ref().is_none_or(|own| own.breaker.resting());
        NodeAccess {
            own: match own.as_ref() {
                Some(own) => OwnAddress::Found(own.address.clone()),
                None if node.ungiven.load(Ordering::Relaxed) => OwnAddress::Ungiven,
                None => OwnAddress::Unknown,
            },
            resting: own_rests && node.breaker.resting(),
        }
    }

    /// Whether `node` hangs, as far as one can tell: requests to it had to rest, at its own address
    /// and through others, and nothing has come from it since.
    #[must_use]
    pub fn is_silent(&self, node: &str) -> bool {
        let Some(node) = self.shared.directory.known(node) else { return false };
        let own = node.own.load();
        own.as_ref().is_none_or(|own| own.breaker.is_on_probation())
            && node.breaker.is_on_probation()
    }

    /// When the certificates end with which CouchDB is reached.
    #[must_use]
    pub fn certificate_ends(&self) -> CertificateEnds {
        self.shared.sender.transport.certificate_ends()
    }

    /// Says once that a login is wanted and none given.
    fn say_no_user(&self) {
        if !self.shared.said_no_user.swap(true, Ordering::Relaxed) {
            tracing::warn!("{NO_USER}");
        }
    }

    async fn get<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        whom: Whom<'_>,
        cold: bool,
    ) -> Result<T, Error> {
        self.get_checked(route, whom, cold, |_| Ok(())).await
    }

    /// Asks and reads; `check` says whether the answer is about what was asked.
    async fn get_checked<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        whom: Whom<'_>,
        cold: bool,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<T, Error> {
        self.get_timed(route, whom, cold, check).await.map(|(read, _)| read)
    }

    /// The same, with how long the server took for the answer; what waited here for its
    /// turn is no part of that.
    ///
    /// What any server can answer is asked of another one where the first talks nonsense:
    /// that says nothing of the cluster.
    async fn get_timed<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        whom: Whom<'_>,
        cold: bool,
        check: impl Fn(&T) -> Result<(), String>,
    ) -> Result<(T, Duration), Error> {
        let path = route.path()?;
        if self.shared.directory.entries.is_empty() {
            return Err(Error::Stopped);
        }
        let mut tried = Vec::new();
        loop {
            let before = tried.len();
            let error = match Box::pin(self.ask(route, &path, whom, cold, &mut tried)).await {
                Ok((way, answer)) => {
                    let took = answer.2;
                    match self.shared.sender.read(route, &path, &way, answer, &check).await {
                        Ok(read) => return Ok((read, took)),
                        Err(error) => {
                            tried.push(way.server.address.clone());
                            error
                        }
                    }
                }
                Err(error) => error,
            };
            // Where none was asked that was not before, asking again would go on for ever.
            let (old, new) = tried.split_at(before.min(tried.len()));
            let mut entries = self.shared.directory.entries.iter();
            let others = new.iter().any(|address| !old.contains(address))
                && entries.any(|entry| !tried.contains(&entry.address));
            if !(others && matches!(whom, Whom::Any) && error.is_of_one_server(&route)) {
                return Err(error);
            }
        }
    }

    /// Sends a request within every limit, and again where that may help; not to servers
    /// that were `tried`, if that can be helped.
    async fn ask(
        &self,
        route: Route<'_>,
        path: &str,
        whom: Whom<'_>,
        cold: bool,
        tried: &mut Vec<Address>,
    ) -> Result<(Way, (Bytes, u16, Duration)), Error> {
        let shared = &self.shared;
        let node = match whom {
            Whom::Any => None,
            Whom::Node(name) | Whom::Own(name) => Some(shared.directory.node(name)),
        };
        if let Some(node) = &node {
            node.sought.get_or_init(|| Box::pin(self.seek(node))).await;
            if cold {
                node.cold().await;
            }
        }
        let _about = match &node {
            Some(node) => Some(node.in_flight.acquire().await.map_err(|_| Error::Stopped)?),
            None => None,
        };
        // The wait for a proof is not this request's.
        shared.gate.pass().await?;
        let start = Instant::now();
        // Room for one more request after one that was not answered.
        let budget = shared.settings.timeout.saturating_add(shared.settings.timeout / 2);
        let mut waits = None;
        let mut late = None;
        let mut last = None;
        loop {
            let generation = shared.gate.generation();
            let way = match (whom, &node) {
                (Whom::Own(_), Some(node)) => node.own_way(),
                (Whom::Node(_), Some(node)) => shared.directory.way_to(node, tried, generation),
                _ => shared.directory.any(tried, generation).map(Way::direct),
            };
            // What went wrong at first says more than that it now rests.
            let way = way.map_err(|error| last.take().unwrap_or(error))?;
            let (way, outcome) = if matches!(whom, Whom::Any) && route.is_answered_alone() {
                self.attempt_beside(route, path, &way.server, tried).await
            } else {
                let outcome = self.attempt(route, path, &way).await;
                (way, outcome)
            };
            let error = match outcome {
                Ok(answer) => {
                    // Another way answered in time: the fault was the entry's.
                    if let Some(entry) = late.filter(|entry| !Arc::ptr_eq(entry, &way.server)) {
                        entry.breaker.strike();
                    }
                    return Ok((way, answer));
                }
                Err(error) => error,
            };
            let (first_there, address) =
                (!tried.contains(&way.server.address), way.server.address.clone());
            tried.push(address);
            // An entry that refuses a login which others accept is passed over.
            let refused = matches!(error, Error::LoginClosed { .. }) && !shared.gate.is_shut();
            if refused && first_there {
                last = Some(error);
                continue;
            }
            let in_time = start.elapsed() < budget;
            let waits = waits.get_or_insert_with(|| {
                ExponentialBuilder::default()
                    .with_min_delay(FIRST_WAIT)
                    .with_max_delay(LONGEST_WAIT)
                    .with_max_times(RETRIES)
                    .with_jitter()
                    .build()
            });
            let Some(wait) = waits.next().filter(|_| in_time && error.passes()) else {
                return Err(error);
            };
            if matches!(error, Error::Timeout { .. }) && way.on_to.is_some() {
                late = Some(way.server);
            }
            last = Some(error);
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends a request one way, with a login that is proved there.
    async fn attempt(
        &self,
        route: Route<'_>,
        path: &str,
        way: &Way,
    ) -> Result<(Bytes, u16, Duration), Error> {
        let _through = way.server.in_flight.acquire().await.map_err(|_| Error::Stopped)?;
        match self.answered(route, path, way, None).await? {
            Answer::Whole { body, status, took, .. } => Ok((body, status, took)),
            Answer::Refused { .. } | Answer::Coming(_) => {
                let asked = super::Asked::new(&route, path, &way.server.address);
                Err(Error::Garbage { asked, detail: "it has no end".to_owned() })
            }
        }
    }

    /// An answer to a request with a login that is proved this way: the whole, or what
    /// comes bit by bit where so long is waited for its head. Never a refusal.
    async fn answered(
        &self,
        route: Route<'_>,
        path: &str,
        way: &Way,
        coming_within: Option<Duration>,
    ) -> Result<Answer, Error> {
        let shared = &self.shared;
        let mut looks = 0;
        loop {
            let pass = shared.gate.pass().await?;
            let credential = if pass.is_login() {
                match way.credential(pass.generation) {
                    Some(credential) => credential,
                    None => {
                        Box::pin(self.prove_doors(way, &pass)).await?;
                        continue;
                    }
                }
            } else {
                Credential::Basic
            };
            let few = &way.server.door.with_password;
            let _few = if pass.is_login() && matches!(credential, Credential::Basic) {
                Some(few.acquire().await.map_err(|_| Error::Stopped)?)
            } else {
                None
            };
            // Nothing waits between this look at the gate and the sending.
            if !shared.gate.is_current(&pass) {
                continue;
            }
            let sender = &shared.sender;
            let sent = match coming_within {
                None => sender.send(route, path, way, &pass, &credential).await?,
                Some(within) => sender.open(route, path, way, (&pass, &credential), within).await?,
            };
            let (status, refusal) = match sent {
                Answer::Refused { status, refusal } => (status, refusal),
                answer @ (Answer::Whole { .. } | Answer::Coming(_)) => return Ok(answer),
            };
            let reason = pass.scrub(&credential, &words(&refusal));
            let of_login = speaks_of_login(&refusal);
            let said = Said { status, reason: reason.as_str().into(), of_login };
            match shared.gate.refused(way, &pass, &credential, said).await {
                Verdict::Again if looks < LOOKS => looks += 1,
                Verdict::Again | Verdict::Forbidden => {
                    let asked = super::Asked::new(&route, path, &way.server.address);
                    return Err(if pass.is_login() {
                        Error::Forbidden { asked, status, reason }
                    } else {
                        self.say_no_user();
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
