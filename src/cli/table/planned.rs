//! The plan as tables, from its JSON, whoever made that.

use super::{ROWS, bytes, lines, printable, shortened, table};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};

/// What would start with its requests, the gates that are shut, and why the rest waits.
pub(in crate::cli) fn planned(plan: &Value, width: u16) -> String {
    let made_at = printable(plan["made_at"].as_str().unwrap_or_default());
    let enforces = plan["mode"] == "enforce";
    let mut text =
        format!("planned at {made_at}, mode {}\n\n", if enforces { "enforce" } else { "advise" });
    for suspension in items(plan, "suspensions") {
        text.push_str(&format!("{}\n\n", word(suspension, "says")));
    }
    text.push_str(&starts(plan, width));
    let orders = orders(plan);
    if !orders.is_empty() {
        text.push_str(&format!("\n{orders}"));
    }
    let gates = gates(plan);
    if !gates.is_empty() {
        text.push_str(&format!("\n{gates}"));
    }
    text.push_str(&format!("\n{}", rest(plan, width)));
    let builds = builds(&plan["builds"], width);
    if !builds.is_empty() {
        text.push_str(&format!("\n{builds}"));
    }
    text
}

/// Indexes that lag, and what is or would be done about each.
fn builds(builds: &Value, width: u16) -> String {
    let head = ["index that lags", "behind", "since", "state", "why"];
    let mut table = table(width, &head, &[1]);
    let mut requests = String::new();
    let mut any = false;
    for index in items(builds, "indexes").take(ROWS) {
        any = true;
        let starts = index["decision"] == "starts";
        let decision = match (index["decision"].as_str(), builds["acting"] == true) {
            (Some("builds"), _) => "is built",
            (Some("starts"), true) => "is built now",
            (Some("starts"), false) => "would be built",
            _ => "waits",
        };
        let why = if index["stalled_since"].is_string() { "stalled, " } else { "" };
        let design = word(index, "ddoc");
        let name = design.strip_prefix("_design/").unwrap_or(&design);
        // Of a search index, its own name.
        let own = index["name"].as_str().map(|own| format!("/{}", printable(own)));
        let name = format!("{}/{name}{}", word(index, "db"), own.unwrap_or_default());
        let behind = index["updates_pending"].as_u64();
        table.add_row([
            shortened(&name),
            behind.map_or_else(|| "-".to_owned(), |behind| behind.to_string()),
            super::journal::short(&word(index, "since")),
            decision.to_owned(),
            format!("{why}{}", word(index, "reason").replace('_', " ")),
        ]);
        if starts {
            requests.push_str(&format!("{}\n", word(index, "request")));
        }
    }
    if any { format!("{}{requests}", lines(&table)) } else { String::new() }
}

fn items<'a>(of: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    of[name].as_array().into_iter().flatten()
}

fn word(of: &Value, name: &str) -> String {
    of[name].as_str().map(printable).unwrap_or_default()
}

/// What was ordered and waits, a line each.
fn orders(plan: &Value) -> String {
    let waits = items(plan, "orders").filter(|order| order["why"].is_string());
    let line = |order: &Value| {
        let (id, by, until) = (word(order, "id"), word(order, "by"), word(order, "until"));
        format!("ordered by {by}: {id} waits until {until} at most: {}\n", word(order, "why"))
    };
    waits.map(line).collect()
}

fn starts(plan: &Value, width: u16) -> String {
    let head = ["starts now", "channel", "on disk", "frees", "writes", "takes"];
    let mut table = table(width, &head, &[2, 3, 4, 5]);
    let mut requests = String::new();
    for start in items(plan, "starts") {
        let (db, ddoc) = (word(start, "db"), word(start, "ddoc"));
        let what = if ddoc.is_empty() { db } else { format!("{db}/{ddoc}") };
        let number = |name: &str| bytes(start[name].as_u64());
        let cleans = start["kind"] == "cleanup";
        let sized = |name: &str| if cleans { "-".to_owned() } else { number(name) };
        table.add_row([
            shortened(&what),
            word(start, "channel"),
            sized("file_bytes"),
            sized("gain_bytes"),
            sized("rewrite_bytes"),
            start["duration_seconds"].as_f64().map_or_else(|| "?".to_owned(), span),
        ]);
        requests.push_str(&format!("{}\n", word(start, "request")));
        let caveats: Vec<String> = items(start, "caveats")
            .filter_map(Value::as_str)
            .filter_map(said)
            .map(|said| format!("  {said}\n"))
            .collect();
        requests.push_str(&caveats.concat());
    }
    if requests.is_empty() {
        return "Nothing starts now.\n".to_owned();
    }
    format!("{}\n{requests}", lines(&table))
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
    let rounded = if seconds < 120.0 { seconds.ceil() } else { (seconds / 60.0).ceil() * 60.0 };
    Duration::try_from_secs_f64(rounded)
        .map_or_else(|_| "?".to_owned(), |span| humantime::format_duration(span).to_string())
}

/// The gates that are shut, a line each with its nodes. Mode and suspensions are said above.
fn gates(plan: &Value) -> String {
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
    let lines = names.iter().map(|name| format!("{name} holds {}\n", nodes(name).join(", ")));
    lines.collect()
}

fn rest(plan: &Value, width: u16) -> String {
    let mut table = table(width, &["channel", "node", "wait", "why"], &[2]);
    let mut any = false;
    for queue in items(plan, "candidates") {
        for (reason, count) in queue["refused"].as_object().into_iter().flatten() {
            any = true;
            table.add_row([
                word(queue, "channel"),
                word(queue, "node"),
                count.to_string(),
                printable(&reason.replace('_', " ")),
            ]);
        }
    }
    if any { lines(&table) } else { "Nothing else waits.\n".to_owned() }
}
