//! Log lines for operators: whether CouchDB and its nodes answer, when the first sweep ended, and
//! which rights the login lacks.
//!
//! Owns what it has logged. Reads once a second what other tasks published; sends no requests and
//! makes no decisions. A lasting problem is logged once and then at growing intervals, and one
//! cause gives one line: while no URL answers, nothing is logged about single URLs and nodes.

mod outage;

use crate::{
    scan::ScanStatus, sources::couchdb::describe, table::Snapshot, tasks::publish_if_changed,
    text::duration,
};
use couchdb_client::{Client, EntryStatus};
use outage::{Outage, OutageNotice};
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

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How long CouchDB as a whole may be silent before the log says so.
const OUTAGE_GRACE: Duration = Duration::from_secs(3);
/// How long one of several URLs, or one node, may be silent, while others answer, before the log says so.
const SINGLE_OUTAGE_GRACE: Duration = Duration::from_secs(10);

/// The task that reads published state and logs.
#[derive(Debug)]
pub(super) struct OperatorLogTask {
    client: latest::Receiver<Client>,
    status: latest::Receiver<Arc<ScanStatus>>,
    snapshots: latest::Receiver<Arc<Snapshot>>,
    entries: latest::Sender<Arc<[EntryStatus]>>,
    log: OperatorLog,
}

impl OperatorLogTask {
    /// Creates the task, and a receiver for the state of the configured URLs.
    pub(super) fn new(
        client: latest::Receiver<Client>,
        status: latest::Receiver<Arc<ScanStatus>>,
        snapshots: latest::Receiver<Arc<Snapshot>>,
    ) -> (Self, latest::Receiver<Arc<[EntryStatus]>>) {
        let (entries, reader) = latest::channel(client.borrow().entries(describe).into());
        let log = OperatorLog::default();
        (Self { client, status, snapshots, entries, log }, reader)
    }

    /// Checks once a second until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let (began, mut ticks) = (Instant::now(), time::interval(CHECK_INTERVAL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let (entries, login_refused) = {
                let client = self.client.borrow();
                (client.entries(describe), client.is_login_refused())
            };
            let observed = ObservedState {
                now: began.elapsed(),
                entries: &entries,
                login_refused,
                status: &Arc::clone(&self.status.borrow()),
                snapshot: &Arc::clone(&self.snapshots.borrow()),
            };
            self.log.check(&observed).iter().for_each(OperatorLogLine::log);
            publish_if_changed(&self.entries, entries);
        }
    }
}

/// The state at one moment.
struct ObservedState<'a> {
    /// Time since the start.
    now: Duration,
    entries: &'a [EntryStatus],
    /// Whether requests are held back because the login was refused; the client logs that itself.
    login_refused: bool,
    status: &'a ScanStatus,
    snapshot: &'a Snapshot,
}

/// What has been logged.
#[derive(Debug, Default)]
struct OperatorLog {
    couchdb_outage: Outage,
    /// Whether CouchDB ever answered.
    ever_answered: bool,
    /// The outage of reads: CouchDB answers, but the cluster cannot be read.
    read_outage: Outage,
    urls: BTreeMap<String, Outage>,
    nodes: BTreeMap<String, Outage>,
    logged_rights: BTreeSet<String>,
    first_sweep_logged: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum OperatorLogLine {
    CouchDbOutage { urls: String, why: String, notice: OutageNotice, before: bool },
    ReadOutage { why: String, notice: OutageNotice },
    UrlOutage { url: String, why: String, notice: OutageNotice },
    NodeOutage { node: String, notice: OutageNotice },
    MissingRight(String),
    FirstSweep { nodes: u64, nodes_down: u64, targets: u64, failed_reads: u64, took: Duration },
}

impl OperatorLog {
    fn check(&mut self, observed: &ObservedState<'_>) -> Vec<OperatorLogLine> {
        let mut lines = Vec::new();
        let answers = self.check_couchdb(observed, &mut lines);
        if answers {
            self.check_urls(observed, &mut lines);
            let why = observed.status.problem.clone();
            let unread = why.is_some() && !observed.login_refused;
            if let Some(notice) = self.read_outage.update(unread, OUTAGE_GRACE, observed.now) {
                lines.push(OperatorLogLine::ReadOutage { why: why.unwrap_or_default(), notice });
            }
            if observed.status.problem.is_none() {
                self.check_nodes(observed, &mut lines);
            }
        }
        for right in &observed.status.missing_rights {
            if self.logged_rights.insert(right.clone()) {
                lines.push(OperatorLogLine::MissingRight(right.clone()));
            }
        }
        if !self.first_sweep_logged
            && observed.status.ready
            && let Some(sweep) = first_sweep(observed)
        {
            self.first_sweep_logged = true;
            lines.push(sweep);
        }
        lines
    }

    /// Whether CouchDB gives usable answers at any of its URLs, or is not used over HTTP at all.
    fn check_couchdb(
        &mut self,
        observed: &ObservedState<'_>,
        lines: &mut Vec<OperatorLogLine>,
    ) -> bool {
        if observed.entries.is_empty() {
            return true;
        }
        let up = observed.entries.iter().any(|entry| entry.up == Some(true));
        let was_asked = observed.entries.iter().any(|entry| entry.up.is_some());
        let before = self.ever_answered;
        self.ever_answered |= up;
        // After a reload, nothing is known until the next request. At the start, a missing answer
        // counts as an outage after a while even if no request has failed.
        if !up && (observed.login_refused || before && !was_asked) {
            return false;
        }
        if let Some(notice) = self.couchdb_outage.update(!up, OUTAGE_GRACE, observed.now) {
            let urls: Vec<&str> = observed.entries.iter().map(|entry| entry.url.as_str()).collect();
            let why = observed.entries.iter().find_map(|entry| entry.why.clone());
            let why = why.unwrap_or_else(|| "no answer so far".to_owned());
            lines.push(OperatorLogLine::CouchDbOutage {
                urls: urls.join(" "),
                why,
                notice,
                before,
            });
        }
        up
    }

