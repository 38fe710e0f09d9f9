//! What `recliner tidy` prints: before, during and after.

use super::{
    super::printable,
    layout::{Grid, bytes, paragraph, shortened, wrap},
};
use crate::{
    model::{
        records::{JobResult, Outcome},
        target::{TargetId, TargetKind},
    },
    plan::{Plan, PlannedStart, Refusal, RefusalReason, TidyOutlook},
    serve::report,
    service::{TidyEnd, TidyEvent, TidyReport, TidyScope},
    table::{PartialSum, TargetIx, TargetRef},
    text::{counted, duration, listed, size},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Maximum number of rows in a list.
const ROWS: usize = 25;

/// What is known before anything is done.
#[derive(Clone, Copy)]
pub(in crate::cli) struct Begin<'a> {
    pub(in crate::cli) plan: &'a Plan,
    pub(in crate::cli) outlook: &'a TidyOutlook,
    /// The named databases; all if empty.
    pub(in crate::cli) databases: &'a [String],
    pub(in crate::cli) until_free: Option<u64>,
}

impl Begin<'_> {
    fn has(&self, target: TargetRef<'_>) -> bool {
        self.databases.is_empty() || self.databases.iter().any(|db| db == target.db_name().db)
    }

    /// Whether as much is free as shall be.
    pub(in crate::cli) fn has_enough(&self) -> bool {
        is_enough(self.until_free, self.plan.least_free_bytes())
    }

    /// Whether something worth doing would be left.
    pub(in crate::cli) fn leaves_something(&self) -> bool {
        let misses_goal = !is_enough(self.until_free, self.outlook.free_bytes);
        !self.outlook.left.is_empty() || (self.until_free.is_some() && misses_goal)
    }

    /// The cleanups of databases with indexes of which nothing shows that files are stale, but
    /// nothing shows either that none are: without the data directory nobody can see them.
    pub(in crate::cli) fn unproven_cleanups(&self) -> Vec<TargetId> {
        let snapshot = &self.plan.snapshot;
        let sees_files = snapshot.members().all(|(_, node)| node.disk_usage.is_some());
        if sees_files {
            return Vec::new();
        }
        let views = snapshot.targets().filter(|it| it.kind() == TargetKind::View);
        let with_views: BTreeSet<_> = views.map(TargetRef::db).collect();
        let cleanups = snapshot.targets().filter(|it| {
            it.kind() == TargetKind::Cleanup && with_views.contains(&it.db()) && self.has(*it)
        });
        let may = cleanups.filter(|it| self.plan.start_if_ordered(*it).is_some());
        may.map(TargetRef::id).collect()
    }

    /// The sizes of all files in question as far as they are known, marked if some are not.
    fn on_disk(&self, plan: &Plan) -> String {
        let mut sum = PartialSum::default();
        let files = plan.snapshot.files_once().filter(|target| self.has(*target));
        files.for_each(|target| sum.add(target.file_bytes(), false));
        let known = size::format_size_short(sum.measured().unwrap_or(0));
        format!("{}{known}", size::bound(sum.unknown_count(), 0))
    }
}

fn is_enough(goal: Option<u64>, free: Option<u64>) -> bool {
    goal.zip(free).is_some_and(|(goal, free)| free >= goal)
}

fn free(plan: &Plan) -> String {
    plan.least_free_bytes().map_or_else(|| "unknown".to_owned(), size::format_size_short)
}

/// A target's database or design document: all of its files have the same name.
fn name(target: TargetRef<'_>) -> String {
    let db = target.db_name().db;
    printable(&match (target.kind(), target.view().and_then(|view| view.designs.first())) {
        (TargetKind::View, Some(design)) => format!("{db}/{design}"),
        (TargetKind::Cleanup, _) => target.id().name(None),
        _ => db.to_owned(),
    })
}

fn name_of(plan: &Plan, ix: TargetIx) -> String {
    plan.snapshot.target(ix).map_or_else(|| "a deleted database".to_owned(), name)
}

/// The name of one file.
fn file_name(plan: &Plan, ix: TargetIx) -> String {
    let design = |target: TargetRef<'_>| target.view()?.designs.first().map(ToString::to_string);
    let target = plan.snapshot.target(ix);
    target.map_or_else(String::new, |it| printable(&it.id().name(design(it).as_deref())))
}

