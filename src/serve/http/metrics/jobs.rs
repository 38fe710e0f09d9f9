//! Jobs: what runs, how far it is, and what became of this process's own.

use super::places;
use crate::{
    act::follower::{Counts, Distribution},
    jobs::{Job, JobKey},
    model::{
        memory::{Ending, Owner, Rest},
        target::Kind,
    },
    plan::Plan,
    serve::http::families as f,
    table::NodeIx,
};
use couchdb_names::ShardName;
use hashbrown::HashSet;
use metrics_text::Writer;
use std::{collections::BTreeMap, sync::Arc};

/// Kinds whose compactions CouchDB shows.
const SHOWN: [Kind; 2] = [Kind::Db, Kind::View];

/// Writes the families of jobs.
pub(super) fn write(writer: &mut Writer, plan: &Plan, counts: &Counts) {
    running(writer, plan);
    each(writer, plan);
    happened(writer, plan, counts);
    let mut quarantined: BTreeMap<NodeIx, u64> = places(plan).map(|(at, _)| (at, 0)).collect();
    for (ix, rest) in &plan.conditions.history.rests {
        if let (Some(target), Rest::Quarantined { .. }) = (plan.snapshot.target(*ix), rest) {
            *quarantined.entry(target.node_ix()).or_default() += 1;
        }
    }
    let mut samples = writer.family(&f::QUARANTINED_TARGETS);
    for (at, count) in quarantined {
        if let Some(node) = plan.snapshot.node(at) {
            samples.sample(&[&node.name], count);
        }
    }
}

/// How many run on each node that said what it runs.
fn running(writer: &mut Writer, plan: &Plan) {
    let jobs = &plan.conditions.jobs;
    let mut rows = BTreeMap::new();
    for (node, _) in &jobs.polled {
        for kind in SHOWN {
            for owner in Owner::ALL {
                rows.insert((*node, kind, owner), 0_u64);
            }
        }
    }
    for job in jobs.compactions() {
        *rows.entry((job.key.node, job.kind, job.owner)).or_default() += 1;
    }
    let mut samples = writer.family(&f::JOBS_RUNNING);
    for ((at, kind, owner), count) in rows {
        if let Some(node) = plan.snapshot.node(at) {
            samples.sample(&[&node.name, kind.label(), owner.label()], count);
        }
    }
}

/// Each compaction by name.
fn each(writer: &mut Writer, plan: &Plan) {
    // While a database is deleted and made anew, two of its instances may be compacted. One
    // name is one series.
    let mut seen = HashSet::new();
    let named: Vec<(Named, &Job)> = plan
        .conditions
        .jobs
        .compactions()
        .filter_map(|job| Some((Named::of(&job.key, job.kind, plan)?, job)))
        .filter(|(named, _)| seen.insert(named.clone()))
        .collect();
    let mut samples = writer.family(&f::JOB_PROGRESS_RATIO);
    for (named, job) in &named {
        if let Some(progress) = job.progress {
            samples.sample(&named.labels(), progress);
        }
    }
    let mut samples = writer.family(&f::JOB_LAST_PROGRESS_TIMESTAMP);
    for (named, job) in &named {
        samples.sample(&named.labels(), job.last_progress);
    }
}

/// What a job is called in labels.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Named {
    node: Arc<str>,
    kind: &'static str,
    db: String,
    range: String,
    design: String,
}

impl Named {
    fn of(key: &JobKey, kind: Kind, plan: &Plan) -> Option<Self> {
        let node = Arc::clone(&plan.snapshot.node(key.node)?.name);
        let split = ShardName::split(&key.shard);
        let db = split.as_ref().map_or(&*key.shard, |name| name.db).to_owned();
        let range = split.map(|name| name.range.to_string()).unwrap_or_default();
        let design = key.work.design().unwrap_or_default().to_owned();
        Some(Self { node, kind: kind.label(), db, range, design })
    }

    fn labels(&self) -> [&str; 5] {
        [&self.node, self.kind, &self.db, &self.range, &self.design]
    }
}

/// What became of this process's own jobs, from zero on wherever its channels may start one.
fn happened(writer: &mut Writer, plan: &Plan, counts: &Counts) {
    let mut started: BTreeMap<(&str, &str, Kind), u64> = BTreeMap::new();
    for queue in plan.queues.iter() {
        let Some(channel) = plan.channels.list.get(queue.channel) else { continue };
        let view = channel.kind == Kind::View;
        // A view's copies are compacted where they lie.
        for (_, node) in places(plan).filter(|(at, _)| *at == queue.node || view) {
            started.insert((&node.name, &channel.name, channel.kind), 0);
        }
    }
    let endings = |kind: Kind| Ending::ALL.into_iter().filter(move |it| it.is_usual_of(kind));
    let mut finished: BTreeMap<((&str, &str, Kind), Ending), u64> = started
        .keys()
        .flat_map(|place| endings(place.2).map(|ending| ((*place, ending), 0)))
        .collect();
    for ((node, channel, kind), count) in &counts.started {
        started.insert((node, channel, *kind), *count);
    }
    for (((node, channel, kind), ending), count) in &counts.finished {
        finished.insert(((node, channel, *kind), *ending), *count);
    }
    let mut samples = writer.family(&f::COMPACTIONS_STARTED);
    for ((node, channel, kind), count) in started {
        samples.sample(&[node, channel, kind.label()], count);
    }
    let mut samples = writer.family(&f::COMPACTIONS_FINISHED);
    for (((node, channel, kind), ending), count) in finished {
        samples.sample(&[node, channel, kind.label(), ending.label()], count);
    }
    for (family, bytes) in [
        (&f::COMPACTION_RECLAIMED_BYTES, &counts.reclaimed),
        (&f::COMPACTION_REWRITTEN_BYTES, &counts.rewritten),
    ] {
        let mut samples = writer.family(family);
        for ((node, kind), bytes) in bytes {
            samples.sample(&[node, kind.label()], *bytes);
        }
    }
    let none = [Distribution::of_durations(), Distribution::of_estimates()];
    for (family, values, none) in [
        (&f::COMPACTION_DURATION, &counts.durations, &none[0]),
        (&f::COMPACTION_ESTIMATE_RATIO, &counts.estimates, &none[1]),
    ] {
        let mut samples = writer.family(family);
        for kind in SHOWN {
            let values = values.get(&kind).unwrap_or(none);
            samples.histogram(&[kind.label()], &values.buckets, values.count, values.sum);
        }
    }
}
