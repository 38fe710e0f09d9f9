//! What `recliner tidy` finds, would do and did: one value for the text and for JSON.

use crate::{
    model::{
        records::{JobResult, Outcome},
        settings::limits::Free,
        target::{TargetId, TargetKind},
    },
    plan::{Plan, PlannedStart, Refusal, TidyOutlook},
    serve::report::{self, OutcomeLine},
    service::{TidyEnd, TidyReport, TidyScope},
    table::{PartialSum, TargetIx, TargetRef},
    text::{Label, size::format_size_short},
};
use serde::Serialize;
use std::{collections::BTreeSet, time::Duration};

/// The whole answer. Bytes are on-disk sizes; unknown is null.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct TidyAnswer {
    pub(in crate::cli) before: Sizes,
    /// The named databases; all if empty.
    databases: Vec<String>,
    pub(in crate::cli) until_free: Option<u64>,
    /// The compactions, in this order.
    pub(in crate::cli) starts: Vec<Step>,
    /// Whether the list of starts is truncated.
    pub(in crate::cli) is_cut: bool,
    /// The databases whose unused index files CouchDB is asked to delete although none are known.
    pub(in crate::cli) unproven_cleanups: Vec<TargetId>,
    /// What the pass would leave undone.
    pub(in crate::cli) left: Vec<Left>,
    /// The free bytes after the pass.
    pub(in crate::cli) free_bytes: Option<u64>,
    /// Whether a fixed number (`--assume-free`, `available`) says what is free, and nothing measured it.
    pub(in crate::cli) free_is_assumed: bool,
    /// Why free space is unknown, if files may be left because of it.
    pub(in crate::cli) unknown_space: Option<String>,
    /// What the pass did; null after a dry run, and if there was nothing to do.
    pub(in crate::cli) done: Option<Done>,
}

/// The sizes at one time.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Sizes {
    pub(in crate::cli) databases: usize,
    /// Bytes of the files whose size is known.
    pub(in crate::cli) file_bytes: u64,
    /// Number of files whose size is unknown.
    pub(in crate::cli) unmeasured: u64,
    /// Free bytes on the fullest volume.
    pub(in crate::cli) free_bytes: Option<u64>,
}

/// A compaction of one file, or of all files of an index.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Step {
    id: String,
    /// Its database or design document: all of its files have the same name.
    pub(in crate::cli) name: String,
    pub(in crate::cli) file_bytes: Option<u64>,
    pub(in crate::cli) reclaimable_bytes: Option<u64>,
    pub(in crate::cli) peak_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(in crate::cli) struct Left {
    id: String,
    pub(in crate::cli) name: String,
    pub(in crate::cli) reason: &'static str,
    pub(in crate::cli) why: String,
}

/// How a pass went.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct Done {
    #[serde(serialize_with = "label")]
    pub(in crate::cli) end: TidyEnd,
    pub(in crate::cli) seconds: u64,
    pub(in crate::cli) after: Sizes,
    /// How each compaction and cleanup ended.
    pub(in crate::cli) outcomes: Vec<OutcomeLine>,
    /// What CouchDB still compacts and finishes by itself.
    pub(in crate::cli) still_running: Vec<String>,
    pub(in crate::cli) left: Vec<Left>,
}

fn label<S: serde::Serializer>(end: &TidyEnd, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_str(end.label())
}

impl TidyAnswer {
    pub(in crate::cli) fn new(
        plan: &Plan,
        outlook: &TidyOutlook,
        databases: &[String],
        until_free: Option<u64>,
    ) -> Self {
        let problem = || {
            let volumes = plan.conditions.disks.volumes.iter();
            let problem = volumes.filter_map(|it| it.problem.as_ref()).next();
            let problem = problem.map_or_else(String::new, |why| format!(" ({why})"));
            let blind = format_size_short(plan.rules.headroom.blind_limit);
            format!(
                "Free space is unknown{problem}, so files larger than {blind} are skipped; let recliner read it with --data-dir /opt/couchdb/data, or give it with --assume-free 10GiB."
            )
        };
        Self {
            before: Sizes::of(plan, databases),
            databases: databases.to_owned(),
            until_free,
            starts: outlook.starts.iter().map(|start| Step::of(plan, start)).collect(),
            is_cut: outlook.is_cut,
            unproven_cleanups: unproven_cleanups(plan, databases),
            left: outlook.left.iter().map(|left| Left::of(plan, left)).collect(),
            free_bytes: outlook.free_bytes,
            free_is_assumed: is_free_space_assumed(plan),
            unknown_space: plan.least_free_bytes().is_none().then(problem),
            done: None,
        }
    }

    /// Adds the result of the pass.
    pub(in crate::cli) fn ended(&mut self, report: &TidyReport, scope: &TidyScope, took: Duration) {
        let TidyReport { end, plan, outcomes, still_running } = report;
        let done: BTreeSet<_> =
            outcomes.iter().filter(|it| !is_failed(it)).map(|it| &it.target).collect();
        let left = plan.left(|_, id| done.contains(id) || !scope.targets.contains(id));
        let left = left.iter().filter(|(ix, _)| !still_running.contains(ix));
        self.done = Some(Done {
            end: *end,
            seconds: took.as_secs(),
            after: Sizes::of(plan, &self.databases),
            outcomes: (0..).zip(outcomes).map(|(seq, it)| OutcomeLine::of(seq, it)).collect(),
            still_running: still_running.iter().map(|ix| file_name(plan, *ix)).collect(),
            left: left.map(|left| Left::of(plan, left)).collect(),
        });
    }

