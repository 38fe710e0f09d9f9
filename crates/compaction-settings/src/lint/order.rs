//! Compares channels with each other: the first channel that takes a target keeps it, whether or
//! not it ever starts a job (`smoosh_server:find_channel/3`).

use crate::{Fault, Priority, SmooshChannel, finding::Findings, number::BEYOND};

/// Checks the channels of one kind, given in the order in which smoosh tries them.
pub(crate) fn order(channels: &[SmooshChannel], findings: &mut Findings) {
    for (at, one) in channels.iter().enumerate() {
        let (before, after) = channels.split_at(at);
        let after = after.get(1..).unwrap_or_default();
        if let Some(why) = takes_nothing(one) {
            findings.add_fault(Fault::NeverMatches, one.section(), why);
            continue;
        }
        if let Some(why) = one.never_starts {
            findings.warn(&one.section(), None, never_starts_message(one, why.why(), after));
        }
        if let Some(first) = before.iter().find(|first| takes_all_of(first, one)) {
            findings.add_fault(
                Fault::Shadowed,
                one.section(),
                format!(
                    "takes nothing: {} is tried first and takes all of the same targets",
                    first.shown()
                ),
            );
        } else if let Some(rest) = before.iter().find_map(|first| leftover_after(first, one)) {
            findings.note(&one.section(), None, rest);
        }
    }
}

fn never_starts_message(one: &SmooshChannel, why: &str, after: &[SmooshChannel]) -> String {
    let what = if one.only_empty_files { "files without live bytes" } else { "targets" };
    let after: Vec<_> = after.iter().map(|later| later.shown()).collect();
    let sees = if after.is_empty() {
        String::new()
    } else {
        format!(", and {} never see them", after.join(", "))
    };
    format!("takes {what} but never starts one, because {why}{sees}")
}

/// Why a channel takes nothing because of its own bounds.
fn takes_nothing(channel: &SmooshChannel) -> Option<String> {
    if matches!(channel.priority, Some(Priority::Upgrade | Priority::Cleanup)) {
        return None;
    }
    if channel.min_size == BEYOND {
        return Some("takes nothing: its min_size is larger than any file".to_owned());
    }
    if let Some(max) = channel.max_size
        && channel.min_size >= max
    {
        return Some(format!(
            "takes nothing: no file is both larger than min_size, {}, and no larger than max_size, {}",
            size(channel.min_size),
            size(max)
        ));
    }
    channel.priority?;
    let rest =
        if channel.min_priority == 0.0 { "nothing" } else { "only files without live bytes" };
    if channel.only_empty_files {
        return channel
            .never_starts
            .is_none()
            .then(|| format!("takes {rest}: its min_priority is infinity"));
    }
    if channel.min_priority >= channel.max_priority {
        return Some(format!(
            "takes {rest}: no priority is both more than min_priority, {}, and no more than max_priority, {}",
            in_unit(channel.priority, channel.min_priority),
            in_unit(channel.priority, channel.max_priority)
        ));
    }
    let max = channel.max_size.map_or(f64::INFINITY, |max| max as f64);
    (channel.priority == Some(Priority::Slack) && channel.min_priority >= max).then(|| {
        format!(
            "takes {rest}: a file of at most max_size, {}, has no slack of more than min_priority, {}",
            in_bytes(max),
            in_bytes(channel.min_priority)
        )
    })
}

/// Whether `first` accepts every size and number of changes that `one` accepts.
fn wider(first: &SmooshChannel, one: &SmooshChannel) -> bool {
    first.min_size <= one.min_size
        && first.max_size.is_none_or(|max| one.max_size.is_some_and(|other| other <= max))
        && first.min_changes <= one.min_changes
}

/// Whether `a`, tried before `b`, takes everything that `b` would take.
fn takes_all_of(a: &SmooshChannel, b: &SmooshChannel) -> bool {
    if a.priority == Some(Priority::Cleanup) {
        return true;
    }
    // A file without live bytes gets `min_priority` as its priority, and zero means that it is not
    // taken.
    let takes_empty = a.min_priority != 0.0 || b.min_priority == 0.0;
    if a.only_empty_files || !wider(a, b) || !takes_empty {
        return false;
    }
    let min_size = b.min_size as f64;
    // A channel without a score behaves like one by ratio whose bounds no file meets.
    let priority = |channel: &SmooshChannel| channel.priority.unwrap_or(Priority::Ratio);
    match (priority(a), priority(b)) {
        (Priority::Ratio, Priority::Ratio) | (Priority::Slack, Priority::Slack) => {
            a.min_priority <= b.min_priority && a.max_priority >= b.max_priority
        }
        // At a given slack, the largest file has the smallest ratio.
        (Priority::Ratio, Priority::Slack) => {
            let least = b.max_size.map_or(1.0, |max| max as f64 / (max as f64 - b.min_priority));
            a.max_priority == f64::INFINITY && b.min_priority >= 0.0 && a.min_priority <= least
        }
        // At a given ratio, the smallest file has the smallest slack.
        (Priority::Slack, Priority::Ratio) => {
            a.max_priority == f64::INFINITY
                && b.min_priority >= 1.0
                && a.min_priority <= min_size * (1.0 - 1.0 / b.min_priority)
        }
        (
            Priority::Ratio | Priority::Slack | Priority::Upgrade | Priority::Cleanup,
            Priority::Ratio | Priority::Slack | Priority::Upgrade | Priority::Cleanup,
        ) => false,
    }
}

/// What is left for a slack channel after a ratio channel that takes the most wasteful files.
fn leftover_after(a: &SmooshChannel, b: &SmooshChannel) -> Option<String> {
    let both = a.priority == Some(Priority::Ratio) && b.priority == Some(Priority::Slack);
    let open = a.max_priority == f64::INFINITY && wider(a, b);
    if !both || !open || a.only_empty_files || a.min_priority <= 1.0 || b.min_priority <= 0.0 {
        return None;
    }
    let least = b.min_priority * a.min_priority / (a.min_priority - 1.0);
    let least = in_bytes(least);
    Some(format!(
        "gets only what {} before it does not take: ratios of at most {}, which with this much slack means files of {least} or more",
        a.shown(),
        a.min_priority
    ))
}

/// Formats a limit in bytes, which settings may give as a fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "saturates; no limit that smoosh reads as bytes is negative"
)]
fn in_bytes(limit: f64) -> String {
    size(limit as u64)
}

/// A priority in the unit of its channel's.
pub(super) fn in_unit(priority: Option<Priority>, value: f64) -> String {
    match priority {
        Some(Priority::Slack) if value.is_finite() => in_bytes(value),
        _ => value.to_string(),
    }
}

/// Formats a size, such as `873 B`, `20 MiB` or `1.5 GiB`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let (mut value, mut unit) = (bytes as f64, "");
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    let value = format!("{value:.1}");
    if unit.is_empty() {
        format!("{bytes} B")
    } else {
        format!("{} {unit}", value.trim_end_matches(".0"))
    }
}
