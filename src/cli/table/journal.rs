//! Tables of journal entries.

use super::{
    super::printable,
    layout::{Grid, WIDE, bytes, paragraph, short_node},
};
use crate::{
    model::target::TargetId,
    plan::RefusalReason,
    serve::report::{EventLine, HourLine, OutcomeLine, result_in_words},
    text::duration,
};
use std::time::Duration;

/// A table of how jobs ended.
pub(in crate::cli) fn outcomes(rows: &[OutcomeLine], width: u16) -> String {
    if rows.is_empty() {
        return "No matching jobs.\n".to_owned();
    }
    let table = if width < WIDE { narrow(rows, width) } else { wide(rows, width) };
    let sums = HourLine::of_jobs(rows).says();
    format!("{table}{}", paragraph(&format!("Together: {sums}."), width))
}

/// One line for each job that did not fail.
fn narrow(rows: &[OutcomeLine], width: u16) -> String {
    let mut table = Grid::new(["target", "ended", "took", "after", "result"], &[2, 3]);
    for row in rows {
        let is_failed = matches!(&*row.result, "failed" | "lost");
        let why = row.why.as_deref().filter(|_| is_failed).map(printable);
        let freed = row.freed_bytes.filter(|_| matches!(&*row.result, "freed" | "grew"));
        let result = match (freed, why) {
            (Some(bytes @ 0..), _) => format!("freed {}", freed_or_grew(bytes)),
            (Some(bytes), _) => freed_or_grew(bytes),
            (None, Some(why)) => format!("{}: {why}", printable(&row.result)),
            (None, None) => result_in_words(&printable(&row.result)),
        };
        let ended = short(&printable(&row.ended_at));
        let minute = ended.get(..11).map_or_else(|| ended.clone(), ToOwned::to_owned);
        let by = if row.ended_after.is_some() { format!("by {minute}") } else { minute };
        let name = named(&row.target, row.ddoc.as_deref());
        table.push([name, by, took(row), bytes(row.after_bytes), result]);
    }
    table.one_line_each(width, |most| most * 2 / 3)
}

fn wide(rows: &[OutcomeLine], width: u16) -> String {
    let head = ["ended", "took", "before", "after", "freed", "result", "target"];
    let mut table = Grid::new(head, &[2, 3, 4]);
    for row in rows {
        let by = match &row.ordered_by {
            Some(who) => format!("ordered by {}", printable(who)),
            None if row.owner == "other" => "(not by recliner)".to_owned(),
            None => String::new(),
        };
        let why = row.why.as_deref().map(printable).unwrap_or_default();
        let ended = short(&printable(&row.ended_at));
        let between = row.ended_after.as_ref().map_or_else(String::new, |since| {
            format!("between {} and {ended}", short(&printable(since)))
        });
        let result = [result_in_words(&printable(&row.result)), by, between, why];
        let name = named(&row.target, row.ddoc.as_deref());
        table.push([
            if row.ended_after.is_some() { format!("by {ended}") } else { ended },
            took(row),
            bytes(row.before_bytes),
            bytes(row.after_bytes),
            row.freed_bytes.map_or_else(|| "?".to_owned(), freed_or_grew),
            result.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(" "),
            match &row.channel {
                None => name,
                Some(channel) => format!("{name} ({})", printable(channel)),
            },
        ]);
    }
    table.wrapped(width)
}

fn took(row: &OutcomeLine) -> String {
    let rounded = |seconds| duration::format_rounded(Duration::from_secs(seconds));
    row.duration_seconds.map_or_else(|| "?".to_owned(), rounded)
}

/// A table of events, in columns of fixed width because rows may arrive one by one.
#[derive(Debug)]
pub(in crate::cli) struct Events {
    width: u16,
    begun: bool,
}

