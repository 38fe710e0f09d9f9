//! Explains why a target does not start, in a sentence with the numbers and what must change.

use super::{suspension, title};
use crate::{
    model::{
        channel::{Channel, Mode},
        records::{Backoff, JournalFailure, SuspensionScope},
        rounding::to_bytes,
        target::TargetKind,
    },
    plan::{MAX_COUNTED_WORK, Plan, Refusal, RefusalReason, SlotReservation},
    table::TargetRef,
    text::{Label, duration, size, three_digits_short},
};
use std::time::Duration;
use wall_clock::Moment;

/// Why a target does not start, and what must change for it to start.
pub fn why(plan: &Plan, target: TargetRef<'_>, refusal: &Refusal) -> String {
    if let Some((holder, reservation)) = plan.reservation_behind(refusal) {
        return reserved_for_another(plan, refusal, holder, reservation);
    }
    let sentence = sentence(plan, target, refusal);
    match plan.slot_reservation.as_ref().filter(|reservation| reservation.ix == target.ix()) {
        Some(reservation) => format!(
            "{sentence}; free slots are reserved for it until {}",
            reservation.active_until.rfc3339()
        ),
        None => sentence,
    }
}

/// The sentence for the reason of a refusal.
fn sentence(plan: &Plan, target: TargetRef<'_>, refusal: &Refusal) -> String {
    let channel = plan.possible_channel(target);
    let name = channel.map_or("no channel", |channel| &channel.name);
    let (value, limit) = (refusal.value, refusal.limit);
    match refusal.reason {
        RefusalReason::Mode => match plan.rules.mode {
            Mode::Advise => "recliner only advises; set mode: enforce to let it start".to_owned(),
            Mode::Enforce => {
                format!("channel {name} only advises; set mode: enforce to let it start")
            }
        },
        RefusalReason::Suspended => suspended(plan, target, name),
        RefusalReason::Journal => journal(plan),
        RefusalReason::Window => match channel.and_then(|channel| next_window(plan, channel)) {
            Some(at) => format!("no window of {name} is open; the next one opens at {at}"),
            None => format!("no window of {name} is open, and none opens within two weeks"),
        },
        RefusalReason::WouldNotFitWindow => format!(
            "it would take {} at the measured rate, and the window of {name} closes in {}; a longer window or strict_window: false would let it start",
            seconds(value),
            seconds(limit)
        ),
        RefusalReason::ChannelLimit => channel_limit(plan, target, refusal, name),
        RefusalReason::NodeLimit => job_limit(plan, "on the node", "limits.per_node", refusal),
        RefusalReason::ClusterLimit => {
            if value == Some(1.0) && plan.rules.limits.cluster != 1 {
                "another view goes first; only one view at a time is compacted on all nodes"
                    .to_owned()
            } else {
                job_limit(plan, "in the cluster", cluster_limit(plan), refusal)
            }
        }
        RefusalReason::Budget => over_budget(plan, target, refusal),
        RefusalReason::Headroom => headroom(plan, value, limit),
        RefusalReason::UnknownDisk => format!(
            "free space on its volume is unknown, and its file of {} is larger than headroom.blind_limit, {}; set headroom.volumes to the source of free space",
            bytes(value),
            bytes(limit)
        ),
        RefusalReason::Pressure => pressure(refusal),
        RefusalReason::Ramp => ramp(plan, refusal),
        RefusalReason::Duty => rest(refusal, plan.rules.limits.duty_percent),
        RefusalReason::NodeDown => "the node does not answer".to_owned(),
        RefusalReason::Maintenance => "the node is in maintenance mode".to_owned(),
        RefusalReason::Upgrade => {
            "the node is marked as being upgraded ([couchdb] upgrade_in_progress)".to_owned()
        }
        RefusalReason::Resharding => "its shard is being split or moved".to_owned(),
        RefusalReason::OtherCopyRunning => {
            "another copy of its range goes first; only one at a time is compacted".to_owned()
        }
        RefusalReason::Running => "it is already being compacted".to_owned(),
        RefusalReason::Building => match (value, limit) {
            (Some(_), Some(_)) => format!(
                "the view has {} changes left to index, but at most {} are allowed: a compaction now would index them twice",
                count(value),
                count(limit)
            ),
            _ => {
                "the view is being built: a compaction now would index its changes twice".to_owned()
            }
        },
        RefusalReason::CoolDown if target.kind() == TargetKind::Cleanup => format!(
            "its last cleanup was requested {} ago; it is repeated after {}",
            seconds(value),
            seconds(limit)
        ),
        RefusalReason::CoolDown if is_unsettled(plan, target) => format!(
            "its last compaction ended {} ago with much waste, because much was written while it ran; it is repeated after {} if few writes happen until then, or at once if you order it",
            seconds(value),
            seconds(limit)
        ),
        RefusalReason::CoolDown => format!(
            "its last compaction failed, or ended without a trace, {} ago; it is retried after {}",
            seconds(value),
            seconds(limit)
        ),
        RefusalReason::Quarantined => format!(
            "it failed {} times in a row and waits until an operator releases it",
            count(value)
        ),
        RefusalReason::Futile => futile(plan, target, refusal),
        RefusalReason::Stale => stale(refusal),
        RefusalReason::Excluded => excluded(plan, target, refusal),
        RefusalReason::NoEvidence => "nothing shows stale index files".to_owned(),
    }
}

