//! What changed on the disks: a sentence, a waterfall and the largest changes of each volume.

use super::{
    Given, Page, Part, Screen,
    cells::{ago, name, with_code},
    chart,
    table::still,
};
use crate::{
    ledger::ChangesBy,
    serve::report::{ChangeLine, Changes, VolumeChanges},
    text::{Label as _, counted},
};
use maud::{Markup, html};
use std::{cmp::Reverse, collections::BTreeMap};
use wall_clock::Moment;

/// Maximum number of bars of a waterfall between the first and the last, and of changes in a list.
const BARS: usize = 12;
const LISTED: usize = 50;

/// The page at `/changes`; `given` has the parameters of `/api/v1/changes`.
pub(in crate::serve) fn changes(
    given: &Given,
    found: &Result<Changes, String>,
    now: Moment,
) -> Page {
    let shown = match found {
        Err(why) => html! { p.note { (why) } },
        Ok(found) => html! {
            @if found.volumes.is_empty() { @for says in &found.says { p.quiet { (says) } } }
            @for volume in &found.volumes { (one(volume, now)) }
            p.quiet { "The causes add up exactly. " a href=(given.link("api/v1/changes", &[])) { "As JSON" } }
        },
    };
    let parts = vec![Part::new("filter", form(given)), Part::new("changes", shown)];
    Page::live(Screen::Changes, "What changed", parts)
}

fn form(given: &Given) -> Markup {
    let get = |key| given.get(key);
    html! {
        form.filter action="changes" {
            label { "since" input name="since" value=(get("since")) placeholder="24h" size="8"; }
            label { "until" input name="until" value=(get("until")) placeholder="now" size="8"; }
            label { "sum by" select name="by" {
                option value="" { "nothing" }
                @for by in ChangesBy::labels() { option value=(by) selected[get("by") == by] { (by) } }
            } }
            label { "only" input name="name" value=(get("name")) placeholder="database, node or volume"; }
            button { "Show" }
        }
    }
}

fn one(volume: &VolumeChanges, now: Moment) -> Markup {
    let steps = steps(&volume.entries);
    let (table, more) = volume.table(LISTED);
    html! {
        h2 { (name(&volume.name())) }
        p { (with_code(&volume.says)) }
        @if !steps.is_empty() {
            (chart::waterfall([volume.before_bytes, volume.after_bytes], &steps, &volume.says))
            (still("Changes", &table))
        }
        @if let Some(more) = more { p.quiet { (more) } }
        @if let Some(last) = volume.gaps.last() { p.quiet {
            "recliner was not watching from " (ago(&last.from, now)) " until " (ago(&last.until, now))
            @if let more @ 1.. = volume.gaps.len() - 1 { ", and " (counted(more as u64, "time", "times")) " before" }
            ": the changes of that time are included."
        } }
    }
}

/// The bars of the waterfall: sums by cause, or by the requested grouping; growth first, then shrinkage.
fn steps(entries: &[ChangeLine]) -> Vec<(String, i64)> {
    let mut sums: BTreeMap<String, i64> = BTreeMap::new();
    for entry in entries {
        let other = [&entry.database, &entry.design, &entry.node].into_iter().flatten();
        let label = match &entry.cause {
            Some(_) => entry.cause_in_words(),
            None => other.cloned().collect::<Vec<_>>().join("/"),
        };
        let label = if label.is_empty() { "others".to_owned() } else { label };
        *sums.entry(label).or_default() += entry.bytes;
    }
    let mut sums: Vec<(String, i64)> = sums.into_iter().filter(|(_, bytes)| *bytes != 0).collect();
    sums.sort_by_key(|(_, bytes)| Reverse(bytes.unsigned_abs()));
    let rest = sums.split_off(sums.len().min(BARS));
    let rest: i64 = rest.iter().map(|(_, bytes)| bytes).sum();
    if rest != 0 {
        sums.push(("the rest".to_owned(), rest));
    }
    sums.sort_by_key(|(_, bytes)| Reverse(*bytes));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waterfall_chart_shows_start_size_changes_and_end_size() {
        let line = |cause: &'static str, db: &str, bytes| ChangeLine {
            cause: Some(cause.into()),
            by: None,
            database: Some(db.to_owned()),
            design: None,
            node: Some("couchdb@a".to_owned()),
            bytes,
            others: 0,
        };
        let entries = vec![
            line("waste", "<b>", 30 << 30),
            line("documents", "b", 5 << 30),
            line("compaction", "b", -(9 << 30)),
        ];
        assert_eq!(
            steps(&entries).into_iter().map(|(_, bytes)| bytes >> 30).collect::<Vec<_>>(),
            [30, 5, -9]
        );
        let volume = VolumeChanges {
            volume: Some("couchdb@a".to_owned()),
            nodes: vec!["couchdb@a".to_owned()],
            since: "2026-11-25T08:00:00Z".to_owned(),
            before_bytes: 100 << 30,
            after_bytes: 126 << 30,
            says: "couch-a grew".to_owned(),
            gaps: Vec::new(),
            entries,
        };
        let text = one(&volume, Moment::default()).into_string();
        assert_eq!(text.matches("<rect").count(), 5, "{text}");
        for says in [">before<", ">100 GiB<", ">+30 GiB<", ">−9 GiB<", ">126 GiB<", "&lt;b&gt;"] {
            assert!(text.contains(says), "{says} in {text}");
        }
    }
}
