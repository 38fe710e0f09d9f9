//! Helpers of the rules about views: names of design documents, and builds of their indexes.

use crate::{
    advice::{Remedy, Situation, Subject, grouped_by},
    jobs::{Job, JobKind},
    model::rounding::to_bytes,
    table::TargetRef,
    what_if::ASSUMED_RATE,
};
use couchdb_names::ShardName;
use std::collections::{BTreeMap, BTreeSet};

/// The first of the design documents that share an index, with its database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DesignName {
    pub(super) db: String,
    pub(super) design: String,
}

impl DesignName {
    /// None if no design document of the index is known.
    pub(super) fn of(index: TargetRef<'_>) -> Option<Self> {
        let design = index.view()?.designs.first()?.to_string();
        Some(Self { db: index.db_name().db.to_owned(), design })
    }

    pub(super) fn subject(self) -> Subject {
        Subject::Design { db: self.db, design: self.design }
    }

    /// The request that shows the document.
    pub(super) fn show(&self, says: &str) -> Remedy {
        Remedy::get(says, &[&self.db, &self.design])
    }
}

impl std::fmt::Display for DesignName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.db, self.design)
    }
}

/// Whether any copy of an index is being built, for any of the design documents that share it.
pub(super) fn is_building(situation: &Situation<'_>, index: TargetRef<'_>) -> bool {
    let designs = index.view().map_or(&[][..], |view| &view.designs);
    let builds = |job: &Job| {
        let JobKind::BuildView(design) = &job.key.kind else { return false };
        designs.contains(design) && db_of(job) == index.db_name().db
    };
    index.facts().flags.updater_running
        || situation.inputs.plan.conditions.jobs.list.iter().any(builds)
}

/// The builds of view indexes, by design document.
pub(super) fn builds_by_design<'a>(
    situation: &Situation<'a>,
    chosen: impl Fn(&Job) -> bool,
) -> BTreeMap<DesignName, Vec<&'a Job>> {
    let jobs = situation.inputs.plan.conditions.jobs.list.iter().filter(|job| chosen(job));
    grouped_by(jobs.filter_map(|job| {
        let JobKind::BuildView(design) = &job.key.kind else { return None };
        let name = DesignName { db: db_of(job).to_owned(), design: design.to_string() };
        Some((name, job))
    }))
}

/// The database whose index a job builds or compacts.
fn db_of(job: &Job) -> &str {
    ShardName::split(&job.key.shard).map_or(&*job.key.shard, |shard| shard.db)
}

/// The names of the nodes on which jobs run.
pub(super) fn nodes_of(situation: &Situation<'_>, jobs: &[&Job]) -> Vec<String> {
    let node = |job: &&Job| situation.snapshot().node(job.key.node).map(|it| it.name.to_string());
    let nodes: BTreeSet<String> = jobs.iter().filter_map(node).collect();
    nodes.into_iter().collect()
}

/// Seconds that writing takes, at the measured rate of compactions or else at the assumed one.
pub(super) fn seconds_to_write(situation: &Situation<'_>, bytes: u64) -> u64 {
    let measured = situation.inputs.plan.conditions.constraints.measured_rate();
    let rate = measured.unwrap_or(ASSUMED_RATE);
    to_bytes(bytes as f64 / rate)
}
