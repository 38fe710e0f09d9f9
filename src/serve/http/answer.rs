//! JSON responses that are sent while they are still being rendered.
//!
//! Owns the JSON encoding of all responses: no character of an external name can control the
//! reader's terminal. Long lists are rendered chunk by chunk on a blocking thread, within the
//! concurrency limit, each chunk after the previous one was sent. So a slow reader holds only one
//! chunk, and the plan that it was rendered from.

use super::concurrency_limit::ConcurrencyLimit;
use crate::{serve::report::Success, tasks::unwrap_join, text::escape};
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures::{Stream, StreamExt as _, stream};
use serde::Serialize;
use std::{io, iter, marker::PhantomData};

/// The size of a chunk, in bytes.
const PIECE: usize = 64 << 10;

/// A response up to this size, in bytes, is sent in one piece, with its length.
const WHOLE: usize = 256 << 10;

const OPENS: &[u8] = b"{\"status\":\"success\",\"data\":";
const CLOSES: &[u8] = b"}";

/// A successful response of the API, with data of this type.
pub(super) struct Answer<A>(Response, PhantomData<fn() -> A>);

impl<A: Serialize> Answer<A> {
    /// The response with this data.
    pub(super) fn of(data: &A) -> Self {
        success(data).into()
    }
}

impl<A> From<Response> for Answer<A> {
    fn from(response: Response) -> Self {
        Self(response, PhantomData)
    }
}

impl<A> IntoResponse for Answer<A> {
    fn into_response(self) -> Response {
        self.0
    }
}

/// The data of a response, in parts that are rendered on demand.
pub(super) struct StreamedData(Box<dyn Iterator<Item = Vec<u8>> + Send>);

impl StreamedData {
    /// A response with these items as the list of this name, which is empty in `head`. No other field of the
    /// response has this name.
    pub(super) fn with_list(
        name: &str,
        head: &(impl Serialize + 'static),
        items: impl Iterator<Item: Serialize> + Send + 'static,
    ) -> Self {
        Self(Box::new(list_parts(name, head, items)))
    }

    /// A response whose items each have a list of their own; the items in `heads` have empty lists.
    pub(super) fn with_lists<
        H: Serialize + 'static,
        I: Iterator<Item: Serialize> + Send + 'static,
    >(
        [name, inner]: [&'static str; 2],
        head: &impl Serialize,
        items: impl Iterator<Item = (H, I)> + Send + 'static,
    ) -> Self {
        let (before, after) = around_list(name, head);
        let items = items.enumerate().flat_map(move |(at, (head, items))| {
            let comma = (at > 0).then(|| b",".to_vec());
            comma.into_iter().chain(list_parts(inner, &head, items))
        });
        Self(Box::new(iter::once(before).chain(items).chain(iter::once(after))))
    }

    /// Renders parts until they have at least `room` bytes; returns them and the rest, if any.
    fn piece(mut self, room: usize) -> (Vec<u8>, Option<Self>) {
        let mut piece = Vec::new();
        for part in self.0.by_ref() {
            piece.extend(part);
            if piece.len() >= room {
                return (piece, Some(self));
            }
        }
        (piece, None)
    }

    /// Renders the first chunk; call it on a blocking thread.
    pub(super) fn begin(self) -> Begun {
        let whole = iter::once(OPENS.to_vec()).chain(self.0).chain(iter::once(CLOSES.to_vec()));
        let (first, rest) = Self(Box::new(whole)).piece(WHOLE);
        Begun { first, rest }
    }
}

/// A response whose first chunk is rendered.
pub(super) struct Begun {
    first: Vec<u8>,
    rest: Option<StreamedData>,
}

impl Begun {
    /// Sends the response. The other chunks are rendered within the concurrency limit.
    pub(super) fn sent(self, turns: ConcurrencyLimit) -> Response {
        let Some(rest) = self.rest else { return json(Body::from(self.first)) };
        json(in_pieces(
            self.first,
            stream::unfold(Some(rest), move |rest| next(rest, turns.clone())),
        ))
    }
}

/// The next chunk of a response, and the rest.
async fn next(
    rest: Option<StreamedData>,
    turns: ConcurrencyLimit,
) -> Option<(io::Result<Vec<u8>>, Option<StreamedData>)> {
    let rest = rest?;
    let turn = turns.acquire().await?;
    let rendered = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        rest.piece(PIECE)
    });
    // If the runtime shuts down, the response is cut off.
    let (piece, rest) = unwrap_join(rendered.await).map_or_else(
        || (Err(io::Error::other("recliner is stopping")), None),
        |(piece, rest)| (Ok(piece), rest),
    );
    Some((piece, rest))
}

/// A body of a first chunk and a stream of further ones.
pub(super) fn in_pieces(
    first: Vec<u8>,
    others: impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static,
) -> Body {
    let first = stream::once(std::future::ready(Ok(first)));
    Body::from_stream(first.chain(others).map(|piece| piece.map(Bytes::from)))
}

