//! Routes of one database.

use super::{
    answer::{Answer, Routed, accepted, error, illegal_name, json, not_found, wrong_method},
    ask::ParsedRequest,
};
use crate::{
    cluster::Inner,
    config::{Design, legal_name},
    design::{document, reduces, rev_of, saved_over},
    growth::mix,
    world::{DatabaseInfo, LookupError},
};
use couchdb_names::ShardName;
use http::Method;
use serde_json::{Value, json as value};
use std::collections::BTreeMap;

/// An opaque cluster sequence: a number, and a hash in place of the shards' own sequences.
pub(super) fn packed(seq: u64) -> String {
    format!("{seq}-g1AAAA{:016x}{:016x}", mix(seq, 1), mix(seq, 2))
}

/// The response to `GET /{db}`.
fn info(name: &str, db: &DatabaseInfo) -> Value {
    let quorum = db.n / 2 + 1;
    value!({
        "instance_start_time": db.created.to_string(),
        "db_name": name,
        "purge_seq": packed(0),
        "update_seq": packed(db.seq),
        "sizes": db.sizes,
        "props": {},
        "doc_del_count": db.deleted,
        "doc_count": db.docs,
        "disk_format_version": 8,
        "compact_running": db.compact_running,
        "cluster": {"q": db.q, "n": db.n, "w": quorum, "r": quorum},
    })
}

fn lookup_error(lookup_error: LookupError) -> Answer {
    match lookup_error {
        LookupError::Database => not_found("Database does not exist."),
        LookupError::Design => not_found("missing"),
        LookupError::Range => error(500, "nodedown", "progress not possible"),
    }
}

/// The refusal of a request without the needed rights; `None`: it may proceed.
fn refused(ask: &ParsedRequest, allowed: bool) -> Option<Answer> {
    if allowed {
        return None;
    }
    let reason = "You are not authorized to access this db.";
    Some(match ask.login.user() {
        None => error(401, "unauthorized", reason),
        Some(_) => error(403, "forbidden", "You are not allowed to access this db."),
    })
}

/// Routes below `/{db}`.
pub(super) fn route(inner: &mut Inner, ask: &ParsedRequest, db: &str, rest: &[&str]) -> Routed {
    let may_read = inner.world.description(db).is_some() && ask.login.is_member(db);
    let search = may_read && ask.method == Method::GET;
    if let Some(routed) = search.then(|| super::search::route(inner, ask, db, rest)).flatten() {
        return routed;
    }
    own(inner, ask, db, rest).into()
}

fn own(inner: &mut Inner, ask: &ParsedRequest, db: &str, rest: &[&str]) -> Answer {
    let close = !ask.body.is_empty();
    if !legal_name(db) && !db.starts_with("shards/") {
        return illegal_name(db);
    }
    if inner.world.description(db).is_none() {
        return not_found("Database does not exist.").closing(close);
    }
    if let Some(refused) = refused(ask, ask.login.is_member(db)) {
        return refused.closing(close);
    }
    let get = ask.method == Method::GET;
    let post = ask.method == Method::POST;
    match rest {
        ["_compact" | "_view_cleanup", ..] => {
            let answer = if post { start(inner, ask, db, rest) } else { wrong_method("POST") };
            answer.closing(close)
        }
        ["_design", ddoc] if [Method::PUT, Method::DELETE].contains(&ask.method) => {
            change_design(inner, ask, db, ddoc)
        }
        _ if !get => wrong_method("GET,HEAD"),
        [] => inner
            .world
            .database_info(db)
            .map_or_else(lookup_error, |known| json(200, &info(db, &known))),
        ["_shards"] => shards(inner, db),
        ["_shards", doc] | ["_shards", "_design", doc] => {
            let id = if rest.len() == 3 { format!("_design/{doc}") } else { (*doc).to_owned() };
            shard_of(inner, db, &id)
        }
        ["_design_docs"] => design_docs(inner, ask, db),
        ["_design", ddoc] => design_document(inner, db, ddoc),
        ["_design", ddoc, "_info"] => view_info(inner, db, ddoc),
        ["_design", ddoc, "_view", view] => view_rows(inner, ask, db, ddoc, view),
        _ => not_found("missing"),
    }
}

/// Saves or deletes a design document over the revision that the request names.
fn change_design(inner: &mut Inner, ask: &ParsedRequest, db: &str, ddoc: &str) -> Answer {
    if !ask.login.is_admin() {
        return error(403, "forbidden", "You are not a db or server admin.");
    }
    let body = match ask.method {
        Method::PUT => match serde_json::from_slice::<Value>(&ask.body) {
            Ok(Value::Object(body)) => Some(body),
            Ok(_) => return error(400, "bad_request", "Document must be a JSON object"),
            Err(_) => return error(400, "bad_request", "invalid UTF-8 JSON"),
        },
        _ => None,
    };
    let designs = inner.world.description(db).map_or(&[][..], |like| &like.designs);
    let old = designs.iter().find(|design| design.name == ddoc);
    if old.is_none() && body.is_none() {
        return not_found("deleted");
    }
    let in_body = body.as_ref().and_then(|it| it.get("_rev")?.as_str());
    if ask.param("rev").or(in_body) != old.map(rev_of).as_deref() {
        return error(409, "conflict", "Document update conflict.");
    }
    let at = u64::try_from(inner.world.now().as_micros()).unwrap_or(u64::MAX);
    let status = if body.is_some() { 201 } else { 200 };
    let (design, rev) = match body {
        Some(body) => {
            let (design, rev) = saved_over(old, ddoc, body, at);
            (Some(design), rev)
        }
        None => (None, format!("9-{:032x}", mix(at, 3))),
    };
    inner.world.change_design(db, ddoc, design);
    json(status, &value!({"ok": true, "id": format!("_design/{ddoc}"), "rev": rev}))
}

