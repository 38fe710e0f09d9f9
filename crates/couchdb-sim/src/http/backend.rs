//! Routes that a node forwards to the older interface of the named node: its files, its tasks, and the
//! shard map.

use super::{
    Routed,
    answer::{Answer, accepted, error, json, not_found, wrong_method},
    ask::ParsedRequest,
    server::{illegal_name, shown_task},
};
use crate::{
    cluster::Inner,
    config::legal_name,
    design::revision,
    world::{ShardInfo, ShardMapEntry, Sizes, ViewInfo},
};
use http::Method;
use serde::Serialize;
use serde_json::{Map, Value, json as value};
use std::collections::BTreeMap;

/// Routes of one node's own interface.
pub(super) fn route(inner: &mut Inner, ask: &ParsedRequest, node: &str, rest: &[&str]) -> Routed {
    let get = ask.method == Method::GET;
    match rest {
        ["_all_dbs"] if get => all_files(inner, node).into(),
        ["_active_tasks"] if get => {
            let tasks = inner.world.tasks();
            let own = tasks.iter().filter(|task| task.node == node);
            let tasks: Vec<Value> = own.map(|task| shown_task(task, ask, false)).collect();
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

/// Routes of one file.
fn file(inner: &mut Inner, ask: &ParsedRequest, node: &str, file: &str, rest: &[&str]) -> Answer {
    let known = matches!(file, "_dbs" | "_nodes" | "_users") || file.starts_with("shards/");
    if !known && !legal_name(file) {
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
        ["_design", ddoc, "_info"] => match inner.world.node_view(node, file, ddoc) {
            Some(info) => {
                let mut index = index_fields(&info);
                index.insert("update_options".to_owned(), value!([]));
                index.insert("pending_updates".to_owned(), info.pending.into());
                json(200, &value!({"name": ddoc, "view_index": index}))
            }
            None => not_found("missing").behind(),
        },
        _ => not_found("missing").behind(),
    }
}

/// The `_info` of an index, from the cluster or from a node.
pub(super) fn index_fields(info: &ViewInfo) -> Map<String, Value> {
    let fields = value!({
        "signature": info.signature.to_string(),
        "language": info.language,
        "sizes": {
            "file": info.sizes.file, "active": info.sizes.active, "external": info.sizes.external
        },
        "update_seq": info.update_seq,
        "purge_seq": 0,
        "collator_versions": info.collators,
        "updater_running": info.updater_running,
        "compact_running": info.compact_running,
        "waiting_commit": false,
        "waiting_clients": 0,
    });
    if let Value::Object(fields) = fields { fields } else { Map::new() }
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

/// A shard's state with CouchDB's field names.
#[derive(Serialize)]
struct Shown<'a> {
    db_name: &'a str,
    engine: &'static str,
    doc_count: u64,
    doc_del_count: u64,
    update_seq: u64,
    purge_seq: u64,
    compact_running: bool,
    sizes: ShownSizes,
    instance_start_time: String,
    disk_format_version: u8,
    committed_update_seq: u64,
    compacted_seq: u64,
    props: Empty,
    uuid: String,
}

#[derive(Serialize)]
struct ShownSizes {
    active: u64,
    external: u64,
    file: u64,
}

/// `{}`.
#[derive(Serialize)]
struct Empty {}

impl<'a> From<&'a ShardInfo> for Shown<'a> {
    fn from(info: &'a ShardInfo) -> Self {
        let Sizes { file, active, external } = info.sizes;
        Self {
            db_name: &info.name,
            engine: "couch_bt_engine",
            doc_count: info.doc_count,
            doc_del_count: info.doc_del_count,
            update_seq: info.update_seq,
            purge_seq: 0,
            compact_running: info.compact_running,
            sizes: ShownSizes { active, external, file },
            instance_start_time: info.opened.to_string(),
            disk_format_version: 8,
            committed_update_seq: info.update_seq,
            compacted_seq: info.compacted_seq,
            props: Empty {},
            uuid: format!("{:032x}", info.uuid),
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
            json(200, &MapDocument::from(&mapped)).behind().tagged(revision(&mapped.name))
        }
        None => not_found("missing").behind(),
    }
}

fn map_documents(inner: &Inner, ask: &ParsedRequest) -> Answer {
    let (limit, skip) = match (ask.number("limit"), ask.number("skip")) {
        (Ok(limit), Ok(skip)) => (limit.unwrap_or(u64::MAX), skip.unwrap_or(0)),
        _ => return error(400, "query_parse_error", "Invalid value for integer").behind(),
    };
    let start = ask.json_text(&["startkey", "start_key"]).unwrap_or_default();
    let end = ask.json_text(&["endkey", "end_key"]);
    let size = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let with_docs = ask.is_true("include_docs");
    let rows: Vec<Value> = inner
        .world
        .shard_map(&start)
        .skip(size(skip))
        .take_while(|mapped| end.as_ref().is_none_or(|end| mapped.name <= *end))
        .take(size(limit))
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
    let offset = inner.world.rank_of(&start).saturating_add(skip).min(total);
    json(200, &value!({"total_rows": total, "offset": offset, "rows": rows})).behind()
}
