//! The running jobs as entries of `_active_tasks`.

use super::{
    super::{
        Task, TaskKind, World,
        keys::{Index, JobKey, JobKind},
    },
    Job, NEVER,
};
use crate::growth::times;
use std::time::Duration;

/// The phases of a database compaction, with the completed share at the beginning and at the end of
/// each.
const PHASES: [(&str, f64, f64); 3] =
    [("document_copy", 0.0, 0.6), ("docid_sort", 0.6, 0.75), ("docid_copy", 0.75, 1.0)];

impl World {
    /// The running tasks of all running nodes.
    pub fn tasks(&self) -> Vec<Task> {
        self.jobs.iter().filter_map(|(key, job)| self.task(*key, job)).collect()
    }

    fn task(&self, key: JobKey, job: &Job) -> Option<Task> {
        let done = job.done(self.now);
        let mut total_changes = job.changes;
        let mut part = done;
        let kind = match key.kind {
            JobKind::Shard => {
                let at = PHASES.iter().position(|(_, _, end)| done < *end);
                let (phase, begin, end) = PHASES[at.unwrap_or(PHASES.len() - 1)];
                part = (done - begin) / (end - begin);
                // The sort counts each merge over all documents.
                let merges = if at == Some(1) { 1 + job.changes / 100_000 } else { 1 };
                total_changes = job.changes.saturating_mul(merges);
                TaskKind::Database { phase }
            }
            JobKind::View(_) => {
                let (phase, view) = if done < 0.3 { ("ids", None) } else { ("view", Some(0)) };
                TaskKind::View { ddoc: self.ddoc_of(key)?, phase, view }
            }
            JobKind::Build(Index::View(_)) => TaskKind::Indexer { ddoc: self.ddoc_of(key)? },
            JobKind::Build(Index::Search(design, at)) => TaskKind::Search {
                ddoc: self.ddoc_of(key)?,
                index: self.design(key.file, design)?.searches.get(at)?.name.clone(),
            },
        };
        Some(Task {
            node: self.nodes[self.node_of(key.file)].node.name.clone(),
            shard: self.name_of(key.file),
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