/// Why a gate of a node is closed, in a sentence; `None` if its meaning says it all.
pub(super) fn why_gate(plan: &Plan, node: &str, refusal: &Refusal) -> Option<String> {
    let suspensions = &plan.conditions.constraints.suspensions.0;
    if refusal.reason == RefusalReason::Suspended {
        let scopes = [SuspensionScope::All, SuspensionScope::Node(node.to_owned())];
        return scopes.iter().find_map(|it| Some(suspension::says(it, suspensions.get(it)?)));
    }
    let says = [
        (RefusalReason::Journal, journal(plan)),
        (RefusalReason::Ramp, ramp(plan, refusal)),
        (RefusalReason::Duty, rest(refusal, plan.rules.limits.duty_percent)),
        (RefusalReason::Pressure, pressure(refusal)),
    ];
    says.into_iter().find(|(reason, _)| *reason == refusal.reason).map(|(_, says)| says)
}

/// The sentence about a journal that cannot be used.
fn journal(plan: &Plan) -> String {
    let failure = plan.conditions.constraints.journal_failure.as_ref();
    match failure.map(|(_, failure)| failure) {
        Some(JournalFailure::NotWritable(error)) => {
            format!("the journal cannot be written ({error}); starts resume when it can")
        }
        Some(other) => other.to_string(),
        None => "the journal cannot be written; starts resume when it can".to_owned(),
    }
}

/// The sentence about a node under pressure.
fn pressure(refusal: &Refusal) -> String {
    format!(
        "the node is busy: the signal is at {} and must fall to {}",
        number(refusal.value),
        number(refusal.limit)
    )
}

fn over_budget(plan: &Plan, target: TargetRef<'_>, refusal: &Refusal) -> String {
    let most = plan.rules.shared.map(|shared| shared.most.bytes_per_hour);
    let file = target.facts().file_bytes.get();
    if let (Some(most), Some(file)) = (most, file)
        && file > most
    {
        return format!(
            "its file of {} is larger than the most that this cluster may start within an hour under shared limits, {}, so it never starts; raise shared_limits.keeper.bytes_per_hour or limits.bytes_per_hour, or compact it by hand",
            bytes(Some(file as f64)),
            bytes(Some(most as f64)),
        );
    }
    format!(
        "with it, {} would start within an hour, but {} is {}",
        bytes(refusal.value),
        budget(plan),
        bytes(refusal.limit)
    )
}

/// The name of a limit that the cluster's share of the shared limits sets.
const SHARED: &str = "this cluster's share of the limits in shared_limits";

/// What limits jobs in the cluster.
fn cluster_limit(plan: &Plan) -> &'static str {
    if plan.rules.jobs_are_shared() { SHARED } else { "limits.cluster" }
}

/// What limits bytes within an hour.
fn budget(plan: &Plan) -> &'static str {
    if plan.rules.bytes_are_shared() { SHARED } else { "limits.bytes_per_hour" }
}

/// The sentence about a limit of jobs on a node or in the cluster.
fn job_limit(plan: &Plan, place: &str, key: &str, refusal: &Refusal) -> String {
    let (value, limit) = (refusal.value, refusal.limit);
    if value > limit {
        format!("with it, {} would run {place}, but {key} is {}", jobs(value), count(limit))
    } else {
        let others = others(plan, value);
        format!("{others} {place} {}, and {key} is {}", go_first(plan, value), count(limit))
    }
}

