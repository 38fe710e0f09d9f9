//! One start, from the plan to CouchDB's answer.

use super::{
    Hands, Order,
    check::{self, Fresh, Wanted},
    splits::Read,
};
use crate::{
    act::follower,
    jobs::Sent,
    model::{
        facts::Facts,
        memory::{Intent, IntentKey},
        target::{CLUSTER, Kind},
    },
    plan::{Plan, Start},
    scan,
    sources::inventory::{Copy, Databases, Lane, Observation, Source, Stage, TaskSeen},
    table::{Ix, NodeIx, Snapshot, TargetRef},
};
use futures::{StreamExt, future};
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::{sync::watch, time};
use wall_clock::Clock;

/// Time limit for reading again before a start. Capacity of a node is not reserved longer for a
/// target that cannot be read.
const READS: Duration = Duration::from_secs(15);

/// What every attempt needs.
#[derive(Clone, Debug)]
pub(super) struct Tools {
    pub(super) clock: Clock,
    pub(super) source: watch::Receiver<Arc<dyn Source>>,
    pub(super) hands: watch::Receiver<Arc<dyn Hands>>,
    pub(super) plans: watch::Receiver<Arc<Plan>>,
    pub(super) follower: follower::Handle,
    pub(super) scanner: scan::Handle,
}

/// The decision about a start.
#[derive(Debug)]
pub(super) enum Decided {
    /// The intent is stored durably and the request is to be sent. `taken` is the number of starts
    /// accepted so far.
    Goes { key: IntentKey, order: Order, taken: u64 },
    /// The start is cancelled, with the reason.
    Off(String),
}

impl Tools {
    /// Reads again, checks, and has the intent stored.
    pub(super) async fn decide(self, plan: Arc<Plan>, start: Start, splits: Read) -> Decided {
        match self.prepared(&plan, &start, splits).await {
            Ok((intent, order)) => {
                let key = intent.key();
                match self.follower.starting(intent, start.ordered).await {
                    Ok(taken) => Decided::Goes { key, order, taken },
                    Err(why) => Decided::Off(why.to_string()),
                }
            }
            Err(why) => {
                // The plan was based on outdated facts.
                let _full = self.scanner.send(scan::Command::Reread(vec![start.ix]));
                Decided::Off(why)
            }
        }
    }

    /// Sends the request and reports the result; returns whether it was sent.
    pub(super) async fn send(self, key: IntentKey, order: Order) -> bool {
        let hands = Arc::clone(&self.hands.borrow());
        let sent = hands.send(order).await;
        let gone = !matches!(sent, Sent::NotSent(_));
        self.follower.sent(key, sent).await;
        gone
    }

    async fn prepared(
        &self,
        plan: &Plan,
        start: &Start,
        splits: Read,
    ) -> Result<(Intent, Order), String> {
        let target = plan.snapshot.target(start.ix).ok_or("it no longer exists")?;
        let channel =
            plan.channels.list.get(start.channel).ok_or("its channel no longer exists")?;
        let planned = target.facts();
        let nodes = nodes_of(plan, start, target);
        let reads = self.fresh(plan, start, target, &nodes, splits);
        let fresh = time::timeout(READS, reads).await;
        let fresh = fresh.map_err(|_| format!("its nodes did not answer within {READS:?}"))??;
        let wanted = Wanted {
            start,
            kind: target.kind(),
            channel,
            planned: &planned,
            in_round: self.follower.history.borrow().rounds.contains_key(&start.ix),
            per_node: plan.rules.limits.per_node,
        };
        if let Some(why) = check::refusal(wanted, &fresh) {
            return Err(why);
        }
        let node = plan.snapshot.node(start.node).map_or(CLUSTER, |node| &node.name);
        self.still_allowed(node, &channel.name)?;
        let facts = fresh.facts.unwrap_or_default();
        let files = u64::from(if start.shard.is_some() { 1 } else { target.copies() });
        let all = |per_file: Option<u64>| per_file.map(|bytes| bytes.saturating_mul(files));
        let intent = Intent {
            target: target.id(),
            node: node.to_owned(),
            shard: start.shard.as_deref().map(Into::into),
            design: start.design.as_deref().map(Into::into),
            channel: channel.name.to_string(),
            ordered_by: start.ordered.as_ref().map(|ordered| ordered.by.clone()),
            at: self.clock.now(),
            file_bytes: all(facts.file.get()),
            active_bytes: all(facts.active.get()),
            update_seq: facts.update_seq.get(),
            compacted_seq: facts.compacted_seq.get(),
            predicted_bytes: all(crate::model::estimate::predicted(target.kind(), &facts)),
            peak_bytes: start.peak.saturating_mul(nodes.len().max(1) as u64),
        };
        let order = order(start, node, target).ok_or("the plan names no design document for it")?;
        Ok((intent, order))
    }

    /// Checks what an operator may have changed since the plan was made.
    fn still_allowed(&self, node: &str, channel: &str) -> Result<(), String> {
        let plan = self.plans.borrow();
        if plan.rules.mode != crate::model::channel::Mode::Enforce {
            return Err("the mode is now advise".into());
        }
        let history = self.follower.history.borrow();
        match history.suspensions.of(node, channel) {
            Some((scope, _)) => Err(format!("{scope} is now suspended")),
            None => Ok(()),
        }
    }

