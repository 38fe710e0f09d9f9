//! Orders: what exactly would be sent and what it would do, and how it went.

use super::{
    Page, Part,
    cells::{bytes, capital, link, name, seconds},
};
use crate::serve::report::StartLine;
use maud::{Markup, html};

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
pub(in crate::serve) struct AskedCompaction {
    /// The request, what it frees and what it takes.
    pub(in crate::serve) start: StartLine,
    /// What holds it back now, in words.
    pub(in crate::serve) waits: Option<String>,
    /// Whether no channel takes the target.
    pub(in crate::serve) needs_force: bool,
}

/// The page at `/act` that asks whether to go on.
pub(in crate::serve) fn confirmation(asked: &Confirmation) -> Page {
    let body = serde_json::Map::from_iter(asked.fields.iter().map(|(key, value)| {
        (key.clone(), if value == "true" { true.into() } else { value.clone().into() })
    }));
    let html = html! {
        p { (name(&asked.does)) }
        @if let Some(compaction) = &asked.compaction { (effect(compaction)) }
        p.quiet { "The same for a program: " code { "POST /api/v1/" (asked.order) " " (name(&serde_json::Value::Object(body).to_string())) } }
        @if let Some(why) = &asked.refused { p.banner { (name(why)) } } @else {
            form method="post" action="act" {
                input type="hidden" name="order" value=(asked.order);
                @for (key, value) in &asked.fields { input type="hidden" name=(key) value=(value); }
                @for (key, title, example) in &asked.asks {
                    p { label { (title) " " @match *key {
                        "force" => { input type="checkbox" name="force" value="true"; }
                        _ => { input name=(key) placeholder=(example) required[*key == "for"] maxlength="1000" size="40"; }
                    } } }
                }
                p.actions { button.do { "Do it" } a.button href="./" { "Leave it" } }
            }
        }
    };
    Page::still(None, title(&asked.order), vec![Part::new("confirm", html)])
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

fn effect(AskedCompaction { start, waits, needs_force }: &AskedCompaction) -> Markup {
    html! {
        @if let Some(waits) = waits { p.note { (name(&capital(waits))) "." } }
        @if *needs_force { p.note { "No channel takes it, so it starts only by force." } }
        p { "It would send " code { (name(&start.request)) } "." }
        dl.facts {
            dt { "frees" } dd { (bytes(start.gain_bytes)) }
            dt { "writes" } dd { (bytes(start.rewrite_bytes)) }
            dt { "needs at its peak" } dd { (bytes(Some(start.peak_bytes))) " more" }
            dt { "takes" } dd { (seconds(start.duration_seconds)) }
        }
    }
}

/// The page that says how an order went. `answer` is the API's own.
pub(in crate::serve) fn done(
    order: &str,
    target: Option<&str>,
    answer: &Result<serde_json::Value, String>,
) -> Page {
    let html = html! {
        @match answer {
            Ok(answer) => {
                p.banner.fine { "Done: the order " code { (order) } " was carried out." }
                p { "The answer:" }
                pre tabindex="0" { (crate::text::escape::escape_lines(&serde_json::to_string_pretty(answer).unwrap_or_default())) }
            }
            Err(why) => { p.banner.worst { "Not done: " (name(why)) } }
        }
        p.actions {
            @if let Some(target) = target { a.button href=(link("target", &[("id", target)])) { "To the target" } }
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
