//! What waits, by node and channel; why it does not start; when windows are open.

use super::{
    Page, Part, Screen,
    cells::{bytes, count, link, name, score, span_since, target_link, words},
    chart, overview,
};
use crate::{
    plan::RefusalReason,
    serve::report::{ChannelWeek, LimitLine, Planned, Queue, Queues},
};
use maud::{Markup, html};
use std::collections::BTreeSet;
use wall_clock::Moment;

/// Refused targets that are shown.
const SHOWN: usize = 50;

/// What the page shows.
pub(in crate::serve) struct QueueAnswers {
    pub(in crate::serve) planned: Planned,
    /// Queues without their targets.
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
        @if planned.starts.is_empty() { p.quiet { "Nothing." } } @else { (overview::starts(&planned.starts, SHOWN, *now)) }
    };
    let parts = vec![
        Part::new("queues", queues(answers)),
        Part::new("starts", starts),
        Part::new("why", overview::why_not(planned)),
        Part::new("limits", limits(&answers.queues.limits)),
        Part::new("windows", windows(&answers.queues.windows)),
        Part::new("refused", refused(planned)),
    ];
    Page::live(Screen::Queue, "Queue", parts)
}

/// What a reason of refusal means.
pub(super) fn meaning(reason: &str) -> &'static str {
    RefusalReason::ALL
        .into_iter()
        .find(|known| known.label() == reason)
        .map_or("", RefusalReason::meaning)
}

fn queues(answers: &QueueAnswers) -> Markup {
    let waiting: Vec<&Queue> =
        answers.queues.queues.iter().filter(|queue| queue.size > 0 || queue.active > 0).collect();
    html! {
        @if waiting.is_empty() { p.quiet { "Nothing waits." } } @else {
            div.wide { table {
                thead { tr { th { "node" } th { "channel" } th.n { "waiting" } th.n { "running" } th.n { "reclaimable" } th.n.rest { "priorities" } th.rest { "longest wait" } th.rest { } } }
                tbody { @for queue in waiting { tr {
                    td { (name(&queue.node)) }
                    td { a href=(link("targets", &[("channel", &queue.channel), ("node", &queue.node), ("sort", "priority")])) { (name(&queue.channel)) } }
                    td.n { (count(queue.size)) @if queue.overflow > 0 { span.warn { " + " (count(queue.overflow)) " over capacity" } } }
                    td.n { (queue.active) }
                    td.n { (bytes(Some(queue.reclaimable_bytes))) }
                    td.n.rest { @let in_bytes = answers.in_bytes.contains(&queue.channel); (score(queue.priority_min, in_bytes)) " to " (score(queue.priority_max, in_bytes)) }
                    td.rest { (span_since(queue.oldest.as_deref(), answers.now)) }
                    td.rest { a href=(link("act", &[("order", "suspend"), ("scope", &format!("channel:{}", queue.channel))])) { "Suspend …" } }
                } } }
            } }
            p.quiet { "Views and index cleanups wait once for the whole cluster, under " code { "_cluster" } "." }
        }
        p.actions {
            a.button href=(link("act", &[("order", "suspend"), ("scope", "all")])) { "Suspend all starts …" }
            a.button href=(link("act", &[("order", "rescan")])) { "Read everything again …" }
            a.button href=(link("act", &[("order", "flush")])) { "Empty the queues …" }
        }
    }
}

fn limits(limits: &[LimitLine]) -> Markup {
    html! {
        h2 { "Limits" }
        div.wide tabindex="0" role="region" aria-label="Limits" { table {
            thead { tr { th { "limit" } th.n { "used" } th.n { "allowed" } th.rest { "share" } } }
            tbody { @for line in limits { tr {
                td.named { code { (line.key) } @if let Some(node) = &line.node { " on " (name(node)) } }
                td.n { (amount(line, line.used)) }
                td.n { (amount(line, line.allowed)) }
                td.rest { (chart::share(line.used as f64 / line.allowed.max(1) as f64, &format!("{} of {}", line.used, line.allowed))) }
            } } }
        } }
    }
}

/// A limit's number with its unit.
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

fn refused(planned: &Planned) -> Markup {
    html! {
        @if !planned.refused.is_empty() {
            h2 { "What waits, best first" }
            div.wide { table {
                thead { tr { th { "target" } th.rest { "node" } th.rest { "channel" } th.n { "reclaimable" } th { "why" } } }
                tbody { @for line in &planned.refused { tr {
                    td.named { (target_link(&line.id, &line.title)) }
                    td.rest { (name(&line.node)) }
                    td.rest { (name(&line.channel)) }
                    td.n { (bytes(line.reclaimable_bytes)) }
                    td.text title=(words(&line.refusal.reason)) { (name(&line.why)) }
                } } }
            } }
            @if planned.total > planned.offset + planned.refused.len() { p.quiet { "and " (count(planned.total - planned.offset - planned.refused.len())) " more" } }
        }
    }
}
