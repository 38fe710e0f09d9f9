//! The sizes of some deleted documents, read over HTTP.

use super::shard_copy::ShardCopy;
use crate::sources::{
    couchdb::describe,
    random_places::{Weighed, read_places},
};
use couchdb_client::Client;
use couchdb_files::{DeletedDoc, DeletedLeaf, compacted_bytes};
use std::collections::BTreeSet;

/// Number of places at which documents are read.
const PLACES: usize = 32;
/// Number of changes that are read at a place to find deleted ones.
const CHANGES: usize = 1000;
/// Maximum error of sizes computed from HTTP answers, as a share of the sizes in files (measured on
/// 3.5.2).
const MODEL_ERROR: f64 = 0.1;

/// Deleted documents, by the place at which they were read.
#[derive(Clone, Debug, Default)]
pub struct TombstoneSample {
    places: Vec<Vec<DeletedDoc>>,
    ids: BTreeSet<String>,
}

/// Bytes of a deleted document, and their error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub bytes: f64,
    /// With 95 % probability, the mean differs by no more than this.
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

/// Reads at most `most` deleted documents at random places of the copies; also returns what failed.
pub(super) async fn read(
    client: &Client,
    copies: &[&ShardCopy],
    most: usize,
    seed: u64,
) -> (TombstoneSample, Option<String>) {
    let mut sample = TombstoneSample::default();
    let each = most.div_ceil(PLACES);
    let weighed: Vec<Weighed<'_>> =
        copies.iter().map(|copy| copy.weighed(copy.deleted())).collect();
    let read = read_places(client, &weighed, (PLACES, seed), async |copy, since| {
        let docs = read_place(client, copy, since, each).await?;
        // Places may overlap.
        let is_new = |doc: &DeletedDoc| sample.ids.insert(doc.id.clone());
        let docs: Vec<DeletedDoc> = docs.into_iter().filter(is_new).collect();
        sample.places.push(docs);
        Ok(true)
    });
    let problem = read.await.err();
    let why = problem.map(|why| format!("Not all of the sample was read: {}.", describe(&why)));
    (sample, why)
}

/// Reads deleted documents, evenly spread, among the changes after a sequence.
async fn read_place(
    client: &Client,
    copy: Weighed<'_>,
    since: u64,
    each: usize,
) -> Result<Vec<DeletedDoc>, couchdb_client::Error> {
    let mut docs = Vec::new();
    let changes = client.shard_changes(copy.node, copy.shard, since, CHANGES).await?;
    let deleted = changes.into_iter().filter(|change| change.deleted == Some(true));
    let deleted = deleted.filter_map(|change| change.id.zip(change.seq));
    // Design documents have another path; few are deleted.
    let all: Vec<_> = deleted.filter(|(id, _)| !id.starts_with("_design/")).collect();
    let stride = all.len().div_ceil(each.max(1)).max(1);
    for (id, seq) in all.into_iter().step_by(stride) {
        let leaves = client.shard_leaves(copy.node, copy.shard, &id).await?;
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
    }
    Ok(docs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc(number: u64, body: &str) -> DeletedDoc {
        let revisions = vec![(number * 7 + 1).into(), (number * 7 + 2).into()];
        let leaf = DeletedLeaf { depth: 2, revisions, body: body.to_owned(), attachment_bytes: 0 };
        DeletedDoc { id: format!("doc-{number:06}"), seq: number, leaves: vec![leaf] }
    }

    #[test]
    fn differing_sample_places_increase_the_error() {
        let body = format!("{{\"text\":\"{}\"}}", "abcdefghij".repeat(40));
        let sample = |bodies: [&str; 4]| {
            let place =
                |(at, body): (u64, &&str)| (0..20).map(|n| doc(at * 1000 + n, body)).collect();
            let places = (0..).zip(&bodies).map(place).collect();
            TombstoneSample { places, ids: BTreeSet::new() }.estimate().unwrap()
        };
        let (alike, differ) = (sample(["{}"; 4]), sample(["{}", "{}", &body, &body]));
        assert_eq!((alike.docs, differ.docs), (80, 80));
        assert!(alike.error < 0.15 * alike.bytes, "{alike:?}");
        assert!(differ.error > 0.15 * differ.bytes && differ.bytes > alike.bytes, "{differ:?}");
    }

    #[test]
    fn too_few_sampled_documents_give_no_estimate() {
        assert_eq!(TombstoneSample::default().estimate(), None);
        let one = TombstoneSample { places: vec![vec![doc(1, "{}")]], ids: BTreeSet::new() };
        assert_eq!(one.estimate(), None);
    }
}
