//! The connections of one listener, and which one is closed when the limit is reached.
//!
//! Owns the table of connections; only the listener's task changes it. An idle connection is
//! closed in favour of a new one, the longest idle first, because an idle client loses nothing by
//! reconnecting. If all connections are busy, a few more are accepted for probes and scrapes, so
//! that an attack is visible and the process is not considered dead. A semaphore instead of the
//! table would let idle connections keep everybody out.

use crate::{feeds::feed_server, serve::http::peer::Peer};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{sync::watch, task::Id, time::Instant};
use tokio_util::sync::CancellationToken;

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

/// What the table needs to know about a connection.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// When it began to wait for a request; `None` while one is processed or answered.
    idle_since: watch::Sender<Option<Instant>>,
    /// Whether it was accepted above the limit, for probes and scrapes only.
    pub(super) reserved: bool,
    /// Closes the connection when cancelled.
    pub(super) close: CancellationToken,
}

impl ConnectionState {
    /// The state of a connection that begins now.
    pub(super) fn new(reserved: bool) -> Self {
        let idle_since = watch::Sender::new(Some(Instant::now()));
        Self { idle_since, reserved, close: CancellationToken::new() }
    }

    /// A complete head arrived.
    pub(super) fn set_busy(&self) {
        self.idle_since.send_replace(None);
    }

    /// The response was passed on, or the client went away.
    pub(super) fn set_idle(&self) {
        self.idle_since.send_replace(Some(Instant::now()));
    }

    fn idle_since(&self) -> Option<Instant> {
        *self.idle_since.borrow()
    }
}

/// The connections of a listener.
#[derive(Debug)]
pub(super) struct ConnectionTable {
    limits: ConnectionLimits,
    connections: HashMap<Id, (Peer, Arc<ConnectionState>)>,
    /// Connections closed or rejected since the last log line, and its time.
    closed_since_log: u64,
    last_logged: Option<Instant>,
}

impl ConnectionTable {
    pub(super) fn new(limits: ConnectionLimits) -> Self {
        Self { limits, connections: HashMap::new(), closed_since_log: 0, last_logged: None }
    }

    /// The connections of one peer, or of all.
    fn of(&self, peer: Option<Peer>) -> impl Iterator<Item = (Id, &ConnectionState)> {
        let all = self.connections.iter();
        let own = all.filter(move |(_, (of, _))| peer.is_none_or(|peer| peer == *of));
        own.map(|(task, (_, state))| (*task, &**state))
    }

    /// Accepts a connection, closing another one if necessary. `None` if the limit is reached.
    pub(super) fn admit(&mut self, peer: Peer) -> Option<Arc<ConnectionState>> {
        let peer = Some(peer.shared());
        let idle = self.of(peer).filter(|(_, state)| state.idle_since().is_some()).count();
        let full = self.of(peer).count() >= self.limits.per_address;
        if (full || idle >= self.limits.idle_per_address) && !self.close_one(peer) {
            return self.reject();
        }
        if self.connections.len() >= self.limits.connections {
            self.close_one(None);
        }
        if self.connections.len() >= self.limits.connections + self.limits.reserve {
            return self.reject();
        }
        let reserved = self.connections.len() >= self.limits.connections;
        Some(Arc::new(ConnectionState::new(reserved)))
    }

    fn reject(&mut self) -> Option<Arc<ConnectionState>> {
        self.record_closed();
        None
    }

    /// Adds the task of an accepted connection.
    pub(super) fn insert(&mut self, task: Id, peer: Peer, state: Arc<ConnectionState>) {
        self.connections.insert(task, (peer.shared(), state));
    }

    /// Removes a task that has ended.
    pub(super) fn remove(&mut self, task: Id) {
        self.connections.remove(&task);
    }

    /// Closes the connection that has been idle longest: of one peer, or of all. Returns whether
    /// there was one.
    pub(super) fn close_one(&mut self, of: Option<Peer>) -> bool {
        let idle = self.of(of).filter_map(|(task, state)| Some((state.idle_since()?, task)));
        let longest = idle.min_by_key(|(since, _)| *since);
        // It no longer counts, although its task may take a moment to end.
        let Some((_, state)) = longest.and_then(|(_, task)| self.connections.remove(&task)) else {
            return false;
        };
        state.close.cancel();
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
                connections = self.connections.len(),
                "the connection limit is reached; closing the connections that have been idle longest"
            );
            (self.closed_since_log, self.last_logged) = (0, Some(now));
        }
    }
}
