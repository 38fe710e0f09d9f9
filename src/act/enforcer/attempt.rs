//! One start, from the plan to CouchDB's answer.

use super::{
    CompactionApi, CompactionCommand,
    check::{self, FreshFacts, StartToCheck},
    splits::SplitsFuture,
};
use crate::{
    act::job_state,
    jobs::RequestResult,
    model::{
        correction::Correction,
        facts::Facts,
        records::{Intent, IntentKey},
        target::{CLUSTER_NODE, TargetKind},
    },
    plan::{Plan, PlannedStart},
    scan,
    sources::inventory::{
        ActiveTask, Copy, Databases, IndexAnswer, NodeReads, Observation, Source, Stage,
    },
    table::{NodeIx, Snapshot, TargetIx, TargetRef},
};
use futures::{StreamExt, future};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{sync::watch, time};
use wall_clock::Clock;

/// Time limit for rereading before a start, so that a target that cannot be read does not reserve a
/// node's capacity for longer.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// Handles that every attempt needs.
#[derive(Clone, Debug)]
pub(super) struct AttemptContext {
    pub(super) clock: Clock,
    pub(super) source: watch::Receiver<Arc<dyn Source>>,
    pub(super) api: watch::Receiver<Arc<dyn CompactionApi>>,
    pub(super) plans: watch::Receiver<Arc<Plan>>,
    pub(super) job_state: job_state::JobStateHandle,
    pub(super) scanner: scan::ScanHandle,
}

/// The decision about a start.
#[derive(Debug)]
pub(super) enum StartDecision {
    /// The intent is stored durably and the request is to be sent.
    Send { key: IntentKey, command: CompactionCommand, starts_accepted: u64 },
    /// The start is cancelled, with the reason.
    Cancelled(String),
}

impl AttemptContext {
    /// Rereads the facts, checks the start, and has the intent stored.
    pub(super) async fn decide(
        self,
        plan: Arc<Plan>,
        start: PlannedStart,
        splits: SplitsFuture,
    ) -> StartDecision {
        match self.prepare(&plan, &start, splits).await {
            Ok((intent, command)) => {
                let key = intent.key();
                match self.job_state.accept_start(intent, start.order).await {
                    Ok(starts_accepted) => StartDecision::Send { key, command, starts_accepted },
                    Err(why) => StartDecision::Cancelled(why.to_string()),
                }
            }
            Err(why) => {
                // The plan was based on outdated facts.
                let _full = self.scanner.send(scan::ScanCommand::Reread(vec![start.ix]));
                StartDecision::Cancelled(why)
            }
        }
    }

    /// Sends the request and reports the result; returns whether it was sent.
    pub(super) async fn send(self, key: IntentKey, command: CompactionCommand) -> bool {
        let api = Arc::clone(&self.api.borrow());
        let result = api.send(command).await;
        let was_sent = !matches!(result, RequestResult::NotSent(_));
        self.job_state.report_result(key, result).await;
        was_sent
    }

    async fn prepare(
        &self,
        plan: &Plan,
        start: &PlannedStart,
        splits: SplitsFuture,
    ) -> Result<(Intent, CompactionCommand), String> {
        let target = plan.snapshot.target(start.ix).ok_or("it no longer exists")?;
        let channel =
            plan.channels.list.get(start.channel).ok_or("its channel no longer exists")?;
        let planned = target.facts();
        let nodes = nodes_of(plan, start, target);
        let reads = self.read_fresh(plan, start, target, &nodes, splits);
        let fresh = time::timeout(READ_TIMEOUT, reads).await;
        let fresh =
            fresh.map_err(|_| format!("its nodes did not answer within {READ_TIMEOUT:?}"))??;
        let to_check = StartToCheck {
            start,
            kind: target.kind(),
            channel,
            planned: &planned,
            rent: plan.rent_now(target),
            continues_view: self
                .job_state
                .constraints
                .borrow()
                .partly_compacted_views
                .contains_key(&start.ix),
            node_limit: plan.rules.limits.per_node,
        };
        if let Some(why) = check::cancel_reason(to_check, &fresh) {
            return Err(why);
        }
        let node = plan.snapshot.node(start.node).map_or(CLUSTER_NODE, |node| &node.name);
        self.check_still_allowed(node, &channel.name)?;
        let facts = fresh.facts.unwrap_or_default();
        let taught = self.job_state.constraints.borrow().remaining_bytes.get(&start.ix).copied();
        let rate = self.job_state.constraints.borrow().measured_rate();
        let predicted = target.correction().predicted_bytes(target.kind(), &facts).map(|bytes| {
            bytes.saturating_add(target.growth().waste_during(bytes, rate, self.clock.now()))
        });
        let files = u64::from(if start.shard.is_some() { 1 } else { target.file_count() });
        let times_files = |per_file: Option<u64>| per_file.map(|bytes| bytes.saturating_mul(files));
        let intent = Intent {
            target: target.id(),
            node: node.to_owned(),
            shard: start.shard.as_deref().map(Into::into),
            design: start.design.as_deref().map(Into::into),
            channel: channel.name.to_string(),
            ordered_by: start.order.as_ref().map(|ordered| ordered.by.clone()),
            run: start.order.as_ref().and_then(|ordered| ordered.run),
            at: self.clock.now(),
            file_bytes: times_files(facts.file_bytes.get()),
            active_bytes: times_files(facts.active_bytes.get()),
            update_seq: facts.update_seq.get(),
            compacted_seq: facts.compacted_seq.get(),
            predicted_bytes: times_files(taught.or(predicted)),
            fitted_bytes: times_files(Correction::NONE.predicted_bytes(target.kind(), &facts)),
            peak_bytes: start.peak_bytes.saturating_mul(nodes.len().max(1) as u64),
        };
        let command =
            command_for(start, node, target).ok_or("the plan names no design document for it")?;
        Ok((intent, command))
    }

