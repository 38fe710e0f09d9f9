//! Converts CouchDB's responses to facts. Pure.

use super::super::{ActiveTask, MapEntry, Members, TaskKind};
use crate::{
    model::{
        estimate,
        facts::{FactFlags, FactSource, Facts, Measurement, Overhead, file_id},
        target::TargetKind,
    },
    table::{NodeSmoosh, PriorityRange, SmooshChannel},
};
use couchdb_client::wire;
use couchdb_files::NEWEST_DISK_VERSION;
use couchdb_names::Version;
use wall_clock::Moment;

impl From<wire::Membership> for Members {
    fn from(members: wire::Membership) -> Self {
        let connected = members.all_nodes.unwrap_or_default();
        let expected = members.cluster_nodes.unwrap_or_else(|| connected.clone());
        Self { expected, connected }
    }
}

impl From<wire::SmooshStatus> for NodeSmoosh {
    fn from(status: wire::SmooshStatus) -> Self {
        let channels = status.channels.into_iter().map(|(name, channel)| {
            let waiting = channel.waiting.size.unwrap_or_default();
            // An empty queue has zero as both limits.
            let priority = channel.waiting.min.zip(channel.waiting.max);
            SmooshChannel {
                name: name.into(),
                active: channel.active.unwrap_or_default(),
                starting: channel.starting.unwrap_or_default(),
                waiting,
                priority_range: priority
                    .filter(|_| waiting > 0)
                    .map(|(min, max)| PriorityRange { min, max }),
            }
        });
        Self::Channels(channels.collect())
    }
}

impl ActiveTask {
    /// A task that works on a target; `None` for others (replications, resharding).
    pub(super) fn of(task: &wire::ActiveTask) -> Option<Self> {
        let shard = task.database.clone()?;
        let doing = match task.kind.as_deref()? {
            "database_compaction" => TaskKind::Compacts,
            "view_compaction" => TaskKind::CompactsView(task.design_document.clone()?),
            "indexer" => TaskKind::Builds(task.design_document.clone()?),
            // Reported for both nouveau and clouseau.
            "search_indexer" => TaskKind::BuildsSearch {
                design: task.design_document.clone()?,
                index: task.index.clone()?,
            },
            _ => return None,
        };
        Some(Self {
            phase: task.phase.clone(),
            progress: task.progress,
            changes_done: task.changes_done,
            total_changes: task.total_changes,
            started_on: task.started_on,
            updated_on: task.updated_on,
            pid: task.pid.clone(),
            indexer_pid: task.indexer_pid.clone(),
            process_status: task.process_status.clone(),
            ..Self::bare(doing, shard)
        })
    }
}

/// One document of the shard map; `None` for design documents and documents without a database.
pub(super) fn map_entry(doc: &wire::DbsDoc) -> Option<MapEntry> {
    let db = doc.id.as_deref().filter(|id| !id.starts_with("_design/"))?;
    let suffix = doc.suffix.as_deref()?;
    let changelog: Vec<[&str; 3]> =
        doc.changelog.iter().map(|it| [&*it.what, &*it.range, &*it.node]).collect();
    Some(MapEntry::new(db, suffix, &doc.by_range, &doc.by_node, &changelog))
}

/// The facts of a shard copy.
pub(super) fn db_facts(info: &wire::ShardInfo, version: Option<Version>, now: Moment) -> Facts {
    let bt_engine = info.engine.as_deref().is_none_or(|engine| engine == "couch_bt_engine");
    Facts {
        file_bytes: info.sizes.file.into(),
        active_bytes: info.sizes.active.into(),
        external_bytes: info.sizes.external.into(),
        update_seq: info.update_seq.into(),
        compacted_seq: info.compacted_seq.into(),
        docs: info.doc_count.into(),
        deleted_docs: info.doc_del_count.into(),
        file_id: info.uuid.as_deref().and_then(file_id),
        overhead: Overhead { purge_seq: info.purge_seq.into(), ..Overhead::default() },
        measured_at: Some(Measurement { at: now, source: FactSource::Http }),
        flags: FactFlags {
            compact_running: info.compact_running.unwrap_or_default(),
            needs_upgrade: bt_engine
                && info
                    .disk_format_version
                    .is_some_and(|format| format < NEWEST_DISK_VERSION.into()),
            ..FactFlags::default()
        },
        confidence: estimate::confidence(TargetKind::Db, version, None),
        ..Facts::default()
    }
}

/// The facts of a view index: of one copy, or of the cluster's sum over `ranges` files.
pub(super) fn view_facts(
    index: &wire::ViewIndex,
    ranges: Option<u64>,
    version: Option<Version>,
    now: Moment,
) -> Facts {
    let per_file = |sum: Option<u64>| sum.map(|sum| sum / ranges.unwrap_or(1).max(1));
    let pending = index.pending_updates.or_else(|| index.updates_pending.and_then(|it| it.total));
    // The cluster's union mixes nodes with different libraries, so only a single copy is exact.
    let collators = index.collator_versions.as_ref().filter(|_| ranges.is_none());
    Facts {
        file_bytes: per_file(index.sizes.file).into(),
        active_bytes: per_file(index.sizes.active).into(),
        external_bytes: per_file(index.sizes.external).into(),
        update_seq: index.update_seq.into(),
        updates_pending: pending.into(),
        purge_seq: index.purge_seq.into(),
        measured_at: Some(Measurement { at: now, source: FactSource::Http }),
        flags: FactFlags {
            compact_running: index.compact_running.unwrap_or_default(),
            updater_running: index.updater_running.unwrap_or_default(),
            needs_upgrade: collators.is_some_and(|versions| versions.len() >= 2),
            estimated: true,
            ..FactFlags::default()
        },
        confidence: estimate::confidence(TargetKind::View, version, None),
        ..Facts::default()
    }
}

/// Whether a split has ended for good. A stopped or failed split can be resumed, unless its database
/// no longer exists (`mem3_reshard_job:handle_worker_exit/3`).
pub(super) fn is_split_over(job: &wire::ReshardJob) -> bool {
    let reason = job.state_info.as_ref().and_then(|info| info.reason.as_deref());
    match job.job_state.as_deref() {
        Some("completed") => true,
        Some("failed") => reason.is_some_and(|reason| reason.contains("missing_source")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_is_over_if_completed_or_its_source_is_missing() {
        for (state, info, is_over) in [
            ("completed", "{}", true),
            ("running", "{}", false),
            ("stopped", r#"{"reason": "Job stopped"}"#, false),
            ("failed", r#"{"reason": "{worker_error,timeout}"}"#, false),
            ("failed", r#"{"reason": {"unknown": 1}}"#, false),
            ("failed", r#"{"reason": "missing_source"}"#, true),
            ("failed", r#"{"reason": "{error,missing_source}"}"#, true),
        ] {
            let job = format!(r#"{{"job_state": "{state}", "state_info": {info}}}"#);
            let job = serde_json::from_str(&job).unwrap();
            assert_eq!(is_split_over(&job), is_over, "{job:?}");
        }
    }
}
