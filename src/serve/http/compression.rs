//! Compresses pages, style sheets and scripts for browsers.
//!
//! A response whose whole body is available is sent as gzip to clients that accept it. A stream is
//! left as it is.

use super::{error::ApiError, metrics::list};
use axum::{
    body::{Body, HttpBody as _, to_bytes},
    extract::Request,
    http::{HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use flate2::{Compression, write::GzEncoder};
use metrics_text::accepts_gzip;
use std::io::{self, Write as _};

/// Shorter responses fit into one packet anyway.
const MIN_BYTES: u64 = 1_024;

/// Compresses text responses of the routes below this layer.
pub(super) async fn compress(request: Request, next: Next) -> Response {
    let wanted = accepts_gzip(list(request.headers(), header::ACCEPT_ENCODING).as_deref());
    let is_head = request.method() == Method::HEAD;
    let mut response = next.run(request).await;
    if !is_text(&response) {
        return response;
    }
    let headers = response.headers_mut();
    headers.append(header::VARY, HeaderValue::from_static("accept-encoding"));
    if wanted && is_head {
        // The compressed length, which GET would announce, is unknown.
        headers.remove(header::CONTENT_LENGTH);
    }
    let length = response.body().size_hint().exact();
    match length.filter(|length| wanted && *length >= MIN_BYTES) {
        Some(length) => compress_body(response, length).await,
        None => response,
    }
}

fn is_text(response: &Response) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
    matches!(kind, "text/html" | "text/css" | "text/javascript")
}

/// Compresses bytes at the fastest level, like scrapes.
pub(super) fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

async fn compress_body(response: Response, length: u64) -> Response {
    let (mut parts, body) = response.into_parts();
    let read = to_bytes(body, usize::try_from(length).unwrap_or(usize::MAX)).await;
    let text = match read {
        Ok(text) => text,
        Err(why) => return ApiError::failed(why).into_response(),
    };
    let Ok(packed) = gzip(&text) else { return Response::from_parts(parts, Body::from(text)) };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    // The plain and the compressed form share one tag, so it must be a weak one.
    if let Some(tag) = parts.headers.get(header::ETAG)
        && let Ok(weak) = HeaderValue::try_from([b"W/", tag.as_bytes()].concat())
    {
        parts.headers.insert(header::ETAG, weak);
    }
    Response::from_parts(parts, Body::from(packed))
}
