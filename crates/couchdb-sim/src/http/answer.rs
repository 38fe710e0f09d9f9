//! A response as CouchDB writes it: status, relevant headers, and a body.

use crate::{cluster::Cluster, growth::mix};
use axum::{body::Body, response::Response};
use futures::future::BoxFuture;
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;

/// The interface that created a response, which is visible in its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// The clustered interface, which adds a request id.
    Clustered,
    /// The node's older interface, behind a call that keeps few headers.
    Behind,
}

#[derive(Debug)]
pub(crate) struct Answer {
    made: Made,
    response: Response,
}

/// The result of a route.
pub(super) enum Routed {
    /// An immediate response.
    Answer(Answer),
    /// A response that waits.
    Wait(Box<dyn FnOnce(Cluster) -> BoxFuture<'static, Answer> + Send>),
    /// No response, as when CouchDB hangs.
    Hang,
}

impl Routed {
    /// A response that waits for this future.
    pub(super) fn wait<F>(answer: impl FnOnce(Cluster) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        Self::Wait(Box::new(|cluster| Box::pin(answer(cluster))))
    }
}

impl From<Answer> for Routed {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

/// A JSON response, with CouchDB's final newline.
pub(crate) fn json(status: u16, value: &impl Serialize) -> Answer {
    let mut text = Vec::with_capacity(512);
    // Only map keys that are not strings could fail, and there are none.
    if serde_json::to_writer(&mut text, value).is_err() {
        text.clear();
    }
    text.push(b'\n');
    let mut answer = stream("application/json", text.into());
    *answer.response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
}

/// A response in CouchDB's error format.
pub(crate) fn error(status: u16, error: &str, reason: &str) -> Answer {
    #[derive(Serialize)]
    struct Shape<'a> {
        error: &'a str,
        reason: &'a str,
    }
    json(status, &Shape { error, reason })
}

/// The response for something that does not exist.
pub(crate) fn not_found(reason: &str) -> Answer {
    error(404, "not_found", reason)
}

/// `{"ok": true}` with 202, the response to requests that start work.
pub(crate) fn accepted() -> Answer {
    json(202, &serde_json::json!({"ok": true}))
}

/// The response to an unsupported method.
pub(crate) fn wrong_method(allowed: &str) -> Answer {
    error(405, "method_not_allowed", &format!("Only {allowed} allowed"))
}

/// CouchDB's error for an illegal database name, which older servers return for unknown paths.
pub(super) fn illegal_name(name: &str) -> Answer {
    let reason = format!(
        "Name: '{name}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."
    );
    error(400, "illegal_database_name", &reason)
}

/// An entity tag as CouchDB makes them: 25 characters of base 36.
pub(super) fn tag(of: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let digit = |at: u64| DIGITS.get((mix(of, at) % 36) as usize).copied().map_or('0', char::from);
    (0..25).map(digit).collect()
}

/// A response with a streamed body of any other type.
pub(crate) fn stream(content_type: &'static str, body: Body) -> Answer {
    let cache = match content_type {
        "text/event-stream" => Some("no-cache"),
        METRICS => None,
        _ => Some("must-revalidate"),
    };
    let answer = Answer { made: Made::Clustered, response: Response::new(body) };
    let answer = answer.with(header::CONTENT_TYPE, content_type);
    match cache {
        Some(cache) => answer.with(header::CACHE_CONTROL, cache),
        None => answer,
    }
}

/// The content type of CouchDB's metrics.
pub(super) const METRICS: &str = "text/plain; version=2.0";

impl Answer {
    /// The same response with one more header.
    fn with(mut self, name: HeaderName, value: &str) -> Self {
        if let Ok(value) = HeaderValue::try_from(value) {
            self.response.headers_mut().insert(name, value);
        }
        self
    }

    /// The same response from the node's older interface.
    pub(crate) fn behind(self) -> Self {
        Self { made: Made::Behind, ..self }
    }

    /// The same response with an entity tag.
    pub(crate) fn tagged(self, etag: &str) -> Self {
        self.with(header::ETAG, &format!("\"{etag}\""))
    }

    /// The same response in chunks, without a length.
    pub(crate) fn chunked(self) -> Self {
        let response = self.response.map(|body| Body::from_stream(body.into_data_stream()));
        Self { response, ..self }
    }

    /// The same response, closing the connection: CouchDB leaves some bodies unread.
    pub(crate) fn closing(self, close: bool) -> Self {
        if close { self.with(header::CONNECTION, "close") } else { self }
    }

    /// The response as a server of this version sends it.
    pub(super) fn response(self, version: &str, request: u64) -> Response {
        let made = self.made;
        let answer = self.with(header::SERVER, &format!("CouchDB/{version} (Erlang OTP/25)"));
        if made == Made::Behind {
            return answer.response;
        }
        answer
            .with(HeaderName::from_static("x-couch-request-id"), &format!("{request:010x}"))
            .with(HeaderName::from_static("x-couchdb-body-time"), "0")
            .response
    }
}
