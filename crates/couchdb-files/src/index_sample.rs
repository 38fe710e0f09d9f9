//! Estimates the size of a view index from the rows that sampled documents emit.
//!
//! Owns what CouchDB writes for rows: the nodes of both kinds of trees as a compaction leaves them (by [`AppendTree`]),
//! and how often one uninterrupted build rewrites each node (`couch_mrview_updater`, `couch_btree:modify_node/5`).
//! Reads no file.

use super::{
    chunk::Compression,
    compacted::{AppendTree, CompactedFile, Item, NODE_BYTES, Reduction},
    design::{Encoder, Json},
};
use std::{cmp::Ordering, rc::Rc};

/// Documents that the updater passes on in one list (`process_doc/3`).
const LIST: f64 = 101.0;
/// Fill factor of a tree's nodes if keys arrive in random order.
const FILL: f64 = 0.69;
/// Added to the fill factor if all keys arrive in order.
const MORE_FILL: f64 = 0.26;
/// Keys count as independent from this share of the gaps that independent keys would hit.
const INDEPENDENT: f64 = 0.8;
/// Number of batches of a build that are computed individually.
const POINTS: f64 = 2_000.0;
/// Overhead in bytes of a queued document's rows.
const WAITING_BYTES: f64 = 100.0;

/// One emitted row.
#[derive(Clone, Debug)]
struct Row {
    key: Json,
    id: Rc<str>,
    item: Item,
    place: usize,
}

/// The rows of one tree.
#[derive(Clone, Debug, Default)]
struct TreeRows {
    rows: Vec<Row>,
}

/// Rows that sampled documents emit, by the place at which each was read.
///
/// Places are added in the order of their time in the life of the database, and the documents of a
/// place in the order of their sequences.
#[derive(Clone, Debug)]
pub struct IndexSample {
    /// The tree of documents, and one for each group of views.
    ids: TreeRows,
    views: Vec<(TreeRows, Reduction)>,
    /// Sums for each place.
    places: Vec<PlaceSums>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PlaceSums {
    docs: f64,
    emitting: f64,
    rows: f64,
    bytes: f64,
}

/// How an index is built.
#[derive(Clone, Copy, Debug)]
pub struct BuildPace {
    /// `[view_updater] queue_memory_cap`, in bytes.
    pub queue_bytes: f64,
    /// Documents that are mapped while one node is written.
    pub docs_per_node: f64,
    /// Documents that are mapped while one row is prepared for writing.
    pub docs_per_row: f64,
    /// Minimum number of lists, of [`LIST`] documents each, that are written together.
    pub min_lists: f64,
}

/// The bytes of an index, for each document of the database that is not deleted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct IndexBytes {
    /// After a compaction.
    pub compacted: f64,
    /// At the end of a build in one go.
    pub built: f64,
}

/// Totals of a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SampleSums {
    /// Number of documents.
    pub docs: u64,
    /// Number of these that emit.
    pub emitting: u64,
    /// Number of rows.
    pub rows: u64,
    /// Half the width of the 95 % confidence interval of the rows' bytes, as a share of them.
    pub error: f64,
}

/// How one level of a tree is divided into nodes.
#[derive(Clone, Copy, Debug)]
struct Level {
    /// Elements per node.
    fan: f64,
    /// Bytes per element, and the bytes in the file for each of those, including the node's own overhead.
    element: f64,
    packed: f64,
}

impl IndexSample {
    /// A sample of an index with these groups of views: the reduce functions of each, as text.
    pub fn new(groups: &[Vec<String>]) -> Self {
        let views = groups.iter().map(|reduces| (TreeRows::default(), reduction(reduces)));
        Self { ids: TreeRows::default(), views: views.collect(), places: Vec::new() }
    }

    /// Starts a new place for the documents that follow.
    pub fn begin_place(&mut self) {
        self.places.push(PlaceSums::default());
    }

