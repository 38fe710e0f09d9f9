//! What the journal remembers: how jobs ended, and what happened.
//!
//! A long list is read page by page while it is sent: what a slow reader holds is one page.

use super::{Asked, Refused, State, asked, meant, no_match};
use crate::{
    model::{
        memory::{Outcome, Trouble},
        target::Selector,
    },
    serve::{
        http::{
            answer::{self, text},
            guard::Turns,
            query::{EventsParameters, HistoryParameters},
        },
        report::{self, Found},
    },
    store::journal::{Event, EventsQuery, HistoryQuery, Journal, Kept, Page},
    tasks::joined,
};
use axum::{
    Extension,
    body::Body,
    extract::{self, RawQuery},
    response::{IntoResponse as _, Response},
};
use futures::stream;
use serde_json::{Value, json};
use std::{io, sync::Arc};
use tokio::{
    sync::broadcast,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// Entries that are read and rendered at a time.
const PAGE: usize = 500;

impl From<Trouble> for Refused {
    fn from(why: Trouble) -> Self {
        Self::unavailable(why)
    }
}

/// How jobs ended, the newest first.
pub(in crate::serve::http) async fn history(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    RawQuery(raw): RawQuery,
    query: Asked<HistoryParameters>,
) -> Response {
    answered(async {
        let parameters = asked(query)?;
        let text = parameters.target.clone();
        let mut query = parameters.read(state.clock.now()).map_err(Refused::bad)?;
        let (head, left) = (json!({ "limit": query.limit }), query.limit);
        let journal = journal_of(&state)?.clone();
        if let Some(named) = named(&state, &turns, text, raw).await? {
            query.target = Some(named.selector.clone());
            // A target that is gone is known where anything is remembered of it.
            let any = HistoryQuery { target: query.target.clone(), limit: 1, ..Default::default() };
            if named.unknown.is_some() {
                let ever = in_turn(&turns, journal.history(any)).await?;
                named.check(!ever.entries.is_empty())?;
            }
        }
        let list = Outcomes { query, next: None };
        Reading { journal, turns, list, left, any: false }.begun(&head, "outcomes").await
    })
    .await
}

/// What happened, the oldest first. Where nothing did yet, the answer may wait for it.
pub(in crate::serve::http) async fn events(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    RawQuery(raw): RawQuery,
    query: Asked<EventsParameters>,
) -> Response {
    answered(async {
        let parameters = asked(query)?;
        let text = parameters.target.clone();
        let (mut query, wait) = parameters.read(state.clock.now()).map_err(Refused::bad)?;
        let (head, left) = (json!({ "limit": query.limit }), query.limit);
        let journal = journal_of(&state)?.clone();
        if let Some(named) = named(&state, &turns, text, raw).await? {
            query.target = Some(named.selector.clone());
            let any = EventsQuery { target: query.target.clone(), limit: 1, ..Default::default() };
            if named.unknown.is_some() {
                let ever = in_turn(&turns, journal.events(any)).await?;
                named.check(!ever.entries.is_empty())?;
            }
        }
        let deadline = Instant::now() + wait;
        // Before the first look, so that nothing falls between the two.
        let mut kept = (!wait.is_zero()).then(|| journal.kept());
        loop {
            // What is on the disk before the look is found by it.
            let last_seq = journal.health().borrow().last_seq;
            // A number that is still to come is of another journal: its reader should know.
            let ahead = query.since.is_some_and(|since| since > last_seq);
            let newest = query.since.is_none() && query.from.is_none();
            if newest {
                let look = journal.newest_events_from(query.clone());
                let from = in_turn(&turns, look).await?;
                query.since = Some(from.map_or(last_seq, |from| from.saturating_sub(1)));
            }
            let list = Events { query: query.clone(), newest, last_seq, more: false };
            let (journal, turns) = (journal.clone(), turns.clone());
            let mut reading = Reading { journal, turns, list, left, any: false };
            let page = reading.page().await?;
            if let Some(kept) = kept.as_mut().filter(|_| page.entries.is_empty())
                && !ahead
                && comes(kept, &query, deadline, &state.stop).await
            {
                query.since = query.since.max(Some(last_seq));
                continue;
            }
            return reading.begun_with(page, &head, "events");
        }
    })
    .await
}

/// A list in the journal that is read page by page.
trait List: Send + 'static {
    type Entry: Send;

    /// The next page of so many.
    fn page(
        &self,
        journal: &Journal,
        limit: usize,
    ) -> impl Future<Output = Result<Page<Self::Entry>, Trouble>> + Send;

    /// What is shown of an entry.
    fn shown(seq: u64, entry: &Self::Entry) -> Value;

    /// Goes on behind the last entry of a page, and notes whether there are more behind it.
    fn take(&mut self, last: Option<u64>, more: bool);

    /// The fields that stand behind the list.
    fn fields(&self) -> Value;
}

