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

/// Takes the body out of a response, and removes its length header.
fn body_of(response: &mut Response) -> Body {
    response.headers_mut().remove(header::CONTENT_LENGTH);
    std::mem::replace(response.body_mut(), Body::empty())
}

/// The first `bytes` bytes of a body.
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

/// A space at a time, without end.
fn endless_spaces(every: Duration) -> Body {
    let spaces = stream::repeat_with(|| Ok::<_, io::Error>(Bytes::from_static(b" ")));
    Body::from_stream(spaces.then(move |space| async move {
        tokio::time::sleep(every).await;
        space
    }))
}

/// A body with other bytes in the middle.
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

/// A body as gzip, each piece readable as soon as it arrives.
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
pub(super) async fn apply(
    effect: Effect,
    mut response: Response,
    version: &str,
) -> (Response, u16) {
    let status = response.status().as_u16();
    match effect {
        Effect::Delay(_) | Effect::Hang | Effect::FromStart => (response, status),
        Effect::Malformed => {
            *response.body_mut() = Body::from("<html>{\"db_name\": not json at all");
            response.headers_mut().remove(header::CONTENT_LENGTH);
            *response.status_mut() = StatusCode::OK;
            (response, 200)
        }
        Effect::HalfBody => {
            let body = std::mem::replace(response.body_mut(), Body::empty());
            let whole = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(whole.len()));
            let half = whole.slice(..whole.len() / 2);
            let parts: [Result<Bytes, io::Error>; 2] = [Ok(half), Err(broken())];
            *response.body_mut() = Body::from_stream(stream::iter(parts));
            (response, 0)
        }
        Effect::Redirect(to) => {
            *response.body_mut() = Body::empty();
            *response.status_mut() = StatusCode::FOUND;
            if let Ok(to) = HeaderValue::try_from(to) {
                response.headers_mut().insert(header::LOCATION, to);
            }
            (response, 302)
        }
        Effect::Status(status) => {
            let answer = answer::error(status, "simulated_fault", "a fault was planned here");
            (answer.response(version, 0), status)
        }
        Effect::Drop => {
            *response.body_mut() = Body::from_stream(stream::iter([Err::<Bytes, _>(broken())]));
            (response, 0)
        }
        Effect::Silent => {
            response.headers_mut().remove(header::CONTENT_LENGTH);
            *response.body_mut() = Body::from_stream(stream::pending::<Result<Bytes, io::Error>>());
            (response, status)
        }
        Effect::Cut(bytes) => {
            let first = first(body_of(&mut response), bytes);
            *response.body_mut() = Body::from_stream(first);
            (response, status)
        }
        Effect::Break(bytes) => {
            let first = first(body_of(&mut response), bytes).map_err(io::Error::other);
            let rest = stream::iter([Err(broken())]);
            *response.body_mut() = Body::from_stream(first.chain(rest));
            (response, status)
        }
        Effect::Stall(bytes) => {
            let first = first(body_of(&mut response), bytes);
            *response.body_mut() = Body::from_stream(first.chain(stream::pending()));
            (response, status)
        }
        Effect::Trickle(every) => {
            drop(body_of(&mut response));
            *response.body_mut() = endless_spaces(every);
            (response, status)
        }
        Effect::Repeat(times) => {
            let pieces = body_of(&mut response).into_data_stream();
            let pieces = pieces.map_ok(move |piece| Bytes::from(piece.repeat(times)));
            *response.body_mut() = Body::from_stream(pieces);
            (response, status)
        }
        Effect::Insert(at, bytes) => {
            *response.body_mut() = with_bytes_at(body_of(&mut response), at, bytes);
            (response, status)
        }
        Effect::Packed => {
            *response.body_mut() = gzipped(body_of(&mut response));
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
            (response, status)
        }
        Effect::Endless => {
            let spaces = Bytes::from_static(&[b' '; 4096]);
            let first = stream::iter([Ok::<_, io::Error>(Bytes::from_static(b"["))]);
            let rest = stream::repeat_with(move || Ok(spaces.clone()));
            *response.body_mut() = Body::from_stream(first.chain(rest));
            (response, status)
        }
    }
}
