//! What keeps a target from starting, in a sentence: with the numbers, and what has to
//! change.

use super::{suspension, title};
use crate::{
    model::{channel::Channel, records::Backoff},
    plan::{Plan, Refusal, RefusalReason, SlotReservation},
    table::TargetRef,
    text::{duration, size},
};
use std::time::Duration;
use wall_clock::Moment;

/// Why a target does not start and what would have to change.
#[must_use]
pub fn why(plan: &Plan, target: TargetRef<'_>, refusal: &Refusal) -> String {
    if let Some((claimant, claim)) = plan.reservation_behind(refusal) {
        return kept(refusal, claimant, claim);
    }
    let said = said(plan, target, refusal);
    match plan.slot_reservation.as_ref().filter(|claim| claim.ix == target.ix()) {
        Some(claim) => {
            format!("{said}; what comes free is kept for it until {}", claim.active_until.rfc3339())
        }
        None => said,
    }
}

fn said(plan: &Plan, target: TargetRef<'_>, refusal: &Refusal) -> String {
    let channel = plan.start_channel(target);
    let name = channel.map_or("no channel", |channel| &channel.name);
    let limits = &plan.rules.limits;
    let (value, limit) = (refusal.value, refusal.limit);
    match refusal.reason {
        RefusalReason::Mode => format!("{name} only advises: give it mode: enforce"),
        RefusalReason::Suspended => suspended(plan, target, name),
        RefusalReason::Journal => {
            let trouble = plan.conditions.constraints.journal_failure.as_ref();
            let said = trouble.map_or("", |(_, said)| said);
            format!(
                "the journal cannot be written ({said}); starts go on by themselves when it can"
            )
        }
        RefusalReason::Window => {
            let opens = channel.and_then(|channel| opening(plan, channel));
            match opens {
                Some(at) => format!("no window of {name} is open; the next opens at {at}"),
                None => format!("no window of {name} is open, and none opens within two weeks"),
            }
        }
        RefusalReason::WouldNotFitWindow => format!(
            "it would take {} at the rate that was measured, and the window of {name} closes in {}; a longer window or strict_window: false would let it start",
            seconds(value),
            seconds(limit)
        ),
        RefusalReason::ChannelLimit if has_no_room(plan, target, limit) => format!(
            "the queue of {name} has no room for it: better ones fill its capacity of {}",
            count(limit)
        ),
        RefusalReason::ChannelLimit => format!(
            "{} of {name} {} before it on the node, {} its concurrency",
            count(value),
            if value == Some(1.0) { "runs or starts" } else { "run or start" },
            if value == limit {
                "as many as".to_owned()
            } else {
                format!("against {} of", count(limit))
            }
        ),
        RefusalReason::NodeLimit if value > limit => format!(
            "with it a node would have {} at once, and limits.per_node allows {}",
            jobs(value),
            count(limit)
        ),
        RefusalReason::NodeLimit => format!(
            "with {} the node has what limits.per_node allows, {}; one has to end first",
            jobs(value),
            count(limit)
        ),
        RefusalReason::ClusterLimit if value == Some(1.0) && limits.cluster != 1 => {
            "another view is being compacted on all nodes; one at a time is".to_owned()
        }
        RefusalReason::ClusterLimit if value > limit => format!(
            "with it the cluster would have {} at once, and limits.cluster allows {}",
            jobs(value),
            count(limit)
        ),
        RefusalReason::ClusterLimit => format!(
            "with {} the cluster has what limits.cluster allows, {}; one has to end first",
            jobs(value),
            count(limit)
        ),
        RefusalReason::Budget => format!(
            "with it {} were started within an hour, and limits.bytes_per_hour is {}",
            bytes(value),
            bytes(limit)
        ),
        RefusalReason::Headroom => headroom(value, limit),
        RefusalReason::UnknownDisk => format!(
            "free space where it lies is unknown, and its file of {} is larger than headroom.blind_limit, {}; tell headroom.volumes where to read the space",
            bytes(value),
            bytes(limit)
        ),
        RefusalReason::Pressure => format!(
            "the node is busy: the signal reads {} and has to fall to {}",
            number(value),
            number(limit)
        ),
        RefusalReason::Ramp => ramp(refusal, limits.wait),
        RefusalReason::Maintenance => {
            "the node is in maintenance; it goes on when that ends".to_owned()
        }
        RefusalReason::Resharding => {
            "its shard is being split or moved; it goes on when that ends".to_owned()
        }
        RefusalReason::OtherCopyRunning => {
            "another copy of its range is being compacted, and one at a time is".to_owned()
        }
        RefusalReason::Running => "it is being compacted already".to_owned(),
        RefusalReason::Building => match (value, limit) {
            (Some(_), Some(_)) => format!(
                "the view has {} changes to see yet and may miss {}: compacted now it would be mapped twice",
                count(value),
                count(limit)
            ),
            _ => "the view is being built; compacted meanwhile it would be mapped twice".to_owned(),
        },
        RefusalReason::CoolDown => format!(
            "its last compaction failed {} ago, and it rests for {}",
            seconds(value),
            seconds(limit)
        ),
        RefusalReason::Quarantined => format!(
            "it failed {} times in a row and is left alone until an operator releases it",
            count(value)
        ),
        RefusalReason::Futile if limit.is_none() => format!(
            "its file is as lean as a compaction leaves it, and nothing was written to it since its last one: another one would free {} at most",
            bytes(value)
        ),
        RefusalReason::Futile => futile(plan, target, limit),
        RefusalReason::Stale if value.is_none() => "it was never measured".to_owned(),
        RefusalReason::Stale if limit.is_none() => format!(
            "it was started {} ago and has not been measured since; it has to be read again first",
            seconds(value)
        ),
        RefusalReason::Stale => format!(
            "it was measured {} ago, and facts count for {}; it has to be read again",
            seconds(value),
            seconds(limit)
        ),
        RefusalReason::Excluded => excluded(plan, target),
        RefusalReason::NoEvidence => "nothing says that it has stale index files".to_owned(),
    }
}

