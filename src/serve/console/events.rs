//! The journal's events, filtered by type and target.

use super::{
    Given, Page, Part, Screen,
    cells::{ago, id_link, meaning, name},
};
use crate::{
    serve::report::{EventLine, Events, event_type_in_words},
    store::journal::EventType,
    text::Label as _,
};
use maud::{Markup, html};
use wall_clock::Moment;

/// The page at `/events`, newest first; `given` is the active filter, with the parameters of
/// `/api/v1/events`.
pub(in crate::serve) fn events(given: &Given, found: &Result<Events, String>, now: Moment) -> Page {
    let shown = match found {
        Err(why) => html! { p.note { (why) } },
        Ok(found) => html! {
            (list(&found.events.iter().rev().cloned().collect::<Vec<_>>(), now, None))
            @if let Some(older) = older(given, found) { p.turn { a rel="next" href=(older) { "Older →" } } }
            @if found.more { p.quiet { "There are more events: choose a later start, or read " a href=(given.link("api/v1/events", &[])) { "all of them as JSON" } "." } }
        },
    };
    Page::live(
        Screen::Events,
        "Events",
        vec![Part::new("filter", form(given)), Part::new("list", shown)],
    )
}

/// A link to the events before those shown, if there may be any.
fn older(given: &Given, found: &Events) -> Option<String> {
    let first = found.events.first().filter(|_| found.events.len() >= found.limit)?;
    Some(given.link("events", &[("before", &first.seq.to_string()), ("since", "")]))
}

fn form(given: &Given) -> Markup {
    let get = |key| given.get(key);
    html! {
        form.filter action="events" {
            label { "type" select name="types" {
                option value="" { "hide database updates" }
                @for kind in EventType::labels() { option value=(kind) selected[get("types") == kind] { (event_type_in_words(kind)) } }
            } }
            label { "target" input name="target" value=(get("target")) placeholder="database or id"; }
            label { "since" input name="since" value=(get("since")) placeholder="2h" size="8"; }
            button { "Show" }
        }
    }
}

/// The last events about one database or target.
pub(super) fn of_one(events: &[EventLine], now: Moment, of: &str) -> Part {
    Part::new("events", html! { h2 { "What happened" } (list(events, now, Some(of))) })
}

/// A table of events, in the order given. On the page of one database or target, `of` is its name,
/// which replaces the name in events that concern several targets.
fn list(events: &[EventLine], now: Moment, of: Option<&str>) -> Markup {
    html! {
        @if events.is_empty() { p.quiet { "No events recorded." } } @else {
            div.wide { table {
                thead { tr { th { "when" } th { "what" } th { "about" } th { "details" } } }
                tbody { @for event in events { tr {
                    td.one { (ago(&event.at, now)) }
                    td { (event.type_in_words()) }
                    td.named { (about(event, of)) }
                    td.text title=[event.reason.as_deref().map(meaning)] { (name(&event.details())) }
                } } }
            } }
        }
    }
}

fn about(event: &EventLine, of: Option<&str>) -> Markup {
    html! {
        @if let Some(of) = of.filter(|_| event.targets.is_some()) { (name(of)) }
        @else if let Some(target) = event.about_target() { (id_link(target, event.ddoc.as_deref())) }
        @else if let Some(db) = &event.db { (super::cells::database_link(db)) }
        @else if let Some(scope) = &event.scope { (name(scope)) }
        @else if let Some(subject) = &event.subject { (name(subject)) }
        @if let Some(node) = &event.node { span.quiet { " on " (name(node)) } }
        span.quiet { (event.others()) }
    }
}
