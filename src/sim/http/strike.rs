//! What a fault makes of a response.

use super::answer;
use crate::sim::fault::Effect;
use axum::{body::Body, response::Response};
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{HeaderValue, StatusCode, header};
use std::io;

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the simulated connection broke")
}

/// The response after a fault, and the status that went over the wire; 0: none whole.
pub(super) async fn struck(
    effect: Effect,
    mut response: Response,
    version: &str,
) -> (Response, u16) {
    let status = response.status().as_u16();
    match effect {
        Effect::Delay(_) | Effect::Hang | Effect::FromStart => (response, status),
        Effect::Garbage => {
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
            response.headers_mut().remove(header::CONTENT_LENGTH);
            let body = std::mem::replace(response.body_mut(), Body::empty());
            let left = body.into_data_stream().scan(bytes, |left, piece| {
                let piece = piece.map(|piece: Bytes| piece.slice(..piece.len().min(*left)));
                let any = *left > 0;
                *left -= piece.as_ref().map_or(0, Bytes::len);
                std::future::ready(any.then_some(piece))
            });
            *response.body_mut() = Body::from_stream(left);
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
