//! The databases with most to reclaim: their sums, and every target of those that are whole.
//!
//! Which they are comes with the snapshot; here one name becomes one series. These are most of a
//! large scrape.

use super::Rows;
use crate::{
    model::{facts::Fact, target::Kind},
    plan::Plan,
    serve::http::families as f,
    table::{DbIx, FileSums, Ix, NodeIx, Snapshot, TargetRef, TopDb},
};
use couchdb_names::{Range, RangeText};
use hashbrown::{HashMap, HashSet};
use metrics_text::{LabelSets, Writer};

/// Letters of a target's labels: of node, database, range, document and signature, with
/// most names.
const LETTERS: usize = 256;

/// What a line has beside its labels: the longest of three names, and a number.
const REST: usize = 56;

/// Writes the families of databases and of single targets.
pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    let snapshot = &plan.snapshot;
    let twins = lesser_twins(snapshot);
    databases(writer, snapshot, &twins);
    let listed: Vec<Ix> = if twins.is_empty() {
        snapshot.top().targets.clone()
    } else {
        let targets = snapshot.top().targets.iter().filter_map(|ix| snapshot.target(*ix));
        targets.filter(|target| !twins.contains(&target.db())).map(TargetRef::ix).collect()
    };
    let (parts, targets): (Vec<Ix>, Vec<Ix>) =
        listed.into_iter().partition(|ix| snapshot.target(*ix).is_some_and(TargetRef::is_part));
    let families: Rows<Sizes, Option<u64>, 6, 3> = [
        (&f::TARGET_FILE_BYTES, |sizes| sizes.file),
        (&f::TARGET_ACTIVE_BYTES, |sizes| sizes.active),
        (&f::TARGET_RECLAIMABLE_BYTES, |sizes| sizes.reclaimable),
    ];
    each(writer, snapshot, &targets, &families, |target, names| {
        [
            target.node(),
            target.kind().label(),
            target.db_name().db,
            names.range(),
            names.design,
            names.signature(),
        ]
    });
    let families: Rows<Sizes, Option<u64>, 5, 2> = [
        (&f::VIEW_PART_FILE_BYTES, |sizes| sizes.file),
        (&f::VIEW_PART_RECLAIMABLE_BYTES, |sizes| sizes.reclaimable),
    ];
    each(writer, snapshot, &parts, &families, |target, names| {
        [target.node(), target.db_name().db, names.range(), names.design, names.signature()]
    });
}

/// While a database is deleted and made anew, both instances may count as live. One name is one
/// series: that of the one with more to reclaim. These are the others.
fn lesser_twins(snapshot: &Snapshot) -> HashSet<DbIx> {
    let mut best: HashMap<&str, &TopDb> = HashMap::new();
    let mut lesser = HashSet::new();
    for top in &snapshot.top().databases {
        let Some(name) = snapshot.db_name(top.db) else { continue };
        let known = best.entry(name.db).or_insert(top);
        if known.db == top.db {
            continue;
        }
        let reclaimable = |it: &TopDb| {
            let of = |sums: &FileSums| sums.reclaimable.get().unwrap_or_default();
            of(&it.sums.shards) + of(&it.sums.views)
        };
        if reclaimable(top) > reclaimable(known) {
            lesser.insert(known.db);
            *known = top;
        } else {
            lesser.insert(top.db);
        }
    }
    lesser
}

