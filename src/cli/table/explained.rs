//! Explains why targets are or are not candidates, from a service or a scan: everything about one
//! target; for several, a sentence, a table, and everything about the one with most to reclaim.

use super::{
    super::printable,
    layout::{Lines, bytes, paragraph, place, short_range},
    planned::pasted,
    scanned::no_channel_legend,
};
use crate::{
    model::{rounding::to_bytes, target::TargetId},
    plan::RefusalReason,
    serve::report::{
        self, Explained, MissLine, OrderLine, Target,
        columns::{Table, wide},
    },
    sources::inventory::InsideLine,
    text::{Label, counted, listed, three_digits},
};
use std::{
    cmp::Reverse,
    iter::{once, repeat},
};

/// Width of the labels before the text.
const INDENT: usize = 14;

const ROWS: usize = 25;

/// Renders the result.
pub(in crate::cli) fn explained(
    asked: &str,
    targets: &[Explained],
    only_node: Option<&str>,
    all: bool,
    width: u16,
) -> String {
    match targets {
        [_, _, ..] if !all => summary(asked, targets, only_node, width),
        _ => {
            let blocks: Vec<String> = targets.iter().map(|target| whole(target, width)).collect();
            blocks.join("\n")
        }
    }
}

/// A sentence and a table about several targets, and everything about the one with most to reclaim.
fn summary(asked: &str, targets: &[Explained], only_node: Option<&str>, width: u16) -> String {
    let mut rows: Vec<&Explained> = targets.iter().filter(|it| it.part_of.is_none()).collect();
    rows.sort_by_key(|target| Reverse(target.target.reclaimable_bytes));
    let places = Places::of(&rows, only_node);
    let mut text = paragraph(&sentence(asked, &rows, places), width);
    text.push('\n');
    text.push_str(&table(&rows, places, width));
    if let Some(more) = rows.len().checked_sub(ROWS).filter(|more| *more > 0) {
        text.push_str(&format!("and {more} more, which --all prints too\n"));
    }
    let words = rows.iter().take(ROWS).filter_map(|target| no_channel_word(target));
    text.push_str(&no_channel_legend("none", &words.collect(), width));
    if let Some(worst) = rows.first() {
        text.push_str(&format!("\nMost reclaimable:\n\n{}", whole(worst, width)));
    }
    text.push_str("\n--all prints each of them like this.\n");
    text
}

/// The total sizes of all targets, and the number of targets for each decision.
fn sentence(asked: &str, rows: &[&Explained], places: Places<'_>) -> String {
    let count = |wanted: &dyn Fn(&Explained) -> bool| rows.iter().filter(|it| wanted(it)).count();
    let of_kind = |kind: &'static str| count(&|it: &Explained| it.target.kind == kind);
    let (one, many) = match places.only_node.is_some() {
        true => ("file of documents", "files of documents"),
        false => ("shard copy", "shard copies"),
    };
    let tally = |counts: &[(usize, &str, &str)]| {
        let some = counts.iter().filter(|(count, ..)| *count > 0);
        let some = some.map(|(count, one, many)| counted(*count as u64, one, many));
        listed(&some.collect::<Vec<_>>())
    };
    let kinds = tally(&[
        (of_kind("db"), one, many),
        (of_kind("view"), "view", "views"),
        (of_kind("search"), "search index", "search indexes"),
        (of_kind("cleanup"), "index cleanup", "index cleanups"),
    ]);
    let sum = |size: fn(&Target) -> Option<u64>| {
        let files = rows.iter().filter(|it| it.target.kind != "cleanup");
        let sizes: Vec<Option<u64>> = files.map(|it| size(&it.target)).collect();
        let sum: u64 = sizes.iter().flatten().sum();
        match sizes.iter().filter(|size| size.is_none()).count() {
            0 => bytes(Some(sum)),
            all if all == sizes.len() => "unknown".to_owned(),
            _ => format!("at least {}", bytes(Some(sum))),
        }
    };
    let starts = count(&|it| it.start.is_some());
    let never = |it: &Explained| {
        let reason =
            it.target.refusal.as_ref().and_then(|it| RefusalReason::from_label(&it.reason));
        reason.is_some_and(RefusalReason::is_never)
    };
    let is_queued = |it: &Explained| it.start.is_none() && it.target.channel.is_some();
    let waits = count(&|it| is_queued(it) && !never(it));
    let stays = count(&|it| is_queued(it) && never(it));
    let others = rows.len() - starts - waits - stays;
    let decided = tally(&[
        (starts, "would start now", "would start now"),
        (waits, "is queued", "are queued"),
        (stays, "never starts as it is", "never start as they are"),
        (others, "is not a candidate", "are not candidates"),
    ]);
    format!(
        "{}: {kinds}; {} on disk, {} reclaimable. {decided}.",
        printable(asked),
        sum(|it| it.file_bytes),
        sum(|it| it.reclaimable_bytes),
    )
}

