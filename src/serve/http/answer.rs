//! Answers in JSON that are sent while they are rendered.
//!
//! Owns how a value is written as JSON in every answer, so that no letter of a name from outside
//! steers the terminal of who reads it; and the way from a list of things to the text: piece by piece, each rendered
//! away from the runtime's threads, in its turn, when the one before was taken. What a slow
//! reader holds is one piece and the plan that it is about.

use super::guard::Turns;
use crate::{tasks::joined, text::escape};
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::Response,
};
use futures::{Stream, StreamExt as _, stream};
use serde::Serialize;
use serde_json::Value;
use std::{io, iter};

/// How much is rendered at a time.
const PIECE: usize = 64 << 10;

/// An answer no longer than this is sent as a whole, with its length.
const WHOLE: usize = 256 << 10;

const OPENS: &[u8] = b"{\"status\":\"success\",\"data\":";
const CLOSES: &[u8] = b"}";

/// The text of an answer's data, in parts that are rendered when they are asked for.
pub(super) struct Answer(Box<dyn Iterator<Item = Vec<u8>> + Send>);

impl Answer {
    /// The object `head` with one more field, a list of these.
    pub(super) fn with_list(
        head: &Value,
        name: &str,
        items: impl Iterator<Item = Vec<u8>> + Send + 'static,
    ) -> Self {
        Self(Box::new(listed(head, name, items)))
    }

    /// The same, of items that have a list each.
    pub(super) fn with_lists<I>(
        head: &Value,
        name: &str,
        items: impl Iterator<Item = I> + Send + 'static,
    ) -> Self
    where
        I: Iterator<Item = Vec<u8>> + Send + 'static,
    {
        let opened = iter::once(opened(head, name));
        let items = items.enumerate().flat_map(|(at, item)| {
            let comma = (at > 0).then(|| b",".to_vec());
            comma.into_iter().chain(item)
        });
        Self(Box::new(opened.chain(items).chain(iter::once(b"]}".to_vec()))))
    }

    /// Renders so much of it, and says whether there is more.
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

    /// The first piece, to be rendered away from the runtime's threads.
    pub(super) fn begin(self) -> Begun {
        let whole = iter::once(OPENS.to_vec()).chain(self.0).chain(iter::once(CLOSES.to_vec()));
        let (first, rest) = Self(Box::new(whole)).piece(WHOLE);
        Begun { first, rest }
    }
}

/// An answer whose first piece is rendered.
pub(super) struct Begun {
    first: Vec<u8>,
    rest: Option<Answer>,
}

impl Begun {
    /// Sends it. The other pieces wait for their turns.
    pub(super) fn sent(self, turns: Turns) -> Response {
        let Some(rest) = self.rest else { return json(Body::from(self.first)) };
        json(in_pieces(
            self.first,
            stream::unfold(Some(rest), move |rest| next(rest, turns.clone())),
        ))
    }
}

/// The next piece of an answer, and what is left.
async fn next(rest: Option<Answer>, turns: Turns) -> Option<(io::Result<Vec<u8>>, Option<Answer>)> {
    let rest = rest?;
    let turn = turns.wait().await?;
    let rendered = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        rest.piece(PIECE)
    });
    // Where the runtime ends, the answer breaks off.
    let (piece, rest) = joined(rendered.await).map_or_else(
        || (Err(io::Error::other("recliner is stopping")), None),
        |(piece, rest)| (Ok(piece), rest),
    );
    Some((piece, rest))
}

/// A body of a first piece and others behind it.
pub(super) fn in_pieces(
    first: Vec<u8>,
    others: impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static,
) -> Body {
    let first = stream::once(std::future::ready(Ok(first)));
    Body::from_stream(first.chain(others).map(|piece| piece.map(Bytes::from)))
}