    /// Whether the requested free space is reached.
    pub(in crate::cli) fn has_enough(&self) -> bool {
        self.is_enough(self.before.free_bytes)
    }

    fn is_enough(&self, free: Option<u64>) -> bool {
        self.until_free.zip(free).is_some_and(|(goal, free)| free >= goal)
    }

    /// The requested free bytes, if they were not reached or would not be.
    pub(in crate::cli) fn missed_goal(&self) -> Option<u64> {
        let free = self.done.as_ref().map_or(self.free_bytes, |done| done.after.free_bytes);
        self.until_free.filter(|_| !self.is_enough(free))
    }

    /// Whether work worth doing remains, or would remain.
    pub(in crate::cli) fn leaves_something(&self) -> bool {
        let leaves = match &self.done {
            None => !self.left.is_empty(),
            Some(done) => match done.end {
                TidyEnd::TimeUp | TidyEnd::Interrupted => true,
                TidyEnd::Finished => !done.left.is_empty() || done.failed().next().is_some(),
                TidyEnd::EnoughFree => done.failed().next().is_some(),
            },
        };
        leaves || self.missed_goal().is_some()
    }
}

impl Done {
    /// The compactions that failed.
    pub(in crate::cli) fn failed(&self) -> impl Iterator<Item = &OutcomeLine> {
        self.outcomes.iter().filter(|it| matches!(&*it.result, "failed" | "lost"))
    }

    pub(in crate::cli) fn compacted(&self) -> usize {
        let files = self.outcomes.iter().filter(|it| it.kind != TargetKind::Cleanup.label());
        files.filter(|it| !matches!(&*it.result, "failed" | "lost")).count()
    }
}

fn is_failed(outcome: &Outcome) -> bool {
    matches!(outcome.ending, JobResult::Failed | JobResult::Lost)
}

fn is_free_space_assumed(plan: &Plan) -> bool {
    let mut volumes = plan.rules.headroom.volumes.iter();
    volumes.any(|volume| matches!(volume.free, Free::Available(_)))
}

impl Left {
    /// Whether the output names both alike.
    pub(in crate::cli) fn is_same(&self, other: &Self) -> bool {
        (&self.name, &self.why) == (&other.name, &other.why)
    }
}

impl Sizes {
    fn of(plan: &Plan, databases: &[String]) -> Self {
        let mut sum = PartialSum::default();
        let files = plan.snapshot.files_once().filter(|target| is_meant(databases, *target));
        let mut names = BTreeSet::new();
        files.for_each(|target| {
            names.insert(target.db_name().db);
            sum.add(target.file_bytes(), false);
        });
        Self {
            databases: if databases.is_empty() { names.len() } else { databases.len() },
            file_bytes: sum.measured().unwrap_or(0),
            unmeasured: sum.unknown_count(),
            free_bytes: plan.least_free_bytes(),
        }
    }
}

impl Step {
    fn of(plan: &Plan, start: &PlannedStart) -> Self {
        let target = plan.snapshot.target(start.ix);
        Self {
            id: target.map(|target| target.id().to_string()).unwrap_or_default(),
            name: target.map_or_else(|| "a deleted database".to_owned(), name),
            file_bytes: start.file_bytes,
            reclaimable_bytes: start.gain_bytes,
            peak_bytes: start.peak_bytes,
        }
    }
}

impl Left {
    pub(in crate::cli) fn of(plan: &Plan, (ix, refusal): &(TargetIx, Refusal)) -> Self {
        let target = plan.snapshot.target(*ix);
        Self {
            id: target.map(|target| target.id().to_string()).unwrap_or_default(),
            name: target.map_or_else(|| "a deleted database".to_owned(), name),
            reason: refusal.reason.label(),
            why: target.map(|target| report::why(plan, target, refusal)).unwrap_or_default(),
        }
    }
}

fn is_meant(databases: &[String], target: TargetRef<'_>) -> bool {
    databases.is_empty() || databases.iter().any(|db| db == target.db_name().db)
}

/// A target's database or design document: all of its files have the same name.
fn name(target: TargetRef<'_>) -> String {
    let db = target.db_name().db;
    match (target.kind(), target.view().and_then(|view| view.designs.first())) {
        (TargetKind::View, Some(design)) => format!("{db}/{design}"),
        (TargetKind::Cleanup, _) => target.id().name(None),
        _ => db.to_owned(),
    }
}

pub(in crate::cli) fn file_name(plan: &Plan, ix: TargetIx) -> String {
    let Some(target) = plan.snapshot.target(ix) else { return String::new() };
    let design = target.view().and_then(|view| view.designs.first());
    target.id().name(design.map(AsRef::as_ref))
}

/// Cleanups of databases with indexes whose stale files can be neither confirmed nor ruled out,
/// because no data directory is read for some node.
fn unproven_cleanups(plan: &Plan, databases: &[String]) -> Vec<TargetId> {
    let snapshot = &plan.snapshot;
    if snapshot.members().all(|(_, node)| node.disk_usage.is_some()) {
        return Vec::new();
    }
    let views = snapshot.targets().filter(|it| it.kind() == TargetKind::View);
    let with_views: BTreeSet<_> = views.map(TargetRef::db).collect();
    let cleanups = snapshot.targets().filter(|it| {
        it.kind() == TargetKind::Cleanup
            && with_views.contains(&it.db())
            && is_meant(databases, *it)
    });
    cleanups.filter(|it| plan.start_if_ordered(*it).is_some()).map(TargetRef::id).collect()
}
