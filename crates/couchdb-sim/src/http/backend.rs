//! Routes that a node forwards to the older interface of the named node: its files, its tasks, and the
//! shard map.

use super::{
    answer::{Answer, Routed, accepted, error, illegal_name, json, not_found, wrong_method},
    ask::ParsedRequest,
    server::shown_task,
};
use crate::{
    cluster::Inner,
    config::legal_name,
    design::revision,
    world::{ShardInfo, ShardMapEntry},
};
use http::Method;
use serde::Serialize;
use serde_json::{Value, json as value};
use std::collections::BTreeMap;

/// Routes of one node's own interface.
pub(super) fn route(inner: &mut Inner, ask: &ParsedRequest, node: &str, rest: &[&str]) -> Routed {
    let get = ask.method == Method::GET;
    match rest {
        ["_all_dbs"] if get => all_files(inner, node).into(),
        ["_active_tasks"] if get => {
            let tasks = inner.world.tasks();
            let on_node = tasks.iter().filter(|task| task.node == node);
            let tasks: Vec<Value> = on_node.map(|task| shown_task(task, ask, false)).collect();
            json(200, &tasks).behind().into()
        }
        ["_dbs", "_all_docs"] if get => map_documents(inner, ask).into(),
        ["_dbs", "_changes"] if get => super::feed::map_changes(inner, ask),
        ["_dbs", "_compact"] => start(inner, ask, node, "_dbs", &[]).into(),
        ["_dbs", id] if get => map_document(inner, id).into(),
        [] => super::server::root_behind(inner, node).into(),
        [file, rest @ ..] => self::file(inner, ask, node, file, rest).into(),
    }
}

/// Routes of one database file.
fn file(inner: &mut Inner, ask: &ParsedRequest, node: &str, file: &str, rest: &[&str]) -> Answer {
    let is_file_name = matches!(file, "_dbs" | "_nodes" | "_users") || file.starts_with("shards/");
    if !is_file_name && !legal_name(file) {
        return illegal_name(file).behind();
    }
    let post = ask.method == Method::POST;
    match rest {
        ["_compact", ddoc @ ..] if post => start(inner, ask, node, file, ddoc),
        ["_design", ddoc, "_compact"] if post => start(inner, ask, node, file, &[ddoc]),
        _ if inner.world.shard(node, file).is_none() => not_found("no_db_file").behind(),
        ["_view_cleanup"] if post => {
            inner.world.clean_up_at(node, file);
            accepted().behind()
        }
        ["_compact" | "_view_cleanup", ..] | ["_design", _, "_compact"] => {
            wrong_method("POST").behind()
        }
        _ if ask.method != Method::GET => wrong_method("GET,HEAD").behind(),
        [] if inner.world.is_locked(file) => error(500, "locked", "shard splitting").behind(),
        [] => inner.world.shard(node, file).map_or_else(
            || not_found("no_db_file").behind(),
            |info| json(200, &Shown::from(&info)).behind(),
        ),
        ["_design_docs"] => super::database::shard_design_docs(inner, ask, file).behind(),
        ["_design", ddoc, "_info"] => match inner.world.node_view(node, file, ddoc) {
            Some(info) => {
                let mut index = info.shown();
                index.insert("update_options".to_owned(), value!([]));
                index.insert("pending_updates".to_owned(), info.pending.into());
                json(200, &value!({"name": ddoc, "view_index": index}))
            }
            None => not_found("missing").behind(),
        },
        _ => not_found("missing").behind(),
    }
}

fn start(inner: &mut Inner, ask: &ParsedRequest, node: &str, file: &str, ddoc: &[&str]) -> Answer {
    if ask.method != Method::POST {
        return wrong_method("POST").behind();
    }
    if inner.world.shard(node, file).is_none() {
        return not_found("no_db_file").behind();
    }
    if !ask.is_json() {
        let reason = "Content-Type must be application/json";
        return error(415, "bad_content_type", reason).behind();
    }
    let started = match ddoc {
        [] => inner.world.compact(node, file),
        [ddoc, ..] => {
            let view = inner.world.node_view(node, file, ddoc);
            view.and_then(|_| inner.world.compact_view(node, file, ddoc))
        }
    };
    match (started, ddoc) {
        (None, _) => not_found("missing").behind(),
        (Some(_), []) => accepted().behind(),
        (Some(_), _) => accepted(),
    }
}

/// A shard's state in CouchDB's format.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    info: &'a ShardInfo,
    engine: &'static str,
    purge_seq: u64,
    disk_format_version: u8,
    committed_update_seq: u64,
    props: Empty,
}

/// The empty JSON object.
#[derive(Serialize)]
struct Empty {}

impl<'a> From<&'a ShardInfo> for Shown<'a> {
    fn from(info: &'a ShardInfo) -> Self {
        Self {
            info,
            engine: "couch_bt_engine",
            purge_seq: 0,
            disk_format_version: 8,
            committed_update_seq: info.update_seq,
            props: Empty {},
        }
    }
}

fn all_files(inner: &Inner, node: &str) -> Answer {
    let mut names = Vec::new();
    match inner.world.each_file(node, |name| names.push(name.to_owned())) {
        Some(()) => json(200, &names).behind(),
        None => not_found("missing").behind(),
    }
}

/// A document of the shard map.
#[derive(Serialize)]
struct MapDocument<'a> {
    _id: &'a str,
    _rev: String,
    shard_suffix: &'a [u8],
    changelog: Vec<(&'static str, String, &'a str)>,
    by_node: BTreeMap<&'a str, Vec<String>>,
    by_range: BTreeMap<String, &'a [String]>,
    props: Empty,
}

impl<'a> From<&'a ShardMapEntry> for MapDocument<'a> {
    fn from(mapped: &'a ShardMapEntry) -> Self {
        let mut changelog = Vec::new();
        let mut by_node: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut by_range = BTreeMap::new();
        for (range, nodes) in &mapped.ranges {
            let range = range.to_string();
            for node in nodes {
                changelog.push(("add", range.clone(), node.as_str()));
                by_node.entry(node).or_default().push(range.clone());
            }
            by_range.insert(range, nodes.as_slice());
        }
        Self {
            _id: &mapped.name,
            _rev: revision(&mapped.name),
            shard_suffix: mapped.suffix.as_bytes(),
            changelog,
            by_node,
            by_range,
            props: Empty {},
        }
    }
}

fn map_document(inner: &Inner, id: &str) -> Answer {
    match inner.world.map_entry_of(id) {
        Some(mapped) => {
            json(200, &MapDocument::from(&mapped)).behind().tagged(&revision(&mapped.name))
        }
        None => not_found("missing").behind(),
    }
}

fn map_documents(inner: &Inner, ask: &ParsedRequest) -> Answer {
    let Ok(page) = ask.page() else {
        return error(400, "query_parse_error", "Invalid value for integer").behind();
    };
    let with_docs = ask.is_true("include_docs");
    let rows: Vec<Value> = page
        .of(inner.world.shard_map(&page.start), |mapped| &mapped.name)
        .map(|mapped| {
            let rev = revision(&mapped.name);
            let mut row = value!({"id": mapped.name, "key": mapped.name, "value": {"rev": rev}});
            if let Some(row) = row.as_object_mut().filter(|_| with_docs) {
                row.insert("doc".to_owned(), value!(MapDocument::from(&mapped)));
            }
            row
        })
        .collect();
    let total = inner.world.database_count();
    let offset = inner.world.rank_of(&page.start).saturating_add(page.skip as u64).min(total);
    json(200, &value!({"total_rows": total, "offset": offset, "rows": rows})).behind()
}
