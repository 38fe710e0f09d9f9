//! Log lines for operators: whether CouchDB and its nodes answer, when the first sweep ended, and
//! which rights the login lacks.
//!
//! Owns what it has logged. Reads once a second what other tasks published; sends no requests and
//! makes no decisions. A lasting problem is logged once and then at growing intervals, and one
//! cause gives one line: while no URL answers, nothing is logged about single URLs and nodes.

mod outage;

use crate::{
    plan::pressure::Pressures,
    scan::Status,
    sources::couchdb::describe,
    table::{NodeIx, Snapshot},
    text::duration,
};
use couchdb_client::{Client, Entry};
use outage::{News, Outage};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::watch as latest,
    time::{self, Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;

/// Interval between checks.
const LOOK: Duration = Duration::from_secs(1);

/// How long CouchDB as a whole may be silent before that is logged.
const GRACE: Duration = Duration::from_secs(3);
/// The same for one of several URLs, or one node, while others answer.
const GRACE_OF_ONE: Duration = Duration::from_secs(10);

/// The task that reads published state and logs.
#[derive(Debug)]
pub(super) struct Task {
    client: latest::Receiver<Client>,
    status: latest::Receiver<Arc<Status>>,
    snapshots: latest::Receiver<Arc<Snapshot>>,
    pressures: latest::Receiver<Arc<Pressures>>,
    entries: latest::Sender<Arc<[Entry]>>,
    log: OperatorLog,
}

impl Task {
    /// Creates the task, and a receiver for the state of the configured URLs.
    pub(super) fn new(
        client: latest::Receiver<Client>,
        status: latest::Receiver<Arc<Status>>,
        snapshots: latest::Receiver<Arc<Snapshot>>,
        pressures: latest::Receiver<Arc<Pressures>>,
    ) -> (Self, latest::Receiver<Arc<[Entry]>>) {
        let (entries, reader) = latest::channel(client.borrow().entries(describe).into());
        let log = OperatorLog::default();
        (Self { client, status, snapshots, pressures, entries, log }, reader)
    }

    /// Checks once a second until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let (began, mut ticks) = (Instant::now(), time::interval(LOOK));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let (entries, login_refused) = {
                let client = self.client.borrow();
                (client.entries(describe), client.is_login_refused())
            };
            let look = Look {
                now: began.elapsed(),
                entries: &entries,
                login_refused,
                status: &Arc::clone(&self.status.borrow()),
                snapshot: &Arc::clone(&self.snapshots.borrow()),
                pressures: &Arc::clone(&self.pressures.borrow()),
            };
            self.log.look(&look).iter().for_each(Line::write);
            self.entries.send_if_modified(|published| {
                let news = **published != *entries;
                if news {
                    *published = entries.into();
                }
                news
            });
        }
    }
}

/// The state at one moment.
struct Look<'a> {
    /// Time since the start.
    now: Duration,
    entries: &'a [Entry],
    /// Whether nothing is sent because the login was refused; the client logs that itself.
    login_refused: bool,
    status: &'a Status,
    snapshot: &'a Snapshot,
    pressures: &'a Pressures,
}

/// What has been logged.
#[derive(Debug, Default)]
struct OperatorLog {
    couchdb: Outage,
    /// Whether CouchDB ever answered.
    answered: bool,
    /// CouchDB answers, but the cluster cannot be read.
    reading: Outage,
    urls: BTreeMap<String, Outage>,
    nodes: BTreeMap<String, Outage>,
    rights: BTreeSet<String>,
    swept: bool,
}

/// One log line.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    CouchDb { urls: String, why: String, news: News, before: bool },
    Reading { why: String, news: News },
    Url { url: String, why: String, news: News },
    Node { node: String, news: News },
    MissingRight(String),
    FirstSweep { nodes: u64, nodes_down: u64, targets: u64, failed_reads: u64, took: Duration },
}

impl OperatorLog {
    fn look(&mut self, look: &Look<'_>) -> Vec<Line> {
        let mut lines = Vec::new();
        let answers = self.couchdb(look, &mut lines);
        if answers {
            self.urls(look, &mut lines);
            let why = look.status.problem.clone();
            let unread = why.is_some() && !look.login_refused;
            if let Some(news) = self.reading.look(unread, GRACE, look.now) {
                lines.push(Line::Reading { why: why.unwrap_or_default(), news });
            }
            if look.status.problem.is_none() {
                self.nodes(look, &mut lines);
            }
        }
        for right in &look.status.missing_rights {
            if self.rights.insert(right.clone()) {
                lines.push(Line::MissingRight(right.clone()));
            }
        }
        if !self.swept && look.status.ready {
            self.swept = true;
            lines.push(first_sweep(look));
        }
        lines
    }

    /// Whether CouchDB answers at any of its URLs, or is not used over HTTP at all.
    fn couchdb(&mut self, look: &Look<'_>, lines: &mut Vec<Line>) -> bool {
        if look.entries.is_empty() {
            return true;
        }
        let up = look.entries.iter().any(|entry| entry.up == Some(true));
        let asked = look.entries.iter().any(|entry| entry.up.is_some());
        let before = self.answered;
        self.answered |= up;
        // After a reload, nothing is known until the next request. At the start, an answer is
        // overdue after a while even if no request has failed yet.
        if !up && !asked && (before || look.login_refused) {
            return false;
        }
        if let Some(news) = self.couchdb.look(!up, GRACE, look.now) {
            let urls: Vec<&str> = look.entries.iter().map(|entry| entry.url.as_str()).collect();
            let why = look.entries.iter().find_map(|entry| entry.why.clone());
            let why = why.unwrap_or_else(|| "no answer so far".to_owned());
            lines.push(Line::CouchDb { urls: urls.join(" "), why, news, before });
        }
        up
    }

