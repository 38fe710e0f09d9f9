//! `_dbs/_changes`: databases that are created, deleted or moved, according to one node's copy of
//! the shard map.
//!
//! The state machine is pure except for the clock of its pauses; [`follow_map`] executes its steps.
//! All nodes have the same map, but each numbers its changes independently. After a switch to
//! another node, missed changes are unknown, and the next sweep reads the whole map.

use super::{
    backoff::FeedBackoff,
    change_feeds::{ChangeFeeds, FeedFailure},
    feed_step::FeedStep,
    status::FeedState,
};
use crate::{sources::couchdb::describe, table::Snapshot};
use couchdb_client::{Error, wire::MapChanges};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{self, Instant},
};
use wall_clock::{Clock, Moment};

/// Number of successive failures before another node is tried.
const MAX_FAILURES_PER_NODE: u32 = 2;

/// Minimum delay after an answer, so that changes in the meantime arrive together.
const MIN_REQUEST_INTERVAL: Duration = Duration::from_millis(500);

/// Delay before checking again whether any node is known.
const NO_NODE_DELAY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq)]
enum MapStep {
    /// Ask a node for the current sequence of its map, and start there.
    Begin,
    /// Wait for changes after this sequence.
    Wait(u64),
    Pause(Duration),
}

#[derive(Debug)]
struct MapFeed {
    step: MapStep,
    backoff: FeedBackoff,
    /// The node's sequence to continue from.
    seq: Option<u64>,
    /// Since when it has worked without failure.
    healthy_since: Option<Instant>,
    /// Successive failures of this node.
    consecutive_failures: u32,
    /// The state to report, except [`FeedState::connected`] and [`FeedState::seq`].
    report: FeedState,
}

impl MapFeed {
    fn new() -> Self {
        Self {
            step: MapStep::Begin,
            backoff: FeedBackoff::new(),
            seq: None,
            healthy_since: None,
            consecutive_failures: 0,
            report: FeedState::default(),
        }
    }

    /// The node to query: the same as before while it is available and answers.
    fn choose_node(&mut self, nodes: &[Box<str>]) -> Option<Box<str>> {
        let before =
            self.report.node.as_ref().and_then(|node| nodes.iter().position(|it| it == node));
        let at = match before {
            Some(at) if self.consecutive_failures < MAX_FAILURES_PER_NODE => at,
            Some(at) => (at + 1) % nodes.len().max(1),
            None => 0,
        };
        let chosen = nodes.get(at).cloned();
        if chosen != self.report.node {
            self.reset();
            self.consecutive_failures = 0;
            self.report.node.clone_from(&chosen);
        }
        chosen
    }

    fn end_pause(&mut self) {
        self.step = self.seq.map_or(MapStep::Begin, MapStep::Wait);
    }

    /// Starts at the node's current sequence.
    fn start_at(&mut self, seq: u64, now: Moment) {
        self.seq = Some(seq);
        self.report.followed_since = Some(now.plus(Duration::from_secs(1)));
        self.healthy_since = Some(Instant::now());
        self.step = MapStep::Wait(seq);
    }

    /// Applies an answer; returns the databases it names.
    fn apply_answer(&mut self, since: u64, answer: MapChanges) -> Vec<Box<str>> {
        let last = answer.last_seq.unwrap_or(since);
        if last < since || answer.results.iter().any(|row| row.seq.is_some_and(|seq| seq <= since))
        {
            self.report.rewinds += 1;
            self.reset();
            self.record_failure(
                FeedFailure::Malformed,
                "the feed went back in time; restarting from now".to_owned(),
            );
            return Vec::new();
        }
        self.healthy_since.get_or_insert_with(Instant::now);
        self.seq = Some(last);
        self.consecutive_failures = 0;
        self.report.problem = None;
        self.step = MapStep::Pause(MIN_REQUEST_INTERVAL);
        let mut named: Vec<Box<str>> = Vec::new();
        for db in answer.results.into_iter().filter_map(|row| row.id) {
            if !db.starts_with("_design/") && !named.iter().any(|known| **known == *db) {
                named.push(db.into());
            }
        }
        named
    }

    fn reset(&mut self) {
        self.seq = None;
        self.report.followed_since = None;
    }

    fn record_failure(&mut self, failed: FeedFailure, why: String) {
        self.report.failures += 1;
        self.consecutive_failures += 1;
        if matches!(failed, FeedFailure::Absent | FeedFailure::BadSequence) {
            self.reset();
        }
        self.report.problem = Some(why);
        self.step = MapStep::Pause(self.backoff.next_pause(failed, self.healthy_since.take()));
    }

    fn state(&self) -> FeedState {
        FeedState {
            connected: self.healthy_since.is_some() && self.seq.is_some(),
            seq: self.seq.map(|seq| seq.to_string()),
            ..self.report.clone()
        }
    }
}

