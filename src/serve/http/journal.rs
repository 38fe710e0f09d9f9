//! Routes that read the journal: ended jobs and events.
//!
//! A long list is read page by page while it is sent, so a slow reader holds only one page.

use super::{
    answer::{self, Answer},
    error::ApiError,
    explain::{meant, no_match},
    query::{LARGEST, Named, NamedList, PageRange, ValidQuery, time as read_time},
    route::{self, Route},
    state::AppState,
    turn::{self, Turn},
};
use crate::{
    model::{
        records::{JobResult, StoreError},
        target::TargetSelector,
    },
    serve::report::{self, EventLine, Events, Found, Hours, OutcomeLine, Outcomes},
    store::journal::{
        EventType, EventsQuery, HistoryQuery, Journal, JournalEvent, Page, StoredEvents,
    },
    text::duration,
};
use axum::{
    body::Body,
    extract::{self, RawQuery},
    response::Response,
    routing::get,
};
use futures::{future::BoxFuture, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    sync::broadcast,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// The routes that read the journal.
pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::api::<HistoryParameters, Outcomes>(
            "/api/v1/history",
            "history",
            get(history),
            "How jobs ended, the newest first.",
        )
        .errors(&[route::BAD, route::ABSENT_OR_NO_JOURNAL, route::BUSY])
        .detail("Each job has its bytes before, after, predicted and freed, who started and who ordered it, its `result` and the reason. For jobs that others started, `started_at` is the time that their node reports; their size before is null if nothing was read near the start. `next_before` is the `before` of the next page."),
        Route::read(
            "/api/v1/history/hours",
            "historyByHour",
            hours,
            "What compactions freed and wrote, hour by hour, the oldest first.",
        )
        .errors(&[route::BAD, route::NO_JOURNAL, route::BUSY])
        .detail("Compactions count whatever started them; hours are in UTC. Only the newest 10,000 jobs are counted; `complete` says whether these are all."),
        Route::api::<EventsParameters, Events>(
            "/api/v1/events",
            "events",
            get(events),
            "Events from the journal, the oldest first.",
        )
        .errors(&[route::BAD, route::ABSENT_OR_NO_JOURNAL, route::BUSY])
        .detail("Continue after `last_seq` or, if there is `more`, after the last event; a `last_seq` below your `since` means that the journal was replaced."),
    ]
}

/// The default and the maximum time span of the hourly counts.
const HOURS_SINCE: &str = "2d";
const MAX_HOURS_SINCE: Duration = Duration::from_secs(35 * 86_400);

/// The maximum wait for an event: shorter than the timeouts of common proxies.
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of entries read and rendered at a time.
const PAGE: usize = 500;

/// The maximum number of jobs counted by hour.
const MAX_COUNTED: usize = 10_000;

/// A filter for outcomes.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HistoryParameters {
    /// Only jobs on targets with this name: an id, a shard file's name, a database, or
    /// `<db>/_design/<name>`; also deleted ones.
    pub(super) target: Option<String>,
    /// Only jobs on this node.
    node: Option<String>,
    /// Only jobs with this result.
    result: Option<Named<JobResult>>,
    /// Only jobs that ended since this timestamp (`2026-11-21T00:54:00Z`), day or age (`2h`,
    /// `7d`).
    since: Option<String>,
    /// Only jobs that ended before this timestamp, day or age.
    until: Option<String>,
    /// Only jobs with a lower number: the `next_before` of the previous page.
    #[schemars(range(max = u64::MAX))]
    before: Option<u64>,
    /// The maximum number of jobs; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
}

/// The hours to count back to.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct HoursParameters {
    /// The start: a timestamp (`2026-11-21T00:54:00Z`), day or age (`2h`, `7d`), rounded down to the hour;
    /// default `2d`, at most `35d`.
    since: Option<String>,
}

/// A filter for events.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EventsParameters {
    /// Only events about targets with this name: an id, a shard file's name, a database, or
    /// `<db>/_design/<name>`; also deleted ones.
    pub(super) target: Option<String>,
    /// Only events of these types, separated by commas.
    #[schemars(with = "Option<NamedList<EventType>>")]
    types: NamedList<EventType>,
    /// Only events after the event with this number, or since this timestamp (`2026-11-21T00:54:00Z`), day or
    /// age (`2h`, `7d`). Without it, the newest events.
    since: Option<String>,
    /// Only events before the event with this number.
    #[schemars(range(max = u64::MAX))]
    before: Option<u64>,
    /// The maximum number of events; default 100.
    #[schemars(range(max = LARGEST))]
    limit: Option<usize>,
    /// How long to wait for a first event if there is none yet, such as `30s`, at most 60 seconds. Needs a
    /// number as `since`.
    wait: Option<String>,
}

