//! Tables of what a running recliner remembers, from its JSON.

use super::{
    super::printable,
    layout::{Grid, bytes, short_among, short_range},
};
use crate::{
    model::target::{TargetId, database},
    text::duration,
};
use couchdb_names::ShardName;
use serde_json::Value;
use std::collections::BTreeSet;

/// How jobs ended.
pub(in crate::cli) fn outcomes(rows: &[Value], width: u16) -> String {
    if rows.is_empty() {
        return "No job that ended is remembered.\n".to_owned();
    }
    let mut nodes = Nodes::default();
    nodes.add(rows);
    let head = ["ended", "took", "before", "after", "freed", "result", "target"];
    let mut table = Grid::new(head, &[2, 3, 4]);
    for row in rows {
        let took = row["duration_seconds"].as_u64().map(std::time::Duration::from_secs);
        let freed = row["freed_bytes"].as_i64().map_or_else(|| "?".to_owned(), signed);
        let by = match row["ordered_by"].as_str() {
            Some(who) => format!("ordered by {}", printable(who)),
            None if row["owner"] == "other" => "by others".to_owned(),
            None => String::new(),
        };
        let result = [text(&row["result"]).replace('_', " "), by, text(&row["why"])];
        table.push([
            short(&text(&row["ended_at"])),
            took.map_or_else(String::new, duration::shown),
            bytes(row["before_bytes"].as_u64()),
            bytes(row["after_bytes"].as_u64()),
            freed,
            result.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" "),
            match (nodes.named(&text(&row["target"])), text(&row["channel"])) {
                (name, channel) if channel.is_empty() => name,
                (name, channel) => format!("{name} ({channel})"),
            },
        ]);
    }
    table.wrapped(width)
}

/// What happened, printed in one go or as it comes, in columns that stay where they are.
#[derive(Debug)]
pub(in crate::cli) struct Events {
    width: u16,
    begun: bool,
    nodes: Nodes,
}

