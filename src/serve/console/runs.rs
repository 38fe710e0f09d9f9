//! Runs: their progress, what they leave out, and the orders that change them.

use super::cells::{ago, bytes, database_link, link, name, seconds, target_link};
use crate::{
    model::records::LeftOut,
    serve::report::{RunLine, left_out_says},
};
use maud::{Markup, html};
use wall_clock::Moment;

/// Maximum number of ended runs shown.
const SHOWN_ENDED: usize = 5;

/// The open runs, and the last ones that ended; with buttons if orders are possible.
pub(super) fn list(runs: &[RunLine], takes_orders: bool, now: Moment) -> Markup {
    let ended = runs.iter().filter(|run| !run.is_open()).take(SHOWN_ENDED);
    let shown: Vec<&RunLine> = runs.iter().filter(|run| run.is_open()).chain(ended).collect();
    html! {
        @if !shown.is_empty() {
            h2 { "Runs" }
            div.wide { table {
                thead { tr { th { "run" } th { "of" } th { "progress" } th.rest { "ordered by" } th.rest { "when" } } }
                tbody { @for run in shown { (row(run, takes_orders, now)) } }
            } }
        }
    }
}

fn row(run: &RunLine, takes_orders: bool, now: Moment) -> Markup {
    let number = run.run.to_string();
    let change = |to| link("act", &[("order", "runs/change"), ("run", &number), ("to", to)]);
    html! { tr {
        td.one { (number) }
        td { @match &run.db { Some(db) => { "database " (database_link(db)) } None => { (name(&run.scope())) } } }
        td {
            (name(&run.says))
            @if let Some(why) = &run.waits { br; span.quiet { "waits: " (name(why)) } }
            (left_out(&run.left_out))
            @if takes_orders && run.is_open() { p.actions {
                @if run.state == "paused" { a.button href=(change("running")) { "Resume …" } } @else { a.button href=(change("paused")) { "Pause …" } }
                a.button href=(change("cancelled")) { "Cancel …" }
            } }
        }
        td.rest { (name(&run.by)) }
        td.rest { (ago(&run.since, now)) }
    } }
}

fn left_out(groups: &[LeftOut]) -> Markup {
    html! { @for group in groups { details {
        summary { "Left out: " (group.members) " (" (group.reason) ")" }
        p.quiet { (name(&left_out_says(group))) }
        ul { @for member in &group.examples { li {
            (target_link(&member.id, if member.name.is_empty() { &member.id } else { &member.name }))
            @if let Some(why) = &member.why { ": " (name(why)) }
        } } }
    } } }
}

/// What a run would compact.
pub(super) fn expected(run: &RunLine) -> Markup {
    html! {
        dl.facts {
            dt { "targets to compact" } dd { (run.members) }
            dt { "frees" } dd { (bytes(Some(run.reclaimable_bytes))) }
            dt { "takes" } dd { (seconds(run.seconds_left)) }
        }
        (left_out(&run.left_out))
    }
}