/// The state before, what would be done in which order, and what would be left.
pub(in crate::cli) fn begin(begin: &Begin<'_>, acts: bool, width: u16) -> String {
    let Begin { plan, outlook, .. } = begin;
    let databases = match begin.databases.len() {
        0 => plan.snapshot.databases().count(),
        named => named,
    };
    let databases = counted(databases as u64, "database", "databases");
    let mut text = paragraph(
        &format!("{databases}, {} on disk, free: {}", begin.on_disk(plan), free(plan)),
        width,
    );
    if plan.least_free_bytes().is_none() {
        text.push_str(&paragraph(&unknown_space(plan), width));
    }
    if begin.has_enough() {
        text.push_str("Nothing to do: as much is free as --until-free asks for.\n");
        return text;
    }
    text.push_str(&steps(plan, &outlook.starts, acts, width));
    if outlook.is_cut {
        text.push_str("and more\n");
    }
    let unproven = begin.unproven_cleanups().len();
    if unproven > 0 {
        let of = counted(unproven as u64, "database", "databases");
        let would = if acts { "Asks" } else { "Would ask" };
        text.push_str(&paragraph(&format!("{would} CouchDB to delete unused index files of {of}; recliner cannot see whether there are any."), width));
    }
    let left: Vec<_> =
        outlook.left.iter().map(|(ix, refusal)| why_left(plan, *ix, refusal)).collect();
    text.push_str(&list_left(&left, acts, width));
    if outlook.starts.is_empty()
        && outlook.left.iter().any(|(_, it)| it.reason == RefusalReason::Headroom)
    {
        text.push_str(&paragraph("Nothing fits: every compaction needs more space for a while than may be used. Make room first, or compact on another volume.", width));
    }
    if let (Some(goal), false) = (begin.until_free, is_enough(begin.until_free, outlook.free_bytes))
    {
        let ends = outlook
            .free_bytes
            .map_or_else(|| "an unknown amount".to_owned(), size::format_size_short);
        text.push_str(&paragraph(
            &format!(
                "That would leave {ends} free, less than the {} asked for.",
                size::format_size_short(goal)
            ),
            width,
        ));
    }
    if !acts {
        text.push_str("\nDry run: nothing was changed. Do it by adding --yes.\n");
    }
    text
}

fn unknown_space(plan: &Plan) -> String {
    let blind = size::format_size_short(plan.rules.headroom.blind_limit);
    let problems = plan.conditions.disks.volumes.iter().filter_map(|it| it.problem.clone());
    let problem = problems.map(|it| format!(" ({})", printable(&it))).next().unwrap_or_default();
    format!(
        "Free space is unknown{problem}, so files larger than {blind} are left; --data-dir /opt/couchdb/data reads it, --assume-free 10GiB vouches for it."
    )
}

/// The starts in order, those of one database or design document in one row.
fn steps(plan: &Plan, starts: &[PlannedStart], acts: bool, width: u16) -> String {
    let mut order: Vec<String> = Vec::new();
    let mut rows: BTreeMap<String, (u64, [Option<u64>; 2], u64)> = BTreeMap::new();
    for start in starts {
        let name = name_of(plan, start.ix);
        let (count, sums, peak) = rows.entry(name.clone()).or_insert_with(|| {
            order.push(name);
            (0, [Some(0), Some(0)], 0)
        });
        *count += 1;
        *peak = start.peak_bytes.max(*peak);
        for (sum, bytes) in sums.iter_mut().zip([start.file_bytes, start.gain_bytes]) {
            *sum = sum.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
        }
    }
    if order.is_empty() {
        return "Nothing to compact.\n".to_owned();
    }
    let mut table = Grid::new(["compact", "on disk", "reclaimable", "needs meanwhile"], &[1, 2, 3]);
    for name in order.iter().take(ROWS) {
        let Some((count, [file, gain], peak)) = rows.get(name) else { continue };
        let files = if *count > 1 { format!(" ({count} files)") } else { String::new() };
        table.push([
            format!("{}{files}", shortened(name)),
            bytes(*file),
            bytes(*gain),
            bytes(Some(*peak)),
        ]);
    }
    let gain = starts.iter().map(|it| it.gain_bytes.unwrap_or(0)).fold(0, u64::saturating_add);
    let unknown = starts.iter().filter(|it| it.gain_bytes.is_none()).count() as u64;
    let all = format!("{}{}", size::bound(unknown, 0), size::format_size_short(gain));
    let would = if acts {
        "In this order, to free about"
    } else {
        "Would compact in this order, to free about"
    };
    let mut text = format!("{would} {all}:\n\n{}", table.wrapped(width));
    if order.len() > ROWS {
        text.push_str(&format!("and {} more\n", order.len() - ROWS));
    }
    text
}

fn why_left(plan: &Plan, ix: TargetIx, refusal: &Refusal) -> (String, String) {
    let why = plan.snapshot.target(ix).map(|target| report::why(plan, target, refusal));
    (name_of(plan, ix), why.unwrap_or_default())
}

