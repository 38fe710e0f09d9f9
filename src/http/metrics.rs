//! `/metrics`: what Prometheus scrapes, read from what other tasks published.

mod present;

use super::State;
use crate::exposition::{self, Format, Writer, accepts_gzip, negotiate};
use axum::{
    extract,
    http::{HeaderMap, HeaderName, header},
    response::{IntoResponse, Response},
};

/// What a scrape of the default configuration takes, so that most need not grow.
const ROOM: usize = 256 << 10;

/// Answers a scrape. Away from the runtime's threads: a hundred thousand series take some
/// milliseconds, and nothing else may wait for them.
pub(super) async fn metrics(
    extract::State(state): extract::State<State>,
    headers: HeaderMap,
) -> Response {
    let asked = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let format = negotiate(asked(header::ACCEPT));
    let gzip = accepts_gzip(asked(header::ACCEPT_ENCODING));
    let rendered = tokio::task::spawn_blocking(move || {
        let text = render(&state, format);
        if gzip { exposition::gzip(text.as_bytes()) } else { text.into_bytes() }
    });
    let body = match rendered.await {
        Ok(body) => body,
        Err(failed) => return super::lost(failed),
    };
    let vary = (header::VARY, "accept, accept-encoding");
    let kind = (header::CONTENT_TYPE, format.content_type());
    if gzip {
        ([kind, vary, (header::CONTENT_ENCODING, "gzip")], body).into_response()
    } else {
        ([kind, vary], body).into_response()
    }
}

/// The whole exposition in one format.
pub(super) fn render(state: &State, format: Format) -> String {
    let mut writer = Writer::new(format, String::with_capacity(ROOM));
    present::write(&mut writer, state);
    exposition::write_gathered(&mut writer, &state.registry.gather());
    writer.finish()
}