impl Events {
    /// The columns, and how many letters each has room for at least.
    const COLUMNS: [(&'static str, usize); 4] =
        [("seq", 5), ("at", 14), ("event", 11), ("what", 0)];

    pub(in crate::cli) fn new(width: u16) -> Self {
        Self { width, begun: false, nodes: Nodes::default() }
    }

    /// Some more of it; the first has the head.
    pub(in crate::cli) fn rows(&mut self, rows: &[Value]) -> String {
        self.nodes.add(rows);
        let mut table = Grid::new(Self::COLUMNS.map(|(name, _)| name), &[0])
            .with_room(Self::COLUMNS.map(|(_, room)| room));
        for row in rows {
            let of = match (row["target"].as_str().or_else(|| row["db"].as_str()), &row["scope"]) {
                (Some(target), _) => self.nodes.named(target) + &others(row),
                (None, scope) if scope.is_string() => text(scope),
                (None, _) => text(&row["node"]),
            };
            let more: Vec<String> = row
                .as_object()
                .into_iter()
                .flatten()
                .filter_map(|field| more(field, row))
                .collect();
            let more = more.join(", ");
            table.push([
                row["seq"].to_string(),
                short(&text(&row["at"])),
                text(&row["type"]).replace("index_build", "build").replace('_', " "),
                match (of.is_empty(), more.is_empty()) {
                    (true, _) => more,
                    (false, true) => of,
                    (false, false) => format!("{of}: {more}"),
                },
            ]);
        }
        let text = table.wrapped(self.width);
        if std::mem::replace(&mut self.begun, true) {
            return text.split_inclusive('\n').skip(1).collect();
        }
        text
    }
}

/// What a field of an event says beside its other columns; a name tells its node.
fn more((name, value): (&String, &Value), row: &Value) -> Option<String> {
    let said = text(value);
    match name.as_str() {
        "seq" | "at" | "type" | "target" | "db" | "scope" | "node" | "key" => None,
        _ if value.is_null() || *value == false => None,
        "channel" if row["reason"].is_null() => Some(said + &again(row)),
        "reason" => Some(said.replace('_', " ") + &again(row)),
        "channel" | "class" => Some(said),
        // Said beside the target, or the channel, or the number of targets.
        "also" | "count" | "first" | "last" | "of" => None,
        "targets" if row["of"].is_null() => None,
        "targets" => Some(format!("{said} targets more were {}", text(&row["of"]))),
        "section" => Some(format!("{} of {said}", text(&row["key"]))),
        "owner" => (value == "other").then(|| "by others".to_owned()),
        "ordered_by" => Some(format!("ordered by {said}")),
        "force" => Some("by force".to_owned()),
        "freed_bytes" => Some(format!("{} freed", signed(value.as_i64()?))),
        "failures" => Some(format!("{said} failures")),
        "result" if value == "freed" && !row["freed_bytes"].is_null() => None,
        "result" => Some(said.replace('_', " ")),
        "why" => Some(said),
        _ => Some(format!("{} {said}", printable(name))),
    }
}

/// How many targets an entry is about beside the one that it names.
fn others(row: &Value) -> String {
    match row["targets"].as_u64().filter(|_| row["of"].is_null()) {
        Some(targets @ 2..) => format!(" and {} more", targets - 1),
        _ => String::new(),
    }
}

/// How often something happened again.
fn again(row: &Value) -> String {
    let Some(count) = row["count"].as_u64() else { return String::new() };
    let [first, last] = ["first", "last"].map(|name| short(&text(&row[name])));
    match count {
        1 => format!(", again at {first}"),
        _ => format!(", {count} times again from {first} to {last}"),
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

/// The nodes that were named so far, whose names need not say what all have in common.
#[derive(Debug, Default)]
struct Nodes(BTreeSet<String>);

impl Nodes {
    /// Those of some more rows.
    fn add(&mut self, rows: &[Value]) {
        for row in rows {
            let of_target = row["target"].as_str().and_then(|id| match id.parse() {
                Ok(TargetId::Db { node, .. }) => Some(node),
                _ => None,
            });
            let own = row["node"].as_str().map(ToOwned::to_owned);
            self.0.extend([of_target, own].into_iter().flatten());
        }
    }

    /// A target by what people call it; what is no id stays.
    fn named(&self, id: &str) -> String {
        let name = match id.parse::<TargetId>() {
            Ok(TargetId::Db { node, shard }) => {
                let node = short_among(&node, || self.0.iter().map(String::as_str));
                match ShardName::split(&shard) {
                    Some(name) => {
                        format!("{} {} on {node}", name.db, short_range(&name.range.to_string()))
                    }
                    None => format!("{shard} on {node}"),
                }
            }
            Ok(TargetId::View { db, signature, .. }) => {
                // Enough to tell those of one database apart.
                let signature: String = signature.to_string().chars().take(8).collect();
                format!("view {signature} of {}", database(&db))
            }
            Ok(TargetId::Cleanup { db }) => format!("index files of {}", database(&db)),
            Ok(TargetId::Search { db, engine, design, index }) => {
                format!("{} index {db}/{design}/{index}", engine.label())
            }
            Err(_) => return printable(id),
        };
        printable(&name)
    }
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
        let events = |rows: &[Value]| Events::new(200).rows(rows);
        let shown = events(&rows);
        assert!(
            shown.lines().nth(1).unwrap().trim_end().ends_with("not started  a on n"),
            "{shown}"
        );
        let rows = [json!({
            "seq": 4, "at": "2026-11-21T00:54:00Z", "type": "finished", "node": "n",
            "target": "db:n/shards%2F00000000-ffffffff%2Forders.1795222434", "owner": "other",
            "result": "nothing_freed", "freed_bytes": -1024,
        })];
        let says = "orders 00-ff on n: -1.0 KiB freed, by others, nothing freed";
        assert!(events(&rows).contains(says), "{}", events(&rows));
        let rows = [json!({
            "seq": 5, "at": "2026-11-21T00:54:00Z", "type": "updated", "db": "orders",
        })];
        assert!(events(&rows).contains("orders"), "{}", events(&rows));
    }

    #[test]
    fn an_entry_says_for_how_many_targets_it_stands_and_how_often_it_happened_again() {
        let entry = json!({
            "seq": 6, "at": "2026-11-21T00:54:00Z", "type": "refused", "target": "db:n/a",
            "also": ["db:n/b"], "targets": 24, "channel": "ratio_dbs", "reason": "unknown_disk",
            "count": 57, "first": "2026-11-21T00:02:00Z", "last": "2026-11-21T00:53:00Z",
        });
        let with = |changes: &[(&str, Value)]| {
            let mut entry = entry.clone();
            for (name, value) in changes {
                entry[*name] = value.clone();
            }
            Events::new(200).rows(&[entry])
        };
        let no = || Value::Null;
        let once = [("targets", no()), ("count", no()), ("first", no()), ("last", no())];
        for (changes, says) in [
            (
                &[][..],
                "a on n and 23 more: ratio_dbs, unknown disk, \
                 57 times again from 11-21 00:02:00 to 11-21 00:53:00",
            ),
            (&once, "a on n: ratio_dbs, unknown disk"),
            (
                &[
                    ("type", json!("queued")),
                    ("reason", no()),
                    ("targets", no()),
                    ("count", json!(1)),
                ],
                "a on n: ratio_dbs, again at 11-21 00:02:00",
            ),
            (
                &[
                    ("type", json!("omitted")),
                    ("of", json!("queued")),
                    ("target", no()),
                    ("channel", no()),
                    ("reason", no()),
                ],
                "24 targets more were queued",
            ),
        ] {
            let shown = with(changes);
            let line = shown.lines().nth(1).unwrap().trim_end();
            assert!(line.ends_with(&format!("  {says}")), "{line}");
        }
    }

    #[test]
    fn what_follows_stands_in_the_same_columns_and_a_line_fits_eighty() {
        let row = |seq: u64, of: &str, freed: i64| {
            json!({
                "seq": seq, "at": "2026-11-21T00:54:00Z", "type": "finished", "target": of,
                "node": "couchdb@sim-2.local", "owner": "recliner", "result": "freed",
                "freed_bytes": freed,
            })
        };
        let of = "db:couchdb@sim-2.local/shards%2F80000000-9fffffff%2Forders.1795222434";
        let mut events = Events::new(80);
        let (head, tail) = (events.rows(&[row(875, of, 8 << 30)]), events.rows(&[row(9, of, 9)]));
        assert_eq!(
            (head + &tail).lines().collect::<Vec<_>>(),
            [
                "  SEQ  AT              EVENT        WHAT",
                "  875  11-21 00:54:00  finished     orders 80-9f on sim-2.local: 8.0 GiB freed",
                "    9  11-21 00:54:00  finished     orders 80-9f on sim-2.local: 9 B freed",
            ]
        );
    }
}