impl HistoryParameters {
    /// The journal's filter at `now`. The caller adds the targets, because resolving the name needs the
    /// plan.
    ///
    /// # Errors
    /// If a parameter has an invalid value.
    pub(super) fn read(self, now: Moment) -> Result<HistoryQuery, String> {
        Ok(HistoryQuery {
            target: None,
            node: self.node,
            since: self.since.as_deref().map(|text| read_time("since", text, now)).transpose()?,
            until: self.until.as_deref().map(|text| read_time("until", text, now)).transpose()?,
            result: self.result.map(|Named(result)| result),
            before: self.before,
            limit: PageRange::new(None, self.limit)?.limit,
        })
    }
}

impl HoursParameters {
    /// Reads the start of the time span, given the current time.
    ///
    /// # Errors
    /// If `since` is not a valid time, or too long ago.
    pub(super) fn read(self, now: Moment) -> Result<Moment, String> {
        let text = self.since.as_deref().unwrap_or(HOURS_SINCE);
        let since = read_time("since", text, now)?;
        if since.age(now) > MAX_HOURS_SINCE {
            let most = duration::format_exact(MAX_HOURS_SINCE);
            return Err(format!("since={text:?} is too long ago: hours are counted for {most}"));
        }
        Ok(since)
    }
}

impl EventsParameters {
    /// The journal's filter at `now`, without the targets, and how long the response may wait for the
    /// first event.
    ///
    /// # Errors
    /// If a parameter has an invalid value.
    pub(super) fn read(self, now: Moment) -> Result<(EventsQuery, Duration), String> {
        let wait = self.wait.as_deref().map_or(Ok(Duration::ZERO), |text| {
            let wait = duration::parse(text).filter(|wait| *wait <= PATIENCE);
            wait.ok_or_else(|| {
                format!("wait={text:?} is not a duration from 0s to 60s, such as 30s")
            })
        })?;
        // A plain number is the number of an event, so that `last_seq` can be passed back.
        let since = self.since.as_deref().and_then(|text| text.parse::<u64>().ok());
        let moment = self.since.as_deref().filter(|_| since.is_none());
        let from = moment.map(|text| read_time("since", text, now)).transpose()?;
        if !wait.is_zero() && since.is_none() {
            return Err(
                "wait needs since= with the number of the event to continue after".to_owned()
            );
        }
        let query = EventsQuery {
            types: self.types.0,
            target: None,
            after_seq: since,
            before_seq: self.before,
            from,
            limit: PageRange::new(None, self.limit)?.limit,
        };
        Ok((query, wait))
    }
}

impl From<StoreError> for ApiError {
    fn from(why: StoreError) -> Self {
        Self::unavailable(why)
    }
}

/// Lists ended jobs, newest first.
async fn history(
    extract::State(state): extract::State<AppState>,
    RawQuery(raw): RawQuery,
    ValidQuery(parameters): ValidQuery<HistoryParameters>,
) -> Result<Answer<Outcomes>, ApiError> {
    let text = parameters.target.clone();
    let mut query = parameters.read(state.clock.now()).map_err(ApiError::bad)?;
    let journal = journal_of(&state)?;
    let ever = async |target| {
        let any = HistoryQuery { target: Some(target), limit: 1, ..HistoryQuery::default() };
        Ok(!in_turn(&state, journal.history(any)).await?.entries.is_empty())
    };
    query.target = known_targets(&state, text, raw, ever).await?;
    let (kept, limit) = (journal.clone(), query.limit);
    let mut reading = ListReader {
        name: "outcomes",
        read: Box::new(move |limit, last| {
            let before = last.or(query.before);
            let (kept, query) = (kept.clone(), HistoryQuery { limit, before, ..query.clone() });
            Box::pin(async move { kept.history(query).await })
        }),
        lines: Box::new(|outcomes: &[_]| {
            let lines = outcomes.iter().map(|(seq, outcome)| OutcomeLine::of(*seq, outcome));
            lines.map(|line| answer::text(&line)).collect()
        }),
        answer: Box::new(move |last, more| {
            let next_before = last.filter(|_| more);
            Outcomes { limit, outcomes: Vec::new(), next_before }
        }),
        left: limit,
        last: None,
        state: state.clone(),
    };
    let page = reading.page().await?;
    Ok(reading.begun(&page).into())
}

