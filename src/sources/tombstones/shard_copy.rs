//! One copy of a shard with its checkpoints.

use crate::sources::random_places::Weighed;
use couchdb_client::wire;
use couchdb_names::Range;

/// One copy of a shard.
#[derive(Clone, Debug)]
pub struct ShardCopy {
    /// The range of hashes.
    pub range: Range,
    /// The node.
    pub node: String,
    /// The shard file's name.
    pub shard: String,
    /// Its facts; `None` if they could not be read.
    pub info: Option<wire::ShardInfo>,
    /// Its `_local` documents; `None` if they could not be read.
    pub(super) local: Option<Vec<wire::LocalRow>>,
}

impl ShardCopy {
    /// The copy as a place to sample, weighted by `wanted`.
    pub(super) fn weighed(&self, wanted: Option<u64>) -> Weighed<'_> {
        let end = self.info.as_ref().and_then(|info| info.update_seq).unwrap_or_default();
        Weighed { node: &self.node, shard: &self.shard, weight: wanted.unwrap_or_default(), end }
    }

    /// Its `_local` documents, by id without `_local/`.
    pub(super) fn checkpoints(&self) -> impl Iterator<Item = (&str, &wire::Checkpoint)> {
        let rows = self.local.iter().flatten();
        rows.filter_map(|row| Some((row.id.as_deref()?.strip_prefix("_local/")?, &row.doc)))
    }

    /// The number of its deleted documents.
    pub fn deleted(&self) -> Option<u64> {
        self.info.as_ref()?.doc_del_count
    }
}