fn table(rows: &[&Explained], places: Places<'_>, width: u16) -> String {
    let none = || "none".to_owned();
    Table::of(rows.get(..ROWS).unwrap_or(rows))
        .text("range or view", |it| what_and_where(it, places).0)
        .text("node", |it| what_and_where(it, places).1)
        .number("on disk", |it| size(it, it.target.file_bytes))
        .number(wide("active"), |it| compacted_size(it, it.target.active_bytes))
        .number("ratio", |it| it.target.ratio.map_or_else(String::new, |it| format!("{it:.2}")))
        .number("reclaimable", |it| compacted_size(it, it.target.reclaimable_bytes))
        .text(wide("channel"), |it| word(&it.target.channel).unwrap_or_else(none))
        .text("decision", |it| decision(it))
        .wrapped(width)
}

/// Where the targets are; on a one-node cluster, neither copies nor the range of a single file distinguish anything.
#[derive(Clone, Copy)]
struct Places<'a> {
    only_node: Option<&'a str>,
    shards: usize,
}

impl<'a> Places<'a> {
    fn of(rows: &[&Explained], only_node: Option<&'a str>) -> Self {
        Self { only_node, shards: rows.iter().filter(|it| it.target.kind == "db").count() }
    }
}

/// The name of a target within its database, and its node or the number of its copies.
fn what_and_where(target: &Explained, places: Places<'_>) -> (String, String) {
    let target = &target.target;
    let node = place(&target.node, places.only_node);
    let range = target.range.as_deref().map(short_range);
    let copies = || match places.only_node {
        Some(_) => node.clone(),
        None => counted(target.copies.into(), "copy", "copies"),
    };
    let design = word(&target.ddoc).or_else(|| word(&target.signature)).unwrap_or_default();
    match &*target.kind {
        "cleanup" => ("index cleanup".to_owned(), node),
        "search" => (format!("{design}/{}", word(&target.name).unwrap_or_default()), copies()),
        "view" if range.is_none() => (design, copies()),
        "view" => (format!("{} {design}", range.unwrap_or_default()), node),
        // The files of node-local databases have no range.
        _ => {
            let range = range.filter(|_| places.shards != 1 || places.only_node.is_none());
            (range.unwrap_or_else(|| printable(&target.db)), node)
        }
    }
}

fn size(target: &Explained, size: Option<u64>) -> String {
    match &*target.target.kind {
        "cleanup" if size.is_none() => String::new(),
        _ => bytes(size),
    }
}

/// A size that only targets with a compaction have.
fn compacted_size(target: &Explained, size: Option<u64>) -> String {
    match &*target.target.kind {
        "search" => String::new(),
        _ => self::size(target, size),
    }
}

/// The decision, in a few words.
fn decision(target: &Explained) -> String {
    let Explained { target, start, .. } = target;
    let state = Some(&*target.state).filter(|state| !matches!(*state, "ok" | "resharding"));
    if start.is_some() {
        "would start".to_owned()
    } else if let Some(refusal) = &target.refusal {
        printable(&RefusalReason::words_of(&refusal.reason))
    } else if let Some(state) = state {
        printable(state)
    } else if target.kind == "search" {
        "never compacted".to_owned()
    } else {
        match report::not_taken(&target.misses) {
            Some(why) => format!("none: {}", printable(why)),
            None => "none".to_owned(),
        }
    }
}

/// A few words for why no channel takes the target; `None` if another decision applies.
fn no_channel_word(target: &Explained) -> Option<String> {
    let word = report::not_taken(&target.target.misses)?;
    decision(target).starts_with("none: ").then(|| word.to_owned())
}

/// The misses of channels that take targets of this kind.
fn misses(target: &Target) -> impl Iterator<Item = &MissLine> {
    target.misses.iter().filter(|miss| miss.reason != "not_this_kind")
}

fn word(word: &Option<impl AsRef<str>>) -> Option<String> {
    word.as_ref().map(|word| printable(word.as_ref()))
}

