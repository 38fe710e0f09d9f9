//! Running jobs of any owner, as the API shows them.

use super::{
    columns::{Cell, Table, Value, rest, wide},
    vocabulary,
    vocabulary::Word,
};
use crate::{
    act::warmer::IndexBuilds,
    jobs::{Job, JobKind},
    model::{records::JobOwner, target::file_name},
    plan::Plan,
    table::NodeIx,
    text::Label,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

/// All running jobs, and when each node last reported its jobs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Jobs {
    /// When the list was made.
    pub generated_at: String,
    /// The nodes whose jobs are known.
    pub nodes: Vec<PolledNode>,
    /// The running jobs.
    pub jobs: Vec<JobLine>,
}

/// A node whose jobs are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolledNode {
    /// The node's name.
    pub node: Option<String>,
    /// When the node was last asked for its jobs.
    pub asked_at: String,
}

/// A running compaction or index build. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobLine {
    /// The node on which the job runs.
    pub node: Option<String>,
    /// The kind of target that the job works on.
    #[schemars(with = "vocabulary::Kind")]
    pub kind: Word,
    /// What the job does.
    #[schemars(with = "vocabulary::Work")]
    pub work: Word,
    /// The shard file's name.
    pub shard: String,
    /// The design document of the index; null for a database.
    pub ddoc: Option<String>,
    /// The target's id; null if the target is not known.
    pub target: Option<String>,
    /// Who started the job.
    #[schemars(with = "vocabulary::Owner")]
    pub owner: Word,
    /// The channel for which the job was started, or that takes its target.
    pub channel: Option<String>,
    /// The job's phase; `node_down` if its node does not answer, so that nothing is known of it.
    #[schemars(with = "vocabulary::Phase")]
    pub phase: Word,
    /// When the job was started, or first seen.
    pub since: String,
    /// The share of the work that is done, from 0 to 1; null if unknown.
    pub progress: Option<f64>,
    /// When CouchDB last reported any progress.
    pub last_progress: String,
    /// Size of the file before the compaction.
    pub file_bytes: Option<u64>,
    /// Predicted size of the file after the compaction.
    pub predicted_bytes: Option<u64>,
    /// Bytes that the job may still write to its volume.
    pub reserved_bytes: u64,
}

/// The phase of a job whose node does not answer.
const NODE_DOWN: &str = "node_down";

impl JobLine {
    fn what(&self) -> Cell {
        let build = Cell::words(if self.work == "build" { "build of " } else { "" });
        let name = self
            .target
            .as_ref()
            .map_or_else(|| Cell::from(self.name()), |id| Cell::target(id, &self.name()));
        // The task of a view is about the file of one shard.
        let name = name.explained(Some(&self.shard));
        build.and(name).below(self.node.as_deref().unwrap_or("?"))
    }

    /// The name of its file for people.
    #[must_use]
    pub fn name(&self) -> String {
        file_name(&self.shard, self.ddoc.as_deref())
    }
}

impl Jobs {
    /// The running jobs.
    pub(crate) fn table(&self, now: Moment) -> Table<&JobLine> {
        // Progress is too coarse for fractions of a second.
        let seconds = |span: Option<f64>| Cell::seconds(span.map(f64::ceil));
        let since = |it: &JobLine| Moment::parse(&it.since).map(|at| at.age(now).as_secs_f64());
        Table::of(&self.jobs)
            .text("what", JobLine::what)
            .text(rest("node"), |it| it.node.as_deref().map(Cell::node))
            .text("done", |it| match it.progress {
                Some(done) => Value::Share(done).into(),
                None => Cell::words(it.phase.replace('_', " ")).quiet(),
            })
            .number(rest("ends in"), |it| seconds(it.remaining_seconds(now)))
            .number("size", |it| Cell::bytes(it.file_bytes))
            .number(wide("for"), |it| seconds(since(it)).explained(Some(&it.since)))
            .number(wide("after"), |it| Cell::bytes(it.predicted_bytes))
            .text(wide("channel"), |it| it.channel.as_deref().unwrap_or("-"))
            .text(wide("started by"), |it| Cell::words(it.owner.replace('_', " ")))
    }

    /// The jobs that a plan is based on; the warmer knows which index builds it requested.
    pub fn of(plan: &Plan, builds: &IndexBuilds) -> Self {
        let jobs = &plan.conditions.jobs;
        let polled = jobs
            .polled_nodes
            .iter()
            .map(|(at, asked)| PolledNode { node: node(plan, *at), asked_at: asked.rfc3339() });
        Self {
            generated_at: plan.planned_at.rfc3339(),
            nodes: polled.collect(),
            jobs: jobs.list.iter().map(|job| JobLine::of(job, plan, builds)).collect(),
        }
    }
}

impl JobLine {
    fn of(job: &Job, plan: &Plan, builds: &IndexBuilds) -> Self {
        let target = job.target.and_then(|ix| plan.snapshot.target(ix));
        let is_down = plan.snapshot.node(job.key.node).is_some_and(|node| node.is_down());
        let work = match &job.key.kind {
            JobKind::CompactDb | JobKind::CompactView(_) => "compaction",
            JobKind::BuildView(_) | JobKind::BuildSearch(..) => "build",
        };
        let is_requested = !job.is_compaction() && job.target.is_some_and(|ix| builds.requests(ix));
        let owner = if is_requested { JobOwner::Recliner } else { job.owner };
        Self {
            node: node(plan, job.key.node),
            kind: job.target_kind.label().into(),
            work: work.into(),
            shard: job.key.shard.to_string(),
            ddoc: job.key.kind.design().map(ToString::to_string),
            target: target.map(|target| target.id().to_string()),
            owner: owner.label().into(),
            channel: job.channel.as_deref().map(ToOwned::to_owned),
            phase: if is_down { NODE_DOWN } else { job.phase.label() }.into(),
            since: job.started_at.rfc3339(),
            progress: job.progress.filter(|_| !is_down),
            last_progress: Moment::rfc3339(job.last_progress_at),
            file_bytes: job.file_bytes,
            predicted_bytes: job.predicted_bytes,
            reserved_bytes: job.reserved_bytes,
        }
    }

    /// The remaining time of the job in seconds, at its mean pace.
    pub fn remaining_seconds(&self, now: Moment) -> Option<f64> {
        let done = self.progress.filter(|done| *done > 0.01)?;
        let taken = Moment::parse(&self.since)?.age(now).as_secs_f64();
        Some(taken / done * (1.0 - done))
    }
}

fn node(plan: &Plan, at: NodeIx) -> Option<String> {
    plan.snapshot.node(at).map(|node| node.name.to_string())
}