    /// Checks what an operator may have changed since the plan was made.
    fn check_still_allowed(&self, node: &str, channel: &str) -> Result<(), String> {
        let plan = self.plans.borrow();
        if plan.rules.mode != crate::model::channel::Mode::Enforce {
            return Err("the mode is now advise".into());
        }
        let constraints = self.job_state.constraints.borrow();
        match constraints.suspensions.covering(node, channel) {
            Some((scope, _)) => Err(format!("{scope} is now suspended")),
            None => Ok(()),
        }
    }

    /// Reads what a start depends on: the file, the tasks of its nodes, and whether the nodes are
    /// in service.
    async fn read_fresh(
        &self,
        plan: &Plan,
        start: &PlannedStart,
        target: TargetRef<'_>,
        nodes: &BTreeSet<NodeIx>,
        splits: SplitsFuture,
    ) -> Result<FreshFacts, String> {
        let names: Vec<String> = nodes
            .iter()
            .filter_map(|node| Some(plan.snapshot.node(*node)?.name.to_string()))
            .collect();
        let api = Arc::clone(&self.api.borrow());
        let in_service = future::join_all(names.iter().map(|name| api.check_in_service(name)));
        let source = Arc::clone(&self.source.borrow());
        let tasks = read_tasks(&*source, names.clone());
        let facts = read_facts(&*source, &plan.snapshot, start, target);
        let splitting = self.is_splitting(plan, target, splits);
        let (in_service, tasks, facts, splitting) =
            tokio::join!(in_service, tasks, facts, splitting);
        in_service.into_iter().collect::<Result<Vec<()>, String>>()?;
        Ok(FreshFacts { facts: facts?, tasks: tasks?, splitting: splitting? })
    }

    /// Whether a shard to be compacted is being split now; if so, informs the scanner.
    async fn is_splitting(
        &self,
        plan: &Plan,
        target: TargetRef<'_>,
        splits: SplitsFuture,
    ) -> Result<bool, String> {
        let splits = match splits.await {
            Ok(splits) => splits,
            // If the login may not read the splits, the plan's knowledge has to do.
            Err(error) if matches!(error.reason, "forbidden" | "not_found") => return Ok(false),
            Err(error) => return Err(error.message),
        };
        let is_covered = |copy: TargetRef<'_>| {
            let (db, node) = (copy.db_name().db, copy.node());
            copy.range().is_some_and(|range| splits.is_splitting(Copy { db, range, node }))
        };
        let overlaps = !splits.is_empty()
            && match target.kind() {
                TargetKind::Cleanup | TargetKind::Search => false,
                TargetKind::Db => is_covered(target),
                TargetKind::View => shard_copies(&plan.snapshot, target).any(is_covered),
            };
        if overlaps {
            // If the queue is full, the scanner learns of it in its next sweep.
            let _full = self.scanner.send(scan::ScanCommand::Splitting(splits));
        }
        Ok(overlaps)
    }
}

