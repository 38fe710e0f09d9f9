//! Why targets are or are not candidates, from their JSON, whoever made that: of one everything, of
//! several a sentence, a table, and everything about the one with most to reclaim.

use super::{
    super::printable,
    layout::{Grid, Lines, WIDE, bytes, paragraph, short_among, short_range},
};
use crate::{
    plan::RefusalReason,
    serve::report::{self, MissLine},
};
use serde::Deserialize as _;
use serde_json::Value;
use std::{cmp::Reverse, collections::BTreeSet};

/// Columns before what is said.
const INDENT: usize = 14;

/// Rows of the table.
const ROWS: usize = 25;

/// What was asked for, as it is told.
pub(in crate::cli) fn explained(asked: &str, targets: &[Value], all: bool, width: u16) -> String {
    match targets {
        [_, _, ..] if !all => summary(asked, targets, width),
        _ => {
            let blocks: Vec<String> = targets.iter().map(|target| whole(target, width)).collect();
            blocks.join("\n")
        }
    }
}

/// A sentence, a table, and the one with most to reclaim.
fn summary(asked: &str, targets: &[Value], width: u16) -> String {
    let mut rows: Vec<&Value> = targets.iter().filter(|it| !in_another_row(it)).collect();
    rows.sort_by_key(|target| Reverse(target["reclaimable_bytes"].as_u64()));
    let mut text = paragraph(&sentence(asked, &rows), width);
    text.push('\n');
    text.push_str(&if width < WIDE { narrow(&rows, width) } else { wide(&rows, width) });
    if let Some(more) = rows.len().checked_sub(ROWS).filter(|more| *more > 0) {
        text.push_str(&format!("and {more} more\n"));
    }
    if let Some(worst) = rows.first() {
        text.push_str(&format!("\nMost reclaimable:\n\n{}", whole(worst, width)));
    }
    text.push_str("\nWith --all, every one of them like this.\n");
    text
}

/// Whether it is a part of a view whose row says more.
fn in_another_row(target: &Value) -> bool {
    target["part_of"].is_string()
}

/// What all of it is, and how it is decided.
fn sentence(asked: &str, rows: &[&Value]) -> String {
    let count = |wanted: &dyn Fn(&Value) -> bool| rows.iter().filter(|it| wanted(it)).count();
    let of_kind = |kind: &'static str| count(&|it: &Value| it["kind"] == kind);
    let kinds = [
        (of_kind("db"), "shard copy", "shard copies"),
        (of_kind("view"), "view", "views"),
        (of_kind("search"), "search index", "search indexes"),
        (of_kind("cleanup"), "index cleanup", "index cleanups"),
    ];
    let kinds = kinds.into_iter().filter(|(count, ..)| *count > 0);
    let kinds: Vec<String> = kinds.map(|(count, one, many)| counted(count, one, many)).collect();
    let sum = |name: &str| {
        let known = rows.iter().filter(|it| it["kind"] != "cleanup");
        bytes(Some(known.filter_map(|it| it[name].as_u64()).sum()))
    };
    let starts = count(&|it| it["start"].is_object());
    let waits = count(&|it| !it["start"].is_object() && it["channel"].is_string());
    let others = rows.len() - starts - waits;
    let decided = [
        (starts, "would start now", "would start now"),
        (waits, "waits", "wait"),
        (others, "is not a candidate", "are not candidates"),
    ];
    let decided = decided.into_iter().filter(|(count, ..)| *count > 0);
    let decided: Vec<String> =
        decided.map(|(count, one, many)| counted(count, one, many)).collect();
    format!(
        "{}: {}; {} on disk, {} reclaimable. {}.",
        printable(asked),
        joined(&kinds),
        sum("file_bytes"),
        sum("reclaimable_bytes"),
        joined(&decided)
    )
}

fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// `a, b and c`.
fn joined(parts: &[String]) -> String {
    match parts {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => parts.concat(),
    }
}

fn narrow(rows: &[&Value], width: u16) -> String {
    let mut table =
        Grid::new(["target", "on disk", "ratio", "reclaimable", "decision"], &[1, 2, 3]);
    let nodes = nodes(rows);
    for target in rows.iter().take(ROWS) {
        let [what, place] = what_and_where(target, &nodes);
        let what = format!("{what} {place}").trim().to_owned();
        table.push([
            what,
            size(target, "file_bytes"),
            ratio(target),
            size(target, "reclaimable_bytes"),
            decision(target),
        ]);
    }
    table.wrapped(width)
}