/// What is left, with the reasons, each only once for a database or design document.
fn list_left(left: &[(String, String)], acts: bool, width: u16) -> String {
    let mut text = String::new();
    let mut seen = BTreeSet::new();
    for (name, why) in left.iter().filter(|it| seen.insert(*it)).take(ROWS) {
        wrap(&mut text, &format!("  {}: ", shortened(name)), &printable(why), width.into());
    }
    if text.is_empty() {
        return text;
    }
    let all: BTreeSet<_> = left.iter().collect();
    if all.len() > ROWS {
        text.push_str(&format!("  and {} more\n", all.len() - ROWS));
    }
    format!("\n{}\n{text}", if acts { "Left:" } else { "Would be left:" })
}

/// A line about what happens during the pass; none for what needs no line.
pub(in crate::cli) fn event(plan: &Plan, event: &TidyEvent<'_>) -> Option<String> {
    match event {
        TidyEvent::Started(ix) => Some(format!("compacting {}", file_name(plan, *ix))),
        TidyEvent::Ended(outcome) => Some(ended(outcome)),
        TidyEvent::Waits(ix, refusal) => {
            let (name, why) = why_left(plan, *ix, refusal);
            Some(format!("waiting for {name}: {why}"))
        }
    }
}

fn ended(outcome: &Outcome) -> String {
    let name = printable(&outcome.target.name(outcome.design.as_deref()));
    match (outcome.kind, outcome.ending) {
        (_, JobResult::Failed | JobResult::Lost) => {
            format!(
                "{name}: not compacted: {}",
                printable(outcome.why.as_deref().unwrap_or("CouchDB gave no reason"))
            )
        }
        (TargetKind::Cleanup, _) => format!("{name}: cleaned up"),
        _ => {
            let took = outcome.took().map(duration::format_rounded).unwrap_or_default();
            format!(
                "{name}: {} before, {} after, {took}",
                bytes(outcome.before_bytes),
                bytes(outcome.after_bytes)
            )
        }
    }
}

/// The state after, and what is left; also returns whether anything is.
pub(in crate::cli) fn end(
    begin: &Begin<'_>,
    scope: &TidyScope,
    report: &TidyReport,
    took: Duration,
    width: u16,
) -> (String, bool) {
    let TidyReport { end, plan, outcomes, still_running } = report;
    let is_failed = |it: &&Outcome| matches!(it.ending, JobResult::Failed | JobResult::Lost);
    let done: BTreeSet<_> =
        outcomes.iter().filter(|it| !is_failed(it)).map(|it| &it.target).collect();
    let compacted =
        outcomes.iter().filter(|it| !is_failed(it) && it.kind != TargetKind::Cleanup).count();
    let mut text = format!(
        "\nCompacted {} in {}.\nBefore: {} on disk, free: {}\nAfter:  {} on disk, free: {}\n",
        counted(compacted as u64, "file", "files"),
        duration::format_rounded(took),
        begin.on_disk(begin.plan),
        free(begin.plan),
        begin.on_disk(plan),
        free(plan)
    );
    let left = plan.left(|_, id| done.contains(id) || !scope.targets.contains(id));
    let is_cut_short = matches!(end, TidyEnd::TimeUp | TidyEnd::Interrupted);
    let says = match end {
        TidyEnd::Finished => list_left(
            &left.iter().map(|(ix, it)| why_left(plan, *ix, it)).collect::<Vec<_>>(),
            true,
            width,
        ),
        TidyEnd::EnoughFree => "As much is free as --until-free asks for.\n".to_owned(),
        TidyEnd::TimeUp | TidyEnd::Interrupted => {
            let why =
                if *end == TidyEnd::TimeUp { "--max-duration is over" } else { "interrupted" };
            let running: Vec<String> =
                still_running.iter().map(|ix| file_name(plan, *ix)).collect();
            let runs = match &*running {
                [] => "No compaction of it runs any more.".to_owned(),
                some => {
                    format!("CouchDB still compacts {} and finishes that by itself.", listed(some))
                }
            };
            let waits = left.iter().filter(|(ix, _)| !still_running.contains(ix)).count();
            paragraph(
                &format!(
                    "Stopped early ({why}) with {} left. {runs}",
                    counted(waits as u64, "file", "files")
                ),
                width,
            )
        }
    };
    text.push_str(&says);
    let failed: Vec<_> =
        outcomes.iter().filter(is_failed).map(|it| format!("  {}\n", ended(it))).collect();
    text.push_str(&failed.concat());
    let misses_goal =
        begin.until_free.is_some() && !is_enough(begin.until_free, plan.least_free_bytes());
    if let (Some(goal), true) = (begin.until_free, misses_goal) {
        text.push_str(&format!(
            "Less is free than the {} asked for.\n",
            size::format_size_short(goal)
        ));
    }
    let leaves = is_cut_short
        || misses_goal
        || !failed.is_empty()
        || (*end == TidyEnd::Finished && !left.is_empty());
    (text, leaves)
}