/// Counts the bytes that compactions freed and wrote, hour by hour.
async fn hours(state: AppState, parameters: HoursParameters) -> Result<Answer<Hours>, ApiError> {
    let since = parameters.read(state.clock.now()).map_err(ApiError::bad)?;
    Ok(Answer::of(&hours_since(&state, since).await?))
}

/// The bytes freed and written in each hour, beginning with the hour of `since`.
pub(super) async fn hours_since(state: &AppState, since: Moment) -> Result<Hours, ApiError> {
    let begin = Moment::from_unix(since.unix() - since.unix() % 3_600);
    let query = HistoryQuery { since: Some(begin), limit: MAX_COUNTED, ..HistoryQuery::default() };
    let found = in_turn(state, journal_of(state)?.history(query)).await?;
    Ok(Hours::of(&found.entries, !found.has_more, begin, state.clock.now()))
}

/// Lists events, oldest first. If there are no events yet, the response may wait for one.
async fn events(
    extract::State(state): extract::State<AppState>,
    RawQuery(raw): RawQuery,
    ValidQuery(parameters): ValidQuery<EventsParameters>,
) -> Result<Answer<Events>, ApiError> {
    let text = parameters.target.clone();
    let (mut query, wait) = parameters.read(state.clock.now()).map_err(ApiError::bad)?;
    let journal = journal_of(&state)?;
    let ever = async |target| {
        let any = EventsQuery { target: Some(target), limit: 1, ..EventsQuery::default() };
        Ok(!in_turn(&state, journal.events(any)).await?.entries.is_empty())
    };
    query.target = known_targets(&state, text, raw, ever).await?;
    let deadline = Instant::now() + wait;
    // Subscribed before the first read, so that no event is missed in between.
    let mut subscription = (!wait.is_zero()).then(|| journal.subscribe());
    loop {
        // Later events reach the subscription; earlier ones are found by the read below.
        let last_seq = journal.health().borrow().last_seq;
        // A number in the future belongs to another journal; the reader learns it from an
        // immediate response.
        let ahead = query.after_seq.is_some_and(|since| since > last_seq);
        let newest = start_at_newest(&state, &mut query).await?;
        let (kept, asked, limit) = (journal.clone(), query.clone(), query.limit);
        let tables = Arc::clone(&state.plan.borrow().snapshot);
        let mut reading = ListReader {
            name: "events",
            read: Box::new(move |limit, last| {
                let after_seq = last.or(asked.after_seq);
                let (kept, query) =
                    (kept.clone(), EventsQuery { limit, after_seq, ..asked.clone() });
                Box::pin(async move { kept.events(query).await })
            }),
            lines: Box::new(move |events: &[_]| {
                EventLine::all(events, &tables).iter().map(answer::text).collect()
            }),
            // If the newest events are requested, those that arrive meanwhile are left out.
            answer: Box::new(move |last, more| Events {
                limit,
                events: Vec::new(),
                more: more && !newest,
                last_seq: last_seq.max(last.unwrap_or(0)),
            }),
            left: limit,
            last: None,
            state: state.clone(),
        };
        let page = reading.page().await?;
        if let Some(subscription) = subscription.as_mut().filter(|_| page.entries.is_empty())
            && !ahead
            && wait_for_event(subscription, &query, deadline, &state.stop).await
        {
            query.after_seq = query.after_seq.max(Some(last_seq));
            continue;
        }
        return Ok(reading.begun(&page).into());
    }
}

/// If a query has neither a time nor a number, starts it at the newest events. Returns whether it
/// did.
pub(super) async fn start_at_newest(
    state: &AppState,
    query: &mut EventsQuery,
) -> Result<bool, ApiError> {
    let journal = journal_of(state)?;
    let newest = query.after_seq.is_none() && query.from.is_none();
    if newest {
        let last_seq = journal.health().borrow().last_seq;
        let first = in_turn(state, journal.first_of_newest_events(query.clone())).await?;
        query.after_seq = Some(first.map_or(last_seq, |first| first.saturating_sub(1)));
    }
    Ok(newest)
}

/// A list in the journal that is read page by page while it is sent.
struct ListReader<E, A> {
    state: AppState,
    /// The name of the list in the response.
    name: &'static str,
    /// Reads a limited number of the entries that follow one number.
    read: Box<ReadPage<E>>,
    /// The lines that show the entries of a page.
    lines: Box<Lines<E>>,
    /// The response with an empty list, given the number of the last entry and whether there are more.
    answer: Box<dyn Fn(Option<u64>, bool) -> A + Send>,
    /// The remaining limit of entries.
    left: usize,
    /// The number of the last entry that was rendered.
    last: Option<u64>,
}

