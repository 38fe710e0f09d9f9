//! Determines the unused files at the end of a sweep.

use super::{Disk, OnNode};
use crate::{
    datadir::{DirectoryContent, DirectoryVolume, OtherFileSums},
    jobs,
    model::{
        cause::Cause,
        target::{TargetKind, TargetState},
    },
    scan::{running_jobs::RunningJobs, targets::TargetTables, views::IndexTables},
    sources::inventory::CompactionFile,
    table::{
        CompactionFiles, DbIx, DbName, DiskUsage, Draft, NodeIx, PartSums, TargetIx, TargetRef,
        View, VolumeUsage,
    },
};
use std::{cmp::Reverse, collections::BTreeMap, sync::Arc, time::Duration};
use wall_clock::Moment;

/// How long a compaction's file must be unchanged to count as leftover, if running jobs are known: the
/// next poll shows a job that begins.
const LEFTOVER_AFTER: Duration = Duration::from_secs(600);

/// How long a compaction's file must be unchanged if running jobs are unknown: smoosh suspends jobs
/// outside its channel's window, for at most a day with daily windows, and then continues them.
const LEFTOVER_AFTER_UNPOLLED: Duration = Duration::from_secs(86_400);

/// Maximum length of a node's list of compaction files. An entry sums the files of one shard, separately for
/// database and view files and for leftovers and others.
const MAX_LISTED_COMPACTIONS: usize = 16;

/// Sums over one node's files.
#[derive(Debug, Default)]
struct Unused {
    stale_bytes: u64,
    stale_files: u64,
    /// Bytes of stale files whose shard is gone.
    ownerless_bytes: u64,
    designs_known: bool,
}

impl Disk {
    /// Determines the unused files: per part, node and volume, and as evidence for cleanups.
    pub(in crate::scan) fn judge(
        &self,
        targets: &mut TargetTables,
        views: &mut IndexTables,
        jobs: &RunningJobs,
        now: Moment,
    ) {
        let draft = &mut targets.draft;
        let mut nodes: BTreeMap<NodeIx, Unused> = BTreeMap::new();
        let mut stale_of: BTreeMap<DbIx, u64> = BTreeMap::new();
        let mut parts_of: BTreeMap<TargetIx, PartSums> = BTreeMap::new();
        for at in 0..draft.current().row_count() {
            let Some(part) = draft.current().target_at(at).filter(|target| target.is_part()) else {
                continue;
            };
            let ix = part.ix();
            let (node, db, facts) = (part.node_ix(), part.db(), part.facts());
            let Some(view) = part.view() else { continue };
            let (signature, named) = (view.signature, !view.designs.is_empty());
            let of = draft.current().find_view(views.of(db), signature);
            let has_shard = self.has_shard(draft, part);
            let designed = views.designed(db, signature);
            let unused = nodes.entry(node).or_default();
            unused.designs_known |= designed.is_some();
            let stale = has_shard == Some(false) || designed == Some(false);
            if stale {
                let bytes = facts.file_bytes.get().unwrap_or_default();
                unused.stale_bytes = unused.stale_bytes.saturating_add(bytes);
                unused.stale_files += 1;
                // `_view_cleanup` does not remove index files whose shard is gone.
                if has_shard == Some(false) {
                    unused.ownerless_bytes = unused.ownerless_bytes.saturating_add(bytes);
                } else {
                    *stale_of.entry(db).or_default() += bytes;
                }
            } else if let Some(of) = of
                && let Some(sums) = sums(part)
            {
                parts_of.entry(of).or_default().add(&sums);
            }
            if stale || has_shard.is_some() || designed.is_some() {
                draft.set_state(ix, if stale { TargetState::Orphan } else { TargetState::Ok });
            }
            match of {
                Some(of) => attribute(draft, ix, of),
                None if named && designed == Some(false) => unattribute(draft, ix),
                None => {}
            }
        }
        // Without directories, the sums are those of the copies that CouchDB showed.
        if !self.nodes.is_empty() {
            sum_up(draft, &parts_of);
        }
        if self.is_complete() {
            views.clear_stale(draft, |db| stale_of.contains_key(&db), now);
        }
        for (db, bytes) in stale_of {
            views.set_stale(draft, db, bytes, now);
        }
        for (at, on_node) in &self.nodes {
            let unused = nodes.remove(at).unwrap_or_default();
            set_disk_totals(draft, *at, on_node, (&unused, jobs.tasks(*at)), now);
        }
    }

