//! Long lists: headings that sort them, and links to the pages before and after.

use super::{Given, Screen, cells::count};
use maud::{Markup, html};

/// A column by which a list can be sorted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    title: &'static str,
    /// The value of the parameter `sort`.
    key: &'static str,
    is_number: bool,
    /// Left out on narrow screens.
    is_rest: bool,
}

impl Column {
    /// Names, left out on narrow screens.
    pub(super) const fn text(title: &'static str, key: &'static str) -> Self {
        Self { title, key, is_number: false, is_rest: true }
    }

    /// Numbers, of which the greatest come first.
    pub(super) const fn number(title: &'static str, key: &'static str) -> Self {
        Self { title, key, is_number: true, is_rest: false }
    }

    /// Left out on narrow screens.
    pub(super) const fn rest(self) -> Self {
        Self { is_rest: true, ..self }
    }

    /// Kept on narrow screens.
    pub(super) const fn always(self) -> Self {
        Self { is_rest: false, ..self }
    }

    const fn class(self) -> &'static str {
        match (self.is_number, self.is_rest) {
            (true, false) => "n",
            (true, true) => "n rest",
            (false, false) => "",
            (false, true) => "rest",
        }
    }
}

/// Which entries of a list are shown: `1 to 100 of 2,012 targets`.
pub(super) fn summary(noun: &str, (offset, shown): (usize, usize), total: usize) -> String {
    if total == 0 {
        return format!("No {noun} matches.");
    }
    let to = offset + shown;
    let from = count((offset + 1).min(to));
    format!("{from} to {} of {} {noun}s", count(to), count(total))
}

/// A heading that sorts by its column, and reverses the order where the list is sorted by it already.
pub(super) fn heading(given: &Given, screen: Screen, column: &Column) -> Markup {
    let Column { title, key, is_number, .. } = *column;
    let by_default = if is_number { "desc" } else { "asc" };
    let is_sorted = given.get("sort") == key;
    let order = match given.get("order") {
        "" => by_default,
        given => given,
    };
    let other = if order == "asc" { "desc" } else { "asc" };
    let next = if is_sorted { other } else { by_default };
    let to = given.link(screen.link(), &[("sort", key), ("order", next), ("offset", "")]);
    let direction = if order == "asc" { "ascending" } else { "descending" };
    html! {
        th class=(column.class()) aria-sort=[is_sorted.then_some(direction)] {
            a href=(to) { (title) @if is_sorted { span aria-hidden="true" { @if order == "asc" { " ↑" } @else { " ↓" } } } }
        }
    }
}

/// The given parameters that a form sends again unseen.
pub(super) fn kept(given: &Given, keys: &[&str]) -> Markup {
    html! {
        @for key in keys.iter().filter(|key| !given.get(key).is_empty()) { input type="hidden" name=(key) value=(given.get(key)); }
    }
}

/// Links to the pages before and after this one.
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
