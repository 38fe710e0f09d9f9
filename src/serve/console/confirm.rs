//! Orders: what exactly would be sent and what it would do, and how it went.

use super::{
    Given, Page, Part,
    cells::{bytes, capital, link, name, seconds},
};
use crate::{serve::report::StartLine, text::counted};
use maud::{Markup, html};
use serde_json::Value;

/// An order that waits for a person's word.
pub(in crate::serve) struct Confirmation {
    /// Its name in the API: the last part of the route.
    pub(in crate::serve) order: String,
    /// What it does, as a sentence.
    pub(in crate::serve) does: String,
    /// The fields of its body.
    pub(in crate::serve) fields: Vec<(String, String)>,
    /// Fields that a person may fill in: the parameter, what to write, an example.
    pub(in crate::serve) asks: Vec<(&'static str, &'static str, &'static str)>,
    /// Of an order to compact: what would be sent to CouchDB, where an order can start it.
    pub(in crate::serve) compaction: Option<AskedCompaction>,
    /// Why it would be refused, where that is known beforehand.
    pub(in crate::serve) refused: Option<String>,
}

/// A compaction that an operator may order.
#[derive(Debug)]
pub(in crate::serve) struct AskedCompaction {
    /// The request, what it frees and what it takes; none if no order starts it.
    pub(in crate::serve) start: Option<StartLine>,
    /// What holds it back now, in words.
    pub(in crate::serve) waits: Option<String>,
    /// Whether only force starts it: no channel takes the target, or it rests after earlier compactions.
    pub(in crate::serve) needs_force: bool,
    /// Why an order would be refused, in a sentence.
    pub(in crate::serve) refused: Option<String>,
}

/// The page at `/act` that asks whether to go on.
pub(in crate::serve) fn confirmation(asked: &Confirmation) -> Page {
    let body = serde_json::Map::from_iter(asked.fields.iter().map(|(key, value)| {
        (key.clone(), if value == "true" { true.into() } else { value.clone().into() })
    }));
    let is_impossible = asked.compaction.as_ref().is_some_and(|it| it.start.is_none());
    let html = html! {
        @if !is_impossible { p { (name(&asked.does)) } }
        @if let Some(compaction) = &asked.compaction { (effect(compaction)) }
        @if !is_impossible { p.quiet { "The same for a program: " code { "POST /api/v1/" (asked.order) " " (name(&Value::Object(body).to_string())) } } }
        @if let Some(why) = &asked.refused { p.banner { (name(why)) } p.actions { a.button href=(back(&asked.fields)) { "Back" } } } @else {
            form method="post" action="act" {
                input type="hidden" name="order" value=(asked.order);
                @for (key, value) in &asked.fields { input type="hidden" name=(key) value=(value); }
                @for (key, title, example) in &asked.asks {
                    p { label { (title) " " @match *key {
                        "force" => { input type="checkbox" name="force" value="true" checked[asked.compaction.as_ref().is_some_and(|it| it.needs_force)]; }
                        _ => { input name=(key) placeholder=(example) required[*key == "for"] maxlength="1000" size="40"; }
                    } } }
                }
                p.actions { button.do { (action(&asked.order)) } a.button href=(back(&asked.fields)) { "Cancel" } }
            }
        }
    };
    Page::still(None, title(&asked.order), vec![Part::new("confirm", html)])
}

/// Where the order was chosen, as far as its fields tell.
fn back(fields: &[(String, String)]) -> String {
    let target = fields.iter().find(|(key, _)| key == "target");
    target.map_or_else(|| "./".to_owned(), |(_, target)| link("target", &[("id", target)]))
}

/// What the button of an order says.
fn action(order: &str) -> &str {
    match order {
        "suspend" => "Suspend",
        "resume" => "Resume",
        "compact" => "Compact",
        "release" => "Release",
        "rescan" => "Read again",
        "flush" => "Empty queues",
        "advice/mute" => "Mute",
        "advice/unmute" => "Unmute",
        other => other,
    }
}

fn title(order: &str) -> &str {
    match order {
        "suspend" => "Suspend starts?",
        "resume" => "Resume starts?",
        "compact" => "Compact now?",
        "release" => "Release from quarantine?",
        "rescan" => "Read everything again?",
        "flush" => "Empty the queues?",
        "advice/mute" => "Mute this advice?",
        "advice/unmute" => "Unmute this advice?",
        other => other,
    }
}

fn effect(AskedCompaction { start, waits, needs_force, .. }: &AskedCompaction) -> Markup {
    html! {
        @if let Some(start) = start {
            @if let Some(waits) = waits { p.note { (name(&capital(waits))) "." } }
            @if *needs_force && waits.is_none() { p.note { "No channel takes it, so it starts only by force." } }
            @if *needs_force && waits.is_some() { p.note { "It starts only by force." } }
            (request(start))
        }
    }
}

/// The request of a start, what it frees and what it takes.
pub(super) fn request(start: &StartLine) -> Markup {
    html! {
        p { "The request: " code { (name(&start.request)) } }
        dl.facts {
            dt { "frees" } dd { (bytes(start.gain_bytes)) }
            dt { "writes" } dd { (bytes(start.rewrite_bytes)) }
            dt { "needs at its peak" } dd { (bytes(Some(start.peak_bytes))) " more" }
            dt { "takes" } dd { (seconds(start.duration_seconds)) }
        }
    }
}

/// The page that says how an order went. `answer` is the API's own.
pub(in crate::serve) fn done(order: &str, given: &Given, answer: &Result<Value, String>) -> Page {
    let target = Some(given.get("target")).filter(|target| !target.is_empty());
    let html = html! {
        @match answer {
            Ok(answer) => {
                p.banner.fine { (name(&outcome(order, answer))) }
                details {
                    summary { "The answer of the API" }
                    pre tabindex="0" { (crate::text::escape::escape_lines(&serde_json::to_string_pretty(answer).unwrap_or_default())) }
                }
            }
            Err(why) => { p.banner.worst { "Not done: " (name(why)) } }
        }
        p.actions {
            @if let Some(target) = target { a.button href=(link("target", &[("id", target)])) { "To the target" } }
            @if order == "compact" { a.button href="jobs" { "To the jobs" } }
            a.button href="events" { "To the events" }
            a.button href="./" { "To the overview" }
        }
    };
    Page::still(
        None,
        if answer.is_ok() { "Done" } else { "Not done" },
        vec![Part::new("result", html)],
    )
}

/// What an order did, as a sentence.
fn outcome(order: &str, answer: &Value) -> String {
    let text = |key: &str| answer.get(key).and_then(Value::as_str);
    let count = |key: &str| answer.get(key).and_then(Value::as_u64);
    let length = |key: &str| answer.get(key).and_then(Value::as_array).map_or(0, Vec::len) as u64;
    let is = |key: &str| answer.get(key).and_then(Value::as_bool).unwrap_or_default();
    match order {
        "suspend" => {
            let by = text("by").map_or_else(String::new, |by| format!(" by {by}"));
            let already = if is("already") { " already" } else { "" };
            let running = match count("running") {
                Some(some @ 1..) => {
                    format!(" {} still running.", counted(some, "compaction is", "compactions are"))
                }
                _ => String::new(),
            };
            format!("Starts are{already} suspended{by}.{running}")
        }
        "resume" => match (length("lifted"), length("remaining")) {
            (0, _) => "Nothing was suspended.".to_owned(),
            (_, 0) => "Compactions may start again.".to_owned(),
            (_, some) => format!(
                "Compactions may start again, apart from {} that is still in force.",
                counted(some, "suspension", "suspensions")
            ),
        },
        "compact" => {
            let waits = answer.get("waits").and_then(|waits| waits.get("why"));
            match (waits.and_then(Value::as_str), text("until")) {
                (None, _) => "The compaction starts now.".to_owned(),
                (Some(why), Some(until)) => {
                    format!("The compaction waits, until {until} at most: {why}.")
                }
                (Some(why), None) => format!("The compaction waits: {why}."),
            }
        }
        "release" => {
            format!("{} released.", counted(length("targets"), "target was", "targets were"))
        }
        "rescan" if is("begins") => "A sweep over all targets begins now.".to_owned(),
        "rescan" => "A sweep begins when the one that runs has ended.".to_owned(),
        "flush" => format!(
            "{} the queues.",
            counted(count("targets").unwrap_or_default(), "target left", "targets left")
        ),
        "advice/mute" => {
            let until = answer.get("muted").and_then(|muted| muted.get("until"));
            match until.and_then(Value::as_str) {
                Some(until) => format!("The advice is muted until {until}."),
                None => "The advice is muted.".to_owned(),
            }
        }
        _ => "The advice counts again.".to_owned(),
    }
}
