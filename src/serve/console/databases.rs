//! All databases: what each takes, wastes and grows, searched, sorted, page by page.

use super::{
    Given, Page, Part, Screen,
    cells::{ago, bytes, database_link, unknown},
    paging::{Column, heading, kept, summary, turn},
};
use crate::{
    plan::RefusalReason,
    serve::report::{DatabaseLine, Databases},
};
use maud::{Markup, html};
use wall_clock::Moment;

/// Columns, by the fields of `/api/v1/databases` that they are sorted by.
const COLUMNS: [Column; 8] = [
    Column::text("database", "db").always(),
    Column::number("on disk", "file_bytes"),
    Column::number("documents", "document_bytes").rest(),
    Column::number("indexes", "index_bytes").rest(),
    Column::number("reclaimable", "reclaimable_bytes"),
    Column::number("grows a day", "growth_day_bytes").rest(),
    Column::number("in 7 days", "growth_week_bytes").rest(),
    Column::number("last compaction", "last_compaction").rest(),
];

/// The page at `/databases`.
pub(in crate::serve) fn databases(given: &Given, found: &Databases, now: Moment) -> Page {
    let shown = (found.offset, found.databases.len());
    let filter = html! {
        form.filter action="databases" {
            label { "search" input type="search" name="search" value=(given.get("search")) placeholder="name"; }
            (kept(given, &["sort", "order"]))
            button { "Show" }
            @if !given.get("search").is_empty() { a href="databases" { "Clear" } }
        }
    };
    let list = html! {
        p { (summary("database", shown, found.total)) " " a.quiet href=(given.link("api/v1/databases", &[])) { "JSON" } }
        @if !found.databases.is_empty() {
            (table(given, &found.databases, now))
            (turn(given, Screen::Databases, (shown.0, shown.1, found.limit), found.total))
        }
    };
    Page::live(
        Screen::Databases,
        "Databases",
        vec![Part::new("filter", filter), Part::new("list", list)],
    )
}

fn table(given: &Given, lines: &[DatabaseLine], now: Moment) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Databases" { table {
            thead { tr {
                @for column in &COLUMNS { (heading(given, Screen::Databases, column)) }
                th.rest { "why it stays" }
            } }
            tbody { @for line in lines { tr {
                td.named { (database_link(&line.db)) }
                td.n { (bound(line)) (bytes(Some(line.file_bytes))) }
                td.n.rest { (bytes(Some(line.document_bytes))) }
                td.n.rest { (bytes(Some(line.index_bytes))) }
                td.n { (bytes(Some(line.reclaimable_bytes))) }
                td.n.rest { (bytes(line.growth_day_bytes)) }
                td.n.rest { (bytes(line.growth_week_bytes)) }
                td.n.rest { @match &line.last_compaction { Some(at) => { (ago(at, now)) } None => { (unknown()) } } }
                td.rest { (why(line)) }
            } } }
        } }
        p.quiet { "All files count, of documents and of indexes. Growth is expected at the present rate, if nothing is compacted. " i { "Why it stays" } " is about the file with most to reclaim." }
    }
}

/// Marks sums that are lower bounds or estimates.
fn bound(line: &DatabaseLine) -> Markup {
    html! {
        @if line.unmeasured > 0 { span title="some sizes are unknown" { "≥ " } }
        @else if line.estimated > 0 { span title="some copies of views were not measured" { "≈ " } }
    }
}

fn why(line: &DatabaseLine) -> Markup {
    html! {
        @match (&line.reason, &line.not_taken) {
            (Some(reason), _) => { a href={ "docs/why.html#" (reason) } title=[&line.why] { (RefusalReason::words_of(reason)) } }
            (None, Some(word)) => { span.quiet title=[&line.why] { (word) } }
            (None, None) => {}
        }
    }
}
