//! What waits for a node whose process stands still.
//!
//! As real clusters of three showed: what a node answers by itself comes at once, the shard map
//! and its own files included; `_reshard`, `_active_tasks` and `_dbs_info` ask every node and wait
//! for it; a database waits where some range has no other copy. When Erlang has given the node
//! up, all that waited is answered, a range without another copy with 500.

use super::ask::segments;
use crate::{Cluster, cluster::Inner};
use std::time::Duration;

/// How often what waits looks whether it still has to.
const LOOK: Duration = Duration::from_millis(100);

/// How long Erlang tries to connect to a node (`net_setuptime`).
const SETUP: Duration = Duration::from_secs(7);

/// Whether a request to `node` has to wait at this moment.
pub(super) fn waits(cluster: &Cluster, node: &str, path: &str) -> bool {
    cluster.locked(|inner| {
        inner.planned.is_frozen(node)
            || (inner.planned.any_awaited(inner.world.now()) && needs_it(inner, node, path))
    })
}

/// Ends when it has not to wait any more.
pub(super) async fn waited(cluster: &Cluster, node: &str, path: &str) {
    while waits(cluster, node, path) {
        tokio::time::sleep(LOOK).await;
    }
}

/// Ends when Erlang has tried to connect to the node that this request is to be passed on to, if
/// it had given that up.
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

/// Whether a request cannot be answered without a node that is awaited.
fn needs_it(inner: &Inner, entry: &str, path: &str) -> bool {
    let segments = segments(path);
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    let now = inner.world.now();
    match segments.as_slice() {
        // smoosh's status ignores the node in its path.
        ["_node", _, "_smoosh", ..] => false,
        ["_node", node, ..] => *node != entry && inner.planned.is_awaited(node, now),
        ["_reshard" | "_active_tasks" | "_dbs_info", ..] => true,
        _ => is_without(inner, &segments, |node| inner.planned.is_awaited(node, now)),
    }
}

/// Whether a request is for a database some range of which lies on nodes alone that the others
/// have given up.
pub(super) fn is_lost(inner: &Inner, segments: &[&str]) -> bool {
    let now = inner.world.now();
    is_without(inner, segments, |node| inner.planned.is_given_up(node, now))
}

/// Whether a request is for all ranges of a database, one of which has all copies `away`.
fn is_without(inner: &Inner, segments: &[&str], away: impl Fn(&str) -> bool) -> bool {
    let [db, rest @ ..] = segments else { return false };
    // A node knows by itself where copies are.
    let of_all_ranges = !db.starts_with('_') && !matches!(rest, ["_shards", ..]);
    let mapped = of_all_ranges.then(|| inner.world.map_entry_of(db)).flatten();
    mapped.is_some_and(|mapped| {
        mapped.ranges.iter().any(|(_, nodes)| !nodes.is_empty() && nodes.iter().all(|it| away(it)))
    })
}