/// Everything about one target.
fn whole(target: &Explained, width: u16) -> String {
    let Target { id, ddoc, .. } = &target.target;
    let title = id.parse::<TargetId>().map_or_else(|_| id.clone(), |it| it.title(ddoc.as_deref()));
    let mut lines = Lines::new(format!("{}\n", printable(&title)), INDENT, width);
    lines.add_unwrapped("id", &printable(id));
    add_measurements(target, &mut lines);
    add_decision(target, &mut lines);
    lines.into_text()
}

/// A size within a sentence.
fn size_or_unknown(size: Option<u64>) -> String {
    size.map_or_else(|| "unknown".to_owned(), |size| bytes(Some(size)))
}

/// Adds the target's identity and its measurements.
fn add_measurements(explained: &Explained, lines: &mut Lines) {
    let target = &explained.target;
    if let Some(name) = word(&target.name) {
        match word(&target.engine) {
            Some(engine) => lines.add("index", &format!("{name}, of {engine}")),
            None => lines.add_unwrapped("shard", &name),
        }
    }
    let designs: Vec<String> = target.ddocs.iter().map(|design| printable(design)).collect();
    if !designs.is_empty() {
        lines.add("documents", &designs.join(", "));
    }
    lines.add("state", &printable(&target.state));
    if target.kind != "cleanup" {
        let copies = match target.copies {
            1 => String::new(),
            copies if target.estimated => format!(" in {copies} files, estimated"),
            copies => format!(" in {copies} files"),
        };
        lines.add("on disk", &format!("{}{copies}", size_or_unknown(target.file_bytes)));
    }
    // A search index is never compacted.
    if !matches!(&*target.kind, "cleanup" | "search") {
        let ratio = target.ratio.map(|ratio| format!(" (the file is {ratio:.2} times as large)"));
        let active = size_or_unknown(target.active_bytes);
        lines.add("active", &format!("{active}{}", ratio.unwrap_or_default()));
        let confidence = match &*target.confidence {
            "learned" => "learned from earlier compactions".to_owned(),
            "xray" => explained.xray.as_ref().map_or_else(String::new, looked_into),
            other => printable(other),
        };
        let leaves = target.predicted_bytes.map(|predicted| {
            let leaves = bytes(Some(predicted));
            let how = if target.confidence == "xray" { "" } else { "confidence " };
            format!(": a compaction would leave {leaves} ({how}{confidence})")
        });
        let frees = size_or_unknown(target.reclaimable_bytes);
        let by_sizes = explained.reclaimable_by_sizes.map(|sizes| {
            format!(
                "; by its sizes alone {}, if nothing writes to it meanwhile",
                bytes(Some(sizes))
            )
        });
        let (leaves, by_sizes) = (leaves.unwrap_or_default(), by_sizes.unwrap_or_default());
        lines.add("reclaimable", &format!("{frees}{leaves}{by_sizes}"));
    }
    if let Some(behind) = target.updates_pending.filter(|behind| *behind > 0) {
        let changes = counted(behind, "change", "changes");
        lines.add("behind", &format!("at least {changes} that it has not indexed"));
    }
    if let Some(rent) = &target.rent {
        lines.add("rent", &printable(&rent.says()));
    }
    if let Some(problem) = &target.problem {
        lines.add("problem", &printable(&problem.says));
    }
    let at = word(&target.measured_at).unwrap_or_else(|| "never".to_owned());
    let followed = explained.fresh.as_deref() == Some("followed");
    lines.add(
        "measured",
        &if followed { format!("{at}; no feed has reported a change since") } else { at },
    );
}

/// Which X-ray a prediction comes from.
fn looked_into(xray: &InsideLine) -> String {
    let within = match xray.error_bytes {
        0 => String::new(),
        error => format!(", within {}", bytes(Some(error))),
    };
    format!("from looking inside the file at {}{within}", printable(&xray.measured_at))
}

/// The target's priority in its channel, with the unit.
fn priority(Explained { target, scores, .. }: &Explained) -> String {
    let is_own = |channel: &str| Some(channel) == target.channel.as_deref();
    let in_bytes = scores.iter().any(|score| score.in_bytes && is_own(&score.channel));
    match target.priority {
        Some(priority) if in_bytes => bytes(Some(to_bytes(priority))),
        other => in_digits(other),
    }
}

