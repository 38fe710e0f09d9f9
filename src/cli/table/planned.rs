//! The plan as tables, from a service or from a scan.

use super::{
    super::printable,
    layout::{Grid, bytes, paragraph, place, shortened, wrap},
};
use crate::{
    act::warmer,
    plan::RefusalReason,
    serve::report::{BuildLine, OrderLine, Planned, columns::Table, short_time},
    text::{Label, counted},
};
use std::collections::BTreeMap;

/// Maximum number of rows in the list of indexes.
const ROWS: usize = 25;

/// What would start with its requests, the closed gates, and why other targets wait.
pub(in crate::cli) fn planned(plan: &Planned, width: u16) -> String {
    let made_at = printable(&plan.made_at);
    let mode = if enforces(plan) { "enforce" } else { "advise" };
    let where_to = if plan.simulated == Some(true) { " in the simulated cluster" } else { "" };
    let mut text = format!("planned at {made_at}, mode {mode}{where_to}\n\n");
    for suspension in &plan.suspensions {
        text.push_str(&format!("{}\n\n", printable(&suspension.says)));
    }
    text.push_str(&starts(plan, width));
    for part in [orders(plan, width), gates(plan, width), rest(plan, width), builds(plan, width)] {
        if !part.is_empty() {
            text.push_str(&format!("\n{part}"));
        }
    }
    text
}

fn enforces(plan: &Planned) -> bool {
    plan.mode == "enforce"
}

/// Indexes that are behind, and their builds.
fn builds(plan: &Planned, width: u16) -> String {
    let Some(builds) = &plan.builds else { return String::new() };
    let shown = builds.indexes.get(..ROWS).unwrap_or(&builds.indexes);
    if shown.is_empty() {
        return String::new();
    }
    let decision = |index: &BuildLine| match (&*index.decision, builds.acting) {
        ("builds", _) => "building".to_owned(),
        ("starts", true) => "builds now".to_owned(),
        ("starts", false) => "would build".to_owned(),
        _ => "waits".to_owned(),
    };
    let behind = |index: &BuildLine| index.updates_pending.map(|behind| format!("≥ {behind}"));
    let reason = |index: &BuildLine| word(index.reason.as_deref()).replace('_', " ");
    let stalled = |index: &BuildLine| match index.failures {
        0 => index.stalled_since.as_ref().map(|_| "stalled".to_owned()),
        count => Some(format!("failed {}", counted(count.into(), "time", "times"))),
    };
    let why = |index: &BuildLine| {
        let parts = [stalled(index), Some(reason(index))].into_iter().flatten();
        parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let table = Table::of(shown)
        .text("lagging index", index_name)
        .number("behind", |it| behind(it).unwrap_or_else(|| "?".to_owned()))
        .text("since", |it| short_time(&word(it.since.as_deref())))
        .text("state", decision)
        .text("why", why)
        .wrapped(width);
    let starts = shown.iter().filter(|index| index.decision == "starts");
    let requests: String = starts.map(|index| build_request(plan, index)).collect();
    let gap = if requests.is_empty() { "" } else { "\n" };
    let meanings = shown.iter().filter_map(|index| {
        let refusal = warmer::BuildRefusal::from_label(index.reason.as_deref()?)?;
        Some((reason(index), refusal.meaning()))
    });
    format!("{table}{gap}{requests}{}", legend(&meanings.collect(), width))
}

/// An index by its database and design document; a search index also has a name of its own.
fn index_name(index: &BuildLine) -> String {
    let design = printable(&index.ddoc);
    let name = couchdb_names::design_name(&design);
    let own = index.name.as_deref().map(|own| format!("/{}", printable(own)));
    shortened(&format!("{}/{name}{}", printable(&index.db), own.unwrap_or_default()))
}

fn word(word: Option<&str>) -> String {
    word.map(printable).unwrap_or_default()
}

/// The request that starts the index build.
fn build_request(plan: &Planned, index: &BuildLine) -> String {
    let sent = index.request.as_deref().unwrap_or_default();
    let path = sent.split_once(' ').map(|(_, path)| path);
    let url = plan.address.as_deref().zip(path).map(|(at, path)| [at, path].concat());
    request(plan, sent, url.as_deref())
}

/// Waiting orders, one per line.
fn orders(plan: &Planned, width: u16) -> String {
    let line = |order: &OrderLine| {
        let why = printable(order.why.as_deref()?);
        let [id, by, until] = [&order.id, &order.by, &order.until].map(|text| printable(text));
        let line = format!("ordered by {by}: {id} waits until {until} at most: {why}");
        Some(paragraph(&line, width))
    };
    plan.orders.iter().filter_map(line).collect()
}

fn starts(plan: &Planned, width: u16) -> String {
    let starts = &plan.starts;
    let would = if enforces(plan) { "" } else { "would " };
    if starts.is_empty() {
        let nothing =
            if enforces(plan) { "Nothing starts now." } else { "Nothing would start now." };
        return format!("{nothing}\n");
    }
    let table = plan.starts_table(starts.len()).one_line_each(width);
    let gain: u64 = starts.iter().filter_map(|start| start.gain_bytes).sum();
    let count = starts.len();
    let verb = if enforces(plan) && count == 1 { "starts" } else { "start" };
    let mut text =
        format!("{count} {would}{verb} now; {} reclaimable.\n\n{table}\n", bytes(Some(gain)));
    for start in starts {
        text.push_str(&request(plan, &start.request, start.url.as_deref()));
        for caveat_text in start.caveats.iter().filter_map(|caveat| caveat_text(plan, caveat)) {
            text.push_str(&format!("  {caveat_text}\n"));
        }
    }
    text
}

/// A request in one line: as recliner sends it in enforce mode, otherwise as a command to paste.
fn request(plan: &Planned, request: &str, url: Option<&str>) -> String {
    match enforces(plan) {
        true => printable(request) + "\n",
        false => pasted(request, url) + "\n",
    }
}

/// A request as a `curl` command in one line.
pub(super) fn pasted(request: &str, url: Option<&str>) -> String {
    let request = printable(request);
    let Some((method, path)) = request.split_once(' ') else { return request };
    let url = match url {
        // The URL has no apostrophe, because names in it are percent-encoded.
        Some(url) if !url.contains('\'') => format!("'{}'", printable(url)),
        _ => format!("\"$COUCHDB_URL\"'{path}'"),
    };
    let body = match method {
        "GET" => "",
        _ => " -H 'Content-Type: application/json' -d '{}'",
    };
    format!("curl -X {method} -u \"$COUCHDB_USER\"{body} {url}")
}

/// Explains a caveat; `None` if the table itself shows it.
fn caveat_text(plan: &Planned, caveat: &str) -> Option<&'static str> {
    match caveat {
        "unknown_disk" => Some("free space there is unknown"),
        "low_confidence" => Some("this server's active bytes are misleading: it may free more"),
        "estimated" => Some("sizes are estimated from one file"),
        "every_copy" if plan.only_node.is_some() => Some("compacts all files of the view at once"),
        "every_copy" => Some("compacts every copy on every node at once"),
        _ => None,
    }
}