type Lines<E> = dyn Fn(&[(u64, E)]) -> Vec<Vec<u8>> + Send;

type ReadPage<E> =
    dyn Fn(usize, Option<u64>) -> BoxFuture<'static, Result<Page<E>, StoreError>> + Send;

impl<E: Send + 'static, A: Serialize + 'static> ListReader<E, A> {
    /// The response: the first page has been read, and further pages are read on demand.
    fn begun(mut self, page: &Page<E>) -> Response {
        // Fields after the list are known only when it ends.
        let (before, _) = answer::around_list(self.name, &(self.answer)(None, false));
        let mut first = answer::opened(&before);
        if self.rendered(page, &mut first) {
            return answer::json(Body::from(first));
        }
        let others = stream::try_unfold(Some(self), async |reading| {
            let Some(mut reading) = reading else { return Ok(None) };
            let page = reading.page().await;
            let page = page.map_err(|refused| io::Error::other(refused.why))?;
            let mut piece = Vec::new();
            let ends = reading.rendered(&page, &mut piece);
            Ok(Some((piece, (!ends).then_some(reading))))
        });
        answer::json(answer::in_pieces(first, others))
    }

    async fn page(&mut self) -> Result<Page<E>, ApiError> {
        let page = (self.read)(self.left.min(PAGE), self.last);
        in_turn(&self.state, page).await
    }

    /// Appends a page to `out`, and after the last page the end of the response; returns whether it
    /// was the last.
    fn rendered(&mut self, page: &Page<E>, out: &mut Vec<u8>) -> bool {
        for ((seq, _), line) in page.entries.iter().zip((self.lines)(&page.entries)) {
            if self.last.replace(*seq).is_some() {
                out.push(b',');
            }
            out.extend(line);
        }
        self.left = self.left.saturating_sub(page.entries.len());
        let ends = self.left == 0 || !page.has_more;
        if ends {
            let answer = (self.answer)(self.last, page.has_more);
            let (_, after) = answer::around_list(self.name, &answer);
            out.extend(answer::closed(&after));
        }
        ends
    }
}

/// Waits for a requested event; returns whether one arrived before the deadline.
async fn wait_for_event(
    subscription: &mut broadcast::Receiver<StoredEvents>,
    query: &EventsQuery,
    deadline: Instant,
    stop: &CancellationToken,
) -> bool {
    let wanted = |event: &JournalEvent| query.matches(&event.details);
    let one = async {
        loop {
            match subscription.recv().await {
                Ok(batch) if batch.iter().any(|(_, event)| wanted(event)) => return true,
                Ok(_) => {}
                // Missed events can be read from the journal.
                Err(broadcast::error::RecvError::Lagged(_)) => return true,
                Err(broadcast::error::RecvError::Closed) => return false,
            }
        }
    };
    tokio::select! {
        () = stop.cancelled() => false,
        came = time::timeout_at(deadline, one) => came.unwrap_or(false),
    }
}

/// The targets that a text matches. Deleted ones count as known if the journal has `ever` had an entry about
/// them.
async fn known_targets(
    state: &AppState,
    text: Option<String>,
    raw: Option<String>,
    ever: impl AsyncFnOnce(TargetSelector) -> Result<bool, ApiError>,
) -> Result<Option<TargetSelector>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let status = Arc::clone(&state.status.borrow());
    let named = turn::in_turn(state, move |plan| {
        let (text, found) = meant(&plan, &text, raw.as_deref());
        let unknown = (found == Found::None).then(|| no_match(&plan, &status, text));
        Ok((report::selector(&plan, text), unknown))
    });
    match named.await? {
        (selector, Some(refused)) if !ever(selector.clone()).await? => Err(refused),
        (selector, _) => Ok(Some(selector)),
    }
}

pub(super) fn journal_of(state: &AppState) -> Result<&Journal, ApiError> {
    let why = "this recliner keeps no journal, so it has no history";
    state.journal.as_ref().ok_or_else(|| ApiError::absent(why))
}

/// Runs a query of the journal within the concurrency limit, because a filter may read all of it.
pub(super) async fn in_turn<T>(
    state: &AppState,
    ask: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, ApiError> {
    let _turn = Turn::of(&state.limits.answers).await?;
    Ok(ask.await?)
}
