//! What CouchDB and the service report about a deployment, and the requests that carry it out.

use super::{
    next::{Facts, IndexState, Live, Next},
    plan::{DeploymentPlan, Memory, PlannedStep, index_of},
};
use crate::{
    cli::{CommandError, orders, service_client::ServiceClient},
    model::records::JobResult,
    serve::report::{
        OutcomeLine, Outcomes, Planned, Rehearsal, RehearsalQuestion, Status,
        orders::{CompactOrder, OrderRequest, RescanOrder},
    },
    sources::{couchdb::describe, present_design::read_designs},
    text::Label as _,
};
use couchdb_client::{Cache, Client, Error, ErrorKind, WriteOutcome, wire::ActiveTask};
use couchdb_names::ShardName;
use futures::future::join_all;
use std::{collections::BTreeSet, time::Duration};
use tokio::time::Instant;
use wall_clock::Moment;

/// Within this time after a build was requested, every copy with changes to read shows an indexer.
const SETTLE: Duration = Duration::from_secs(5);

/// Interval after which a build is requested again, for copies whose node missed the request.
const REQUEST_AGAIN: Duration = Duration::from_secs(60);

/// Interval after which an unfinished compaction is ordered again, because orders expire. The new
/// order replaces the old.
const ORDER_AGAIN: Duration = Duration::from_secs(600);

pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) service: ServiceClient,
    pub(super) plan: DeploymentPlan,
    /// The document whose build was requested last, and when.
    pub(super) requested: Option<(String, Instant)>,
    /// The document whose compaction was ordered last, and when.
    pub(super) ordered: Option<(String, Instant)>,
}

impl Cluster {
    /// The live documents and the database's instance.
    ///
    /// # Errors
    /// What to do instead if they cannot be read: wait, or stop if waiting does not help.
    pub(super) async fn read(&self) -> Result<Facts, Next> {
        let db = &self.plan.db;
        let info = self.client.database(db).await.map_err(|why| match why.kind() {
            ErrorKind::Login | ErrorKind::Forbidden | ErrorKind::NotFound => {
                Next::Stop(format!("cannot read the database {db}: {}", describe(&why)))
            }
            ErrorKind::Timeout
            | ErrorKind::Connect
            | ErrorKind::Tls
            | ErrorKind::Status
            | ErrorKind::NodeDown
            | ErrorKind::Proxy
            | ErrorKind::TooLarge
            | ErrorKind::Malformed
            | ErrorKind::Redirect
            | ErrorKind::Unaddressable
            | ErrorKind::NoOwnAddress
            | ErrorKind::UnknownNode
            | ErrorKind::Stopped => Next::Wait(describe(&why)),
        })?;
        let mut facts = Facts {
            instance: info.instance_start_time.unwrap_or_default(),
            docs: info.doc_count,
            ..Facts::default()
        };
        for text in read_designs(&self.client, db).await.map_err(Next::Wait)? {
            #[derive(serde::Deserialize)]
            struct Ids {
                _id: String,
                _rev: String,
            }
            // A document without id and revision does not exist.
            if let Ok(Ids { _id: id, _rev: rev }) = serde_json::from_str(&text) {
                facts.live.insert(id, Live { rev, text });
            }
        }
        Ok(facts)
    }

    /// Why the service would start nothing now; `None` if it would.
    ///
    /// # Errors
    /// If it does not answer, or does not enforce.
    pub(super) async fn held(&self) -> Result<Option<String>, CommandError> {
        let status: Status = self.service.get("/api/v1/status", &[]).await?;
        if status.mode != "enforce" {
            return Err(CommandError::failed(format!(
                "the recliner at {} runs in {} mode; indexes are only deployed in enforce mode (mode: enforce)",
                self.service.name(),
                status.mode
            )));
        }
        self.closed_gate(&status).await
    }