fn wide(rows: &[&Value], width: u16) -> String {
    let head =
        ["target", "where", "on disk", "active", "ratio", "reclaimable", "channel", "decision"];
    let mut table = Grid::new(head, &[2, 3, 4, 5]);
    let nodes = nodes(rows);
    for target in rows.iter().take(ROWS) {
        let [what, place] = what_and_where(target, &nodes);
        table.push([
            what,
            place,
            size(target, "file_bytes"),
            size(target, "active_bytes"),
            ratio(target),
            size(target, "reclaimable_bytes"),
            word(target, "channel").unwrap_or_else(|| "none".to_owned()),
            decision(target),
        ]);
    }
    table.wrapped(width)
}

fn nodes(rows: &[&Value]) -> BTreeSet<String> {
    let nodes = rows.iter().filter(|it| it["kind"] == "db" || it["range"].is_string());
    nodes.filter_map(|it| it["node"].as_str()).map(ToOwned::to_owned).collect()
}

/// What a target is called beside the others of its database, and where it is.
fn what_and_where(target: &Value, nodes: &BTreeSet<String>) -> [String; 2] {
    let node = word(target, "node").unwrap_or_default();
    let node = short_among(&node, || nodes.iter().map(String::as_str));
    let range = target["range"].as_str().map(short_range);
    let copies = match target["copies"].as_u64() {
        Some(1) | None => "1 copy".to_owned(),
        Some(copies) => format!("{copies} copies"),
    };
    let design = word(target, "ddoc").or_else(|| word(target, "signature")).unwrap_or_default();
    match target["kind"].as_str() {
        Some("cleanup") => ["stale index files".to_owned(), String::new()],
        Some("search") => {
            [format!("{design}/{}", word(target, "name").unwrap_or_default()), copies]
        }
        Some("view") if range.is_none() => [design, copies],
        Some("view") => [design, format!("{} {node}", range.unwrap_or_default())],
        // The files of node-local databases have no range.
        _ => [range.unwrap_or_else(|| word(target, "db").unwrap_or_default()), node.to_owned()],
    }
}

fn size(target: &Value, name: &str) -> String {
    match target["kind"].as_str() {
        Some("cleanup") if !target[name].is_u64() => String::new(),
        Some("search") if name != "file_bytes" => String::new(),
        _ => bytes(target[name].as_u64()),
    }
}

fn ratio(target: &Value) -> String {
    target["ratio"].as_f64().map_or_else(String::new, |ratio| format!("{ratio:.2}"))
}

/// What is decided, in a few words.
fn decision(target: &Value) -> String {
    let state = target["state"].as_str().filter(|state| !matches!(*state, "ok" | "resharding"));
    if target["start"].is_object() {
        "would start".to_owned()
    } else if let Some(reason) = word(&target["refusal"], "reason") {
        reason.replace('_', " ")
    } else if let Some(state) = state {
        printable(state)
    } else if target["kind"] == "search" {
        "never compacted".to_owned()
    } else {
        match report::not_taken(&misses(target)) {
            Some(why) => format!("no channel: {why}"),
            None => "no channel".to_owned(),
        }
    }
}

/// The misses of the channels that are for its kind.
fn misses(target: &Value) -> Vec<MissLine> {
    let misses = target["misses"].as_array().into_iter().flatten();
    let misses = misses.filter_map(|miss| MissLine::deserialize(miss).ok());
    misses.filter(|miss| miss.reason != "not_this_kind").collect()
}

fn word(of: &Value, name: &str) -> Option<String> {
    of[name].as_str().map(printable)
}

/// Everything about one target.
fn whole(target: &Value, width: u16) -> String {
    let id = word(target, "id").unwrap_or_default();
    let mut lines = Lines::new(format!("{id}\n"), INDENT, width);
    measured(target, &mut lines);
    decided(target, &mut lines);
    lines.into_text()
}

/// A size in a sentence.
fn known(size: Option<u64>) -> String {
    size.map_or_else(|| "unknown".to_owned(), |size| bytes(Some(size)))
}

