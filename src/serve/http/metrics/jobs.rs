//! Running compactions, their progress, and the results of those that this process started.

use super::served_nodes;
use crate::{
    act::job_state::{Histogram, JobCounters},
    jobs::{Job, JobKey},
    model::{
        records::{Backoff, JobOwner, JobResult},
        target::TargetKind,
    },
    plan::Plan,
    table::NodeIx,
    text::Label,
};
use couchdb_names::ShardName;
use hashbrown::HashSet;
use metrics_text::{Writer, families};
use std::{collections::BTreeMap, sync::Arc};

families! {
    JOBS_RUNNING: Gauge None "recliner_jobs_running" ["node", "kind", "owner"]
        "Number of compactions that are running or being started on the node, by who started them.";
    JOB_PROGRESS_RATIO: Gauge Ratio "recliner_job_progress_ratio"
        ["node", "kind", "db", "range", "ddoc"]
        "Ratio of the compaction's work that is done, from 0 to 1.";
    JOB_LAST_PROGRESS_TIMESTAMP: Gauge Seconds
        "recliner_job_last_progress_timestamp_seconds" ["node", "kind", "db", "range", "ddoc"]
        "Unix time at which CouchDB last reported progress of the compaction, in seconds.";
    COMPACTIONS_STARTED: Counter None
        "recliner_compactions_started_total" ["node", "channel", "kind"]
        "Compactions that this recliner started.";
    COMPACTIONS_FINISHED: Counter None
        "recliner_compactions_finished_total" ["node", "channel", "kind", "result"]
        "Compactions that this recliner started and that ended, by result.";
    QUARANTINED_TARGETS: Gauge None "recliner_quarantined_targets" ["node"]
        "Number of targets that failed repeatedly and wait for an operator to release them.";
    COMPACTION_RECLAIMED_BYTES: Counter Bytes
        "recliner_compaction_reclaimed_bytes_total" ["node", "kind"]
        "Bytes freed by compactions that this recliner started, where sizes are known.";
    COMPACTION_REWRITTEN_BYTES: Counter Bytes
        "recliner_compaction_rewritten_bytes_total" ["node", "kind"]
        "Bytes of the new files written by compactions that this recliner started, where sizes are known.";
    COMPACTION_DURATION: Histogram Seconds "recliner_compaction_duration_seconds" ["kind"]
        "Duration of compactions that this recliner started, in seconds.";
    COMPACTION_ESTIMATE_RATIO: Histogram Ratio "recliner_compaction_estimate_ratio" ["kind"]
        "Ratio of the actual to the predicted size after compactions that this recliner started.";
}

/// Kinds whose compactions CouchDB lists among its active tasks.
const LISTED: [TargetKind; 2] = [TargetKind::Db, TargetKind::View];

pub(super) fn write(writer: &mut Writer, plan: &Plan, counts: &JobCounters) {
    running(writer, plan);
    progress(writer, plan);
    starts_and_ends(writer, plan, counts);
    sizes_and_durations(writer, counts);
    quarantine(writer, plan);
}

fn quarantine(writer: &mut Writer, plan: &Plan) {
    let mut quarantined: BTreeMap<NodeIx, u64> =
        served_nodes(plan).map(|(ix, _)| (ix, 0)).collect();
    for (ix, rest) in &plan.conditions.constraints.backoffs {
        if let (Some(target), Backoff::Quarantined { .. }) = (plan.snapshot.target(*ix), rest) {
            *quarantined.entry(target.node_ix()).or_default() += 1;
        }
    }
    let named = |(ix, count)| Some(([&*plan.snapshot.node(ix)?.name], count));
    writer.write(&QUARANTINED_TARGETS, quarantined.into_iter().filter_map(named));
}

/// Nodes that have not reported their tasks yet have no samples.
fn running(writer: &mut Writer, plan: &Plan) {
    let jobs = &plan.conditions.jobs;
    let mut rows = BTreeMap::new();
    for (node, _) in &jobs.polled_nodes {
        for kind in LISTED {
            for owner in JobOwner::each() {
                rows.insert((*node, kind, owner), 0_u64);
            }
        }
    }
    for job in jobs.compactions() {
        *rows.entry((job.key.node, job.target_kind, job.owner)).or_default() += 1;
    }
    let named = |((at, kind, owner), count): ((NodeIx, TargetKind, JobOwner), u64)| {
        Some(([&*plan.snapshot.node(at)?.name, kind.label(), owner.label()], count))
    };
    writer.write(&JOBS_RUNNING, rows.into_iter().filter_map(named));
}

