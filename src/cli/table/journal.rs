//! Tables of journal entries.

use super::{
    super::printable,
    layout::{Grid, paragraph},
};
use crate::{
    model::target::TargetId,
    serve::report::{EventLine, HourLine, OutcomeLine, Outcomes, short_node, short_time},
};

/// A table of how jobs ended.
pub(in crate::cli) fn outcomes(rows: &[OutcomeLine], width: u16) -> String {
    if rows.is_empty() {
        return "No matching jobs.\n".to_owned();
    }
    let table = Outcomes::table(rows).one_line_each(width);
    let sums = HourLine::of_jobs(rows).says();
    format!("{table}{}", paragraph(&format!("Together: {sums}."), width))
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
    let of = match (row.about_target().or(row.db.as_deref()), row.scope.as_ref()) {
        (Some(target), _) => named(target, row.ddoc.as_deref()) + &row.others(),
        (None, Some(scope)) => printable(scope),
        (None, None) => {
            let of = row.subject.as_deref().or(row.node.as_deref());
            of.map(printable).unwrap_or_default()
        }
    };
    let more = printable(&row.details());
    [
        row.seq.to_string(),
        short_time(&printable(&row.at)),
        printable(&row.type_in_words()).replace("index build", "build"),
        match (of.is_empty(), more.is_empty()) {
            (true, _) => more,
            (false, true) => of,
            (false, false) => format!("{of}: {more}"),
        },
    ]
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
    fn node_name_is_shortened_the_same_way_in_every_row() {
        let id = |node| format!("db:{node}/shards%2F00000000-7fffffff%2Forders.17");
        let named = |node| named(&id(node), None);
        assert_eq!(named("couchdb@a.example"), "orders 00-7f on a.example");
        assert_eq!(named("node1@127.0.0.1"), "orders 00-7f on node1@127.0.0.1");
    }

    #[test]
    fn recommendation_names_its_target_as_other_events_do() {
        let of = |subject: &str| {
            let subject = Some(subject.to_owned());
            let code = Some("orphan_shards".to_owned());
            let line = EventLine {
                event_type: "advice_given".into(),
                subject,
                code,
                ..EventLine::default()
            };
            event_cells(&line)[3].clone()
        };
        let shard = "db:couchdb@a.example/shards%2F00000000-7fffffff%2Forders.17";
        assert_eq!(of(shard), "orders 00-7f on a.example: orphan_shards");
        assert_eq!(of("limits.per_node"), "limits.per_node: orphan_shards");
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
        for says in ["9.0 MiB", "failed: no space", "grew by 1.0 KiB"] {
            assert!(narrow.contains(says), "{says} in {narrow}");
        }
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
        let [target, node, ended, result] = ["a", "n", "11-21 00:55", "freed"];
        let [before, after, freed, took] = ["10.0 MiB", "1.0 MiB", "9.0 MiB", "1m 30s"];
        let by = ["?", "ratio_dbs", "recliner"];
        let whole = [&[target, node, ended, result, before, after, freed, took][..], &by].concat();
        assert_eq!(cells[1], whole);
        let failed = ["b\\u{1b}[2J", node, ended, "failed: no space", "?", "?"];
        let whole = [&failed[..], &["grew by 1.0 KiB", took, "?", "-", "other"]].concat();
        assert_eq!(cells[2], whole);
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
    fn event_row_counts_other_targets_and_repetitions() {
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
                "a on n and 23 more: channel ratio_dbs, lacks: known space, \
                 57 times again from 11-21 00:02:00 to 11-21 00:53:00",
            ),
            (once, "a on n: channel ratio_dbs, lacks: known space"),
            (queued, "a on n: channel ratio_dbs, again at 11-21 00:02:00"),
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
                "  875  11-21 00:54:00  finished     orders 80-9f on sim-2.local: freed 8.0 GiB",
                "    9  11-21 00:54:00  finished     orders 80-9f on sim-2.local: freed 9 B",
            ]
        );
    }
}
