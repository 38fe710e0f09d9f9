//! All targets, with search, filter, sort order and pages.

use super::{
    Given, Page, Part, Screen,
    cells::{bytes, database_link, id_link, meaning, name, number, reason, score, words},
    paging::{Column, heading, kept, summary, turn},
};
use crate::{
    plan::RefusalReason,
    serve::report::{self, Target, Targets, not_taken, not_taken_meaning},
    text::escape,
};
use maud::{Markup, html};
use std::collections::BTreeSet;

/// The active filter, with the parameters of `/api/v1/targets`.
pub(in crate::serve) struct TargetFilter {
    pub(in crate::serve) given: Given,
    /// The choices of each parameter that has a fixed list.
    pub(in crate::serve) choices: Vec<(&'static str, Vec<String>)>,
    /// Channels whose priorities are bytes.
    pub(in crate::serve) in_bytes: BTreeSet<String>,
}

/// Columns that can be sorted by.
const COLUMNS: [Column; 8] = [
    Column::text("database", "db"),
    Column::text("node", "node"),
    Column::text("kind", "kind"),
    Column::number("on disk", "file_bytes"),
    Column::number("reclaimable", "reclaimable_bytes"),
    Column::number("ratio", "ratio").rest(),
    Column::text("channel", "channel"),
    Column::number("priority", "priority").rest(),
];

/// The page at `/targets`.
pub(in crate::serve) fn targets(filter: &TargetFilter, found: &Targets) -> Page {
    let list = html! {
        p { (summary("target", (found.offset, found.targets.len()), found.total)) " " a.quiet href=(filter.given.link("api/v1/targets", &[])) { "JSON" } }
        @if !found.targets.is_empty() { (table(filter, &found.targets)) (turn(&filter.given, Screen::Targets, (found.offset, found.targets.len(), found.limit), found.total)) }
    };
    Page::live(
        Screen::Targets,
        "Targets",
        vec![Part::new("filter", form(filter)), Part::new("list", list)],
    )
}

fn form(filter: &TargetFilter) -> Markup {
    html! {
        form.filter action="targets" {
            label { "search" input type="search" name="search" value=(filter.given.get("search")) placeholder="name or id"; }
            @for (key, words) in &filter.choices {
                label {
                    @if *key == "class" { "why it waits" } @else { (key) }
                    select name=(key) {
                        option value="" { "any" }
                        @for word in words { option value=(word) selected[filter.given.get(key) == word] { (escape::escape_line(&shown(key, word))) } }
                    }
                }
            }
            (kept(&filter.given, &["reason"]))
            label { "database" input name="db" value=(filter.given.get("db")); }
            label { "min file size" input name="min_size" value=(filter.given.get("min_size")) placeholder="100MiB" size="8"; }
            label { "max file size" input name="max_size" value=(filter.given.get("max_size")) placeholder="10GiB" size="8"; }
            (kept(&filter.given, &["sort", "order"]))
            button { "Show" }
            @if !filter.given.is_empty() { a href="targets" { "Clear" } }
        }
    }
}

/// A choice of the filter as it is shown; its value is the API's.
fn shown(key: &str, word: &str) -> String {
    match key {
        "class" => words(word),
        "node" => report::place(word, None).to_owned(),
        _ => word.to_owned(),
    }
}

fn table(filter: &TargetFilter, list: &[Target]) -> Markup {
    html! {
        div.wide { table {
            thead { tr {
                th { "target" }
                @for column in &COLUMNS { (heading(&filter.given, Screen::Targets, column)) }
                th.rest { "why it waits" }
            } }
            tbody { @for line in list { tr {
                td.named { (id_link(&line.id, line.ddoc.as_deref())) span.narrow.quiet { (name(&line.node)) } }
                td.rest { (database_link(&line.db)) }
                td.rest { (name(&line.node)) }
                td.rest { (line.kind) @if line.state != "ok" { " " span.warn { (line.state) } } }
                td.n { (bytes(line.file_bytes)) }
                td.n { (bytes(line.reclaimable_bytes)) }
                td.n.rest { (number(line.ratio)) }
                td.rest { (channel(line)) }
                td.n.rest { @match &line.channel { Some(channel) => { (score(line.priority, filter.in_bytes.contains(channel))) } None => {} } }
                td.rest { @if let Some(refusal) = &line.refusal { (reason(&refusal.reason)) } }
            } } }
        } }
        (meanings(&mut list.iter()))
    }
}

/// The channel that takes a target, or a few words for why none does.
pub(super) fn channel(line: &Target) -> Markup {
    html! {
        @match (&line.channel, not_taken(&line.misses)) {
            (Some(channel), _) => { (name(channel)) }
            (None, Some(word)) if line.refusal.is_none() => { span.quiet { "none: " span title=[not_taken_meaning(word)] { (word) } } }
            (None, _) => { span.quiet { "none" } }
        }
    }
}

/// The meaning of each reason and word in a table of targets.
pub(super) fn meanings(list: &mut dyn Iterator<Item = &Target>) -> Markup {
    let mut by_word = std::collections::BTreeMap::new();
    for line in list {
        if let Some(refusal) = &line.refusal {
            by_word.insert(RefusalReason::words_of(&refusal.reason), meaning(&refusal.reason));
        } else if let Some(word) = not_taken(&line.misses).filter(|_| line.channel.is_none()) {
            by_word.insert(word.to_owned(), not_taken_meaning(word).unwrap_or_default());
        }
    }
    by_word.retain(|_, meaning| !meaning.is_empty());
    html! {
        @if !by_word.is_empty() { p.quiet { @for (at, (word, meaning)) in by_word.iter().enumerate() { @if at > 0 { "; " } b { (word) } ": " (meaning) } "." } }
    }
}
