//! The running jobs as entries of `_active_tasks`.

use super::{
    super::{Task, TaskKind, World},
    Job, JobKey, JobKind, NEVER,
};
use crate::growth::times;
use std::time::Duration;

/// The phases of a database compaction, with the completed share at the end of each.
const PHASES: [(&str, f64); 3] =
    [("document_copy", 0.6), ("docid_sort", 0.75), ("docid_copy", 1.0)];

impl World {
    /// The running tasks of all running nodes.
    #[must_use]
    pub fn tasks(&self) -> Vec<Task> {
        self.jobs.iter().filter_map(|(key, job)| self.task(*key, job)).collect()
    }

    fn task(&self, key: JobKey, job: &Job) -> Option<Task> {
        let node = self.nodes.get(self.node_of(key.file)? as usize)?.node.name.clone();
        let done = job.done(self.now);
        let (kind, total_changes, part) = match key.kind {
            JobKind::Shard => {
                let at = PHASES.iter().position(|(_, end)| done < *end).unwrap_or(PHASES.len() - 1);
                let (phase, end) = *PHASES.get(at)?;
                let begin = at.checked_sub(1).and_then(|at| PHASES.get(at)).map_or(0.0, |p| p.1);
                // The sort counts each merge over all documents.
                let merges = if at == 1 { 1 + job.changes / 100_000 } else { 1 };
                let total = job.changes.saturating_mul(merges);
                (TaskKind::Database { phase }, total, (done - begin) / (end - begin))
            }
            JobKind::Index(_) => {
                let ids = done < 0.3;
                let (phase, view) = if ids { ("ids", None) } else { ("view", Some(0)) };
                (TaskKind::View { ddoc: self.ddoc_of(key)?, phase, view }, job.changes, done)
            }
            JobKind::Build(_) => {
                (TaskKind::Indexer { ddoc: self.ddoc_of(key)? }, job.changes, done)
            }
            JobKind::Search(..) => {
                let index = self.search_of(key)?.name.clone();
                (TaskKind::Search { ddoc: self.ddoc_of(key)?, index }, job.changes, done)
            }
        };
        Some(Task {
            node,
            shard: self.name_of(key.file)?,
            kind,
            process: job.process,
            changes_done: times(total_changes, part.clamp(0.0, 1.0)),
            total_changes,
            started: job.began,
            // A stalled job reports no progress.
            updated: match job.ends {
                NEVER => job.began,
                _ => Duration::from_secs(self.now.as_secs()).max(job.began),
            },
        })
    }
}
