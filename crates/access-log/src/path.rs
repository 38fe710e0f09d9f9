//! What a path uses.

use crate::{Agent, How, Used};
use couchdb_names::{ShardName, is_db_name};
use std::borrow::Cow;

/// Longest name of a design document or a view that is kept.
const MAX_NAME_BYTES: usize = 512;

/// The query with which recliner starts the build of an index; it returns no rows.
const OWN_BUILD: &[u8] = b"limit=0&update=lazy";

/// The start of a design document's id, encoded as one path segment.
const ENCODED_DESIGN: &[u8] = b"_design%2F";

/// What an answered request used.
pub(crate) fn used<'a>(method: &[u8], target: &'a [u8], agent: Agent) -> Option<Used<'a>> {
    let Agent::Client(class) = agent else { return None };
    let end = target.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(target.len());
    let (path, query) = (&target[..end], target.get(end + 1..).unwrap_or_default());
    let mut parts = Segments { rest: path };
    let mut before: [&[u8]; 3] = [b"", b"", b""];
    let mut name = None;
    let is_read = matches!(method, b"GET" | b"POST" | b"HEAD");
    loop {
        let part = parts.next()?;
        let [.., db] = before;
        match part {
            b"_design" => break,
            b"_find" if is_read => {
                let db = db_name(&before)?;
                return Some(Used {
                    db,
                    design: "".into(),
                    view: "".into(),
                    how: How::Find,
                    class,
                });
            }
            b"_changes" => {
                let design = filter_design(query)?;
                let (view, how) = ("".into(), How::Function);
                return Some(Used { db: name_of(db)?, design, view, how, class });
            }
            // Some clients encode the slash in the id.
            _ if is_encoded_design(part) => {
                name = part.get(ENCODED_DESIGN.len()..);
                break;
            }
            _ => before = [before[1], before[2], part],
        }
    }
    let db = db_name(&before)?;
    let name = name.or_else(|| parts.next()).filter(|name| name.len() <= MAX_NAME_BYTES)?;
    let of = |name: &'a [u8]| Some(Cow::Owned(format!("_design/{}", decoded(name)?)));
    let use_of = |design, view, how| Some(Used { db, design, view, how, class });
    let (design, read) = (of(name)?, How::Read);
    let Some(handler) = parts.next() else {
        let is_write = matches!(method, b"PUT" | b"DELETE");
        return use_of(design, "".into(), if is_write { How::Written } else { How::Seen });
    };
    match handler {
        b"_info" | b"_search_info" | b"_nouveau_info" | b"_search_disk_size" => {
            use_of(design, "".into(), How::Seen)
        }
        b"_view" if query == OWN_BUILD => use_of(design, "".into(), How::Seen),
        _ if !is_read && handler != b"_update" => None,
        b"_view" => use_of(design, decoded(parts.next()?)?, read),
        b"_search" | b"_nouveau" => {
            let index = decoded(parts.next()?)?;
            let engine = if handler == b"_search" { "_search" } else { "_nouveau" };
            use_of(design, format!("{engine}/{index}").into(), read)
        }
        b"_list" => {
            let (_list, first) = (parts.next()?, parts.next()?);
            // A view of another design document is preceded by that document's name.
            match parts.next() {
                Some(view) => use_of(of(first)?, decoded(view)?, read),
                None => use_of(design, decoded(first)?, read),
            }
        }
        b"_show" | b"_update" => use_of(design, "".into(), How::Function),
        // Attachments may have any name; handlers begin with an underscore, and an unknown one may read any view.
        other if other.starts_with(b"_") => use_of(design, "".into(), read),
        _ => use_of(design, "".into(), How::Seen),
    }
}

/// The parts of a path that are not empty: CouchDB ignores doubled slashes.
struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Segments<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while let Some(rest) = self.rest.strip_prefix(b"/") {
            self.rest = rest;
        }
        let end = self.rest.iter().position(|byte| *byte == b'/').unwrap_or(self.rest.len());
        let (part, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!part.is_empty()).then_some(part)
    }
}

fn is_encoded_design(part: &[u8]) -> bool {
    part.get(..ENCODED_DESIGN.len()).is_some_and(|it| it.eq_ignore_ascii_case(ENCODED_DESIGN))
}

/// The database of a path: its last part, unless that is a partition.
fn db_name<'a>(before: &[&'a [u8]; 3]) -> Option<Cow<'a, str>> {
    let [db, marker, last] = before;
    name_of(if *marker == b"_partition" { db } else { last })
}

/// The name of a clustered database, from a part of a path that may name a shard of it.
fn name_of(part: &[u8]) -> Option<Cow<'_, str>> {
    let name = decoded(part)?;
    if let Some(shard) = ShardName::split(&name) {
        return Some(Cow::Owned(shard.db.to_owned()));
    }
    is_db_name(&name).then_some(name)
}

/// The design document whose filter a feed uses.
fn filter_design(query: &[u8]) -> Option<Cow<'_, str>> {
    let value = |wanted: &[u8]| {
        let mut pairs = query.split(|byte| *byte == b'&');
        pairs.find_map(|pair| pair.strip_prefix(wanted)).map(decoded)
    };
    let filter = value(b"filter=")??;
    let filter = if filter == "_view" { value(b"view=")?? } else { filter };
    if filter.starts_with('_') {
        return None;
    }
    let (design, _) = filter.split_once('/')?;
    Some(Cow::Owned(format!("_design/{design}")))
}