struct Outcomes {
    query: HistoryQuery,
    /// The number below which there are more.
    next: Option<u64>,
}

impl List for Outcomes {
    type Entry = Outcome;

    async fn page(&self, journal: &Journal, limit: usize) -> Result<Page<Outcome>, Trouble> {
        journal.history(HistoryQuery { limit, ..self.query.clone() }).await
    }

    fn shown(seq: u64, outcome: &Outcome) -> Value {
        told(seq, outcome)
    }

    fn take(&mut self, last: Option<u64>, more: bool) {
        self.query.before = last.or(self.query.before);
        self.next = last.filter(|_| more);
    }

    fn fields(&self) -> Value {
        json!({ "next_before": self.next })
    }
}

struct Events {
    query: EventsQuery,
    /// Whether the newest are meant: what comes while they are told is not one of them.
    newest: bool,
    /// The journal's last number when the list was begun, or that of a later entry in it.
    last_seq: u64,
    more: bool,
}

impl List for Events {
    type Entry = Event;

    async fn page(&self, journal: &Journal, limit: usize) -> Result<Page<Event>, Trouble> {
        journal.events(EventsQuery { limit, ..self.query.clone() }).await
    }

    fn shown(seq: u64, event: &Event) -> Value {
        happened(seq, event)
    }

    fn take(&mut self, last: Option<u64>, more: bool) {
        self.query.since = last.or(self.query.since);
        self.last_seq = self.last_seq.max(last.unwrap_or(0));
        self.more = more && !self.newest;
    }

    fn fields(&self) -> Value {
        json!({ "more": self.more, "last_seq": self.last_seq })
    }
}

/// A list that is being sent.
struct Reading<L> {
    journal: Journal,
    turns: Turns,
    list: L,
    /// How many entries it may still have.
    left: usize,
    /// Whether it had any.
    any: bool,
}

impl<L: List> Reading<L> {
    /// The answer: its first page is read, the others when they are asked for.
    async fn begun(mut self, head: &Value, name: &str) -> Result<Response, Refused> {
        let page = self.page().await?;
        self.begun_with(page, head, name)
    }

    fn begun_with(
        mut self,
        page: Page<L::Entry>,
        head: &Value,
        name: &str,
    ) -> Result<Response, Refused> {
        let mut first = answer::enveloped(&answer::opened(head, name));
        if self.rendered(&page, &mut first) {
            return Ok(answer::json(Body::from(first)));
        }
        let others = stream::try_unfold(Some(self), async |reading| {
            let Some(mut reading) = reading else { return Ok(None) };
            let page = reading.page().await;
            let page = page.map_err(|refused| io::Error::other(refused.why))?;
            let mut piece = Vec::new();
            let ends = reading.rendered(&page, &mut piece);
            Ok(Some((piece, (!ends).then_some(reading))))
        });
        Ok(answer::json(answer::in_pieces(first, others)))
    }

    async fn page(&mut self) -> Result<Page<L::Entry>, Refused> {
        in_turn(&self.turns, self.list.page(&self.journal, self.left.min(PAGE))).await
    }

    /// Adds a page to a text, and its end if it was the last one; answers whether it was.
    fn rendered(&mut self, page: &Page<L::Entry>, out: &mut Vec<u8>) -> bool {
        for (seq, entry) in &page.entries {
            if std::mem::replace(&mut self.any, true) {
                out.push(b',');
            }
            out.extend(text(&L::shown(*seq, entry)));
        }
        self.left = self.left.saturating_sub(page.entries.len());
        self.list.take(page.entries.last().map(|(seq, _)| *seq), page.more);
        let ends = self.left == 0 || !page.more;
        if ends {
            out.extend(answer::closed(&self.list.fields()));
        }
        ends
    }
}