/// The jobs that keep slots from a target, as the subject of a sentence.
fn others(plan: &Plan, number: Option<f64>) -> String {
    match runs_anything(plan) || number != Some(1.0) {
        true => jobs(number),
        false => "another compaction".to_owned(),
    }
}

fn runs_anything(plan: &Plan) -> bool {
    plan.conditions.jobs.compactions().next().is_some()
}

/// The verb for the jobs that keep slots from a target: they run, or the plan starts them before it.
fn go_first(plan: &Plan, jobs: Option<f64>) -> &'static str {
    match (runs_anything(plan), jobs == Some(1.0)) {
        (true, false) => "run or are first in line",
        (true, true) => "runs or is first in line",
        (false, false) => "are first in line",
        (false, true) => "is first in line",
    }
}

/// The sentence about a channel's concurrency, or the capacity of its queue.
fn channel_limit(plan: &Plan, target: TargetRef<'_>, refusal: &Refusal, name: &str) -> String {
    let (value, limit) = (refusal.value, refusal.limit);
    if has_no_room(plan, target, limit) {
        return format!(
            "the queue of {name} is full: better candidates fill its capacity of {}",
            count(limit)
        );
    }
    if value.is_none() {
        return "others are first in line".to_owned();
    }
    format!(
        "{} of {name} on the node {}, and the channel's concurrency is {}",
        others(plan, value),
        go_first(plan, value),
        count(limit)
    )
}

/// The sentence for slots or bytes that are free, but reserved for another target.
fn reserved_for_another(
    plan: &Plan,
    refusal: &Refusal,
    holder: TargetRef<'_>,
    reservation: &SlotReservation,
) -> String {
    let (value, limit) = (refusal.value, refusal.limit);
    let slots = format!("{} of {} slots", count(value), count(limit));
    let used = if refusal.reason == RefusalReason::ChannelLimit {
        format!("{slots} of its channel on the node are taken")
    } else if refusal.reason == RefusalReason::NodeLimit {
        format!("{slots} on the node are taken (limits.per_node)")
    } else if refusal.reason == RefusalReason::Budget {
        format!(
            "{} of {} were started within an hour or are first in line ({})",
            bytes(value),
            bytes(limit),
            budget(plan)
        )
    } else {
        format!("{slots} in the cluster are taken ({})", cluster_limit(plan))
    };
    let needs = if reservation.all_copies {
        "a slot for each of its copies at once"
    } else {
        &format!("much of {} at once", budget(plan))
    };
    format!(
        "{used}; the rest is reserved until {} for {}, which needs {needs} and has waited since {}",
        reservation.active_until.rfc3339(),
        title(holder),
        reservation.queued_since.rfc3339()
    )
}

/// Whether the limit is the capacity of the queue, and the target does not fit into it.
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
        return RefusalReason::Suspended.meaning().to_owned();
    };
    format!("{}; recliner resume {scope} resumes them", suspension::says(scope, order))
}

fn next_window(plan: &Plan, channel: &Channel) -> Option<String> {
    let (at, _) = plan.channels.find(&channel.name)?;
    plan.window_states.get(at)?.until.map(Moment::rfc3339)
}

fn headroom(plan: &Plan, value: Option<f64>, limit: Option<f64>) -> String {
    let others = if runs_anything(plan) { "running jobs need" } else { "jobs first in line need" };
    match (value, limit) {
        (Some(_), Some(_)) => format!(
            "it may need {} at its peak, and {} are free apart from headroom.keep_free and what {others}",
            bytes(value),
            bytes(limit)
        ),
        _ => "free space is falling faster than compactions explain; starts resume when it stops"
            .to_owned(),
    }
}

/// Whether the last compaction of the target caught up with writes that have ceased.
fn is_unsettled(plan: &Plan, target: TargetRef<'_>) -> bool {
    let backoff = plan.conditions.constraints.backoffs.get(&target.ix());
    matches!(backoff, Some(Backoff::Unsettled { .. }))
}

