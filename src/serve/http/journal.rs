//! Routes that read the journal: ended jobs and events.
//!
//! A long list is read page by page while it is sent, so a slow reader holds only one page.

use super::{
    answer::{self, Answer, text},
    error::ApiError,
    explain::{meant, no_match},
    query::{LARGEST, Named, NamedList, PageRange, ValidQuery, time as read_time},
    route::{self, Route},
    state::AppState,
    turn::{self, Turn},
};
use crate::{
    model::{
        records::{JobResult, Outcome, StoreError},
        target::TargetSelector,
    },
    serve::report::{self, EventLine, Events, Found, Hours, Listing, OutcomeLine, Outcomes},
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
use futures::stream;
use schemars::JsonSchema;
use serde::Deserialize;
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
        .errors(&[route::BAD, route::NO_JOURNAL, route::BUSY])
        .detail("Each job has its bytes before, after, predicted and freed, who started and who ordered it, its `result` and why. For jobs that others started, `started_at` is the time their node reports; their size before is null if nothing was read near the start. `next_before` is the `before` of the next page."),
        Route::read(
            "/api/v1/history/hours",
            "historyByHour",
            hours,
            "What compactions freed and wrote, hour by hour, the oldest first.",
        )
        .errors(&[route::BAD, (404, "This recliner keeps no journal."), route::BUSY])
        .detail("Compactions count whatever started them; hours are in UTC. Only the newest 10,000 jobs are counted; `complete` says whether these are all."),
        Route::api::<EventsParameters, Events>(
            "/api/v1/events",
            "events",
            get(events),
            "Events from the journal, the oldest first.",
        )
        .errors(&[route::BAD, route::NO_JOURNAL, route::BUSY])
        .detail("Continue after `last_seq` or, if there is `more`, after the last event; a `last_seq` below your `since` comes from another journal."),
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
    if let Some(named) = named(&state, text, raw).await? {
        query.target = Some(named.selector.clone());
        // A deleted target counts as known if the journal has any entry about it.
        let any = HistoryQuery { target: query.target.clone(), limit: 1, ..Default::default() };
        if named.unknown.is_some() {
            let ever = in_turn(&state, journal.history(any)).await?;
            named.check(!ever.entries.is_empty())?;
        }
    }
    let mut reading =
        ListReader::new(&state, query.limit, |limit| OutcomeList { limit, query, next: None })?;
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
    if let Some(named) = named(&state, text, raw).await? {
        query.target = Some(named.selector.clone());
        let any = EventsQuery { target: query.target.clone(), limit: 1, ..Default::default() };
        if named.unknown.is_some() {
            let ever = in_turn(&state, journal.events(any)).await?;
            named.check(!ever.entries.is_empty())?;
        }
    }
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
        let asked = query.clone();
        let list = |limit| EventList { limit, query: asked, newest, last_seq, more: false };
        let mut reading = ListReader::new(&state, query.limit, list)?;
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

/// A list in the journal that is read page by page.
trait List: Send + 'static {
    /// An entry of the journal.
    type Entry: Send;
    /// The response that contains the list.
    type Answer: Listing;

    /// Reads the next page of up to `limit` entries.
    fn page(
        &self,
        journal: &Journal,
        limit: usize,
    ) -> impl Future<Output = Result<Page<Self::Entry>, StoreError>> + Send;

    /// The line that shows an entry.
    fn line(seq: u64, entry: &Self::Entry) -> <Self::Answer as Listing>::Item;

    /// Moves the position after a page, and records whether there are more entries.
    fn take(&mut self, last: Option<u64>, more: bool);

    /// The response with an empty list, from what is known now. Fields after the list are known
    /// only when the list ends.
    fn answer(&self) -> Self::Answer;
}

struct OutcomeList {
    limit: usize,
    query: HistoryQuery,
    /// Where the next page continues: only entries with a lower number follow.
    next: Option<u64>,
}

impl List for OutcomeList {
    type Entry = Outcome;
    type Answer = Outcomes;

    async fn page(&self, journal: &Journal, limit: usize) -> Result<Page<Outcome>, StoreError> {
        journal.history(HistoryQuery { limit, ..self.query.clone() }).await
    }

