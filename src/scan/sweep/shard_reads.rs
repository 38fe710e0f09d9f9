//! How the shards of a sweep were read, so that a common cause of nearly all failures is reported
//! once.

use crate::{sources::inventory::ReadError, table::NodeIx};
use std::collections::BTreeMap;

/// The reason for shards that were listed and then not found.
const NOT_FOUND: &str = "not_found";

/// Minimum number of shards not found that counts as an error: fewer may have been deleted since
/// they were listed.
const MIN_NOT_FOUND: usize = 10;

/// The failed reads of a sweep's shards.
#[derive(Debug, Default)]
pub(in crate::scan) struct ShardReads {
    /// How many failed, by reason and node.
    failed: BTreeMap<&'static str, BTreeMap<NodeIx, usize>>,
    /// The last error, by reason.
    messages: BTreeMap<&'static str, String>,
}

impl ShardReads {
    /// Records the result for one shard; missing rights are reported elsewhere.
    pub(in crate::scan) fn record(&mut self, node: NodeIx, there: &Result<bool, ReadError>) {
        let reason = match there {
            Ok(true) => return,
            Ok(false) => NOT_FOUND,
            Err(unread) if unread.right.is_some() => return,
            Err(unread) => {
                self.messages.insert(unread.reason, unread.message.clone());
                unread.reason
            }
        };
        *self.failed.entry(reason).or_default().entry(node).or_default() += 1;
    }

    /// The error of a node on which nearly all of the `shards` listed were not found.
    pub(in crate::scan) fn not_found(
        &mut self,
        node: NodeIx,
        shards: impl Fn() -> usize,
    ) -> Option<ReadError> {
        let missing = *self.failed.get(NOT_FOUND)?.get(&node)?;
        if missing < MIN_NOT_FOUND || !is_nearly_all(missing, shards()) {
            return None;
        }
        let message = "they were listed and then not found; does a proxy between here and CouchDB change %2F in paths?".to_owned();
        self.messages.insert(NOT_FOUND, message.clone());
        Some(ReadError { reason: NOT_FOUND, message, right: None })
    }

    /// What kept nearly all of `shards` from being read, in a sentence.
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

    fn error(reason: &'static str, right: Option<&'static str>) -> Result<bool, ReadError> {
        Err(ReadError { reason, message: format!("{reason} happened"), right })
    }

    #[test]
    fn reports_common_cause_of_nearly_all_failures() {
        let node = NodeIx::from_usize(1).unwrap();
        let read = |there: Result<bool, ReadError>, times| {
            let mut reads = ShardReads::default();
            (0..times).for_each(|_| reads.record(node, &there));
            reads
        };
        let cause = read(error("proxy", None), 86).common_cause(|| 88);
        let expected = "86 of 88 shards could not be read: proxy happened";
        assert_eq!(cause.as_deref(), Some(expected));
        for few in [
            read(error("proxy", None), 79),
            read(error("forbidden", Some("members")), 88),
            read(Ok(true), 88),
            ShardReads::default(),
        ] {
            assert_eq!(few.common_cause(|| 88), None);
        }
        assert_eq!(read(error("proxy", None), 0).common_cause(|| 0), None);
    }

    #[test]
    fn nearly_all_listed_shards_not_found_is_an_error() {
        let node = NodeIx::from_usize(1).unwrap();
        for (missing, shards, is_error) in [(9, 9, false), (10, 10, true), (80, 100, false)] {
            let mut reads = ShardReads::default();
            (0..missing).for_each(|_| reads.record(node, &Ok(false)));
            assert_eq!(reads.common_cause(|| shards), None, "deletions are not an error");
            let error = reads.not_found(node, || shards);
            assert_eq!(error.is_some(), is_error, "{missing} of {shards}");
            assert_eq!(reads.common_cause(|| shards).is_some(), is_error);
        }
    }
}
