//! The servers and nodes that the client knows.
//!
//! Owns the limits on requests in flight, the breakers, and the map from a node's name to its own
//! address. Sends no request itself.

use super::{
    Address, ClientSettings, Error, RequestInfo, Route, breaker::Breaker, credential::Credential,
    endpoint_auth::EndpointAuth, token_bucket::TokenBucket,
};
use arc_swap::{ArcSwap, ArcSwapOption};
use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{Notify, OnceCell, Semaphore},
    time::Instant,
};

/// One address that requests are sent to.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: Address,
    /// Requests in flight through it.
    pub(super) in_flight: Semaphore,
    pub(super) breaker: Breaker,
    pub(super) auth: EndpointAuth,
    /// Whether the server has ever reported its node name.
    pub(super) named: AtomicBool,
    /// Whether `%2F` in a path reaches CouchDB as `/`, and when that was checked.
    pub(super) decodes_slash: ArcSwap<(Instant, OnceCell<bool>)>,
    /// The error of the last request that got no answer.
    failure: ArcSwapOption<Error>,
    /// Why the last answer was not that of a CouchDB that can be used.
    unusable: ArcSwapOption<Error>,
}

impl Server {
    /// Keeps the error of a request that got no answer.
    pub(super) fn remember_failure(&self, error: &Error) {
        self.failure.store(Some(Arc::new(error.clone())));
    }

    /// Keeps the error of a response that shows that the whole server is unusable.
    pub(super) fn remember_unusable(&self, error: &Error) {
        self.unusable.store(Some(Arc::new(error.clone())));
    }

    /// Forgets the error of an unusable answer, after a usable one.
    pub(super) fn remember_usable(&self) {
        if self.unusable.load().is_some() {
            self.unusable.store(None);
        }
    }

    /// Whether the last request got a usable answer, else its error; `None` before the first
    /// request.
    pub(super) fn last_result(&self) -> Option<Result<(), Option<Arc<Error>>>> {
        if self.breaker.last_failed() {
            return Some(Err(self.failure.load_full()));
        }
        if let Some(error) = self.unusable.load_full() {
            return Some(Err(Some(error)));
        }
        self.breaker.last_alive().map(|_| Ok(()))
    }
}

/// One node of the cluster.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: Box<str>,
    /// Requests in flight about the node, whichever server they go through.
    pub(super) in_flight: Semaphore,
    /// Failures of requests that reached it through another server.
    pub(super) breaker: Breaker,
    /// The logins, forwarded by another server, that the node has accepted and refused.
    pub(super) auth: EndpointAuth,
    pace: Option<TokenBucket>,
    /// The node's own address, once the server there has reported that name.
    pub(super) own: ArcSwapOption<Server>,
    /// Notified when `own` is set.
    pub(super) found: Notify,
    /// Set once the node's own address has been searched for.
    pub(super) searched: OnceCell<()>,
    /// Whether the settings give no address for the node, and none may be guessed.
    pub(super) no_address_given: AtomicBool,
}

impl Node {
    /// Waits until the next cold read of the node is allowed.
    pub(super) async fn wait_for_pace(&self) {
        if let Some(pace) = &self.pace {
            pace.wait_for_turn().await;
        }
    }

    /// Waits until the node's own address is known.
    pub(super) async fn is_found(&self) {
        let mut found = std::pin::pin!(self.found.notified());
        found.as_mut().enable();
        if self.own.load().is_none() {
            found.await;
        }
    }

    /// A destination that is the node's own address and no other.
    pub(super) fn own_destination(&self) -> Result<Destination, Error> {
        let own = self.own.load_full();
        let own = own.ok_or_else(|| Error::NoOwnAddress { node: self.name.to_string() })?;
        match own.breaker.admit() {
            Ok(()) => Ok(Destination::direct(own)),
            Err(rest) => Err(Error::resting(own.address.to_string(), rest)),
        }
    }
}

/// The server that gets a request, and the node it forwards the request to.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    pub(super) server: Arc<Server>,
    /// The node that gets the forwarded request; `None` if the server itself answers.
    pub(super) forwarded_to: Option<Arc<Node>>,
}

impl Destination {
    /// A server that answers itself.
    pub(super) const fn direct(server: Arc<Server>) -> Self {
        Self { server, forwarded_to: None }
    }

