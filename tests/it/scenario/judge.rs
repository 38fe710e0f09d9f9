//! The judge: reads the requests on the wire, the simulated world's record of compactions, and the
//! journal, but none of recliner's own statements.
//!
//! Each law is a function of a [`Record`] alone, so that handmade wrong histories can test that
//! breaches are found.

mod journal;
mod limits;
#[cfg(test)]
mod tests;

use crate::support::recording_store::Entry;
use couchdb_sim::{Compaction, Exchange};
use percent_encoding::percent_decode_str;
use recliner::{
    model::settings::Settings,
    plan::Plan,
    serve::report::{Planned, RefusedLine, Wanted},
};
use std::{collections::BTreeMap, time::Duration};
use wall_clock::Moment;

/// The settings in force from a moment on.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// The beginning, since the cluster's start.
    pub(crate) from: Duration,
    pub(crate) settings: Settings,
}

/// All evidence for the judge. Times are since the cluster's start.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// Wall time at the cluster's start.
    pub(crate) start: Moment,
    pub(crate) now: Duration,
    /// Requests to CouchDB that are more than reads.
    pub(crate) orders: Vec<Exchange>,
    pub(crate) compactions: Vec<Compaction>,
    pub(crate) kept: Vec<Entry>,
    pub(crate) lives: Vec<Life>,
    /// The offset of recliner's clock in seconds, from each time on.
    pub(crate) clock: Vec<(Duration, i64)>,
    /// When an operator released quarantined targets.
    pub(crate) released: Vec<Duration>,
    /// Notes that a scenario adds.
    pub(crate) notes: Vec<(Duration, String)>,
}

impl Record {
    /// The record of a cluster and a process that begin now.
    pub(crate) fn beginning(start: Moment, settings: &Settings) -> Self {
        let settings = settings.clone();
        Self {
            start,
            now: Duration::ZERO,
            orders: Vec::new(),
            compactions: Vec::new(),
            kept: Vec::new(),
            lives: vec![Life { from: Duration::ZERO, settings }],
            clock: Vec::new(),
            released: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The settings in force at a time.
    fn settings(&self, at: Duration) -> &Settings {
        let life = self.lives.iter().rev().find(|life| life.from <= at);
        &life.or_else(|| self.lives.first()).expect("something was in force").settings
    }

    /// The time on recliner's clock.
    fn wall(&self, at: Duration) -> Moment {
        let ahead = self.clock.iter().rev().find(|(from, _)| *from <= at).map_or(0, |(_, by)| *by);
        Moment::from_unix(self.start.plus(at).unix().saturating_add_signed(ahead))
    }

    /// Every request for a compaction or cleanup: its position among the orders, the request, and
    /// what it asks for.
    fn starts(&self) -> impl Iterator<Item = (usize, &Exchange, Asked)> {
        let orders = self.orders.iter().enumerate();
        orders.filter_map(|(at, order)| Some((at, order, Asked::of(order)?)))
    }

    /// The compactions that a request started.
    fn begun<'a>(&'a self, order: &Exchange, asked: &Asked) -> Vec<&'a Compaction> {
        let at = order.at;
        self.compactions.iter().filter(|it| it.began == at && asked.means(it)).collect()
    }
}

/// What a request asks CouchDB to compact or to clean up.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Asked {
    /// One file: a shard, or a design document's index on it.
    File { node: String, shard: String, ddoc: Option<String> },
    /// Every copy of an index.
    Whole { db: String, ddoc: String },
    /// The index files that no design document uses.
    Cleanup { db: String },
}

impl Asked {
    fn of(order: &Exchange) -> Option<Self> {
        if order.method != http::Method::POST {
            return None;
        }
        let parts: Vec<String> = order
            .path
            .trim_start_matches('/')
            .split('/')
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let id = |name: &str| format!("_design/{name}");
        Some(match *parts {
            ["_node", node, shard, "_compact"] if shard.starts_with("shards/") => {
                Self::File { node: node.into(), shard: shard.into(), ddoc: None }
            }
            ["_node", node, shard, "_compact", name] if shard.starts_with("shards/") => {
                Self::File { node: node.into(), shard: shard.into(), ddoc: Some(id(name)) }
            }
            [db, "_compact", name] => Self::Whole { db: db.into(), ddoc: id(name) },
            [db, "_view_cleanup"] => Self::Cleanup { db: db.into() },
            _ => return None,
        })
    }

    /// Whether a compaction is one that was asked for.
    fn means(&self, one: &Compaction) -> bool {
        match self {
            Self::File { node, shard, ddoc } => {
                (&one.node, &one.shard, &one.ddoc) == (node, shard, ddoc)
            }
            Self::Whole { db, ddoc } => {
                let of = couchdb_names::ShardName::split(&one.shard);
                of.is_some_and(|of| of.db == *db) && one.ddoc.as_ref() == Some(ddoc)
            }
            Self::Cleanup { .. } => false,
        }
    }
}

