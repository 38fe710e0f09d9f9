//! Turns the service's answers into the rows of each list.
//!
//! Pure. External text is escaped here; every row shows the node and range of its target, if any.

use super::{
    answers::{Answers, RecentEvents},
    list::{Cell, Column, Rank, Row, Table},
};
use crate::{
    cli::{
        printable,
        table::{WIDE, event_cells, place},
    },
    model::target::{CLUSTER_NODE, TargetId},
    plan::RefusalReason,
    serve::report::{EventLine, JobLine, Queue, RefusedLine, StartLine, columns},
    text::{Label, duration, size},
};
use couchdb_names::ShardName;
use std::{cmp::Reverse, time::Duration};
use wall_clock::Moment;

/// A column of text that is always shown.
const fn text(title: &'static str) -> Column {
    Column { title, number: false, from: 0 }
}

/// A column of numbers that is always shown.
const fn number(title: &'static str) -> Column {
    Column { title, number: true, from: 0 }
}

impl Column {
    /// Shows the column only on terminals with at least this width.
    const fn on_wide(self, from: u16) -> Self {
        Self { from, ..self }
    }
}

/// The channels, with the sums of their queues on all nodes.
pub(super) fn channels(answers: &Answers, now: Moment) -> Table {
    let mut sums: Vec<ChannelSum<'_>> = Vec::new();
    for queue in &answers.queues.queues {
        match sums.iter_mut().find(|sum| sum.channel == queue.channel) {
            Some(sum) => sum.add(queue),
            None => {
                let mut sum = ChannelSum { channel: &queue.channel, ..ChannelSum::default() };
                sum.add(queue);
                sums.push(sum);
            }
        }
    }
    // A short screen cuts off the channels at the end.
    sums.sort_by_key(|sum| Reverse((sum.reclaimable, sum.waiting, sum.running)));
    let starts = if answers.enforces() { "starts" } else { "would start" };
    let columns = vec![
        text("channel"),
        number("waiting"),
        number(starts),
        number("running"),
        number("reclaimable"),
        number("longest wait"),
    ];
    Table { columns, rows: sums.iter().map(|sum| sum.row(answers, now)).collect(), more: 0 }
}

/// The sums of one channel's queues on all nodes.
#[derive(Debug, Default)]
struct ChannelSum<'a> {
    channel: &'a str,
    waiting: usize,
    running: usize,
    reclaimable: u64,
    oldest: Option<Moment>,
}

impl ChannelSum<'_> {
    fn add(&mut self, queue: &Queue) {
        self.waiting += queue.size + queue.overflow;
        self.running += queue.active;
        self.reclaimable = self.reclaimable.saturating_add(queue.reclaimable_bytes);
        let oldest = queue.oldest.as_deref().and_then(Moment::parse);
        self.oldest = self.oldest.into_iter().chain(oldest).min();
    }

    fn row(&self, answers: &Answers, now: Moment) -> Row {
        let of_channel = answers.planned.candidates.iter().filter(|it| it.channel == self.channel);
        let starts: u64 = of_channel.map(|line| line.starts).sum();
        let count = |count: u64| Cell::number(Some(count as f64), |_| count.to_string());
        let wait = match self.oldest {
            None => Cell { text: "-".to_owned(), rank: Rank::Unknown },
            Some(oldest) => span(Some(oldest.age(now).as_secs_f64())),
        };
        Row {
            key: self.channel.to_owned(),
            id: None,
            cells: vec![
                Cell::text(printable(self.channel)),
                count(self.waiting as u64),
                count(starts),
                count(self.running as u64),
                bytes(Some(self.reclaimable)),
                wait,
            ],
            scopes: vec![format!("channel:{}", self.channel)],
            says: None,
        }
    }
}

/// The running jobs, including those that other clients started.
pub(super) fn jobs(answers: &Answers, now: Moment) -> Table {
    let table = answers.jobs.table(now);
    let row = |(cells, line): (&Vec<columns::Cell>, &JobLine)| {
        let node = line.node.as_deref().filter(|node| *node != CLUSTER_NODE);
        let scopes = line.channel.iter().map(|channel| format!("channel:{channel}"));
        Row {
            key: format!("{} {} {:?} {:?}", line.work, line.shard, line.ddoc, line.node),
            id: line.target.clone(),
            scopes: scopes.chain(node.map(|node| format!("node:{node}"))).collect(),
            says: None,
            cells: cells.iter().map(Cell::of).collect(),
        }
    };
    let rows = table.rows.iter().zip(&answers.jobs.jobs).map(row).collect();
    Table { columns: table.columns.iter().map(column).collect(), rows, more: 0 }
}

/// A column of an answer.
fn column((title, kind): &(columns::Title, columns::Kind)) -> Column {
    let from = if title.room == columns::Room::Wide { WIDE } else { 0 };
    Column { title: title.text, number: *kind == columns::Kind::Number, from }
}

