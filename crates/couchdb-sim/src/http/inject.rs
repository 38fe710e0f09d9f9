//! Applies faults to responses.

use super::answer;
use crate::fault::Effect;
use axum::{body::Body, response::Response};
use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http::{HeaderValue, StatusCode, header};
use std::{
    io::{self, Write as _},
    time::Duration,
};

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the simulated connection broke")
}

fn first(body: Body, bytes: usize) -> impl Stream<Item = Result<Bytes, axum::Error>> {
    stream::unfold((body.into_data_stream(), bytes), |(mut pieces, left)| async move {
        if left == 0 {
            return None;
        }
        let piece = pieces.next().await?.map(|mut piece| {
            piece.truncate(left);
            piece
        });
        let left = left - piece.as_ref().map_or(0, Bytes::len);
        Some((piece, (pieces, left)))
    })
}

/// An endless body of spaces, one per interval.
fn endless_spaces(every: Duration) -> Body {
    let spaces = stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(b" ")));
    Body::from_stream(spaces.then(move |space| async move {
        tokio::time::sleep(every).await;
        space
    }))
}

/// A body with other bytes inserted in the middle.
fn with_bytes_at(body: Body, at: usize, bytes: Vec<u8>) -> Body {
    let mut left = Some(at);
    Body::from_stream(body.into_data_stream().map_ok(move |piece| {
        let Some((before, after)) = left.and_then(|left| piece.split_at_checked(left)) else {
            left = left.map(|left| left - piece.len());
            return piece;
        };
        left = None;
        Bytes::from([before, &bytes, after].concat())
    }))
}

/// A body as gzip, flushed after each piece.
fn gzipped(body: Body) -> Body {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    Body::from_stream(body.into_data_stream().map(move |piece| {
        let piece = piece.map_err(io::Error::other)?;
        packer.write_all(&piece)?;
        packer.flush()?;
        Ok::<_, io::Error>(Bytes::from(std::mem::take(packer.get_mut())))
    }))
}

/// The response after a fault, and the status that was sent; 0 if the response is incomplete.
pub(super) async fn apply(effect: Effect, response: Response, version: &str) -> (Response, u16) {
    let (mut head, body) = response.into_parts();
    let mut status = head.status.as_u16();
    let body = match effect {
        Effect::Delay(_) | Effect::Hang | Effect::FromStart => body,
        Effect::Malformed => {
            (head.status, status) = (StatusCode::OK, 200);
            Body::from("<html>{\"db_name\": not json at all")
        }
        Effect::HalfBody => {
            status = 0;
            let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
            let half = whole.slice(..whole.len() / 2);
            Body::from_stream(stream::iter([Ok(half), Err(broken())]))
        }
        Effect::Redirect(to) => {
            (head.status, status) = (StatusCode::FOUND, 302);
            if let Ok(to) = HeaderValue::try_from(to) {
                head.headers.insert(header::LOCATION, to);
            }
            Body::empty()
        }
        Effect::Status(status) => {
            let answer = answer::error(status, "simulated_fault", "a fault was planned here");
            return (answer.response(version, 0), status);
        }
        Effect::Drop => {
            status = 0;
            Body::from_stream(stream::iter([Err::<Bytes, _>(broken())]))
        }
        Effect::Silent => Body::from_stream(stream::pending::<Result<Bytes, io::Error>>()),
        Effect::Cut(bytes) => Body::from_stream(first(body, bytes)),
        Effect::Break(bytes) => {
            let rest = stream::iter([Err(broken())]);
            Body::from_stream(first(body, bytes).map_err(io::Error::other).chain(rest))
        }
        Effect::Stall(bytes) => Body::from_stream(first(body, bytes).chain(stream::pending())),
        Effect::Trickle(every) => endless_spaces(every),
        Effect::Repeat(times) => {
            let pieces = body.into_data_stream();
            Body::from_stream(pieces.map_ok(move |piece| Bytes::from(piece.repeat(times))))
        }
        Effect::Insert(at, bytes) => with_bytes_at(body, at, bytes),
        Effect::Packed => {
            head.headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            gzipped(body)
        }
        Effect::Endless => {
            let spaces = Bytes::from_static(&[b' '; 4096]);
            let first = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"["))]);
            Body::from_stream(first.chain(stream::repeat_with(move || Ok(spaces.clone()))))
        }
    };
    (Response::from_parts(head, body), status)
}