fn start(inner: &mut Inner, ask: &ParsedRequest, db: &str, rest: &[&str]) -> Answer {
    if !ask.login.is_admin() {
        return error(401, "unauthorized", "You are not a db or server admin.");
    }
    if !ask.is_json() && rest.first() == Some(&"_compact") {
        return error(415, "bad_content_type", "Content-Type must be application/json");
    }
    let started = match rest {
        ["_compact"] => inner.world.compact_all(db),
        ["_compact", ddoc, ..] => inner.world.compact_all_views(db, ddoc),
        _ => {
            inner.world.clean_up(db);
            Ok(())
        }
    };
    started.map_or_else(lookup_error, |()| accepted())
}

fn shards(inner: &Inner, db: &str) -> Answer {
    let Some(mapped) = inner.world.map_entry_of(db) else {
        return lookup_error(LookupError::Database);
    };
    let ranges: BTreeMap<String, Vec<String>> =
        mapped.ranges.into_iter().map(|(range, nodes)| (range.to_string(), nodes)).collect();
    json(200, &value!({"shards": ranges})).behind()
}

fn shard_of(inner: &Inner, db: &str, doc: &str) -> Answer {
    let range = inner.world.range_of(db, doc);
    let mapped = inner.world.map_entry_of(db);
    let entry = mapped
        .and_then(|mapped| mapped.ranges.into_iter().find(|(other, _)| Some(*other) == range));
    let Some((range, nodes)) = entry else { return lookup_error(LookupError::Database) };
    json(200, &value!({"range": range.to_string(), "nodes": nodes}))
}

fn design_docs(inner: &Inner, ask: &ParsedRequest, db: &str) -> Answer {
    design_rows(inner, ask, db, |_| true)
}

/// The design documents in one range of a database, given by the name of a shard.
pub(super) fn shard_design_docs(inner: &Inner, ask: &ParsedRequest, file: &str) -> Answer {
    let Some(shard) = ShardName::split(file) else {
        return json(200, &value!({"total_rows": 0, "offset": 0, "rows": []})).chunked();
    };
    let is_here = |design: &Design| {
        inner.world.range_of(shard.db, &format!("_design/{}", design.name)) == Some(shard.range)
    };
    design_rows(inner, ask, shard.db, is_here)
}

fn design_rows(
    inner: &Inner,
    ask: &ParsedRequest,
    db: &str,
    is_included: impl Fn(&Design) -> bool,
) -> Answer {
    let mut designs: Vec<&Design> =
        inner.world.description(db).map_or_else(Vec::new, |like| like.designs.iter().collect());
    designs.retain(|design| is_included(design));
    designs.sort_by(|a, b| a.name.cmp(&b.name));
    let total = designs.len();
    let Ok(page) = ask.page() else {
        return error(400, "query_parse_error", "Invalid value for integer");
    };
    let named = designs.iter().map(|design| (design, format!("_design/{}", design.name)));
    let named = named.filter(|(_, id)| *id >= page.start);
    let rows: Vec<Value> = page
        .of(named, |(_, id)| id)
        .map(|(design, id)| {
            let mut row = value!({"id": id, "key": id, "value": {"rev": rev_of(design)}});
            if let Some(row) = row.as_object_mut().filter(|_| ask.is_true("include_docs")) {
                row.insert("doc".to_owned(), document(design).into());
            }
            row
        })
        .collect();
    json(200, &value!({"total_rows": total, "offset": 0, "rows": rows})).chunked()
}

fn design_document(inner: &Inner, db: &str, ddoc: &str) -> Answer {
    let Some(described) = inner.world.description(db) else {
        return lookup_error(LookupError::Database);
    };
    let design = described.designs.iter().find(|design| design.name == ddoc);
    design.map_or_else(|| not_found("missing"), |design| json(200, &Value::from(document(design))))
}

fn view_info(inner: &Inner, db: &str, ddoc: &str) -> Answer {
    let view = match inner.world.cluster_view(db, ddoc) {
        Ok(view) => view,
        Err(why) => return lookup_error(why),
    };
    let mut index = view.shown();
    let pending = view.pending;
    // Counts only the copies in use, about half of which are the preferred ones.
    let of = value!({"minimum": pending, "preferred": pending / 2, "total": pending});
    index.insert("updates_pending".to_owned(), of);
    json(200, &value!({"name": ddoc, "view_index": index}))
}

/// A view's response never has rows and never waits for a build; only the start of a build is simulated.
fn view_rows(inner: &mut Inner, ask: &ParsedRequest, db: &str, ddoc: &str, view: &str) -> Answer {
    let designs = inner.world.description(db).map_or(&[][..], |like| &like.designs);
    let Some(design) = designs.iter().find(|design| design.name == ddoc) else {
        return lookup_error(LookupError::Design);
    };
    if !design.views.iter().any(|known| known == view) {
        return not_found("missing_named_view");
    }
    let reduces = reduces(design);
    if ask.param("update") != Some("false") {
        inner.world.build(db, ddoc);
    }
    if reduces {
        return json(200, &value!({"rows": []})).chunked();
    }
    let docs = inner.world.database_info(db).map_or(0, |known| known.docs);
    json(200, &value!({"total_rows": docs, "offset": 0, "rows": []})).chunked()
}
