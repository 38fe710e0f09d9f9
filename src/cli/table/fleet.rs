//! Other recliners: one row each, those that need a person first.

use super::layout::{Grid, bytes, paragraph};
use crate::{
    cli::printable,
    serve::report::{FleetAnswer, MemberLine},
    text::size,
};

/// The fleet as text.
pub(in crate::cli) fn fleet(fleet: &FleetAnswer, width: u16) -> String {
    let mut text = paragraph(&printable(&fleet.says), width);
    if fleet.members.is_empty() {
        return text;
    }
    text.push('\n');
    text.push_str(
        &Grid::of(width, &fleet.members)
            .text("recliner", |it| printable(&it.name))
            .number("on disk", |it| bounded(it, it.overview.file_bytes, false))
            .number("waste", |it| bounded(it, it.overview.waste_bytes, true))
            .wide_number("reclaimable", |it| bounded(it, it.overview.reclaimable_bytes, false))
            .text("full", full)
            .wide_text("last night", night)
            .wide_number("advice", |it| {
                it.overview.advice.as_ref().map_or_else(unknown, |advice| advice.open.to_string())
            })
            .wide_text("mode", |it| it.mode.as_deref().map_or_else(unknown, printable))
            .wide_text("version", |it| it.version.as_deref().map_or_else(unknown, printable))
            .text("needs a person", |it| printable(&it.attention.replace('_', " ")))
            .wrapped(),
    );
    let says = fleet.members.iter().filter(|it| it.attention != "nothing" && !it.says.is_empty());
    for (at, member) in says.enumerate() {
        if at == 0 {
            text.push('\n');
        }
        let MemberLine { name, says, silent_since, .. } = member;
        let since = silent_since.as_ref().map(|since| format!("silent since {since}: "));
        let says = format!("{name}: {}{says}", since.unwrap_or_default());
        text.push_str(&paragraph(&printable(&says), width));
    }
    text
}

fn unknown() -> String {
    "?".to_owned()
}

/// A sum, marked where it is a lower bound.
fn bounded(line: &MemberLine, sum: Option<u64>, and_unused: bool) -> String {
    let unread = line.overview.unread_directories.filter(|_| and_unused).unwrap_or_default();
    let unmeasured = line.overview.unmeasured.unwrap_or_default().saturating_add(unread);
    let bound = if sum.is_some() { size::bound(unmeasured, 0) } else { "" };
    format!("{bound}{}", bytes(sum))
}

fn full(line: &MemberLine) -> String {
    let day = |at: &String| printable(at.split('T').next().unwrap_or(at));
    match (&line.overview.full_at, &line.overview.not_full_until) {
        (Some(at), _) => day(at),
        (None, Some(until)) => format!("not before {}", day(until)),
        (None, None) => unknown(),
    }
}

fn night(line: &MemberLine) -> String {
    let Some(night) = &line.overview.last_night else { return unknown() };
    match (night.compactions, night.failed) {
        (0, _) => "nothing".to_owned(),
        (all, 0) => format!("{} by {all}", bytes(Some(night.freed_bytes))),
        (all, failed) => format!("{} by {all}, {failed} failed", bytes(Some(night.freed_bytes))),
    }
}