    /// Adds a document. `emitted` is JSON: a list for each group, with a list of key and value for each row.
    ///
    /// # Errors
    ///
    /// If `emitted` has another form.
    pub fn add(&mut self, id: &str, emitted: &str) -> Result<(), serde_json::Error> {
        let groups: Vec<Vec<(Json, Json)>> = serde_json::from_str(emitted)?;
        if self.places.is_empty() {
            self.begin_place();
        }
        let place = self.places.len() - 1;
        let id: Rc<str> = id.into();
        let mut keys = Vec::new();
        let mut sums = PlaceSums { docs: 1.0, ..PlaceSums::default() };
        for (number, (rows, (tree, reduction))) in
            groups.into_iter().zip(&mut self.views).enumerate()
        {
            sums.rows += rows.len() as f64;
            for (key, values) in combined(rows) {
                let item = view_row(&key, &id, &values, reduction);
                sums.bytes += item.length() as f64;
                keys.push((number, key.clone()));
                tree.rows.push(Row { key, id: Rc::clone(&id), item, place });
            }
        }
        if !keys.is_empty() {
            let item = id_row(&id, &keys);
            sums.emitting = 1.0;
            sums.bytes += item.length() as f64;
            let key = Json::Text(id.to_string());
            self.ids.rows.push(Row { key, id, item, place });
        }
        if let Some(place) = self.places.last_mut() {
            place.docs += sums.docs;
            place.emitting += sums.emitting;
            place.rows += sums.rows;
            place.bytes += sums.bytes;
        }
        Ok(())
    }

    /// The totals; `None` for fewer than two places.
    pub fn sums(&self) -> Option<SampleSums> {
        let places: Vec<PlaceSums> =
            self.places.iter().filter(|place| place.docs > 0.0).copied().collect();
        let sum = |of: fn(&PlaceSums) -> f64| places.iter().map(of).sum::<f64>();
        let (docs, bytes) = (sum(|it| it.docs), sum(|it| it.bytes));
        let count = places.len() as f64;
        if places.len() < 2 {
            return None;
        }
        // A ratio estimator: both sums vary together.
        let mean = bytes / docs;
        let squares: f64 = places.iter().map(|it| (it.bytes - mean * it.docs).powi(2)).sum();
        let error = 1.96 * (squares / (count - 1.0) * count).sqrt() / bytes.max(1.0);
        let whole = super::compacted::rounded;
        Some(SampleSums {
            docs: whole(docs),
            emitting: whole(sum(|it| it.emitting)),
            rows: whole(sum(|it| it.rows)),
            error: if bytes > 0.0 { error } else { 1.0 },
        })
    }

    /// The bytes per document of an index file for `docs_per_file` documents; `None` for zero documents.
    pub fn estimate(&self, docs_per_file: f64, pace: BuildPace) -> Option<IndexBytes> {
        let sampled: f64 = self.places.iter().map(|it| it.docs).sum();
        if sampled <= 0.0 || docs_per_file <= 0.0 {
            return None;
        }
        let shapes: Vec<(Shape, f64)> = self
            .views
            .iter()
            .map(|(tree, _)| tree)
            .chain([&self.ids])
            .filter(|tree| !tree.rows.is_empty())
            .map(|tree| (Shape::of(tree, self.places.len()), tree.rows.len() as f64 / sampled))
            .collect();
        let compacted: f64 = shapes.iter().map(|(shape, _)| shape.compacted / sampled).sum();
        // The write queue holds the rows as text.
        let emitted: f64 = self.places.iter().map(|it| it.bytes).sum();
        let waiting = (pace.queue_bytes / (emitted / sampled + WAITING_BYTES)).max(LIST);
        let least = (LIST * pace.min_lists).min(waiting);
        let (mut built, mut done, mut batch) = (0.0, 0.0, least);
        while done < docs_per_file {
            // For very large files, one batch stands for several.
            let times = ((docs_per_file - done) / (batch * POINTS)).max(1.0);
            let docs = batch.min(docs_per_file - done);
            let (mut nodes, mut rows) = (0.0, 0.0);
            for (shape, per_doc) in &shapes {
                let written = shape.write(per_doc * done, per_doc * docs);
                built += times * written.bytes;
                nodes += written.nodes;
                rows += per_doc * docs;
            }
            done += docs * times;
            // The next batch consists of the documents mapped while this one was written.
            let mapped = pace.docs_per_node * nodes + pace.docs_per_row * rows;
            batch = ((mapped / LIST).ceil() * LIST).clamp(least, waiting);
        }
        Some(IndexBytes { compacted, built: (built / docs_per_file).max(compacted) })
    }
}

