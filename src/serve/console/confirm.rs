//! Confirms an order: which request would be sent, what it would do, and the result.

use super::{
    Page, Part,
    cells::{link, name, with_code},
    runs,
    table::shown,
};
use crate::{
    serve::report::{
        RunLine, StartLine,
        orders::{OrderAnswer, OrderName, OrderRequest},
    },
    text::{Label as _, capital},
};
use maud::{Markup, html};
use wall_clock::Moment;

/// An order that awaits a person's confirmation.
pub(in crate::serve) struct Confirmation {
    /// The order, with the fields that its link contains.
    pub(in crate::serve) order: OrderRequest,
    /// Fields that a person may fill in: the parameter, its title, an example.
    pub(in crate::serve) asks: Vec<(&'static str, &'static str, &'static str)>,
    /// For an order to compact: the compaction it would start.
    pub(in crate::serve) compaction: Option<AskedCompaction>,
    /// For a run: what it would compact.
    pub(in crate::serve) run: Option<RunLine>,
    /// Why the order would be refused, if that is already known.
    pub(in crate::serve) refused: Option<String>,
}

/// A compaction that an operator may order.
#[derive(Debug)]
pub(in crate::serve) struct AskedCompaction {
    /// The request with its gain and cost; `None` if no order can start it.
    pub(in crate::serve) start: Option<StartLine>,
    /// Why it does not start now, in words.
    pub(in crate::serve) waits: Option<String>,
    /// Whether only force starts it: no channel takes the target, or it is paused after earlier
    /// compactions.
    pub(in crate::serve) needs_force: bool,
    /// Why an order would be refused, in a sentence.
    pub(in crate::serve) refused: Option<String>,
}

/// The page at `/act` that asks for confirmation.
pub(in crate::serve) fn confirmation(asked: &Confirmation) -> Page {
    let (order, name_of_order) = (&asked.order, asked.order.name());
    let fields: Vec<(String, String)> = order
        .fields()
        .into_iter()
        .map(|(key, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
            (key, text)
        })
        .filter(|(key, _)| asked.asks.iter().all(|(asked, ..)| asked != key))
        .collect();
    let (back, (question, verb)) = (back(&fields), name_of_order.question());
    let needs_force = asked.compaction.as_ref().is_some_and(|it| it.needs_force)
        || asked.run.as_ref().is_some_and(|run| run.force);
    let is_impossible = asked.compaction.as_ref().is_some_and(|it| it.start.is_none());
    let html = html! {
        @if !is_impossible { p { (name(&order.does())) } }
        @if let Some(compaction) = &asked.compaction { (effect(compaction)) }
        @if let Some(run) = &asked.run {
            @if run.force { p.note { "No channel takes any of it now, so only force can start it." } }
            (runs::expected(run))
        }
        @if !is_impossible { p.quiet { "The same for a program: " code { (name(&order.http_request())) } } }
        @if let Some(why) = &asked.refused { p.banner { (with_code(why)) } p.actions { a.button href=(back) { "Back" } } } @else {
            form method="post" action="act" {
                input type="hidden" name="order" value=(name_of_order.label());
                @for (key, value) in &fields { input type="hidden" name=(key) value=(value); }
                @for (key, title, example) in &asked.asks {
                    p { label { (title) " " @match *key {
                        "force" => { input type="checkbox" name="force" value="true" checked[needs_force]; }
                        _ => { input name=(key) placeholder=(example) required[*key == "for"] maxlength="1000" size="40"; }
                    } } }
                }
                p.actions { button.do { (verb) } a.button href=(back) { "Cancel" } }
            }
        }
    };
    Page::still(None, question, vec![Part::new("confirm", html)])
}

/// The page on which the order was chosen, if its fields show it.
fn back(fields: &[(String, String)]) -> String {
    fields
        .iter()
        .find_map(|(key, value)| match &**key {
            "target" => Some(link("target", &[("id", value)])),
            "db" => Some(link("database", &[("name", value)])),
            "run" => Some("jobs".to_owned()),
            _ => None,
        })
        .unwrap_or_else(|| "./".to_owned())
}

fn effect(AskedCompaction { start, waits, needs_force, .. }: &AskedCompaction) -> Markup {
    html! {
        @if let Some(start) = start {
            @if let Some(waits) = waits { p.note { (name(&capital(waits))) "." } }
            @if *needs_force && waits.is_none() { p.note { "No channel takes it, so only force can start it." } }
            @if *needs_force && waits.is_some() { p.note { "Only force can start it." } }
            (request(start))
        }
    }
}

/// The request of a start, with its gain and cost.
pub(super) fn request(start: &StartLine) -> Markup {
    html! {
        p { "The request: " code { (name(&start.request)) } }
        dl.facts { @for (title, effect) in start.effect() { dt { (title) } dd { (shown(&effect, Moment::default())) } } }
    }
}

/// The page with the result of an order; `target` is empty unless the order is about a target.
pub(in crate::serve) fn done(
    order: OrderName,
    target: &str,
    done: &Result<(OrderRequest, OrderAnswer), String>,
) -> Page {
    let html = html! {
        @match done {
            Ok((order, answer)) => {
                div.banner.fine { @for line in order.says(answer) { p { (name(&line)) } } }
                details {
                    summary { "API response" }
                    pre tabindex="0" { (crate::text::escape::escape_lines(&serde_json::to_string_pretty(answer).unwrap_or_default())) }
                }
            }
            Err(why) => { p.banner.worst { "Not done: " (with_code(why)) } }
        }
        p.actions {
            @if !target.is_empty() { a.button href=(link("target", &[("id", target)])) { "To the target" } }
            @if matches!(order, OrderName::Compact | OrderName::Run | OrderName::ChangeRun) { a.button href="jobs" { "To the jobs" } }
            a.button href="events" { "To the events" }
            a.button href="./" { "To the overview" }
        }
    };
    let title = if done.is_ok() { "Done" } else { "Not done" };
    Page::still(None, title, vec![Part::new("result", html)])
}
