//! The plan as tables, from its JSON, whoever made that.

use super::{
    super::printable,
    journal::short,
    layout::{Grid, WIDE, bytes, paragraph, short_among, short_range, shortened, wrap},
};
use crate::{act::warmer, plan::RefusalReason, text::duration};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};

/// Rows of the list of indexes.
const ROWS: usize = 25;

/// What would start with its requests, the gates that are closed, and why the rest waits.
pub(in crate::cli) fn planned(plan: &Value, width: u16) -> String {
    let made_at = printable(plan["made_at"].as_str().unwrap_or_default());
    let mode = if enforces(plan) { "enforce" } else { "advise" };
    let where_to = if plan["simulated"] == true { " in the simulated cluster" } else { "" };
    let mut text = format!("planned at {made_at}, mode {mode}{where_to}\n\n");
    for suspension in items(plan, "suspensions") {
        text.push_str(&format!("{}\n\n", word(suspension, "says")));
    }
    text.push_str(&starts(plan, width));
    for part in [orders(plan, width), gates(plan, width), rest(plan, width), builds(plan, width)] {
        if !part.is_empty() {
            text.push_str(&format!("\n{part}"));
        }
    }
    text
}

fn enforces(plan: &Value) -> bool {
    plan["mode"] == "enforce"
}

/// Indexes that lag, and what is or would be done about each.
fn builds(plan: &Value, width: u16) -> String {
    let builds = &plan["builds"];
    let mut table = Grid::new(["index that lags", "behind", "since", "state", "why"], &[1]);
    let (mut requests, mut reasons) = (String::new(), BTreeSet::new());
    for index in items(builds, "indexes").take(ROWS) {
        let starts = index["decision"] == "starts";
        let decision = match (index["decision"].as_str(), builds["acting"] == true) {
            (Some("builds"), _) => "building",
            (Some("starts"), true) => "builds now",
            (Some("starts"), false) => "would build",
            _ => "waits",
        };
        let stalled = if index["stalled_since"].is_string() { "stalled, " } else { "" };
        let design = word(index, "ddoc");
        let name = design.strip_prefix("_design/").unwrap_or(&design);
        // Of a search index, its own name.
        let own = index["name"].as_str().map(|own| format!("/{}", printable(own)));
        let name = format!("{}/{name}{}", word(index, "db"), own.unwrap_or_default());
        let behind = index["updates_pending"].as_u64();
        reasons.extend(index["reason"].as_str().map(ToOwned::to_owned));
        table.push([
            shortened(&name),
            behind.map_or_else(|| "?".to_owned(), |behind| behind.to_string()),
            short(&word(index, "since")),
            decision.to_owned(),
            format!("{stalled}{}", word(index, "reason").replace('_', " ")),
        ]);
        if starts {
            let url = plan["address"].as_str().zip(index["request"].as_str());
            let url = url.and_then(|(at, request)| Some([at, request.split_once(' ')?.1].concat()));
            requests.push_str(&request(plan, index, url.as_deref()));
        }
    }
    if table.is_empty() {
        return String::new();
    }
    let meaning = |reason: &str| warmer::Reason::from_label(reason).map(warmer::Reason::meaning);
    let legend = legend(&reasons, meaning, width);
    let requests = if requests.is_empty() { requests } else { format!("\n{requests}") };
    format!("{}{requests}{legend}", table.wrapped(width))
}

fn items<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

fn word(of: &Value, name: &str) -> String {
    of[name].as_str().map(printable).unwrap_or_default()
}

/// What was ordered and waits, a line each.
fn orders(plan: &Value, width: u16) -> String {
    let waits = items(plan, "orders").filter(|order| order["why"].is_string());
    let line = |order: &Value| {
        let (id, by, until) = (word(order, "id"), word(order, "by"), word(order, "until"));
        let why = word(order, "why");
        paragraph(&format!("ordered by {by}: {id} waits until {until} at most: {why}"), width)
    };
    waits.map(line).collect()
}

