//! View indexes: what they cost, and how far they are built.

mod duplicate_views;
mod growing_lag;
mod index_larger_than_database;
mod lagging_index;
mod many_views_in_one_design;
mod smoosh_compacts_building_index;
mod stalled_build;

use super::Family;
use crate::{
    advice::{Remedy, Situation, Subject},
    jobs::{Job, JobKind},
    model::rounding::to_bytes,
    table::TargetRef,
    what_if::ASSUMED_RATE,
};
use couchdb_names::ShardName;
use std::collections::BTreeMap;

/// The family.
pub(super) const FAMILY: Family = Family {
    title: "View indexes",
    rules: &[
        stalled_build::RULE,
        lagging_index::RULE,
        growing_lag::RULE,
        smoosh_compacts_building_index::RULE,
        duplicate_views::RULE,
        index_larger_than_database::RULE,
        many_views_in_one_design::RULE,
    ],
};

/// The first of the design documents that share an index, with its database.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DesignName {
    db: String,
    design: String,
}

impl DesignName {
    /// None if no design document of the index is known.
    fn of(index: TargetRef<'_>) -> Option<Self> {
        let design = index.view()?.designs.first()?.to_string();
        Some(Self { db: index.db_name().db.to_owned(), design })
    }

    fn subject(self) -> Subject {
        Subject::Design { db: self.db, design: self.design }
    }

    /// The request that shows the document.
    fn show(&self, says: &str) -> Remedy {
        Remedy::couchdb(says, "GET", &[&self.db, &self.design], None)
    }
}

impl std::fmt::Display for DesignName {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.db, self.design)
    }
}

/// Whether any copy of an index is being built, of whichever of the design documents that share it.
fn is_building(situation: &Situation<'_>, index: TargetRef<'_>) -> bool {
    let designs = index.view().map_or(&[][..], |view| &view.designs);
    let builds = |job: &Job| {
        let JobKind::BuildView(design) = &job.key.kind else { return false };
        designs.contains(design)
            && ShardName::split(&job.key.shard).map_or(&*job.key.shard, |shard| shard.db)
                == index.db_name().db
    };
    index.facts().flags.updater_running
        || situation.inputs.plan.conditions.jobs.list.iter().any(builds)
}

/// The builds of view indexes, by design document.
fn builds_by_design<'a>(
    situation: &Situation<'a>,
    chosen: impl Fn(&Job) -> bool,
) -> BTreeMap<DesignName, Vec<&'a Job>> {
    let mut builds: BTreeMap<DesignName, Vec<&Job>> = BTreeMap::new();
    for job in situation.inputs.plan.conditions.jobs.list.iter().filter(|job| chosen(job)) {
        let JobKind::BuildView(design) = &job.key.kind else { continue };
        let db = ShardName::split(&job.key.shard).map_or(&*job.key.shard, |shard| shard.db);
        let name = DesignName { db: db.to_owned(), design: design.to_string() };
        builds.entry(name).or_default().push(job);
    }
    builds
}

/// How long writing takes, at the rate of the compactions here or at the usual one.
fn seconds_to_write(situation: &Situation<'_>, bytes: u64) -> u64 {
    let measured = situation.inputs.plan.conditions.constraints.measured_rate();
    let rate = measured.unwrap_or(ASSUMED_RATE);
    to_bytes(bytes as f64 / rate)
}