/// Why what is left within a limit is left for another.
fn kept(refusal: &Refusal, target: TargetRef<'_>, claim: &SlotReservation) -> String {
    let (value, limit) = (refusal.value, refusal.limit);
    let left = if refusal.reason == RefusalReason::ChannelLimit {
        format!("{} of its channel run there, of {}", count(value), count(limit))
    } else if refusal.reason == RefusalReason::NodeLimit {
        format!("the node has {}, of the {} that limits.per_node allows", jobs(value), count(limit))
    } else if refusal.reason == RefusalReason::Budget {
        format!(
            "{} were started within an hour, of the {} of limits.bytes_per_hour",
            bytes(value),
            bytes(limit)
        )
    } else {
        format!("the cluster has {}, of the {} that may be", jobs(value), count(limit))
    };
    let needs = if claim.all_copies {
        "a slot for each of its copies at once"
    } else {
        "much of limits.bytes_per_hour at once"
    };
    format!(
        "{left}; the rest is kept until {} for the {}, which needs {needs} and has waited since {}",
        claim.active_until.rfc3339(),
        title(target),
        claim.queued_since.rfc3339()
    )
}

/// Whether the limit is that of the queue, in which the target has no room.
fn has_no_room(plan: &Plan, target: TargetRef<'_>, limit: Option<f64>) -> bool {
    let placed = plan.placement(target.ix()).and_then(|(_, placed)| placed.channel_index());
    let queue = placed.and_then(|channel| plan.queue(target.node_ix(), channel));
    queue.is_some_and(|queue| {
        limit == Some(queue.capacity as f64) && !queue.queued().any(|ix| ix == target.ix())
    })
}

fn suspended(plan: &Plan, target: TargetRef<'_>, channel: &str) -> String {
    let suspensions = &plan.conditions.constraints.suspensions;
    let Some((scope, order)) = suspensions.covering(target.node(), channel) else {
        return "an operator suspended starts".to_owned();
    };
    format!("{}; recliner resume {scope} takes that back", suspension::says(scope, order))
}

fn opening(plan: &Plan, channel: &Channel) -> Option<String> {
    let (at, _) = plan.channels.find(&channel.name)?;
    plan.window_states.get(at)?.until.map(Moment::rfc3339)
}

fn headroom(value: Option<f64>, limit: Option<f64>) -> String {
    match (value, limit) {
        (Some(_), Some(_)) => format!(
            "it may take {} at its worst moment, and {} are free beside what is kept free and what jobs reserve",
            bytes(value),
            bytes(limit)
        ),
        _ => "free space falls faster than the jobs explain; starts go on when it does not"
            .to_owned(),
    }
}

/// What the last compaction says of another one.
fn futile(plan: &Plan, target: TargetRef<'_>, left: Option<f64>) -> String {
    let file = target.facts().file_bytes.get();
    match plan.conditions.constraints.backoffs.get(&target.ix()) {
        Some(Backoff::Futile { caught_up: true, .. }) => format!(
            "its last compaction left {}, because it had to catch up with what was written meanwhile; it is tried again when less is written, or when enough has changed",
            bytes(left)
        ),
        Some(Backoff::Futile { would_leave: Some(would_leave), .. }) => format!(
            "by what its last compaction left, {}, another one would free {} now; more has to change first",
            bytes(left),
            file.map_or_else(
                || "an unknown size".to_owned(),
                |file| size::format_size(file.saturating_sub(*would_leave)).to_string()
            )
        ),
        _ => format!(
            "its last compaction left {} and freed far less than promised; more has to change first",
            bytes(left)
        ),
    }
}

fn ramp(refusal: &Refusal, wait: Duration) -> String {
    let spread = refusal.limit == Some(wait.as_secs_f64());
    if refusal.limit.is_none() {
        "what runs on the node is not known yet; it goes on once the node has said".to_owned()
    } else if spread {
        format!(
            "the last start on the node was {} ago, and limits.wait is {}",
            seconds(refusal.value),
            seconds(refusal.limit)
        )
    } else {
        format!(
            "so soon after the start of this process {} may run, and {} do",
            jobs(refusal.limit),
            count(refusal.value)
        )
    }
}

fn excluded(plan: &Plan, target: TargetRef<'_>) -> String {
    if target.view().is_none() {
        return "no request can carry its name".to_owned();
    }
    format!(
        "views.enforce is {}, and the database has {} ranges: CouchDB compacts all copies of its views at once",
        plan.rules.views.label(),
        target.shard_map().ranges
    )
}

fn jobs(number: Option<f64>) -> String {
    let plural = if number == Some(1.0) { "" } else { "s" };
    format!("{} job{plural}", count(number))
}

fn count(number: Option<f64>) -> String {
    number.map_or_else(|| "an unknown number".to_owned(), |number| format!("{number:.0}"))
}

fn number(number: Option<f64>) -> String {
    number.map_or_else(|| "?".to_owned(), |number| format!("{number}"))
}

fn bytes(number: Option<f64>) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    number.map_or_else(
        || "an unknown size".to_owned(),
        |bytes| size::format_size(bytes as u64).to_string(),
    )
}

fn seconds(number: Option<f64>) -> String {
    let span = number.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.map_or_else(|| "an unknown time".to_owned(), duration::format_rounded)
}