    /// Checks that the service follows the database of the plan, and not one of the same name in another
    /// cluster.
    ///
    /// # Errors
    /// If it does not, or does not answer.
    pub(super) async fn check_service(&self) -> Result<(), CommandError> {
        let Some(document) = self.plan.documents.first() else { return Ok(()) };
        let followed = self.rehearse(&document.id).await?.instance;
        // Earlier versions do not report the instance.
        if followed.is_empty() || followed == self.plan.instance {
            return Ok(());
        }
        Err(CommandError::failed(format!(
            "the recliner at {} follows a different database {} ({followed}; the plan is for {}): name the recliner of this cluster with --recliner.url",
            self.service.name(),
            self.plan.db,
            self.plan.instance
        )))
    }

    async fn rehearse(&self, design: &str) -> Result<Rehearsal, CommandError> {
        let designs = self.plan.document(design).map(|it| it.body.clone()).into_iter().collect();
        let question = RehearsalQuestion { db: self.plan.db.clone(), designs };
        self.service.post("/api/v1/rehearsal", &question).await
    }

    /// Reads today's free space, less what running compactions may still write, and the number of
    /// documents; returns why to wait if the service cannot report them yet.
    pub(super) async fn read_room(
        &self,
        facts: &mut Facts,
        step: &PlannedStep,
    ) -> Result<Option<String>, CommandError> {
        let body = self.plan.document(&step.design).map(|it| it.body.get());
        let index = body.and_then(index_of);
        facts.is_shared = facts.live.values().any(|live| index_of(&live.text) == index);
        let today = self.rehearse(&step.design).await?;
        facts.stays_uncompacted = today.staged_compacted == Some(false);
        if let Some(document) = today.documents.into_iter().next() {
            if !facts.is_shared && !document.cost.builds() {
                self.rescan().await?;
                let design = &step.design;
                return Ok(Some(format!("the service still shows the deleted index of {design}")));
            }
            facts.room = document.cost.nodes;
            facts.docs = document.cost.docs.or(facts.docs);
        }
        Ok(None)
    }

    async fn closed_gate(&self, status: &Status) -> Result<Option<String>, CommandError> {
        if let Some(why) = status.problem.as_ref().or(status.journal_problem.as_ref()) {
            return Ok(Some(why.clone()));
        }
        if !status.ready {
            return Ok(Some("the service has not read the cluster yet".to_owned()));
        }
        let plan: Planned = self.service.get("/api/v1/plan", &[("limit", "0")]).await?;
        let nodes = self.nodes().await.unwrap_or_default();
        let is_here = |node: &str| node == "_cluster" || nodes.contains(node);
        let suspended = plan
            .suspensions
            .iter()
            .find(|it| it.scope == "all" || it.scope.strip_prefix("node:").is_some_and(is_here));
        if let Some(suspension) = suspended {
            return Ok(Some(suspension.says.clone()));
        }
        let gate = plan.gates.iter().find(|gate| is_here(&gate.node));
        Ok(gate.map(|gate| {
            let why =
                gate.says.clone().unwrap_or_else(|| format!("the gate {} is closed", gate.gate));
            format!("{}: {why}", gate.node)
        }))
    }

    /// The nodes with a copy of the database.
    async fn nodes(&self) -> Result<BTreeSet<String>, String> {
        let shards =
            self.client.db_shards(&self.plan.db).await.map_err(|why| describe(&why))?.shards;
        Ok(shards.into_values().flatten().collect())
    }

    /// The build state of a staging document's index.
    pub(super) async fn index(&self, id: &str, memory: &Memory) -> IndexState {
        match self.read_index(id).await {
            Ok(mut index) => {
                let since = self.requested.as_ref().filter(|(of, _)| of == id);
                index.is_settled = since.is_some_and(|(_, at)| at.elapsed() >= SETTLE);
                index.is_to_ask_again = since.is_none_or(|(_, at)| at.elapsed() >= REQUEST_AGAIN);
                let is_young =
                    |(of, at): &(String, Instant)| of == id && at.elapsed() < ORDER_AGAIN;
                index.is_ordered = self.ordered.as_ref().is_some_and(is_young);
                if let Some(ordered) = memory.ordered.get(id) {
                    match self.outcome(id, ordered).await {
                        Ok(outcome) => index.outcome = outcome,
                        Err(why) => index.unknown = Some(why),
                    }
                }
                index
            }
            Err(why) => IndexState { unknown: Some(why), ..IndexState::default() },
        }
    }