/// A body of JSON.
pub(super) fn json(body: Body) -> Response {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The start of an answer whose data begins like this.
pub(super) fn enveloped(opened: &[u8]) -> Vec<u8> {
    [OPENS, opened].concat()
}

/// The end of the data's list, its last fields, and the end of the answer.
pub(super) fn closed(fields: &Value) -> Vec<u8> {
    let fields = text(fields);
    // Without its opening brace; an object without fields has nothing to part from the list.
    let rest = fields.get(1..).unwrap_or_default();
    let comma: &[u8] = if rest == b"}" { b"" } else { b"," };
    [b"]", comma, rest, CLOSES].concat()
}

/// An object with one more field, a list of these.
pub(super) fn listed<I: Iterator<Item = Vec<u8>>>(
    head: &Value,
    name: &str,
    items: I,
) -> impl Iterator<Item = Vec<u8>> + use<I> {
    iter::once(opened(head, name)).chain(separated(items)).chain(iter::once(b"]}".to_vec()))
}

/// The start of an object: its fields, and the start of a list.
pub(super) fn opened(head: &Value, name: &str) -> Vec<u8> {
    let mut opened = text(head);
    opened.pop();
    if opened.len() > 1 {
        opened.push(b',');
    }
    opened.extend(text(&name));
    opened.extend(b":[");
    opened
}

/// Items of a list with commas between them.
pub(super) fn separated(items: impl Iterator<Item = Vec<u8>>) -> impl Iterator<Item = Vec<u8>> {
    items.enumerate().map(|(at, mut item)| {
        if at > 0 {
            item.insert(0, b',');
        }
        item
    })
}

/// A value as an answer of its own.
pub(super) fn whole(value: &(impl Serialize + ?Sized)) -> Response {
    json(Body::from(text(value)))
}

/// A value as JSON; every answer is written here.
pub(super) fn text(value: &(impl Serialize + ?Sized)) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    // Nothing here has keys that are no text, which is all that could fail.
    match escape::write_json(&mut out, value) {
        Ok(()) => out,
        Err(_) => b"null".to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::HttpBody as _;
    use http_body_util::BodyExt as _;
    use serde_json::json;
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    async fn told(answer: Answer) -> (Option<u64>, Value) {
        let response = answer.begin().sent(Turns::new(1));
        let length = response.body().size_hint().exact();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (length, serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn pieces_come_to_the_text_of_the_whole() {
        let numbers = |upto: u64| (0..upto).map(|number| text(&json!({ "n": number })));
        for (upto, whole) in [(0, true), (1, true), (2, true), (100_000, false)] {
            let head = json!({ "total": upto });
            let (length, body) = told(Answer::with_list(&head, "list", numbers(upto))).await;
            assert_eq!(length.is_some(), whole, "{upto}");
            let list: Vec<_> = (0..upto).map(|number| json!({ "n": number })).collect();
            let data = json!({ "total": upto, "list": list });
            assert_eq!(body, json!({ "status": "success", "data": data }));
            let lists =
                [2, 0, upto].map(|upto| listed(&json!({ "of": upto }), "list", numbers(upto)));
            let answer = Answer::with_lists(&json!({}), "lists", lists.into_iter());
            let (_, body) = told(answer).await;
            let list = body["data"]["lists"].as_array().unwrap();
            assert_eq!(list.len(), 3);
            assert_eq!(list[2]["list"].as_array().unwrap().len() as u64, upto);
            assert_eq!((&list[1]["of"], &list[1]["list"]), (&json!(0), &json!([])));
        }
        assert_eq!(closed(&json!({})), b"]}}");
        assert_eq!(closed(&json!({ "more": true })), b"],\"more\":true}}");
    }

    #[tokio::test]
    async fn nothing_is_rendered_ahead_of_what_is_taken() {
        let rendered = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&rendered);
        let items = (0..1_000).map(move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
            vec![b'1'; 10_000]
        });
        let answer = Answer::with_list(&json!({}), "list", items);
        let mut body = answer.begin().sent(Turns::new(1)).into_body();
        assert_eq!(rendered.load(Ordering::Relaxed), WHOLE.div_ceil(10_000));
        for taken in 0..3 {
            body.frame().await.unwrap().unwrap();
            let most = WHOLE.div_ceil(10_000) + taken * PIECE.div_ceil(10_000);
            assert!(rendered.load(Ordering::Relaxed) <= most, "{taken}");
        }
    }
}