/// What a tree writes for a batch.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    nodes: f64,
    bytes: f64,
}

/// A tree's nodes, and how its keys arrive.
#[derive(Debug)]
struct Shape {
    levels: Vec<Level>,
    /// Bytes of the sampled rows in a compacted file.
    compacted: f64,
    /// The number of different gaps between earlier keys that a place's keys fall into, as a share of what independent
    /// keys would hit.
    spread: f64,
    /// The number of positions in key order at which rows are inserted; infinite unless that is limited.
    points: f64,
    /// The share of keys that sort after all earlier ones.
    appended: f64,
}

impl Shape {
    fn of(tree: &TreeRows, places: usize) -> Self {
        let mut sorted: Vec<&Row> = tree.rows.iter().collect();
        sorted.sort_by(|one, other| one.order(other));
        let mut file = CompactedFile::default();
        let mut nodes = AppendTree::new(Compression::Snappy);
        let mut items: Vec<Item> = sorted.iter().map(|row| row.item.clone()).collect();
        let mut levels = Vec::new();
        loop {
            let (count, before) = (items.len() as f64, file.end);
            let bytes: f64 = items.iter().map(|item| item.length() as f64).sum();
            let references = nodes.write(&mut file, levels.len(), items);
            let stored = file.end.saturating_sub(before) as f64;
            let element = bytes / count.max(1.0);
            let full = (NODE_BYTES as f64 + element / 2.0) / element;
            // A single node does not show how many elements a full one holds.
            let fan = if references.len() > 2 { count / references.len() as f64 } else { full };
            levels.push(Level { fan: fan.max(2.0), element, packed: stored / bytes.max(1.0) });
            if references.len() <= 1 {
                break;
            }
            items = references;
        }
        // By time, each with its rank in key order.
        let mut ranks: Vec<(usize, usize)> =
            sorted.iter().enumerate().map(|(rank, row)| (row.place, rank)).collect();
        ranks.sort_by_key(|(place, _)| *place);
        let (mut found, mut expected, mut last, mut all) = (0.0, 0.0, 0.0, 0.0);
        for place in places / 4..places {
            let gaps = gaps(&ranks, place..place + 1);
            found += gaps.found;
            expected += gaps.expected;
            last += gaps.after_all;
            all += gaps.rows;
        }
        let halves = gaps(&ranks, places / 2..places);
        let independent = |found: f64, expected: f64| {
            if expected > 0.0 { (found / expected).min(1.0) } else { 1.0 }
        };
        let is_limited = independent(halves.found, halves.expected) < INDEPENDENT;
        Self {
            levels,
            compacted: file.end as f64,
            spread: independent(found, expected),
            points: if is_limited { halves.found.max(1.0) } else { f64::INFINITY },
            appended: if all > 0.0 { last / all } else { 0.0 },
        }
    }

    /// What is written to insert `added` rows into a tree of `rows` rows.
    fn write(&self, rows: f64, added: f64) -> Written {
        let fill = MORE_FILL.mul_add(self.appended, FILL);
        let node = NODE_BYTES as f64 * fill;
        let mut written = Written::default();
        let (mut elements, mut added) = (rows, added);
        let mut reached = added * self.spread;
        if self.points.is_finite() {
            reached = self.points * (1.0 - (-reached / self.points).exp());
        }
        let mut levels = self.levels.iter();
        let Some(mut level) = levels.next() else { return written };
        loop {
            let fan = level.fan * fill;
            let nodes = elements / fan;
            let touched = match nodes <= 1.0 {
                true => nodes,
                false => (nodes * (1.0 - (1.0 - 1.0 / nodes).powf(reached))).max(1.0),
            };
            let bytes = (touched * node + added * level.element) * level.packed;
            written.bytes += bytes;
            written.nodes += touched + added / fan;
            if nodes + added / fan <= 1.0 {
                return written;
            }
            (elements, added, reached) = (nodes, added / fan, touched);
            // The index may have more levels than the sample; they are alike.
            level = levels.next().unwrap_or(level);
        }
    }
}

