//! The jobs that run, whoever started them, and how earlier ones ended.

use super::{
    Given, Page, Part, Screen,
    cells::{
        ago, bytes, id_link, name, number, percent, seconds, span_since, target_link, unknown,
        words,
    },
    chart, runs,
};
use crate::{
    model::records::JobResult,
    serve::report::{JobLine, Jobs, OutcomeLine, Outcomes, RunLine, result_in_words},
    text::Label as _,
};
use maud::{Markup, html};
use wall_clock::Moment;

/// The answers that the page shows.
pub(in crate::serve) struct JobAnswers {
    pub(in crate::serve) jobs: Jobs,
    pub(in crate::serve) runs: Vec<RunLine>,
    /// Whether this server accepts orders.
    pub(in crate::serve) takes_orders: bool,
    /// How jobs ended, or why it is unknown.
    pub(in crate::serve) outcomes: Result<Outcomes, String>,
    /// The active filter, with the parameters of `/api/v1/history`.
    pub(in crate::serve) given: Given,
    pub(in crate::serve) now: Moment,
}

/// The page at `/jobs`.
pub(in crate::serve) fn jobs(answers: &JobAnswers) -> Page {
    let now = answers.now;
    let history = match &answers.outcomes {
        Err(why) => html! { p.note { (why) } },
        Ok(outcomes) => html! {
            (ended(&outcomes.outcomes, now))
            @if let Some(before) = outcomes.next_before { p.turn { a rel="next" href=(answers.given.link("jobs", &[("before", &before.to_string())])) { "Older →" } } }
            h2 { "Predicted and actual size" }
            @let points = points(&outcomes.outcomes);
            @if points.is_empty() {
                p.quiet { @if answers.given.is_empty() { "No compaction has known sizes yet." } @else { "No matching compaction has known sizes." } }
            } @else {
                p.quiet { "Each point is a compaction listed above; on the line the prediction was right." }
                (chart::scatter(&points, "predicted and actual sizes after compactions"))
            }
        },
    };
    let parts = vec![
        Part::new("runs", runs::list(&answers.runs, answers.takes_orders, now)),
        Part::new("running", html! { h2 { "Running" } (running(&answers.jobs, now)) }),
        Part::new("filter", html! { h2 { "How jobs ended" } (form(answers)) }),
        Part::new("ended", history),
    ];
    Page::live(Screen::Jobs, "Jobs", parts)
}

fn points(outcomes: &[OutcomeLine]) -> Vec<(f64, f64)> {
    let both = |line: &OutcomeLine| Some((line.predicted_bytes? as f64, line.after_bytes? as f64));
    outcomes.iter().filter_map(both).filter(|(one, other)| *one > 0.0 && *other > 0.0).collect()
}

fn form(answers: &JobAnswers) -> Markup {
    let get = |key| answers.given.get(key);
    html! {
        form.filter action="jobs" {
            label { "target" input name="target" value=(get("target")) placeholder="database or id"; }
            label { "result" select name="result" {
                option value="" { "any" }
                @for result in JobResult::labels() { option value=(result) selected[get("result") == result] { (result_in_words(result)) } }
            } }
            label { "node" input name="node" value=(get("node")); }
            label { "since" input name="since" value=(get("since")) placeholder="7d" size="8"; }
            button { "Show" }
        }
    }
}

/// A table of running jobs.
pub(super) fn running(jobs: &Jobs, now: Moment) -> Markup {
    html! {
        @if jobs.jobs.is_empty() { p.quiet { "No compaction and no index build runs, as far as the nodes report." } } @else {
            div.wide { table {
                thead { tr { th { "what" } th.rest { "node" } th { "done" } th.rest { "for" } th.rest { "ends in" } th.n { "size" } th.n.rest { "after" } th.rest { "started by" } } }
                tbody { @for line in &jobs.jobs { (row(line, now)) } }
            } }
        }
    }
}

fn row(line: &JobLine, now: Moment) -> Markup {
    // Of a view, the task is about one shard's file.
    html! { tr {
        @let node = line.node.as_deref().map_or_else(unknown, name);
        td.named title=(line.shard) {
            @if line.work == "build" { "build of " }
            @match &line.target { Some(id) => { (target_link(id, &line.name())) } None => { (name(&line.name())) } }
            span.narrow.quiet { (node) }
        }
        td.rest { (node) }
        td.one { @match line.progress {
            Some(done) => { (chart::share(done, &percent(done))) " " (percent(done)) }
            None => { span.quiet { (words(&line.phase)) } }
        } }
        td.rest { (span_since(Some(&line.since), now)) }
        td.rest { (remaining(line, now)) }
        td.n { (bytes(line.file_bytes)) }
        td.n.rest { (bytes(line.predicted_bytes)) }
        td.rest { (words(&line.owner)) }
    } }
}

/// The remaining time of a job. Progress is too coarse for fractions of a second.
fn remaining(line: &JobLine, now: Moment) -> Markup {
    match line.remaining_seconds(now) {
        Some(left) if left < 1.0 => html! { span.one { "<1s" } },
        left => seconds(left),
    }
}

/// How the last jobs of one database or target ended.
pub(super) fn of_one(outcomes: &[OutcomeLine], now: Moment) -> Part {
    Part::new("jobs", html! { h2 { "How its jobs ended" } (ended(outcomes, now)) })
}

/// A table of ended jobs, newest first.
fn ended(outcomes: &[OutcomeLine], now: Moment) -> Markup {
    html! {
        @if outcomes.is_empty() { p.quiet { "No finished jobs recorded." } } @else {
            div.wide { table {
                thead { tr { th { "ended" } th { "target" } th.rest { "node" } th { "result" } th.n { "before" } th.n.rest { "after" } th.n { "freed" } th.n.rest { "took" } th.n.rest title="bytes after the compaction, divided by the predicted bytes" { "actual ÷ predicted size" } th.rest { "started by" } } }
                tbody { @for line in outcomes { tr {
                    td.one { (ago(&line.ended_at, now)) @if let Some(since) = &line.ended_after { span.quiet { " or before, since " (ago(since, now)) } } }
                    td.named { (id_link(&line.target, line.ddoc.as_deref())) span.narrow.quiet { (name(&line.node)) } }
                    td.rest { (name(&line.node)) }
                    td { span class=(class_of(&line.result)) { (result_in_words(&line.result)) } @if let Some(why) = &line.why { details { summary { "why" } (name(why)) } } }
                    td.n { (bytes(line.before_bytes)) }
                    td.n.rest { (bytes(line.after_bytes)) }
                    td.n { (freed(line.freed_bytes)) }
                    td.n.rest { (seconds(line.duration_seconds.map(|took| took as f64))) }
                    td.n.rest { (number(line.estimate_ratio)) }
                    td.rest { (words(&line.owner)) @if let Some(by) = &line.ordered_by { span.quiet { ", ordered by " (name(by)) } } }
                } } }
            } }
        }
    }
}

/// Freed bytes, or by how much the file grew.
fn freed(freed: Option<i64>) -> Markup {
    match freed {
        Some(freed) if freed < 0 => html! { "grew by " (bytes(Some(freed.unsigned_abs()))) },
        freed => bytes(freed.map(i64::unsigned_abs)),
    }
}

/// Freed or added bytes as part of a sentence.
pub(super) fn freed_or_grew(bytes: Option<i64>) -> Markup {
    html! { @if bytes.is_none_or(|bytes| bytes >= 0) { "freed " } (freed(bytes)) }
}

fn class_of(result: &str) -> &'static str {
    match result {
        "freed" => "one good",
        "failed" | "lost" => "one bad",
        _ => "one",
    }
}
