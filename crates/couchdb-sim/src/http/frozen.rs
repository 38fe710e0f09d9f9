//! Requests that wait for a node whose process is stopped.
//!
//! Measured on real clusters of three nodes: a node immediately answers what it knows by itself,
//! including the shard map and its own files; `_reshard` and `_active_tasks` ask every
//! node and wait for the stopped one; a database waits if one of its ranges has no other copy. When
//! Erlang considers the node down, all waiting requests are answered, with 500 for a range without
//! another copy.

use super::ask::segments;
use crate::{Cluster, cluster::Inner};
use std::time::Duration;

/// How often a waiting request checks whether it still has to wait.
const LOOK: Duration = Duration::from_millis(100);

/// How long Erlang tries to connect to a node (`net_setuptime`).
const SETUP: Duration = Duration::from_secs(7);

/// Whether a request to `node` must wait now.
pub(super) fn waits(cluster: &Cluster, node: &str, path: &str) -> bool {
    cluster.locked(|inner| {
        inner.planned.is_frozen(node)
            || (inner.planned.any_awaited(inner.world.now()) && needs_it(inner, node, path))
    })
}

/// Waits until the request can be answered.
pub(super) async fn waited(cluster: &Cluster, node: &str, path: &str) {
    while waits(cluster, node, path) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits for Erlang's attempt to connect to the node to which this request is forwarded, if that node
/// was considered down.
pub(super) async fn connected(cluster: &Cluster, node: &str, path: &str) {
    let end = tokio::time::Instant::now() + SETUP;
    let is_tried = || {
        cluster.locked(|inner| {
            let segments = segments(path);
            let to = segments
                .get(1)
                .filter(|to| segments.first().is_some_and(|it| it == "_node") && *to != node);
            to.is_some_and(|to| inner.planned.is_given_up(to, inner.world.now()))
        })
    };
    while is_tried() && tokio::time::Instant::now() < end {
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether a request needs a node that the others still wait for.
fn needs_it(inner: &Inner, entry: &str, path: &str) -> bool {
    let segments = segments(path);
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let now = inner.world.now();
    match segments.as_slice() {
        // smoosh's status ignores the node in its path.
        ["_node", _, "_smoosh", ..] => false,
        ["_node", node, ..] => *node != entry && inner.planned.is_awaited(node, now),
        ["_reshard" | "_active_tasks", ..] => true,
        _ => is_without(inner, &segments, |node| inner.planned.is_awaited(node, now)),
    }
}

/// Whether a request is for a database with a range whose nodes are all considered down.
pub(super) fn is_lost(inner: &Inner, segments: &[&str]) -> bool {
    let now = inner.world.now();
    is_without(inner, segments, |node| inner.planned.is_given_up(node, now))
}

/// Whether a request needs all ranges of a database, and all copies of one range are `away`.
fn is_without(inner: &Inner, segments: &[&str], away: impl Fn(&str) -> bool) -> bool {
    let [db, rest @ ..] = segments else { return false };
    // A node knows by itself where copies are.
    let of_all_ranges = !db.starts_with('_') && !matches!(rest, ["_shards", ..]);
    let mapped = of_all_ranges.then(|| inner.world.map_entry_of(db)).flatten();
    mapped.is_some_and(|mapped| {
        mapped.ranges.iter().any(|(_, nodes)| !nodes.is_empty() && nodes.iter().all(|it| away(it)))
    })
}