/// What it is, and what was measured of it.
fn measured(target: &Value, lines: &mut Lines) {
    if let Some(name) = word(target, "name") {
        match word(target, "engine") {
            Some(engine) => lines.say("index", &format!("{name}, of {engine}")),
            None => lines.say_whole("shard", &name),
        }
    }
    let designs = target["ddocs"].as_array().into_iter().flatten();
    let designs: Vec<String> = designs.filter_map(Value::as_str).map(printable).collect();
    if !designs.is_empty() {
        lines.say("documents", &designs.join(", "));
    }
    lines.say("state", &word(target, "state").unwrap_or_default());
    let number = |name: &str| target[name].as_u64();
    if target["kind"] != "cleanup" {
        let copies = match number("copies").unwrap_or(1) {
            1 => String::new(),
            copies if target["estimated"] == true => format!(" in {copies} copies, estimated"),
            copies => format!(" in {copies} copies"),
        };
        lines.say("on disk", &format!("{}{copies}", known(number("file_bytes"))));
    }
    // Of a search index there is nothing to compact.
    if !matches!(target["kind"].as_str(), Some("cleanup" | "search")) {
        let ratio = target["ratio"].as_f64();
        let ratio = ratio.map(|ratio| format!(", the file is {ratio:.2} times that"));
        let active = known(number("active_bytes"));
        lines.say("active", &format!("{active}{}", ratio.unwrap_or_default()));
        let confidence = word(target, "confidence").unwrap_or_default();
        let leaves = number("predicted_bytes").map(|predicted| {
            let leaves = bytes(Some(predicted));
            format!(": a compaction would leave {leaves} (confidence {confidence})")
        });
        let frees = known(number("reclaimable_bytes"));
        lines.say("reclaimable", &format!("{frees}{}", leaves.unwrap_or_default()));
    }
    if let Some(problem) = word(&target["problem"], "says") {
        lines.say("problem", &problem);
    }
    let at = word(target, "measured_at").unwrap_or_else(|| "never".to_owned());
    let followed = target["fresh"] == "followed";
    lines.say("measured", &if followed { format!("{at}; no feed has named it since") } else { at });
}

/// What is decided about it, and why.
fn decided(target: &Value, lines: &mut Lines) {
    if let Some(view) = word(target, "part_of") {
        lines.say_whole("part of", &view);
        lines.say("decision", "made for that view: CouchDB compacts all its copies at once");
        return;
    }
    let reason = word(&target["refusal"], "reason");
    let why = match (reason, word(target, "why")) {
        (Some(reason), Some(why)) => Some(format!("{}: {why}", reason.replace('_', " "))),
        (Some(reason), None) => {
            let meaning = RefusalReason::from_label(&reason).map(RefusalReason::meaning);
            let meaning = meaning.map_or_else(String::new, |meaning| format!(": {meaning}"));
            Some(format!("{}{meaning}", reason.replace('_', " ")))
        }
        (None, _) => None,
    };
    match (word(target, "channel"), why) {
        (Some(channel), why) => {
            lines.say("channel", &format!("{channel}, priority {}", number(&target["priority"])));
            lines.say("decision", &why.unwrap_or_else(|| "would start now".to_owned()));
        }
        (None, Some(why)) => lines.say("decision", &why),
        (None, None) if target["start"].is_object() => lines.say("decision", "would start now"),
        (None, None) if target["kind"] == "search" => {
            lines.say("decision", "none: Lucene merges a search index's files by itself");
        }
        (None, None) => lines.say("decision", "not a candidate: no channel takes it"),
    }
    if let Some(since) = word(&target["refusal"], "since") {
        lines.say("since", &since);
    }
    let ordered = &target["ordered"];
    if ordered.is_object() {
        let of = |name: &str| word(ordered, name).unwrap_or_default();
        let force = if ordered["force"] == true { ", by force" } else { "" };
        let (by, since, until) = (of("by"), of("since"), of("until"));
        lines.say("ordered", &format!("by {by} at {since}{force}; it waits until {until} at most"));
    }
    let request = word(&target["start"], "request").or_else(|| word(ordered, "request"));
    if let Some(request) = request {
        lines.say_whole("request", &request);
    }
    let misses = misses(target);
    let heads =
        std::iter::once(if target["channel"].is_string() { "not taken" } else { "channels" });
    for (miss, head) in misses.iter().zip(heads.chain(std::iter::repeat(""))) {
        lines.say(head, &format!("{}: {}", printable(&miss.channel), printable(&miss.says())));
    }
}

