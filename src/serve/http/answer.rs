//! Answers in JSON that are sent while they are rendered.
//!
//! Owns how a value is written as JSON in every answer, so that no letter of a name from outside
//! steers the terminal of who reads it; and the way from a list of things to the text: piece by piece, each rendered
//! away from the runtime's threads, in its turn, when the one before was taken. What a slow
//! reader holds is one piece and the plan that it is about.

use super::guard::ConcurrencyLimit;
use crate::{serve::report::Listing, tasks::unwrap_join, text::escape};
use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::Response,
};
use futures::{Stream, StreamExt as _, stream};
use serde::Serialize;
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
    /// An answer whose list holds these; in `head` that list is empty.
    pub(super) fn with_list<L: Listing>(
        head: &L,
        items: impl Iterator<Item = L::Item> + Send + 'static,
    ) -> Self {
        Self(Box::new(listed(head, items)))
    }

    /// An answer whose list holds items that have a list each; in each head that list is empty.
    pub(super) fn with_lists<L, I>(
        head: &L,
        items: impl Iterator<Item = (L::Item, I)> + Send + 'static,
    ) -> Self
    where
        L: Listing<Item: Listing>,
        I: Iterator<Item = <L::Item as Listing>::Item> + Send + 'static,
    {
        let (before, after) = around_list(head);
        let items = items.enumerate().flat_map(|(at, (head, items))| {
            let comma = (at > 0).then(|| b",".to_vec());
            comma.into_iter().chain(listed(&head, items))
        });
        Self(Box::new(iter::once(before).chain(items).chain(iter::once(after))))
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
    pub(super) fn sent(self, turns: ConcurrencyLimit) -> Response {
        let Some(rest) = self.rest else { return json(Body::from(self.first)) };
        json(in_pieces(
            self.first,
            stream::unfold(Some(rest), move |rest| next(rest, turns.clone())),
        ))
    }
}

/// The next piece of an answer, and what is left.
async fn next(
    rest: Option<Answer>,
    turns: ConcurrencyLimit,
) -> Option<(io::Result<Vec<u8>>, Option<Answer>)> {
    let rest = rest?;
    let turn = turns.acquire().await?;
    let rendered = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        rest.piece(PIECE)
    });
    // Where the runtime ends, the answer breaks off.
    let (piece, rest) = unwrap_join(rendered.await).map_or_else(
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

/// The start of a whole answer, the envelope included, whose data begins like this.
pub(super) fn opened(data: &[u8]) -> Vec<u8> {
    [OPENS, data].concat()
}

/// The end of a whole answer, the envelope included, whose data ends like this.
pub(super) fn closed(data: &[u8]) -> Vec<u8> {
    [data, CLOSES].concat()
}

/// The text of an answer around its list: up to the list's first item, and from behind its last
/// one.
pub(super) fn around_list<L: Listing>(answer: &L) -> (Vec<u8>, Vec<u8>) {
    let mut before = text(answer);
    // Quotation marks inside of strings are escaped: only the field itself reads like this.
    let list = format!("\"{}\":[", L::LIST);
    let starts = before.windows(list.len()).rposition(|window| window == list.as_bytes());
    let after = before.split_off(starts.map_or(before.len(), |at| at + list.len()));
    (before, after)
}

/// The text of an answer with these items in its list.
fn listed<L, I>(head: &L, items: I) -> impl Iterator<Item = Vec<u8>> + use<L, I>
where
    L: Listing,
    I: Iterator<Item = L::Item>,
{
    let (before, after) = around_list(head);
    let items = items.enumerate().map(|(at, item)| {
        let mut item = text(&item);
        if at > 0 {
            item.insert(0, b',');
        }
        item
    });
    iter::once(before).chain(items).chain(iter::once(after))
}

/// A value as an answer of its own.
pub(super) fn whole(value: &(impl Serialize + ?Sized)) -> Response {
    json(Body::from(text(value)))
}

/// A value as JSON; every answer is written here.
pub(super) fn text(value: &(impl Serialize + ?Sized)) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    // Nothing here has keys that are no text, which is all that could fail.
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

    impl Listing for Numbers {
        const LIST: &'static str = "list";
        type Item = Value;
    }

    #[derive(Serialize)]
    struct Lists {
        #[serde(rename = "\"lists\":[]")]
        odd: &'static str,
        lists: Vec<Numbers>,
    }

    impl Listing for Lists {
        const LIST: &'static str = "lists";
        type Item = Numbers;
    }

    const fn head(total: u64) -> Numbers {
        Numbers { total, list: Vec::new(), more: true }
    }

    async fn sent(answer: Answer) -> (Option<u64>, Value) {
        let response = answer.begin().sent(ConcurrencyLimit::new(1));
        let length = response.body().size_hint().exact();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (length, serde_json::from_slice(&bytes).unwrap())
    }

    #[tokio::test]
    async fn pieces_come_to_the_text_of_the_whole() {
        let numbers = |upto: u64| (0..upto).map(|number| json!({ "n": number }));
        for (upto, whole) in [(0, true), (1, true), (2, true), (100_000, false)] {
            let (length, body) = sent(Answer::with_list(&head(upto), numbers(upto))).await;
            assert_eq!(length.is_some(), whole, "{upto}");
            let list: Vec<_> = numbers(upto).collect();
            let data = json!(Numbers { list, ..head(upto) });
            assert_eq!(body, json!({ "status": "success", "data": data }));
            let lists = [2, 0, upto].map(|upto| (head(upto), numbers(upto)));
            let all = Lists { odd: "\"lists\":[]", lists: Vec::new() };
            let (_, body) = sent(Answer::with_lists(&all, lists.into_iter())).await;
            let list = body["data"]["lists"].as_array().unwrap();
            assert_eq!(list.len(), 3);
            assert_eq!(list[2]["list"].as_array().unwrap().len() as u64, upto);
            assert_eq!((&list[1]["total"], &list[1]["list"]), (&json!(0), &json!([])));
        }
    }

    #[tokio::test]
    async fn nothing_is_rendered_ahead_of_what_is_taken() {
        let rendered = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&rendered);
        let items = (0..1_000).map(move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
            json!("1".repeat(10_000 - 2))
        });
        let answer = Answer::with_list(&head(1_000), items);
        let mut body = answer.begin().sent(ConcurrencyLimit::new(1)).into_body();
        assert_eq!(rendered.load(Ordering::Relaxed), WHOLE.div_ceil(10_000));
        for taken in 0..3 {
            body.frame().await.unwrap().unwrap();
            let most = WHOLE.div_ceil(10_000) + taken * PIECE.div_ceil(10_000);
            assert!(rendered.load(Ordering::Relaxed) <= most, "{taken}");
        }
    }
}