/// The starts and the waiting targets, each with its reason.
pub(super) fn queue(answers: &Answers, now: Moment) -> Table {
    let columns = vec![
        text("target"),
        text("range"),
        text("node"),
        text("channel"),
        number("reclaimable"),
        number("waits").on_wide(100),
        text("why"),
    ];
    let planned = &answers.planned;
    let starts = planned.starts.iter().map(|line| start(answers, line, now));
    let waits = planned.refused.iter().map(|line| refused(answers, line, now));
    let more = planned.total.saturating_sub(planned.offset + planned.refused.len());
    Table { columns, rows: starts.chain(waits).collect(), more }
}

fn start(answers: &Answers, line: &StartLine, now: Moment) -> Row {
    let design = line.ddoc.as_deref().map_or_else(String::new, |ddoc| format!("/{ddoc}"));
    let place = Place::of_id(answers, &line.id, &format!("{}{design}", line.db), &line.node);
    let word = if answers.enforces() { "starts now" } else { "would start" };
    let says = format!("{word}: {}", line.request);
    queued(place, &line.id, &line.node, &line.channel, line.gain_bytes, line.since.as_deref(), now)
        .saying(word, &says)
}

fn refused(answers: &Answers, line: &RefusedLine, now: Moment) -> Row {
    // An older recliner gives no name.
    let name = if line.name.is_empty() { &line.title } else { &line.name };
    let place = Place::of_id(answers, &line.id, name, &line.node);
    let label = &line.refusal.reason;
    let reason = RefusalReason::from_label(label);
    let word = reason.map_or_else(|| label.replace('_', " "), |reason| reason.class().words());
    let since = line.refusal.since.as_deref();
    queued(place, &line.id, &line.node, &line.channel, line.reclaimable_bytes, since, now)
        .saying(&word, &line.why)
}

fn queued(
    place: Place,
    id: &str,
    node: &str,
    channel: &str,
    reclaimable: Option<u64>,
    since: Option<&str>,
    now: Moment,
) -> Row {
    let of_node = (node != CLUSTER_NODE).then(|| format!("node:{node}"));
    let waits = since.and_then(Moment::parse).map(|since| since.age(now).as_secs_f64());
    Row {
        key: id.to_owned(),
        id: Some(id.to_owned()),
        cells: vec![
            Cell::text(place.what),
            Cell::text(place.range),
            Cell::text(place.node),
            Cell::text(printable(channel)),
            bytes(reclaimable),
            span(waits),
        ],
        scopes: [Some(format!("channel:{channel}")), of_node].into_iter().flatten().collect(),
        says: None,
    }
}

impl Row {
    /// Adds a cell with the reason, and a sentence.
    fn saying(mut self, word: &str, says: &str) -> Self {
        self.cells.push(Cell::text(printable(word)));
        self.says = Some(printable(says));
        self
    }
}

/// The recent events, newest first.
pub(super) fn events(events: &RecentEvents) -> Table {
    let row = |line: &EventLine| {
        let [seq, at, what, details] = event_cells(line);
        Row {
            key: seq,
            id: line.target.clone(),
            says: Some(details.clone()),
            cells: vec![Cell::text(at), Cell::text(what), Cell::text(details)],
            scopes: Vec::new(),
        }
    };
    Table {
        columns: vec![text("at"), text("event"), text("what")],
        rows: events.lines.iter().map(row).collect(),
        more: 0,
    }
}

/// A target in three columns: name, range and node.
#[derive(Debug)]
struct Place {
    what: String,
    range: String,
    node: String,
}

impl Place {
    /// A target from its id; `name` is what people call it.
    fn of_id(answers: &Answers, id: &str, name: &str, node: &str) -> Self {
        let node = in_cell(answers, node);
        match id.parse::<TargetId>() {
            Ok(TargetId::Db { shard, .. }) => Self::of_shard(&shard, None, node),
            _ => Self { what: printable(name), range: "-".to_owned(), node },
        }
    }

    /// A target from a shard file's name; an index also has its design document.
    fn of_shard(shard: &str, ddoc: Option<&str>, node: String) -> Self {
        let (db, range) = match ShardName::split(shard) {
            Some(name) => (name.db.to_owned(), name.range.short()),
            None => (shard.to_owned(), "-".to_owned()),
        };
        let what = ddoc.map_or_else(|| db.clone(), |ddoc| format!("{db}/{ddoc}"));
        Self { what: printable(&what), range, node }
    }
}

fn in_cell(answers: &Answers, node: &str) -> String {
    place(node, answers.planned.only_node.as_deref())
}

fn bytes(bytes: Option<u64>) -> Cell {
    Cell::number(bytes.map(|bytes| bytes as f64), |_| {
        bytes.map_or_else(String::new, |bytes| size::format_size(bytes).to_string())
    })
}

/// A duration in seconds.
fn span(seconds: Option<f64>) -> Cell {
    let span = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds.max(0.0)).ok());
    Cell::number(span.map(|span| span.as_secs_f64()), |_| {
        // Tenths of a second would only flicker.
        span.map_or_else(String::new, |span| {
            duration::format_rounded(Duration::from_secs(span.as_secs()))
        })
    })
}
