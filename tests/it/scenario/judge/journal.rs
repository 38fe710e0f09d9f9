//! Checks that the journal records everything that happened, once and correctly.

use super::{Asked, Record};
use crate::support::recording_store::Entry;
use couchdb_names::ShardName;
use recliner::model::{
    records::{Intent, IntentKey, JobResult, Outcome, StateChange},
    target::{TargetId, TargetKind},
};
use std::{collections::BTreeMap, time::Duration};

/// The time after which a job's end must have its outcome, besides one poll.
const NOTICED: Duration = Duration::from_secs(180);

/// One start, as recorded in the journal.
pub(super) struct Chapter<'a> {
    pub(super) intent: &'a Intent,
    /// The entry of the intent, with the number of orders sent to CouchDB by then.
    begins: &'a Entry,
    /// The entry of the end, with the outcome unless the start was withdrawn.
    ends: Option<(&'a Entry, Option<&'a Outcome>)>,
}

impl Chapter<'_> {
    /// Whether this order, by its position, belongs to this start: the intent was recorded before
    /// it, and the end after it.
    pub(super) fn has(&self, at: usize, asked: &Asked) -> bool {
        let before = self.begins.orders <= at;
        let after = self.ends.is_none_or(|(entry, _)| entry.orders > at);
        before && after && is_of(self.intent, asked)
    }
}

/// Whether an intent is for what an order asks for.
fn is_of(intent: &Intent, asked: &Asked) -> bool {
    // A target's name has the suffix of its database instance.
    let of = |name: &str, db: &str| name.split('.').next() == Some(db);
    match asked {
        Asked::File { node, shard, ddoc } => {
            intent.node == *node && intent.shard.as_deref() == Some(shard) && intent.design == *ddoc
        }
        Asked::Whole { db, ddoc } => {
            intent.shard.is_none()
                && intent.design.as_ref() == Some(ddoc)
                && matches!(&intent.target, TargetId::View { db: name, .. } if of(name, db))
        }
        Asked::Cleanup { db } => {
            matches!(&intent.target, TargetId::Cleanup { db: name } if of(name, db))
        }
    }
}

