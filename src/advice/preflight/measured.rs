//! What a design document emits, from running its map functions on a sample of documents.

use super::DesignDocument;
use crate::{
    sources::doc_sample::{DocSample, SampleEnd},
    text::{capital, listed},
};
use couchdb_files::{BuildPace, IndexSample, SampleSums};
use couchdb_maps::{Limits, MapError, Maps};
use couchdb_names::Version;
use serde_json::Value;

/// How CouchDB was observed to build: with large batches on a quiet machine, with small ones on a busy
/// one. Fitted to 65 builds of CouchDB 3.5.2 on two cores and tried on 80 others; the book has the
/// figures. Rows that are mapped while a batch is written form the next batch. The minimum number of
/// lists matters when few rows are emitted, because reading is then faster than mapping.
const QUIET: BuildPace =
    BuildPace { queue_bytes: QUEUE_BYTES, docs_per_node: 2.0, docs_per_row: 0.2, min_lists: 20.0 };
const BUSY: BuildPace =
    BuildPace { docs_per_node: 1.0, docs_per_row: 0.1, min_lists: 3.0, ..QUIET };

/// `[view_updater] queue_memory_cap` since CouchDB 3.5.2, and before.
const QUEUE_BYTES: f64 = 10_485_760.0;
const SMALL_QUEUE_BYTES: f64 = 100_000.0;
const LARGE_QUEUE_SINCE: Version = Version::new(3, 5, 2);

/// The largest error of a sample for any of these documents, as a share of the bytes of its rows.
/// Documents whose functions cannot be run need no sample.
pub fn sample_error(designs: &[&DesignDocument], docs: &DocSample) -> f64 {
    let measured = designs.iter().filter_map(|design| MeasuredRows::of(design, docs).ok());
    measured.map(|rows| rows.sums.error).fold(0.0, f64::max)
}

/// Why the map functions of a document cannot be compiled, as a clause; `None` if they can, or are not
/// JavaScript.
pub fn compile_problem(design: &DesignDocument) -> Option<String> {
    (design.language == "javascript").then(|| compile(design).err()).flatten()
}

/// Views with the same map function and options, which share a tree.
struct ViewGroup<'a> {
    map: &'a Value,
    options: Option<&'a Value>,
    names: Vec<String>,
    reduces: Vec<String>,
}

/// The compiled map functions, with the views of each.
fn compile(design: &DesignDocument) -> Result<(Maps, Vec<ViewGroup<'_>>), String> {
    let mut groups: Vec<ViewGroup<'_>> = Vec::new();
    for (name, view) in &design.views {
        let (Some(map), options) = (view.get("map"), view.get("options")) else { continue };
        let at = groups.iter().position(|group| (group.map, group.options) == (map, options));
        let at = at.unwrap_or_else(|| {
            groups.push(ViewGroup { map, options, names: Vec::new(), reduces: Vec::new() });
            groups.len() - 1
        });
        let Some(group) = groups.get_mut(at) else { continue };
        group.names.push(name.clone());
        group.reduces.extend(view.get("reduce").and_then(Value::as_str).map(str::to_owned));
    }
    let sources: Option<Vec<&str>> = groups.iter().map(|group| group.map.as_str()).collect();
    let sources = sources.ok_or("a map is not a function")?;
    let lib = design.lib.as_ref().map(Value::to_string);
    let maps = Maps::compile(&sources, lib.as_deref(), &Limits::default());
    // Further lines say where in our own code the engine was.
    let maps = maps.map_err(|why| why.to_string().lines().next().unwrap_or_default().to_owned())?;
    Ok((maps, groups))
}

/// Why the map functions of a document were not measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotMeasured {
    /// They cannot be run here, or not to the end: a clause.
    NotRun(String),
    /// They do not work in CouchDB either: a sentence.
    Broken(String),
}

impl From<String> for NotMeasured {
    fn from(why: String) -> Self {
        Self::NotRun(why)
    }
}

/// Documents for which a map function throws.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Throws {
    docs: u64,
    /// The first such document's id, and what was thrown.
    first: Option<(String, String)>,
}

