//! `_dbs/_changes`: databases that are created, deleted or moved, according to one node's copy of
//! the shard map.
//!
//! The state machine is pure except for the clock of its pauses; [`follow`] executes its steps.
//! All nodes have the same map, but each numbers its changes independently. After a switch to
//! another node, missed changes are unknown, and the next sweep reads the whole map.

use super::{
    feeds::{Failed, Feeds},
    heard::{Heard, Standing},
    pauses::Pauses,
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
const PATIENCE: u32 = 2;

/// Minimum delay after an answer, so that changes in the meantime arrive together.
const BETWEEN: Duration = Duration::from_millis(500);

/// Delay before checking again whether any node is known.
const NOBODY: Duration = Duration::from_secs(1);

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    /// Ask a node for the current sequence of its map, and start there.
    Begin,
    /// Wait for changes after this sequence.
    Wait(u64),
    /// Pause.
    Rest(Duration),
}

/// State of the feed.
#[derive(Debug)]
struct Map {
    step: Step,
    pauses: Pauses,
    node: Option<Box<str>>,
    /// The node's sequence to continue from.
    at: Option<u64>,
    followed_since: Option<Moment>,
    /// Since when it has worked without failure.
    begun: Option<Instant>,
    /// Successive failures of this node.
    strikes: u32,
    rewinds: u64,
    failures: u64,
    problem: Option<String>,
}

impl Map {
    fn new() -> Self {
        Self {
            step: Step::Begin,
            pauses: Pauses::new(),
            node: None,
            at: None,
            followed_since: None,
            begun: None,
            strikes: 0,
            rewinds: 0,
            failures: 0,
            problem: None,
        }
    }

    /// The node to query: the same as before while it is available and answers.
    fn choose(&mut self, nodes: &[Box<str>]) -> Option<Box<str>> {
        let before = self.node.as_ref().and_then(|node| nodes.iter().position(|it| it == node));
        let at = match before {
            Some(at) if self.strikes < PATIENCE => at,
            Some(at) => (at + 1) % nodes.len().max(1),
            None => 0,
        };
        let chosen = nodes.get(at).cloned();
        if chosen != self.node {
            self.begin_anew();
            self.strikes = 0;
            self.node.clone_from(&chosen);
        }
        chosen
    }

    fn rested(&mut self) {
        self.step = self.at.map_or(Step::Begin, Step::Wait);
    }

    /// Starts at the node's current sequence.
    fn begins(&mut self, seq: u64, now: Moment) {
        self.at = Some(seq);
        self.followed_since = Some(now.plus(Duration::from_secs(1)));
        self.begun = Some(Instant::now());
        self.step = Step::Wait(seq);
    }

    /// Applies an answer; returns the databases it names.
    fn answered(&mut self, since: u64, said: MapChanges) -> Vec<Box<str>> {
        let last = said.last_seq.unwrap_or(since);
        if last < since || said.results.iter().any(|row| row.seq.is_some_and(|seq| seq <= since)) {
            self.rewinds += 1;
            self.begin_anew();
            self.failed(
                Failed::Garbage,
                "the feed went back in time; restarting from now".to_owned(),
            );
            return Vec::new();
        }
        self.begun.get_or_insert_with(Instant::now);
        self.at = Some(last);
        self.strikes = 0;
        self.problem = None;
        self.step = Step::Rest(BETWEEN);
        let mut named: Vec<Box<str>> = Vec::new();
        for db in said.results.into_iter().filter_map(|row| row.id) {
            if !db.starts_with("_design/") && !named.iter().any(|known| **known == *db) {
                named.push(db.into());
            }
        }
        named
    }

    fn begin_anew(&mut self) {
        self.at = None;
        self.followed_since = None;
    }

    fn failed(&mut self, failed: Failed, why: String) {
        self.failures += 1;
        self.strikes += 1;
        if matches!(failed, Failed::Absent | Failed::BadSequence) {
            self.begin_anew();
        }
        self.problem = Some(why);
        self.step = Step::Rest(self.pauses.after(failed, self.begun.take()));
    }

