//! The state that the scanner publishes.

use crate::sources::inventory::ReadError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// The state that the scanner publishes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScanStatus {
    /// Whether one pass over the responding nodes has ended.
    pub ready: bool,
    /// The first snapshot with that complete pass.
    pub ready_from: Option<u64>,
    /// The number of finished sweeps.
    pub sweeps: u64,
    /// The number of emitted batches of database events.
    pub event_batches: u64,
    /// The sources of shard facts in the last sweep.
    pub shards: SweptShards,
    /// The progress of the running sweep.
    pub progress: Option<Progress>,
    /// The duration of the last sweep.
    pub last_duration: Option<Duration>,
    /// When the last sweep ended.
    pub last_end: Option<Moment>,
    /// When the last sweep without read errors ended.
    pub last_success: Option<Moment>,
    /// The number of read errors since the start, by node and reason.
    pub errors: BTreeMap<(Arc<str>, &'static str), u64>,
    /// The sidecars under `peers` that were asked, by URL.
    pub peers: BTreeMap<Arc<str>, PeerStatus>,
    /// Since when the cluster has had the same members, as far as this process has seen.
    pub members_since: Option<Moment>,
    /// The missing rights, as sentences.
    pub missing_rights: BTreeSet<String>,
    /// Why nothing at all can be read.
    pub problem: Option<String>,
    /// What prevented many shards from being read in the last sweep, as a sentence.
    pub unread_shards: Option<String>,
    /// Which shards, few in number, were listed without a file in the last sweep, as a sentence.
    pub absent_shards: Option<String>,
    /// The last read error, as a sentence. It stays after a recovery, so it has a time.
    pub last_error: Option<String>,
    /// When the last read error was observed.
    pub last_error_at: Option<Moment>,
}

/// How a sidecar answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerStatus {
    /// The nodes whose files it reads, according to its last answer.
    pub nodes: Vec<Arc<str>>,
    /// When it last answered.
    pub last_answer: Option<Moment>,
    /// Why the last request failed, if it did.
    pub problem: Option<String>,
}

impl ScanStatus {
    /// Whether this version of the snapshot contains a complete pass.
    pub fn is_ready(&self, version: u64) -> bool {
        self.ready && self.ready_from.is_none_or(|from| from <= version)
    }

    /// Counts a read error of a node.
    pub(super) fn count_error(&mut self, node: Arc<str>, unread: &ReadError, now: Moment) {
        *self.errors.entry((node, unread.reason)).or_default() += 1;
        self.missing_rights.extend(unread.right.map(ToOwned::to_owned));
        (self.last_error, self.last_error_at) = (Some(unread.message.clone()), Some(now));
    }

    /// Records that a sidecar responded for these nodes, or did not.
    pub(super) fn peer_ended(
        &mut self,
        peer: &Arc<str>,
        nodes: &Result<BTreeSet<Arc<str>>, ReadError>,
        now: Moment,
    ) {
        let status = self.peers.entry(Arc::clone(peer)).or_default();
        match nodes {
            Ok(nodes) => {
                status.nodes = nodes.iter().cloned().collect();
                (status.last_answer, status.problem) = (Some(now), None);
            }
            Err(unread) => status.problem = Some(unread.message.clone()),
        }
    }

    /// Counts one read target or database.
    pub(super) const fn count_progress(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.done += 1;
        }
    }

    /// Records the end of a sweep: its time and duration, whether any node answered, and whether
    /// everything was read.
    pub(super) fn sweep_ended(
        &mut self,
        (now, took): (Moment, Duration),
        answered: bool,
        success: bool,
    ) {
        self.ready |= answered;
        self.sweeps += 1;
        self.last_duration = Some(took);
        self.last_end = Some(now);
        if success {
            self.last_success = Some(now);
        }
        self.progress = None;
    }
}

/// Number of shards of one sweep, by the source of their facts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SweptShards {
    /// Shards about which CouchDB was asked.
    pub asked: u64,
    /// Shards about which CouchDB was not asked, because the files' headers say the same.
    #[serde(rename = "spared")]
    pub covered: u64,
    /// Shards about which CouchDB was not asked, because the feeds report changes.
    pub followed: u64,
}

/// The progress of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When it began.
    pub since: Moment,
    /// The number of targets and databases read.
    pub done: usize,
    /// The number to read, once known.
    pub total: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_errors_by_node_and_records_end_of_sweep() {
        let unread =
            |reason, right| ReadError { reason, message: format!("{reason} failed"), right };
        let mut status = ScanStatus::default();
        let at = Moment::from_unix;
        status.count_error("a".into(), &unread("timeout", None), at(5));
        status.count_error("a".into(), &unread("timeout", None), at(6));
        status.count_error("b".into(), &unread("forbidden", Some("members")), at(7));
        assert_eq!(status.errors[&(Arc::from("a"), "timeout")], 2);
        assert_eq!(status.errors[&(Arc::from("b"), "forbidden")], 1);
        assert_eq!(status.missing_rights, BTreeSet::from(["members".to_owned()]));
        assert_eq!(status.last_error.as_deref(), Some("forbidden failed"));
        assert_eq!(status.last_error_at, Some(at(7)));

        status.progress = Some(Progress { since: Moment::default(), done: 0, total: None });
        status.count_progress();
        assert_eq!(status.progress.map(|it| it.done), Some(1));
        let (now, took) = (Moment::from_unix(9), Duration::from_secs(3));
        status.sweep_ended((now, took), false, false);
        assert_eq!((status.ready, status.sweeps, status.last_success), (false, 1, None));
        status.sweep_ended((now, took), true, true);
        assert_eq!((status.ready, status.sweeps, status.last_success), (true, 2, Some(now)));
        assert_eq!((status.progress, status.last_duration), (None, Some(took)));
    }

    #[test]
    fn snapshots_are_ready_from_the_first_complete_pass() {
        let mut status = ScanStatus::default();
        assert!(!status.is_ready(9));
        status.ready = true;
        assert!(status.is_ready(1), "all snapshots are ready if no first one is set");
        status.ready_from = Some(3);
        assert_eq!([2, 3, 4].map(|version| status.is_ready(version)), [false, true, true]);
    }
}
