//! Long lists: which entries are shown, and links to the pages before and after.

use super::{Given, Screen, cells::count};
use maud::{Markup, html};

/// Which entries of a list are shown: `1 to 100 of 2,012 targets`.
pub(super) fn summary(noun: &str, (offset, shown): (usize, usize), total: usize) -> String {
    if total == 0 {
        return format!("No {noun} matches.");
    }
    let to = offset + shown;
    let from = count((offset + 1).min(to));
    format!("{from} to {} of {} {noun}s", count(to), count(total))
}

/// Hidden form fields for the parameters that a form keeps.
pub(super) fn kept(given: &Given, keys: &[&str]) -> Markup {
    html! {
        @for key in keys.iter().filter(|key| !given.get(key).is_empty()) { input type="hidden" name=(key) value=(given.get(key)); }
    }
}

/// Links to the previous and the next page.
pub(super) fn turn(
    given: &Given,
    screen: Screen,
    (offset, shown, limit): (usize, usize, usize),
    total: usize,
) -> Markup {
    let to = |offset: usize| given.link(screen.link(), &[("offset", &offset.to_string())]);
    html! {
        p.turn {
            @if offset > 0 { a rel="prev" href=(to(offset.saturating_sub(limit))) { "← Previous" } }
            @if offset + shown < total { a rel="next" href=(to(offset + limit)) { "Next →" } }
        }
    }
}
