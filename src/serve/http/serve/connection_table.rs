//! The connections of one listener, and which one is closed when the limit is reached.
//!
//! Owns the table of connections; only the listener's task changes it. An idle connection is
//! closed in favour of a new one, the longest idle first, because an idle client loses nothing by
//! reconnecting. If all connections are busy, a few more are accepted for probes and scrapes, so
//! that an attack is visible and the process is not considered dead.

use super::connection_state::ConnectionState;
use crate::{feeds::feed_server, serve::http::peer::Peer};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{task::Id, time::Instant};

/// The maximum number of connections besides those of event readers.
const MAX_OTHER_CONNECTIONS: usize = 512;

/// The minimum time between two log lines about closed connections.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The limits on the number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// All connections.
    connections: usize,
    /// Connections of one address.
    per_address: usize,
    /// Idle connections of one address.
    idle_per_address: usize,
    /// Additional connections for probes and scrapes.
    reserve: usize,
}

impl ConnectionLimits {
    /// The limits for a number of file descriptors, half of which are left for CouchDB, files and
    /// the rest. `None` is no limit.
    #[must_use]
    pub fn for_descriptors(descriptors: Option<u64>) -> Self {
        let half = descriptors.and_then(|limit| usize::try_from(limit / 2).ok());
        let half = half.unwrap_or(usize::MAX);
        let reserve = (half / 8).clamp(2, 16);
        let connections =
            half.saturating_sub(reserve).clamp(4, MAX_OTHER_CONNECTIONS + feed_server::MAX_READERS);
        Self {
            connections,
            // One address cannot take the last eighth from all others.
            per_address: connections - connections / 8,
            idle_per_address: (connections / 8).clamp(2, 256),
            reserve,
        }
    }

    /// How many event readers are allowed: never as many as all connections.
    #[must_use]
    pub fn max_feed_readers(&self) -> usize {
        (self.connections - MAX_OTHER_CONNECTIONS.min(self.connections / 2))
            .min(feed_server::MAX_READERS)
    }

    #[cfg(test)]
    pub(super) const fn connections(&self) -> usize {
        self.connections
    }

    /// For the Unix socket, whose peers are trusted.
    pub(super) const ADMIN_SOCKET: Self =
        Self { connections: 32, per_address: 32, idle_per_address: 16, reserve: 2 };
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self::for_descriptors(None)
    }
}

/// The connections of a listener.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    limits: ConnectionLimits,
    by_peer: HashMap<Peer, HashMap<Id, Arc<ConnectionState>>>,
    peers: HashMap<Id, Peer>,
    /// Connections closed or rejected since the last log line, and its time.
    closed_since_log: u64,
    last_logged: Option<Instant>,
}

impl ConnectionTable {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self {
            limits,
            by_peer: HashMap::new(),
            peers: HashMap::new(),
            closed_since_log: 0,
            last_logged: None,
        }
    }

    /// Accepts a connection, closing another one if necessary. `None` if the limit is reached.
    pub(super) fn admit(&mut self, peer: Peer) -> Option<Arc<ConnectionState>> {
        let peer = peer.shared();
        let (all, idle) = self.by_peer.get(&peer).map_or((0, 0), |connections| {
            (
                connections.len(),
                connections.values().filter(|state| state.idle_since().is_some()).count(),
            )
        });
        if idle >= self.limits.idle_per_address {
            self.close_one(Some(peer));
        } else if all >= self.limits.per_address && !self.close_one(Some(peer)) {
            self.record_closed();
            return None;
        }
        if self.peers.len() >= self.limits.connections {
            self.close_one(None);
        }
        if self.peers.len() >= self.limits.connections + self.limits.reserve {
            self.record_closed();
            return None;
        }
        Some(Arc::new(ConnectionState::new(self.peers.len() >= self.limits.connections)))
    }

    /// Adds the task of an accepted connection.
    pub(super) fn insert(&mut self, task: Id, peer: Peer, state: Arc<ConnectionState>) {
        let peer = peer.shared();
        self.peers.insert(task, peer);
        self.by_peer.entry(peer).or_default().insert(task, state);
    }

    /// Removes a task that has ended.
    pub(super) fn remove(&mut self, task: Id) {
        let Some(peer) = self.peers.remove(&task) else { return };
        if let Some(connections) = self.by_peer.get_mut(&peer) {
            connections.remove(&task);
            if connections.is_empty() {
                self.by_peer.remove(&peer);
            }
        }
    }

    /// Closes the connection that has been idle longest, otherwise the one that has been stalled
    /// longest: of one peer, or of all. Returns whether there was one.
    pub(super) fn close_one(&mut self, of: Option<Peer>) -> bool {
        let connections = of.map(|peer| self.by_peer.get(&peer));
        let members = || {
            let one = connections.into_iter().flatten();
            let all = self.by_peer.values().filter(|_| of.is_none());
            one.chain(all).flatten()
        };
        let longest = |since: fn(&ConnectionState) -> Option<Instant>| {
            let waits = members().filter_map(|(task, state)| Some((since(state)?, *task)));
            waits.min_by_key(|(since, _)| *since).map(|(_, task)| task)
        };
        let Some(task) = longest(ConnectionState::idle_since)
            .or_else(|| longest(ConnectionState::stalled_since))
        else {
            return false;
        };
        let state = self.peers.get(&task).and_then(|peer| self.by_peer.get(peer)?.get(&task));
        if let Some(state) = state {
            state.close.cancel();
        }
        // The connection no longer counts, although its task may take a moment to end.
        self.remove(task);
        self.record_closed();
        true
    }

    /// Counts a closed or rejected connection, and logs it at most once per interval.
    fn record_closed(&mut self) {
        self.closed_since_log += 1;
        let now = Instant::now();
        if self.last_logged.is_none_or(|last| now - last >= LOG_INTERVAL) {
            tracing::warn!(
                closed = self.closed_since_log,
                connections = self.peers.len(),
                "the connection limit is reached; closing the connections that were idle longest"
            );
            (self.closed_since_log, self.last_logged) = (0, Some(now));
        }
    }
}
