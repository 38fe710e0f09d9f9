//! What a design document emits, from running its map functions on a sample of documents.

use super::DesignDocument;
use crate::sources::doc_sample::DocSample;
use couchdb_files::{BuildPace, IndexSample, SampleSums};
use couchdb_maps::{Limits, Maps};
use couchdb_names::Version;
use serde_json::Value;

/// Documents that CouchDB maps while it writes a node of a tree, or prepares a row.
///
/// Fitted to builds of CouchDB 3.5.2 on two busy cores; the book has the figures. What is mapped
/// while a batch is written becomes the next batch, so it decides how often nodes are written.
const DOCS_PER_NODE: f64 = 2.0;
const DOCS_PER_ROW: f64 = 0.2;

/// The fewest lists of documents that are written together, where reading is faster than mapping:
/// views with few rows were seen to be built so, and the same views without.
const MAX_MIN_LISTS: f64 = 20.0;

/// `[view_updater] queue_memory_cap` since CouchDB 3.5.2, and before.
const QUEUE_BYTES: f64 = 10_485_760.0;
const SMALL_QUEUE_BYTES: f64 = 100_000.0;
const LARGE_QUEUE_SINCE: Version = Version::new(3, 5, 2);

/// What the map functions of a document emit for a sample.
#[derive(Debug)]
pub(super) struct MeasuredRows {
    pub(super) sums: SampleSums,
    /// Bytes of JSON of a sampled document.
    pub(super) doc_bytes: f64,
    sample: IndexSample,
}

impl MeasuredRows {
    /// Runs the functions of a document.
    ///
    /// # Errors
    /// Why that is not possible, as a clause.
    pub(super) fn of(design: &DesignDocument, docs: &DocSample) -> Result<Self, String> {
        if design.language != "javascript" {
            return Err(format!("map functions in {} are not run", design.language));
        }
        // Views with the same function and options share a tree.
        let mut groups: Vec<(&Value, Option<&Value>, Vec<String>)> = Vec::new();
        for view in design.views.values() {
            let (Some(map), options) = (view.get("map"), view.get("options")) else { continue };
            let reduce = view.get("reduce").and_then(Value::as_str).map(str::to_owned);
            match groups.iter_mut().find(|(known, other, _)| (*known, *other) == (map, options)) {
                Some((_, _, reduces)) => reduces.extend(reduce),
                None => groups.push((map, options, reduce.into_iter().collect())),
            }
        }
        let sources: Option<Vec<&str>> = groups.iter().map(|(map, _, _)| map.as_str()).collect();
        let sources = sources.ok_or("a map is no function")?;
        let lib = design.lib.as_ref().map(Value::to_string);
        let maps = Maps::compile(&sources, lib.as_deref(), &Limits::default());
        let maps = maps.map_err(|why| why.to_string())?;
        let reduces: Vec<Vec<String>> = groups.into_iter().map(|(_, _, reduces)| reduces).collect();
        let mut sample = IndexSample::new(&reduces);
        let option =
            |name| design.options.as_ref().and_then(|it| it.get(name)) == Some(&true.into());
        let (with_designs, with_seq) = (option("include_design"), option("local_seq"));
        let (mut bytes, mut count) = (0, 0_u32);
        for place in &docs.places {
            sample.begin_place();
            for doc in place {
                if !with_designs && doc.id.starts_with("_design/") {
                    continue;
                }
                let text = match doc.text.strip_prefix('{').filter(|_| with_seq) {
                    Some(rest) => &format!("{{\"_local_seq\":{},{rest}", doc.seq),
                    None => &doc.text,
                };
                let rows = maps.run(text).map_err(|why| why.to_string())?;
                let unread =
                    |why: serde_json::Error| format!("what it emits cannot be read: {why}");
                sample.add(&doc.id, &rows).map_err(unread)?;
                bytes += text.len();
                count += 1;
            }
        }
        let sums = sample.sums().ok_or("too few documents were read")?;
        let doc_bytes = bytes as f64 / f64::from(count.max(1));
        Ok(Self { sums, doc_bytes, sample })
    }

    /// Bytes for each document after a compaction, and after a build by the slower and the faster
    /// of two updaters that the version may have.
    pub(super) fn bytes(&self, docs_per_file: f64, version: Option<Version>) -> Option<[f64; 3]> {
        let of = |queue_bytes, min_lists| {
            let (docs_per_node, docs_per_row) = (DOCS_PER_NODE, DOCS_PER_ROW);
            let pace = BuildPace { queue_bytes, docs_per_node, docs_per_row, min_lists };
            self.sample.estimate(docs_per_file, pace)
        };
        let [least, most] = match version {
            Some(version) if version >= LARGE_QUEUE_SINCE => [QUEUE_BYTES, QUEUE_BYTES],
            Some(_) => [SMALL_QUEUE_BYTES, SMALL_QUEUE_BYTES],
            None => [SMALL_QUEUE_BYTES, QUEUE_BYTES],
        };
        let (low, high) = (of(most, MAX_MIN_LISTS)?, of(least, 1.0)?);
        Some([low.compacted, low.built, high.built.max(low.built)])
    }
}
