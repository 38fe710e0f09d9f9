//! Whether a start of the plan still is one, by what was read just before it. Pure.

use crate::{
    model::{channel::Channel, facts::Facts, score::score, target::Kind},
    plan::Start,
    sources::inventory::{Doing, TaskSeen},
};

/// A file that grew by more than this part since the plan may need more space than was left
/// for it.
const GREW: f64 = 0.25;

/// Growth by fewer bytes is within what is kept free on any volume.
const LITTLE: u64 = 16 << 20;

/// What was read just before a start.
#[derive(Clone, Debug)]
pub(super) struct Fresh {
    /// The target's facts; none for a cleanup, of which nothing can be read.
    pub(super) facts: Option<Facts>,
    /// What runs on the nodes it works on.
    pub(super) tasks: Vec<TaskSeen>,
    /// Whether a shard it compacts is being split.
    pub(super) splitting: bool,
}

/// What a start is checked against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) start: &'a Start,
    pub(super) kind: Kind,
    pub(super) channel: &'a Channel,
    /// The facts the plan was made from.
    pub(super) planned: &'a Facts,
    /// Whether it goes on with a view of which other copies were compacted.
    pub(super) in_round: bool,
    /// Compactions that may run on its node.
    pub(super) per_node: usize,
}

/// Why a start is off, in words; `None` where it still holds.
pub(super) fn refusal(wanted: Wanted<'_>, fresh: &Fresh) -> Option<String> {
    let Wanted { start, kind, channel, planned, .. } = wanted;
    if kind == Kind::Cleanup {
        return None;
    }
    let Some(facts) = &fresh.facts else {
        return Some("it is there no more".into());
    };
    if fresh.splitting {
        return Some("its shard is being split".into());
    }
    if facts.flags.compact_running {
        return Some("CouchDB compacts it already".into());
    }
    if facts.flags.updater_running {
        return Some("its index is being built".into());
    }
    if let Some(why) = fresh.tasks.iter().find_map(|task| in_the_way(start, task)) {
        return Some(why);
    }
    let compactions = fresh
        .tasks
        .iter()
        .filter(|task| !matches!(task.doing, Doing::Builds(_) | Doing::BuildsSearch { .. }));
    if start.shard.is_some() && compactions.count() >= wanted.per_node {
        return Some("its node compacts as much as it may".into());
    }
    let forced = start.ordered.as_ref().is_some_and(|ordered| ordered.force);
    if !wanted.in_round
        && !forced
        && let Err(miss) = score(channel, kind, facts)
    {
        return Some(format!("{} takes it no more: {}", channel.name, miss.reason.label()));
    }
    let grew = |then: Option<u64>, now: Option<u64>| {
        then.zip(now).is_some_and(|(then, now)| {
            now.saturating_sub(then) > LITTLE && now as f64 > then as f64 * (1.0 + GREW)
        })
    };
    grew(planned.active.get(), facts.active.get()).then(|| "it grew since the plan was made".into())
}

/// What a task has against a start.
fn in_the_way(start: &Start, task: &TaskSeen) -> Option<String> {
    let same_file = start.shard.as_deref().is_none_or(|shard| shard == task.shard);
    let why = match (&task.doing, start.design.as_deref()) {
        (Doing::Compacts, None) if same_file => "a node shows that it is compacted",
        (Doing::CompactsView(other), Some(design)) if same_file && other == design => {
            "a node shows that it is compacted"
        }
        (Doing::Builds(other), Some(design)) if same_file && other == design => {
            "a node shows that its index is built"
        }
        _ => return None,
    };
    Some(why.into())
}
