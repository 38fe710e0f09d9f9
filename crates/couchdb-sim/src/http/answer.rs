//! A response as CouchDB writes it: status, relevant headers, and a body.

use axum::body::Body;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;

/// The interface that created a response, which is visible in its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// The clustered interface, which adds a request id.
    Clustered,
    /// The node's older interface, behind a call that keeps few headers.
    Behind,
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    status: StatusCode,
    content_type: &'static str,
    cache_control: Option<&'static str>,
    made: Made,
    etag: Option<String>,
    chunked: bool,
    close: bool,
    body: Body,
}

/// A JSON response, with CouchDB's final newline.
pub(crate) fn json(status: u16, value: &impl Serialize) -> Answer {
    let mut text = Vec::with_capacity(512);
    // Only map keys that are not strings fail, and there are none.
    if serde_json::to_writer(&mut text, value).is_err() {
        text.clear();
    }
    text.push(b'\n');
    Answer {
        status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
        content_type: "application/json",
        cache_control: Some("must-revalidate"),
        made: Made::Clustered,
        etag: None,
        chunked: false,
        close: false,
        body: Bytes::from(text).into(),
    }
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

/// A streamed body.
pub(crate) fn stream(content_type: &'static str, body: Body) -> Answer {
    let cache = if content_type == "text/event-stream" { "no-cache" } else { "must-revalidate" };
    let empty = json(200, &());
    Answer { content_type, cache_control: Some(cache), body, ..empty }
}

/// A body with the content type of CouchDB's metrics.
pub(crate) fn metrics(text: String) -> Answer {
    Answer {
        content_type: "text/plain; version=2.0",
        cache_control: None,
        body: text.into(),
        ..json(200, &())
    }
}

impl Answer {
    /// The same response from the node's older interface.
    pub(crate) fn behind(self) -> Self {
        Self { made: Made::Behind, ..self }
    }

    /// The same response with an entity tag.
    pub(crate) fn tagged(self, etag: String) -> Self {
        Self { etag: Some(etag), ..self }
    }

    /// The same response in chunks, without a length.
    pub(crate) fn chunked(self) -> Self {
        Self { chunked: true, ..self }
    }

    /// The same response, closing the connection: CouchDB leaves some bodies unread.
    pub(crate) fn closing(self, close: bool) -> Self {
        Self { close, ..self }
    }

    /// The response of a server of this version.
    pub(super) fn response(self, version: &str, request: u64) -> axum::response::Response {
        let body =
            if self.chunked { Body::from_stream(self.body.into_data_stream()) } else { self.body };
        let mut response = axum::response::Response::new(body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        if let Some(cache) = self.cache_control {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
        }
        if self.close {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        let mut set = |name: header::HeaderName, value: String| {
            if let Ok(value) = HeaderValue::try_from(value) {
                headers.insert(name, value);
            }
        };
        set(header::SERVER, format!("CouchDB/{version} (Erlang OTP/25)"));
        if let Some(etag) = self.etag {
            set(header::ETAG, format!("\"{etag}\""));
        }
        if self.made == Made::Clustered {
            set(header::HeaderName::from_static("x-couch-request-id"), format!("{request:010x}"));
            set(header::HeaderName::from_static("x-couchdb-body-time"), "0".to_owned());
        }
        response
    }
}
