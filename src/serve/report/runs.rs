//! Runs, as JSON and in sentences.

use super::{
    Target,
    miss::{not_taken, not_taken_meaning},
    vocabulary,
    vocabulary::Word,
    why,
};
use crate::{
    model::records::{LeftOut, LeftOutMember, Run, RunScope},
    plan::{Member, Plan, RefusalClass, RefusalReason, RunProgress, SUPPOSED_RUN},
    text::{Label, counted, duration, size::format_size_short},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

/// Maximum number of requests in the answer to an order that is refused in advise mode.
const MAX_REQUESTS: usize = 1_000;

/// All runs, the newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunList {
    /// The open runs, and the last that ended.
    pub runs: Vec<RunLine>,
}

/// An order to compact everything worth compacting in a database, on a node, or everywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunLine {
    /// Its number.
    pub run: u64,
    /// The database whose shard copies and views it compacts; null if it is about a node or everything.
    pub db: Option<String>,
    /// The node whose shard copies it compacts.
    pub node: Option<String>,
    /// Whether it also compacts what no channel takes, or what is paused.
    pub force: bool,
    /// Who ordered it.
    pub by: String,
    /// When it was ordered.
    pub since: String,
    /// The run's state.
    #[schemars(with = "vocabulary::RunState")]
    pub state: Word,
    /// Who paused or ended it; null if nobody did.
    pub changed_by: Option<String>,
    /// When it ended; null while it is open.
    pub ended_at: Option<String>,
    /// Number of targets that it has compacted or may still compact.
    pub members: u64,
    /// Number of members compacted since it began, by anyone.
    pub done: u64,
    /// Number of members being compacted now.
    pub running: u64,
    /// How the compactions ended.
    pub results: BTreeMap<String, u64>,
    /// Bytes freed so far, where sizes are known; negative if files grew.
    pub freed_bytes: i64,
    /// Bytes that the remaining members are predicted to free.
    pub reclaimable_bytes: u64,
    /// Seconds that the remaining members take at the measured rate, if nothing holds them back; null if unknown.
    pub seconds_left: Option<f64>,
    /// What all remaining members wait for, if none runs or starts; null otherwise.
    pub waits: Option<String>,
    /// What an open run cannot compact, or an ended run left.
    pub left_out: Vec<LeftOut>,
    /// Its progress or result as a sentence.
    pub says: String,
}

/// A sentence about a group of targets that a run leaves out, and what would change that.
pub fn left_out_says(group: &LeftOut) -> String {
    let LeftOut { reason, members, .. } = group;
    let says = match (RefusalReason::from_label(reason), &**reason) {
        (Some(reason), _) => {
            let ends_when = reason.ends_when().trim_end_matches('.');
            format!("{}; this ends when {ends_when}", reason.meaning())
        }
        (None, "unmeasured") => "their size is unknown".to_owned(),
        (None, how) => format!("the run {how} before their turn"),
    };
    format!("{members} ({reason}): {says}")
}

/// How far a run is in a plan, with sentences.
pub fn run_progress(plan: &Plan, number: u64, run: &Run) -> RunProgress {
    plan.run_progress(number, run, |target, refusal| Some(why(plan, target, refusal)))
}

/// The members of a run that wait for what someone must end first, however few they are: a turn comes to
/// nobody while a gate is closed.
fn first_to_end(waiting: &BTreeMap<RefusalReason, LeftOut>) -> Option<&LeftOut> {
    let order = |reason: &RefusalReason| match reason.class() {
        RefusalClass::Held => 0,
        RefusalClass::InLine => 2,
        RefusalClass::Never
        | RefusalClass::NotBefore
        | RefusalClass::Lacks
        | RefusalClass::Busy => 1,
    };
    let first =
        waiting.iter().min_by_key(|(reason, group)| (order(reason), Reverse(group.members)));
    first.map(|(_, group)| group)
}

impl RunList {
    /// The runs of a plan.
    pub fn of(plan: &Plan) -> Self {
        Self::filtered(plan, |_| true)
    }

    /// The open runs that compact a database, or everything.
    pub fn of_database(plan: &Plan, db: &str) -> Self {
        Self::filtered(plan, |run| is_open_for(run, db))
    }

