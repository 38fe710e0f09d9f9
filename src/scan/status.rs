//! What the scanner says of itself.

use crate::sources::inventory::ReadError;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};
use wall_clock::Moment;

/// What the scanner says of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// Whether one pass over the nodes that answer has ended.
    pub ready: bool,
    /// The first snapshot that holds that pass.
    pub ready_from: Option<u64>,
    /// Sweeps that ended.
    pub sweeps: u64,
    /// Batches of database events that were emitted.
    pub event_batches: u64,
    /// How the last sweep read the shards on nodes that answer.
    pub shards: SweptShards,
    /// The sweep that runs.
    pub progress: Option<Progress>,
    /// How long the last sweep took.
    pub last_duration: Option<Duration>,
    /// When the last sweep ended.
    pub last_end: Option<Moment>,
    /// When a sweep last ended with nothing unread.
    pub last_success: Option<Moment>,
    /// What could not be read, by node and closed word, since the start.
    pub errors: BTreeMap<(Arc<str>, &'static str), u64>,
    /// What was forbidden, in sentences.
    pub missing_rights: BTreeSet<String>,
    /// Why nothing can be read at all.
    pub problem: Option<String>,
    /// The last thing that could not be read, in a sentence.
    pub last_error: Option<String>,
}

impl Status {
    /// Whether this version of the snapshot holds one whole pass.
    #[must_use]
    pub fn is_ready(&self, version: u64) -> bool {
        self.ready && self.ready_from.is_none_or(|from| from <= version)
    }

    /// Counts something of a node that could not be read.
    pub(super) fn count_error(&mut self, node: Arc<str>, unread: &ReadError) {
        *self.errors.entry((node, unread.reason)).or_default() += 1;
        self.missing_rights.extend(unread.right.map(ToOwned::to_owned));
        self.last_error = Some(unread.message.clone());
    }

    /// One target or database was read.
    pub(super) const fn count_progress(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.done += 1;
        }
    }

    /// A sweep ended at a moment, having taken so long; whether any node answered, and whether
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

/// Shards of one sweep, by where their facts come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweptShards {
    /// CouchDB was asked.
    pub asked: u64,
    /// CouchDB was not asked: their headers were read and cover what it would say.
    pub covered: u64,
    /// CouchDB was not asked: feeds confirm their facts, or they are read beside the sweep.
    pub followed: u64,
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// When it began.
    pub since: Moment,
    /// Targets and databases read.
    pub done: usize,
    /// How many there are to read, once that is known.
    pub total: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_node_and_reason_and_a_sweep_ends_with_what_it_found() {
        let unread =
            |reason, right| ReadError { reason, message: format!("{reason} failed"), right };
        let mut status = Status::default();
        status.count_error("a".into(), &unread("timeout", None));
        status.count_error("a".into(), &unread("timeout", None));
        status.count_error("b".into(), &unread("forbidden", Some("members")));
        assert_eq!(status.errors[&(Arc::from("a"), "timeout")], 2);
        assert_eq!(status.errors[&(Arc::from("b"), "forbidden")], 1);
        assert_eq!(status.missing_rights, BTreeSet::from(["members".to_owned()]));
        assert_eq!(status.last_error.as_deref(), Some("forbidden failed"));

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
    fn a_snapshot_is_ready_from_the_first_that_holds_a_whole_pass() {
        let mut status = Status::default();
        assert!(!status.is_ready(9));
        status.ready = true;
        assert!(status.is_ready(1), "where no snapshot is named, all are");
        status.ready_from = Some(3);
        assert_eq!([2, 3, 4].map(|version| status.is_ready(version)), [false, true, true]);
    }
}