/// The nodes that a start uses; none for a cleanup, which counts against no limit.
fn nodes_of(plan: &Plan, start: &PlannedStart, target: TargetRef<'_>) -> BTreeSet<NodeIx> {
    match (target.kind(), &start.shard) {
        (TargetKind::Cleanup, _) => BTreeSet::new(),
        (_, Some(_)) => BTreeSet::from([start.node]),
        (_, None) => shard_copies(&plan.snapshot, target).map(TargetRef::node_ix).collect(),
    }
}

/// The shard copies of a target's database.
fn shard_copies<'a>(
    snapshot: &'a Snapshot,
    target: TargetRef<'a>,
) -> impl Iterator<Item = TargetRef<'a>> {
    let is_copy = move |copy: &TargetRef<'_>| {
        copy.kind() == TargetKind::Db && copy.db() == target.db() && copy.range().is_some()
    };
    snapshot.targets().filter(is_copy)
}

fn command_for(
    start: &PlannedStart,
    node: &str,
    target: TargetRef<'_>,
) -> Option<CompactionCommand> {
    let db = target.db_name().db.to_owned();
    let node = node.to_owned();
    let design = start.design.as_deref().map(str::to_owned);
    Some(match (target.kind(), start.shard.as_deref()) {
        (TargetKind::Search, _) => return None,
        (TargetKind::Cleanup, _) => CompactionCommand::Cleanup { db },
        (TargetKind::Db, shard) => {
            CompactionCommand::CompactShard { node, shard: shard?.to_owned() }
        }
        (TargetKind::View, Some(shard)) => {
            CompactionCommand::CompactViewCopy { node, shard: shard.to_owned(), design: design? }
        }
        (TargetKind::View, None) => CompactionCommand::CompactView { db, design: design? },
    })
}

/// Reads the tasks of all given nodes.
async fn read_tasks(source: &dyn Source, nodes: Vec<String>) -> Result<Vec<ActiveTask>, String> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let mut observations = source.read(Stage::Poll { nodes });
    let mut all = Vec::new();
    while let Some(observation) = observations.next().await {
        if let Observation::Tasks { tasks, .. } = observation {
            all.extend(tasks.map_err(|error| error.message)?);
        }
    }
    Ok(all)
}

/// Reads the target's facts again; `None` if it no longer exists or cannot be read individually.
async fn read_facts(
    source: &dyn Source,
    snapshot: &Arc<Snapshot>,
    start: &PlannedStart,
    target: TargetRef<'_>,
) -> Result<Option<Facts>, String> {
    let without_facts = Arc::new(snapshot.without_facts());
    let stage = match target.kind() {
        TargetKind::Cleanup | TargetKind::Search => return Ok(None),
        TargetKind::Db => {
            let node_reads = vec![NodeReads::of(target.node(), vec![start.ix], snapshot)];
            Stage::Shards { snapshot: without_facts, node_reads, count_designs: Arc::default() }
        }
        TargetKind::View => {
            let mut dbs = Databases::default();
            dbs.push(shard_copies(snapshot, target).map(TargetRef::ix).collect::<Vec<TargetIx>>());
            Stage::Views { snapshot: without_facts, dbs, without_designs: Arc::default() }
        }
    };
    let mut observations = source.read(stage);
    let mut latest = None;
    while let Some(observation) = observations.next().await {
        if let Observation::Views { views, .. } = observation {
            let signature = target.view().map(|view| view.signature);
            for view in views.map_err(|error| error.message)? {
                match view.index {
                    Ok(index) if Some(index.signature) == signature => {
                        latest = Some(facts_of_start(snapshot, start, &index)?);
                    }
                    Ok(_) | Err(_) => {}
                }
            }
        } else if let Observation::Shard { ix, facts, .. } = observation
            && ix == start.ix
        {
            latest = facts.map_err(|error| error.message)?;
        }
    }
    Ok(latest)
}

/// The facts of the index that a start compacts: on its node, if the copies were read one by one.
fn facts_of_start(
    snapshot: &Snapshot,
    start: &PlannedStart,
    index: &IndexAnswer,
) -> Result<Facts, String> {
    if start.shard.is_none() || index.copies.is_empty() {
        return Ok(index.facts);
    }
    let is_there =
        |ix: TargetIx| snapshot.target(ix).is_some_and(|copy| copy.node_ix() == start.node);
    let found = index.copies.iter().find(|(ix, _)| is_there(*ix));
    found
        .map(|(_, facts)| *facts)
        .ok_or_else(|| "recliner could not read its copy there".to_owned())
}