/// The closed gates with their nodes, one per line. Mode and suspensions are printed above.
fn gates(plan: &Planned, width: u16) -> String {
    let mut closed: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for gate in plan.gates_of_nodes().filter(|gate| !["mode", "suspended"].contains(&&*gate.gate)) {
        let node = place(&gate.node, plan.only_node.as_deref());
        let meaning = || RefusalReason::from_label(&gate.gate).map(|it| it.meaning().to_owned());
        // Where a gate compares no numbers, its sentence is the same on every node, and says more.
        let says = gate.says.clone().filter(|_| gate.limit.is_none());
        let says = says.or_else(meaning).map_or_else(String::new, |says| format!(" ({says})"));
        closed.entry((&gate.gate, says)).or_default().push(node);
    }
    let line = |((name, says), nodes): ((&str, String), Vec<String>)| {
        let (name, says, nodes) = (printable(name), printable(&says), nodes.join(", "));
        paragraph(&format!("Gate {name} is closed{says}: {nodes}"), width)
    };
    closed.into_iter().map(line).collect()
}

fn rest(plan: &Planned, width: u16) -> String {
    let mut table = Grid::new(["channel", "node", "wait", "why"], &[2]);
    let mut meanings = BTreeMap::new();
    for queue in &plan.candidates {
        let mut waiting: BTreeMap<String, u64> = BTreeMap::new();
        for (label, count) in &queue.refused {
            let words = RefusalReason::words_of(label);
            *waiting.entry(words).or_default() += count;
            let class = RefusalReason::from_label(label).map(RefusalReason::class);
            meanings.extend(class.map(|class| (class.words(), class.meaning())));
        }
        for (words, count) in waiting {
            let (channel, node) =
                (printable(&queue.channel), place(&queue.node, plan.only_node.as_deref()));
            table.push([channel, node, count.to_string(), printable(&words)]);
        }
    }
    if table.is_empty() {
        return "Nothing else is queued.\n".to_owned();
    }
    format!("{}{}", table.wrapped(width), legend(&meanings, width))
}