/// Where the keys of some places sort among earlier ones.
#[derive(Clone, Copy, Debug, Default)]
struct Gaps {
    rows: f64,
    /// The number of different gaps between earlier keys.
    found: f64,
    /// The number that independent keys would find.
    expected: f64,
    /// Rows that sort after all earlier keys.
    after_all: f64,
}

/// `ranks` has place and rank of each row, sorted by place.
fn gaps(ranks: &[(usize, usize)], places: std::ops::Range<usize>) -> Gaps {
    let begin = ranks.partition_point(|(place, _)| *place < places.start);
    let end = ranks.partition_point(|(place, _)| *place < places.end);
    let (Some(earlier), Some(new)) = (ranks.get(..begin), ranks.get(begin..end)) else {
        return Gaps::default();
    };
    if earlier.is_empty() || new.is_empty() {
        return Gaps::default();
    }
    let mut known: Vec<usize> = earlier.iter().map(|(_, rank)| *rank).collect();
    known.sort_unstable();
    let mut found: Vec<usize> =
        new.iter().map(|(_, rank)| known.partition_point(|it| it < rank)).collect();
    let after_all = found.iter().filter(|gap| **gap == known.len()).count() as f64;
    found.sort_unstable();
    found.dedup();
    let (rows, gaps) = (new.len() as f64, known.len() as f64 + 1.0);
    Gaps { rows, found: found.len() as f64, expected: rows * gaps / (rows + gaps - 1.0), after_all }
}

impl Row {
    /// The sort order of a view's rows: by key, then by id.
    fn order(&self, other: &Self) -> Ordering {
        self.key.cmp_view(&other.key).then_with(|| self.id.cmp(&other.id))
    }
}

/// `{{Key, Id}, Value}`.
fn view_row(key: &Json, id: &str, values: &[Json], reduction: &Reduction) -> Item {
    let mut out = Encoder::part(Vec::new());
    out.tuple(2);
    out.json(key);
    out.binary(id);
    Item::row(&out.finish(), reduction.clone(), |out| match values {
        [value] => out.json(value),
        several => {
            out.tuple(2);
            out.atom("dups");
            out.list(several.iter(), Encoder::json);
        }
    })
}

/// The rows of a document, grouped by key.
fn combined(mut rows: Vec<(Json, Json)>) -> Vec<(Json, Vec<Json>)> {
    rows.sort_by(|one, other| one.0.cmp_erlang(&other.0));
    let mut all: Vec<(Json, Vec<Json>)> = Vec::new();
    for (key, value) in rows {
        match all.last_mut() {
            Some((last, values)) if *last == key => values.push(value),
            _ => all.push((key, vec![value])),
        }
    }
    all
}

/// `{Id, [{View, Key}]}`.
fn id_row(id: &str, keys: &[(usize, Json)]) -> Item {
    let mut out = Encoder::part(Vec::new());
    out.binary(id);
    Item::row(&out.finish(), Reduction::Nothing, |out| {
        out.list(keys.iter(), |out, (number, key)| {
            out.tuple(2);
            out.integer(*number as i128);
            out.json(key);
        });
    })
}