fn starts(plan: &Value, width: u16) -> String {
    let starts: Vec<&Value> = items(plan, "starts").collect();
    let would = if enforces(plan) { "" } else { "would " };
    if starts.is_empty() {
        let nothing =
            if enforces(plan) { "Nothing starts now." } else { "Nothing would start now." };
        return format!("{nothing}\n");
    }
    let wide = width >= WIDE;
    let head = if enforces(plan) { "starts now" } else { "would start" };
    let table =
        if wide { started_wide(&starts, head, width) } else { started(&starts, head, width) };
    let gain: u64 = starts.iter().filter_map(|start| start["gain_bytes"].as_u64()).sum();
    let verb = match (enforces(plan), starts.len()) {
        (true, 1) => "starts",
        (true, _) | (false, _) => "start",
    };
    let count = starts.len();
    let mut text =
        format!("{count} {would}{verb} now; {} reclaimable.\n\n{table}\n", bytes(Some(gain)));
    for start in starts {
        text.push_str(&request(plan, start, start["url"].as_str()));
        for said in items(start, "caveats").filter_map(Value::as_str).filter_map(said) {
            text.push_str(&format!("  {said}\n"));
        }
    }
    text
}

/// What starts, in a terminal of eighty columns.
fn started(starts: &[&Value], head: &str, width: u16) -> String {
    let head = [head, "node", "range", "on disk", "reclaimable", "writes", "takes"];
    let mut table = Grid::new(head, &[3, 4, 5, 6]);
    for row in starts.iter().map(|start| row(start, starts)) {
        table.push([row.what, row.node, row.range, row.file, row.gain, row.writes, row.takes]);
    }
    table.one_line_each(width, |most| most * 2 / 3)
}

/// The same with the channel.
fn started_wide(starts: &[&Value], head: &str, width: u16) -> String {
    let head = [head, "node", "range", "channel", "on disk", "reclaimable", "writes", "takes"];
    let mut table = Grid::new(head, &[4, 5, 6, 7]);
    for (start, row) in starts.iter().map(|start| (start, row(start, starts))) {
        let channel = word(start, "channel");
        table.push([
            row.what, row.node, row.range, channel, row.file, row.gain, row.writes, row.takes,
        ]);
    }
    table.one_line_each(width, |most| most * 2 / 3)
}

/// The cells of a start.
struct Row {
    what: String,
    node: String,
    range: String,
    file: String,
    gain: String,
    writes: String,
    takes: String,
}

fn row(start: &Value, all: &[&Value]) -> Row {
    let (db, ddoc) = (word(start, "db"), word(start, "ddoc"));
    let cleans = start["kind"] == "cleanup";
    let sized = |name: &str| if cleans { "-".to_owned() } else { bytes(start[name].as_u64()) };
    let node = word(start, "node");
    let nodes = || all.iter().filter_map(|start| start["node"].as_str());
    Row {
        what: shortened(&if ddoc.is_empty() { db } else { format!("{db}/{ddoc}") }),
        node: if node == "_cluster" {
            "all".to_owned()
        } else {
            short_among(&node, nodes).to_owned()
        },
        range: start["range"].as_str().map_or_else(|| "-".to_owned(), short_range),
        file: sized("file_bytes"),
        gain: sized("gain_bytes"),
        writes: sized("rewrite_bytes"),
        takes: start["duration_seconds"].as_f64().map_or_else(|| "?".to_owned(), span),
    }
}