fn progress(writer: &mut Writer, plan: &Plan) {
    // While a database is deleted and created again, both instances may be compacted; only one of
    // them gets the series of their common name.
    let mut seen = HashSet::new();
    let named: Vec<(JobLabels, &Job)> = plan
        .conditions
        .jobs
        .compactions()
        .filter_map(|job| Some((JobLabels::of(&job.key, job.target_kind, plan)?, job)))
        .filter(|(named, _)| seen.insert(named.clone()))
        .collect();
    let rows: Vec<_> = named.iter().map(|(named, job)| (named.values(), *job)).collect();
    writer.write_each(&rows, &[(&JOB_PROGRESS_RATIO, |job| job.progress)]);
    writer.write_each(&rows, &[(&JOB_LAST_PROGRESS_TIMESTAMP, |job| Some(job.last_progress_at))]);
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct JobLabels {
    node: Arc<str>,
    kind: &'static str,
    db: String,
    range: String,
    design: String,
}

impl JobLabels {
    fn of(key: &JobKey, kind: TargetKind, plan: &Plan) -> Option<Self> {
        let node = Arc::clone(&plan.snapshot.node(key.node)?.name);
        let split = ShardName::split(&key.shard);
        let db = split.as_ref().map_or(&*key.shard, |name| name.db).to_owned();
        let range = split.map(|name| name.range.to_string()).unwrap_or_default();
        let design = key.kind.design().unwrap_or_default().to_owned();
        Some(Self { node, kind: kind.label(), db, range, design })
    }

    fn values(&self) -> [&str; 5] {
        [&self.node, self.kind, &self.db, &self.range, &self.design]
    }
}

/// Writes starts and ends. Every node and channel that may start a compaction has a sample, even if
/// it is zero.
fn starts_and_ends(writer: &mut Writer, plan: &Plan, counts: &JobCounters) {
    let mut started: BTreeMap<(&str, &str, TargetKind), u64> = BTreeMap::new();
    for queue in plan.queues.iter() {
        let Some(channel) = plan.channels.list.get(queue.channel_index) else { continue };
        let view = channel.kind == TargetKind::View;
        // Each copy of a view is compacted on its own node.
        for (_, node) in served_nodes(plan).filter(|(ix, _)| *ix == queue.node || view) {
            started.insert((&node.name, &channel.name, channel.kind), 0);
        }
    }
    let endings = |kind: TargetKind| JobResult::each().filter(move |it| it.is_usual_for(kind));
    let mut finished: BTreeMap<((&str, &str, TargetKind), JobResult), u64> = started
        .keys()
        .flat_map(|place| endings(place.2).map(|ending| ((*place, ending), 0)))
        .collect();
    for ((node, channel, kind), count) in &counts.started {
        started.insert((node, channel, *kind), *count);
    }
    for (((node, channel, kind), ending), count) in &counts.finished {
        finished.insert(((node, channel, *kind), *ending), *count);
    }
    let started = started.into_iter();
    let started = started.map(|((node, channel, kind), n)| ([node, channel, kind.label()], n));
    writer.write(&COMPACTIONS_STARTED, started);
    let finished = finished.into_iter().map(|(((node, channel, kind), ending), count)| {
        ([node, channel, kind.label(), ending.label()], count)
    });
    writer.write(&COMPACTIONS_FINISHED, finished);
}

fn sizes_and_durations(writer: &mut Writer, counts: &JobCounters) {
    for (family, bytes) in [
        (&COMPACTION_RECLAIMED_BYTES, &counts.reclaimed_bytes),
        (&COMPACTION_REWRITTEN_BYTES, &counts.rewritten_bytes),
    ] {
        let bytes = bytes.iter().map(|((node, kind), bytes)| ([&**node, kind.label()], *bytes));
        writer.write(family, bytes);
    }
    let none = [Histogram::durations(), Histogram::estimate_ratios()];
    for (family, values, none) in [
        (&COMPACTION_DURATION, &counts.durations, &none[0]),
        (&COMPACTION_ESTIMATE_RATIO, &counts.estimate_ratios, &none[1]),
    ] {
        let mut samples = writer.family(family);
        for kind in LISTED {
            let values = values.get(&kind).unwrap_or(none);
            samples.histogram(&[kind.label()], &values.buckets, values.count, values.sum);
        }
    }
}
