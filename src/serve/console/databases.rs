//! All databases with their size, waste and growth; can be searched, sorted and paged.

use super::{
    Given, Page, Part, Screen,
    paging::{kept, summary, turn},
    table::table,
};
use crate::serve::report::Databases;
use maud::html;
use wall_clock::Moment;

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
            (table("Databases", &found.table(), Some((given, Screen::Databases)), now))
            (turn(given, Screen::Databases, (shown.0, shown.1, found.limit), found.total))
            p.quiet { "Sizes include documents and indexes. Growth assumes the present rate and no compaction. " i { "Why it stays" } " is about the file with most to reclaim." }
        }
    };
    Page::live(
        Screen::Databases,
        "Databases",
        vec![Part::new("filter", filter), Part::new("list", list)],
    )
}