    /// How requests carry the login of `generation` to this destination; `None` if the login has to
    /// be proved at one of its endpoints first, or while the server's refusal of a request is examined.
    pub(super) fn credential(&self, generation: u64) -> Option<Credential> {
        self.server.auth.credential(generation)?;
        self.accepted(generation)
    }

    /// Like [`Self::credential`], also while a refusal is examined.
    pub(super) fn accepted(&self, generation: u64) -> Option<Credential> {
        let at_entry = self.server.auth.accepted(generation)?;
        match &self.forwarded_to {
            None => Some(at_entry),
            Some(node) => match node.auth.accepted(generation)? {
                Credential::SameAsEntry => Some(at_entry),
                own @ (Credential::Basic | Credential::Cookie(_)) => Some(own),
            },
        }
    }

    /// Records that a response arrived, whatever it says.
    pub(super) fn record_success(&self) {
        self.server.breaker.record_success();
        if let Some(node) = &self.forwarded_to {
            node.breaker.record_success();
        }
    }

    /// When the endpoint that has to answer last showed that it is alive.
    pub(super) fn last_alive(&self) -> Option<Instant> {
        self.forwarded_to
            .as_ref()
            .map_or_else(|| self.server.breaker.last_alive(), |node| node.breaker.last_alive())
    }

    /// Records that no answer came in time. CouchDB forwards requests without a timeout of its own,
    /// so the node behind the server counts as the cause.
    pub(super) fn record_timeout(&self) {
        match &self.forwarded_to {
            Some(node) => node.breaker.record_failure(),
            None => self.server.breaker.record_failure(),
        }
    }
}

/// A request and where it goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) route: Route<'a>,
    pub(super) path: &'a str,
    pub(super) destination: &'a Destination,
}

impl Call<'_> {
    pub(super) fn info(&self) -> Arc<RequestInfo> {
        RequestInfo::new(&self.route, self.path, &self.destination.server.address)
    }
}

/// Every server and node the client knows.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) entries: Vec<Arc<Server>>,
    nodes: ArcSwap<HashMap<Box<str>, Arc<Node>>>,
    /// Every server that was ever asked, so that refusals are not forgotten.
    servers: ArcSwap<HashMap<Address, Arc<Server>>>,
    turn: AtomicUsize,
    in_flight: usize,
    cold: u32,
    timeout: Duration,
}

/// The value of a key; a new one is added.
fn known_or_added<K, Q, V>(
    all: &ArcSwap<HashMap<K, Arc<V>>>,
    key: &Q,
    new: impl FnOnce() -> V,
) -> Arc<V>
where
    K: Borrow<Q> + Clone + Eq + Hash,
    Q: ToOwned<Owned: Into<K>> + Eq + Hash + ?Sized,
{
    if let Some(known) = all.load().get(key) {
        return Arc::clone(known);
    }
    let fresh = Arc::new(new());
    all.rcu(|all| {
        let mut all = HashMap::clone(all);
        all.entry(key.to_owned().into()).or_insert_with(|| Arc::clone(&fresh));
        all
    });
    all.load().get(key).map_or(fresh, Arc::clone)
}

impl Directory {
    pub(super) fn new(settings: &ClientSettings) -> Self {
        let mut directory = Self {
            entries: Vec::new(),
            nodes: ArcSwap::default(),
            servers: ArcSwap::default(),
            turn: AtomicUsize::new(0),
            in_flight: settings.requests_in_flight.clamp(1, Semaphore::MAX_PERMITS),
            cold: settings.cold_reads_per_second,
            timeout: settings.timeout,
        };
        for url in &settings.urls {
            let server = directory.server(url);
            if !directory.entries.iter().any(|known| Arc::ptr_eq(known, &server)) {
                directory.entries.push(server);
            }
        }
        directory
    }

    /// The server at this address; a new one is added.
    pub(super) fn server(&self, address: &Address) -> Arc<Server> {
        known_or_added(&self.servers, address, || Server {
            address: address.clone(),
            in_flight: Semaphore::new(self.in_flight),
            breaker: Breaker::new(self.timeout),
            auth: EndpointAuth::new(),
            named: AtomicBool::new(false),
            decodes_slash: ArcSwap::from_pointee((Instant::now(), OnceCell::new())),
            failure: ArcSwapOption::empty(),
            unusable: ArcSwapOption::empty(),
        })
    }

