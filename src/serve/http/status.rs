//! The state of recliner: its status, active configuration, space, and running jobs.

use super::{
    answer::{Answer, success},
    error::ApiError,
    journal, probes,
    query::NoQuery,
    route::Route,
    state::AppState,
    turn::in_turn,
};
use crate::{
    fleet::Overview,
    model::records::JournalFailure,
    plan::Plan,
    serve::report::{
        self, ConfigLine, Configuration, EntryLine, Feeds, Jobs, PeerLine, ReadErrors,
        SharedLimits, Space, Status, SuspensionLine, Sweep, TakeoverLine,
    },
    shared_limits::Now,
    text::Label as _,
};
use std::{sync::Arc, time::Duration};
use tokio::time;
use wall_clock::Moment;

/// How long the status waits for what compactions did last night.
const NIGHT_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/status",
            "status",
            status,
            "The state of recliner: what it sees, and what it cannot read.",
        )
        .detail("Version, mode, whether the cluster is `simulated` and what that means (`simulation`), the state of each URL of `couchdb.urls` (`couchdb`), nodes, the current and the last sweep, the state of the feeds, sidecars (`peers`), limits that clusters share (`shared_limits`), what could not be read, missing rights, why the journal cannot be used (`journal_problem`), and `suspensions`: `scope`, `since`, `by`, `why`, and a sentence (`says`). `overview`: bytes, waste, when a volume will be full, the last 12 hours, the worst advice."),
        Route::read(
            "/api/v1/space",
            "space",
            space,
            "Bytes of the whole cluster, and the used and free space of each volume.",
        )
        .detail("All copies count. Reclaimable bytes are predicted; a volume's live, reclaimable and unused bytes are null if a node has several volumes. `full_at` is when the forecast says that a volume will be full if compaction keeps up, with an 80 % range; `full_uncompacted_at`, if nothing is compacted. `nodes_without_space` are the nodes whose free space is unknown. `usage` lists which databases the bytes belong to."),
        Route::read(
            "/api/v1/jobs",
            "jobs",
            jobs,
            "Running compactions and index builds, whatever started them.",
        )
        .detail("Each job has its phase, progress, start, the time of the last reported progress, and the bytes that it may still need; `nodes` says when each node was last asked."),
        Route::read(
            "/api/v1/config",
            "config",
            config,
            "The configuration in force, without passwords.",
        ),
    ]
}

/// Reports the state of recliner, and what it cannot read.
async fn status(state: AppState, _: NoQuery) -> Result<Answer<Status>, ApiError> {
    let now = state.clock.now();
    let since = Moment::from_unix(now.unix().saturating_sub((report::NIGHT as u64 - 1) * 3_600));
    let hours = time::timeout(NIGHT_TIMEOUT, journal::hours_since(&state, since)).await;
    let hours = hours.ok().and_then(Result::ok).filter(|found| found.complete);
    let plan = Arc::clone(&state.plan.borrow());
    let advice = Arc::clone(&state.advice.borrow());
    let night = hours.as_ref().map(|found| &*found.hours);
    let status = status_of(&state, &plan);
    let overview = Overview {
        problems: status.problems(),
        warnings: status.warnings(),
        ..report::overview(&plan, &advice, night, now)
    };
    Ok(Answer::of(&Status { overview: Some(overview), ..status }))
}

/// The state of recliner, given this plan.
pub(super) fn status_of(state: &AppState, plan: &Plan) -> Status {
    let status = Arc::clone(&state.status.borrow());
    let config = Arc::clone(&state.config.borrow());
    let journal_failure = probes::journal_failure(plan, state.journal.as_ref());
    let is_ours = !matches!(journal_failure, Some(JournalFailure::OtherCluster(_)));
    Status {
        version: state.about.version.to_owned(),
        revision: state.about.revision.to_owned(),
        date: state.about.date.to_owned(),
        book: "/docs/".to_owned(),
        simulated: state.about.simulated,
        simulation: state.about.simulation(config.mode).map(ToOwned::to_owned),
        simulated_weeks: state.about.simulated_weeks.clone(),
        mode: config.mode.label().into(),
        ready: status.is_ready(plan.snapshot.version()) && is_ours,
        generated_at: plan.snapshot.generated_at().rfc3339(),
        couchdb: state.couchdb.borrow().iter().map(EntryLine::from).collect(),
        nodes: report::nodes(plan).collect(),
        suspensions: SuspensionLine::all(plan),
        sweep: Sweep::from(&*status),
        errors: ReadErrors::all(&status),
        last_error: status.last_error.clone(),
        last_error_at: status.last_error_at.map(Moment::rfc3339),
        problem: status.problem.clone(),
        unread_shards: status.unread_shards.clone(),
        absent_shards: status.absent_shards.clone(),
        journal_problem: journal_failure.map(|why| why.to_string()),
        missing_rights: status.missing_rights.iter().cloned().collect(),
        feeds: Feeds::from(&**state.changes.borrow()),
        smoosh: TakeoverLine::all(&state.takeovers.borrow()),
        peers: PeerLine::all(&status),
        shared_limits: shared_limits(state),
        config: ConfigLine {
            loaded_at: config.loaded_at.rfc3339(),
            last_reload_successful: config.reload_successful,
            needs_restart: config.needs_restart.clone(),
            web_problem: state.web.problem().as_deref().map(ToOwned::to_owned),
        },
        overview: None,
    }
}

/// This cluster's share of shared limits, and what the keeper counts for each member.
pub(super) fn shared_limits(state: &AppState) -> Option<SharedLimits> {
    SharedLimits::of(&state.sharing, Now::read(state.clock))
}

/// Reports the bytes of the cluster and the free space of its volumes.
async fn space(state: AppState, _: NoQuery) -> Result<Answer<Space>, ApiError> {
    let advice = Arc::clone(&state.advice.borrow());
    in_turn(&state, move |plan| Ok(Answer::of(&Space::of(&plan, &advice)))).await
}

/// Lists running compactions and index builds, and when each node last reported its tasks.
async fn jobs(state: AppState, _: NoQuery) -> Result<Answer<Jobs>, ApiError> {
    let plan = Arc::clone(&state.plan.borrow());
    Ok(Answer::of(&Jobs::of(&plan, &state.builds.borrow())))
}

/// Shows the active configuration, with secrets replaced.
async fn config(state: AppState, _: NoQuery) -> Result<Answer<Configuration>, ApiError> {
    Ok(success(&state.config.borrow().shown).into())
}
