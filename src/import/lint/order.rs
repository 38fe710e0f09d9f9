//! Channels against each other: the first that takes a target has it, whether or not it
//! ever starts anything (`smoosh_server:find_channel/3`).

use crate::{
    import::{
        effective::Effective,
        finding::{Remarks, Severity},
        number::BEYOND,
    },
    model::{channel::Channel, priority::PriorityKind},
    text::size,
};

/// Looks through the channels of one kind, in the order they are tried.
pub(in crate::import) fn order(channels: &[Effective], remarks: &mut Remarks) {
    for (at, one) in channels.iter().enumerate() {
        let (before, after) = channels.split_at(at);
        let after = after.get(1..).unwrap_or_default();
        if let Some(why) = nothing(one) {
            remarks.add(Severity::Warning, &one.section, None, why);
            continue;
        }
        if let Some(why) = one.stopped {
            remarks.add(Severity::Warning, &one.section, None, held(one, why, after));
        }
        if let Some(first) = before.iter().find(|first| takes_all_of(first, one)) {
            remarks.add(
                Severity::Warning,
                &one.section,
                None,
                format!(
                    "takes nothing: {} is tried first and takes all of the same targets",
                    first.channel.name
                ),
            );
        } else if let Some(rest) = before.iter().find_map(|first| left_by(first, one)) {
            remarks.add(Severity::Note, &one.section, None, rest);
        }
    }
}

fn held(one: &Effective, why: &str, after: &[Effective]) -> String {
    let what = if one.floor_only { "files without live bytes" } else { "targets" };
    let after: Vec<_> = after.iter().map(|later| &*later.channel.name).collect();
    let sees = if after.is_empty() {
        String::new()
    } else {
        format!(", and {} never see them", after.join(", "))
    };
    format!(
        "takes {what} and never starts one, because {why}{sees}; it is written with concurrency 0 to the same effect"
    )
}

/// Why a channel takes nothing on its own bounds.
fn nothing(one: &Effective) -> Option<String> {
    let channel = &one.channel;
    if !matches!(channel.priority, PriorityKind::Ratio | PriorityKind::Slack) {
        return None;
    }
    if channel.min_size == BEYOND {
        return Some(
            "takes nothing: its min_size is more than any file has, and written as 4 EiB"
                .to_owned(),
        );
    }
    if let Some(max) = channel.max_size
        && channel.min_size >= max
    {
        return Some(format!(
            "takes nothing: no file is both larger than min_size, {} bytes, and no larger than max_size, {max} bytes",
            channel.min_size
        ));
    }
    if one.unscored {
        return None;
    }
    let floor =
        if channel.min_priority == 0.0 { "nothing" } else { "only files without live bytes" };
    if one.floor_only {
        return one
            .stopped
            .is_none()
            .then(|| format!("takes {floor}: its min_priority is infinity"));
    }
    if channel.min_priority >= channel.max_priority {
        return Some(format!(
            "takes {floor}: no priority is both more than min_priority, {}, and no more than max_priority, {}",
            channel.min_priority, channel.max_priority
        ));
    }
    let max = channel.max_size.map_or(f64::INFINITY, |max| max as f64);
    (channel.priority == PriorityKind::Slack && channel.min_priority >= max).then(|| {
        format!(
            "takes {floor}: a file of at most max_size, {max} bytes, has no slack of more than min_priority, {} bytes",
            channel.min_priority
        )
    })
}

/// Whether `first` passes every size and change count that `one` passes.
fn wider(first: &Channel, one: &Channel) -> bool {
    first.min_size <= one.min_size
        && first.max_size.is_none_or(|max| one.max_size.is_some_and(|other| other <= max))
        && first.min_changes <= one.min_changes
}

/// Whether `first`, tried before `one`, takes whatever `one` would.
fn takes_all_of(first: &Effective, one: &Effective) -> bool {
    let (a, b) = (&first.channel, &one.channel);
    if a.priority == PriorityKind::Cleanup {
        return true;
    }
    // A file without live bytes has the least priority itself, which is no if it is zero.
    let floor = a.min_priority != 0.0 || b.min_priority == 0.0;
    if first.floor_only || !wider(a, b) || !floor {
        return false;
    }
    let min_size = b.min_size as f64;
    match (a.priority, b.priority) {
        (PriorityKind::Ratio, PriorityKind::Ratio) | (PriorityKind::Slack, PriorityKind::Slack) => {
            a.min_priority <= b.min_priority && a.max_priority >= b.max_priority
        }
        // The least ratio at a given slack is that of the largest file.
        (PriorityKind::Ratio, PriorityKind::Slack) => {
            let least = b.max_size.map_or(1.0, |max| max as f64 / (max as f64 - b.min_priority));
            a.max_priority == f64::INFINITY && b.min_priority >= 0.0 && a.min_priority <= least
        }
        // The least slack at a given ratio is that of the smallest file.
        (PriorityKind::Slack, PriorityKind::Ratio) => {
            a.max_priority == f64::INFINITY
                && b.min_priority >= 1.0
                && a.min_priority <= min_size * (1.0 - 1.0 / b.min_priority)
        }
        (
            PriorityKind::Ratio
            | PriorityKind::Slack
            | PriorityKind::Upgrade
            | PriorityKind::Cleanup,
            PriorityKind::Ratio
            | PriorityKind::Slack
            | PriorityKind::Upgrade
            | PriorityKind::Cleanup,
        ) => false,
    }
}

/// What a slack channel gets after a ratio channel that takes the worst of it.
fn left_by(first: &Effective, one: &Effective) -> Option<String> {
    let (a, b) = (&first.channel, &one.channel);
    let both = a.priority == PriorityKind::Ratio && b.priority == PriorityKind::Slack;
    let open = a.max_priority == f64::INFINITY && wider(a, b);
    if !both || !open || first.floor_only || a.min_priority <= 1.0 || b.min_priority <= 0.0 {
        return None;
    }
    let least = b.min_priority * a.min_priority / (a.min_priority - 1.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "positive as checked above; a number to show, which saturates"
    )]
    let least = size::format_size(least as u64);
    Some(format!(
        "gets only what {} before it leaves: ratios of at most {}, which for this much slack means files of {least} and more",
        a.name, a.min_priority
    ))
}