/// Explains the words used in a table.
pub(super) fn legend(meanings: &BTreeMap<String, &'static str>, width: u16) -> String {
    let mut text = String::new();
    for (words, meaning) in meanings {
        wrap(&mut text, &format!("  {}: ", printable(words)), meaning, width.into());
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::report::{Builds, CandidatesLine, GateLine, StartLine};

    fn start(node: &str, request: &str) -> StartLine {
        StartLine {
            id: String::new(),
            kind: "db".into(),
            node: node.to_owned(),
            db: "orders/2024+x".to_owned(),
            range: None,
            name: None,
            copies: 1,
            ddoc: None,
            channel: String::new(),
            ordered_by: None,
            priority: None,
            since: None,
            request: request.to_owned(),
            url: None,
            file_bytes: Some(93_533_000),
            gain_bytes: Some(80_111_000),
            caught_up_bytes: 0,
            rewrite_bytes: Some(13_422_000),
            peak_bytes: 0,
            duration_seconds: None,
            confidence: "high".into(),
            caveats: Vec::new(),
        }
    }

    fn index(db: &str, ddoc: &str, decision: &'static str) -> BuildLine {
        BuildLine {
            id: String::new(),
            kind: "view".into(),
            engine: None,
            db: db.to_owned(),
            ddoc: ddoc.to_owned(),
            name: None,
            class: "batch".into(),
            updates_pending: Some(7),
            decision: decision.into(),
            reason: None,
            since: Some("2026-11-21T21:30:00Z".to_owned()),
            stalled_since: None,
            failures: 0,
            request: None,
        }
    }

    fn plan(mode: &'static str) -> Planned {
        let request = "POST /_node/couchdb@sim-2.local/shards%2Fa0000000-bfffffff%2Forders%2F2024%2Bx.1795317569/_compact";
        let url = ["http://couch-b:5984", request.split_once(' ').unwrap().1].concat();
        let shard = StartLine {
            id: "db:couchdb@sim-2.local/shards%2Fa0000000-bfffffff%2Forders%2F2024%2Bx.1795317569"
                .to_owned(),
            range: Some("a0000000-bfffffff".to_owned()),
            channel: "ratio_dbs".to_owned(),
            url: Some(url),
            duration_seconds: Some(4_000.0),
            caveats: vec!["unknown_disk".into()],
            ..start("couchdb@sim-2.local", request)
        };
        let view = StartLine {
            kind: "view".into(),
            ddoc: Some("_design/reports".to_owned()),
            channel: "ratio_views".to_owned(),
            caveats: vec!["every_copy".into()],
            ..start("_cluster", "POST /orders%2F2024%2Bx/_compact/reports")
        };
        let starts = BuildLine {
            request: Some("GET /orders/_design/reports/_view/x?limit=0&update=lazy".to_owned()),
            ..index("orders", "_design/reports", "starts")
        };
        let builds =
            BuildLine { reason: Some("grace".into()), ..index("carts", "_design/open", "builds") };
        Planned {
            generated_at: "2026-11-21T21:34:30Z".to_owned(),
            made_at: "2026-11-21T21:34:35Z".to_owned(),
            mode: mode.into(),
            address: Some("http://couch-a:5984".to_owned()),
            starts: vec![shard, view],
            orders: Vec::new(),
            candidates: vec![CandidatesLine {
                node: "couchdb@sim-2.local".to_owned(),
                channel: "ratio_dbs".to_owned(),
                starts: 1,
                refused: [("ramp".into(), 3), ("futile".into(), 1)].into(),
            }],
            gates: vec![GateLine {
                node: "couchdb@sim-2.local".to_owned(),
                gate: "ramp".into(),
                value: None,
                limit: None,
                since: None,
                says: Some("it is not known yet what runs on the node".to_owned()),
            }],
            suspensions: Vec::new(),
            builds: Some(Builds {
                acting: mode == "enforce",
                indexes: vec![starts, builds],
                ..Builds::default()
            }),
            simulated: Some(false),
            only_node: None,
            unanswered: Vec::new(),
            total: 4,
            offset: 0,
            limit: 0,
            refused: Vec::new(),
        }
    }

    fn printed(mode: &'static str, width: u16) -> String {
        let text = planned(&plan(mode), width);
        let sent = |line: &str| ["curl ", "POST ", "GET "].iter().any(|it| line.starts_with(it));
        let long = |line: &&str| line.chars().count() > width.into() && !sent(line);
        assert_eq!(text.lines().find(long), None, "{text}");
        text
    }

    #[test]
    fn advise_mode_shows_starts_as_curl_commands() {
        for width in [80, 160] {
            let text = printed("advise", width);
            assert!(text.contains("2 would start now; 152.8 MiB reclaimable."), "{text}");
            assert!(text.contains("\nWOULD START "), "{text}");
            assert!(!text.contains("STARTS NOW") && !text.contains("starts now"), "{text}");
            let row = text.lines().find(|line| line.starts_with("orders/2024+x"));
            let row = row.unwrap_or_else(|| panic!("{text}"));
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
            assert!(text.contains("  in line: its turn comes as other jobs end"), "{text}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let unknown = "Gate ramp is closed (it is not known yet what runs on the node): ";
            assert!(words.contains(unknown), "{text}");
        }
    }

    #[test]
    fn enforce_mode_shows_requests_it_sends() {
        let text = printed("enforce", 80);
        assert!(text.contains("2 start now;") && text.contains("\nSTARTS NOW "), "{text}");
        assert!(!text.contains("curl") && !text.to_lowercase().contains("would start"), "{text}");
        let sent = text.lines().filter(|line| line.starts_with("POST ")).count();
        assert_eq!((sent, text.contains("builds now")), (2, true), "{text}");
    }
}