/// Follows the feed until the receiver of its steps is gone.
pub(super) async fn follow_map(
    feeds: Arc<dyn ChangeFeeds>,
    clock: Clock,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    out: mpsc::Sender<FeedStep>,
) {
    let mut state = MapFeed::new();
    loop {
        let mut named = Vec::new();
        let node = state.choose_node(&reachable_nodes(&snapshots.borrow()));
        match (state.step.clone(), node) {
            (MapStep::Pause(pause), _) => {
                time::sleep(pause).await;
                state.end_pause();
            }
            (MapStep::Begin | MapStep::Wait(_), None) => time::sleep(NO_NODE_DELAY).await,
            (MapStep::Wait(since), Some(node)) if state.seq == Some(since) => {
                match feeds.wait_for_map(node.into(), since).await {
                    Ok(answer) => named = state.apply_answer(since, answer),
                    Err(error) => handle_error(&mut state, &error),
                }
            }
            (MapStep::Begin | MapStep::Wait(_), Some(node)) => {
                match feeds.map_seq(node.into()).await {
                    Ok(seq) => state.start_at(seq, clock.now()),
                    Err(error) => handle_error(&mut state, &error),
                }
            }
        }
        if out.send(FeedStep::MapChanges(named, state.state())).await.is_err() {
            return;
        }
    }
}

/// The nodes that may be queried.
fn reachable_nodes(snapshot: &Snapshot) -> Vec<Box<str>> {
    let nodes = snapshot.nodes().iter().skip(1).filter(|it| it.is_member && it.answers());
    nodes.map(|node| Box::from(&*node.name)).collect()
}

fn handle_error(state: &mut MapFeed, error: &Error) {
    tracing::debug!(%error, node = state.report.node.as_deref(), "_dbs/_changes failed");
    state.record_failure(FeedFailure::from_error(error), describe(error));
}

#[cfg(test)]
mod tests {
    use super::*;
    use couchdb_client::wire::MapChange;

    fn changes(rows: &[(&str, u64)], last: u64) -> MapChanges {
        let row = |(id, seq): &(&str, u64)| MapChange {
            id: Some((*id).to_owned()),
            seq: Some(*seq),
            deleted: None,
        };
        MapChanges { results: rows.iter().map(row).collect(), last_seq: Some(last) }
    }

    fn all(names: &[&str]) -> Vec<Box<str>> {
        names.iter().map(|name| Box::from(*name)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn names_each_database_once_and_ignores_design_documents() {
        let mut map = MapFeed::new();
        map.choose_node(&all(&["a"]));
        map.start_at(7, Moment::from_unix(100));
        assert_eq!(map.step, MapStep::Wait(7));
        let rows = [("x", 8), ("_design/y", 9), ("x", 10), ("z", 11)];
        assert_eq!(map.apply_answer(7, changes(&rows, 11)), all(&["x", "z"]));
        assert_eq!(map.step, MapStep::Pause(MIN_REQUEST_INTERVAL));
        map.end_pause();
        assert_eq!(map.step, MapStep::Wait(11));
        assert!(map.apply_answer(11, changes(&[], 11)).is_empty());
        assert!(map.state().connected);
        assert_eq!(map.state().followed_since, Some(Moment::from_unix(101)));
    }

    #[tokio::test(start_paused = true)]
    async fn rows_replayed_from_the_beginning_are_not_reported() {
        for answer in [changes(&[("x", 3), ("y", 9)], 9), changes(&[], 3)] {
            let mut map = MapFeed::new();
            map.choose_node(&all(&["a"]));
            map.start_at(7, Moment::from_unix(100));
            assert!(map.apply_answer(7, answer).is_empty());
            assert_eq!((map.report.rewinds, map.state().followed_since), (1, None));
            map.end_pause();
            assert_eq!(map.step, MapStep::Begin);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn queries_another_node_after_two_failures() {
        let nodes = all(&["a", "b"]);
        let mut map = MapFeed::new();
        assert_eq!(map.choose_node(&nodes).as_deref(), Some("a"));
        map.start_at(7, Moment::from_unix(100));
        map.record_failure(FeedFailure::Broken, "gone".into());
        map.end_pause();
        assert_eq!(map.choose_node(&nodes).as_deref(), Some("a"));
        assert_eq!(map.step, MapStep::Wait(7), "the same node continues at its position");
        map.record_failure(FeedFailure::Broken, "gone".into());
        assert_eq!(map.choose_node(&nodes).as_deref(), Some("b"));
        map.end_pause();
        assert_eq!((map.step.clone(), map.report.followed_since), (MapStep::Begin, None));
        assert_eq!(map.choose_node(&all(&["a"])).as_deref(), Some("a"), "b is no longer a member");
        assert_eq!(map.choose_node(&[]), None);
    }
}
