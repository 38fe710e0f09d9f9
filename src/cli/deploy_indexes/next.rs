//! Decides what to do next: a pure function of the plan, the memory, and what the cluster shows.
//!
//! The cluster itself shows the progress of a deployment, so a command that was killed at any
//! request continues from there: a document exists or not, an index is built or not, and each
//! request that changes something names the revision that it replaces.

use super::plan::{
    DeploymentPlan, Memory, PlannedDocument, PlannedStep, fields, index_of, is_same, with_id,
};
use crate::{
    model::rounding::to_bytes,
    serve::report::{PreflightNode, SpreadLine},
    text::{counted, size::format_size_short},
};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// An index that wastes less than this is not compacted.
const NEGLIGIBLE_WASTE: u64 = 1 << 20;

/// The maximum lag of an index under writes that still counts as built: the changes that ken treats
/// as one incremental update (`[ken] max_incremental_updates`), or this share of all changes.
const MAX_LAG: u64 = 1_000;
const MAX_LAG_SHARE: u64 = 100;

/// A live design document.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) rev: String,
    pub(super) text: String,
}

/// The state of an index. The command waits while anything is unknown.
#[derive(Clone, Debug, Default)]
pub(super) struct IndexState {
    /// Why part of the state is unknown.
    pub(super) unknown: Option<String>,
    /// The sequence that every copy must reach, and the changes that the copy furthest behind still lacks.
    pub(super) seq: u64,
    pub(super) pending: u64,
    /// Changes that indexers still have to read.
    pub(super) indexing: u64,
    pub(super) indexers: usize,
    /// Whether a build was requested long enough ago that each copy shows its indexer.
    pub(super) is_settled: bool,
    /// Whether the request is old enough to be repeated if no indexer runs: one may have failed, such
    /// as on a full disk.
    pub(super) is_to_ask_again: bool,
    pub(super) is_compacting: bool,
    /// Whether this command ordered the compaction, recently enough that the order is still valid.
    pub(super) is_ordered: bool,
    /// File size and active size of each part whose sizes are known.
    pub(super) parts: Vec<(u64, u64)>,
    /// How the ordered compaction ended; `None` if it has not.
    pub(super) outcome: Option<Result<(), String>>,
}

impl IndexState {
    fn is_built(&self) -> bool {
        let most = MAX_LAG.min(self.seq / MAX_LAG_SHARE);
        self.is_settled && self.pending <= most && self.indexing <= most
    }

    fn is_lean(&self) -> bool {
        let is_lean = |(file, active): &(u64, u64)| {
            *file <= active.saturating_add(active / 4).saturating_add(NEGLIGIBLE_WASTE)
        };
        !self.parts.is_empty() && self.parts.iter().all(is_lean)
    }
}

/// The facts at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// The suffix of the database's files.
    pub(super) instance: String,
    pub(super) live: BTreeMap<String, Live>,
    /// The index of the staging document of the current step.
    pub(super) index: IndexState,
    /// The free space on the nodes of the database.
    pub(super) room: Vec<PreflightNode>,
    /// Whether another live document already has the same index.
    pub(super) is_shared: bool,
    /// Whether the service's settings forbid compacting new indexes.
    pub(super) stays_uncompacted: bool,
    pub(super) docs: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    pub(super) swap: bool,
    pub(super) back_out: bool,
    pub(super) may_not_fit: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Act(Action),
    /// Retry later, for this reason.
    Wait(String),
    /// Stop: a person has to decide.
    Stop(String),
    /// All indexes are ready, and the documents are not swapped.
    Ready,
    /// There is nothing left to do.
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Save a document; the body contains the revision that it replaces, if any.
    Put {
        id: String,
        body: String,
    },
    /// Delete this revision of a document.
    Delete {
        id: String,
        rev: String,
    },
    /// Build the index on every copy.
    Build {
        id: String,
    },
    Compact {
        id: String,
    },
    /// Record that the index is compacted.
    Compacted {
        id: String,
    },
}

