//! A sample of a database's documents, read at a pace that a node does not notice.

use super::{
    couchdb::describe,
    random_places::{Weighed, read_places},
};
use couchdb_client::{Cache, Client, ErrorKind};
use std::time::Duration;
use strum::{EnumString, IntoStaticStr, VariantArray};
use tokio::time;

/// Number of documents read at each place: as many as CouchDB's indexer passes on in one list.
pub(crate) const EACH: usize = 101;
/// The number for documents so large that `EACH` would be too many.
const FEW: usize = 4;
/// Maximum bytes of documents kept.
const MAX_BYTES: usize = 64 << 20;

/// Minimum number of places before the error is evaluated: fewer show neither how much places differ
/// nor the shape of an index's trees.
pub(crate) const MIN_PLACES: usize = 20;

/// The limits of a sample.
#[derive(Clone, Copy, Debug)]
pub struct SampleSize {
    /// The maximum number of documents.
    pub docs: usize,
    /// The error at which reading stops, as a share.
    pub error: f64,
    /// The maximum number of documents read per second.
    pub per_second: u32,
}

/// A document.
#[derive(Clone, Debug)]
pub struct SampledDoc {
    /// Its id.
    pub id: String,
    /// The sequence of its last change, in its shard.
    pub seq: u64,
    /// Its JSON, as a map function sees it: with `_id`, `_rev` and stubs of attachments.
    pub text: String,
}

/// Why reading stopped.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SampleEnd {
    /// The wanted accuracy was reached.
    ErrorWanted,
    /// The maximum number of documents was read.
    #[default]
    MaxDocs,
    /// The maximum number of bytes is kept.
    MaxBytes,
    /// A request failed.
    Failed,
}

/// Documents that are not deleted, read at random places.
#[derive(Clone, Debug, Default)]
pub struct DocSample {
    /// The documents of each place in the order of their changes; the places in the order in which
    /// the database went through them.
    pub places: Vec<Vec<SampledDoc>>,
    /// The error that was wanted, as a share.
    pub error_wanted: f64,
    /// Why reading stopped.
    pub end: SampleEnd,
    /// Why fewer documents were read than wanted, if so.
    pub problem: Option<String>,
}

impl DocSample {
    /// Adds a place; returns whether the sample is large enough. `error` computes the error of the sample so far.
    ///
    /// The larger the sample, the more rarely its error is computed: each time, all documents are mapped again, and
    /// frequent checks would often find a small error by chance.
    pub(crate) fn add(
        &mut self,
        place: Vec<SampledDoc>,
        look: &mut usize,
        error: impl FnOnce(&Self) -> f64,
    ) -> bool {
        self.places.push(place);
        if self.places.len() < *look {
            return false;
        }
        *look += *look / 2;
        error(self) <= self.error_wanted
    }
}

/// Reads a sample of a database until its `error` is as small as wanted. `seed` selects the places.
///
/// # Errors
/// If nothing could be read; the text says why.
pub async fn read_docs(
    client: &Client,
    db: &str,
    size: SampleSize,
    seed: u64,
    error: impl Fn(&DocSample) -> f64,
) -> Result<DocSample, String> {
    let entry = client.shard_map_entry(None, db).await.map_err(|error| describe(&error))?;
    let entry = entry.ok_or_else(|| format!("no database is called {db:?}"))?;
    let suffix = entry.suffix.ok_or("the shard map does not give the suffix of its files")?;
    let mut copies = Vec::new();
    let mut problem = None;
    for (range, nodes) in &entry.by_range {
        let shard = format!("shards/{range}/{db}{suffix}");
        // One copy of each range: the first that answers.
        for node in nodes {
            match client.shard_info(node, &shard, Cache::Cold).await {
                Ok(info) => {
                    copies.push((node.clone(), shard.clone(), info));
                    break;
                }
                Err(error) => problem = Some(describe(&error)),
            }
        }
    }
    let weighed: Vec<Weighed<'_>> = copies
        .iter()
        .map(|(node, shard, info)| Weighed {
            node,
            shard,
            weight: info.doc_count.unwrap_or_default(),
            end: info.update_seq.unwrap_or_default(),
        })
        .collect();
    let mut sample = DocSample { error_wanted: size.error, ..DocSample::default() };
    let mut times: Vec<f64> = Vec::new();
    let (mut rows, mut bytes, mut look) = (0, 0, MIN_PLACES);
    let read =
        read_places(client, &weighed, (size.docs.div_ceil(EACH), seed), async |copy, since| {
            let (docs, read) = match client.shard_docs(copy.node, copy.shard, since, EACH).await {
                Err(error) if error.kind() == ErrorKind::TooLarge => {
                    client.shard_docs(copy.node, copy.shard, since, FEW).await?
                }
                read => read?,
            };
            rows += read;
            bytes += docs.iter().map(|doc| doc.text.len()).sum::<usize>();
            let docs =
                docs.into_iter().map(|it| SampledDoc { id: it.id, seq: it.seq, text: it.text });
            times.push(since as f64 / copy.end.max(1) as f64);
            if sample.add(docs.collect(), &mut look, &error) {
                sample.end = SampleEnd::ErrorWanted;
                return Ok(false);
            }
            if bytes >= MAX_BYTES {
                sample.end = SampleEnd::MaxBytes;
                return Ok(false);
            }
            time::sleep(
                Duration::from_secs(1).mul_f64(read as f64 / f64::from(size.per_second.max(1))),
            )
            .await;
            Ok(rows < size.docs)
        });
    if let Err(error) = read.await {
        problem = Some(describe(&error));
        sample.end = SampleEnd::Failed;
    }
    if times.is_empty() {
        return Err(problem.unwrap_or_else(|| "the database is empty".to_owned()));
    }
    let mut places: Vec<_> = times.into_iter().zip(sample.places).collect();
    places.sort_by(|one, other| one.0.total_cmp(&other.0));
    sample.places = places.into_iter().map(|(_, docs)| docs).collect();
    Ok(DocSample { problem, ..sample })
}
