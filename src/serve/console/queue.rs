//! The queues by node and channel; why their targets wait; when windows are open.

use super::{
    Page, Part, Screen,
    cells::{ago, bytes, count, link, meaning, name, score, seconds, span_since, target_link},
    chart,
    table::table,
};
use crate::{
    plan::{RefusalClass, RefusalReason},
    serve::report::{
        self, ChannelWeek, LimitLine, Planned, Queue, Queues, RefusedLine, SuspensionLine,
    },
    text::{Label, capital, counted, three_digits_short},
};
use maud::{Markup, html};
use std::collections::BTreeSet;
use wall_clock::Moment;

/// The maximum number of starts and of waiting targets shown.
pub(in crate::serve) const SHOWN: usize = 50;

/// The answers that the page shows.
pub(in crate::serve) struct QueueAnswers {
    pub(in crate::serve) planned: Planned,
    /// The best waiting targets, with the reason for each.
    pub(in crate::serve) waiting: Vec<RefusedLine>,
    /// The queues without their targets.
    pub(in crate::serve) queues: Queues,
    /// Channels whose priorities are bytes.
    pub(in crate::serve) in_bytes: BTreeSet<String>,
    pub(in crate::serve) now: Moment,
}

/// The page at `/queue`.
pub(in crate::serve) fn queue(answers: &QueueAnswers) -> Page {
    let QueueAnswers { planned, now, .. } = answers;
    let enforces = planned.mode == "enforce";
    let starts = html! {
        h2 { @if enforces { "Starts now" } @else { "Would start now" } }
        @if planned.starts.is_empty() { p.quiet { "Nothing." } } @else { (starts(planned, SHOWN, *now)) }
    };
    let parts = vec![
        Part::new("queues", queues(answers)),
        Part::new("starts", starts),
        Part::new("why", why_not(planned)),
        Part::new("limits", limits(answers)),
        Part::new("windows", windows(&answers.queues.windows)),
        Part::new("refused", refused(answers)),
    ];
    Page::live(Screen::Queue, "Queue", parts)
}

fn queues(answers: &QueueAnswers) -> Markup {
    let only = answers.planned.only_node.as_deref();
    let waiting: Vec<&Queue> =
        answers.queues.queues.iter().filter(|queue| queue.size > 0 || queue.active > 0).collect();
    html! {
        @if waiting.is_empty() { p.quiet { "Nothing waits." } } @else {
            div.wide { table {
                thead { tr { th.rest { "node" } th { "channel" } th.n { "waiting" } th.n { "running" } th.n { "reclaimable" } th.n.rest { "priorities" } th.rest { "longest wait" } th.rest { "starts" } } }
                tbody { @for queue in waiting { tr {
                    td.rest { (name(report::place(&queue.node, only))) }
                    td.named { a href=(link("targets", &[("channel", &queue.channel), ("node", &queue.node), ("sort", "priority")])) { (name(&queue.channel)) } span.narrow.quiet { (name(report::place(&queue.node, only))) } }
                    td.n { (count(queue.size)) @if queue.overflow > 0 { span.warn { " + " (count(queue.overflow)) " over capacity" } } }
                    td.n { (queue.active) }
                    td.n { (bytes(Some(queue.reclaimable_bytes))) }
                    td.n.rest { @let in_bytes = answers.in_bytes.contains(&queue.channel); (score(queue.priority_min, in_bytes)) " to " (score(queue.priority_max, in_bytes)) }
                    td.rest { (span_since(queue.oldest.as_deref(), answers.now)) }
                    td.rest { (suspend_or_resume(&answers.planned.suspensions, report::place(&queue.node, only), Some((&queue.channel, only)))) }
                } } }
            } }
            @if only.is_none() { p.quiet { "Views and index cleanups wait once for all nodes." } }
        }
        p.actions {
            (all_starts(&answers.planned.suspensions))
            a.button href=(link("act", &[("order", "rescan")])) { "Rescan now …" }
            a.button href=(link("act", &[("order", "flush")])) { "Clear queues …" }
        }
    }
}