fn number(value: &Value) -> String {
    match value.as_f64() {
        None => "?".to_owned(),
        Some(value) if value.fract() == 0.0 => format!("{value}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const VIEW: &str = "view:_cluster/telemetry.1795237693/0f045e3b41d71d93aaa32f23021ba536";

    fn misses() -> Value {
        json!([
            {"channel": "ratio_dbs", "reason": "below_min_priority", "value": 1.154, "limit": 2.0,
             "unit": "ratio"},
            {"channel": "slack_dbs", "reason": "below_min_priority", "value": 1_618_187.0,
             "limit": 536_870_912.0, "unit": "bytes"},
            {"channel": "ratio_views", "reason": "not_this_kind", "value": null, "limit": null,
             "unit": null},
        ])
    }

    fn shard(node: u8, range: &str, reclaimable: u64) -> Value {
        let name = format!("shards/{range}/telemetry.1795237693");
        let node = format!("couchdb@sim-{node}.local");
        let mut target = json!({
            "id": format!("db:{node}/{}", name.replace('/', "%2F")), "kind": "db", "node": node,
            "db": "telemetry", "range": range, "name": name, "ddocs": [], "state": "ok",
            "copies": 1, "file_bytes": 60_u64 << 30, "active_bytes": 30_u64 << 30, "ratio": 2.0,
            "predicted_bytes": 30_u64 << 30, "reclaimable_bytes": reclaimable,
            "confidence": "high", "measured_at": "2026-11-22T18:54:09Z", "channel": null,
            "misses": misses(),
        });
        if reclaimable > 10 << 30 {
            target["channel"] = "ratio_dbs".into();
            target["refusal"] = json!({
                "reason": "would_not_fit_window", "value": 3.0, "limit": 2.0,
                "since": "2026-11-22T18:00:00Z",
            });
            target["why"] = "it would take 3h 20m at the rate that was measured, and the window of ratio_dbs closes in 2h; a longer window or strict_window: false would let it start".into();
        }
        target
    }

    fn database() -> Vec<Value> {
        let ranges = ["00000000-3fffffff", "40000000-7fffffff", "80000000-bfffffff"];
        let copies = ranges.iter().flat_map(|range| (1..=3).map(move |node| (*range, node)));
        let shards =
            copies.enumerate().map(|(at, (range, node))| shard(node, range, (at as u64 + 6) << 30));
        let mut targets: Vec<Value> = shards.collect();
        let mut view = shard(1, "00000000-3fffffff", 40 << 30);
        for (name, value) in [
            ("id", json!(VIEW)),
            ("kind", json!("view")),
            ("node", json!("_cluster")),
            ("range", Value::Null),
            ("name", Value::Null),
            ("ddoc", json!("_design/daily")),
            ("copies", json!(9)),
            ("channel", json!("ratio_views")),
        ] {
            view[name] = value;
        }
        targets.push(view);
        for node in 1..=3 {
            let mut part = shard(node, "00000000-3fffffff", 1 << 30);
            part["kind"] = "view".into();
            part["part_of"] = VIEW.into();
            targets.push(part);
        }
        targets.push(json!({
            "id": "cleanup:telemetry", "kind": "cleanup", "node": "_cluster", "db": "telemetry",
            "state": "ok", "ddocs": [], "misses": [], "channel": null,
            "refusal": {"reason": "no_evidence", "value": null, "limit": null, "since": null},
            "why": "nothing says that it has stale index files",
        }));
        targets
    }

    /// Lines that may be longer than the terminal: what is to be copied.
    fn is_copied(line: &str) -> bool {
        line.starts_with("db:") || line.starts_with("view:") || line.starts_with("  shard")
    }

    #[test]
    fn a_database_is_a_sentence_a_table_and_the_worst_copy() {
        for width in [80, 160] {
            let text = explained("telemetry", &database(), false, width);
            let wide = |line: &&str| line.chars().count() > width.into() && !is_copied(line);
            assert_eq!(text.lines().find(wide), None, "{text}");
            let joined = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(
                joined.starts_with("telemetry: 9 shard copies, 1 view and 1 index cleanup; 600.0 GiB on disk, 130.0 GiB reclaimable. 5 wait and 6 are not candidates. TARGET"),
                "{text}"
            );
            // The parts of the view are in its row.
            assert_eq!(text.lines().filter(|line| line.contains("_design/daily")).count(), 1);
            assert_eq!(text.lines().filter(|line| line.starts_with("  reclaimable")).count(), 1);
            let row = text.lines().find(|line| line.contains("00-3f") && line.contains("sim-1"));
            assert!(row.is_some_and(|row| row.trim_end().ends_with("no channel: lean")), "{text}");
            let rows = |what: &str| text.lines().position(|line| line.contains(what));
            assert!(rows("_design/daily") < rows("80-bf"), "the most reclaimable first: {text}");
            assert!(text.contains("--all"), "{text}");
        }
    }

    #[test]
    fn one_target_or_all_of_them_are_told_whole() {
        let text = explained("telemetry", &database(), true, 80);
        assert_eq!(text.lines().filter(|line| line.starts_with("  reclaimable")).count(), 13);
        let part = explained("x", &database()[10..11], false, 80);
        assert!(part.contains(&format!("  part of     {VIEW}\n  decision    made for that view")));
        assert!(!part.contains("excluded"), "{part}");
        let lean = explained("x", &[shard(1, "00000000-3fffffff", 6 << 30)], false, 80);
        for line in [
            "  channels    ratio_dbs: the ratio is 1.15, it takes more than 2",
            "              slack_dbs: the slack is 1.5 MiB, it takes more than 512 MiB",
        ] {
            assert!(lean.lines().any(|it| it == line), "{lean}");
        }
        let waits = explained("x", &[shard(1, "00000000-3fffffff", 20 << 30)], false, 80);
        assert!(waits.contains("  decision    would not fit window: it would take 3h 20m at"));
        assert!(waits.lines().all(|it| it.chars().count() <= 80 || is_copied(it)), "{waits}");
    }
}
