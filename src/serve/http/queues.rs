//! `/api/v1/queue`, `/api/v1/plan` and `/api/v1/runs`: the queues, the next starts, why other
//! targets wait, and how far runs are.

use super::{
    answer::{Answer, StreamedData},
    error::ApiError,
    query::{LARGEST, NoQuery, PageRange},
    route::Route,
    state::AppState,
    turn::{in_turn, worked_out},
};
use crate::{
    plan::Plan,
    serve::report::{Builds, Planned, Queue, Queues, RefusedLine, RunList, Target, Wanted},
    table::TargetIx,
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/queue",
            "queue",
            queue,
            "Queues and their waiting targets, highest priority first.",
        )
        .detail("Each queue has its size, capacity, reclaimable bytes and targets. `limits` has each limit, including each channel's `concurrency`, and how much of it compactions use, whatever started them; `duty`, the nodes that compact or rest under `limits.duty`; `windows`, for each channel, the hours of the current week (UTC, from Monday) in which it may start anything."),
        Route::read(
            "/api/v1/plan",
            "plan",
            plan,
            "What would start now, with the exact requests, and why other targets would not.",
        )
        .detail("For each queue, the number of refused targets by reason; closed gates; `suspensions` as in `status`; waiting `orders`; `builds` of indexes; and, page by page, the refused targets with the reason in a sentence."),
        Route::read(
            "/api/v1/runs",
            "runs",
            runs,
            "The progress of runs, and how the last ones ended.",
        ),
    ]
}

/// The queues to return, and how many of their targets.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct QueueQuery {
    /// Only queues of this node; `_cluster` has those of views and index cleanups.
    node: Option<String>,
    /// Only queues of this channel.
    channel: Option<String>,
    /// The maximum number of targets of each queue or of the plan; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
    /// The number of these targets to skip.
    #[schemars(range(max = usize::MAX))]
    offset: Option<usize>,
}

pub(super) fn check_channel(plan: &Plan, channel: Option<&str>) -> Result<(), String> {
    let Some(channel) = channel.filter(|name| plan.channels.find(name).is_none()) else {
        return Ok(());
    };
    let names: Vec<&str> = plan.channels.list.iter().map(|channel| &*channel.name).collect();
    Err(format!("no channel is called {channel:?}; channels: {}", names.join(", ")))
}

/// Lists the queues with their targets, best first.
async fn queue(state: AppState, query: QueueQuery) -> Result<Answer<Queues>, ApiError> {
    let now = state.clock.now();
    worked_out(&state, move |plan| {
        let page = PageRange::new(query.offset, query.limit).map_err(ApiError::bad)?;
        check_channel(&plan, query.channel.as_deref()).map_err(ApiError::bad)?;
        let head = Queues::head(&plan, page.offset, page.limit, now);
        let queues = (0..plan.queues.len())
            .filter_map(move |at| one_queue(Arc::clone(&plan), at, &query, page));
        Ok(StreamedData::with_lists(["queues", "targets"], &head, queues))
    })
    .await
}

/// A queue and its targets; `None` if the query excludes the queue.
fn one_queue(
    plan: Arc<Plan>,
    at: usize,
    query: &QueueQuery,
    page: PageRange,
) -> Option<(Queue, impl Iterator<Item = Target> + use<>)> {
    let (queue, size) = plan.waiting_in(at)?;
    let node = plan.snapshot.node(queue.node)?;
    let channel = plan.channels.list.get(queue.channel_index)?;
    let wanted = query.node.as_deref().is_none_or(|wanted| wanted == &*node.name)
        && query.channel.as_deref().is_none_or(|wanted| wanted == &*channel.name);
    if !wanted {
        return None;
    }
    let head = Queue::of(&node.name, &channel.name, (queue, size));
    let waiting: Vec<TargetIx> = queue.queued().skip(page.offset).take(page.limit).collect();
    let waiting = waiting
        .into_iter()
        .filter_map(move |ix| Some(Target::of(&plan, plan.snapshot.target(ix)?)));
    Some((head, waiting))
}

/// Lists the planned starts with their exact requests, and why other queued targets do not start.
async fn plan(state: AppState, query: QueueQuery) -> Result<Answer<Planned>, ApiError> {
    let (builds, simulated) = (Arc::clone(&state.builds.borrow()), state.about.simulated);
    worked_out(&state, move |plan| {
        let PageRange { offset, limit } =
            PageRange::new(query.offset, query.limit).map_err(ApiError::bad)?;
        check_channel(&plan, query.channel.as_deref()).map_err(ApiError::bad)?;
        let (node, channel) = (query.node.as_deref(), query.channel.as_deref());
        let (outline, refused) = Planned::outline(&plan, Wanted { node, channel, offset, limit });
        let builds = Some(Builds::from(&*builds));
        let head = Planned { builds, simulated: Some(simulated), ..outline };
        let lines = refused
            .into_iter()
            .filter_map(move |ix| RefusedLine::of(&plan, plan.snapshot.target(ix)?));
        Ok(StreamedData::with_list("refused", &head, lines))
    })
    .await
}

async fn runs(state: AppState, _: NoQuery) -> Result<Answer<RunList>, ApiError> {
    in_turn(&state, |plan| Ok(Answer::of(&RunList::of(&plan)))).await
}
