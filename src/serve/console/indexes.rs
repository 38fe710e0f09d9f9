//! Indexes: what they take, what building them costs, and who reads them.

use super::{
    Given, Page, Part, Screen,
    cells::{bytes, count, database_link, name, number, target_link, unknown, with_code},
};
use crate::serve::report::{IndexLine, Indexes};
use maud::{Markup, html};

/// The page at `/indexes`; `given` has the parameters of `/api/v1/indexes`.
pub(in crate::serve) fn indexes(given: &Given, found: &Result<Indexes, String>) -> Page {
    let shown = match found {
        Err(why) => html! { p.note { (why) } },
        Ok(found) => html! {
            p { (with_code(&found.says)) }
            @for problem in &found.problems { p.note { (with_code(problem)) } }
            @if found.indexes.is_empty() { p.quiet { "No index is known." } } @else { (table(found)) }
            p.quiet {
                @if found.total > found.indexes.len() { "The " (count(found.indexes.len())) " largest of " (count(found.total)) ". " }
                "A Mango query counts as a read of every Mango index of its database. "
                a href=(given.link("api/v1/indexes", &[])) { "As JSON" }
            }
        },
    };
    let form = html! {
        form.filter action="indexes" {
            label { "only" input name="db" value=(given.get("db")) placeholder="database"; }
            button { "Show" }
        }
    };
    let parts = vec![Part::new("filter", form), Part::new("indexes", shown)];
    Page::live(Screen::Indexes, "Indexes", parts)
}

fn table(found: &Indexes) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Indexes" { table {
            thead { tr {
                th { "index" } th.rest { "database" } th.n { "size" } th.n { "waste" } th.n.rest { "build" }
                th { "last read" } th.n { "reads a day" } th.rest { "by" }
            } }
            tbody { @for index in &found.indexes { tr {
                td.named {
                    (target_link(&index.id, &index.ddocs.join(", ")))
                    @if let Some(other) = &index.also_in { " " span.quiet { "all of it is in " (name(other)) " too" } }
                    span.narrow.quiet { "of " (database_link(&index.db)) }
                }
                td.rest { (database_link(&index.db)) }
                td.n { (bytes(index.file_bytes)) }
                td.n { (bytes(index.reclaimable_bytes)) }
                td.n.rest { @match &index.build_seconds { Some(span) => (span.says_seconds()), None => (unknown()) } }
                td { (last_read(index)) }
                td.n { (number(index.reads_per_day)) }
                td.rest { (index.readers.join(", ")) }
            } } }
        } }
    }
}

fn last_read(index: &IndexLine) -> Markup {
    html! {
        @match (&index.last_read, index.unread_days) {
            (Some(day), _) => { (day) }
            (None, Some(days)) => { "not in " (count(days)) " days" }
            (None, None) => { (unknown()) }
        }
        @if !index.views.is_empty() { details { summary { (count(index.views.len())) " read" } ul {
            @for view in &index.views { li {
                (name(&view.view)) ": " (view.last_read.as_deref().unwrap_or("?")) ", "
                (number(view.reads_per_day)) " a day"
            } }
        } } }
    }
}
