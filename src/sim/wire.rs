//! The wire log: what was asked of which node, and with what status it answered.
//!
//! Owns a bounded ring of exchanges. Never holds bodies or credentials. Tests judge a
//! client from it, and from the world's truth, never from the client's own words.

use std::{collections::VecDeque, time::Duration};

/// How many exchanges are kept; the oldest go first. A scan of a small cluster is a few
/// hundred.
const KEPT: usize = 16_384;

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When it came, since the cluster's start.
    pub at: Duration,
    /// The node at whose address it was asked.
    pub node: String,
    /// Its method.
    pub method: http::Method,
    /// Its percent-encoded path and query, as sent.
    pub path: String,
    /// Who asked, if a name was given.
    pub user: Option<String>,
    /// The status answered; 0 where the connection was refused, broken or left hanging.
    pub status: u16,
}

impl Exchange {
    /// Whether it changes nothing: it reads, or begins a session. A query of an index
    /// builds it, unless it says otherwise.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        let queries = ["/_view/", "/_nouveau/", "/_search/"];
        let builds = queries.iter().any(|query| self.path.contains(query))
            && !self.path.contains("update=false");
        (self.method == http::Method::GET && !builds)
            || (self.method == http::Method::POST && self.path == "/_session")
    }
}

/// The latest exchanges, and how many there ever were.
#[derive(Debug, Default)]
pub(super) struct Log {
    kept: VecDeque<Exchange>,
    /// The latest that asked for more than an answer, kept apart: days of polls would push
    /// them out.
    orders: VecDeque<Exchange>,
    seen: u64,
}

impl Log {
    pub(super) fn note(&mut self, exchange: Exchange) {
        if !exchange.is_reading() {
            keep(&mut self.orders, exchange.clone());
        }
        keep(&mut self.kept, exchange);
        self.seen = self.seen.saturating_add(1);
    }

    pub(super) fn kept(&self) -> Vec<Exchange> {
        self.kept.iter().cloned().collect()
    }

    pub(super) fn orders(&self) -> Vec<Exchange> {
        self.orders.iter().cloned().collect()
    }

    pub(super) const fn seen(&self) -> u64 {
        self.seen
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.orders.clear();
    }
}

fn keep(log: &mut VecDeque<Exchange>, exchange: Exchange) {
    if log.len() == KEPT {
        log.pop_front();
    }
    log.push_back(exchange);
}