impl From<Action> for Next {
    fn from(action: Action) -> Self {
        Self::Act(action)
    }
}

/// How the live document compares with the plan's.
enum Real {
    Before,
    Deployed,
    Foreign(String),
}

fn real(plan: &DeploymentPlan, facts: &Facts, id: &str) -> Real {
    let Some(document) = plan.document(id) else { return Real::Foreign("unknown".to_owned()) };
    let live = facts.live.get(id);
    if live.is_some_and(|live| is_same(&live.text, document.body.get())) {
        return Real::Deployed;
    }
    let rev = live.map(|live| live.rev.as_str());
    if rev == document.rev.as_deref() {
        return Real::Before;
    }
    let says = |rev: Option<&str>| rev.unwrap_or("none").to_owned();
    Real::Foreign(format!(
        "{id} was changed since the rehearsal: its revision was {1} and is now {0}. Rehearse again, or restore it.",
        says(rev),
        says(document.rev.as_deref())
    ))
}

/// Why to stop, if the database is not the one that was rehearsed.
pub(super) fn check_database(plan: &DeploymentPlan, facts: &Facts) -> Option<Next> {
    (facts.instance != plan.instance).then(|| {
        Next::Stop(format!(
            "{} is not the database of the rehearsal (it was {}, and is now {}): --couchdb.url names another cluster, or the database was recreated. Rehearse again.",
            plan.db, plan.instance, facts.instance
        ))
    })
}

/// The first step whose index is not ready.
pub(super) fn present_step<'a>(
    plan: &'a DeploymentPlan,
    memory: &Memory,
    facts: &Facts,
) -> Option<&'a PlannedStep> {
    let is_begun = |step: &PlannedStep| facts.live.contains_key(&step.staging());
    let is_open = |step: &PlannedStep| {
        let is_ready = is_begun(step) && memory.compacted.contains_key(&step.staging());
        !is_ready && !matches!(real(plan, facts, &step.design), Real::Deployed)
    };
    // A step that an abandoned back-out left unfinished continues first, so that two indexes are never built at once.
    let open = || plan.steps.iter().filter(|step| is_open(step));
    open().find(|step| is_begun(step)).or_else(|| open().next())
}

pub(super) fn next(plan: &DeploymentPlan, memory: &Memory, facts: &Facts, wanted: Wanted) -> Next {
    if let Some(stop) = check_database(plan, facts) {
        return stop;
    }
    if wanted.back_out {
        return next_back(plan, memory, facts);
    }
    for document in &plan.documents {
        if let Real::Foreign(why) = real(plan, facts, &document.id) {
            return Next::Stop(why);
        }
    }
    for step in &plan.steps {
        if let Some(stop) = foreign_staging(plan, facts, step) {
            return stop;
        }
    }
    if let Some(step) = present_step(plan, memory, facts) {
        return of_step(plan, facts, step, wanted);
    }
    let waits = plan.documents.iter().find(|it| matches!(real(plan, facts, &it.id), Real::Before));
    match waits {
        Some(_) if !wanted.swap => Next::Ready,
        Some(document) => {
            let live = facts.live.get(&document.id);
            let mut fields = fields(document.body.get());
            // Saving a document without its attachments would delete them.
            if let Some(kept) = live.and_then(|it| self::fields(&it.text).remove("_attachments")) {
                fields.entry("_attachments".to_owned()).or_insert(kept);
            }
            let rev = live.map(|it| &*it.rev);
            Action::Put { id: document.id.clone(), body: with_id(fields, &document.id, rev) }.into()
        }
        None => delete_staging(plan, facts).unwrap_or(Next::Done),
    }
}

/// Stores the original documents before the first change, for a back-out.
pub(super) fn remember_before(plan: &DeploymentPlan, memory: &mut Memory, facts: &Facts) {
    if !memory.before.is_empty() {
        return;
    }
    for PlannedDocument { id, .. } in &plan.documents {
        let live = facts.live.get(id).map(|it| RawValue::from_string(it.text.clone()));
        memory.before.insert(id.clone(), live.and_then(Result::ok));
    }
}