/// A link to the order that suspends all starts, or resumes them.
pub(super) fn all_starts(suspensions: &[SuspensionLine]) -> Markup {
    html! {
        @match suspensions.iter().any(|line| line.scope == "all") {
            true => { a.button href=(link("act", &[("order", "resume"), ("scope", "all")])) { "Resume all starts …" } }
            false => { a.button href=(link("act", &[("order", "suspend"), ("scope", "all")])) { "Suspend all starts …" } }
        }
    }
}

/// What is suspended, since when, by whom and why.
pub(in crate::serve) fn suspended(suspensions: &[SuspensionLine]) -> Part {
    let lines = html! {
        @for line in suspensions {
            p.banner { (name(&capital(&line.says))) " · " a href=(link("act", &[("order", "resume"), ("scope", &line.scope)])) { "Resume" } }
        }
    };
    Part::new("suspended", lines)
}

/// A link that suspends or resumes the starts of a node or of a channel (on the given node, or on all
/// of them). There is no link while a wider scope suspends them.
pub(super) fn suspend_or_resume(
    suspensions: &[SuspensionLine],
    node: &str,
    channel: Option<(&str, Option<&str>)>,
) -> Markup {
    let is_suspended = |scope: &str| suspensions.iter().any(|line| line.scope == scope);
    let of_node = format!("node:{node}");
    let (scope, what) = match channel {
        None => (of_node.clone(), "this node".to_owned()),
        Some((channel, Some(_))) => (format!("channel:{channel}"), channel.to_owned()),
        Some((channel, None)) => (format!("channel:{channel}"), format!("{channel} on all nodes")),
    };
    let to = |order: &str| link("act", &[("order", order), ("scope", scope.as_str())]);
    html! {
        @if is_suspended(&scope) { a href=(to("resume")) { "Resume " (name(&what)) " …" } " " span.warn.one { "suspended" } }
        @else if is_suspended("all") || is_suspended(&of_node) { span.warn.one { "suspended" } }
        @else { a href=(to("suspend")) { "Suspend " (name(&what)) " …" } }
    }
}

fn limits(answers: &QueueAnswers) -> Markup {
    let QueueAnswers { planned, queues, now, .. } = answers;
    html! {
        h2 { "Limits" }
        p.quiet { "Every compaction counts, whatever started it." }
        div.wide tabindex="0" role="region" aria-label="Limits" { table {
            thead { tr { th { "limit" } th.n { "used" } th.n { "allowed" } th.rest { "share" } } }
            tbody { @for line in fullest(&queues.limits) { tr {
                td.named { code { (name(&line.key)) } @if planned.only_node.is_none() { (on_node(line)) } @if line.shared { " (this cluster's share of shared limits)" } }
                td.n { (amount(line, line.used)) }
                td.n { (amount(line, line.allowed)) }
                td.rest { (chart::share(line.used as f64 / line.allowed.max(1) as f64, &format!("{} of {}", line.used, line.allowed))) }
            } } }
        } }
        @for line in &queues.duty { p {
            code { "limits.duty" } " on " (name(&line.node)) ": "
            @match &line.rests_until {
                Some(until) => { "after " (seconds(Some(line.busy_seconds as f64))) " of recliner's compactions the node rests; the next may start " (ago(until, *now)) }
                None => { "recliner's compactions have run for " (seconds(Some(line.busy_seconds as f64))) "; the node rests afterwards" }
            }
            " (at most " (three_digits_short(line.allowed_percent)) "% of its time)."
        } }
    }
}

/// The node of a limit; an unused limit of a channel represents all nodes.
fn on_node(line: &LimitLine) -> Markup {
    html! {
        @if let Some(node) = &line.node {
            @if line.used == 0 && is_channels(line) { " on each node" } @else { " on " (name(node)) }
        }
    }
}

/// Whether the limit belongs to a channel.
fn is_channels(line: &LimitLine) -> bool {
    line.key.starts_with("channels.")
}

/// The limits of the cluster and of nodes; of each channel's limit, only the node with the highest use.
fn fullest(limits: &[LimitLine]) -> Vec<&LimitLine> {
    let mut shown: Vec<&LimitLine> = Vec::new();
    for line in limits {
        match shown.iter_mut().find(|it| it.key == line.key && is_channels(line)) {
            Some(shown) if shown.used < line.used => *shown = line,
            Some(_) => {}
            None => shown.push(line),
        }
    }
    shown
}

