//! Runs: orders to compact everything worth compacting in a database, on a node, or everywhere.
//!
//! A run holds its scope, not a list: its members are the targets of the scope that a channel takes
//! and that were not compacted since it began. [`TargetRecord`](super::TargetRecord) has the latter.

use super::{JobOwner, JobResult, Outcome, Suspension};
use crate::model::target::{CLUSTER_NODE, TargetId, TargetKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};
use wall_clock::Moment;

/// Maximum number of runs that have not ended.
pub const MAX_OPEN_RUNS: usize = 16;

/// Number of ended runs that are kept.
const MAX_ENDED_RUNS: usize = 32;

/// A run in which no member was compacted for this long, and that is not paused, ends: longer than
/// a week, so that a weekly window opens within it.
const MAX_IDLE: Duration = Duration::from_secs(8 * 86_400);

/// What a run compacts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::Display)]
pub enum RunScope {
    /// The shard copies and views of a database.
    #[strum(to_string = "database {0}")]
    Database(String),
    /// The shard copies on a node. Its views are compacted with those of other nodes.
    #[strum(to_string = "node {0}")]
    Node(String),
    /// Everything.
    #[strum(to_string = "everything")]
    All,
}

impl RunScope {
    /// The names of its database and of its node, where it has one.
    #[must_use]
    pub fn names(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Database(name) => (Some(name), None),
            Self::Node(name) => (None, Some(name)),
            Self::All => (None, None),
        }
    }

    /// Whether a target of this kind is in the scope, given whether its database and its node have
    /// a name.
    pub fn covers(
        &self,
        kind: TargetKind,
        is_db: impl FnOnce(&str) -> bool,
        is_node: impl FnOnce(&str) -> bool,
    ) -> bool {
        match (self, kind) {
            (_, TargetKind::Cleanup | TargetKind::Search) => false,
            (Self::Node(wanted), TargetKind::Db) => is_node(wanted),
            (Self::Node(_), TargetKind::View) => false,
            (Self::Database(wanted), TargetKind::Db | TargetKind::View) => is_db(wanted),
            (Self::All, TargetKind::Db | TargetKind::View) => true,
        }
    }
}

/// Why a run ended.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunEnding {
    /// No member remains that may start.
    Done,
    /// An operator ended it.
    Cancelled,
    /// None of its members was compacted for more than a week.
    Stalled,
}

/// Members of a run that are not compacted, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The reason: that of a refusal, how the run ended, or `unmeasured` for indexes of unknown size.
    pub reason: String,
    /// Their number.
    pub members: u64,
    /// The first of them.
    pub examples: Vec<LeftOutMember>,
}

/// A member of a run that is not compacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOutMember {
    /// The target's id.
    pub id: String,
    /// Its name for people.
    #[serde(default)]
    pub name: String,
    /// Why, as a sentence; null if that is not kept.
    pub why: Option<String>,
}

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// When it ended.
    pub at: Moment,
    /// Why it ended.
    pub how: RunEnding,
    /// Who ended it, if an operator did.
    pub by: Option<String>,
    /// Number of members that it had compacted or could still have compacted.
    pub members: u64,
    /// What was not compacted.
    pub left_out: Vec<LeftOut>,
}

/// An order to compact everything worth compacting in a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// What it compacts.
    pub scope: RunScope,
    /// Whether it also compacts what no channel takes because of its sizes, or what is paused after
    /// failures or a useless compaction.
    pub force: bool,
    /// When it was ordered.
    pub at: Moment,
    /// Who ordered it, and from which address.
    pub by: String,
    /// Since when it is paused, and by whom.
    pub paused: Option<Suspension>,
    /// Its end.
    pub ended: Option<RunEnd>,
    /// How compactions of its members ended, by number of members.
    pub results: BTreeMap<JobResult, u64>,
    /// Bytes that they freed, as far as sizes are known; negative if files grew.
    pub freed_bytes: i64,
    /// When a member was last compacted, or the run was ordered or resumed.
    pub progress_at: Moment,
}

impl Run {
    /// A run that begins.
    pub const fn beginning(scope: RunScope, force: bool, by: String, now: Moment) -> Self {
        Self {
            scope,
            force,
            at: now,
            by,
            paused: None,
            ended: None,
            results: BTreeMap::new(),
            freed_bytes: 0,
            progress_at: now,
        }
    }

    /// Whether its members go first.
    pub const fn is_active(&self) -> bool {
        self.paused.is_none() && self.ended.is_none()
    }

    /// Number of members that were compacted.
    pub fn done(&self) -> u64 {
        self.results.values().sum()
    }

    /// When it ends unless a member is compacted before.
    pub fn stalls_at(&self) -> Moment {
        self.progress_at.plus(MAX_IDLE)
    }
}

