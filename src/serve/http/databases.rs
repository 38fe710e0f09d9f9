//! `/api/v1/databases`: databases with their sums, sorted and paged.

use super::{
    answer::{Answer, StreamedData},
    error::ApiError,
    journal::{self, journal_of},
    query::{LARGEST, Named, PageRange, SortOrder},
    route::Route,
    state::AppState,
    turn::worked_out,
};
use crate::{
    model::deletions::DeletionRecord,
    serve::report::{DatabaseSort, Databases, NewestJobs, WantedDatabases},
    store::{deletion_recorder, journal::HistoryQuery},
};
use schemars::JsonSchema;
use serde::Deserialize;

/// Jobs of the journal in which the last compactions are looked for, the newest first.
const SEARCHED_JOBS: usize = 5_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::read(
            "/api/v1/databases",
            "databases",
            databases,
            "Databases with the bytes of their documents, indexes and waste, their growth, and why waste is not compacted.",
        )
        .detail("All copies of shards and all files of indexes count."),
    ]
}

/// Order and page of a list of databases.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DatabaseQuery {
    /// Only databases with this text in their name, ignoring case.
    search: Option<String>,
    /// Only the database of exactly this name, with its `pace` and `deletions`.
    name: Option<String>,
    /// The field to sort by; unknown values come last. Default `reclaimable_bytes`.
    sort: Option<Named<DatabaseSort>>,
    /// `asc`, smallest first, or `desc`, largest first. By default numbers are descending and names ascending.
    order: Option<Named<SortOrder>>,
    /// The maximum number of databases; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
    /// The number of databases to skip.
    #[schemars(range(max = usize::MAX))]
    offset: Option<usize>,
}

impl DatabaseQuery {
    /// What it asks for.
    ///
    /// # Errors
    /// A page that is too long.
    pub(super) fn wanted(&self) -> Result<WantedDatabases<'_>, String> {
        let PageRange { offset, limit } = PageRange::new(self.offset, self.limit)?;
        Ok(WantedDatabases {
            search: self.search.as_deref(),
            name: self.name.as_deref(),
            sort: self.sort.map(|Named(sort)| sort).unwrap_or_default(),
            is_ascending: self.order.map(|Named(order)| order == SortOrder::Asc),
            offset,
            limit,
        })
    }
}

/// Databases, sorted and paged.
async fn databases(state: AppState, query: DatabaseQuery) -> Result<Answer<Databases>, ApiError> {
    let (jobs, now) = (newest_jobs(&state).await, state.clock.now());
    let record = match query.name.as_deref() {
        Some(name) => deletion_record(&state, name).await,
        None => None,
    };
    worked_out(&state, move |plan| {
        let wanted = query.wanted().map_err(ApiError::bad)?;
        let mut found = Databases::of(&plan, &wanted, &jobs, now);
        let lines = std::mem::take(&mut found.databases).into_iter();
        let lines =
            lines.map(move |line| line.with_deletions(record.as_ref(), &plan.snapshot, now));
        Ok(StreamedData::with_list("databases", &found, lines))
    })
    .await
}

/// The record of a database's deletions; none where it cannot be read, which the status says.
pub(super) async fn deletion_record(state: &AppState, db: &str) -> Option<DeletionRecord> {
    let kept = journal_of(state).ok()?;
    journal::in_turn(state, deletion_recorder::stored_record(kept, db)).await.ok().flatten()
}

/// The newest jobs of the journal; none where it cannot be read, which the status says.
pub(super) async fn newest_jobs(state: &AppState) -> NewestJobs {
    let Ok(kept) = journal_of(state) else { return NewestJobs::default() };
    let query = HistoryQuery { limit: SEARCHED_JOBS, ..HistoryQuery::default() };
    let Ok(found) = journal::in_turn(state, kept.history(query)).await else {
        return NewestJobs::default();
    };
    let jobs = found.entries.into_iter().map(|(_, outcome)| outcome).collect();
    NewestJobs { jobs, has_older: found.has_more }
}