    fn line(seq: u64, outcome: &Outcome) -> OutcomeLine {
        OutcomeLine::of(seq, outcome)
    }

    fn take(&mut self, last: Option<u64>, more: bool) {
        self.query.before = last.or(self.query.before);
        self.next = last.filter(|_| more);
    }

    fn answer(&self) -> Outcomes {
        Outcomes { limit: self.limit, outcomes: Vec::new(), next_before: self.next }
    }
}

struct EventList {
    limit: usize,
    query: EventsQuery,
    /// Whether the newest events are requested; events that arrive meanwhile are then left out.
    newest: bool,
    /// The journal's last number when the list began, or the number of a later entry in the list.
    last_seq: u64,
    more: bool,
}

impl List for EventList {
    type Entry = JournalEvent;
    type Answer = Events;

    async fn page(
        &self,
        journal: &Journal,
        limit: usize,
    ) -> Result<Page<JournalEvent>, StoreError> {
        journal.events(EventsQuery { limit, ..self.query.clone() }).await
    }

    fn line(seq: u64, event: &JournalEvent) -> EventLine {
        EventLine::of(seq, event)
    }

    fn take(&mut self, last: Option<u64>, more: bool) {
        self.query.after_seq = last.or(self.query.after_seq);
        self.last_seq = self.last_seq.max(last.unwrap_or(0));
        self.more = more && !self.newest;
    }

    fn answer(&self) -> Events {
        let events = Vec::new();
        Events { limit: self.limit, events, more: self.more, last_seq: self.last_seq }
    }
}

/// A list that is being sent.
struct ListReader<L> {
    state: AppState,
    journal: Journal,
    list: L,
    /// The remaining limit of entries.
    left: usize,
    /// Whether any entry was rendered.
    any: bool,
}

impl<L: List> ListReader<L> {
    fn new(
        state: &AppState,
        limit: usize,
        list: impl FnOnce(usize) -> L,
    ) -> Result<Self, ApiError> {
        let (journal, state) = (journal_of(state)?.clone(), state.clone());
        Ok(Self { state, journal, list: list(limit), left: limit, any: false })
    }

    /// The response: the first page has been read, and further pages are read on demand.
    fn begun(mut self, page: &Page<L::Entry>) -> Response {
        let (before, _) = answer::around_list(&self.list.answer());
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

    async fn page(&mut self) -> Result<Page<L::Entry>, ApiError> {
        in_turn(&self.state, self.list.page(&self.journal, self.left.min(PAGE))).await
    }

    /// Appends a page to `out`, and after the last page the end of the response; returns whether it
    /// was the last.
    fn rendered(&mut self, page: &Page<L::Entry>, out: &mut Vec<u8>) -> bool {
        for (seq, entry) in &page.entries {
            if std::mem::replace(&mut self.any, true) {
                out.push(b',');
            }
            out.extend(text(&L::line(*seq, entry)));
        }
        self.left = self.left.saturating_sub(page.entries.len());
        self.list.take(page.entries.last().map(|(seq, _)| *seq), page.has_more);
        let ends = self.left == 0 || !page.has_more;
        if ends {
            let (_, after) = answer::around_list(&self.list.answer());
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

/// The targets that a text matches.
struct Meant {
    selector: TargetSelector,
    /// The error if the journal has no entry about them either; `None` if a target matches now.
    unknown: Option<ApiError>,
}

impl Meant {
    /// Refuses a name without targets and without journal entries.
    fn check(self, remembered: bool) -> Result<(), ApiError> {
        match self.unknown.filter(|_| !remembered) {
            Some(refused) => Err(refused),
            None => Ok(()),
        }
    }
}

/// Finds the targets that a text matches, on a blocking thread.
async fn named(
    state: &AppState,
    text: Option<String>,
    raw: Option<String>,
) -> Result<Option<Meant>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let status = Arc::clone(&state.status.borrow());
    turn::in_turn(state, move |plan| {
        let (text, found) = meant(&plan, &text, raw.as_deref());
        let unknown = (found == Found::None).then(|| no_match(&plan, &status, text));
        Ok(Some(Meant { selector: report::selector(&plan, text), unknown }))
    })
    .await
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