/// The starts of a journal in order, and errors in their sequence.
pub(super) fn chapters(record: &Record) -> (Vec<Chapter<'_>>, Vec<String>) {
    let (mut chapters, mut broken) = (Vec::<Chapter<'_>>::new(), Vec::new());
    let mut open: BTreeMap<IntentKey, usize> = BTreeMap::new();
    for entry in &record.kept {
        match &entry.change {
            StateChange::StartIntended(intent) => {
                if open.insert(intent.key(), chapters.len()).is_some() {
                    broken.push(format!("{} was begun while it was open", intent.target));
                }
                chapters.push(Chapter { intent, begins: entry, ends: None });
            }
            StateChange::JobEnded { outcome, closes: Some(key) } => match open.remove(key) {
                Some(at) => chapters[at].ends = Some((entry, Some(outcome))),
                None => broken.push(format!("{} ended and was not open", outcome.target)),
            },
            // A start that could not be recorded is withdrawn nevertheless.
            StateChange::StartWithdrawn(key) => {
                if let Some(at) = open.remove(key) {
                    chapters[at].ends = Some((entry, None));
                }
            }
            StateChange::JobEnded { closes: None, .. }
            | StateChange::SetTargetRecord(..)
            | StateChange::Suspend(..)
            | StateChange::Resume { .. }
            | StateChange::Calibrate(_)
            | StateChange::SetCorrection(..)
            | StateChange::Scorecard(..)
            | StateChange::SetAdvice(..)
            | StateChange::SetForecasts(..)
            | StateChange::SetNodeWork(..)
            | StateChange::SetRun(..) => {}
        }
    }
    (chapters, broken)
}

/// What the journal omits, records twice or records incorrectly.
pub(super) fn breaches(record: &Record) -> Vec<String> {
    let (chapters, mut broken) = chapters(record);
    let mut asked_for = vec![Vec::new(); chapters.len()];
    for (at, order, asked) in record.starts() {
        match chapters.iter().position(|chapter| chapter.has(at, &asked)) {
            Some(chapter) => asked_for[chapter].push((order, asked)),
            None => broken.push(format!("{} was sent and not kept before", order.path)),
        }
    }
    for (chapter, orders) in chapters.iter().zip(&asked_for) {
        let target = &chapter.intent.target;
        let ending = chapter.ends.map(|(_, outcome)| outcome.map(|outcome| outcome.ending));
        let (order, asked) = match orders.as_slice() {
            [] => {
                // The request was never sent, so it can have no effect.
                if let Some(Some(ending)) = ending.filter(|it| *it != Some(JobResult::Lost)) {
                    broken.push(format!("{target} was never sent and ended: {ending:?}"));
                }
                continue;
            }
            [(order, asked)] => (order, asked),
            several => {
                broken.push(format!("{target} was sent {} times", several.len()));
                continue;
            }
        };
        let begun = record.begun(order, asked);
        let over = begun.iter().map(|it| it.end.map(|end| end.at)).max().flatten();
        let running = begun.iter().any(|it| it.end.is_none());
        let poll = record.settings(order.at).poll;
        let noticed = over.unwrap_or(order.at) + NOTICED + poll < record.now;
        if ending.is_none() && noticed && !running {
            broken.push(format!("{target} ended at {over:?} and has no outcome"));
        }
        let [one] = begun.as_slice() else { continue };
        let recorded_success = match ending.flatten() {
            Some(
                JobResult::Freed
                | JobResult::NothingFreed
                | JobResult::Grew
                | JobResult::Unmeasured,
            ) => Some(true),
            Some(JobResult::Failed) => Some(false),
            Some(JobResult::Lost) | None => None,
        };
        // The end of most copies of a view cannot be observed.
        let truth = one.end.map(|end| end.swapped).filter(|_| target.kind() == TargetKind::Db);
        // Between two polls, a compaction that another client starts is mistaken for the previous
        // one.
        let another = record.compactions.iter().any(|other| {
            let same =
                (&other.node, &other.shard, &other.ddoc) == (&one.node, &one.shard, &one.ddoc);
            let after =
                one.end.is_some_and(|end| (end.at..=end.at + 2 * poll).contains(&other.began));
            same && after
        });
        if recorded_success
            .zip(truth)
            .is_some_and(|(recorded_success, truth)| recorded_success != truth)
            && !another
        {
            broken.push(format!("{target} is said to have ended {ending:?}, and did not: {one:?}"));
        }
    }
    broken.extend(surplus_outcomes(record));
    broken.extend(immediate_repeats(record));
    broken
}

/// Repeated starts of the same target within a second: after a start is sent, its facts must be
/// reread first.
fn immediate_repeats(record: &Record) -> Vec<String> {
    let mut last: BTreeMap<&str, Duration> = BTreeMap::new();
    let again = record.starts().filter_map(|(_, order, _)| {
        let before = last.insert(&order.path, order.at)?;
        let soon = order.at - before < Duration::from_secs(1);
        soon.then(|| format!("{} was sent again within a second, at {:?}", order.path, order.at))
    });
    again.collect()
}

/// Files with more outcomes than compactions.
fn surplus_outcomes(record: &Record) -> Vec<String> {
    let mut surplus: BTreeMap<(String, String), i64> = BTreeMap::new();
    for entry in &record.kept {
        if let StateChange::JobEnded { outcome, .. } = &entry.change
            && let TargetId::Db { node, shard } = &outcome.target
            && outcome.ending != JobResult::Lost
        {
            *surplus.entry((node.clone(), shard.clone())).or_default() += 1;
        }
    }
    for one in record.compactions.iter().filter(|it| it.ddoc.is_none()) {
        *surplus.entry((one.node.clone(), one.shard.clone())).or_default() -= 1;
    }
    // A refusal is an outcome without a compaction.
    for (_, order, asked) in record.starts() {
        if let Asked::File { node, shard, ddoc: None } = asked
            && order.status != 202
        {
            *surplus.entry((node, shard)).or_default() -= 1;
        }
    }
    let more = surplus.into_iter().filter(|(_, count)| *count > 0);
    more.map(|((node, shard), count)| {
        let name = ShardName::split(&shard).map_or(shard.as_str(), |it| it.db);
        format!("{count} outcomes too many of {name} on {node}")
    })
    .collect()
}
