//! Who is connected, and who has to go when there is no room.
//!
//! Owns the list of connections of one listener; its task alone changes it. Connections that
//! wait for a request make room for new ones, the longest waiting first: who has nothing to
//! ask is served as well by a new connection. Where all are at work, a few more are let in
//! for probes and scrapes, so that an attack shows and nobody takes the process for dead.

use super::life::Life;
use crate::{feeds::feed_server, serve::http::peer::Peer};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{task::Id, time::Instant};

/// Connections at a time beside those of readers that wait for events.
const OTHERS: usize = 512;

/// At most one line about connections that had to go, in this time.
const QUIET: Duration = Duration::from_secs(60);

/// How many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// At a time.
    connections: usize,
    /// Of one address.
    of_one: usize,
    /// Of one address that wait for a request.
    idle_of_one: usize,
    /// Beyond all of them, for probes and scrapes.
    reserve: usize,
}

impl Room {
    /// What goes with so many file descriptors, of which the other half is for CouchDB, files
    /// and the rest; `None` is no limit.
    #[must_use]
    pub fn of(descriptors: Option<u64>) -> Self {
        let half = descriptors.and_then(|limit| usize::try_from(limit / 2).ok());
        let half = half.unwrap_or(usize::MAX);
        let reserve = (half / 8).clamp(2, 16);
        let connections = half.saturating_sub(reserve).clamp(4, OTHERS + feed_server::MAX_READERS);
        Self {
            connections,
            // One address that takes all it can leaves something to all others.
            of_one: connections - connections / 8,
            idle_of_one: (connections / 8).clamp(2, 256),
            reserve,
        }
    }

    /// How many of them may wait for events: never all.
    #[must_use]
    pub fn for_feeds(&self) -> usize {
        (self.connections - OTHERS.min(self.connections / 2)).min(feed_server::MAX_READERS)
    }

    #[cfg(test)]
    pub(super) const fn connections(&self) -> usize {
        self.connections
    }

    /// For the Unix socket, whose peers are trusted.
    pub(super) const OF_THE_OWNER: Self =
        Self { connections: 32, of_one: 32, idle_of_one: 16, reserve: 2 };
}

impl Default for Room {
    fn default() -> Self {
        Self::of(None)
    }
}

/// The connections of a listener.
#[derive(Debug)]
pub(super) struct Crowd {
    room: Room,
    by_peer: HashMap<Peer, HashMap<Id, Arc<Life>>>,
    peers: HashMap<Id, Peer>,
    /// How many had to go or were not let in since that was last said, and when it was.
    gone: u64,
    said: Option<Instant>,
}

impl Crowd {
    pub(super) fn new(room: Room) -> Self {
        Self { room, by_peer: HashMap::new(), peers: HashMap::new(), gone: 0, said: None }
    }

    /// Lets one more in, if need be in place of another; `None` where there is no room.
    pub(super) fn admit(&mut self, peer: Peer) -> Option<Arc<Life>> {
        let peer = peer.shared();
        let (all, idle) = self.by_peer.get(&peer).map_or((0, 0), |own| {
            (own.len(), own.values().filter(|life| life.idle_since().is_some()).count())
        });
        if idle >= self.room.idle_of_one {
            self.close(Some(peer));
        } else if all >= self.room.of_one && !self.close(Some(peer)) {
            self.note();
            return None;
        }
        if self.peers.len() >= self.room.connections {
            self.close(None);
        }
        if self.peers.len() >= self.room.connections + self.room.reserve {
            self.note();
            return None;
        }
        Some(Arc::new(Life::new(self.peers.len() >= self.room.connections)))
    }

    /// Notes the task of one that was let in.
    pub(super) fn joined(&mut self, task: Id, peer: Peer, life: Arc<Life>) {
        let peer = peer.shared();
        self.peers.insert(task, peer);
        self.by_peer.entry(peer).or_default().insert(task, life);
    }

    /// Notes that its task has ended.
    pub(super) fn left(&mut self, task: Id) {
        let Some(peer) = self.peers.remove(&task) else { return };
        if let Some(own) = self.by_peer.get_mut(&peer) {
            own.remove(&task);
            if own.is_empty() {
                self.by_peer.remove(&peer);
            }
        }
    }

    /// Closes the one that has waited longest for a request, else the one whose peer has taken
    /// nothing for longest: of one peer, or of all. Answers whether there was one.
    pub(super) fn close(&mut self, of: Option<Peer>) -> bool {
        let own = of.map(|peer| self.by_peer.get(&peer));
        let members = || {
            let one = own.into_iter().flatten();
            let all = self.by_peer.values().filter(|_| of.is_none());
            one.chain(all).flatten()
        };
        let longest = |since: fn(&Life) -> Option<Instant>| {
            let waits = members().filter_map(|(task, life)| Some((since(life)?, *task)));
            waits.min_by_key(|(since, _)| *since).map(|(_, task)| task)
        };
        let Some(task) = longest(Life::idle_since).or_else(|| longest(Life::stalled_since)) else {
            return false;
        };
        let life = self.peers.get(&task).and_then(|peer| self.by_peer.get(peer)?.get(&task));
        if let Some(life) = life {
            life.closed.cancel();
        }
        // It counts no more, though its task may take a moment to end.
        self.left(task);
        self.note();
        true
    }

    /// Says now and then that there was no room.
    fn note(&mut self) {
        self.gone += 1;
        let now = Instant::now();
        if self.said.is_none_or(|said| now - said >= QUIET) {
            tracing::warn!(
                closed = self.gone,
                connections = self.peers.len(),
                "there is no room for so many connections: those that wait longest are closed"
            );
            (self.gone, self.said) = (0, Some(now));
        }
    }
}
