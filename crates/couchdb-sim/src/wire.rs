//! The log of requests: the request, its node, and the status of the response.
//!
//! Owns a bounded list of requests. Never contains bodies or credentials. Tests judge a client by it and
//! by the world's state, never by the client's own statements.

use std::{collections::VecDeque, time::Duration};

/// One request and its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When it arrived, since the start of the cluster.
    pub at: Duration,
    /// The node at whose address it arrived.
    pub node: String,
    /// The method.
    pub method: http::Method,
    /// The percent-encoded path and query, as sent.
    pub path: String,
    /// The user, if one was given.
    pub user: Option<String>,
    /// The status of the response; 0 if the connection was refused, broken or left open.
    pub status: u16,
}

impl Exchange {
    /// Whether the request changes nothing: it reads, or begins a session. A query of an index builds
    /// the index unless its parameters prevent that.
    pub fn is_reading(&self) -> bool {
        let queries = ["/_view/", "/_nouveau/", "/_search/"];
        let builds = queries.iter().any(|query| self.path.contains(query))
            && !self.path.contains("update=false");
        (self.method == http::Method::GET && !builds)
            || (self.method == http::Method::POST && self.path == "/_session")
    }
}

/// The latest requests, and their total number.
#[derive(Debug)]
pub(super) struct Log {
    /// The maximum number of entries; the oldest are removed first.
    most: usize,
    kept: VecDeque<Exchange>,
    /// The latest requests that change something, stored separately, because days of polls would displace
    /// them.
    orders: VecDeque<Exchange>,
    seen: u64,
}

impl Log {
    pub(super) const fn of(most: usize) -> Self {
        Self { most, kept: VecDeque::new(), orders: VecDeque::new(), seen: 0 }
    }

    pub(super) fn note(&mut self, exchange: Exchange) {
        if !exchange.is_reading() {
            keep(&mut self.orders, self.most, exchange.clone());
        }
        keep(&mut self.kept, self.most, exchange);
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

fn keep(log: &mut VecDeque<Exchange>, most: usize, exchange: Exchange) {
    if log.len() >= most {
        log.pop_front();
    }
    log.push_back(exchange);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_only_the_latest_requests() {
        let mut log = Log::of(3);
        for at in 0..10 {
            let method = if at % 2 == 0 { http::Method::GET } else { http::Method::POST };
            let (node, path) = (String::new(), "/db/_compact".to_owned());
            let at = Duration::from_secs(at);
            log.note(Exchange { at, node, method, path, user: None, status: 200 });
        }
        let at = |all: Vec<Exchange>| all.iter().map(|it| it.at.as_secs()).collect::<Vec<_>>();
        assert_eq!(
            (at(log.kept()), at(log.orders()), log.seen()),
            (vec![7, 8, 9], vec![5, 7, 9], 10)
        );
    }
}
