//! The databases with most to reclaim: their sums, and the targets of the exported databases.
//!
//! The snapshot chooses the databases; this file ensures that each name has only one series. On a
//! large cluster, most of a scrape comes from here.

use crate::{
    model::target::TargetKind,
    plan::Plan,
    table::{DbIx, DbName, ExportedDatabase, FileSums, NodeIx, Snapshot, TargetIx, TargetRef},
    text::Label,
};
use couchdb_names::{Range, RangeText};
use hashbrown::{HashMap, HashSet};
use metrics_text::{Family, LabelSets, Writer, families};

families! {
    DATABASE_COPIES: Gauge None "recliner_database_copies" ["db", "kind"]
        "Number of the database's files on all nodes; only for the databases with most to reclaim.";
    DATABASE_FILE_BYTES: Gauge Bytes "recliner_database_file_bytes" ["db", "kind"]
        "Bytes of the database's files on all nodes; only for the databases with most to reclaim.";
    DATABASE_ACTIVE_BYTES: Gauge Bytes "recliner_database_active_bytes" ["db", "kind"]
        "Bytes of live data in the database's files; only for the databases with most to reclaim.";
    DATABASE_RECLAIMABLE_BYTES: Gauge Bytes "recliner_database_reclaimable_bytes" ["db", "kind"]
        "Bytes that compacting the whole database is predicted to free; only for those with most.";
    DATABASES_NOT_EXPORTED: Gauge None "recliner_databases_not_exported" []
        "Number of databases without series per target: they have little to reclaim, are new, or have too many targets.";
    TARGET_FILE_BYTES: Gauge Bytes "recliner_target_file_bytes"
        ["node", "kind", "db", "range", "ddoc", "signature"]
        "Bytes of the target's file; only for targets of the exported databases.";
    TARGET_ACTIVE_BYTES: Gauge Bytes "recliner_target_active_bytes"
        ["node", "kind", "db", "range", "ddoc", "signature"]
        "Bytes of live data in the target's file; only for targets of the exported databases.";
    TARGET_RECLAIMABLE_BYTES: Gauge Bytes "recliner_target_reclaimable_bytes"
        ["node", "kind", "db", "range", "ddoc", "signature"]
        "Bytes that compacting the target is predicted to free; only for the exported databases.";
    VIEW_PART_FILE_BYTES: Gauge Bytes "recliner_view_part_file_bytes"
        ["node", "db", "range", "ddoc", "signature"]
        "Bytes of one file of a view index; recliner_target_file_bytes includes them.";
    VIEW_PART_RECLAIMABLE_BYTES: Gauge Bytes "recliner_view_part_reclaimable_bytes"
        ["node", "db", "range", "ddoc", "signature"]
        "Bytes predicted to be freed in one file of a view index; recliner_target_reclaimable_bytes includes them.";
}