/// Writes the sums of databases, of the kinds of which this process sees all there is.
fn databases(writer: &mut Writer, snapshot: &Snapshot, twins: &HashSet<DbIx>) {
    let mut members = snapshot.nodes().iter().skip(1).filter(|node| node.member).peekable();
    let sees_shards =
        members.peek().is_some() && members.all(|node| node.served && !node.files_alone);
    let sees_views = snapshot.node(NodeIx::CLUSTER).is_some_and(|node| node.served);
    let top = || snapshot.top().databases.iter().filter(|top| !twins.contains(&top.db));
    let mut labels = LabelSets::with_room(&f::DATABASE_COPIES, 2 * top().count(), 0);
    let mut rows: Vec<&FileSums> = Vec::new();
    for top in top() {
        let Some(name) = snapshot.db_name(top.db) else { continue };
        for (kind, seen, sums) in
            [(Kind::Db, sees_shards, &top.sums.shards), (Kind::View, sees_views, &top.sums.views)]
        {
            if seen && sums.copies > 0 {
                labels.push(&[name.db, kind.label()]);
                rows.push(sums);
            }
        }
    }
    let mut samples = writer.family(&f::DATABASE_COPIES);
    for (labels, sums) in labels.iter().zip(&rows) {
        samples.sample_of(labels, sums.copies);
    }
    let families: Rows<&FileSums, Option<f64>, 2, 3> = [
        (&f::DATABASE_FILE_BYTES, |sums| sums.file.get()),
        (&f::DATABASE_ACTIVE_BYTES, |sums| sums.active.get()),
        (&f::DATABASE_RECLAIMABLE_BYTES, |sums| sums.reclaimable.get()),
    ];
    for (family, sum) in families {
        let mut samples = writer.family(family);
        for (labels, sums) in labels.iter().zip(&rows) {
            if let Some(bytes) = sum(sums) {
                samples.sample_of(labels, bytes);
            }
        }
    }
    // Before anything was seen nothing is known.
    if members_known(snapshot) {
        writer.family(&f::DATABASES_NOT_EXPORTED).sample(&[], snapshot.top().not_whole);
    }
}

fn members_known(snapshot: &Snapshot) -> bool {
    snapshot.nodes().iter().skip(1).any(|node| node.member)
}

/// Writes the families that have a series for each of these targets.
///
/// With many of them most of the time is spent on waiting for memory: their names are looked up
/// once, and in the order in which they are in memory.
fn each<const LABELS: usize, const FAMILIES: usize>(
    writer: &mut Writer,
    snapshot: &Snapshot,
    targets: &[Ix],
    families: &Rows<Sizes, Option<u64>, LABELS, FAMILIES>,
    named: impl for<'a> Fn(TargetRef<'a>, &'a Names<'a>) -> [&'a str; LABELS],
) {
    let [(first, fact), others @ ..] = families.as_slice() else { return };
    let mut labels = LabelSets::with_room(first, targets.len(), targets.len() * LETTERS);
    let mut sizes = Vec::with_capacity(targets.len());
    writer.reserve(FAMILIES * targets.len() * (LETTERS + REST));
    // What looks the targets up writes at once, so that others can begin to compress it.
    let mut samples = writer.family(*first);
    for target in targets.iter().filter_map(|ix| snapshot.target(*ix)) {
        let size = Sizes::of(target);
        let names = Names::of(target);
        let labels = labels.push(&named(target, &names));
        if let Some(bytes) = fact(size) {
            samples.sample_of(labels, bytes);
        }
        sizes.push(size);
    }
    for (family, fact) in others {
        let mut samples = writer.family(*family);
        for (labels, size) in labels.iter().zip(&sizes) {
            if let Some(bytes) = fact(*size) {
                samples.sample_of(labels, bytes);
            }
        }
    }
}

/// What a target's names are made of.
struct Names<'a> {
    range: Option<RangeText>,
    design: &'a str,
    signature: Option<String>,
}

impl<'a> Names<'a> {
    fn of(target: TargetRef<'a>) -> Self {
        let view = target.view().filter(|view| view.search.is_none());
        Self {
            range: target.range().map(Range::text),
            design: view.and_then(|view| view.designs.first()).map_or("", |design| design),
            signature: view.map(|view| view.signature.to_string()),
        }
    }

    fn range(&self) -> &str {
        self.range.as_ref().map_or("", RangeText::as_str)
    }

    fn signature(&self) -> &str {
        self.signature.as_deref().unwrap_or_default()
    }
}

/// What is shown of one target, in bytes on disk.
#[derive(Clone, Copy)]
struct Sizes {
    file: Option<u64>,
    active: Option<u64>,
    reclaimable: Option<u64>,
}

impl Sizes {
    fn of(target: TargetRef<'_>) -> Self {
        Self {
            file: target.on_disk(Fact::File),
            active: target.on_disk(Fact::Active),
            reclaimable: target.reclaimable(),
        }
    }
}
