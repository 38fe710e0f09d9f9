//! `_db_updates` and `_dbs/_changes`: responses that may wait.
//!
//! Owns the parameters and the timing of feeds. Their events are the world's.

use super::{
    answer::{Answer, Routed, error, json, not_found, stream, tag, wrong_method},
    ask::ParsedRequest,
};
use crate::{
    Cluster,
    cluster::Inner,
    design::revision,
    growth::mix,
    world::{DbEvent, EventKind, Update, WRITE_DELAY},
};
use axum::body::Body;
use bytes::Bytes;
use futures::stream as streams;
use http::Method;
use serde_json::{Value, json as value};
use std::{io, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The default timeout of a feed (`[chttpd] changes_timeout`).
const MAX_WAIT: Duration = Duration::from_secs(60);

/// A requested feed.
#[derive(Debug)]
pub(super) struct Feed {
    kind: Kind,
    since: u64,
    limit: u64,
    timeout: Duration,
    heartbeat: Option<Duration>,
    places: Places,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Longpoll,
    Continuous,
    /// Ends at its first heartbeat.
    EventSource,
    /// `_dbs/_changes?feed=longpoll`.
    Map,
}

fn bad(reason: &str) -> Routed {
    error(400, "bad_request", reason).into()
}

/// `GET /_db_updates`.
pub(super) fn route(inner: &Inner, ask: &ParsedRequest) -> Routed {
    if ask.method != Method::GET {
        return wrong_method("GET").into();
    }
    if let Some(refused) = ask.admin_only() {
        return refused.into();
    }
    let kind = match ask.param("feed").unwrap_or("normal") {
        "normal" => None,
        "longpoll" => Some(Kind::Longpoll),
        "continuous" => Some(Kind::Continuous),
        "eventsource" => Some(Kind::EventSource),
        _ => return bad("Supported `feed` types: normal, continuous, longpoll, eventsource"),
    };
    let (Ok(limit), Ok(timeout)) = (ask.number("limit"), ask.number("timeout")) else {
        return bad("invalid_integer");
    };
    let heartbeat = match ask.param("heartbeat") {
        None | Some("false") => None,
        Some("true") => Some(MAX_WAIT),
        Some(_) => match ask.number("heartbeat") {
            Ok(Some(millis)) if millis > 0 => Some(Duration::from_millis(millis)),
            _ => return bad("invalid_integer"),
        },
    };
    if !inner.world.has_global_changes() {
        return not_found("Database does not exist.").into();
    }
    let now = inner.world.updates_seq();
    let places = Places::of(inner);
    let since = match ask.param("since").unwrap_or("0") {
        "now" => now,
        text => match places.read(text) {
            Some(since) => since,
            None => return bad("Malformed sequence supplied in 'since' parameter."),
        },
    };
    let limit = limit.unwrap_or(u64::MAX);
    let Some(kind) = kind else {
        let mut updates = inner.world.updates(since);
        if ask.is_true("descending") {
            updates.reverse();
        }
        return normal(updates, (limit, since.max(now)), places).tagged(&tag(now)).into();
    };
    let timeout = timeout.map_or(MAX_WAIT, Duration::from_millis).min(MAX_WAIT);
    // A heartbeat keeps a feed open for as long as its client is connected.
    let timeout = if heartbeat.is_some() { Duration::MAX } else { timeout };
    Feed { kind, since, limit, timeout, heartbeat, places }.routed(ask)
}

/// `GET /_global_changes`.
pub(super) fn database(inner: &Inner, ask: &ParsedRequest) -> Routed {
    if let Some(refused) = ask.admin_only() {
        return refused.into();
    }
    if !inner.world.has_global_changes() {
        return not_found("Database does not exist.").into();
    }
    let seq = Places::of(inner).packed(inner.world.updates_seq());
    let made = ask.wall_start.saturating_add(inner.world.updates_instance());
    json(
        200,
        &value!({
            "instance_start_time": made.to_string(), "db_name": "_global_changes",
            "update_seq": seq, "sizes": {"file": 0, "external": 0, "active": 0},
            "doc_del_count": 0, "doc_count": 0, "compact_running": false,
        }),
    )
    .into()
}

/// The sequence numbers of one instance of `_global_changes`.
#[derive(Clone, Copy, Debug)]
struct Places {
    instance: u64,
}

impl Places {
    fn of(inner: &Inner) -> Self {
        Self { instance: inner.world.updates_instance() }
    }

    /// A sequence in the format that clients get.
    fn packed(self, seq: u64) -> String {
        format!("{seq}-g1AAAA{:016x}{:016x}", mix(seq, 1), mix(self.instance, 2))
    }

    /// The number of a sequence; zero if it is from another instance, because CouchDB starts unknown
    /// shards from the beginning.
    fn read(self, text: &str) -> Option<u64> {
        let (number, rest) = text.split_once('-').unwrap_or((text, ""));
        let number = number.parse().ok()?;
        let other_instance = rest.starts_with("g1AAAA")
            && !rest.ends_with(&format!("{:016x}", mix(self.instance, 2)));
        Some(if other_instance { 0 } else { number })
    }
}

fn row(update: &Update, places: Places) -> Value {
    value!({"db_name": update.db, "type": <&str>::from(update.kind), "seq": places.packed(update.seq)})
}

/// All rows at once. If rows were left out, the last sequence is that of the last row sent.
fn normal(mut updates: Vec<Update>, (limit, now): (u64, u64), places: Places) -> Answer {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let cut = updates.len() > limit;
    updates.truncate(limit);
    let last = match updates.last() {
        Some(update) if cut => update.seq,
        None if limit == 0 => 0,
        _ => now,
    };
    let rows: Vec<Value> = updates.iter().map(|update| row(update, places)).collect();
    json(200, &value!({"results": rows, "last_seq": places.packed(last)})).chunked()
}

/// `GET /_node/{node}/_dbs/_changes`.
pub(super) fn map_changes(inner: &Inner, ask: &ParsedRequest) -> Routed {
    let (Ok(since), Ok(limit), Ok(timeout)) =
        (since_of(inner, ask), ask.number("limit"), ask.number("timeout"))
    else {
        return error(400, "bad_request", "invalid_integer").behind().into();
    };
    let limit = limit.unwrap_or(u64::MAX);
    match ask.param("feed").unwrap_or("normal") {
        // The call behind this route returns a response only when it is complete.
        "continuous" | "eventsource" => Routed::Hang,
        "longpoll" => {
            let timeout = timeout.map_or(MAX_WAIT, Duration::from_millis).min(MAX_WAIT);
            let (kind, places, heartbeat) = (Kind::Map, Places::of(inner), None);
            Feed { kind, since, limit, timeout, heartbeat, places }.routed(ask)
        }
        _ => map_rows(inner, since, limit).1.into(),
    }
}

fn since_of(inner: &Inner, ask: &ParsedRequest) -> Result<u64, ()> {
    match ask.param("since") {
        Some("now") => Ok(map_seq(inner)),
        _ => Ok(ask.number("since")?.unwrap_or(0)),
    }
}

fn map_seq(inner: &Inner) -> u64 {
    inner.world.map_seq_at_start().saturating_add(inner.world.map_changes().len() as u64)
}

/// The response with the shard map's changes after `since`, and whether there are any.
fn map_rows(inner: &Inner, since: u64, limit: u64) -> (bool, Answer) {
    let start = inner.world.map_seq_at_start();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut rows = Vec::new();
    let changed = |id: &str, seq: u64, deleted: bool| {
        let mut row = value!({"seq": seq, "id": id, "changes": [{"rev": revision(id)}]});
        if let Some(row) = row.as_object_mut().filter(|_| deleted) {
            row.insert("deleted".to_owned(), true.into());
        }
        row
    };
    if since < start {
        // The sequences at the start number the databases in order.
        let old = (1_u64..).zip(inner.world.databases_at_start());
        let old = old.filter(|(seq, _)| *seq > since).take(limit);
        rows.extend(old.map(|(seq, name)| changed(&name, seq, false)));
    }
    for (seq, happened) in (start.saturating_add(1)..).zip(inner.world.map_changes()) {
        let DbEvent { db, kind, .. } = happened;
        if seq > since && rows.len() < limit {
            rows.push(changed(db, seq, *kind == EventKind::Deleted));
        }
    }
    let last = match rows.last().and_then(|row| row.get("seq")).and_then(Value::as_u64) {
        Some(last) => last,
        None => since.max(map_seq(inner)),
    };
    let any = !rows.is_empty();
    let pending = map_seq(inner).saturating_sub(last);
    let answer = json(200, &value!({"results": rows, "last_seq": last, "pending": pending}));
    (any, answer.behind())
}

impl Feed {
    fn routed(self, ask: &ParsedRequest) -> Routed {
        let node = ask.node.clone();
        Routed::wait(|cluster| async move { self.answer(cluster, &node).await })
    }

    /// Waits for the feed's events.
    async fn answer(self, cluster: Cluster, node: &str) -> Answer {
        let content_type = match self.kind {
            Kind::Longpoll | Kind::Map => return self.longpoll(&cluster).await,
            Kind::Continuous => "application/json",
            Kind::EventSource => "text/event-stream",
        };
        let open = Open::new(self, cluster, node);
        stream(content_type, Body::from_stream(streams::unfold(open, Open::next)))
    }

    async fn longpoll(self, cluster: &Cluster) -> Answer {
        let begun = Instant::now();
        loop {
            let (any, answer) = cluster.locked(|inner| self.rows(inner));
            if any || begun.elapsed() >= self.timeout {
                return answer;
            }
            let remaining = self.timeout.saturating_sub(begun.elapsed());
            tokio::time::sleep(remaining.min(WRITE_DELAY)).await;
        }
    }

    /// The current response, and whether it has any rows.
    fn rows(&self, inner: &Inner) -> (bool, Answer) {
        if self.kind == Kind::Map {
            return map_rows(inner, self.since, self.limit);
        }
        let updates = inner.world.updates(self.since);
        let any = !updates.is_empty();
        (any, normal(updates, (self.limit, inner.world.updates_seq()), self.places))
    }
}

/// An open feed.
struct Open {
    feed: Feed,
    cluster: Cluster,
    /// When it last sent something.
    last_sent: Instant,
    ended: bool,
    /// The responding node, and how often it had stopped before the feed began.
    node: Arc<str>,
    stops: Option<u64>,
}

impl Open {
    fn new(feed: Feed, cluster: Cluster, node: &str) -> Self {
        let stops = cluster.world(|world| world.stops(node));
        Self { feed, cluster, last_sent: Instant::now(), ended: false, node: node.into(), stops }
    }

    /// Whether the node has stopped since the feed began, which broke every connection to it.
    fn is_broken(&self) -> bool {
        self.cluster.world(|world| world.stops(&self.node)) != self.stops
    }

    /// Whether the feed's `_global_changes` still exists.
    fn is_there(&self) -> bool {
        let instance = self.feed.places.instance;
        self.cluster
            .world(|world| world.has_global_changes() && world.updates_instance() == instance)
    }

    /// New rows, or `None` when a heartbeat or the end is due.
    async fn wait(&mut self) -> Option<Vec<Update>> {
        let quiet = self.feed.heartbeat.unwrap_or(self.feed.timeout);
        loop {
            let since = self.feed.since;
            let (mut updates, now) =
                self.cluster.world(|world| (world.updates(since), world.updates_seq()));
            if self.is_broken() || !self.is_there() {
                return None;
            }
            if !updates.is_empty() {
                let limit = usize::try_from(self.feed.limit).unwrap_or(usize::MAX);
                updates.truncate(limit);
                self.feed.limit = self.feed.limit.saturating_sub(updates.len() as u64);
                self.feed.since = now;
                self.last_sent = Instant::now();
                return Some(updates);
            }
            let remaining = quiet.saturating_sub(self.last_sent.elapsed());
            if remaining.is_zero() {
                self.last_sent = Instant::now();
                return None;
            }
            tokio::time::sleep(remaining.min(WRITE_DELAY)).await;
        }
    }

    /// The next chunk of the body, and the feed's state after it.
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.ended {
            return None;
        }
        let updates = if self.feed.limit == 0 { None } else { self.wait().await };
        if self.is_broken() {
            self.ended = true;
            return Some((Err(io::Error::from(io::ErrorKind::ConnectionReset)), self));
        }
        let text = match updates {
            Some(updates) => updates.iter().map(|update| self.row(update)).collect(),
            None => self.pause(),
        };
        Some((Ok(text.into()), self))
    }

    /// One row of the body; an event source gets the raw changes of `_global_changes`.
    fn row(&self, update: &Update) -> String {
        if self.feed.kind != Kind::EventSource {
            return format!("{}\n", row(update, self.feed.places));
        }
        let id = format!("{}:{}", <&str>::from(update.kind), update.db);
        let seq = self.feed.places.packed(update.seq);
        let change = value!({"seq": seq, "id": id, "changes": [{"rev": revision(&id)}]});
        format!("data: {change}\nid: {seq}\n\n")
    }

    /// What is sent after a silence: a heartbeat, or the last line. An event source ends at its first
    /// heartbeat.
    fn pause(&mut self) -> String {
        let is_source = self.feed.kind == Kind::EventSource;
        let beats = self.feed.heartbeat.is_some() && self.feed.limit > 0;
        if !is_source && beats && self.is_there() {
            return "\n".to_owned();
        }
        self.ended = true;
        if is_source {
            return "event: heartbeat\ndata: \n\n".to_owned();
        }
        format!("{}\n", value!({"last_seq": self.feed.places.packed(self.feed.since)}))
    }
}
