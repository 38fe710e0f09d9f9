//! Checks with freshly read facts whether a planned start is still valid. Pure.

use crate::{
    model::{
        channel::Channel,
        facts::Facts,
        score::{RentNow, score},
        target::TargetKind,
    },
    plan::PlannedStart,
    sources::inventory::{ActiveTask, TaskKind},
    text::Label,
};

/// A file that grew by more than this share since the plan may need more space than was reserved.
const MAX_GROWTH_SHARE: f64 = 0.25;

/// Growth below this is covered by the free space kept on every volume.
const NEGLIGIBLE_GROWTH_BYTES: u64 = 16 << 20;

/// Facts read just before a start.
#[derive(Clone, Debug)]
pub(super) struct FreshFacts {
    /// The target's facts; `None` for a cleanup, for which nothing can be read.
    pub(super) facts: Option<Facts>,
    /// Tasks running on the nodes of the start.
    pub(super) tasks: Vec<ActiveTask>,
    /// Whether a shard to be compacted is being split.
    pub(super) splitting: bool,
}

/// The start to check, with its context.
#[derive(Clone, Copy, Debug)]
pub(super) struct StartToCheck<'a> {
    pub(super) start: &'a PlannedStart,
    pub(super) kind: TargetKind,
    pub(super) channel: &'a Channel,
    /// The facts the plan was based on.
    pub(super) planned: &'a Facts,
    /// The target's rent, and the price that the plan compared it with.
    pub(super) rent: RentNow,
    /// Whether other copies of the same view were already compacted.
    pub(super) continues_view: bool,
    /// Limit of compactions on its node.
    pub(super) node_limit: usize,
}

/// Why a start must be cancelled, as a sentence; `None` if it is still valid.
pub(super) fn cancel_reason(to_check: StartToCheck<'_>, fresh: &FreshFacts) -> Option<String> {
    let StartToCheck { start, kind, channel, planned, .. } = to_check;
    if kind == TargetKind::Cleanup {
        return None;
    }
    let Some(facts) = &fresh.facts else {
        return Some("it no longer exists".into());
    };
    if facts.file_bytes.get().is_none() {
        return Some(
            "its size cannot be read, so recliner cannot count it towards limits.bytes_per_hour"
                .into(),
        );
    }
    if fresh.splitting {
        return Some("its shard is being split".into());
    }
    if facts.flags.compact_running {
        return Some("CouchDB is already compacting it".into());
    }
    if facts.flags.updater_running {
        return Some("its index is being built".into());
    }
    if let Some(why) = fresh.tasks.iter().find_map(|task| conflict(start, task)) {
        return Some(why);
    }
    let compactions = fresh
        .tasks
        .iter()
        .filter(|task| !matches!(task.doing, TaskKind::Builds(_) | TaskKind::BuildsSearch { .. }));
    if start.shard.is_some() && compactions.count() >= to_check.node_limit {
        return Some("its node has reached its limit of compactions".into());
    }
    let forced = start.order.as_ref().is_some_and(|ordered| ordered.force);
    if !to_check.continues_view
        && !forced
        && let Err(miss) = score(channel, kind, facts, to_check.rent)
    {
        return Some(format!("{} no longer takes it: {}", channel.name, miss.reason.label()));
    }
    let has_grown = |then: Option<u64>, now: Option<u64>| {
        then.zip(now).is_some_and(|(then, now)| {
            now.saturating_sub(then) > NEGLIGIBLE_GROWTH_BYTES
                && now as f64 > then as f64 * (1.0 + MAX_GROWTH_SHARE)
        })
    };
    has_grown(planned.active_bytes.get(), facts.active_bytes.get())
        .then(|| "it grew since the plan was made".into())
}

/// How a running task conflicts with a start, if it does.
fn conflict(start: &PlannedStart, task: &ActiveTask) -> Option<String> {
    let same_file = start.shard.as_deref().is_none_or(|shard| shard == task.shard);
    let why = match (&task.doing, start.design.as_deref()) {
        (TaskKind::Compacts, None) if same_file => "a node is already compacting it",
        (TaskKind::CompactsView(other), Some(design)) if same_file && other == design => {
            "a node is already compacting it"
        }
        (TaskKind::Builds(other), Some(design)) if same_file && other == design => {
            "a node is building its index"
        }
        _ => return None,
    };
    Some(why.into())
}
