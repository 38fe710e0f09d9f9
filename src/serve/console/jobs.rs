//! The running jobs, whoever started them, and how earlier ones ended.

use super::{Given, Page, Part, Screen, chart, runs, table::table};
use crate::{
    model::records::JobResult,
    serve::report::{Jobs, OutcomeLine, Outcomes, RunLine, result_in_words},
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
                p.quiet { "Each point is a compaction listed above; on the line, the prediction was right." }
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
        @if jobs.jobs.is_empty() { p.quiet { "The nodes report no running compaction or index build." } } @else {
            (table("Running jobs", &jobs.table(now), None, now))
        }
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
            (table("Ended jobs", &Outcomes::table(outcomes), None, now))
        }
    }
}