    fn standing(&self) -> Standing {
        Standing {
            connected: self.begun.is_some() && self.at.is_some(),
            followed_since: self.followed_since,
            seq: self.at.map(|seq| seq.to_string()),
            node: self.node.clone(),
            rewinds: self.rewinds,
            failures: self.failures,
            problem: self.problem.clone(),
            ..Standing::default()
        }
    }
}

/// Follows the feed until the receiver of its steps is gone.
pub(super) async fn follow(
    feeds: Arc<dyn Feeds>,
    clock: Clock,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    out: mpsc::Sender<Heard>,
) {
    let mut state = Map::new();
    loop {
        let mut named = Vec::new();
        let node = state.choose(&nodes(&snapshots.borrow()));
        match (state.step.clone(), node) {
            (Step::Rest(pause), _) => {
                time::sleep(pause).await;
                state.rested();
            }
            (Step::Begin | Step::Wait(_), None) => time::sleep(NOBODY).await,
            (Step::Wait(since), Some(node)) if state.at == Some(since) => {
                match feeds.map(node.into(), since).await {
                    Ok(said) => named = state.answered(since, said),
                    Err(error) => fail(&mut state, &error),
                }
            }
            (Step::Begin | Step::Wait(_), Some(node)) => match feeds.map_now(node.into()).await {
                Ok(seq) => state.begins(seq, clock.now()),
                Err(error) => fail(&mut state, &error),
            },
        }
        if out.send(Heard::Map(named, state.standing())).await.is_err() {
            return;
        }
    }
}

/// The nodes that may be queried.
fn nodes(snapshot: &Snapshot) -> Vec<Box<str>> {
    let there = snapshot.nodes().iter().skip(1).filter(|it| it.member && it.up == Some(true));
    there.map(|node| Box::from(&*node.name)).collect()
}

fn fail(state: &mut Map, error: &Error) {
    tracing::debug!(%error, node = state.node.as_deref(), "_dbs/_changes failed");
    state.failed(Failed::of(error), describe(error));
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
    async fn each_database_is_named_once_per_answer_and_design_documents_are_ignored() {
        let mut map = Map::new();
        map.choose(&all(&["a"]));
        map.begins(7, Moment::from_unix(100));
        assert_eq!(map.step, Step::Wait(7));
        let rows = [("x", 8), ("_design/y", 9), ("x", 10), ("z", 11)];
        assert_eq!(map.answered(7, changes(&rows, 11)), all(&["x", "z"]));
        assert_eq!(map.step, Step::Rest(BETWEEN));
        map.rested();
        assert_eq!(map.step, Step::Wait(11));
        assert!(map.answered(11, changes(&[], 11)).is_empty());
        assert!(map.standing().connected);
        assert_eq!(map.standing().followed_since, Some(Moment::from_unix(101)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_replay_from_the_beginning_is_not_reported() {
        for said in [changes(&[("x", 3), ("y", 9)], 9), changes(&[], 3)] {
            let mut map = Map::new();
            map.choose(&all(&["a"]));
            map.begins(7, Moment::from_unix(100));
            assert!(map.answered(7, said).is_empty());
            assert_eq!((map.rewinds, map.standing().followed_since), (1, None));
            map.rested();
            assert_eq!(map.step, Step::Begin);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_two_failures_another_node_is_queried_from_now() {
        let nodes = all(&["a", "b"]);
        let mut map = Map::new();
        assert_eq!(map.choose(&nodes).as_deref(), Some("a"));
        map.begins(7, Moment::from_unix(100));
        map.failed(Failed::Broken, "gone".into());
        map.rested();
        assert_eq!(map.choose(&nodes).as_deref(), Some("a"));
        assert_eq!(map.step, Step::Wait(7), "the same node continues at its position");
        map.failed(Failed::Broken, "gone".into());
        assert_eq!(map.choose(&nodes).as_deref(), Some("b"));
        map.rested();
        assert_eq!((map.step.clone(), map.followed_since), (Step::Begin, None));
        assert_eq!(map.choose(&all(&["a"])).as_deref(), Some("a"), "b is no longer a member");
        assert_eq!(map.choose(&[]), None);
    }
}