/// The reduction of a group's rows: `{Rows, Reductions, Bytes}`. The results of custom functions are unknown here and
/// count as a number.
fn reduction(reduces: &[String]) -> Reduction {
    let encoded = |distinct: usize| {
        let mut out = Encoder::part(Vec::new());
        out.tuple(3);
        out.integer(70_000);
        out.list(reduces.iter(), |out, reduce| match &**reduce {
            "_stats" => {
                out.tuple(5);
                (0..5).for_each(|_| out.json(&Json::Float(0.5)));
            }
            "_approx_count_distinct" => out.bytes(&vec![7; distinct]),
            _ => out.integer(70_000),
        });
        out.integer(70_000);
        out.finish()
    };
    // A filter has 2048 registers; few values set few of them.
    let others =
        [(1, encoded(60)), (20, encoded(200)), (500, encoded(1_300)), (5_000, encoded(1_700))];
    if reduces.is_empty() {
        // All have the same length.
        return Reduction::Like { others: [(1, encoded(0))].into(), rows: 1 };
    }
    Reduction::Like { others: others.into(), rows: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CouchDB 3.5.2, on a machine with two busy cores.
    const PACE: BuildPace =
        BuildPace { queue_bytes: 10e6, docs_per_node: 2.0, docs_per_row: 0.2, min_lists: 1.0 };

    /// A scrambled number.
    fn mixed(number: u64) -> u64 {
        let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    }

    /// Twenty evenly spaced places of 101 documents each, out of 200,000.
    fn sample(emitted: impl Fn(u64) -> String) -> IndexSample {
        let mut sample = IndexSample::new(&[Vec::new()]);
        for place in 0..20 {
            sample.begin_place();
            for number in place * 10_000..place * 10_000 + 101 {
                sample.add(&format!("{:016x}", mixed(number)), &emitted(number)).unwrap();
            }
        }
        sample
    }

    #[test]
    fn building_an_index_of_ordered_keys_writes_less() {
        let pace = BuildPace { queue_bytes: 1e5, ..PACE };
        let built = |emitted: fn(u64) -> String| {
            let bytes = sample(emitted).estimate(200_000.0, pace).unwrap();
            bytes.built / bytes.compacted
        };
        let ordered = built(|number| format!("[[[{number},null]]]"));
        let random = built(|number| format!("[[[{},null]]]", mixed(number)));
        let rows = built(|number| format!("[[[[{},{number}],null]]]", number % 40));
        assert!(ordered < 0.7 * random, "{ordered} {random}");
        assert!(rows < 0.9 * random, "forty points at which rows are added: {rows} {random}");
        assert!(ordered > 1.0 && random < 60.0, "{ordered} {random}");
    }

    #[test]
    fn building_an_index_in_larger_batches_writes_less() {
        let of =
            |pace| sample(|it| format!("[[[{},1]]]", mixed(it))).estimate(200_000.0, pace).unwrap();
        let (small, large) = (of(BuildPace { queue_bytes: 1e4, ..PACE }), of(PACE));
        assert!(small.built > 1.5 * large.built, "{small:?} {large:?}");
        assert!((small.compacted - large.compacted).abs() < 1e-9);
    }

    #[test]
    fn documents_without_rows_count_but_take_no_bytes() {
        let few =
            sample(
                |it| {
                    if it % 10 == 0 { format!("[[[{},1]]]", mixed(it)) } else { "[[]]".to_owned() }
                },
            );
        let sums = few.sums().unwrap();
        assert_eq!((sums.docs, sums.rows, sums.emitting), (2_020, 220, 220));
        let all = sample(|it| format!("[[[{},1]]]", mixed(it))).estimate(1e5, PACE).unwrap();
        let few = few.estimate(1e5, PACE).unwrap();
        let ratio = few.compacted / all.compacted;
        assert!((0.09..0.14).contains(&ratio), "{ratio}");
        let none = sample(|_| "[[]]".to_owned()).estimate(1e5, PACE).unwrap();
        assert_eq!(none, IndexBytes { compacted: 0.0, built: 0.0 });
        assert_eq!(IndexSample::new(&[Vec::new()]).estimate(1e5, PACE), None);
    }

    #[test]
    fn equal_keys_of_one_document_share_a_tree_row() {
        let of = |emitted: &'static str| {
            sample(move |_| emitted.to_owned()).estimate(1e5, PACE).unwrap()
        };
        let (same, other) = (of(r#"[[["k",1],["k",2]]]"#), of(r#"[[["k",1],["l",2]]]"#));
        assert!(same.compacted < 0.9 * other.compacted, "{same:?} {other:?}");
    }

    #[test]
    fn differing_sample_places_increase_the_error() {
        let alike = sample(|it| format!("[[[{it},null]]]")).sums().unwrap();
        let differ =
            sample(|it| if it < 100_000 { "[[]]".to_owned() } else { format!("[[[{it},null]]]") });
        assert!(alike.error < 0.02, "{alike:?}");
        assert!(differ.sums().unwrap().error > 0.3, "{differ:?}", differ = differ.sums());
    }

    #[test]
    fn map_output_that_is_not_rows_is_refused() {
        let mut sample = IndexSample::new(&[Vec::new()]);
        for wrong in ["{}", "[[1]]", "[[[1,2,3]]]", "["] {
            assert!(sample.add("a", wrong).is_err(), "{wrong}");
        }
    }
}