    async fn read_index(&self, id: &str) -> Result<IndexState, String> {
        let (client, db) = (&self.client, &self.plan.db);
        let info = client.view_info(db, id).await.map_err(|why| describe(&why))?.view_index;
        let unknown = || format!("CouchDB does not report the progress of building {id}");
        let mut index = IndexState {
            seq: info.update_seq.ok_or_else(unknown)?,
            pending: info.updates_pending.and_then(|it| it.total).ok_or_else(unknown)?,
            is_compacting: info.compact_running == Some(true),
            ..IndexState::default()
        };
        index.parts.extend(info.sizes.file.zip(info.sizes.active));
        let nodes = self.nodes().await?;
        let read = join_all(nodes.iter().map(async |node| self.read_node(node, id).await)).await;
        for (node, read) in nodes.iter().zip(read) {
            let (tasks, copies) = read.map_err(|why| {
                format!("cannot tell whether its copies on {node} are built: {why}")
            })?;
            for task in tasks {
                index.is_compacting |= task.kind.as_deref() == Some("view_compaction");
                if task.kind.as_deref() == Some("indexer") {
                    let left = task.total_changes.unwrap_or(u64::MAX);
                    index.indexing =
                        index.indexing.max(left - task.changes_done.unwrap_or(0).min(left));
                    index.indexers += 1;
                }
            }
            for copy in copies {
                index.pending = index.pending.max(copy.pending_updates.unwrap_or(u64::MAX));
                index.parts.extend(copy.sizes.file.zip(copy.sizes.active));
                index.is_compacting |= copy.compact_running == Some(true);
            }
        }
        Ok(index)
    }

    /// The tasks of an index on one node, and that node's copies that CouchDB shows: those of the
    /// range that contains the document.
    async fn read_node(
        &self,
        node: &str,
        id: &str,
    ) -> Result<(Vec<ActiveTask>, Vec<couchdb_client::wire::ViewIndex>), String> {
        let (client, db) = (&self.client, &*self.plan.db);
        let mut tasks = client.active_tasks(node).await.map_err(|why| describe(&why))?;
        let instance = format!(".{}", self.plan.instance);
        let is_here = |shard: &str| {
            ShardName::split(shard).is_some_and(|it| it.db == db && it.suffix == instance)
        };
        tasks.retain(|task| {
            task.design_document.as_deref() == Some(id)
                && task.database.as_deref().is_some_and(is_here)
        });
        let mut copies = Vec::new();
        for (range, nodes) in client.db_shards(db).await.map_err(|why| describe(&why))?.shards {
            if !nodes.iter().any(|it| it == node) {
                continue;
            }
            let shard = format!("shards/{range}/{db}{instance}");
            match client.shard_view_info(node, &shard, id, Cache::Warm).await {
                Ok(info) => copies.push(info.view_index),
                Err(why) if why.kind() == ErrorKind::NotFound => {}
                Err(why) => return Err(describe(&why)),
            }
        }
        Ok((tasks, copies))
    }

    /// How the compaction ordered at this time ended; `None` if it has not.
    async fn outcome(&self, id: &str, ordered: &str) -> Result<Option<Result<(), String>>, String> {
        let target = format!("{}/{id}", self.plan.db);
        let query = [("target", &*target), ("since", ordered), ("limit", "50")];
        let ended: Result<Outcomes, _> = self.service.get("/api/v1/history", &query).await;
        let ended = ended.map_err(|why| why.why)?.outcomes;
        Ok(of_order(ended, ordered).map(|it| match JobResult::from_label(&it.result) {
            Some(JobResult::Failed | JobResult::Lost) | None => {
                Err(it.why.unwrap_or_else(|| it.result.into_owned()))
            }
            Some(
                JobResult::Freed
                | JobResult::NothingFreed
                | JobResult::Grew
                | JobResult::Unmeasured,
            ) => Ok(()),
        }))
    }