pub(super) fn json(body: Body) -> Response {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The start of a response: the opening of the envelope, then `data`.
pub(super) fn opened(data: &[u8]) -> Vec<u8> {
    [OPENS, data].concat()
}

/// The end of a response: `data`, then the closing of the envelope.
pub(super) fn closed(data: &[u8]) -> Vec<u8> {
    [data, CLOSES].concat()
}

/// The JSON of a response before the first and after the last item of its list; the list itself is
/// empty here.
pub(super) fn around_list(name: &str, answer: &impl Serialize) -> (Vec<u8>, Vec<u8>) {
    let mut before = text(answer);
    // Quotation marks inside strings are escaped, so only the field itself matches.
    let list = format!("\"{name}\":[");
    let starts = before.windows(list.len()).rposition(|window| window == list.as_bytes());
    let after = before.split_off(starts.map_or(before.len(), |at| at + list.len()));
    (before, after)
}

/// The JSON of a response with these items in its list, part by part.
fn list_parts<H: Serialize, I: Iterator<Item: Serialize>>(
    name: &str,
    head: &H,
    items: I,
) -> impl Iterator<Item = Vec<u8>> + use<H, I> {
    let (before, after) = around_list(name, head);
    let items = items.enumerate().map(|(at, item)| {
        let mut item = text(&item);
        if at > 0 {
            item.insert(0, b',');
        }
        item
    });
    iter::once(before).chain(items).chain(iter::once(after))
}

/// A response with this value, without the envelope.
pub(super) fn whole(value: &(impl Serialize + ?Sized)) -> Response {
    json(Body::from(text(value)))
}

/// A successful response with this data in the envelope.
pub(super) fn success(data: &impl Serialize) -> Response {
    whole(&Success::of(data))
}

/// A value as JSON; every response is encoded here.
pub(super) fn text(value: &(impl Serialize + ?Sized)) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    // Only map keys that are not strings could fail, and no response has such keys.
    match escape::write_escaped_json(&mut out, value) {
        Ok(()) => out,
        Err(_) => b"null".to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::HttpBody as _;
    use http_body_util::BodyExt as _;
    use serde_json::{Value, json};
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    #[derive(Serialize)]
    struct Numbers {
        total: u64,
        list: Vec<Value>,
        more: bool,
    }

    #[derive(Serialize)]
    struct Lists {
        #[serde(rename = "\"lists\":[]")]
        odd: &'static str,
        lists: Vec<Numbers>,
    }

    const fn head(total: u64) -> Numbers {
        Numbers { total, list: Vec::new(), more: true }
    }

    async fn sent(answer: StreamedData) -> (Option<u64>, Value) {
        let response = answer.begin().sent(ConcurrencyLimit::new(1));
        let length = response.body().size_hint().exact();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (length, serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn streamed_chunks_form_the_complete_response() {
        let numbers = |upto: u64| (0..upto).map(|number| json!({ "n": number }));
        for (upto, whole) in [(0, true), (1, true), (2, true), (100_000, false)] {
            let (length, body) =
                sent(StreamedData::with_list("list", &head(upto), numbers(upto))).await;
            assert_eq!(length.is_some(), whole, "{upto}");
            let list: Vec<_> = numbers(upto).collect();
            let data = json!(Numbers { list, ..head(upto) });
            assert_eq!(body, json!({ "status": "success", "data": data }));
            let lists = [2, 0, upto].map(|upto| (head(upto), numbers(upto)));
            let all = Lists { odd: "\"lists\":[]", lists: Vec::new() };
            let (_, body) =
                sent(StreamedData::with_lists(["lists", "list"], &all, lists.into_iter())).await;
            let list = body["data"]["lists"].as_array().unwrap();
            assert_eq!(list.len(), 3);
            assert_eq!(list[2]["list"].as_array().unwrap().len() as u64, upto);
            assert_eq!((&list[1]["total"], &list[1]["list"]), (&json!(0), &json!([])));
        }
    }

    #[tokio::test]
    async fn renders_chunks_only_when_the_client_reads_them() {
        let rendered = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&rendered);
        let items = (0..1_000).map(move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
            json!("1".repeat(10_000 - 2))
        });
        let answer = StreamedData::with_list("list", &head(1_000), items);
        let mut body = answer.begin().sent(ConcurrencyLimit::new(1)).into_body();
        assert_eq!(rendered.load(Ordering::Relaxed), WHOLE.div_ceil(10_000));
        for taken in 0..3 {
            body.frame().await.unwrap().unwrap();
            let most = WHOLE.div_ceil(10_000) + taken * PIECE.div_ceil(10_000);
            assert!(rendered.load(Ordering::Relaxed) <= most, "{taken}");
        }
    }
}