impl Events {
    /// Titles and minimum widths of the columns.
    const COLUMNS: [(&'static str, usize); 4] =
        [("seq", 5), ("at", 14), ("event", 11), ("what", 0)];

    pub(in crate::cli) fn new(width: u16) -> Self {
        Self { width, begun: false }
    }

    /// Renders more rows; the first call adds the header.
    pub(in crate::cli) fn rows(&mut self, rows: &[EventLine]) -> String {
        let mut table = Grid::new(Self::COLUMNS.map(|(name, _)| name), &[0])
            .with_room(Self::COLUMNS.map(|(_, room)| room));
        for row in rows {
            table.push(event_cells(row));
        }
        let text = table.wrapped(self.width);
        if std::mem::replace(&mut self.begun, true) {
            return text.split_inclusive('\n').skip(1).collect();
        }
        text
    }
}

/// Sequence number, time, type, and description of an event.
pub(in crate::cli) fn event_cells(row: &EventLine) -> [String; 4] {
    let of = match (row.target.as_ref().or(row.db.as_ref()), &row.scope) {
        (Some(target), _) => named(target, row.ddoc.as_deref()) + &others(row),
        (None, Some(scope)) => printable(scope),
        (None, None) => row.node.as_deref().map(printable).unwrap_or_default(),
    };
    let more = details(row).join(", ");
    [
        row.seq.to_string(),
        short(&printable(&row.at)),
        printable(&row.type_in_words()).replace("index build", "build"),
        match (of.is_empty(), more.is_empty()) {
            (true, _) => more,
            (false, true) => of,
            (false, false) => format!("{of}: {more}"),
        },
    ]
}

/// The details of an event, in the order in which they are printed.
fn details(row: &EventLine) -> Vec<String> {
    let word = |word: Option<&str>| word.map(printable);
    // Freed bytes, if known.
    let freed = row.freed_bytes.flatten();
    let result = row.result.as_deref();
    let result = result.filter(|it| freed.is_none() || !matches!(*it, "freed" | "grew"));
    let channel = word(row.channel.as_deref());
    let channel = if row.reason.is_none() { channel.map(|it| it + &again(row)) } else { channel };
    let section = row.section.as_deref().map(|section| {
        let key = row.key.as_deref().map(printable).unwrap_or_default();
        format!("{key} of {}", printable(section))
    });
    let more = row.of.as_deref().zip(row.targets);
    let was = row.was.as_ref().and_then(Option::as_deref);
    [
        row.run_in_words(),
        word(row.code.as_deref()),
        word(row.subject.as_deref()),
        row.until.as_deref().map(|until| format!("until {}", printable(until))),
        row.by.as_deref().map(|by| format!("by {}", printable(by))),
        channel,
        word(row.class.as_deref()),
        row.failures.map(|failures| format!("{failures} failures")),
        row.force.filter(|force| *force).map(|_| "by force".to_owned()),
        freed.map(|bytes| match bytes {
            0.. => format!("{} freed", freed_or_grew(bytes)),
            _ => freed_or_grew(bytes),
        }),
        row.ordered_by.as_deref().map(|by| format!("ordered by {}", printable(by))),
        row.owner.as_deref().filter(|it| *it == "other").map(|_| "not by recliner".to_owned()),
        word(row.reason.as_deref()).map(|it| RefusalReason::words_of(&it) + &again(row)),
        word(result).map(|result| result_in_words(&result)),
        section,
        more.map(|(of, targets)| format!("{targets} more targets were {}", printable(of))),
        was.map(|was| format!("was {}", printable(was))),
        word(row.why.as_deref()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// How many other targets an entry stands for.
fn others(row: &EventLine) -> String {
    match row.targets.filter(|_| row.of.is_none()) {
        Some(targets @ 2..) => format!(" and {} more", targets - 1),
        _ => String::new(),
    }
}

/// How often and when an event was repeated.
fn again(row: &EventLine) -> String {
    let Some(count) = row.count else { return String::new() };
    let moment = |moment: &Option<String>| moment.as_deref().map(printable).unwrap_or_default();
    let [first, last] = [&row.first, &row.last].map(|at| short(&moment(at)));
    match count {
        1 => format!(", again at {first}"),
        _ => format!(", {count} times again from {first} to {last}"),
    }
}

/// Freed bytes, or by how much a file grew.
fn freed_or_grew(freed: i64) -> String {
    let size = bytes(Some(freed.unsigned_abs()));
    if freed < 0 { format!("grew by {size}") } else { size }
}

/// A time without year and zone, which is always UTC.
pub(super) fn short(moment: &str) -> String {
    moment.get(5..19).map_or_else(|| moment.to_owned(), |short| short.replace('T', " "))
}

/// A target in readable form; a text that is not an id stays as it is.
fn named(id: &str, ddoc: Option<&str>) -> String {
    let Ok(id) = id.parse::<TargetId>() else { return printable(id) };
    let on_node = id.node().map_or_else(String::new, |node| format!(" on {}", short_node(node)));
    printable(&(id.name(ddoc) + &on_node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_one_short_name_whatever_else_is_shown() {
        let id = |node| format!("db:{node}/shards%2F00000000-7fffffff%2Forders.17");
        let named = |node| named(&id(node), None);
        assert_eq!(named("couchdb@a.example"), "orders 00-7f on a.example");
        assert_eq!(named("node1@127.0.0.1"), "orders 00-7f on node1@127.0.0.1");
    }

    #[test]
    fn shows_jobs_and_events_in_tables() {
        let outcome = OutcomeLine {
            seq: 7,
            target: "db:n/a".into(),
            kind: "db".into(),
            node: "n".into(),
            ddoc: None,
            channel: Some("ratio_dbs".into()),
            owner: "recliner".into(),
            ordered_by: None,
            started_at: "2026-11-21T00:54:00Z".into(),
            ended_after: None,
            ended_at: "2026-11-21T00:55:30Z".into(),
            duration_seconds: Some(90),
            before_bytes: Some(10 << 20),
            after_bytes: Some(1 << 20),
            predicted_bytes: None,
            freed_bytes: Some(9 << 20),
            estimate_ratio: None,
            result: "freed".into(),
            why: None,
        };
        let failed = OutcomeLine {
            target: "db:n/b\u{1b}[2J".into(),
            owner: "other".into(),
            channel: None,
            before_bytes: None,
            after_bytes: None,
            freed_bytes: Some(-1024),
            result: "failed".into(),
            why: Some("no space".into()),
            ..outcome.clone()
        };
        let rows = [outcome, failed];
        let narrow = outcomes(&rows, 80);
        assert!(narrow.contains("a on n"), "{narrow}");
        assert!(
            narrow.contains("freed 9.0 MiB") && narrow.contains("failed: no space"),
            "{narrow}"
        );
        let together = "Together: 2 compactions (1 not by recliner) freed 9 MiB and wrote 1 MiB;";
        assert!(
            narrow.lines().nth(3).unwrap().starts_with(together),
            "a line for each job: {narrow}"
        );
        let text = outcomes(&rows, 200);
        let cells: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect())
            .collect();
        assert_eq!(
            cells[1],
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
            cells[2],
            [
                "11-21 00:55:30",
                "1m 30s",
                "?",
                "?",
                "grew by 1.0 KiB",
                "failed (not by recliner) no space",
                "b\\u{1b}[2J on n"
            ]
        );
        let events = |event: EventLine| Events::new(200).rows(&[event]);
        let shown =
            events(EventLine { node: Some("n".into()), ..event(3, "not_started", Some("db:n/a")) });
        assert!(
            shown.lines().nth(1).unwrap().trim_end().ends_with("not started  a on n"),
            "{shown}"
        );
        let of = "db:n/shards%2F00000000-ffffffff%2Forders.1795222434";
        let shown = events(EventLine {
            node: Some("n".into()),
            owner: Some("other".into()),
            result: Some("nothing_freed".into()),
            freed_bytes: Some(Some(-1024)),
            ..event(4, "finished", Some(of))
        });
        let says = "orders on n: grew by 1.0 KiB, not by recliner, nothing freed";
        assert!(shown.contains(says), "{shown}");
        let shown = events(EventLine { db: Some("orders".into()), ..event(5, "updated", None) });
        assert!(shown.contains("orders"), "{shown}");
    }

    fn event(seq: u64, event_type: &'static str, target: Option<&str>) -> EventLine {
        EventLine {
            seq,
            at: "2026-11-21T00:54:00Z".into(),
            event_type: event_type.into(),
            target: target.map(ToOwned::to_owned),
            ..EventLine::default()
        }
    }

    #[test]
    fn events_show_other_targets_and_repetitions() {
        let entry = EventLine {
            also: vec!["db:n/b".into()],
            targets: Some(24),
            channel: Some("ratio_dbs".into()),
            reason: Some("unknown_disk".into()),
            count: Some(57),
            first: Some("2026-11-21T00:02:00Z".into()),
            last: Some("2026-11-21T00:53:00Z".into()),
            ..event(6, "refused", Some("db:n/a"))
        };
        let once =
            EventLine { targets: None, count: None, first: None, last: None, ..entry.clone() };
        let queued = EventLine {
            event_type: "queued".into(),
            reason: None,
            targets: None,
            count: Some(1),
            ..entry.clone()
        };
        let omitted = EventLine {
            event_type: "omitted".into(),
            of: Some("queued".into()),
            target: None,
            channel: None,
            reason: None,
            ..entry.clone()
        };
        for (entry, says) in [
            (
                entry,
                "a on n and 23 more: ratio_dbs, lacks: known space, \
                 57 times again from 11-21 00:02:00 to 11-21 00:53:00",
            ),
            (once, "a on n: ratio_dbs, lacks: known space"),
            (queued, "a on n: ratio_dbs, again at 11-21 00:02:00"),
            (omitted, "24 more targets were queued"),
        ] {
            let shown = Events::new(200).rows(&[entry]);
            let line = shown.lines().nth(1).unwrap().trim_end();
            assert!(line.ends_with(&format!("  {says}")), "{line}");
        }
    }

    #[test]
    fn later_rows_keep_columns_within_80_characters() {
        let row = |seq: u64, of: &str, freed: i64| EventLine {
            node: Some("couchdb@sim-2.local".into()),
            owner: Some("recliner".into()),
            result: Some("freed".into()),
            freed_bytes: Some(Some(freed)),
            ..event(seq, "finished", Some(of))
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