/// Waits for an event that is asked for; answers whether one came in time.
async fn comes(
    kept: &mut broadcast::Receiver<Kept>,
    query: &EventsQuery,
    deadline: Instant,
    stop: &CancellationToken,
) -> bool {
    let wanted = |event: &Event| query.wants(&event.what);
    let one = async {
        loop {
            match kept.recv().await {
                Ok(batch) if batch.iter().any(|(_, event)| wanted(event)) => return true,
                Ok(_) => {}
                // What was missed is in the journal.
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

/// Targets that a text names.
struct Named {
    selector: Selector,
    /// The answer where nothing is remembered of them either; none where some exist.
    unknown: Option<Refused>,
}

impl Named {
    /// Refuses a name that nothing has and of which nothing is `remembered`.
    fn check(self, remembered: bool) -> Result<(), Refused> {
        match self.unknown.filter(|_| !remembered) {
            Some(refused) => Err(refused),
            None => Ok(()),
        }
    }
}

/// Looks for what a text names among the targets, away from the runtime's threads.
async fn named(
    state: &State,
    turns: &Turns,
    text: Option<String>,
    raw: Option<String>,
) -> Result<Option<Named>, Refused> {
    let Some(text) = text else { return Ok(None) };
    let turn = turns.clone().wait().await.ok_or_else(Refused::stopping)?;
    let (plan, status) = (Arc::clone(&state.plan.borrow()), Arc::clone(&state.status.borrow()));
    let work = move || {
        let _turn = turn;
        let (text, found) = meant(&plan, &text, raw.as_deref());
        let unknown = (found == Found::None).then(|| no_match(&plan, &status, text));
        Named { selector: report::selector(&plan, text), unknown }
    };
    joined(tokio::task::spawn_blocking(work).await).map(Some).ok_or_else(Refused::stopping)
}

async fn answered(answer: impl Future<Output = Result<Response, Refused>>) -> Response {
    answer.await.unwrap_or_else(|refused| refused.into_response())
}

fn journal_of(state: &State) -> Result<&Journal, Refused> {
    let why = "this recliner keeps no journal: there is no history";
    state.journal.as_ref().ok_or_else(|| Refused::absent(why))
}

/// Asks the journal in its turn: a filter may have to look through all of it.
async fn in_turn<T>(
    turns: &Turns,
    ask: impl Future<Output = Result<T, Trouble>>,
) -> Result<T, Refused> {
    let _turn = turns.clone().wait().await.ok_or_else(Refused::stopping)?;
    Ok(ask.await?)
}

fn told(seq: u64, outcome: &Outcome) -> Value {
    json!({
        "seq": seq,
        "target": outcome.target,
        "kind": outcome.kind.label(),
        "node": outcome.node,
        "ddoc": outcome.design,
        "channel": outcome.channel,
        "owner": outcome.owner,
        "ordered_by": outcome.ordered_by,
        "started_at": outcome.started_at.rfc3339(),
        "ended_at": outcome.ended_at.rfc3339(),
        "duration_seconds": outcome.started_at.age(outcome.ended_at).as_secs(),
        "before_bytes": outcome.before_bytes,
        "after_bytes": outcome.after_bytes,
        "predicted_bytes": outcome.predicted_bytes,
        "freed_bytes": outcome.freed_bytes(),
        "estimate_ratio": outcome.estimate_ratio(),
        "result": outcome.ending,
        "why": outcome.why,
    })
}

fn happened(seq: u64, event: &Event) -> Value {
    let Event { at, what } = event;
    let mut told = serde_json::to_value(what).unwrap_or_default();
    if let Some(fields) = told.as_object_mut() {
        fields.insert("seq".to_owned(), seq.into());
        fields.insert("at".to_owned(), Moment::rfc3339(*at).into());
        for name in ["first", "last"] {
            if let Some(moment) = fields.get_mut(name)
                && let Some(seconds) = moment.as_u64()
            {
                *moment = Moment::from_unix(seconds).rfc3339().into();
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::target::TargetId,
        store::journal::{Summary, What},
    };

    #[test]
    fn the_moments_of_an_entry_are_all_in_one_form() {
        let at = Moment::from_unix(1_795_222_440);
        let again =
            Summary { count: Some(2), first: Some(at), last: Some(at), ..Summary::default() };
        let target = "cleanup:orders".parse().unwrap();
        for (summary, expected) in [
            (Summary::default(), json!({})),
            (
                again,
                json!({
                    "count": 2, "first": "2026-11-21T00:54:00Z", "last": "2026-11-21T00:54:00Z",
                }),
            ),
        ] {
            let what =
                What::Queued { target: TargetId::clone(&target), channel: "c".into(), summary };
            let mut shown = happened(7, &Event { at, what });
            let shown = shown.as_object_mut().unwrap();
            for (name, value) in [
                ("seq", json!(7)),
                ("at", json!("2026-11-21T00:54:00Z")),
                ("type", json!("queued")),
                ("target", json!("cleanup:orders")),
                ("channel", json!("c")),
            ] {
                assert_eq!(shown.remove(name), Some(value));
            }
            assert_eq!(json!(shown), expected);
        }
    }
}