/// All breaches of the laws, as sentences.
pub(crate) fn breaches(record: &Record) -> Vec<String> {
    let mut broken = unexpected_requests(record);
    broken.extend(limits::breaches(record));
    broken.extend(journal::breaches(record));
    broken
}

/// Requests that must never be sent, and requests without an effect.
fn unexpected_requests(record: &Record) -> Vec<String> {
    let mut broken = Vec::new();
    for order in &record.orders {
        let may =
            Asked::of(order).is_some() || is_takeover(record, order) || is_build(record, order);
        if !may {
            broken.push(format!("{} {} was sent", order.method, order.path));
        }
    }
    for (_, order, asked) in record.starts() {
        let starts = order.status == 202 && !matches!(asked, Asked::Cleanup { .. });
        if starts && record.begun(order, &asked).is_empty() {
            broken.push(format!("{} at {:?} started what ran already", order.path, order.at));
        }
    }
    broken
}

/// Whether a request builds an index while that was enabled: a view without waiting for it, a
/// search index by its only kind of query.
fn is_build(record: &Record, order: &Exchange) -> bool {
    let life = record.lives.iter().rfind(|life| life.from <= order.at);
    let enabled = life.is_some_and(|life| {
        life.settings.warmer.enabled
            && life.settings.mode == recliner::model::channel::Mode::Enforce
    });
    let lazy = order.path.ends_with("?limit=0&update=lazy") && order.path.contains("/_view/");
    let search = ["/_nouveau/", "/_search/"].iter().any(|query| order.path.contains(query))
        && order.path.ends_with("?q=*:*&limit=1");
    order.method == http::Method::GET && (lazy || search) && enabled
}

/// Whether a request takes over, or restores, a channel of smoosh that is configured for takeover.
fn is_takeover(record: &Record, order: &Exchange) -> bool {
    let ours = |channel: &str| {
        let lives = record.lives.iter();
        lives.flat_map(|life| &life.settings.smoosh.takeover).any(|name| name == channel)
    };
    let written = order.method == http::Method::PUT || order.method == http::Method::DELETE;
    let parts: Vec<&str> = order.path.trim_start_matches('/').split('/').collect();
    let channel = match *parts {
        ["_node", _, "_config", section, "concurrency"] => section.strip_prefix("smoosh."),
        ["_node", _, "_config", "recliner", key] => {
            key.strip_prefix("smoosh.").and_then(|key| key.strip_suffix(".concurrency"))
        }
        _ => None,
    };
    written && channel.is_some_and(ours)
}

/// Queued targets that `/api/v1/plan` does not decide exactly once, as sentences.
pub(crate) fn undecided(plan: &Plan) -> Vec<String> {
    let shown = Planned::of(plan, Wanted { limit: usize::MAX, ..Wanted::default() });
    let mut decided: BTreeMap<&str, usize> = BTreeMap::new();
    let starts = shown.starts.iter().map(|line| line.id.as_str());
    for id in starts.chain(shown.refused.iter().map(|line| line.id.as_str())) {
        *decided.entry(id).or_default() += 1;
    }
    let mut broken: Vec<String> = decided
        .iter()
        .filter(|(_, times)| **times != 1)
        .map(|(id, times)| format!("{id} is decided {times} times"))
        .collect();
    for (queue, counts) in plan.queues.iter().zip(plan.decision_counts.iter()) {
        for ix in queue.queued() {
            let id = plan.snapshot.target(ix).map(|target| target.id().to_string());
            if !id.as_ref().is_some_and(|id| decided.contains_key(id.as_str())) {
                broken.push(format!("{id:?} waits and is not decided"));
            }
        }
        let all = counts.starts + counts.refusals_by_reason().map(|(_, count)| count).sum::<u64>();
        // Partly compacted views and ordered targets may be candidates without being queued.
        let history = &plan.conditions.constraints;
        let beside = (history.partly_compacted_views.len() + history.orders.len()) as u64;
        let waiting = queue.queued().len() as u64;
        if !(waiting..=waiting + beside).contains(&all) {
            broken.push(format!("{all} are counted where {waiting} wait: {counts:?}"));
        }
    }
    broken.extend(shown.refused.iter().filter_map(|line| contradiction(plan, line)));
    broken
}

/// Whether a line both promises much space and says that a compaction would be futile.
fn contradiction(plan: &Plan, line: &RefusedLine) -> Option<String> {
    let target = plan.snapshot.targets().find(|target| target.id().to_string() == line.id)?;
    let (file, forecast) = (target.file_bytes()?, plan.forecast(target));
    let promises = forecast.confidence == "high" && forecast.reclaimable_bytes? > file / 20;
    (line.refusal.reason == "futile" && promises)
        .then(|| format!("{} is futile and promises {forecast:?}", line.id))
}