/// Families with the same labels, each with the function that reads its value.
type FamilyReaders<const LABELS: usize, const FAMILIES: usize> =
    [(&'static Family<LABELS>, fn(Sizes) -> Option<u64>); FAMILIES];

/// Characters reserved for the labels of one target, for longer names than most clusters have.
const LABEL_CHARACTERS: usize = 256;

/// Characters reserved for the rest of a line: the longest family name, and a number.
const OTHER_CHARACTERS: usize = 56;

pub(super) fn write(writer: &mut Writer, plan: &Plan) {
    let snapshot = &plan.snapshot;
    let superseded = superseded_instances(snapshot);
    databases(writer, snapshot, &superseded);
    let listed: Vec<TargetIx> = if superseded.is_empty() {
        snapshot.top().targets.clone()
    } else {
        let targets = snapshot.top().targets.iter().filter_map(|ix| snapshot.target(*ix));
        targets.filter(|target| !superseded.contains(&target.db())).map(TargetRef::ix).collect()
    };
    let (parts, targets): (Vec<TargetIx>, Vec<TargetIx>) =
        listed.into_iter().partition(|ix| snapshot.target(*ix).is_some_and(TargetRef::is_part));
    let families: FamilyReaders<6, 3> = [
        (&TARGET_FILE_BYTES, |sizes| sizes.file),
        (&TARGET_ACTIVE_BYTES, |sizes| sizes.active),
        (&TARGET_RECLAIMABLE_BYTES, |sizes| sizes.reclaimable),
    ];
    targets_of(writer, snapshot, &targets, &families, |target, names| {
        [
            target.node(),
            target.kind().label(),
            target.db_name().db,
            names.range(),
            names.design,
            names.signature(),
        ]
    });
    let families: FamilyReaders<5, 2> = [
        (&VIEW_PART_FILE_BYTES, |sizes| sizes.file),
        (&VIEW_PART_RECLAIMABLE_BYTES, |sizes| sizes.reclaimable),
    ];
    targets_of(writer, snapshot, &parts, &families, |target, names| {
        [target.node(), target.db_name().db, names.range(), names.design, names.signature()]
    });
}

/// While a database is deleted and created again, both instances may count as live. Of two
/// clustered instances with one name, only the one with more to reclaim is exported; this returns the others.
/// Node-local databases such as `_users` are exported beside the clustered one.
fn superseded_instances(snapshot: &Snapshot) -> HashSet<DbIx> {
    let mut best: HashMap<&str, &ExportedDatabase> = HashMap::new();
    let mut superseded = HashSet::new();
    // The shards of an old database have no suffix either.
    let without_suffix = snapshot.top().targets.iter().filter_map(|ix| snapshot.target(*ix));
    let without_suffix = without_suffix.filter(|target| target.db_name().suffix.is_empty());
    let ranged: HashSet<DbIx> =
        without_suffix.filter(|target| target.range().is_some()).map(TargetRef::db).collect();
    for top in &snapshot.top().databases {
        let name = snapshot.db_name(top.db);
        let is_clustered = |name: &DbName<'_>| !name.suffix.is_empty() || ranged.contains(&top.db);
        let Some(name) = name.filter(is_clustered) else { continue };
        let largest = best.entry(name.db).or_insert(top);
        if largest.db == top.db {
            continue;
        }
        let reclaimable = |it: &ExportedDatabase| {
            let of = |sums: &FileSums| sums.reclaimable_bytes.get().unwrap_or_default();
            of(&it.sums.shards) + of(&it.sums.views)
        };
        if reclaimable(top) > reclaimable(largest) {
            superseded.insert(largest.db);
            *largest = top;
        } else {
            superseded.insert(top.db);
        }
    }
    superseded
}

/// Writes the sums of databases. A process that reads only some of the nodes cannot know the sums
/// of shards, and one that does not serve the cluster cannot know the sums of views.
fn databases(writer: &mut Writer, snapshot: &Snapshot, superseded: &HashSet<DbIx>) {
    let mut members = snapshot.nodes().iter().skip(1).filter(|node| node.is_member).peekable();
    let sees_shards =
        members.peek().is_some() && members.all(|node| node.is_served && !node.files_only);
    let sees_views = snapshot.node(NodeIx::CLUSTER).is_some_and(|node| node.is_served);
    let mut rows: Vec<([&str; 2], FileSums)> = Vec::new();
    let mut row_of: HashMap<[&str; 2], usize> = HashMap::new();
    for top in snapshot.top().databases.iter().filter(|top| !superseded.contains(&top.db)) {
        let Some(name) = snapshot.db_name(top.db) else { continue };
        for (kind, seen, sums) in [
            (TargetKind::Db, sees_shards, &top.sums.shards),
            (TargetKind::View, sees_views, &top.sums.views),
        ] {
            if !seen || sums.file_count == 0 {
                continue;
            }
            let labels = [name.db, kind.label()];
            let at = *row_of.entry(labels).or_insert(rows.len());
            match rows.get_mut(at) {
                Some((_, row)) => *row = row.and(sums),
                None => rows.push((labels, *sums)),
            }
        }
    }
    writer.write_each(&rows, &[(&DATABASE_COPIES, |sums| Some(sums.file_count))]);
    writer.write_each(
        &rows,
        &[
            (&DATABASE_FILE_BYTES, |sums| sums.file_bytes.get()),
            (&DATABASE_ACTIVE_BYTES, |sums| sums.active_bytes.get()),
            (&DATABASE_RECLAIMABLE_BYTES, |sums| sums.reclaimable_bytes.get()),
        ],
    );
    // Before the first scan the number is unknown, not zero.
    if members_known(snapshot) {
        writer.family(&DATABASES_NOT_EXPORTED).sample(&[], snapshot.top().incomplete_count);
    }
}

fn members_known(snapshot: &Snapshot) -> bool {
    snapshot.nodes().iter().skip(1).any(|node| node.is_member)
}

/// Writes families that have one series for each of these targets.
///
/// With many targets, most of the time is spent waiting for memory. So the names of each target are
/// looked up only once, in memory order.
fn targets_of<const LABELS: usize, const FAMILIES: usize>(
    writer: &mut Writer,
    snapshot: &Snapshot,
    targets: &[TargetIx],
    families: &FamilyReaders<LABELS, FAMILIES>,
    named: impl for<'a> Fn(TargetRef<'a>, &'a Names<'a>) -> [&'a str; LABELS],
) {
    let [(first, read), others @ ..] = families.as_slice() else { return };
    let mut labels =
        LabelSets::with_capacity(first, targets.len(), targets.len() * LABEL_CHARACTERS);
    let mut sizes = Vec::with_capacity(targets.len());
    writer.reserve(FAMILIES * targets.len() * (LABEL_CHARACTERS + OTHER_CHARACTERS));
    // Writing while looking up names lets compression begin early.
    let mut samples = writer.family(*first);
    for target in targets.iter().filter_map(|ix| snapshot.target(*ix)) {
        let size = Sizes::of(target);
        let names = Names::of(target);
        let labels = labels.push(&named(target, &names));
        if let Some(bytes) = read(size) {
            samples.sample_of(labels, bytes);
        }
        sizes.push(size);
    }
    for (family, read) in others {
        let mut samples = writer.family(*family);
        for (labels, size) in labels.iter().zip(&sizes) {
            if let Some(bytes) = read(*size) {
                samples.sample_of(labels, bytes);
            }
        }
    }
}

/// The labels that name a target.
struct Names<'a> {
    range: Option<RangeText>,
    design: &'a str,
    signature: Option<String>,
}

impl<'a> Names<'a> {
    fn of(target: TargetRef<'a>) -> Self {
        let view = target.view().filter(|view| view.search_index.is_none());
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

/// The exported sizes of one target, in bytes on disk.
#[derive(Clone, Copy)]
struct Sizes {
    file: Option<u64>,
    active: Option<u64>,
    reclaimable: Option<u64>,
}

impl Sizes {
    fn of(target: TargetRef<'_>) -> Self {
        Self {
            file: target.file_bytes(),
            active: target.active_bytes(),
            reclaimable: target.reclaimable_bytes(),
        }
    }
}