/// A path segment without percent-encoding; `None` if it is not UTF-8 or too long.
fn decoded(part: &[u8]) -> Option<Cow<'_, str>> {
    if part.len() > MAX_NAME_BYTES {
        return None;
    }
    if !part.contains(&b'%') {
        return str::from_utf8(part).ok().map(Cow::Borrowed);
    }
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut out = Vec::with_capacity(part.len());
    let mut at = 0;
    while let Some(byte) = part.get(at) {
        let pair = digit(part.get(at + 1)).zip(digit(part.get(at + 2)));
        match pair.filter(|_| *byte == b'%') {
            Some((high, low)) => {
                out.push(u8::try_from(high * 16 + low).unwrap_or_default());
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Class;

    fn of(method: &str, path: &str) -> String {
        let agent = Agent::Client(Class::Browser);
        match used(method.as_bytes(), path.as_bytes(), agent) {
            None => "-".to_owned(),
            Some(Used { db, design, view, how, class: _ }) => {
                let how = match how {
                    How::Read => "read",
                    How::Find => "find",
                    How::Function => "function",
                    How::Seen => "seen",
                    How::Written => "written",
                    How::Refused => "refused",
                };
                format!("{how} {db} {design} {view}").trim_end().to_owned()
            }
        }
    }

    #[test]
    fn method_and_path_determine_which_index_is_used() {
        for (method, path, expected) in [
            ("GET", "/db/_design/d/_view/v?key=%22secret%22", "read db _design/d v"),
            ("HEAD", "/db/_design/d/_view/v", "read db _design/d v"),
            ("POST", "/db/_design/d/_view/v/queries", "read db _design/d v"),
            ("POST", "/db/_design/d/_view/v", "read db _design/d v"),
            ("GET", "//db//_design/d/_view//v", "read db _design/d v"),
            (
                "GET",
                "/orders%2Feu/_design/d%2Fe/_view/by%20name",
                "read orders/eu _design/d/e by name",
            ),
            ("GET", "/orders%2feu/_design%2fd/_view/v", "read orders/eu _design/d v"),
            ("GET", "/db/_partition/p%3A1/_design/d/_view/v", "read db _design/d v"),
            ("GET", "/api/couch/db/_design/d/_view/v", "read db _design/d v"),
            ("GET", "http://h:5984/db/_design/d/_view/v", "read db _design/d v"),
            ("GET", "/db/_design/d/_list/l/v?x", "read db _design/d v"),
            ("GET", "/db/_design/d/_list/l/other/v", "read db _design/other v"),
            ("GET", "/db/_design/d/_rewrite/a/b", "read db _design/d"),
            ("GET", "/db/_design/d/_geo/g", "read db _design/d"),
            ("GET", "/db/_design/d/_search/s?q=x", "read db _design/d _search/s"),
            ("POST", "/db/_design/d/_nouveau/n", "read db _design/d _nouveau/n"),
            (
                "GET",
                "/_node/_local/shards%2F00000000-7fffffff%2Fa%2Fb.1795222434/_design/d/_view/v",
                "read a/b _design/d v",
            ),
            ("GET", "/_users/_design/d/_view/v", "read _users _design/d v"),
            ("POST", "/db/_find", "find db"),
            ("POST", "/db/_partition/p/_find", "find db"),
            ("POST", "/db/_explain", "-"),
            ("GET", "/db/_changes?filter=d/f&since=1", "function db _design/d"),
            ("GET", "/db/_changes?filter=_view&view=d%2Fv", "function db _design/d"),
            ("GET", "/db/_changes?filter=_selector", "-"),
            ("GET", "/db/_changes?feed=continuous", "-"),
            ("GET", "/db/_design/d/_show/s/1", "function db _design/d"),
            ("PUT", "/db/_design/d/_update/u/1", "function db _design/d"),
            ("GET", "/db/_design/d/_info", "seen db _design/d"),
            ("GET", "/db/_design/d", "seen db _design/d"),
            ("GET", "/db/_design/d/logo.png", "seen db _design/d"),
            ("PUT", "/db/_design/d?rev=1-x", "written db _design/d"),
            ("DELETE", "/db/_design/d?rev=1-x", "written db _design/d"),
            ("GET", "/db/_design/d/_view/v?limit=0&update=lazy", "seen db _design/d"),
            ("OPTIONS", "/db/_design/d/_view/v", "-"),
            ("GET", "/db/_all_docs?startkey=%22_design/%22", "-"),
            ("GET", "/db/doc/_design", "-"),
            ("GET", "/DB/_design/d/_view/v", "-"),
            ("GET", "/_design/d/_view/v", "-"),
            ("GET", "/db/_design/d/_view", "-"),
            ("GET", "/db/_design/%ff/_view/v", "-"),
            ("GET", "/db/_design/%zz/_view/%", "read db _design/%zz %"),
            ("GET", "", "-"),
        ] {
            assert_eq!(of(method, path), expected, "{method} {path}");
        }
        assert_eq!(used(b"GET", b"/db/_design/d/_view/v", Agent::Own), None);
    }

    #[test]
    fn paths_with_overlong_names_are_ignored() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        assert_eq!(of("GET", &format!("/db/_design/{long}/_view/v")), "-");
        assert_eq!(of("GET", &format!("/db/_design/d/_view/{long}")), "-");
        assert_eq!(of("GET", &format!("/{long}/_design/d/_view/v")), "-");
    }
}
