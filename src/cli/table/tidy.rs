//! What `recliner tidy` prints: before, during and after.

use super::{
    super::{
        printable,
        tidy::answer::{Left, Sizes, Step, TidyAnswer, file_name},
    },
    layout::{Grid, bytes, paragraph, shortened, wrap},
};
use crate::{
    model::target::{TargetId, TargetKind},
    plan::{Plan, RefusalReason},
    serve::report::OutcomeLine,
    service::{TidyEnd, TidyEvent},
    text::{
        Label as _, counted, duration, listed,
        size::{self, format_size_short},
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Maximum number of rows in a list.
const ROWS: usize = 25;

fn on_disk(answer: &TidyAnswer, sizes: &Sizes) -> String {
    let Sizes { file_bytes, unmeasured, free_bytes, .. } = sizes;
    let assumed = if answer.free_is_assumed { " (assumed)" } else { "" };
    let free = |bytes| format!("{}{assumed}", format_size_short(bytes));
    let free = free_bytes.map_or_else(|| "unknown".to_owned(), free);
    let bound = size::bound(*unmeasured, 0);
    format!("{bound}{} on disk, free: {free}", format_size_short(*file_bytes))
}

/// The state before, what would be done in which order, and what would be left.
pub(in crate::cli) fn begin(answer: &TidyAnswer, acts: bool, width: u16) -> String {
    let databases = counted(answer.before.databases as u64, "database", "databases");
    let mut text = paragraph(&format!("{databases}, {}", on_disk(answer, &answer.before)), width);
    if let Some(why) = &answer.unknown_space {
        text.push_str(&paragraph(&printable(why), width));
    }
    if answer.has_enough() {
        text.push_str("Nothing to do: the free space already meets --until-free.\n");
        return text;
    }
    text.push_str(&steps(&answer.starts, acts, width));
    if answer.is_cut {
        text.push_str("and more\n");
    }
    if let unproven @ 1.. = answer.unproven_cleanups.len() {
        let of = counted(unproven as u64, "database", "databases");
        let would = if acts { "Asks" } else { "Would ask" };
        text.push_str(&paragraph(&format!("{would} CouchDB to delete unused index files of {of}; recliner cannot see whether there are any."), width));
    }
    let left: Vec<&Left> = answer.left.iter().collect();
    let head = if acts { "Will be left:" } else { "Would be left:" };
    text.push_str(&list_left(&left, head, width));
    let headroom = RefusalReason::Headroom.label();
    if answer.starts.is_empty() && answer.left.iter().any(|left| left.reason == headroom) {
        text.push_str(&paragraph(
            "Nothing fits: every compaction temporarily needs more space than may be used. Free space first, or compact on another volume.",
            width,
        ));
    }
    if let Some(goal) = answer.missed_goal() {
        let ends =
            answer.free_bytes.map_or_else(|| "an unknown amount".to_owned(), format_size_short);
        let goal = format_size_short(goal);
        let says = format!("That would leave {ends} free, less than the {goal} asked for.");
        text.push_str(&paragraph(&says, width));
    }
    if !acts {
        text.push_str("\nDry run: nothing was changed. Add --yes to do it.\n");
    }
    text
}

/// The compactions in order, those of one database or design document in one row.
fn steps(starts: &[Step], acts: bool, width: u16) -> String {
    if starts.is_empty() {
        return "Nothing to compact.\n".to_owned();
    }
    let mut order: Vec<&str> = Vec::new();
    let mut rows: BTreeMap<&str, (u64, [Option<u64>; 2], u64)> = BTreeMap::new();
    for step in starts {
        let (count, sums, peak) = rows.entry(&step.name).or_insert_with(|| {
            order.push(&step.name);
            (0, [Some(0), Some(0)], 0)
        });
        *count += 1;
        *peak = step.peak_bytes.max(*peak);
        for (sum, bytes) in sums.iter_mut().zip([step.file_bytes, step.reclaimable_bytes]) {
            *sum = sum.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        }
    }
    let mut table = Grid::new(["compact", "on disk", "reclaimable", "needs meanwhile"], &[1, 2, 3]);
    for name in order.iter().take(ROWS) {
        let Some((count, [file, gain], peak)) = rows.get(name) else { continue };
        let files = if *count > 1 { format!(" ({count} files)") } else { String::new() };
        let name = shortened(&printable(name));
        table.push([format!("{name}{files}"), bytes(*file), bytes(*gain), bytes(Some(*peak))]);
    }
    let gains = || starts.iter().map(|it| it.reclaimable_bytes);
    let gain = gains().flatten().fold(0, u64::saturating_add);
    let unknown = gains().filter(Option::is_none).count() as u64;
    let all = format!("{}{}", size::bound(unknown, 0), format_size_short(gain));
    let would = if acts { "In this order" } else { "Would compact in this order" };
    let mut text = format!("{would}, to free about {all}:\n\n{}", table.wrapped(width));
    if order.len() > ROWS {
        text.push_str(&format!("and {} more\n", order.len() - ROWS));
    }
    text
}

/// What is left, with the reasons, each only once for a database or design document.
fn list_left(left: &[&Left], head: &str, width: u16) -> String {
    let mut seen = BTreeSet::new();
    let left = left.iter().map(|it| (&it.name, &it.why));
    let left: Vec<_> = left.filter(|it| seen.insert(*it)).collect();
    let mut text = String::new();
    for (name, why) in left.iter().take(ROWS) {
        let name = format!("  {}: ", shortened(&printable(name)));
        wrap(&mut text, &name, &printable(why), width.into());
    }
    if text.is_empty() {
        return text;
    }
    if left.len() > ROWS {
        text.push_str(&format!("  and {} more\n", left.len() - ROWS));
    }
    format!("\n{head}\n{text}")
}

/// A line about what happens during the pass.
pub(in crate::cli) fn event(plan: &Plan, event: &TidyEvent<'_>) -> String {
    match event {
        TidyEvent::Started(ix) => format!("compacting {}", printable(&file_name(plan, *ix))),
        TidyEvent::Ended(outcome) => ended(&OutcomeLine::of(0, outcome)),
        TidyEvent::Waits(ix, refusal) => {
            let Left { name, why, .. } = Left::of(plan, &(*ix, **refusal));
            printable(&format!("waiting for {name}: {why}"))
        }
    }
}

fn ended(outcome: &OutcomeLine) -> String {
    let id = outcome.target.parse::<TargetId>();
    let name = id.map_or_else(|_| outcome.target.clone(), |id| id.name(outcome.ddoc.as_deref()));
    printable(&match &*outcome.result {
        "failed" | "lost" => {
            let why = outcome.why.as_deref().unwrap_or("CouchDB gave no reason");
            format!("{name}: not compacted: {why}")
        }
        _ if outcome.kind == TargetKind::Cleanup.label() => format!("{name}: cleaned up"),
        _ => {
            let took = outcome.duration_seconds.map(Duration::from_secs);
            let took = took.map(duration::format_rounded).unwrap_or_default();
            let [before, after] = [outcome.before_bytes, outcome.after_bytes].map(bytes);
            format!("{name}: {before} before, {after} after, {took}")
        }
    })
}

/// The state after, and what is left.
pub(in crate::cli) fn end(answer: &TidyAnswer, width: u16) -> String {
    let Some(done) = &answer.done else { return String::new() };
    let mut text = format!(
        "\nCompacted {} in {}.\nBefore: {}\nAfter:  {}\n",
        counted(done.compacted() as u64, "file", "files"),
        duration::format_rounded(Duration::from_secs(done.seconds)),
        on_disk(answer, &answer.before),
        on_disk(answer, &done.after)
    );
    let early = |why: &str| {
        let runs = match &*done.still_running {
            [] => "Its compactions have ended.".to_owned(),
            some => {
                format!("CouchDB is still compacting {} and will finish by itself.", listed(some))
            }
        };
        let files = counted(done.left.len() as u64, "file", "files");
        paragraph(&printable(&format!("Stopped early ({why}) with {files} left. {runs}")), width)
    };
    text.push_str(&match done.end {
        TidyEnd::Finished => {
            // What was expected to be left is listed above.
            let is_new = |it: &&Left| !answer.left.iter().any(|old| old.is_same(it));
            list_left(&done.left.iter().filter(is_new).collect::<Vec<_>>(), "Also left:", width)
        }
        TidyEnd::EnoughFree => "The free space meets --until-free.\n".to_owned(),
        TidyEnd::TimeUp => early("--max-duration is over"),
        TidyEnd::Interrupted => early("interrupted"),
    });
    done.failed().for_each(|it| text.push_str(&format!("  {}\n", ended(it))));
    if let Some(goal) = answer.missed_goal() {
        text.push_str(&format!(
            "The free space is less than the {} asked for.\n",
            format_size_short(goal)
        ));
    }
    text
}
