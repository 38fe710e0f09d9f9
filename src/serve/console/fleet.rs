//! Other recliners, each for its own cluster: those that need a person first.

use super::{
    Page, Part, Screen,
    cells::{ago, bytes, count, name, span_since, unknown, with_code, words},
};
use crate::{
    serve::report::{FleetAnswer, MemberLine},
    text::size,
};
use maud::{Markup, html};
use wall_clock::Moment;

/// The page at `/fleet`.
pub(in crate::serve) fn fleet(fleet: &FleetAnswer, now: Moment) -> Page {
    let list = html! {
        p { (with_code(&fleet.says)) " " a.quiet href="api/v1/fleet" { "JSON" } }
        @for problem in &fleet.problems { p.banner { (with_code(problem)) } }
        @if !fleet.members.is_empty() { (table(&fleet.members, now)) }
    };
    Page::live(Screen::Fleet, "Fleet", vec![Part::new("list", list)])
}

fn table(members: &[MemberLine], now: Moment) -> Markup {
    html! {
        div.wide tabindex="0" role="region" aria-label="Recliners" { table {
            thead { tr {
                th { "recliner" } th { "needs a person" }
                th.n { "on disk" } th.n { "waste" } th.n.rest { "reclaimable" } th { "full" }
                th.rest { "last night" } th.n.rest { "advice" } th.rest { "mode" } th.rest { "version" }
            } }
            tbody { @for member in members { (row(member, now)) } }
        } }
        p.quiet { "A name leads to that recliner's own console, where orders are given. Waste is what compactions would free, and unused files. " i { "Full" } " is the first volume's date by its forecast, if compaction keeps up." }
    }
}

fn row(member: &MemberLine, now: Moment) -> Markup {
    let overview = &member.overview;
    let files = overview.unmeasured.unwrap_or_default();
    let waste = files.saturating_add(overview.unread_directories.unwrap_or_default());
    html! { tr {
        td.named { a href=(member.url) rel="noreferrer" { (name(&member.name)) } }
        td.text { (needs(member, now)) }
        td.n { (bounded(files, overview.file_bytes)) }
        td.n { (bounded(waste, overview.waste_bytes)) }
        td.n.rest { (bounded(files, overview.reclaimable_bytes)) }
        td { (full(member, now)) }
        td.rest { (night(member)) }
        td.n.rest { @match &overview.advice { Some(advice) => { (count(advice.open)) } None => { (unknown()) } } }
        td.rest { (or_unknown(member.mode.as_deref())) }
        td.rest { (or_unknown(member.version.as_deref())) }
    } }
}

/// Why it needs a person.
fn needs(member: &MemberLine, now: Moment) -> Markup {
    let class = match &*member.attention {
        "silent" | "refused" | "problem" | "critical_advice" => "bad",
        "nothing" | "unknown" => "quiet",
        _ => "warn",
    };
    html! {
        span class=(class) { (words(&member.attention)) }
        @if let Some(since) = &member.silent_since { " for " (span_since(Some(since), now)) }
        @if !member.says.is_empty() {
            @if member.attention == "nothing" { "; advice: " } @else { ": " }
            (with_code(&member.says))
        }
    }
}

fn bounded(unknown: u64, sum: Option<u64>) -> Markup {
    html! { @if sum.is_some() { (size::bound(unknown, 0)) } (bytes(sum)) }
}

fn full(member: &MemberLine, now: Moment) -> Markup {
    let day = |at: &str| html! { time.one datetime=(at) title=(at) { (at.split('T').next().unwrap_or(at)) } };
    match (&member.overview.full_at, &member.overview.not_full_until) {
        (Some(at), _) => html! { (day(at)) " (" (ago(at, now)) ")" },
        (None, Some(until)) => html! { span.quiet { "not before " (day(until)) } },
        (None, None) => unknown(),
    }
}

fn night(member: &MemberLine) -> Markup {
    let Some(night) = &member.overview.last_night else { return unknown() };
    html! {
        @if night.compactions == 0 { span.quiet { "nothing" } }
        @else { (bytes(Some(night.freed_bytes))) " freed by " (count(night.compactions)) @if night.failed > 0 { ", " span.bad { (count(night.failed)) " failed" } } }
    }
}

fn or_unknown(text: Option<&str>) -> Markup {
    text.map_or_else(unknown, name)
}