    /// Computing a run's progress takes a pass over all targets, so only the wanted runs are computed.
    fn filtered(plan: &Plan, wanted: impl Fn(&Run) -> bool) -> Self {
        let runs = plan.conditions.constraints.runs.0.iter().rev().filter(|(_, run)| wanted(run));
        Self { runs: runs.map(|(number, run)| RunLine::of(plan, *number, run)).collect() }
    }
}

/// Whether a run compacts a database, or everything, and has not ended.
pub(super) fn is_open_for(run: &Run, db: &str) -> bool {
    let covers = match &run.scope {
        RunScope::Database(name) => name == db,
        RunScope::Node(_) => false,
        RunScope::All => true,
    };
    run.ended.is_none() && covers
}

/// Why no channel takes the file with the most reclaimable bytes of a database.
fn why_not_taken(plan: &Plan, scope: &RunScope) -> Option<&'static str> {
    let RunScope::Database(db) = scope else { return None };
    let files = plan.snapshot.files_once().filter(|file| file.db_name().db == db);
    let misses = Target::of(plan, files.max_by_key(|file| file.reclaimable_bytes())?).misses;
    not_taken_meaning(not_taken(&misses)?)
}

impl RunLine {
    /// A run and its progress according to a plan.
    pub fn of(plan: &Plan, number: u64, run: &Run) -> Self {
        let progress = match run.ended {
            None => run_progress(plan, number, run),
            Some(_) => RunProgress::default(),
        };
        Self::with_progress(plan, number, run, &progress)
    }

    /// A run as it would begin now, and why it would be refused, if it would.
    pub fn if_ordered(plan: &Plan, run: &Run) -> (Self, Option<String>) {
        let line = Self::of(plan, SUPPOSED_RUN, run);
        let refused = (line.members == 0).then(|| {
            let scope = &run.scope;
            let has_forced = || {
                let forced = Run { force: true, ..run.clone() };
                run_progress(plan, SUPPOSED_RUN, &forced).remaining() > 0
            };
            let force = match scope {
                RunScope::Database(_) if !run.force && has_forced() => {
                    "; --force compacts it anyway"
                }
                RunScope::Database(_) | RunScope::Node(_) | RunScope::All => "",
            };
            if line.left_out.is_empty() {
                let why =
                    why_not_taken(plan, scope).map_or_else(String::new, |why| format!(" ({why})"));
                return format!("no channel takes anything in {scope}{why}{force}");
            }
            let left: Vec<String> = line.left_out.iter().map(left_out_says).collect();
            format!("nothing in {scope} may start; {}", left.join("; "))
        });
        (line, refused)
    }

    fn with_progress(plan: &Plan, number: u64, run: &Run, progress: &RunProgress) -> Self {
        let (db, node) = run.scope.names();
        let (state, changed_by) = match (&run.ended, &run.paused) {
            (Some(end), _) => (end.how.label(), end.by.clone()),
            (None, Some(pause)) => ("paused", pause.by.clone()),
            (None, None) => ("running", None),
        };
        let is_waiting = progress.running + progress.starting == 0 && run.is_active();
        let first = first_to_end(&progress.waiting).filter(|_| is_waiting);
        let first = first.and_then(|group| group.examples.first());
        let end = run.ended.as_ref();
        let members = run.done() + progress.remaining();
        let mut line = Self {
            run: number,
            db: db.map(ToOwned::to_owned),
            node: node.map(ToOwned::to_owned),
            force: run.force,
            by: run.by.clone(),
            since: run.at.rfc3339(),
            state: state.into(),
            changed_by,
            ended_at: end.map(|end| end.at.rfc3339()),
            members: end.map_or(members, |end| end.members),
            done: run.done(),
            running: progress.running,
            results: run.results.iter().map(|(how, n)| (how.label().to_owned(), *n)).collect(),
            freed_bytes: run.freed_bytes,
            reclaimable_bytes: progress.reclaimable_bytes,
            seconds_left: progress.seconds_left(plan).filter(|_| run.is_active()),
            waits: first.and_then(|member| member.why.clone()),
            left_out: end.map_or_else(|| progress.left_out_groups(), |end| end.left_out.clone()),
            says: String::new(),
        };
        line.says = line.progress();
        line
    }

    /// Its scope, as part of a sentence.
    pub fn scope(&self) -> String {
        match (&self.db, &self.node) {
            (Some(db), _) => RunScope::Database(db.clone()),
            (None, Some(node)) => RunScope::Node(node.clone()),
            (None, None) => RunScope::All,
        }
        .to_string()
    }

