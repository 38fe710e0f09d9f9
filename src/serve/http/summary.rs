//! `GET /api/v1/report`: what happened since a time and what is open, made of other answers.

use super::{
    advice::advice_of,
    answer::Answer,
    changes::changes_found,
    databases::newest_jobs,
    error::ApiError,
    journal::{self, hours_since, journal_of},
    query::time,
    route::{self, Route},
    state::AppState,
    turn::in_turn,
};
use crate::{
    ledger::ChangesQuery,
    serve::report::{
        Databases, EventLine, Forecasts, HourLine, Report, Space, SuspensionLine, WantedDatabases,
        WasteCourse,
    },
    store::journal::{EventType, EventsQuery},
};
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;

pub(in crate::serve::http) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/report",
            "report",
            report,
            "What happened since a time and what needs attention, as a report to send.",
        )
        .errors(&[route::BAD, route::NO_JOURNAL, route::BUSY])
        .detail("Every number comes from the route that its field names. `recliner report` turns it into a page or Markdown."),
    ]
}

/// The default begin, the number of databases, and of events.
const SINCE: &str = "7d";
const DATABASES: usize = 10;
const EVENTS: usize = 1_000;

/// The time that the report is about.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ReportParameters {
    /// The begin: a timestamp (`2026-11-21T00:54:00Z`), day or age (`2h`, `7d`); default `7d`.
    /// What is kept by the hour is rounded back to a full hour.
    since: Option<String>,
}

async fn report(state: AppState, query: ReportParameters) -> Result<Answer<Report>, ApiError> {
    let now = state.clock.now();
    let since = time("since", query.since.as_deref().unwrap_or(SINCE), now);
    let since = since.map_err(ApiError::bad)?;
    let hours = hours_since(&state, since).await?;
    let changes = changes_found(&state, &ChangesQuery { since, ..ChangesQuery::default() }).await?;
    let types = vec![EventType::AdviceGone, EventType::Suspended, EventType::Resumed];
    let events = EventsQuery { types, from: Some(since), limit: EVENTS, ..EventsQuery::default() };
    let events = journal::in_turn(&state, journal_of(&state)?.events(events)).await?;
    let (jobs, advice) = (newest_jobs(&state).await, advice_of(&state));
    let view = Arc::clone(&state.advice.borrow());
    let price = state.config.borrow().price_per_gib_month;
    let report = in_turn(&state, move |plan| {
        let wanted = WantedDatabases { limit: DATABASES, ..WantedDatabases::default() };
        let events = EventLine::all(&events.entries, &plan.snapshot);
        let is_suspension = |event: &&EventLine| event.scope.is_some();
        let report = Report {
            since: since.rfc3339(),
            until: now.rfc3339(),
            nodes: plan.snapshot.members().map(|(_, node)| node.name.to_string()).collect(),
            space: Space::of(&plan, &view),
            waste: WasteCourse::default(),
            changes,
            forecasts: Forecasts::of(&view, &plan),
            compactions: HourLine::sum(&hours.hours),
            complete: hours.complete,
            databases: Databases::of(&plan, &wanted, &jobs, now),
            advice,
            advice_done: Vec::new(),
            suspensions: SuspensionLine::all(&plan),
            suspended: events.iter().filter(is_suspension).cloned().collect(),
            cost: None,
        };
        Ok(report.completed(&events, price))
    });
    Ok(Answer::of(&report.await?))
}