/// Why another compaction of the target would free too little.
fn futile(plan: &Plan, target: TargetRef<'_>, refusal: &Refusal) -> String {
    if refusal.limit.is_none() {
        return format!(
            "a compaction would free {} of {}, less than 5%: not worth rewriting the file",
            bytes(refusal.value),
            bytes(target.facts().file_bytes.get().map(|file| file as f64))
        );
    }
    let left = bytes(refusal.limit);
    let constraints = &plan.conditions.constraints;
    let file = target.facts().file_bytes.get();
    let frees = file.zip(constraints.remaining_bytes.get(&target.ix()));
    let frees = frees.map(|(file, left)| file.saturating_sub(*left) as f64);
    let busy = match constraints.backoffs.get(&target.ix()) {
        Some(Backoff::Futile { caught_up: true, .. }) => {
            ", because it had to catch up with concurrent writes"
        }
        _ => "",
    };
    match frees {
        Some(_) => format!(
            "its last compaction left {left}{busy}; by that measure another one would free {} now, less than an eighth",
            bytes(frees)
        ),
        None => format!(
            "its last compaction left {left}{busy} and freed nothing; more must change first"
        ),
    }
}

/// Why the target's facts are too old to act on.
fn stale(refusal: &Refusal) -> String {
    match (refusal.value, refusal.limit) {
        (None, _) => "it has not been measured yet".to_owned(),
        (age, None) => format!(
            "it was started {} ago and has not been measured since; it must be measured first",
            seconds(age)
        ),
        (age, fresh_for) => format!(
            "it was measured {} ago, and facts count as fresh for {}; it must be measured again",
            seconds(age),
            seconds(fresh_for)
        ),
    }
}

fn ramp(plan: &Plan, refusal: &Refusal) -> String {
    let wait = plan.rules.limits.wait;
    let spread = refusal.limit == Some(wait.as_secs_f64());
    if refusal.limit.is_none() {
        "the node's jobs are not known; starts resume when a poll reads them".to_owned()
    } else if spread && refusal.value == Some(0.0) {
        format!(
            "another compaction on the node is first in line; the next one starts {} later (limits.wait)",
            seconds(refusal.limit)
        )
    } else if spread {
        format!(
            "{} since the last start on the node; the next one waits {} (limits.wait)",
            seconds(refusal.value),
            seconds(refusal.limit)
        )
    } else {
        format!(
            "recliner started recently and is ramping up: {} allowed so far, {} {}",
            jobs(refusal.limit),
            count(refusal.value),
            go_first(plan, refusal.value)
        )
    }
}

/// Why the node rests, or why no more compactions may start beside the running ones.
fn rest(refusal: &Refusal, duty_percent: f64) -> String {
    let share = three_digits_short(duty_percent);
    let share = format!("may use {share}% of its time (limits.duty)");
    match (refusal.busy_before_rest(duty_percent), refusal.value, refusal.limit) {
        (Some(busy), Some(rested), Some(rest)) => format!(
            "compactions ran on the node for {}{} and {share}: the next one may start in {}",
            duration::format_rounded(busy),
            if busy < MAX_COUNTED_WORK { "" } else { " or longer" },
            seconds(Some((rest - rested).ceil()))
        ),
        _ => format!(
            "compactions run on the node and {share}: the first of them has ended, so no new one may start, and the node rests after the last one"
        ),
    }
}

fn excluded(plan: &Plan, target: TargetRef<'_>, refusal: &Refusal) -> String {
    if let Some((needs, limit)) = refusal.value.zip(refusal.limit) {
        let key = refusal.excluding_key(&plan.rules, target).unwrap_or_default();
        let place = if key == "limits.per_node" { "on a node" } else { "in the cluster" };
        return format!(
            "can never start: needs {needs} slots {place} at once, and {key} allows {limit}"
        );
    }
    if target.view().is_none() {
        return "no request can carry its name".to_owned();
    }
    format!(
        "the setting views.enforce is {}, and the database has {} ranges: CouchDB can only compact all copies of its views at once",
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
    number.map_or_else(|| "?".to_owned(), three_digits_short)
}

fn bytes(number: Option<f64>) -> String {
    number.map_or_else(
        || "an unknown size".to_owned(),
        |bytes| size::format_size(to_bytes(bytes)).to_string(),
    )
}

fn seconds(number: Option<f64>) -> String {
    let span = number.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    span.map_or_else(|| "an unknown time".to_owned(), duration::format_rounded)
}
