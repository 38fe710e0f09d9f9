//! The sizes of some deleted documents, read over HTTP.

use super::{super::couchdb::describe, ShardCopy};
use couchdb_client::Client;
use couchdb_files::{DeletedDoc, DeletedLeaf, compacted_bytes};

/// Number of places at which documents are read.
const PLACES: usize = 32;
/// Number of changes that are read at a place to find deleted ones.
const CHANGES: usize = 1000;
/// By how much sizes that are computed from HTTP's answers differ from those in files: at most this
/// share (measured on 3.5.2).
const MODEL_ERROR: f64 = 0.1;

/// Deleted documents, by the place at which they were read.
#[derive(Clone, Debug, Default)]
pub struct TombstoneSample {
    places: Vec<Vec<DeletedDoc>>,
}

/// Bytes of a deleted document, and by how much they may be wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub bytes: f64,
    /// With 95 % probability it differs by no more.
    pub error: f64,
    /// The number of documents.
    pub docs: usize,
}

impl TombstoneSample {
    /// Bytes of a deleted document in each copy, after a compaction; `None` if too few were read.
    pub fn estimate(&self) -> Option<Estimate> {
        let docs: Vec<DeletedDoc> = self.places.iter().flatten().cloned().collect();
        let bytes = compacted_bytes(&docs)? as f64 / docs.len().max(1) as f64;
        let means: Vec<f64> = self
            .places
            .iter()
            .filter(|docs| !docs.is_empty())
            .filter_map(|docs| Some(compacted_bytes(docs)? as f64 / docs.len() as f64))
            .collect();
        let count = means.len() as f64;
        if means.len() < 2 {
            return None;
        }
        let mean = means.iter().sum::<f64>() / count;
        let squares: f64 = means.iter().map(|one| (one - mean) * (one - mean)).sum();
        let sampling = 1.96 * (squares / (count - 1.0) / count).sqrt();
        let error = sampling.hypot(MODEL_ERROR * bytes);
        Some(Estimate { bytes, error, docs: docs.len() })
    }
}

/// A number that depends on the seed, below `end`.
fn place(seed: u64, step: u64, end: u64) -> u64 {
    // SplitMix64.
    let mut mixed = seed.wrapping_add(step.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % end.max(1)
}

/// Reads at most `most` deleted documents at random places of the copies, and says what failed.
pub(super) async fn read(
    client: &Client,
    copies: &[&ShardCopy],
    most: usize,
    seed: u64,
) -> (TombstoneSample, Option<String>) {
    let mut sample = TombstoneSample::default();
    let all: u64 = copies.iter().filter_map(|copy| copy.deleted()).sum();
    let each = most.div_ceil(PLACES);
    for step in 0..if all > 0 { PLACES as u64 } else { 0 } {
        // A copy is as likely as it has deleted documents.
        let mut index = place(seed, step * 2, all);
        let copy = copies.iter().find(|copy| {
            let deleted = copy.deleted().unwrap_or_default();
            let is_here = index < deleted;
            index = index.saturating_sub(deleted);
            is_here
        });
        let Some(copy) = copy else { continue };
        match read_place(client, copy, place(seed, step * 2 + 1, update_seq(copy)), each).await {
            Ok(docs) => sample.places.push(docs),
            Err(error) => {
                let why = format!("Not all of the sample was read: {}.", describe(&error));
                return (sample, Some(why));
            }
        }
    }
    (sample, None)
}

fn update_seq(copy: &ShardCopy) -> u64 {
    copy.info.as_ref().and_then(|info| info.update_seq).unwrap_or_default()
}

/// The first deleted documents after a sequence, or from the beginning if there are none.
async fn read_place(
    client: &Client,
    copy: &ShardCopy,
    since: u64,
    each: usize,
) -> Result<Vec<DeletedDoc>, couchdb_client::Error> {
    let mut docs = Vec::new();
    let changes = client.shard_changes(&copy.node, &copy.shard, since, CHANGES).await?;
    for change in changes {
        let (Some(id), Some(seq), Some(true)) = (change.id, change.seq, change.deleted) else {
            continue;
        };
        // A design document has another path; there are few.
        if id.starts_with("_design/") {
            continue;
        }
        let leaves = client.shard_leaves(&copy.node, &copy.shard, &id).await?;
        let leaves = leaves.into_iter().map(|(leaf, body)| DeletedLeaf {
            depth: leaf.revisions.start.unwrap_or(1),
            revisions: leaf
                .revisions
                .ids
                .iter()
                .map(|id| u128::from_str_radix(id, 16).unwrap_or_default())
                .collect(),
            body,
            attachment_bytes: leaf.attachments.values().filter_map(|it| it.length).sum(),
        });
        docs.push(DeletedDoc { id, seq, leaves: leaves.collect() });
        if docs.len() >= each {
            break;
        }
    }
    Ok(docs)
}
