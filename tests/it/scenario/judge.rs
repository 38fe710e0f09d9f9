//! The judge: reads the wire and the simulated world's own record of compactions, and
//! nothing that recliner says of itself.

use recliner::{
    clock::Moment,
    settings::Settings,
    sim::{By, Cluster, Compaction},
    target::ShardName,
};
use std::time::Duration;

/// Everything that must not have happened, in sentences.
pub(crate) fn breaches(cluster: &Cluster, settings: &Settings) -> Vec<String> {
    let (posts, compactions) = (cluster.orders(), compactions(cluster));
    let mut broken = Vec::new();
    for post in &posts {
        if !may_be_sent(&post.path) {
            broken.push(format!("{} was sent", post.path));
        }
        if post.status == 202 && !post.path.ends_with("/_view_cleanup") {
            let began = compactions.iter().any(|it| it.began == post.at && it.by == By::Request);
            if !began {
                broken.push(format!("{} at {:?} started what ran already", post.path, post.at));
            }
        }
    }
    let limits = &settings.limits;
    for one in compactions.iter().filter(|it| it.by == By::Request) {
        let mut law = |kept: bool, what: &str| {
            if !kept {
                broken.push(format!("{what}: {one:?}"));
            }
        };
        law(one.beside < limits.per_node, "more jobs on the node than its limit");
        law(one.beside_in_cluster < limits.cluster, "more jobs in the cluster than its limit");
        law(!(limits.one_copy_of_a_range && one.other_copy), "two copies of a range at a time");
        let room = one.available.is_none_or(|free| one.needed <= free);
        law(room, "no space at that instant");
        let full = one.available.is_some() && one.end.is_some_and(|end| !end.swapped);
        law(!full, "it ended with nothing swapped");
    }
    broken
}

/// What enforcing may send: one copy at a time, whole design documents, cleanups.
fn may_be_sent(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match *parts {
        [_, "_view_cleanup"] | [_, "_compact", _] => true,
        ["_node", _, shard, "_compact"] | ["_node", _, shard, "_compact", _] => !shard.is_empty(),
        _ => false,
    }
}

fn compactions(cluster: &Cluster) -> Vec<Compaction> {
    cluster.world(|world| world.compactions())
}

/// What was compacted, one line each: when it began, where, what, its size before and
/// after, how long it took, and who started it where that was not recliner.
pub(crate) fn timeline(cluster: &Cluster) -> String {
    let start = Moment::from_unix(cluster.wall().unix() - cluster.elapsed().as_secs());
    let mut text = String::new();
    for one in compactions(cluster) {
        let at = start.plus(one.began).rfc3339();
        let node = one.node.split(['@', '.']).nth(1).unwrap_or(&one.node).to_owned();
        let what = ShardName::split(&one.shard)
            .map_or_else(|| one.shard.clone(), |shard| format!("{} {}", shard.db, shard.range));
        let ddoc = one.ddoc.as_deref().map(|ddoc| format!(" {ddoc}")).unwrap_or_default();
        let end = one.end.map_or_else(
            || "runs".to_owned(),
            |end| {
                let took = Duration::from_secs(end.at.saturating_sub(one.began).as_secs());
                let swapped = if end.swapped { "" } else { ", not swapped" };
                let took = humantime::format_duration(took);
                format!("{} -> {} MB in {took}{swapped}", mb(one.before), mb(end.after))
            },
        );
        let by = if one.by == By::Smoosh { " (smoosh)" } else { "" };
        text += &format!("{at} {node} {what}{ddoc}: {end}{by}\n");
    }
    text
}

fn mb(bytes: u64) -> u64 {
    bytes / 1_000_000
}