/// A limit's value with its unit.
fn amount(line: &LimitLine, number: u64) -> Markup {
    match line.key.contains("bytes") {
        true => bytes(Some(number)),
        false => html! { (count(number)) },
    }
}

fn windows(weeks: &[ChannelWeek]) -> Markup {
    let limited: Vec<&ChannelWeek> =
        weeks.iter().filter(|week| week.open.iter().any(|open| !open)).collect();
    html! {
        h2 { "Windows" }
        @if limited.is_empty() { p.quiet { "Every channel may start at any time." } }
        @for week in limited {
            h3 { (name(&week.channel)) span.quiet { @if week.open_now { " open now" } @else { " closed now" } } }
            (chart::week(&week.open, week.now, &format!("{}: {} of 168 hours of the week are open (UTC)", week.channel, week.open.iter().filter(|open| **open).count())))
        }
        @if weeks.iter().any(|week| week.open.iter().any(|open| !open)) { p.quiet { "By hours of the week in UTC; the red line is now." } }
    }
}

/// A table of waiting targets, with the reason for each.
pub(super) fn waiting(lines: &[RefusedLine]) -> Markup {
    html! {
        div.wide { table {
            thead { tr { th { "target" } th.rest { "node" } th.rest { "channel" } th.n { "reclaimable" } th { "why it waits" } } }
            tbody { @for line in lines { tr {
                td.named { (target_link(&line.id, &line.name)) span.narrow.quiet { (name(&line.node)) } }
                td.rest { (name(&line.node)) }
                td.rest { (name(&line.channel)) }
                td.n { (bytes(line.reclaimable_bytes)) }
                // Which in-line limit blocks a target changes with every job, so the words are always the same.
                @if line.refusal.class == RefusalClass::InLine.label() { td.text title=(line.why) { "in line" } }
                @else { td.text title=(RefusalReason::words_of(&line.refusal.reason)) { (name(&line.why)) } }
            } } }
        } }
    }
}

fn refused(answers: &QueueAnswers) -> Markup {
    let QueueAnswers { planned, waiting: lines, .. } = answers;
    html! {
        @if !lines.is_empty() {
            h2 { "What waits" }
            p.quiet { "The top targets of each queue, most reclaimable first." }
            (waiting(lines))
            @if planned.total > lines.len() { p.quiet { (count(planned.total - lines.len())) " more: choose a channel or a reason above to see all of its targets." } }
        }
    }
}

/// A table of the first `shown` starts.
pub(super) fn starts(planned: &Planned, shown: usize, now: Moment) -> Markup {
    let more = planned.starts.len().saturating_sub(shown) as u64;
    html! {
        (table("Starts", &planned.starts_table(shown), None, now))
        @if more > 0 { p { a href="queue" { "and " (counted(more, "more", "more")) } } }
    }
}

pub(super) fn why_not(planned: &Planned) -> Markup {
    let groups = planned.waiting_groups();
    let most = groups.first().map_or(1, |group| group.targets);
    html! {
        @if !groups.is_empty() {
            h3 { @if planned.starts.is_empty() { "Why targets wait" } @else { "Why the others wait" } }
            div.wide { table { tbody {
                @for group in &groups { tr {
                    td.one title=(group.class.meaning()) { a href=(link("targets", &[("class", group.class.label()), ("sort", "reclaimable_bytes")])) { (group.class.words()) } }
                    td.n { (count(group.targets)) }
                    td.rest { (chart::share(group.targets as f64 / most as f64, &format!("{} of {most}", group.targets))) }
                    td.text {
                        @if group.class == RefusalClass::InLine { (group.class.meaning()) }
                        @else { @for (at, (reason, refused)) in group.reasons.iter().enumerate() {
                            @if at > 0 { "; " }
                            a href=(link("targets", &[("reason", reason), ("sort", "reclaimable_bytes")])) { (count(*refused)) ": " (meaning(reason)) }
                        } }
                    }
                } }
            } } }
        }
    }
}