/// Adds the decision and its reasons.
fn add_decision(explained: &Explained, lines: &mut Lines) {
    let Explained { target, start, ordered, .. } = explained;
    if let Some(view) = word(&explained.part_of) {
        lines.add_unwrapped("part of", &view);
        lines.add("decision", "see that view: CouchDB compacts the whole view at once");
        return;
    }
    let reason = target.refusal.as_ref().map(|refusal| printable(&refusal.reason));
    let why = match (reason, word(&explained.why)) {
        (Some(reason), Some(why)) => {
            let words = RefusalReason::words_of(&reason);
            Some(if why.starts_with(&words) { why } else { format!("{words}: {why}") })
        }
        (Some(reason), None) => {
            let meaning = RefusalReason::from_label(&reason).map(RefusalReason::meaning);
            let meaning = meaning.map_or_else(String::new, |meaning| format!(": {meaning}"));
            Some(format!("{}{meaning}", RefusalReason::words_of(&reason)))
        }
        (None, _) => None,
    };
    match (word(&target.channel), why) {
        (Some(channel), why) => {
            lines.add("channel", &format!("{channel}, priority {}", priority(explained)));
            lines.add("decision", &why.unwrap_or_else(|| "would start now".to_owned()));
        }
        (None, Some(why)) => lines.add("decision", &why),
        (None, None) if start.is_some() => lines.add("decision", "would start now"),
        (None, None) if target.kind == "search" => {
            lines.add("decision", "none: Lucene merges a search index's files by itself");
        }
        (None, None) if target.state == "orphan" => {
            lines.add(
                "decision",
                "none: the shard map does not have the file, so CouchDB does not use it",
            );
        }
        (None, None) => lines.add("decision", "not a candidate: no channel takes it"),
    }
    let since = target.refusal.as_ref().and_then(|refusal| word(&refusal.since));
    if let Some(since) = since {
        lines.add("since", &since);
    }
    if let Some(OrderLine { by, since, until, force, .. }) = ordered {
        let force = if *force { ", by force" } else { "" };
        let [by, since, until] = [by, since, until].map(|text| printable(text));
        lines.add("ordered", &format!("by {by} at {since}{force}; it waits until {until} at most"));
    }
    for (says, head) in explained.advice.iter().zip(once("advice").chain(repeat(""))) {
        lines.add(head, &printable(says));
    }
    let request = start.as_ref().map(|start| pasted(&start.request, start.url.as_deref()));
    let request = request.or_else(|| Some(pasted(ordered.as_ref()?.request.as_ref()?, None)));
    if let Some(request) = request {
        lines.add_unwrapped("request", &request);
    }
    let heads = once(if target.channel.is_some() { "not taken" } else { "channels" });
    for (miss, head) in misses(target).zip(heads.chain(repeat(""))) {
        lines.add(head, &format!("{}: {}", printable(&miss.channel), printable(&miss.says())));
    }
}

