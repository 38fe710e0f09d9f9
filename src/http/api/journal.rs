//! What the journal remembers: how jobs ended, and what happened.

use super::{Asked, Refused, State, asked, success};
use crate::{
    clock::Moment,
    http::{
        guard::Turns,
        query::{EventsParameters, HistoryParameters},
    },
    journal::{Event, Journal},
    memory::{Outcome, Trouble},
};
use axum::{Extension, extract, response::Response};
use serde_json::{Value, json};

impl From<Trouble> for Refused {
    fn from(why: Trouble) -> Self {
        Self::unavailable(why)
    }
}

/// How jobs ended, the newest first.
pub(in crate::http) async fn history(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    query: Asked<HistoryParameters>,
) -> Response {
    answered(&state, turns, async |journal| {
        let query = asked(query)?.read().map_err(Refused::bad)?;
        let limit = query.limit;
        let page = journal.history(query).await?;
        let next = page.entries.last().filter(|_| page.more).map(|(seq, _)| *seq);
        let outcomes: Vec<Value> =
            page.entries.iter().map(|(seq, outcome)| told(*seq, outcome)).collect();
        Ok(json!({ "limit": limit, "outcomes": outcomes, "next_before": next }))
    })
    .await
}

/// What happened, the oldest first.
pub(in crate::http) async fn events(
    extract::State(state): extract::State<State>,
    Extension(turns): Extension<Turns>,
    query: Asked<EventsParameters>,
) -> Response {
    answered(&state, turns, async |journal| {
        let query = asked(query)?.read().map_err(Refused::bad)?;
        let limit = query.limit;
        let page = journal.events(query).await?;
        let events: Vec<Value> =
            page.entries.iter().map(|(seq, event)| happened(*seq, event)).collect();
        Ok(json!({
            "limit": limit,
            "events": events,
            "more": page.more,
            "last_seq": journal.health().borrow().last_seq,
        }))
    })
    .await
}

/// Asks the journal in its turn: a filter may have to look through all of it.
async fn answered(
    state: &State,
    turns: Turns,
    ask: impl AsyncFnOnce(&Journal) -> Result<Value, Refused>,
) -> Response {
    use axum::response::IntoResponse as _;
    let Some(_turn) = turns.wait().await else {
        return Refused::stopping().into_response();
    };
    let Some(journal) = &state.journal else {
        let why = "this recliner keeps no journal: there is no history";
        return Refused::absent(why).into_response();
    };
    match ask(journal).await {
        Ok(data) => success(&data),
        Err(refused) => refused.into_response(),
    }
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
    }
    told
}
