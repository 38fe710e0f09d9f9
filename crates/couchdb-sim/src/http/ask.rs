//! A request as CouchDB parses it: raw path segments, each decoded once.
//!
//! Owns the parser of paths and query strings. Never routes.

use super::answer::{Answer, error};
use crate::{
    access::{Login, Shown},
    session::query,
};
use bytes::Bytes;
use http::Method;
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// A request at one node's address.
#[derive(Clone, Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) method: Method,
    /// The segments of the path, each percent-decoded once, without empty ones.
    pub(crate) segments: Vec<String>,
    query: Vec<(String, String)>,
    /// The node at whose address it arrived.
    pub(crate) node: String,
    pub(crate) login: Login,
    /// The request's credentials, for a node to which it is forwarded.
    pub(crate) shown: Shown,
    pub(crate) content_type: Option<String>,
    /// Whether changes are also written to the node's files (`X-Couch-Persist`).
    pub(crate) persists: bool,
    pub(crate) body: Bytes,
    /// The world's start, in seconds since 1970.
    pub(crate) wall_start: u64,
}

/// The page of a sorted list of names that a query string selects.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) start: String,
    end: Option<String>,
    pub(crate) skip: usize,
    limit: usize,
}

impl Page {
    /// The items of this page, given all items from its start on.
    pub(crate) fn of<T>(
        &self,
        items: impl Iterator<Item = T>,
        name: impl Fn(&T) -> &str,
    ) -> impl Iterator<Item = T> {
        items
            .skip(self.skip)
            .take_while(move |item| self.end.as_ref().is_none_or(|end| name(item) <= end.as_str()))
            .take(self.limit)
    }
}

/// The segments of a raw path, each percent-decoded once.
pub(super) fn segments(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned()).collect()
}

impl ParsedRequest {
    /// The same request as the node `to` receives it when another node forwards it; `login` is what
    /// `to` finds in it.
    pub(super) fn passed_on(&self, to: &str, login: Login) -> Self {
        Self { login, node: to.to_owned(), ..self.clone() }
    }

    /// The same request, with a feed read from its beginning.
    pub(super) fn since_the_start(mut self) -> Self {
        for (_, value) in self.query.iter_mut().filter(|(key, _)| key == "since") {
            "0".clone_into(value);
        }
        self
    }

    pub(super) fn new(
        parts: &http::request::Parts,
        node: String,
        (login, shown): (Login, Shown),
        body: Bytes,
        wall_start: u64,
    ) -> Self {
        let content_type = parts.headers.get(http::header::CONTENT_TYPE);
        let persist = parts.headers.get("x-couch-persist");
        let method = if parts.method == Method::HEAD { Method::GET } else { parts.method.clone() };
        Self {
            method,
            segments: segments(parts.uri.path()),
            query: query(parts.uri.query().unwrap_or_default().as_bytes()),
            node,
            login,
            shown,
            content_type: content_type.and_then(|value| value.to_str().ok()).map(str::to_owned),
            persists: persist.is_none_or(|value| value != "false"),
            body,
            wall_start,
        }
    }

    pub(crate) fn param(&self, key: &str) -> Option<&str> {
        self.query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.param(key) == Some("true")
    }

    /// A query parameter that holds a JSON string, under any of these keys.
    fn json_text(&self, keys: &[&str]) -> Option<String> {
        let value = keys.iter().find_map(|key| self.param(key))?;
        match serde_json::from_str(value) {
            Ok(Value::String(text)) => Some(text),
            Ok(_) | Err(_) => None,
        }
    }

    /// The refusal without admin rights; `None`: the request may proceed.
    pub(super) fn admin_only(&self) -> Option<Answer> {
        let refused = || error(401, "unauthorized", "You are not a server admin.");
        (!self.login.is_admin()).then(refused)
    }

    /// The page that the query string selects; `Err`: a number is invalid.
    pub(crate) fn page(&self) -> Result<Page, ()> {
        let size = |key| Ok(self.number(key)?.map(|it| usize::try_from(it).unwrap_or(usize::MAX)));
        Ok(Page {
            start: self.json_text(&["startkey", "start_key"]).unwrap_or_default(),
            end: self.json_text(&["endkey", "end_key"]),
            skip: size("skip")?.unwrap_or(0),
            limit: size("limit")?.unwrap_or(usize::MAX),
        })
    }

    /// A query parameter that is a non-negative integer; `Err`: any other value.
    pub(crate) fn number(&self, key: &str) -> Result<Option<u64>, ()> {
        self.param(key).map(|value| value.parse().map_err(|_| ())).transpose()
    }

    /// Whether the content type is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.content_type.as_deref().is_some_and(|kind| kind.starts_with("application/json"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_segments_are_decoded_once() {
        assert_eq!(
            segments("/_node/couchdb%40a/shards%2F00000000-ffffffff%2Fa%2Fb+c.1/_design/50%2525"),
            ["_node", "couchdb@a", "shards/00000000-ffffffff/a/b+c.1", "_design", "50%25"]
        );
        assert_eq!(segments("/"), [""; 0]);
        assert_eq!(segments("/db/%2e%2e"), ["db", ".."]);
        assert_eq!(
            query(b"a=1&b=%22x+y%22&c"),
            [("a".into(), "1".into()), ("b".into(), "\"x y\"".into()), ("c".into(), String::new())]
        );
    }
}
