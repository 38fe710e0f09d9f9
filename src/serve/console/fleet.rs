//! Other recliners, each with its own cluster; those that need attention come first.

use super::{Page, Part, Screen, cells::with_code, table::table};
use crate::serve::report::FleetAnswer;
use maud::html;
use wall_clock::Moment;

/// The page at `/fleet`.
pub(in crate::serve) fn fleet(fleet: &FleetAnswer, now: Moment) -> Page {
    let list = html! {
        p { (with_code(&fleet.says)) " " a.quiet href="api/v1/fleet" { "JSON" } }
        @for problem in &fleet.problems { p.banner { (with_code(problem)) } }
        @if !fleet.members.is_empty() {
            (table("Recliners", &fleet.table(), None, now))
            ul { @for says in fleet.reasons() { li { (with_code(&says)) } } }
            p.quiet { "Each name links to that recliner's own console, where you can give orders. Waste is what compactions would free, plus unused files. " i { "Full" } " is the first volume's date by its forecast, if compaction keeps up." }
        }
    };
    Page::live(Screen::Fleet, "Fleet", vec![Part::new("list", list)])
}