/// The document of the plan that takes over the index of this staging document.
pub(super) fn heir<'a>(plan: &'a DeploymentPlan, staging: &str) -> Option<&'a str> {
    plan.steps.iter().find(|step| step.staging() == staging).map(|step| &*step.design)
}

/// Whether an accepted request is visible: a read may still reach a copy without it.
pub(super) fn is_visible(sent: &Action, facts: &Facts) -> bool {
    match sent {
        Action::Put { id, body } => {
            facts.live.get(id).is_some_and(|live| is_same(&live.text, body))
        }
        Action::Delete { id, rev } => facts.live.get(id).is_none_or(|live| live.rev != *rev),
        Action::Build { .. } | Action::Compact { .. } | Action::Compacted { .. } => true,
    }
}

/// Whether the service must permit this action, because CouchDB may build an index after it.
pub(super) fn may_build(action: &Action, facts: &Facts, wanted: Wanted) -> bool {
    match action {
        Action::Build { .. } => true,
        Action::Put { .. } if !wanted.back_out => true,
        // If another live document has the index, it is already built.
        Action::Put { body, .. } => index_of(body).is_some_and(|index| {
            !facts.live.values().any(|live| index_of(&live.text) == Some(index))
        }),
        // The service itself decides on compactions.
        Action::Compact { .. } | Action::Delete { .. } | Action::Compacted { .. } => false,
    }
}

fn foreign_staging(plan: &DeploymentPlan, facts: &Facts, step: &PlannedStep) -> Option<Next> {
    let id = step.staging();
    let live = facts.live.get(&id)?;
    let is_ours = plan.staging(step).is_some_and(|ours| is_same(&live.text, &ours));
    (!is_ours).then(|| {
        Next::Stop(format!(
            "{id} exists with other content, so {} cannot be built under this name. Rename or delete it if nobody needs it.",
            step.design
        ))
    })
}

fn delete_staging(plan: &DeploymentPlan, facts: &Facts) -> Option<Next> {
    plan.steps.iter().find_map(|step| {
        let id = step.staging();
        let rev = facts.live.get(&id)?.rev.clone();
        Some(Action::Delete { id, rev }.into())
    })
}

fn of_step(plan: &DeploymentPlan, facts: &Facts, step: &PlannedStep, wanted: Wanted) -> Next {
    let (id, index) = (step.staging(), &facts.index);
    if !facts.live.contains_key(&id) {
        if let Some(why) = lacks_room(step, facts, wanted) {
            return Next::Stop(why);
        }
        return match plan.staging(step) {
            Some(body) => Action::Put { id, body }.into(),
            None => Next::Stop(format!("the plan does not have {}", step.design)),
        };
    }
    if let Some(why) = &index.unknown {
        return Next::Wait(format!("{id}: {why}"));
    }
    if !index.is_built() {
        let left = index.pending.max(index.indexing);
        return match index.indexers {
            0 if !index.is_settled || left == 0 || index.is_to_ask_again => {
                Action::Build { id }.into()
            }
            0 => Next::Wait(format!(
                "{id}: no indexer runs; {} left to read",
                counted(left, "change is left", "changes are left")
            )),
            _ => Next::Wait(format!("{id}: {} left to read", counted(left, "change", "changes"))),
        };
    }
    if index.is_compacting {
        return Next::Wait(format!("{id} is built and being compacted"));
    }
    match &index.outcome {
        _ if index.is_lean() => Action::Compacted { id }.into(),
        Some(Ok(())) => Action::Compacted { id }.into(),
        Some(Err(why)) if index.is_ordered => Next::Stop(format!(
            "the compaction of {id} failed: {why}. Run the command again when that is fixed."
        )),
        None if index.is_ordered => Next::Wait(format!(
            "{id} is built; its compaction starts when the service's limits permit"
        )),
        Some(Err(_)) | None => Action::Compact { id }.into(),
    }
}

