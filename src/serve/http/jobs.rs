//! `/api/v1/jobs`: what runs, whoever started it.

use super::{
    State,
    api::{Asked, asked, success},
    query::NoQuery,
};
use crate::{
    jobs::{Job, Work},
    plan::Plan,
    table::NodeIx,
};
use axum::{
    extract,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use std::sync::Arc;
use wall_clock::Moment;

/// Every job, and when each node last said what it runs.
pub(super) async fn jobs(
    extract::State(state): extract::State<State>,
    query: Asked<NoQuery>,
) -> Response {
    if let Err(refused) = asked(query) {
        return refused.into_response();
    }
    let plan = Arc::clone(&state.plan.borrow());
    let jobs = &plan.conditions.jobs;
    let node = |at: NodeIx| plan.snapshot.node(at).map(|node| node.name.to_string());
    let polled: Vec<Value> = jobs
        .polled
        .iter()
        .map(|(at, asked)| json!({ "node": node(*at), "asked_at": asked.rfc3339() }))
        .collect();
    let list: Vec<Value> = jobs.list.iter().map(|job| shown(job, &plan)).collect();
    success(&json!({ "generated_at": plan.made_at.rfc3339(), "nodes": polled, "jobs": list }))
}

fn shown(job: &Job, plan: &Plan) -> Value {
    let target = job.target.and_then(|ix| plan.snapshot.target(ix));
    let work = match &job.key.work {
        Work::Db | Work::View(_) => "compaction",
        Work::Build(_) | Work::BuildSearch(..) => "build",
    };
    json!({
        "node": plan.snapshot.node(job.key.node).map(|node| &*node.name),
        "kind": job.kind.label(),
        "work": work,
        "shard": &*job.key.shard,
        "ddoc": job.key.work.design(),
        "target": target.map(|target| target.id().to_string()),
        "owner": job.owner.label(),
        "channel": job.channel.as_deref(),
        "phase": job.phase.label(),
        "since": job.since.rfc3339(),
        "progress": job.progress,
        "last_progress": Moment::rfc3339(job.last_progress),
        "file_bytes": job.file_bytes,
        "predicted_bytes": job.predicted_bytes,
        "reserved_bytes": job.reserved,
    })
}
