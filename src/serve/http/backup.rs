//! `GET /api/v1/backup`: a copy of the journal as a file.
//!
//! The journal writes the copy; this module authorises the request, sends the file chunk by chunk,
//! and tells the journal to record the backup when the last chunk is sent. While the client reads,
//! no other copy is made.

use super::{
    error::ApiError,
    guard::{self, Permission},
    query::{NoQuery, ValidQuery},
    route::{self, Operation, Route},
    schemas::Schemas,
    state::AppState,
};
use crate::{
    serve::report::Conflict,
    store::journal::{CopyError, JournalCopy},
    tasks::unwrap_join,
};
use axum::{
    body::{Body, Bytes},
    extract::{self, Request},
    http::{HeaderMap, HeaderValue, Method, header},
    response::{IntoResponse as _, Response},
    routing::get,
};
use futures::stream;
use serde_json::json;
use std::io;

pub(super) fn routes() -> Vec<Route> {
    const ERRORS: &[(u16, &str)] = &[
        route::BAD,
        route::FORBIDDEN,
        route::NO_JOURNAL,
        (409, "Another backup is in progress."),
        (500, "The copy cannot be written; the disk may be full."),
        route::BUSY,
    ];
    let file = Route::api::<NoQuery, ()>(
        "/api/v1/backup",
        "backup",
        get(backup),
        "A consistent copy of the journal, as a file.",
    );
    let file = file
        .errors(ERRORS)
        .detail("`recliner backup` uses this. 403 without `--web.enable-admin-api`, except over the Unix socket; 409 while another backup is in progress.");
    let answers = |_: &mut Schemas| vec![("application/octet-stream", json!({}))];
    vec![file.described(|operation| Operation { answer: "The file.", answers, ..operation })]
}

/// Sends a copy of the journal. HEAD makes no copy, so its response has no length.
pub(super) async fn backup(
    extract::State(state): extract::State<AppState>,
    ValidQuery(NoQuery {}): ValidQuery<NoQuery>,
    request: Request,
) -> Response {
    let by = match guard::authorize_order(&state.allow, Permission::Backup, &request) {
        Ok(by) => by,
        Err(refused) => return ApiError::from(refused).into_response(),
    };
    let Some(journal) = &state.journal else {
        return ApiError::absent("this recliner keeps no journal").into_response();
    };
    let now = state.clock.now();
    let mut headers = file_headers(&now.rfc3339());
    if request.method() == Method::HEAD {
        // An empty body would have a length of zero.
        let body = Body::from_stream(stream::empty::<io::Result<Bytes>>());
        return (headers, body).into_response();
    }
    match journal.copy().await {
        Ok(copy) => {
            tracing::info!(bytes = copy.bytes(), by, "sending a backup of the journal");
            headers.insert(header::CONTENT_LENGTH, copy.bytes().into());
            let journal = journal.clone();
            (headers, file_body(copy, move || journal.record_backup(now))).into_response()
        }
        Err(why) => {
            tracing::warn!(%why, by, "no backup of the journal");
            ApiError::from(why).into_response()
        }
    }
}

/// The headers with the type of the file and its name, which contains the time.
fn file_headers(now: &str) -> HeaderMap {
    let name = format!("attachment; filename=\"journal-{}.redb\"", now.replace([':', '-'], ""));
    let mut headers = HeaderMap::new();
    let kind = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, kind);
    // An RFC 3339 time contains only characters that are valid in a header.
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert(header::CONTENT_DISPOSITION, name);
    }
    headers
}

/// The file as a body: each chunk is read after the previous one was sent. `complete` is called
/// with the last chunk, because the server requests nothing beyond the announced length.
fn file_body(copy: JournalCopy, complete: impl FnOnce() + Send + 'static) -> Body {
    let start = (copy, 0, Some(complete));
    Body::from_stream(stream::try_unfold(start, |(mut copy, sent, mut complete)| async move {
        let read = tokio::task::spawn_blocking(move || Ok((copy.read_piece()?, copy)));
        let stopping = || Err(io::Error::other("recliner is stopping"));
        let (piece, copy) = unwrap_join(read.await).unwrap_or_else(stopping)?;
        let sent = sent + piece.len() as u64;
        if sent == copy.bytes()
            && let Some(complete) = complete.take()
        {
            complete();
        }
        let more = !piece.is_empty();
        io::Result::Ok(more.then(|| (Bytes::from(piece), (copy, sent, complete))))
    }))
}

impl From<CopyError> for ApiError {
    fn from(why: CopyError) -> Self {
        match why {
            CopyError::Busy => Self::conflict(why, Conflict::Plain {}),
            CopyError::Store(why) => Self::unavailable(why),
            CopyError::Cancelled => Self::stopping(),
            CopyError::NoSpace { .. } | CopyError::Io { .. } | CopyError::Failed(_) => {
                Self::failed(why)
            }
        }
    }
}