    /// Whether all directories of nodes with known files were read completely.
    fn is_complete(&self) -> bool {
        let is_whole = |node: &OnNode| node.ended.as_ref().is_some_and(|disk| disk.whole);
        self.was_walked() && self.nodes.values().all(is_whole)
    }

    /// Whether the shard of a part exists; `None` if that is unknown.
    fn has_shard(&self, draft: &Draft, part: TargetRef<'_>) -> Option<bool> {
        let on_node = self.nodes.get(&part.node_ix())?;
        on_node.ended.as_ref().filter(|disk| disk.whole)?;
        let shard = draft.find_shard(part.node_ix(), part.db(), part.range());
        if shard.is_some_and(|ix| on_node.met.contains(ix.as_usize())) {
            return Some(true);
        }
        let name = part.shard_name()?;
        Some(on_node.unlisted.contains(&*name))
    }
}

/// Sets the sums over each view's parts.
fn sum_up(draft: &mut Draft, parts_of: &BTreeMap<TargetIx, PartSums>) {
    let views: Vec<TargetIx> = draft
        .current()
        .targets()
        .filter(|target| target.kind() == TargetKind::View && !target.is_part())
        .map(TargetRef::ix)
        .collect();
    for ix in views {
        let parts = parts_of.get(&ix).copied().unwrap_or_default();
        draft.set_parts(ix, parts);
    }
}

/// Sets a node's directory totals, given its running jobs, if known.
fn set_disk_totals(
    draft: &mut Draft,
    at: NodeIx,
    on_node: &OnNode,
    (unused, running): (&Unused, Option<&[jobs::RunningTask]>),
    now: Moment,
) {
    let Some(ended) = &on_node.ended else { return };
    let leftovers = leftovers(&on_node.compactions, running, now);
    let compactions = largest_compactions(draft, at, &on_node.compactions, running, now);
    let whole = ended.whole && on_node.unread == 0;
    let (sums, took) = (ended.sums, ended.took);
    let volumes = ended.volumes.iter().map(|volume| leftovers.on(volume, &sums, unused));
    let volumes: Vec<VolumeUsage> = volumes.collect();
    if whole {
        let all = on_node.compactions.iter().map(|file| file.bytes).fold(0, u64::saturating_add);
        let left = leftovers.of_dbs.saturating_add(leftovers.of_views);
        let others = [
            (Cause::CompactionFiles, all.saturating_sub(left)),
            (Cause::Leftovers, left),
            (Cause::DeletedFiles, sums.trash),
            (Cause::SearchIndexes, sums.nouveau.saturating_add(sums.clouseau)),
            (Cause::OtherFiles, sums.other.saturating_add(sums.misplaced)),
        ];
        draft.count_other_files(at, others.into());
    }
    draft.update_node(at, |node| {
        let before = node.disk_usage.unwrap_or_default();
        node.volume_usage = volumes;
        node.compactions = compactions;
        node.disk_usage = Some(DiskUsage {
            last_success: if whole { Some(now) } else { before.last_success },
            oldest_fact: before.oldest_fact,
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            files: sums.files,
            stale_index_bytes: unused.stale_bytes.saturating_add(sums.misplaced),
            stale_index_files: unused.stale_files,
            ownerless_index_bytes: unused.ownerless_bytes.saturating_add(sums.misplaced),
            designs_known: unused.designs_known,
            leftover_bytes: leftovers.of_dbs.saturating_add(leftovers.of_views),
            leftover_files: leftovers.files,
            trash_bytes: sums.trash,
            recent_trash_bytes: sums.recent_trash,
            recoverable_bytes: sums.recoverable,
            nouveau_bytes: sums.nouveau,
            clouseau_bytes: sums.clouseau,
            other_bytes: sums.other,
        });
    });
}

/// A part's contribution to its view, if its sizes are known.
fn sums(part: TargetRef<'_>) -> Option<PartSums> {
    Some(PartSums {
        count: 1,
        file_bytes: part.file_bytes()?,
        active_bytes: part.active_bytes()?,
        external_bytes: part.external_bytes().unwrap_or_default(),
        predicted_bytes: part.predicted_bytes()?,
        reclaimable_bytes: part.reclaimable_bytes()?,
    })
}