/// Why a step must not begin; `None` if today's documents need less than the free space.
fn lacks_room(step: &PlannedStep, facts: &Facts, wanted: Wanted) -> Option<String> {
    if facts.is_shared {
        return None;
    }
    let grown = match (step.docs, facts.docs) {
        (Some(then), Some(now)) if then > 0 => now as f64 / then as f64,
        _ => 1.0,
    };
    let scaled = |bytes: u64| to_bytes(bytes as f64 * grown);
    // Nodes on the same volume share its free space.
    let mut volumes: BTreeMap<&str, Need<'_>> = BTreeMap::new();
    for need in &step.nodes {
        let today = facts.room.iter().find(|it| it.node == need.node);
        let known = today.and_then(|it| Some((it.volume.as_deref()?, it.free_bytes?)));
        let Some(((volume, free), SpreadLine { low, high, .. })) = known.zip(peak(need, facts))
        else {
            if wanted.may_not_fit {
                continue;
            }
            return Some(format!(
                "It is unknown whether {} fits on {}: set headroom.volumes of the service, or run again with --may-not-fit.",
                step.design, need.node
            ));
        };
        let sum = volumes.entry(volume).or_default();
        sum.nodes.push(&need.node);
        (sum.low, sum.high, sum.free) = (sum.low + scaled(low), sum.high + scaled(high), free);
    }
    let does_not = volumes.iter().find(|(_, it)| it.low > it.free);
    let may_not = || volumes.iter().find(|(_, it)| it.high > it.free && !wanted.may_not_fit);
    let (verb, (volume, need)) = match does_not {
        Some(found) => ("does not fit", found),
        None => ("may not fit", may_not()?),
    };
    let missing = if verb == "may not fit" { need.high } else { need.low } - need.free;
    let size = format_size_short;
    Some(format!(
        "{} {verb}: it needs {} to {} on volume {volume} of {}, which has {} free; {} are missing ({missing} bytes). Free space{}.",
        step.design,
        size(need.low),
        size(need.high),
        need.nodes.join(", "),
        size(need.free),
        size(missing),
        if verb == "may not fit" { ", or run again with --may-not-fit" } else { "" },
    ))
}

/// The peak of a step on a node; if the index is not compacted, only the size as built.
fn peak(need: &PreflightNode, facts: &Facts) -> Option<SpreadLine> {
    let peak = need.peak_bytes?;
    if !facts.stays_uncompacted {
        return Some(peak);
    }
    let live = need.live_bytes?;
    Some(SpreadLine {
        low: peak.low.saturating_sub(live.low),
        likely: peak.likely.saturating_sub(live.likely),
        high: peak.high.saturating_sub(live.high),
    })
}

/// What a step needs on one volume.
#[derive(Debug, Default)]
struct Need<'a> {
    nodes: Vec<&'a str>,
    low: u64,
    high: u64,
    free: u64,
}

/// The next step of a back-out.
fn next_back(plan: &DeploymentPlan, memory: &Memory, facts: &Facts) -> Next {
    for (id, before) in &memory.before {
        let Some(document) = plan.document(id) else { continue };
        let live = facts.live.get(id);
        let is_before = match (before, live) {
            (None, None) => true,
            (Some(before), Some(live)) => is_same(before.get(), &live.text),
            (None, Some(_)) | (Some(_), None) => false,
        };
        if is_before {
            continue;
        }
        let Some(live) = live.filter(|live| is_same(&live.text, document.body.get())) else {
            return Next::Stop(format!(
                "{id} stays: it is neither the earlier nor the deployed version, so somebody else changed it."
            ));
        };
        return match before {
            Some(before) => {
                let body = with_id(fields(before.get()), id, Some(&live.rev));
                Action::Put { id: id.clone(), body }.into()
            }
            None => Action::Delete { id: id.clone(), rev: live.rev.clone() }.into(),
        };
    }
    for step in &plan.steps {
        if let Some(stop) = foreign_staging(plan, facts, step) {
            return stop;
        }
    }
    delete_staging(plan, facts).unwrap_or(Next::Done)
}

#[cfg(test)]
mod tests;