/// A change of the runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunCommand {
    /// Begin a run.
    Begin(Run),
    /// Pause a run: its targets no longer go first.
    Pause(u64, Suspension),
    /// Resume a run, at this moment.
    Resume(u64, Moment),
    /// End a run.
    End(u64, RunEnd),
}

/// Why a run was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunRejected {
    /// Too many are open.
    #[error(
        "{MAX_OPEN_RUNS} runs are open, which is the maximum: wait for one to end, or cancel one"
    )]
    TooMany,
    /// A run with the same scope is open.
    #[error("run {0} already compacts {1}")]
    Repeated(u64, RunScope),
    /// No open run has this number.
    #[error("no open run has the number {0}; recliner runs lists the open ones")]
    Unknown(u64),
}

/// All runs, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs(pub BTreeMap<u64, Run>);

impl Runs {
    /// The runs that have not ended, oldest first.
    pub fn open(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.0.iter().filter(|(_, run)| run.ended.is_none()).map(|(number, run)| (*number, run))
    }

    /// The runs whose members go first.
    pub fn active(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.open().filter(|(_, run)| run.is_active())
    }

    /// Checks whether a run may begin.
    ///
    /// # Errors
    /// If too many are open, or one has the same scope.
    pub fn check_new(&self, scope: &RunScope) -> Result<(), RunRejected> {
        if let Some((number, _)) = self.open().find(|(_, run)| run.scope == *scope) {
            return Err(RunRejected::Repeated(number, scope.clone()));
        }
        if self.open().count() >= MAX_OPEN_RUNS { Err(RunRejected::TooMany) } else { Ok(()) }
    }

    /// Carries out a command; returns the numbers of the runs that changed, the commanded one
    /// first. A number without a run belongs to a run that is no longer kept.
    ///
    /// # Errors
    /// If it is not possible; nothing changes then.
    pub fn apply(&mut self, command: RunCommand) -> Result<Vec<u64>, RunRejected> {
        let number = match command {
            RunCommand::Begin(run) => {
                self.check_new(&run.scope)?;
                let number = self.0.last_key_value().map_or(1, |(last, _)| last + 1);
                self.0.insert(number, run);
                number
            }
            RunCommand::Pause(number, pause) => {
                self.open_run(number)?.paused.get_or_insert(pause);
                number
            }
            RunCommand::Resume(number, now) => {
                let run = self.open_run(number)?;
                if run.paused.take().is_some() {
                    run.progress_at = now;
                }
                number
            }
            RunCommand::End(number, end) => {
                self.open_run(number)?.ended = Some(end);
                number
            }
        };
        let ended = self.0.iter().filter(|(_, run)| run.ended.is_some()).map(|(number, _)| *number);
        let ended: Vec<u64> = ended.collect();
        let surplus = ended.len().saturating_sub(MAX_ENDED_RUNS);
        // The last run stays, so that its number is not used again.
        let surplus: Vec<u64> = ended.into_iter().take(surplus).collect();
        surplus.iter().for_each(|number| drop(self.0.remove(number)));
        Ok(std::iter::once(number).chain(surplus).collect())
    }

    fn open_run(&mut self, number: u64) -> Result<&mut Run, RunRejected> {
        let run = self.0.get_mut(&number).filter(|run| run.ended.is_none());
        run.ok_or(RunRejected::Unknown(number))
    }

    /// Records how a job ended; `is_last` unless other copies of its view are still to be
    /// compacted. Returns the numbers of the open runs that cover its target.
    ///
    /// Compactions of a database's file count whoever started them, so that a file is not rewritten
    /// again because somebody else was faster. A view that others compact does not count, because
    /// they may have compacted only some of its copies.
    pub fn record(&mut self, outcome: &Outcome, is_last: bool) -> Vec<u64> {
        let failed = matches!(outcome.ending, JobResult::Failed | JobResult::Lost);
        let counts =
            outcome.owner == JobOwner::Recliner || (outcome.kind == TargetKind::Db && !failed);
        let node =
            if let TargetId::Db { node, .. } = &outcome.target { node } else { CLUSTER_NODE };
        let mut covering = Vec::new();
        for (number, run) in self.0.iter_mut().filter(|_| counts) {
            let is_db = |name: &str| name == outcome.target.database();
            let covers = run.scope.covers(outcome.kind, is_db, |name| name == node);
            if run.ended.is_none() && covers {
                run.freed_bytes =
                    run.freed_bytes.saturating_add(outcome.freed_bytes().unwrap_or_default());
                run.progress_at = run.progress_at.max(outcome.ended_at);
                if is_last || failed {
                    *run.results.entry(outcome.ending).or_default() += 1;
                }
                covering.push(*number);
            }
        }
        covering
    }
}

#[cfg(test)]
mod tests;
