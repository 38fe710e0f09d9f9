//! All targets, with search, filter, sort order and pages.

use super::{
    Given, Page, Part, Screen,
    cells::{meaning, words},
    paging::{kept, summary, turn},
    table::table,
};
use crate::{
    plan::RefusalReason,
    serve::report::{
        self, Target, Targets,
        columns::{Cell, Table, any, rest},
        not_taken, not_taken_meaning,
    },
    text::escape,
};
use maud::{Markup, html};
use std::collections::BTreeSet;
use wall_clock::Moment;

/// The active filter, with the parameters of `/api/v1/targets`.
pub(in crate::serve) struct TargetFilter {
    pub(in crate::serve) given: Given,
    /// The choices of each parameter that has a fixed list.
    pub(in crate::serve) choices: Vec<(&'static str, Vec<String>)>,
    /// Channels whose priorities are bytes.
    pub(in crate::serve) in_bytes: BTreeSet<String>,
}

/// The page at `/targets`.
pub(in crate::serve) fn targets(filter: &TargetFilter, found: &Targets) -> Page {
    let list = html! {
        p { (summary("target", (found.offset, found.targets.len()), found.total)) " " a.quiet href=(filter.given.link("api/v1/targets", &[])) { "JSON" } }
        @if !found.targets.is_empty() { (list(filter, &found.targets)) (turn(&filter.given, Screen::Targets, (found.offset, found.targets.len(), found.limit), found.total)) }
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

/// A filter choice as shown; the form sends the API's value.
fn shown(key: &str, word: &str) -> String {
    match key {
        "class" => words(word),
        "node" => report::place(word, None).to_owned(),
        _ => word.to_owned(),
    }
}

fn list(filter: &TargetFilter, list: &[Target]) -> Markup {
    let priority = |it: &Target| match &it.channel {
        Some(channel) => Cell::score(it.priority, filter.in_bytes.contains(channel)),
        None => Cell::none(),
    };
    let targets = Table::of(list)
        .text("target", |it| Cell::id(&it.id, it.ddoc.as_deref()).below(&it.node))
        .text(rest("database").sorted_by("db"), |it| Cell::database(&it.db))
        .text(rest("node").sorted_by("node"), |it| &*it.node)
        .text(rest("kind").sorted_by("kind"), |it| {
            let state = Some(format!(" {}", it.state)).filter(|_| it.state != "ok");
            Cell::words(&*it.kind).and(Cell::words(state.unwrap_or_default()).styled("warn"))
        })
        .number(any("on disk").sorted_by("file_bytes"), |it| {
            Cell::bounded(it.file_bytes, 0, it.estimated.into())
        })
        .number(any("reclaimable").sorted_by("reclaimable_bytes"), |it| {
            Cell::bounded(it.reclaimable_bytes, 0, it.estimated.into())
        })
        .number(rest("ratio").sorted_by("ratio"), |it| Cell::number(it.ratio))
        .text(rest("channel").sorted_by("channel"), channel)
        .number(rest("priority").sorted_by("priority"), priority)
        .text(rest("why it waits"), waits);
    html! {
        (table("Targets", &targets, Some((&filter.given, Screen::Targets)), Moment::default()))
        (meanings(&mut list.iter()))
    }
}

/// The channel that takes a target, or a short reason why none does.
pub(super) fn channel(line: &Target) -> Cell {
    match (&line.channel, not_taken(&line.misses)) {
        (Some(channel), _) => (&**channel).into(),
        (None, Some(word)) if line.refusal.is_none() => {
            Cell::words(format!("none: {word}")).quiet().explained(not_taken_meaning(word))
        }
        (None, _) => Cell::words("none").quiet(),
    }
}

/// Why a target waits.
pub(super) fn waits(line: &Target) -> Cell {
    line.refusal.as_ref().map_or_else(Cell::none, |refusal| Cell::reason(&refusal.reason))
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
