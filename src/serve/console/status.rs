//! The state of recliner itself: its sweeps, its read errors, the rights that its login lacks.

use super::{
    Page, Part, Screen,
    cells::{ago, count, name, seconds, span_since, unknown, with_code, words},
};
use crate::serve::report::Status;
use maud::{Markup, html};
use wall_clock::Moment;

/// The page at `/status`.
pub(in crate::serve) fn status(status: &Status, now: Moment) -> Page {
    let parts = vec![
        Part::new("process", process(status)),
        Part::new("sweep", sweep(status, now)),
        Part::new("errors", errors(status, now)),
    ];
    Page::live(Screen::Status, "Status", parts)
}

fn process(status: &Status) -> Markup {
    html! {
        dl.facts {
            dt { "version" } dd { (status.version) @if status.date != "unknown" { " of " (status.date) } @if status.revision != "unknown" { ", " code { (status.revision) } } }
            dt { "mode" } dd { (status.mode) }
            dt { "ready" } dd { @if status.ready { "yes" } @else { span.warn { "no" } } }
            @if let Some(problem) = &status.problem { dt { "problem" } dd.bad { (with_code(problem)) } }
            @if let Some(problem) = &status.journal_problem { dt { "journal" } dd.bad { (with_code(problem)) } }
        }
        @if !status.missing_rights.is_empty() {
            h2 { "Rights that the login lacks" }
            ul { @for right in &status.missing_rights { li { (with_code(right)) } } }
        }
        h2 { "For programs" }
        ul {
            li { a href="metrics" { "metrics" } " for Prometheus, " a href="sd" { "sd" } " for its service discovery" }
            li { a href="api/v1/openapi.json" { "api/v1/openapi.json" } ": the JSON API; all that these pages show" }
            li { a href="_db_updates" { "_db_updates" } ": changed databases, as in CouchDB" }
            li { a href="-/ready" { "-/ready" } " and " a href="-/healthy" { "-/healthy" } " for supervisors" }
        }
    }
}

fn sweep(status: &Status, now: Moment) -> Markup {
    let sweep = &status.sweep;
    html! {
        h2 { "Sweeps" }
        dl.facts {
            dt { "ended" } dd { (count(sweep.ended)) }
            dt { "last ended" } dd { @match &sweep.last_end { Some(at) => { (ago(at, now)) } None => { (unknown()) } } }
            dt { "last complete sweep" } dd { @match &sweep.last_success { Some(at) => { (ago(at, now)) } None => { (unknown()) } } }
            dt { "last duration" } dd { (seconds(sweep.last_duration_seconds)) }
            @if let Some(since) = &sweep.running_since { dt { "running for" } dd { (span_since(Some(since), now)) @if let (Some(done), Some(total)) = (sweep.done, sweep.total) { ": " (count(done)) " of " (count(total)) } } }
            dt { "shards read from CouchDB" } dd { (count(sweep.shards.asked)) }
            dt { "unchanged according to their files" } dd { (count(sweep.shards.covered)) }
            dt { "unchanged according to feeds" } dd { (count(sweep.shards.followed)) }
        }
    }
}

fn errors(status: &Status, now: Moment) -> Markup {
    html! {
        h2 { "What could not be read since the start" }
        @if status.errors.is_empty() { p.quiet { "Nothing failed." } } @else {
            @if let Some(last) = &status.last_error { p { "The last" @if let Some(at) = &status.last_error_at { ", " (ago(at, now)) } ": " (with_code(last)) } }
            div.wide tabindex="0" role="region" aria-label="Errors" { table {
                thead { tr { th { "node" } th { "why" } th.n { "count" } } }
                tbody { @for line in &status.errors { tr { td { (name(&line.node)) } td { (words(&line.reason)) } td.n { (count(line.count)) } } } }
            } }
        }
    }
}