fn in_digits(value: Option<f64>) -> String {
    match value {
        None => "?".to_owned(),
        Some(value) if value.fract() == 0.0 => format!("{value}"),
        Some(value) => three_digits(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::report::RefusalLine;

    const VIEW: &str = "view:_cluster/telemetry.1795237693/0f045e3b41d71d93aaa32f23021ba536";

    fn lines() -> Vec<MissLine> {
        let line = |channel: &'static str, reason: &'static str, value, limit, unit| MissLine {
            channel: channel.into(),
            priority: channel.split('_').next().unwrap_or_default().into(),
            reason: reason.into(),
            value,
            limit,
            unit: Option::map(unit, |unit: &'static str| unit.into()),
        };
        let lean = "below_min_priority";
        let slack = Some(536_870_912.0);
        vec![
            line("ratio_dbs", lean, Some(1.154), Some(2.0), Some("ratio")),
            line("slack_dbs", lean, Some(1_618_187.0), slack, Some("bytes")),
            line("ratio_views", "not_this_kind", None, None, None),
        ]
    }

    fn shard(node: u8, range: &str, reclaimable: u64) -> Explained {
        let name = format!("shards/{range}/telemetry.1795237693");
        let node = format!("couchdb@sim-{node}.local");
        let mut target = Target {
            id: format!("db:{node}/{}", name.replace('/', "%2F")),
            kind: "db".into(),
            node,
            db: "telemetry".into(),
            range: Some(range.into()),
            name: Some(name),
            state: "ok".into(),
            copies: 1,
            file_bytes: Some(60 << 30),
            active_bytes: Some(30 << 30),
            ratio: Some(2.0),
            predicted_bytes: Some(30 << 30),
            reclaimable_bytes: Some(reclaimable),
            confidence: "high".into(),
            measured_at: Some("2026-11-22T18:54:09Z".into()),
            misses: lines(),
            ..Target::default()
        };
        let mut why = None;
        if reclaimable > 10 << 30 {
            target.channel = Some("ratio_dbs".into());
            target.refusal = Some(RefusalLine {
                reason: "would_not_fit_window".into(),
                class: "not_before".into(),
                value: Some(3.0),
                limit: Some(2.0),
                since: Some("2026-11-22T18:00:00Z".into()),
            });
            why = Some("it would take 3h 20m at the rate that was measured, and the window of ratio_dbs closes in 2h; a longer window or strict_window: false would let it start".into());
        }
        Explained { target, why, ..Explained::default() }
    }

    fn database() -> Vec<Explained> {
        let ranges = ["00000000-3fffffff", "40000000-7fffffff", "80000000-bfffffff"];
        let copies = ranges.iter().flat_map(|range| (1..=3).map(move |node| (*range, node)));
        let shards =
            copies.enumerate().map(|(at, (range, node))| shard(node, range, (at as u64 + 6) << 30));
        let mut targets: Vec<Explained> = shards.collect();
        let mut view = shard(1, "00000000-3fffffff", 40 << 30);
        view.target = Target {
            id: VIEW.into(),
            kind: "view".into(),
            node: "_cluster".into(),
            range: None,
            name: None,
            ddoc: Some("_design/daily".into()),
            copies: 9,
            channel: Some("ratio_views".into()),
            ..view.target
        };
        targets.push(view);
        for node in 1..=3 {
            let mut part = shard(node, "00000000-3fffffff", 1 << 30);
            part.target.kind = "view".into();
            part.part_of = Some(VIEW.into());
            targets.push(part);
        }
        let refusal = RefusalLine {
            reason: "no_evidence".into(),
            class: "never".into(),
            value: None,
            limit: None,
            since: None,
        };
        let target = Target {
            id: "cleanup:telemetry".into(),
            kind: "cleanup".into(),
            node: "_cluster".into(),
            db: "telemetry".into(),
            state: "ok".into(),
            refusal: Some(refusal),
            ..Target::default()
        };
        let why = Some("nothing says that it has stale index files".into());
        targets.push(Explained { target, why, ..Explained::default() });
        targets
    }

    /// Whether people copy this line, so that it may be longer than the terminal.
    fn is_copied(line: &str) -> bool {
        line.starts_with("  id ") || line.starts_with("  shard")
    }

    #[test]
    fn database_shows_summary_table_and_worst_copy() {
        for width in [80, 160] {
            let text = explained("telemetry", &database(), None, false, width);
            let wide = |line: &&str| line.chars().count() > width.into() && !is_copied(line);
            assert_eq!(text.lines().find(wide), None, "{text}");
            let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                joined.starts_with("telemetry: 9 shard copies, 1 view and 1 index cleanup; 600.0 GiB on disk, 130.0 GiB reclaimable. 5 are queued and 6 are not candidates. RANGE OR VIEW"),
                "{text}"
            );
            // The view's row includes its parts.
            let table = text.split("Most reclaimable").next().unwrap();
            assert_eq!(table.lines().filter(|line| line.contains("_design/daily")).count(), 1);
            assert_eq!(text.lines().filter(|line| line.starts_with("  reclaimable")).count(), 1);
            let row = text.lines().find(|line| line.contains("00-3f") && line.contains("sim-1"));
            assert!(
                row.is_some_and(|row| row.trim_end().ends_with("none: little waste")),
                "{text}"
            );
            let rows = |what: &str| text.lines().position(|line| line.contains(what));
            assert!(rows("_design/daily") < rows("80-bf"), "the most reclaimable first: {text}");
            assert!(text.contains("--all"), "{text}");
        }
    }

    #[test]
    fn single_target_or_all_option_shows_full_details() {
        let text = explained("telemetry", &database(), None, true, 80);
        assert_eq!(text.lines().filter(|line| line.starts_with("  reclaimable")).count(), 13);
        let part = explained("x", &database()[10..11], None, false, 80);
        assert!(part.contains(&format!("  part of     {VIEW}\n  decision    see that view")));
        assert!(!part.contains("excluded"), "{part}");
        let lean = explained("x", &[shard(1, "00000000-3fffffff", 6 << 30)], None, false, 80);
        for line in [
            "  channels    ratio_dbs: ratio is 1.15; the threshold is 2",
            "              slack_dbs: slack is 1.5 MiB; the threshold is 512 MiB",
        ] {
            assert!(lean.lines().any(|it| it == line), "{lean}");
        }
        let waits = explained("x", &[shard(1, "00000000-3fffffff", 20 << 30)], None, false, 80);
        assert!(waits.contains("  decision    not before: longer window: it would take 3h"));
        assert!(waits.lines().all(|it| it.chars().count() <= 80 || is_copied(it)), "{waits}");
    }
}
