//! Determines the files a start works on, and which copy of a view is measured. Pure.

use crate::{
    jobs::job::{JobKey, JobKind},
    model::{
        records::Intent,
        target::{CLUSTER_NODE, TargetId, TargetKind},
    },
    sources::inventory::doc_hash,
    table::{NodeIx, Snapshot, TargetRef, ViewCopies},
};
use couchdb_names::ShardName;
use std::{collections::BTreeSet, sync::Arc};

/// The jobs of an intent: one, or one per copy of a view's database. Empty for a cleanup, for which
/// CouchDB shows no task. `None` while the tables do not contain its node or database.
pub(super) fn job_keys(intent: &Intent, tables: &Snapshot) -> Option<BTreeSet<JobKey>> {
    if intent.target.kind() == TargetKind::Cleanup {
        return Some(BTreeSet::new());
    }
    let work = intent
        .design
        .as_deref()
        .map_or(JobKind::CompactDb, |design| JobKind::CompactView(Arc::from(design)));
    if let Some(shard) = &intent.shard {
        let at = tables.nodes().iter().position(|node| *node.name == *intent.node)?;
        let node = NodeIx::from_usize(at)?;
        return Some(BTreeSet::from([JobKey {
            node,
            shard: Arc::from(shard.as_str()),
            kind: work,
        }]));
    }
    let TargetId::View { db, .. } = &intent.target else { return None };
    if intent.node != CLUSTER_NODE {
        return None;
    }
    let copies = tables.targets().filter(|target| {
        let name = target.db_name();
        target.kind() == TargetKind::Db
            && target.shard_map().copies > 0
            && db.strip_prefix(name.db) == Some(name.suffix)
    });
    let keys: BTreeSet<JobKey> = copies
        .filter_map(|copy| {
            let shard = Arc::from(copy.shard_name()?);
            Some(JobKey { node: copy.node_ix(), shard, kind: work.clone() })
        })
        .collect();
    (!keys.is_empty()).then_some(keys)
}

/// Whether the target's facts are those of this job's file. Always true for a database. For a view whose
/// copies differ, true for every copy; otherwise only for the copy that `inventory` reads, the first by node
/// of those that hold the design document.
pub(super) fn is_measured(target: TargetRef<'_>, key: &JobKey, tables: &Snapshot) -> bool {
    let Some(view) = target.view() else { return true };
    let (Some(design), true) = (view.designs.first(), view.exact_range) else { return false };
    if matches!(view.copies, ViewCopies::Differ(_)) {
        return target.facts_on(key.node).is_some();
    }
    let hash = doc_hash(design);
    let holder = tables
        .targets()
        .filter(|copy| copy.kind() == TargetKind::Db && copy.db() == target.db())
        .filter(|copy| copy.range().is_some_and(|range| range.contains(hash)))
        .filter(|copy| tables.node(copy.node_ix()).is_some_and(|node| node.answers()))
        .min_by_key(|copy| copy.node());
    let range = ShardName::split(&key.shard).map(|shard| shard.range);
    holder.is_some_and(|copy| copy.node_ix() == key.node && copy.range() == range)
}

/// Finds the target of a compaction that a node showed.
pub(super) fn target_of<'a>(key: &JobKey, tables: &'a Snapshot) -> Option<TargetRef<'a>> {
    let name = ShardName::split(&key.shard);
    let db = name.map_or(&*key.shard, |name| name.db);
    let suffix = name.map_or("", |name| name.suffix);
    let mut near =
        tables.targets().filter(|it| it.db_name().db == db && it.db_name().suffix == suffix);
    match &key.kind {
        JobKind::CompactDb => near.find(|it| {
            it.kind() == TargetKind::Db
                && it.node_ix() == key.node
                && it.range() == name.map(|name| name.range)
        }),
        JobKind::CompactView(design) => near.find(|it| {
            it.view().is_some_and(|view| view.exact_range && view.designs.contains(design))
        }),
        JobKind::BuildView(_) | JobKind::BuildSearch(..) => None,
    }
}

/// Finds a target by its id.
pub(super) fn find_target(id: &TargetId, tables: &Snapshot) -> Option<crate::table::TargetIx> {
    let db = match id {
        TargetId::Db { shard, .. } => ShardName::split(shard).map_or(shard.as_str(), |it| it.db),
        TargetId::View { db, .. } => ShardName::split(db).map_or(db.as_str(), |it| it.db),
        TargetId::Cleanup { db } | TargetId::Search { db, .. } => db,
    };
    let mut near = tables.targets().filter(|target| target.kind() == id.kind());
    // Building an id allocates text, so ids are compared only if the database matches.
    near.find(|target| db.starts_with(target.db_name().db) && target.id() == *id).map(TargetRef::ix)
}
