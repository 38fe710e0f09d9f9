//! `GET /_db_updates`, in CouchDB's format: this route has its own responses, errors and headers.

use super::{
    answer,
    route::{self, Operation, Route},
    schemas::{JSON, Schemas},
    state::AppState,
};
use crate::{
    feeds::feed_server::{BadRequest, FeedOpenError, FeedRequest, Kind, OpenedFeed},
    serve::report::{CouchDbError, DbUpdates},
    store::journal::ResetReason,
};
use axum::{
    body::Body,
    extract::{self, Query},
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::any,
};
use serde_json::{Value, json};

pub(super) fn routes() -> Vec<Route> {
    const ERRORS: &[(u16, &str)] = &[
        (304, "Nothing changed since the answer with this ETag."),
        route::BAD,
        route::NO_JOURNAL,
        route::BUSY,
    ];
    let events = Route::plain(
        "/_db_updates",
        "dbUpdates",
        any(updates),
        "Events of databases, in CouchDB's format. With `feed=continuous`, one event per line.",
        ERRORS,
    );
    let events = events.described(|operation| Operation {
        answer: "Events of databases.",
        parameters,
        answers: |schemas| {
            let events = json!({ "type": "string" });
            vec![(JSON, schemas.written::<DbUpdates>()), ("text/event-stream", events)]
        },
        kind: route::Kind::CouchDb,
        ..operation
    });
    vec![events.detail("GET only; unknown parameters are ignored.")]
}

/// The parameters of `/_db_updates`, which are CouchDB's, with CouchDB's rules for numbers.
fn parameters(_: &mut Schemas) -> Vec<Value> {
    const WHOLE: &str = r"^(\+?[0-9]+|-0+)$";
    let parameter = |name: &str, description: &str, schema: Value| {
        json!({
            "name": name, "in": "query", "required": false,
            "description": description, "schema": schema,
        })
    };
    let text = |pattern: &str| json!({ "type": "string", "pattern": pattern });
    vec![
        parameter(
            "feed",
            "How events are sent.",
            json!({ "type": "string", "enum": ["normal", "longpoll", "continuous", "eventsource"] }),
        ),
        parameter(
            "since",
            "The `last_seq` of an earlier answer, `0` for everything, or `now`.",
            json!({ "type": "string" }),
        ),
        parameter("limit", "The maximum number of events.", text(WHOLE)),
        parameter("descending", "Whether to send the newest first.", json!({ "type": "string" })),
        parameter(
            "heartbeat",
            "Milliseconds between heartbeats, or `true` for a minute.",
            text(r"^(true|false|\+?[0-9]+|-0+)$"),
        ),
        parameter(
            "timeout",
            "Milliseconds without an event after which the answer ends, at most a minute.",
            text(WHOLE),
        ),
    ]
}

/// The header that says why a response does not continue after the given sequence.
const BEGINS_ANEW: HeaderName = HeaderName::from_static("x-recliner-since");

/// The header that browsers send when they reconnect an event source.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The seconds after which a rejected client should retry.
const AGAIN: HeaderValue = HeaderValue::from_static("5");

type Parameters = Vec<(String, String)>;

/// Serves database events.
pub(super) async fn updates(
    extract::State(state): extract::State<AppState>,
    method: Method,
    headers: HeaderMap,
    Query(parameters): Query<Parameters>,
) -> Response {
    if method != Method::GET && method != Method::HEAD {
        let mut refused =
            error(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Only GET allowed");
        refused.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET"));
        return refused;
    }
    let pairs = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let last = headers.get(LAST_EVENT_ID).map(|id| id.to_str().unwrap_or_default());
    let ask = match FeedRequest::parse(pairs, last) {
        Ok(ask) => ask,
        Err(bad @ (BadRequest::Integer | BadRequest::Feed | BadRequest::Sequence)) => {
            return error(StatusCode::BAD_REQUEST, "bad_request", bad);
        }
    };
    let Some(feed) = &state.feed else {
        let why = "This recliner keeps no journal, so it has no events of databases.";
        return error(StatusCode::NOT_FOUND, "not_found", why);
    };
    let kind = ask.kind;
    if method == Method::HEAD && kind != Kind::Normal {
        return streamed(kind, None, Body::empty());
    }
    match feed.open(ask).await {
        Ok(OpenedFeed { tag, reset: anew, body }) if kind == Kind::Normal => {
            let tag = format!("\"{tag}\"");
            if has(&headers, &tag) {
                return (StatusCode::NOT_MODIFIED, [(header::ETAG, tag)]).into_response();
            }
            let mut answer = streamed(kind, anew, Body::from_stream(body.into_stream()));
            if let Ok(tag) = HeaderValue::from_str(&tag) {
                answer.headers_mut().insert(header::ETAG, tag);
            }
            answer
        }
        Ok(OpenedFeed { reset: anew, body, .. }) => {
            streamed(kind, anew, Body::from_stream(body.into_stream()))
        }
        Err(refused @ (FeedOpenError::TooManyReaders(_) | FeedOpenError::Store(_))) => {
            let mut answer = error(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", refused);
            answer.headers_mut().insert(header::RETRY_AFTER, AGAIN);
            answer
        }
    }
}

fn streamed(kind: Kind, anew: Option<ResetReason>, body: Body) -> Response {
    let (content, cache) = match kind {
        Kind::Normal | Kind::Longpoll | Kind::Continuous => ("application/json", "must-revalidate"),
        Kind::EventSource => ("text/event-stream", "no-cache"),
    };
    let headers = [(header::CONTENT_TYPE, content), (header::CACHE_CONTROL, cache)];
    let mut answer = (headers, body).into_response();
    if let Some(anew) = anew {
        let why = HeaderValue::from_static(match anew {
            ResetReason::UnknownSequence => "foreign",
            ResetReason::Trimmed => "trimmed",
        });
        answer.headers_mut().insert(BEGINS_ANEW, why);
    }
    answer
}

/// Whether the client already has the response with this `ETag`; weak tags match too.
pub(super) fn has(headers: &HeaderMap, tag: &str) -> bool {
    let lists = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|it| it.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(|one| {
        let one = one.trim();
        one.strip_prefix("W/").unwrap_or(one) == tag
    })
}

fn error(code: StatusCode, error: &'static str, reason: impl ToString) -> Response {
    let body = CouchDbError { error: error.into(), reason: reason.to_string() };
    let body = answer::whole(&body);
    (code, [(header::CACHE_CONTROL, "must-revalidate")], body).into_response()
}