/// What the map functions of a document emit for a sample.
#[derive(Debug)]
pub(super) struct MeasuredRows {
    pub(super) sums: SampleSums,
    /// Bytes of JSON of a sampled document.
    pub(super) doc_bytes: f64,
    /// The error that the sample was meant to have, and why reading ended.
    pub(super) reading: (f64, SampleEnd),
    sample: IndexSample,
    /// For each map function: the names of its views, and for which documents it throws.
    throws: Vec<(Vec<String>, Throws)>,
}

impl MeasuredRows {
    /// Runs the functions of a document.
    ///
    /// # Errors
    /// If they cannot be run, or do not end.
    pub(super) fn of(design: &DesignDocument, docs: &DocSample) -> Result<Self, NotMeasured> {
        if design.language != "javascript" {
            return Err(format!("recliner cannot run map functions in {}", design.language).into());
        }
        let (maps, groups) = compile(design)?;
        let reduces: Vec<Vec<String>> = groups.iter().map(|group| group.reduces.clone()).collect();
        let mut throws: Vec<(Vec<String>, Throws)> =
            groups.into_iter().map(|group| (group.names, Throws::default())).collect();
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
                let mapped = maps.run(text).map_err(|why| not_run(&why, &doc.id))?;
                for ((_, throws), error) in throws.iter_mut().zip(mapped.errors) {
                    let Some(error) = error else { continue };
                    throws.docs += 1;
                    throws.first.get_or_insert_with(|| (doc.id.clone(), error));
                }
                let unread =
                    |why: serde_json::Error| format!("what it emits cannot be read: {why}");
                sample.add(&doc.id, &mapped.rows).map_err(unread)?;
                bytes += text.len();
                count += 1;
            }
        }
        let sums = sample.sums().ok_or_else(|| "too few documents were read".to_owned())?;
        let doc_bytes = bytes as f64 / f64::from(count.max(1));
        Ok(Self { sums, doc_bytes, reading: (docs.error_wanted, docs.end), sample, throws })
    }

    /// Map functions that throw, as sentences: first those that throw for every document, which makes
    /// them useless, then those that throw for some.
    pub(super) fn says_throws(&self) -> [Vec<String>; 2] {
        let (all, some): (Vec<_>, Vec<_>) = (self.throws.iter())
            .filter(|(_, throws)| throws.docs > 0)
            .partition(|(_, throws)| throws.docs == self.sums.docs);
        let says = |(views, throws): &(Vec<String>, Throws), rest: &str| {
            let (id, error) = throws.first.clone().unwrap_or_default();
            format!(
                "The map function of {} throws for {} of {} documents read, for {id}: {}. {rest}",
                listed(views),
                throws.docs,
                self.sums.docs,
                error.trim_end_matches('.'),
            )
        };
        [
            all.into_iter().map(|it| says(it, "So its index would stay empty.")).collect(),
            some.into_iter().map(|it| says(it, "CouchDB leaves these out of its index.")).collect(),
        ]
    }

    /// Bytes per document after a compaction and after a build: the minimum on a quiet machine and the
    /// maximum on a busy one, for the updaters that the version may have.
    pub(super) fn bytes(&self, docs_per_file: f64, version: Option<Version>) -> Option<[f64; 3]> {
        let of = |queue_bytes, pace| {
            self.sample.estimate(docs_per_file, BuildPace { queue_bytes, ..pace })
        };
        let [least, most] = match version {
            Some(version) if version >= LARGE_QUEUE_SINCE => [QUEUE_BYTES, QUEUE_BYTES],
            Some(_) => [SMALL_QUEUE_BYTES, SMALL_QUEUE_BYTES],
            None => [SMALL_QUEUE_BYTES, QUEUE_BYTES],
        };
        let (low, high) = (of(most, QUIET)?, of(least, BUSY)?);
        Some([low.compacted, low.built, high.built.max(low.built)])
    }
}