    /// Whether CouchDB shows the same signature for the indexes of two documents.
    pub(super) async fn share_index(&self, one: &str, other: &str) -> Result<bool, String> {
        let read = async |id: &str| {
            let info = self.client.view_info(&self.plan.db, id).await;
            let signature = info.map_err(|why| describe(&why))?.view_index.signature;
            signature.ok_or_else(|| format!("CouchDB reports no signature of {id}"))
        };
        Ok(read(one).await? == read(other).await?)
    }

    /// Requests a build on every copy.
    pub(super) async fn build(&mut self, id: &str, view: &str) -> Result<(), String> {
        let recent = |(of, at): &(String, Instant)| of == id && at.elapsed() < REQUEST_AGAIN;
        if self.requested.as_ref().is_some_and(recent) {
            return Ok(());
        }
        sent(self.client.build_view(&self.plan.db, id, view).await).map_err(|failed| failed.why)?;
        self.requested = Some((id.to_owned(), Instant::now()));
        Ok(())
    }

    pub(super) async fn compact(&mut self, id: &str) -> Result<(), CommandError> {
        let target = format!("{}/{id}", self.plan.db);
        let order = OrderRequest::Compact(CompactOrder { target, force: true });
        orders::send(&self.service, &order).await?;
        self.ordered = Some((id.to_owned(), Instant::now()));
        Ok(())
    }

    /// Starts a sweep, so that the service sees the changes.
    pub(super) async fn rescan(&self) -> Result<(), CommandError> {
        orders::send(&self.service, &OrderRequest::Rescan(RescanOrder {})).await.map(drop)
    }

    pub(super) async fn put(&self, id: &str, body: &str) -> Result<(), NotWritten> {
        sent(self.client.put_design(&self.plan.db, id, body).await)
    }

    pub(super) async fn delete(&self, id: &str, rev: &str) -> Result<(), NotWritten> {
        sent(self.client.delete_design(&self.plan.db, id, rev).await)
    }
}

/// The newest compaction that started after this order. A compaction that the service began earlier
/// by itself may have missed copies that were still being built, even if it ends after the order.
fn of_order(ended: Vec<OutcomeLine>, ordered: &str) -> Option<OutcomeLine> {
    let ordered = Moment::parse(ordered)?;
    ended
        .into_iter()
        .find(|it| Moment::parse(&it.started_at).is_some_and(|started| started >= ordered))
}

/// Why CouchDB did not do what a request asks.
pub(super) struct NotWritten {
    pub(super) why: String,
    /// Whether CouchDB would refuse the same request again, e.g. a function that it cannot compile.
    pub(super) is_final: bool,
}

fn sent(outcome: WriteOutcome) -> Result<(), NotWritten> {
    let (why, was_refused) = match outcome {
        WriteOutcome::Accepted => return Ok(()),
        WriteOutcome::Refused(why) => (why, true),
        WriteOutcome::NotSent(why) | WriteOutcome::Unknown(why) => (why, false),
    };
    // A conflict is resolved by reading the document again.
    let is_final = was_refused && matches!(why, Error::Status { status: 400 | 413, .. });
    Err(NotWritten { why: describe(&why), is_final })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_compaction_that_ends_after_the_order_is_not_the_ordered_one() {
        let line = |seq: u64, started: u64| {
            serde_json::from_value(serde_json::json!({
                "seq": seq, "target": "view:_cluster/a.1/x", "kind": "view", "node": "_cluster",
                "owner": "recliner", "started_at": Moment::from_unix(started).rfc3339(),
                "ended_at": Moment::from_unix(300).rfc3339(), "result": "freed",
            }))
        };
        let ended = |starts: &[u64]| -> Vec<OutcomeLine> {
            let lines = (1..).zip(starts).map(|(seq, started)| line(seq, *started));
            let mut lines: Vec<OutcomeLine> = lines.collect::<Result<_, _>>().unwrap();
            lines.reverse();
            lines
        };
        let found = |starts: &[u64]| {
            let ordered = Moment::from_unix(200).rfc3339();
            of_order(ended(starts), &ordered).map(|it| it.seq)
        };
        assert_eq!(found(&[180]), None);
        assert_eq!(found(&[180, 200]), Some(2));
        assert_eq!(found(&[180, 250, 260]), Some(3));
    }
}
