//! Indexes: what they take, what building them costs, and who reads them.

use super::{
    Given, Page, Part, Screen,
    cells::{count, name, with_code},
    table::still,
};
use crate::serve::report::Indexes;
use maud::html;

/// The page at `/indexes`; `given` has the parameters of `/api/v1/indexes`.
pub(in crate::serve) fn indexes(given: &Given, found: &Result<Indexes, String>) -> Page {
    let shown = match found {
        Err(why) => html! { p.note { (why) } },
        Ok(found) => html! {
            p { (with_code(&found.says)) }
            @for problem in &found.problems { p.note { (with_code(problem)) } }
            @if found.indexes.is_empty() { p.quiet { "No indexes known." } } @else { (still("Indexes", &found.table())) }
            @for says in found.repeated() { p.quiet { (name(&says)) } }
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
