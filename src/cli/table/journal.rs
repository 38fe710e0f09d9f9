//! Tables of what a running recliner remembers, from its JSON.

use super::{bytes, lines, printable, table};
use crate::target::{ShardName, TargetId};
use serde_json::Value;

/// How jobs ended.
pub(in crate::cli) fn outcomes(rows: &[Value], width: u16) -> String {
    if rows.is_empty() {
        return "No job that ended is remembered.\n".to_owned();
    }
    let head = ["ended", "took", "before", "after", "freed", "result", "target"];
    let mut table = table(width, &head, &[2, 3, 4]);
    for row in rows {
        let took = row["duration_seconds"].as_u64().map(std::time::Duration::from_secs);
        let freed = row["freed_bytes"].as_i64().map_or_else(|| "?".to_owned(), signed);
        let by = match row["ordered_by"].as_str() {
            Some(who) => format!("ordered by {}", printable(who)),
            None if row["owner"] == "other" => "by others".to_owned(),
            None => String::new(),
        };
        let result = [text(&row["result"]).replace('_', " "), by, text(&row["why"])];
        table.add_row([
            short(&text(&row["ended_at"])),
            took.map_or_else(String::new, |took| humantime::format_duration(took).to_string()),
            bytes(row["before_bytes"].as_u64()),
            bytes(row["after_bytes"].as_u64()),
            freed,
            result.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" "),
            named(&text(&row["target"]), &text(&row["channel"])),
        ]);
    }
    lines(&table)
}

/// What happened.
pub(in crate::cli) fn events(rows: &[Value], width: u16) -> String {
    if rows.is_empty() {
        return "No event is remembered.\n".to_owned();
    }
    let mut table = table(width, &["seq", "at", "event", "of", "more"], &[0]);
    for row in rows {
        let of = match (
            row["target"].as_str().or_else(|| row["db"].as_str()),
            &row["scope"],
            &row["node"],
        ) {
            (Some(target), ..) => named(target, &text(&row["channel"])),
            (None, scope, _) if scope.is_string() => text(scope),
            (None, _, node) => text(node),
        };
        let more: Vec<String> = row.as_object().into_iter().flatten().filter_map(more).collect();
        table.add_row([
            row["seq"].to_string(),
            short(&text(&row["at"])),
            text(&row["type"]).replace('_', " "),
            of,
            more.join(", "),
        ]);
    }
    lines(&table)
}

/// What a field of an event says beside its other columns; a name tells its node.
fn more((name, value): (&String, &Value)) -> Option<String> {
    let said = text(value);
    match name.as_str() {
        "seq" | "at" | "type" | "target" | "db" | "channel" | "scope" | "node" => None,
        _ if value.is_null() || *value == false => None,
        "owner" => (value == "other").then(|| "by others".to_owned()),
        "ordered_by" => Some(format!("ordered by {said}")),
        "force" => Some("by force".to_owned()),
        "freed_bytes" => Some(format!("{} freed", signed(value.as_i64()?))),
        "failures" => Some(format!("{said} failures")),
        "result" => Some(said.replace('_', " ")),
        "why" => Some(said),
        _ => Some(format!("{} {said}", printable(name))),
    }
}

/// Bytes that came free; fewer than none where a file grew.
fn signed(freed: i64) -> String {
    format!("{}{}", if freed < 0 { "-" } else { "" }, bytes(Some(freed.unsigned_abs())))
}

/// A moment without its year and its zone, which is UTC throughout.
pub(super) fn short(moment: &str) -> String {
    moment.get(5..19).map_or_else(|| moment.to_owned(), |short| short.replace('T', " "))
}

/// A target by what people call it, and the channel that took it; what is no id stays.
fn named(id: &str, channel: &str) -> String {
    let name = match id.parse::<TargetId>() {
        Ok(TargetId::Db { node, shard }) => match ShardName::split(&shard) {
            Some(name) => format!("{} {} on {node}", name.db, name.range),
            None => format!("{shard} on {node}"),
        },
        Ok(TargetId::View { db, signature, .. }) => format!("view {signature} of {db}"),
        Ok(TargetId::Cleanup { db }) => format!("index files of {db}"),
        Err(_) => return id.to_owned(),
    };
    let name = printable(&name);
    if channel.is_empty() { name } else { format!("{name} ({channel})") }
}

/// A value in a cell; nothing where it is unknown.
fn text(value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    value.as_str().map_or_else(|| printable(&value.to_string()), printable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_remembered_reads_as_a_table() {
        let rows = [
            json!({
                "seq": 7, "target": "db:n/a", "kind": "db", "node": "n", "ddoc": null,
                "channel": "ratio_dbs", "owner": "recliner", "started_at": "2026-11-21T00:54:00Z",
                "ended_at": "2026-11-21T00:55:30Z", "duration_seconds": 90,
                "before_bytes": 10 << 20, "after_bytes": 1 << 20, "freed_bytes": 9 << 20,
                "result": "freed", "why": null,
            }),
            json!({
                "ended_at": "2026-11-21T00:55:30Z", "target": "db:n/b\u{1b}[2J", "owner": "other",
                "freed_bytes": -1024, "result": "failed", "why": "no space",
            }),
        ];
        let shown = outcomes(&rows, 200);
        let found: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect())
            .collect();
        assert_eq!(
            found[1],
            [
                "11-21 00:55:30",
                "1m 30s",
                "10.0 MiB",
                "1.0 MiB",
                "9.0 MiB",
                "freed",
                "a on n (ratio_dbs)"
            ]
        );
        assert_eq!(
            found[2],
            [
                "11-21 00:55:30",
                "?",
                "?",
                "-1.0 KiB",
                "failed by others no space",
                "b\\u{1b}[2J on n"
            ]
        );
        let rows = [json!({
            "seq": 3, "at": "2026-11-21T00:54:00Z", "type": "not_started", "target": "db:n/a",
            "node": "n", "why": null,
        })];
        let shown = events(&rows, 200);
        assert!(
            shown.lines().nth(1).unwrap().trim_end().ends_with("not started  a on n"),
            "{shown}"
        );
        let rows = [json!({
            "seq": 4, "at": "2026-11-21T00:54:00Z", "type": "finished", "node": "n",
            "target": "db:n/shards%2F00000000-ffffffff%2Forders.1795222434", "owner": "other",
            "result": "nothing_freed", "freed_bytes": -1024,
        })];
        let says = "orders 00000000-ffffffff on n  -1.0 KiB freed, by others, nothing freed";
        assert!(events(&rows, 200).contains(says), "{}", events(&rows, 200));
        let rows = [json!({
            "seq": 5, "at": "2026-11-21T00:54:00Z", "type": "updated", "db": "orders",
        })];
        assert!(events(&rows, 200).contains("orders"), "{}", events(&rows, 200));
        assert_eq!(events(&[], 200), "No event is remembered.\n");
    }
}