/// Why functions did not process a document.
fn not_run(why: &MapError, doc: &str) -> NotMeasured {
    match why {
        MapError::Endless(_) => NotMeasured::Broken(format!(
            "{}, {doc}. CouchDB ends such a query server ([couchdb] os_process_timeout), so the build fails.",
            capital(&why.to_string())
        )),
        MapError::Engine(_) | MapError::Compile(_) | MapError::Limits(_) => {
            NotMeasured::NotRun(why.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::doc_sample::{EACH, MIN_PLACES, SampledDoc};
    use couchdb_files::random_bits;

    const DOCS: u64 = 1_000_000;

    fn design(map: &str) -> DesignDocument {
        let views = serde_json::json!({ "_id": "_design/a", "views": { "a": { "map": map } } });
        DesignDocument::parse(&views.to_string(), None).unwrap()
    }

    /// Reads places of documents with texts of these lengths, up to `places`, until the sample is large enough.
    fn read(
        wanted: f64,
        places: usize,
        seed: u64,
        map: &str,
        length: impl Fn(u64) -> usize,
    ) -> (DocSample, bool) {
        let design = design(map);
        let mut sample = DocSample { error_wanted: wanted, ..DocSample::default() };
        let mut look = MIN_PLACES;
        for step in 0..places {
            let first = random_bits(seed, step as u64) % DOCS;
            let doc = |seq: u64| {
                // Text that is not compressed.
                let words =
                    (0..length(seq) as u64 / 16).map(|at| format!("{:016x}", random_bits(seq, at)));
                let (id, text) = (format!("{seq:08}"), words.collect::<String>());
                let text = serde_json::json!({ "_id": id, "text": text }).to_string();
                SampledDoc { id, seq, text }
            };
            let place = (first..first + EACH as u64).map(doc).collect();
            if sample.add(place, &mut look, |sample| sample_error(&[&design], sample)) {
                return (sample, true);
            }
        }
        (sample, false)
    }

    const TEXT: &str = "function(doc){emit(doc._id, doc.text)}";

    #[test]
    fn reading_stops_early_if_documents_are_alike() {
        let (sample, is_enough) = read(0.01, 100, 1, TEXT, |_| 100);
        assert_eq!((sample.places.len(), is_enough), (MIN_PLACES, true));
    }

    #[test]
    fn reading_continues_to_the_maximum_if_nothing_is_emitted() {
        let (sample, is_enough) = read(0.5, 40, 1, "function(doc){}", |_| 100);
        assert_eq!((sample.places.len(), is_enough), (40, false));
        // A function that cannot be run needs no documents.
        let (sample, is_enough) = read(0.5, 40, 1, "function(doc){", |_| 100);
        assert_eq!((sample.places.len(), is_enough), (MIN_PLACES, true));
    }

    #[test]
    fn functions_that_throw_or_never_end_are_named() {
        let length = |_| 100;
        let rows = |map: &str| {
            MeasuredRows::of(&design(map), &read(0.5, 4, 1, "function(doc){}", length).0)
        };
        assert_eq!(rows(TEXT).unwrap().says_throws(), [Vec::<String>::new(), Vec::new()]);
        let [all, some] = rows("function(doc){emit(doc.day.year)}").unwrap().says_throws();
        let [only] = &all[..] else { panic!("{all:?}") };
        assert!(only.starts_with("The map function of a throws for "), "{only}");
        assert!(only.ends_with("of undefined. So its index would stay empty."), "{only}");
        assert_eq!(some, [""; 0]);
        let odd = "function(doc){if(doc._id.slice(-1)%2)throw 'odd'; emit(1)}";
        let [all, some] = rows(odd).unwrap().says_throws();
        assert_eq!(all, [""; 0]);
        assert!(some[0].ends_with(": odd. CouchDB leaves these out of its index."), "{some:?}");
    }

    #[test]
    fn rare_large_documents_prolong_reading_until_the_mean_is_exact() {
        // One document in a hundred is a hundred times as large. A row has some 150 bytes besides
        // the text.
        let length = |seq| if random_bits(7, seq).is_multiple_of(100) { 10_000 } else { 100 };
        let mean = |docs: &mut dyn Iterator<Item = u64>| {
            let (sum, count) =
                docs.fold((0, 0), |(sum, count), seq| (sum + length(seq), count + 1));
            sum as f64 / f64::from(count) + 150.0
        };
        let (truth, seeds) = (mean(&mut (0..DOCS)), 6);
        let (mut inside, mut places) = (0, 0);
        for seed in 0..seeds {
            let (sample, is_enough) = read(0.08, 300, seed, TEXT, length);
            assert!(is_enough);
            let found = mean(&mut sample.places.iter().flatten().map(|doc| doc.seq));
            inside += u64::from((found / truth - 1.0).abs() <= 0.08);
            places += sample.places.len() as u64;
        }
        assert!(inside + 1 >= seeds, "{inside} of {seeds} are as exact as they say");
        assert!(places >= 30 * seeds, "{places} places");
    }
}