/// A request in a line: what is sent where recliner sends it, else what can be pasted to send it.
fn request(plan: &Value, of: &Value, url: Option<&str>) -> String {
    let request = word(of, "request");
    let Some((method, path)) = request.split_once(' ').filter(|_| !enforces(plan)) else {
        return format!("{request}\n");
    };
    let url = match url {
        // Nothing in it is an apostrophe: names in it are percent-encoded.
        Some(url) if !url.contains('\'') => format!("'{}'", printable(url)),
        _ => format!("\"$COUCHDB_URL\"'{path}'"),
    };
    let body = match method {
        "GET" => "",
        _ => " -H 'Content-Type: application/json' -d '{}'",
    };
    format!("curl -X {method} -u \"$COUCHDB_USER\"{body} {url}\n")
}

/// What a caveat means; none for what the table shows.
fn said(caveat: &str) -> Option<&'static str> {
    match caveat {
        "unknown_disk" => Some("free space there is unknown"),
        "low_confidence" => Some("active bytes mislead on this server: it may free more"),
        "estimated" => Some("sizes are one copy's, taken for all"),
        "every_copy" => Some("compacts every copy on every node at once"),
        _ => None,
    }
}

fn span(seconds: f64) -> String {
    Duration::try_from_secs_f64(seconds).map_or_else(|_| "?".to_owned(), duration::shown)
}

/// The gates that are closed, a line each with its nodes. Mode and suspensions are said above.
fn gates(plan: &Value, width: u16) -> String {
    let names: BTreeSet<&str> = items(plan, "gates")
        .filter_map(|gate| gate["gate"].as_str())
        .filter(|gate| !["mode", "suspended"].contains(gate))
        .collect();
    let nodes = |name: &str| -> Vec<String> {
        items(plan, "gates")
            .filter(|gate| gate["gate"] == name)
            .map(|gate| word(gate, "node"))
            .collect()
    };
    let line = |name: &&str| {
        let meaning = RefusalReason::from_label(name).map(RefusalReason::meaning);
        let meaning = meaning.map_or_else(String::new, |meaning| format!(" ({meaning})"));
        let nodes = nodes(name).join(", ");
        paragraph(&format!("Gate {} is closed{meaning}: {nodes}", printable(name)), width)
    };
    names.iter().map(line).collect()
}

fn rest(plan: &Value, width: u16) -> String {
    let mut table = Grid::new(["channel", "node", "wait", "why"], &[2]);
    let mut reasons = BTreeSet::new();
    for queue in items(plan, "candidates") {
        for (reason, count) in queue["refused"].as_object().into_iter().flatten() {
            reasons.insert(reason.clone());
            table.push([
                word(queue, "channel"),
                word(queue, "node"),
                count.to_string(),
                printable(&reason.replace('_', " ")),
            ]);
        }
    }
    if table.is_empty() {
        return "Nothing else waits.\n".to_owned();
    }
    let meaning = |reason: &str| RefusalReason::from_label(reason).map(RefusalReason::meaning);
    let legend = legend(&reasons, meaning, width);
    format!("{}{legend}", table.wrapped(width))
}

