//! Servers and nodes: who is asked where.
//!
//! Owns the limits on what is in flight, the rest of what does not answer, and the map
//! from a node's name to its own address. Asks nothing itself.

use super::{
    Address, Error, Settings, breaker::Breaker, credential::Credential, door::Door, pace::Pace,
};
use arc_swap::{ArcSwap, ArcSwapOption};
use hashbrown::HashMap;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{OnceCell, Semaphore},
    time::Instant,
};

/// One address requests are sent to.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: Address,
    /// Requests in flight through it.
    pub(super) in_flight: Semaphore,
    pub(super) breaker: Breaker,
    pub(super) door: Door,
    /// Whether it ever said which node it is.
    pub(super) named: AtomicBool,
    /// What the last request that got no answer failed with.
    failure: ArcSwapOption<Error>,
}

impl Server {
    /// A request to it got no answer.
    pub(super) fn note_failure(&self, error: &Error) {
        self.failure.store(Some(Arc::new(error.clone())));
    }

    /// Whether it answered when it was last asked: none before the first try. And what the last
    /// request failed with that it did not answer, where it did not.
    pub(super) fn answers(&self) -> Option<Result<(), Option<Arc<Error>>>> {
        if self.breaker.is_doubted() {
            return Some(Err(self.failure.load_full()));
        }
        self.breaker.heard().map(|_| Ok(()))
    }
}

/// One node of the cluster.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: Box<str>,
    /// Requests in flight about it, whatever their way.
    pub(super) in_flight: Semaphore,
    /// Failures of requests that reached it through another server.
    pub(super) breaker: Breaker,
    /// Its own check of a login that came through another server.
    pub(super) door: Door,
    pace: Option<Pace>,
    /// Its own address, once the server there has said its name.
    pub(super) own: ArcSwapOption<Server>,
    /// Set once its own address has been looked for.
    pub(super) sought: OnceCell<()>,
    /// Whether nobody gave an address for it, and none may be guessed.
    pub(super) ungiven: AtomicBool,
}

impl Node {
    /// Waits for its pace of reads for which it may have to open a file.
    pub(super) async fn cold(&self) {
        if let Some(pace) = &self.pace {
            pace.turn().await;
        }
    }

    /// The way to its own address and no other.
    pub(super) fn own_way(&self) -> Result<Way, Error> {
        let own = self.own.load_full();
        let own = own.ok_or_else(|| Error::NoOwnAddress { node: self.name.to_string() })?;
        match own.breaker.admit() {
            Ok(()) => Ok(Way::direct(own)),
            Err(rest) => Err(Error::resting(own.address.to_string(), rest)),
        }
    }
}

/// A server to ask, and the node it passes the request on to.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) server: Arc<Server>,
    /// Where the request goes on to; `None` where the server answers by itself.
    pub(super) on_to: Option<Arc<Node>>,
}

impl Way {
    /// To a server that answers by itself.
    pub(super) const fn direct(server: Arc<Server>) -> Self {
        Self { server, on_to: None }
    }

    /// How the login of `generation` is shown this way; `None` where a door has to be
    /// proved first.
    pub(super) fn credential(&self, generation: u64) -> Option<Credential> {
        let at_entry = self.server.door.credential(generation)?;
        match &self.on_to {
            None => Some(at_entry),
            Some(node) => match node.door.credential(generation)? {
                Credential::OfEntry => Some(at_entry),
                own @ (Credential::Basic | Credential::Cookie(_)) => Some(own),
            },
        }
    }

    /// An answer came, whatever it says.
    pub(super) fn heal(&self) {
        self.server.breaker.heal();
        if let Some(node) = &self.on_to {
            node.breaker.heal();
        }
    }

    /// When the one that has to answer last did.
    pub(super) fn heard(&self) -> Option<Instant> {
        self.on_to.as_ref().map_or_else(|| self.server.breaker.heard(), |node| node.breaker.heard())
    }

    /// No answer came in time. CouchDB passes requests on without a timeout of its own,
    /// so that the one that is behind is blamed.
    pub(super) fn late(&self) {
        match &self.on_to {
            Some(node) => node.breaker.strike(),
            None => self.server.breaker.strike(),
        }
    }
}

