//! How the shards of a sweep were read, so that a common cause of nearly all failures is reported
//! only once.

use crate::{sources::inventory::ReadError, table::NodeIx, text::counted};
use std::collections::{BTreeMap, BTreeSet};

/// One in this many of a node's shards without a file makes that an error of the node: its sums are then
/// off by more than predictions are, and a map that lags behind a deletion does not explain it.
const ABSENT_ERROR_SHARE: usize = 20;

/// Maximum number of databases with missing shard files that a sentence names.
const NAMED_DATABASES: usize = 3;

/// The failed reads of a sweep's shards.
#[derive(Debug, Default)]
pub(in crate::scan) struct ShardReads {
    /// How many failed, by reason and node.
    failed: BTreeMap<&'static str, BTreeMap<NodeIx, usize>>,
    /// The last error, by reason.
    messages: BTreeMap<&'static str, String>,
    /// The number of shards that the shard map lists and that have no file, by node.
    absent: BTreeMap<NodeIx, usize>,
    /// The databases of those shards.
    absent_dbs: BTreeSet<Box<str>>,
    /// Whether some node has too many of those shards to call it well read.
    absent_is_error: bool,
}

impl ShardReads {
    /// Records a failed read of one shard; missing rights are reported elsewhere.
    pub(in crate::scan) fn failed(&mut self, node: NodeIx, unread: &ReadError) {
        if unread.right.is_none() {
            self.messages.insert(unread.reason, unread.message.clone());
            *self.failed.entry(unread.reason).or_default().entry(node).or_default() += 1;
        }
    }

    /// Records a shard of `db` that the shard map lists but whose file does not exist.
    pub(in crate::scan) fn absent(&mut self, node: NodeIx, db: &str) {
        *self.absent.entry(node).or_default() += 1;
        if !self.absent_dbs.contains(db) {
            self.absent_dbs.insert(db.into());
        }
    }

    /// The error of a node on which too many of the `shards` listed have no file.
    pub(in crate::scan) fn absent_error(
        &mut self,
        node: NodeIx,
        shards: impl Fn() -> usize,
    ) -> Option<ReadError> {
        let (absent, shards) = (*self.absent.get(&node)?, shards());
        if absent.saturating_mul(ABSENT_ERROR_SHARE) < shards {
            return None;
        }
        self.absent_is_error = true;
        let message = format!("{absent} of its {shards} listed shards have no file");
        Some(ReadError { reason: "no_file", message, right: None })
    }

    /// Which listed shards have no file, in a sentence, and whether that is an error.
    pub(in crate::scan) fn absent_shards(
        &self,
        shards: impl Fn() -> usize,
    ) -> Option<(String, bool)> {
        let absent: usize = self.absent.values().sum();
        if absent == 0 {
            return None;
        }
        let mut names: Vec<String> =
            self.absent_dbs.iter().take(NAMED_DATABASES).map(ToString::to_string).collect();
        let more = self.absent_dbs.len().saturating_sub(NAMED_DATABASES);
        if more > 0 {
            names.push(counted(more as u64, "more database", "more databases"));
        }
        let likely = if self.absent_is_error {
            "the shard map lists copies that are not on their nodes: files were lost, or a node uses another directory"
        } else {
            "the shard map may not show a recent deletion yet; if the next scan finds this again, files were lost"
        };
        let (shards, names) = (shards(), names.join(", "));
        let says = format!(
            "{absent} of {shards} listed shards have no file on their node ({names}), so sums are lower bounds: {likely}"
        );
        Some((says, self.absent_is_error))
    }

    /// What prevented nearly all of `shards` from being read, in a sentence.
    pub(in crate::scan) fn common_cause(&self, shards: impl Fn() -> usize) -> Option<String> {
        let shards = if self.failed.is_empty() { 0 } else { shards() };
        self.failed.iter().find_map(|(reason, nodes)| {
            let failed: usize = nodes.values().sum();
            let message = self.messages.get(reason).filter(|_| is_nearly_all(failed, shards))?;
            Some(format!("{failed} of {shards} shards could not be read: {message}"))
        })
    }
}

const fn is_nearly_all(part: usize, all: usize) -> bool {
    part > 0 && part.saturating_mul(10) >= all.saturating_mul(9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeIx {
        NodeIx::from_usize(1).unwrap()
    }

    #[test]
    fn reports_common_cause_of_nearly_all_failures() {
        let read = |reason: &'static str, right: Option<&'static str>, times| {
            let mut reads = ShardReads::default();
            let unread = ReadError { reason, message: format!("{reason} happened"), right };
            (0..times).for_each(|_| reads.failed(node(), &unread));
            reads
        };
        let cause = read("proxy", None, 86).common_cause(|| 88);
        let expected = "86 of 88 shards could not be read: proxy happened";
        assert_eq!(cause.as_deref(), Some(expected));
        for few in
            [read("proxy", None, 79), read("forbidden", Some("members"), 88), ShardReads::default()]
        {
            assert_eq!(few.common_cause(|| 88), None);
        }
        assert_eq!(read("proxy", None, 0).common_cause(|| 0), None);
    }

    #[test]
    fn shards_without_file_are_an_error_from_five_percent_on() {
        for (absent, shards, is_error) in [(4, 100, false), (5, 100, true), (1, 8, true)] {
            let mut reads = ShardReads::default();
            (0..absent).for_each(|at| reads.absent(node(), &format!("db{at}")));
            let error = reads.absent_error(node(), || shards);
            assert_eq!(error.is_some(), is_error, "{absent} of {shards}");
            let (says, judged) = reads.absent_shards(|| shards).unwrap();
            assert_eq!(judged, is_error);
            assert!(says.starts_with(&format!("{absent} of {shards} listed shards")), "{says}");
            assert_eq!(reads.common_cause(|| shards), None);
        }
        assert_eq!(ShardReads::default().absent_shards(|| 9), None);
    }

    #[test]
    fn message_names_at_most_three_databases_without_files() {
        let mut reads = ShardReads::default();
        ["e", "a", "a", "b", "c", "d"].iter().for_each(|db| reads.absent(node(), db));
        let (says, _) = reads.absent_shards(|| 200).unwrap();
        assert!(
            says.contains("have no file on their node (a, b, c, 2 more databases), so"),
            "{says}"
        );
    }
}