/// What words in a table mean.
fn legend(
    words: &BTreeSet<String>,
    meaning: impl Fn(&str) -> Option<&'static str>,
    width: u16,
) -> String {
    let mut text = String::new();
    for (word, meaning) in words.iter().filter_map(|word| Some((word, meaning(word)?))) {
        let word = printable(&word.replace('_', " "));
        wrap(&mut text, &format!("  {word}: "), meaning, width.into());
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan(mode: &str) -> Value {
        let request = "POST /_node/couchdb@sim-2.local/shards%2Fa0000000-bfffffff%2Forders%2F2024%2Bx.1795317569/_compact";
        let url = ["http://couch-b:5984", request.split_once(' ').unwrap().1].concat();
        json!({
            "made_at": "2026-11-21T21:34:35Z", "mode": mode, "address": "http://couch-a:5984",
            "starts": [
                {"kind": "db", "node": "couchdb@sim-2.local", "db": "orders/2024+x",
                 "range": "a0000000-bfffffff", "ddoc": null, "channel": "ratio_dbs",
                 "request": request,
                 "url": url,
                 "file_bytes": 93_533_000, "gain_bytes": 80_111_000, "rewrite_bytes": 13_422_000,
                 "duration_seconds": 4_000.0, "caveats": ["unknown_disk"]},
                {"kind": "view", "node": "_cluster", "db": "orders/2024+x", "range": null,
                 "ddoc": "_design/reports", "channel": "ratio_views",
                 "request": "POST /orders%2F2024%2Bx/_compact/reports", "url": null,
                 "file_bytes": 93_533_000, "gain_bytes": 80_111_000, "rewrite_bytes": 13_422_000,
                 "duration_seconds": null, "caveats": ["every_copy"]},
            ],
            "candidates": [{"node": "couchdb@sim-2.local", "channel": "ratio_dbs", "starts": 1,
                            "refused": {"ramp": 3, "futile": 1}}],
            "gates": [{"node": "couchdb@sim-2.local", "gate": "ramp"}],
            "builds": {"acting": mode == "enforce", "indexes": [
                {"db": "orders", "ddoc": "_design/reports", "updates_pending": 7,
                 "decision": "starts", "since": "2026-11-21T21:30:00Z", "reason": null,
                 "request": "GET /orders/_design/reports/_view/x?limit=0&update=lazy"},
                {"db": "carts", "ddoc": "_design/open", "updates_pending": 7,
                 "decision": "builds", "since": "2026-11-21T21:30:00Z", "reason": "grace"},
            ]},
        })
    }

    fn printed(mode: &str, width: u16) -> String {
        let text = planned(&plan(mode), width);
        let sent = |line: &str| ["curl ", "POST ", "GET "].iter().any(|it| line.starts_with(it));
        let long = |line: &&str| line.chars().count() > width.into() && !sent(line);
        assert_eq!(text.lines().find(long), None, "{text}");
        text
    }

    #[test]
    fn advice_says_what_would_start_with_a_line_to_paste() {
        for width in [80, 160] {
            let text = printed("advise", width);
            assert!(text.contains("2 would start now; 152.8 MiB reclaimable."), "{text}");
            assert!(text.contains("\nWOULD START "), "{text}");
            assert!(!text.contains("STARTS NOW") && !text.contains("starts now"), "{text}");
            let row = text.lines().find(|line| line.starts_with("orders/2024+x ")).unwrap();
            for part in ["sim-2.local", "a0-bf", "89.2 MiB", "76.4 MiB", "1h 7m"] {
                assert!(row.contains(part), "{row}");
            }
            for line in [
                "curl -X POST -u \"$COUCHDB_USER\" -H 'Content-Type: application/json' -d '{}' 'http://couch-b:5984/_node/couchdb@sim-2.local/shards%2Fa0000000-bfffffff%2Forders%2F2024%2Bx.1795317569/_compact'",
                "curl -X POST -u \"$COUCHDB_USER\" -H 'Content-Type: application/json' -d '{}' \"$COUCHDB_URL\"'/orders%2F2024%2Bx/_compact/reports'",
                "curl -X GET -u \"$COUCHDB_USER\" 'http://couch-a:5984/orders/_design/reports/_view/x?limit=0&update=lazy'",
            ] {
                assert!(text.lines().any(|it| it == line), "{line}\n{text}");
            }
            assert!(text.contains("would build") && text.contains("building"), "{text}");
            assert!(text.contains("  ramp: starts on a node are spread out in time"), "{text}");
            assert!(text.contains("Gate ramp is closed"), "{text}");
        }
    }

    #[test]
    fn where_recliner_acts_it_says_what_it_sends() {
        let text = printed("enforce", 80);
        assert!(text.contains("2 start now;") && text.contains("\nSTARTS NOW "), "{text}");
        assert!(!text.contains("curl") && !text.to_lowercase().contains("would start"), "{text}");
        let sent = text.lines().filter(|line| line.starts_with("POST ")).count();
        assert_eq!((sent, text.contains("builds now")), (2, true), "{text}");
    }
}