/// Every server and node the client knows.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) entries: Vec<Arc<Server>>,
    nodes: ArcSwap<HashMap<Box<str>, Arc<Node>>>,
    /// Every server ever asked, so that what one refused is not forgotten.
    servers: ArcSwap<HashMap<Address, Arc<Server>>>,
    turn: AtomicUsize,
    in_flight: usize,
    cold: u32,
    timeout: Duration,
}

impl Directory {
    pub(super) fn new(settings: &Settings) -> Self {
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
        if let Some(server) = self.servers.load().get(address) {
            return Arc::clone(server);
        }
        let fresh = Arc::new(Server {
            address: address.clone(),
            in_flight: Semaphore::new(self.in_flight),
            breaker: Breaker::new(self.timeout),
            door: Door::new(),
            named: AtomicBool::new(false),
            failure: ArcSwapOption::empty(),
        });
        self.servers.rcu(|servers| {
            let mut servers = HashMap::clone(servers);
            servers.entry(address.clone()).or_insert_with(|| Arc::clone(&fresh));
            servers
        });
        self.servers.load().get(address).map_or(fresh, Arc::clone)
    }

    /// The node of this name; a new one is added.
    pub(super) fn node(&self, name: &str) -> Arc<Node> {
        if let Some(node) = self.nodes.load().get(name) {
            return Arc::clone(node);
        }
        let fresh = Arc::new(Node {
            name: name.into(),
            in_flight: Semaphore::new(self.in_flight),
            breaker: Breaker::new(self.timeout),
            door: Door::new(),
            pace: Pace::new(self.cold),
            own: ArcSwapOption::empty(),
            sought: OnceCell::new(),
            ungiven: AtomicBool::new(false),
        });
        self.nodes.rcu(|nodes| {
            let mut nodes = HashMap::clone(nodes);
            nodes.entry(name.into()).or_insert_with(|| Arc::clone(&fresh));
            nodes
        });
        self.nodes.load().get(name).map_or(fresh, Arc::clone)
    }

    /// The node of this name, if it is known.
    pub(super) fn known(&self, name: &str) -> Option<Arc<Node>> {
        self.nodes.load().get(name).map(Arc::clone)
    }

    /// Every node asked about so far.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.nodes.load().values().map(Arc::clone).collect()
    }

    /// A live entry, in turn, that is not among `tried` if that can be helped. Where the last
    /// request or login to each came to nothing, a node's own address is as good.
    pub(super) fn any(&self, tried: &[Address], generation: u64) -> Result<Arc<Server>, Error> {
        let start = self.turn.fetch_add(1, Ordering::Relaxed);
        let mut order: Vec<&Arc<Server>> =
            (0..self.entries.len()).filter_map(|at| self.in_turn(start, at)).collect();
        let amiss = |server: &Server| {
            let fails = server.breaker.is_doubted() || server.door.awaits_login();
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
            if let Some(why) = server.door.refusal(generation) {
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

    /// Another server than `not`, to ask beside it: one whose last answer came.
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
                && server.door.refusal(generation).is_none()
                && !server.breaker.is_doubted()
                && !server.door.awaits_login()
        })
    }

    /// The own addresses of nodes at which the login was accepted.
    fn own_addresses(&self, generation: u64) -> Vec<Arc<Server>> {
        let nodes = self.nodes.load();
        let own = nodes.values().filter_map(|node| node.own.load_full());
        own.filter(|own| own.door.is_open(generation)).collect()
    }

    fn in_turn(&self, start: usize, at: usize) -> Option<&Arc<Server>> {
        let count = self.entries.len();
        self.entries.get(start.wrapping_add(at).checked_rem(count)?)
    }

    /// The way to `node`: its own address where that lives, else through an entry.
    pub(super) fn way_to(
        &self,
        node: &Arc<Node>,
        tried: &[Address],
        generation: u64,
    ) -> Result<Way, Error> {
        if let Some(own) = node.own.load_full() {
            let usable = !tried.contains(&own.address)
                && !own.door.awaits_login()
                && own.door.refusal(generation).is_none()
                && own.breaker.admit().is_ok();
            if usable {
                return Ok(Way::direct(own));
            }
        }
        if let Some(why) = node.door.refusal(generation) {
            return Err(Error::LoginClosed { why });
        }
        node.breaker.admit().map_err(|rest| Error::resting(format!("node {}", node.name), rest))?;
        Ok(Way { server: self.any(tried, generation)?, on_to: Some(Arc::clone(node)) })
    }
}
