//! A job and its identity, and all jobs of the cluster at one moment.

use super::progress::written_share;
use crate::{
    model::{records::JobOwner, rounding::to_bytes, target::TargetKind},
    table::{NodeIx, TargetIx},
};
use std::sync::Arc;
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// What a job does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobKind {
    /// Compacts a database shard.
    CompactDb,
    /// Compacts the view index of a design document, given by id.
    CompactView(Arc<str>),
    /// Builds the view index of a design document, given by id.
    BuildView(Arc<str>),
    /// Builds a search index, given by design document id and index name.
    BuildSearch(Arc<str>, Arc<str>),
}

/// Identifies a job. Unlike the process id, the phase and the start time, it stays the same for the
/// whole job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey {
    /// The node on which the job runs.
    pub node: NodeIx,
    /// Name of the shard file.
    pub shard: Arc<str>,
    /// What the job does.
    pub kind: JobKind,
}

/// The stage a job has reached.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPhase {
    /// The request was sent, or is about to be sent, and CouchDB does not show the task yet.
    Starting,
    /// CouchDB shows the task as running.
    Running,
    /// CouchDB shows the task as suspended (smoosh outside its window).
    Suspended,
    /// CouchDB no longer shows the task; its file is being read to determine the outcome.
    Ending,
}

/// A job that is starting, running or ending.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Identity of the job.
    pub key: JobKey,
    /// The target, if the tables contain it.
    pub target: Option<TargetIx>,
    /// Kind of the target.
    pub target_kind: TargetKind,
    /// Who started the job.
    pub owner: JobOwner,
    /// The channel that started the job, or the channel that takes its target.
    pub channel: Option<Arc<str>>,
    /// When the job was started, or first seen if the start is unknown.
    pub started_at: Moment,
    /// The stage the job has reached.
    pub phase: JobPhase,
    /// Completed share from 0 to 1, with phases weighted; `None` while CouchDB reports no progress.
    pub progress: Option<f64>,
    /// When CouchDB last reported progress.
    pub last_progress_at: Moment,
    /// Bytes the job may still write to its volume.
    pub reserved_bytes: u64,
    /// Size of the target's file before the job.
    pub file_bytes: Option<u64>,
    /// Predicted size of the file after the job.
    pub predicted_bytes: Option<u64>,
}

impl Job {
    /// Whether the job is a compaction rather than an index build.
    pub const fn is_compaction(&self) -> bool {
        matches!(self.key.kind, JobKind::CompactDb | JobKind::CompactView(_))
    }

    /// Bytes that the job needs on its volume at its peak, computed from its progress and the bytes
    /// it may still write.
    pub fn peak_bytes(&self) -> u64 {
        let remaining_share = 1.0 - self.progress.unwrap_or_default().clamp(0.0, 0.99);
        to_bytes(self.reserved_bytes as f64 / remaining_share)
    }

    /// Bytes of the unfinished file that the job has written so far.
    pub fn held_bytes(&self) -> u64 {
        let whole = self.predicted_bytes.unwrap_or_else(|| self.peak_bytes());
        let written =
            written_share(self.key.kind == JobKind::CompactDb, self.progress.unwrap_or_default());
        to_bytes(whole as f64 * written)
    }
}

/// All jobs of the cluster, as far as its nodes answered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobs {
    /// All known jobs, compactions and index builds.
    pub list: Vec<Job>,
    /// Nodes whose tasks are known, with the time of their last poll. Nothing is known about other
    /// nodes.
    pub polled_nodes: Vec<(NodeIx, Moment)>,
    /// Number of this process's starts that these jobs include. A plan based on older jobs may
    /// assign the same capacity twice.
    pub starts_accepted: u64,
}

impl Jobs {
    /// All compactions that are running or starting.
    pub fn compactions(&self) -> impl Iterator<Item = &Job> {
        self.list.iter().filter(|job| job.is_compaction())
    }

    /// Number of index builds running on a node.
    pub fn builds_on(&self, node: NodeIx) -> usize {
        self.list.iter().filter(|job| !job.is_compaction() && job.key.node == node).count()
    }
}
