//! Renders tables of answers.

use super::{
    Given, Screen,
    cells::{ago, bytes, name, percent, seconds, unknown},
    chart,
};
use crate::serve::report::columns::{Cell, Kind, Part, Room, Table, Title, Value};
use maud::{Markup, html};
use wall_clock::Moment;

/// A table; `label` describes it to screen readers. If it is a page's main list and its headings sort it,
/// `sorted` has the page's parameters.
pub(super) fn table<T>(
    label: &str,
    table: &Table<T>,
    sorted: Option<(&Given, Screen)>,
    now: Moment,
) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label=(label) { table {
            thead { tr { @for (title, kind) in &table.columns {
                @match sorted.zip(title.sort) {
                    Some(((given, screen), key)) => { (heading(given, screen, (title, *kind), key)) }
                    None => { th class=(class(title, *kind)) { (title.text) } }
                }
            } } }
            tbody { @for row in &table.rows { tr {
                @for (at, (cell, (title, kind))) in row.iter().zip(&table.columns).enumerate() {
                    @let named = if at == 0 { "named " } else { "" };
                    td class={ (named) (class(title, *kind)) } { (shown(cell, now)) }
                }
            } } }
        } }
    }
}

/// A table without times or sort links.
pub(super) fn still<T>(label: &str, rows: &Table<T>) -> Markup {
    table(label, rows, None, Moment::default())
}

fn class(title: &Title, kind: Kind) -> String {
    let kind = match kind {
        Kind::Text => "",
        Kind::Number => "n",
        Kind::Sentence => "text",
    };
    let room = if title.room == Room::Any { "" } else { " rest" };
    [kind, room].concat()
}

/// A heading that sorts by its column, or reverses the order if the list is already sorted by it.
fn heading(given: &Given, screen: Screen, (title, kind): (&Title, Kind), key: &str) -> Markup {
    let by_default = if kind == Kind::Number { "desc" } else { "asc" };
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
        th class=(class(title, kind)) aria-sort=[is_sorted.then_some(direction)] {
            a href=(to) { (title.text) @if is_sorted { span aria-hidden="true" { @if order == "asc" { " ↑" } @else { " ↓" } } } }
        }
    }
}

/// A cell with its links.
pub(super) fn shown(cell: &Cell, now: Moment) -> Markup {
    html! { @for part in &cell.0 { (part_shown(part, now)) } }
}

fn part_shown(part: &Part, now: Moment) -> Markup {
    let Part { value, class, title, to } = part;
    let value = match value {
        Value::Name(text) | Value::Node(text) => name(text),
        Value::Rules(title, rules) => {
            html! { (chart::swatch(chart::line_class(rules))) (name(title)) }
        }
        Value::Words(words) => html! { (words) },
        Value::Bytes(size) => bytes(Some(*size)),
        Value::Time(at) => ago(at, now),
        Value::Seconds(span) => seconds(Some(*span)),
        Value::Share(done) => {
            html! { span.one { (chart::share(*done, &percent(*done))) " " (percent(*done)) } }
        }
        Value::Unknown => unknown(),
        Value::Details(words, lines) => {
            html! { details { summary { (words) } ul { @for line in lines { li { (name(line)) } } } } }
        }
        Value::Why(why) => html! { details { summary { "why" } (name(why)) } },
        Value::Below(text) => html! { span.narrow.quiet { (name(text)) } },
    };
    let rel = to.as_deref().filter(|to| to.contains("://")).map(|_| "noreferrer");
    html! {
        @if to.is_some() { a href=[to] rel=[rel] class=[class] title=[title] { (value) } }
        @else if class.is_some() || title.is_some() { span class=[class] title=[title] { (value) } }
        @else { (value) }
    }
}