    /// Checks single URLs while others answer.
    fn urls(&mut self, look: &Look<'_>, lines: &mut Vec<Line>) {
        self.urls.retain(|url, _| look.entries.iter().any(|entry| entry.url.as_str() == url));
        for entry in look.entries {
            let Some(up) = entry.up else { continue };
            let outage = self.urls.entry(entry.url.to_string()).or_default();
            if let Some(news) = outage.look(!up, GRACE_OF_ONE, look.now) {
                let why = entry.why.clone().unwrap_or_default();
                lines.push(Line::Url { url: entry.url.to_string(), why, news });
            }
        }
    }

    fn nodes(&mut self, look: &Look<'_>, lines: &mut Vec<Line>) {
        // The pressure probe detects a silent node before the next sweep.
        let silent = |at: usize| {
            let pressure = NodeIx::from_usize(at).and_then(|ix| look.pressures.nodes.get(&ix));
            pressure.is_some_and(|pressure| pressure.silent)
        };
        let nodes = look.snapshot.nodes().iter().enumerate().skip(1);
        let served: BTreeMap<&str, Option<bool>> = nodes
            .filter(|(_, node)| node.member && node.served)
            .map(|(at, node)| (&*node.name, node.up.map(|up| up && !silent(at))))
            .collect();
        self.nodes.retain(|name, _| served.contains_key(&**name));
        for (name, up) in served {
            let Some(up) = up else { continue };
            let outage = self.nodes.entry(name.to_owned()).or_default();
            if let Some(news) = outage.look(!up, GRACE_OF_ONE, look.now) {
                lines.push(Line::Node { node: name.to_owned(), news });
            }
        }
    }
}

fn first_sweep(look: &Look<'_>) -> Line {
    let nodes = look.snapshot.nodes().iter().skip(1);
    let nodes = nodes.filter(|node| node.member && node.served);
    let (down, there): (Vec<_>, Vec<_>) = nodes.partition(|node| node.up == Some(false));
    Line::FirstSweep {
        nodes: there.len() as u64,
        nodes_down: down.len() as u64,
        targets: look.snapshot.targets().count() as u64,
        failed_reads: look.status.errors.values().sum(),
        took: look.status.last_duration.unwrap_or_default(),
    }
}

impl Line {
    fn write(&self) {
        match self {
            Self::CouchDb { urls, why, news, before } => match news {
                News::Down => tracing::warn!(
                    urls,
                    why,
                    "CouchDB does not answer: nothing is read and nothing is started until it does"
                ),
                News::StillDown(lasts) => {
                    let down_for = duration::shown(*lasts);
                    tracing::warn!(urls, down_for, why, "CouchDB still does not answer");
                }
                News::Up(lasted) if *before => {
                    tracing::info!(urls, after = duration::shown(*lasted), "CouchDB answers again");
                }
                News::Up(lasted) => {
                    tracing::info!(urls, after = duration::shown(*lasted), "CouchDB answers");
                }
            },
            Self::Reading { why, news } => match news {
                News::Down => {
                    tracing::warn!(why, "CouchDB answers, but the cluster cannot be read");
                }
                News::StillDown(lasts) => {
                    tracing::warn!(
                        why,
                        lasts = duration::shown(*lasts),
                        "the cluster still cannot be read"
                    );
                }
                News::Up(lasted) => {
                    tracing::info!(after = duration::shown(*lasted), "the cluster can be read");
                }
            },
            Self::Url { url, why, news } => match news {
                News::Down => {
                    tracing::warn!(url, why, "this URL of CouchDB does not answer, but others do");
                }
                News::StillDown(lasts) => {
                    let down_for = duration::shown(*lasts);
                    tracing::warn!(url, down_for, why, "this URL of CouchDB still does not answer");
                }
                News::Up(lasted) => {
                    tracing::info!(
                        url,
                        after = duration::shown(*lasted),
                        "this URL of CouchDB answers again"
                    );
                }
            },
            Self::Node { node, news } => match news {
                News::Down => tracing::warn!(
                    node,
                    "this CouchDB node does not answer: its facts get stale, and nothing is started there"
                ),
                News::StillDown(lasts) => {
                    let down_for = duration::shown(*lasts);
                    tracing::warn!(node, down_for, "this CouchDB node still does not answer");
                }
                News::Up(lasted) => {
                    tracing::info!(
                        node,
                        after = duration::shown(*lasted),
                        "this CouchDB node answers again"
                    );
                }
            },
            Self::MissingRight(right) => {
                tracing::warn!(
                    right,
                    "the login lacks a right, so recliner cannot read everything"
                );
            }
            Self::FirstSweep { nodes, nodes_down, targets, failed_reads, took } => {
                let positive = |count: u64| (count > 0).then_some(count);
                tracing::info!(
                    nodes,
                    nodes_down = positive(*nodes_down),
                    targets,
                    failed_reads = positive(*failed_reads),
                    took = duration::shown(*took),
                    "first sweep finished"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests;