    /// Reads what a start depends on: the file, the tasks of its nodes, and whether the nodes are
    /// in service.
    async fn fresh(
        &self,
        plan: &Plan,
        start: &Start,
        target: TargetRef<'_>,
        nodes: &BTreeSet<NodeIx>,
        splits: Read,
    ) -> Result<Fresh, String> {
        let names: Vec<String> = nodes
            .iter()
            .filter_map(|node| Some(plan.snapshot.node(*node)?.name.to_string()))
            .collect();
        let hands = Arc::clone(&self.hands.borrow());
        let serve = future::join_all(names.iter().map(|name| hands.in_service(name)));
        let source = Arc::clone(&self.source.borrow());
        let tasks = tasks(&*source, names.clone());
        let facts = facts(&*source, &plan.snapshot, start, target);
        let splitting = self.splitting(plan, target, splits);
        let (serve, tasks, facts, splitting) = tokio::join!(serve, tasks, facts, splitting);
        serve.into_iter().collect::<Result<Vec<()>, String>>()?;
        Ok(Fresh { facts: facts?, tasks: tasks?, splitting: splitting? })
    }

    /// Whether a shard to be compacted is being split now; if so, informs the scanner.
    async fn splitting(
        &self,
        plan: &Plan,
        target: TargetRef<'_>,
        splits: Read,
    ) -> Result<bool, String> {
        let splits = match splits.await {
            Ok(splits) => splits,
            // If the login may not read the splits, rely on what the plan knew.
            Err(unread) if matches!(unread.reason, "forbidden" | "not_found") => return Ok(false),
            Err(unread) => return Err(unread.message),
        };
        let covered = |copy: TargetRef<'_>| {
            let (db, node) = (copy.db_name().db, copy.node());
            copy.range().is_some_and(|range| splits.covers(Copy { db, range, node }))
        };
        let found = !splits.is_empty()
            && match target.kind() {
                Kind::Cleanup | Kind::Search => false,
                Kind::Db => covered(target),
                Kind::View => copies(&plan.snapshot, target).any(covered),
            };
        if found {
            // If the queue is full, the scanner learns it with its next sweep.
            let _full = self.scanner.send(scan::Command::Splitting(splits));
        }
        Ok(found)
    }
}

/// The nodes a start works on; none for a cleanup, which counts against no limit.
fn nodes_of(plan: &Plan, start: &Start, target: TargetRef<'_>) -> BTreeSet<NodeIx> {
    match (target.kind(), &start.shard) {
        (Kind::Cleanup, _) => BTreeSet::new(),
        (_, Some(_)) => BTreeSet::from([start.node]),
        (_, None) => copies(&plan.snapshot, target).map(TargetRef::node_ix).collect(),
    }
}

/// The shard copies of a target's database.
fn copies<'a>(tables: &'a Snapshot, target: TargetRef<'a>) -> impl Iterator<Item = TargetRef<'a>> {
    let of = move |copy: &TargetRef<'_>| {
        copy.kind() == Kind::Db && copy.db() == target.db() && copy.range().is_some()
    };
    tables.targets().filter(of)
}

fn order(start: &Start, node: &str, target: TargetRef<'_>) -> Option<Order> {
    let db = target.db_name().db.to_owned();
    let node = node.to_owned();
    let design = start.design.as_deref().map(str::to_owned);
    Some(match (target.kind(), start.shard.as_deref()) {
        (Kind::Search, _) => return None,
        (Kind::Cleanup, _) => Order::Cleanup { db },
        (Kind::Db, shard) => Order::Shard { node, shard: shard?.to_owned() },
        (Kind::View, Some(shard)) => Order::Copy { node, shard: shard.to_owned(), design: design? },
        (Kind::View, None) => Order::Whole { db, design: design? },
    })
}

/// Reads the tasks of all given nodes.
async fn tasks(source: &dyn Source, nodes: Vec<String>) -> Result<Vec<TaskSeen>, String> {
    if nodes.is_empty() {
        return Ok(Vec::new());
    }
    let mut seen = source.read(Stage::Poll { nodes });
    let mut all = Vec::new();
    while let Some(seen) = seen.next().await {
        if let Observation::Tasks { tasks, .. } = seen {
            all.extend(tasks.map_err(|unread| unread.message)?);
        }
    }
    Ok(all)
}

/// Reads the target's facts again; `None` if it no longer exists or cannot be read on its own.
async fn facts(
    source: &dyn Source,
    tables: &Arc<Snapshot>,
    start: &Start,
    target: TargetRef<'_>,
) -> Result<Option<Facts>, String> {
    let snapshot = Arc::new(tables.without_facts());
    let stage = match target.kind() {
        Kind::Cleanup | Kind::Search => return Ok(None),
        Kind::Db => {
            let lanes = vec![Lane::of(target.node(), vec![start.ix], tables)];
            Stage::Shards { snapshot, lanes }
        }
        Kind::View => {
            let mut dbs = Databases::default();
            dbs.push(copies(tables, target).map(TargetRef::ix).collect::<Vec<Ix>>());
            Stage::Views { snapshot, dbs }
        }
    };
    let mut seen = source.read(stage);
    let mut found = None;
    while let Some(seen) = seen.next().await {
        if let Observation::Views { views, .. } = seen {
            let signature = target.view().map(|view| view.signature);
            for view in views.map_err(|unread| unread.message)? {
                match view.index {
                    Ok(index) if Some(index.signature) == signature => found = Some(index.facts),
                    Ok(_) | Err(_) => {}
                }
            }
        } else if let Observation::Shard { ix, facts } = seen
            && ix == start.ix
        {
            found = facts.map_err(|unread| unread.message)?;
        }
    }
    Ok(found)
}
