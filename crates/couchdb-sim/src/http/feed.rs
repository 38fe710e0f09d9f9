//! `_db_updates` and `_dbs/_changes`: responses that may wait.
//!
//! Owns the parameters and the timing of feeds. Their events are the world's.

use super::{
    Routed, admin_only,
    answer::{Answer, error, json, not_found, stream, wrong_method},
    ask::ParsedRequest,
    server::tag,
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
    /// It ends at its first heartbeat.
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
    if let Some(refused) = admin_only(ask) {
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
        return normal(updates, (limit, since.max(now)), places).tagged(tag(now)).into();
    };
    let timeout = timeout.map_or(MAX_WAIT, Duration::from_millis).min(MAX_WAIT);
    // A heartbeat keeps a feed open for as long as its client is connected.
    let timeout = if heartbeat.is_some() { Duration::MAX } else { timeout };
    Routed::Feed(Feed { kind, since, limit, timeout, heartbeat, places })
}

/// `GET /_global_changes`.
pub(super) fn database(inner: &Inner, ask: &ParsedRequest) -> Routed {
    if let Some(refused) = admin_only(ask) {
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

/// The sequences of one `_global_changes`.
#[derive(Clone, Copy, Debug)]
struct Places {
    instance: u64,
}

impl Places {
    fn of(inner: &Inner) -> Self {
        Self { instance: inner.world.updates_instance() }
    }

    /// A sequence as it is sent.
    fn packed(self, seq: u64) -> String {
        format!("{seq}-g1AAAA{:016x}{:016x}", mix(seq, 1), mix(self.instance, 2))
    }

    /// The number of a sequence; zero for one of another instance, because CouchDB starts unknown shards
    /// from the beginning.
    fn read(self, text: &str) -> Option<u64> {
        let (number, rest) = text.split_once('-').unwrap_or((text, ""));
        let number = number.parse().ok()?;
        let other = rest.starts_with("g1AAAA")
            && !rest.ends_with(&format!("{:016x}", mix(self.instance, 2)));
        Some(if other { 0 } else { number })
    }
}

fn row(update: &Update, places: Places) -> Value {
    value!({"db_name": update.db, "type": update.kind.label(), "seq": places.packed(update.seq)})
}

/// All rows at once. If rows were left out, the last sequence is that of the last row.
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
            Routed::Feed(Feed {
                kind: Kind::Map,
                since,
                limit,
                timeout,
                heartbeat: None,
                places: Places::of(inner),
            })
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
        // Sequences of the start are the databases in order.
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
    /// Waits for the feed's events.
    pub(super) async fn answer(self, cluster: Cluster, node: &str) -> Answer {
        match self.kind {
            Kind::Longpoll => self.longpoll(&cluster).await,
            Kind::Map => self.map(&cluster).await,
            Kind::Continuous => {
                let open = Open::new(self, cluster, node);
                stream("application/json", Body::from_stream(streams::unfold(open, Open::next)))
            }
            Kind::EventSource => {
                let open = Open::new(self, cluster, node);
                stream("text/event-stream", Body::from_stream(streams::unfold(open, Open::event)))
            }
        }
    }

    async fn longpoll(self, cluster: &Cluster) -> Answer {
        let begun = Instant::now();
        loop {
            let (updates, now) =
                cluster.world(|world| (world.updates(self.since), world.updates_seq()));
            if !updates.is_empty() || begun.elapsed() >= self.timeout {
                return normal(updates, (self.limit, now), self.places);
            }
            let left = self.timeout.saturating_sub(begun.elapsed());
            tokio::time::sleep(left.min(WRITE_DELAY)).await;
        }
    }

    async fn map(self, cluster: &Cluster) -> Answer {
        let begun = Instant::now();
        loop {
            let (any, answer) = cluster.locked(|inner| map_rows(inner, self.since, self.limit));
            if any || begun.elapsed() >= self.timeout {
                return answer;
            }
            let left = self.timeout.saturating_sub(begun.elapsed());
            tokio::time::sleep(left.min(WRITE_DELAY)).await;
        }
    }
}

/// An open feed.
struct Open {
    feed: Feed,
    cluster: Cluster,
    /// When it last sent something.
    last_sent: Instant,
    ended: bool,
    /// The responding node, and how often it had stopped when the feed began.
    node: Arc<str>,
    stops: Option<u64>,
}

/// The next chunk of a body, and what follows.
type Piece = Option<(io::Result<Bytes>, Open)>;

impl Open {
    fn new(feed: Feed, cluster: Cluster, node: &str) -> Self {
        let stops = cluster.world(|world| world.stops(node));
        Self { feed, cluster, last_sent: Instant::now(), ended: false, node: node.into(), stops }
    }

    /// Whether the node has stopped since, which broke every connection to it.
    fn is_broken(&self) -> bool {
        self.cluster.world(|world| world.stops(&self.node)) != self.stops
    }

    /// Whether its `_global_changes` still exists.
    fn is_there(&self) -> bool {
        let instance = self.feed.places.instance;
        self.cluster
            .world(|world| world.has_global_changes() && world.updates_instance() == instance)
    }

    /// The end of a broken connection.
    fn broken(mut self) -> Piece {
        self.ended = true;
        Some((Err(io::Error::from(io::ErrorKind::ConnectionReset)), self))
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
            let left = quiet.saturating_sub(self.last_sent.elapsed());
            if left.is_zero() {
                self.last_sent = Instant::now();
                return None;
            }
            tokio::time::sleep(left.min(WRITE_DELAY)).await;
        }
    }

    async fn next(mut self) -> Piece {
        if self.ended {
            return None;
        }
        let event = if self.feed.limit == 0 { None } else { self.wait().await };
        let text = match event {
            _ if self.is_broken() => return self.broken(),
            Some(updates) => updates.iter().fold(String::new(), |mut text, update| {
                text.push_str(&row(update, self.feed.places).to_string());
                text.push('\n');
                text
            }),
            None if self.beats() => "\n".to_owned(),
            None => {
                self.ended = true;
                format!("{}\n", value!({"last_seq": self.feed.places.packed(self.feed.since)}))
            }
        };
        Some((Ok(text.into()), self))
    }

    /// Whether a silence ends with a heartbeat instead of the feed's end.
    fn beats(&self) -> bool {
        self.is_there() && self.feed.heartbeat.is_some() && self.feed.limit > 0
    }

    /// The raw changes of an event source, which ends at the first heartbeat.
    async fn event(mut self) -> Piece {
        if self.ended {
            return None;
        }
        let text = match self.wait().await {
            _ if self.is_broken() => return self.broken(),
            Some(updates) => updates.iter().fold(String::new(), |mut text, update| {
                let id = format!("{}:{}", update.kind.label(), update.db);
                let seq = self.feed.places.packed(update.seq);
                let change = value!({"seq": seq, "id": id, "changes": [{"rev": revision(&id)}]});
                text.push_str(&["data: ", &change.to_string(), "\nid: ", &seq, "\n\n"].concat());
                text
            }),
            None => {
                self.ended = true;
                "event: heartbeat\ndata: \n\n".to_owned()
            }
        };
        Some((Ok(text.into()), self))
    }
}