    /// The node of this name; a new one is added.
    pub(super) fn node(&self, name: &str) -> Arc<Node> {
        known_or_added(&self.nodes, name, || Node {
            name: name.into(),
            in_flight: Semaphore::new(self.in_flight),
            breaker: Breaker::new(self.timeout),
            auth: EndpointAuth::new(),
            pace: TokenBucket::new(self.cold),
            own: ArcSwapOption::empty(),
            found: Notify::new(),
            searched: OnceCell::new(),
            no_address_given: AtomicBool::new(false),
        })
    }

    /// The node of this name, if it is known.
    pub(super) fn known(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.load().get(name).map(Arc::clone)
    }

    /// Every node that was asked for so far.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.load().values().map(Arc::clone).collect()
    }

    /// A live entry, in turn, preferably not one of `tried`. If the last request or login failed at
    /// every entry, a node's own address may be used too.
    pub(super) fn any(&self, tried: &[Address], generation: u64) -> Result<Arc<Server>, Error> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut order: Vec<&Arc<Server>> =
            (0..self.entries.len()).filter_map(|at| self.in_turn(start, at)).collect();
        let amiss = |server: &Server| {
            let fails = server.breaker.last_failed() || server.auth.awaits_login();
            (tried.contains(&server.address), fails)
        };
        let worse = |server: &Server| amiss(server) != (false, false);
        order.sort_by_key(|server| amiss(server));
        let (worst, best): (Vec<_>, Vec<_>) = order.into_iter().partition(|it| worse(it));
        let own = std::iter::once_with(|| self.own_addresses(generation)).flatten();
        let own = own.filter(|own| !worse(own));
        let mut refused = None;
        let mut resting: Option<Error> = None;
        let (best, worst) = (best.into_iter().cloned(), worst.into_iter().cloned());
        for server in best.chain(own).chain(worst) {
            if let Some(why) = server.auth.refusal(generation) {
                refused = Some(Error::LoginClosed { why });
                continue;
            }
            match server.breaker.admit() {
                Ok(()) => return Ok(server),
                Err(rest) => {
                    resting = Some(Error::resting(server.address.to_string(), rest));
                }
            }
        }
        Err(resting.or(refused).unwrap_or(Error::Stopped))
    }

    /// A server other than `not` for a second request in parallel: one that answered last time.
    pub(super) fn another(
        &self,
        not: &Server,
        tried: &[Address],
        generation: u64,
    ) -> Option<Arc<Server>> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let entries = (0..self.entries.len()).filter_map(|at| self.in_turn(start, at)).cloned();
        entries.chain(self.own_addresses(generation)).find(|server| {
            server.address != not.address
                && !tried.contains(&server.address)
                && server.auth.refusal(generation).is_none()
                && !server.breaker.last_failed()
                && !server.auth.awaits_login()
        })
    }

    /// The own addresses of nodes at which the login was accepted.
    fn own_addresses(&self, generation: u64) -> Vec<Arc<Server>> {
        let nodes = self.nodes.load();
        let own = nodes.values().filter_map(|node| node.own.load_full());
        own.filter(|own| own.auth.accepted(generation).is_some()).collect()
    }

    fn in_turn(&self, start: usize, at: usize) -> Option<&Arc<Server>> {
        let count = self.entries.len();
        self.entries.get(start.wrapping_add(at).checked_rem(count)?)
    }

    /// The destination for `node`: its own address if that is live, otherwise an entry that
    /// forwards the request.
    pub(super) fn destination_for(
        &self,
        node: &Arc<Node>,
        tried: &[Address],
        generation: u64,
    ) -> Result<Destination, Error> {
        if let Some(own) = node.own.load_full() {
            let usable = !tried.contains(&own.address)
                && !own.auth.awaits_login()
                && own.auth.refusal(generation).is_none()
                && own.breaker.admit().is_ok();
            if usable {
                return Ok(Destination::direct(own));
            }
        }
        if let Some(why) = node.auth.refusal(generation) {
            return Err(Error::LoginClosed { why });
        }
        node.breaker.admit().map_err(|rest| Error::resting(format!("node {}", node.name), rest))?;
        Ok(Destination {
            server: self.any(tried, generation)?,
            forwarded_to: Some(Arc::clone(node)),
        })
    }
}