    /// Checks single URLs while others answer.
    fn check_urls(&mut self, observed: &ObservedState<'_>, lines: &mut Vec<OperatorLogLine>) {
        self.urls.retain(|url, _| observed.entries.iter().any(|entry| entry.url.as_str() == url));
        for entry in observed.entries {
            let Some(up) = entry.up else { continue };
            let outage = self.urls.entry(entry.url.to_string()).or_default();
            if let Some(notice) = outage.update(!up, SINGLE_OUTAGE_GRACE, observed.now) {
                let why = entry.why.clone().unwrap_or_default();
                lines.push(OperatorLogLine::UrlOutage { url: entry.url.to_string(), why, notice });
            }
        }
    }

    fn check_nodes(&mut self, observed: &ObservedState<'_>, lines: &mut Vec<OperatorLogLine>) {
        let served: BTreeMap<&str, Option<bool>> = (observed.snapshot.members())
            .filter(|(_, node)| node.is_served)
            .map(|(_, node)| (&*node.name, node.is_up))
            .collect();
        self.nodes.retain(|name, _| served.contains_key(&**name));
        for (name, up) in served {
            let Some(up) = up else { continue };
            let outage = self.nodes.entry(name.to_owned()).or_default();
            if let Some(notice) = outage.update(!up, SINGLE_OUTAGE_GRACE, observed.now) {
                lines.push(OperatorLogLine::NodeOutage { node: name.to_owned(), notice });
            }
        }
    }
}

/// The log line for the first sweep; `None` while no node is known.
fn first_sweep(observed: &ObservedState<'_>) -> Option<OperatorLogLine> {
    let nodes = observed.snapshot.nodes().iter().skip(1);
    let nodes = nodes.filter(|node| node.is_member && node.is_served);
    let (down, there): (Vec<_>, Vec<_>) = nodes.partition(|node| node.is_down());
    let is_known = !there.is_empty() || !down.is_empty();
    is_known.then(|| OperatorLogLine::FirstSweep {
        nodes: there.len() as u64,
        nodes_down: down.len() as u64,
        targets: observed.snapshot.targets().count() as u64,
        failed_reads: observed.status.errors.values().sum(),
        took: observed.status.last_duration.unwrap_or_default(),
    })
}

impl OperatorLogLine {
    fn log(&self) {
        match self {
            Self::CouchDbOutage { urls, why, notice, before } => {
                let subject = Subject { urls: Some(urls), ..Subject::default() };
                let again = if *before { "CouchDB answers again" } else { "CouchDB answers" };
                let says = [
                    "CouchDB gives no usable answer: nothing is read or started until it does",
                    "CouchDB still gives no usable answer",
                    again,
                ];
                notice.log(subject, Some(why), says);
            }
            Self::ReadOutage { why, notice } => {
                let says = [
                    "CouchDB answers, but the cluster cannot be read",
                    "the cluster still cannot be read",
                    "the cluster can be read",
                ];
                notice.log(Subject::default(), Some(why), says);
            }
            Self::UrlOutage { url, why, notice } => {
                let subject = Subject { url: Some(url), ..Subject::default() };
                let says = [
                    "this URL of CouchDB gives no usable answer, but others do",
                    "this URL of CouchDB still gives no usable answer",
                    "this URL of CouchDB answers again",
                ];
                notice.log(subject, Some(why), says);
            }
            Self::NodeOutage { node, notice } => {
                let subject = Subject { node: Some(node), ..Subject::default() };
                let says = [
                    "this CouchDB node does not answer: its facts become stale, and nothing starts there",
                    "this CouchDB node still does not answer",
                    "this CouchDB node answers again",
                ];
                notice.log(subject, None, says);
            }
            Self::MissingRight(right) => {
                tracing::warn!(why = right, "recliner's login may not read everything");
            }
            Self::FirstSweep { nodes, nodes_down, targets, failed_reads, took } => {
                let positive = |count: u64| (count > 0).then_some(count);
                tracing::info!(
                    nodes,
                    nodes_down = positive(*nodes_down),
                    targets,
                    failed_reads = positive(*failed_reads),
                    took = duration::format_rounded(*took),
                    "first sweep finished"
                );
            }
        }
    }
}

/// What is down; fields without a value are left out of the line.
#[derive(Clone, Copy, Default)]
struct Subject<'a> {
    urls: Option<&'a str>,
    url: Option<&'a str>,
    node: Option<&'a str>,
}

impl OutageNotice {
    /// Logs one of three sentences: for the start of the outage, a reminder, and its end.
    fn log(self, Subject { urls, url, node }: Subject<'_>, why: Option<&str>, says: [&str; 3]) {
        let [down, still, up] = says;
        match self {
            Self::Down => tracing::warn!(urls, url, node, why, "{down}"),
            Self::StillDown(lasts) => {
                let down_for = duration::format_rounded(lasts);
                tracing::warn!(urls, url, node, down_for, why, "{still}");
            }
            Self::Up(lasted) => {
                let after = duration::format_rounded(lasted);
                tracing::info!(urls, url, node, after, "{up}");
            }
        }
    }
}

#[cfg(test)]
mod tests;
