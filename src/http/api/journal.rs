//! What the journal remembers: how jobs ended, and what happened.

use super::{Asked, Refused, State, asked, meant, no_match, success};
use crate::{
    clock::Moment,
    http::{
        guard::Turns,
        query::{EventsParameters, HistoryParameters},
    },
    journal::{Event, EventsQuery, HistoryQuery, Journal, Kept},
    memory::{Outcome, Trouble},
    report::{self, Found},
    spawned::joined,
    target::Selector,
};
use axum::{
    Extension,
    extract::{self, RawQuery},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::{
    sync::broadcast,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

impl From<Trouble> for Refused {
    fn from(why: Trouble) -> Self {
        Self::unavailable(why)
    }
}

/// How jobs ended, the newest first.
pub(in crate::http) async fn history(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    RawQuery(raw): RawQuery,
    query: Asked<HistoryParameters>,
) -> Response {
    answered(async {
        let parameters = asked(query)?;
        let text = parameters.target.clone();
        let mut query = parameters.read(state.clock.now()).map_err(Refused::bad)?;
        let limit = query.limit;
        let journal = journal_of(&state)?;
        let named = named(&state, &turns, text, raw).await?;
        query.target = named.as_ref().map(|named| named.selector.clone());
        let page = in_turn(&turns, journal.history(query.clone())).await?;
        if let Some(named) = named.filter(|_| page.entries.is_empty()) {
            // A target that is gone is known where anything is remembered of it.
            let any = HistoryQuery { target: query.target, limit: 1, ..HistoryQuery::default() };
            let ever = in_turn(&turns, journal.history(any)).await?;
            named.check(!ever.entries.is_empty())?;
        }
        let next = page.entries.last().filter(|_| page.more).map(|(seq, _)| *seq);
        let outcomes: Vec<Value> =
            page.entries.iter().map(|(seq, outcome)| told(*seq, outcome)).collect();
        Ok(json!({ "limit": limit, "outcomes": outcomes, "next_before": next }))
    })
    .await
}

/// What happened, the oldest first. Where nothing did yet, the answer may wait for it.
pub(in crate::http) async fn events(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    RawQuery(raw): RawQuery,
    query: Asked<EventsParameters>,
) -> Response {
    answered(async {
        let parameters = asked(query)?;
        let text = parameters.target.clone();
        let now = state.clock.now();
        let (mut query, wait) = parameters.read(now).map_err(Refused::bad)?;
        let journal = journal_of(&state)?;
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
            let page = in_turn(&turns, journal.events(query.clone())).await?;
            let last_seq = page.entries.last().map_or(last_seq, |(seq, _)| last_seq.max(*seq));
            let kept = kept.as_mut().filter(|_| page.entries.is_empty());
            // A number that is still to come is of another journal: its reader should know.
            let ahead = query.since.is_some_and(|since| since > last_seq);
            if let Some(kept) = kept
                && !ahead
                && comes(kept, &query, deadline, &state.stop).await
            {
                query.since = query.since.max(Some(last_seq));
                continue;
            }
            let events: Vec<Value> =
                page.entries.iter().map(|(seq, event)| happened(*seq, event)).collect();
            return Ok(json!({
                "limit": query.limit,
                "events": events,
                "more": page.more,
                "last_seq": last_seq,
            }));
        }
    })
    .await
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

async fn answered(answer: impl Future<Output = Result<Value, Refused>>) -> Response {
    match answer.await {
        Ok(data) => success(&data),
        Err(refused) => refused.into_response(),
    }
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
        journal::{Summary, What},
        target::TargetId,
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