    /// Whether it has not ended.
    pub const fn is_open(&self) -> bool {
        self.ended_at.is_none()
    }

    /// Its progress: `5 of 24, 41 GiB freed, about 3h left`.
    fn progress(&self) -> String {
        let mut parts = vec![format!("{} of {}", self.done, self.members)];
        let bytes = format_size_short(self.freed_bytes.unsigned_abs());
        let unmeasured = if self.results.contains_key("unmeasured") { "at least " } else { "" };
        parts.push(match self.freed_bytes {
            ..0 => format!("grew by {bytes}"),
            0.. => format!("{unmeasured}{bytes} freed"),
        });
        let others = self.results.iter().filter(|(how, _)| !matches!(how.as_str(), "freed"));
        parts.extend(others.map(|(how, count)| format!("{count} {}", super::result_in_words(how))));
        let left: u64 = self.left_out.iter().map(|group| group.members).sum();
        if left > 0 {
            parts.push(format!("{left} left out"));
        }
        if !self.is_open() || self.state == "paused" {
            parts.push(self.state.to_string());
        } else if let Some(seconds) = self.seconds_left.filter(|_| self.members > self.done) {
            let left = Duration::try_from_secs_f64(seconds.ceil()).unwrap_or(Duration::MAX);
            parts.push(format!("about {} left", duration::in_words(left)));
        }
        parts.join(", ")
    }

    /// The effect of the order that began or changed it, in lines.
    pub(super) fn says_of_order(&self, began: bool) -> Vec<String> {
        let Self { run, says, .. } = self;
        let scope = self.scope();
        let mut lines = vec![match &*self.state {
            "paused" => format!(
                "Run {run} over {scope} is paused ({says}): its targets no longer go first. Running compactions continue; recliner suspend stops all starts."
            ),
            "running" if began => format!(
                "Run {run} over {scope} compacts {}, which frees about {}.",
                counted(self.members, "target", "targets"),
                format_size_short(self.reclaimable_bytes)
            ),
            "running" => format!("Run {run} over {scope} continues: {says}."),
            _ => format!("Run {run} over {scope} has ended: {says}. Running compactions continue."),
        }];
        lines.extend(self.waits.as_ref().map(|why| format!("It waits: {why}.")));
        lines.extend(self.left_out_lines());
        lines
    }

    /// What it leaves out, one line for each reason and target.
    pub fn left_out_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for group in &self.left_out {
            lines.push(format!("Left out: {}", left_out_says(group)));
            lines.extend(group.examples.iter().map(|LeftOutMember { id, name, why }| {
                // An earlier release kept no name.
                let name = if name.is_empty() { id } else { name };
                why.as_ref().map_or_else(|| format!("  {name}"), |why| format!("  {name}: {why}"))
            }));
        }
        lines
    }
}

/// The requests that a run would send, for a person to send them, and the number of targets that they
/// cover: about a thousand requests at most.
pub fn requests_of_run(plan: &Plan, run: &Run) -> (Vec<String>, u64) {
    let members = plan.run_members(SUPPOSED_RUN, run);
    let members = members.filter(|(_, member)| matches!(member, Member::Starts | Member::Waits(_)));
    let (mut requests, mut targets) = (Vec::new(), 0);
    for (target, _) in members {
        if requests.len() >= MAX_REQUESTS {
            break;
        }
        let starts = plan.starts_if_ordered(target);
        requests.extend(starts.iter().map(|start| start.request.to_string()));
        targets += 1;
    }
    (requests, targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_names_what_must_end_first() {
        use RefusalReason::{ChannelLimit, Maintenance, Suspended, Window};
        for (waiting, expected) in [
            (&[(ChannelLimit, 9), (Suspended, 1)][..], Suspended),
            (&[(Suspended, 1), (Maintenance, 3)], Maintenance),
            (&[(Suspended, 3), (Maintenance, 3), (Window, 5)], Suspended),
            (&[(Window, 1), (ChannelLimit, 9)], Window),
            (&[(ChannelLimit, 9)], ChannelLimit),
        ] {
            let group = |(reason, members): &(RefusalReason, u64)| {
                let label = reason.label().to_owned();
                (*reason, LeftOut { reason: label, members: *members, examples: Vec::new() })
            };
            let waiting = waiting.iter().map(group).collect();
            let first = first_to_end(&waiting).map(|group| group.reason.as_str());
            assert_eq!(first, Some(expected.label()), "{waiting:?}");
        }
    }
}