/// Sets the design documents of a part to those of its view.
fn attribute(draft: &mut Draft, part: TargetIx, of: TargetIx) {
    let view = |ix| draft.current().target(ix).and_then(TargetRef::view);
    let (Some(view), Some(of)) = (view(part), view(of)) else { return };
    if !Arc::ptr_eq(&view.designs, &of.designs) {
        let (designs, language) = (Arc::clone(&of.designs), Arc::clone(&of.language));
        let view = View { designs, language, ..view.clone() };
        draft.set_view(part, view);
    }
}

/// Clears the design documents of a part whose design document was deleted or replaced.
fn unattribute(draft: &mut Draft, part: TargetIx) {
    let Some(view) = draft.current().target(part).and_then(TargetRef::view) else { return };
    let view = View { designs: Arc::new([]), language: Arc::from(""), ..view.clone() };
    draft.set_view(part, view);
}

/// Files that compactions left behind.
#[derive(Clone, Copy, Debug, Default)]
struct Leftovers {
    files: u64,
    /// Bytes left by database compactions.
    of_dbs: u64,
    /// Bytes left by view compactions.
    of_views: u64,
}

impl Leftovers {
    /// The unused bytes on one volume. Index files outside CouchDB's index directory count with the
    /// databases.
    fn on(&self, volume: &DirectoryVolume, sums: &OtherFileSums, unused: &Unused) -> VolumeUsage {
        let dbs = [sums.misplaced, self.of_dbs, sums.trash.saturating_sub(sums.trash_of_views)];
        let views = [unused.stale_bytes, self.of_views, sums.trash_of_views];
        let [stale_index, leftover, trash] = match volume.content {
            DirectoryContent::Databases => dbs,
            DirectoryContent::Views => views,
            DirectoryContent::Both => std::array::from_fn(|at| {
                let of = |all: &[u64; 3]| all.get(at).copied().unwrap_or_default();
                of(&dbs).saturating_add(of(&views))
            }),
        };
        VolumeUsage {
            volume: volume.clone(),
            stale_index_bytes: stale_index,
            leftover_bytes: leftover,
            trash_bytes: trash,
        }
    }
}

/// Whether a compaction left this file behind, given the node's running jobs, if known.
fn is_leftover(file: &CompactionFile, running: Option<&[jobs::RunningTask]>, now: Moment) -> bool {
    match running {
        Some(tasks) => {
            file.changed.age(now) >= LEFTOVER_AFTER
                && !tasks.iter().any(|task| *task.key.shard == *file.shard)
        }
        None => file.changed.age(now) >= LEFTOVER_AFTER_UNPOLLED,
    }
}

/// The largest compaction files on a node, summed by shard.
fn largest_compactions(
    draft: &Draft,
    node: NodeIx,
    files: &[CompactionFile],
    running: Option<&[jobs::RunningTask]>,
    now: Moment,
) -> Vec<CompactionFiles> {
    let mut sums: BTreeMap<(&str, bool, bool), (u64, u64)> = BTreeMap::new();
    for file in files {
        let key = (&*file.shard, file.of_view, is_leftover(file, running, now));
        let (files, bytes) = sums.entry(key).or_default();
        *files += 1;
        *bytes = bytes.saturating_add(file.bytes);
    }
    let mut largest: Vec<_> = sums.into_iter().collect();
    largest.sort_unstable_by_key(|(key, (_, bytes))| (Reverse(*bytes), *key));
    largest.truncate(MAX_LISTED_COMPACTIONS);
    let listed = largest.into_iter().map(|((shard, of_views, is_leftover), (files, bytes))| {
        let (name, range) = DbName::and_range_of(shard);
        let target = draft.find_copy(node, name, range);
        let target = target.and_then(|ix| draft.current().target(ix));
        let shard_bytes = target.and_then(TargetRef::file_bytes);
        CompactionFiles { shard: shard.into(), of_views, is_leftover, files, bytes, shard_bytes }
    });
    listed.collect()
}

/// The files that compactions left behind, given the node's running jobs, if known.
fn leftovers(
    files: &[CompactionFile],
    running: Option<&[jobs::RunningTask]>,
    now: Moment,
) -> Leftovers {
    let leftover_files = files.iter().filter(|file| is_leftover(file, running, now));
    leftover_files.fold(Leftovers::default(), |mut all, file| {
        let bytes = if file.of_view { &mut all.of_views } else { &mut all.of_dbs };
        *bytes = bytes.saturating_add(file.bytes);
        all.files += 1;
        all
    })
}
