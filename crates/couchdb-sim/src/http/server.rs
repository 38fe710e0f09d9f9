//! Routes of the server as a whole.

use super::{
    answer::{Answer, accepted, error, illegal_name, json, not_found, tag, wrong_method},
    ask::ParsedRequest,
};
use crate::{
    cluster::Inner,
    config::{V3_4_0, legal_name},
    growth::mix,
    session::{self, LoginBodyError},
    world::{Task, TaskKind},
};
use couchdb_names::Engine;
use http::Method;
use serde_json::{Map, Value, json as value};

/// What both interfaces of a node return at `/`.
fn welcome(inner: &Inner, node: &str) -> Map<String, Value> {
    let mut welcome = Map::new();
    let mut set = |key: &str, value: Value| welcome.insert(key.to_owned(), value);
    set("couchdb", "Welcome".into());
    set("version", inner.world.version_of(node).to_string().into());
    set("uuid", format!("{:032x}", inner.world.node_uuid(node)).into());
    set("vendor", value!({"name": "recliner's simulator"}));
    welcome
}

/// A node's response to `GET /`.
pub(super) fn root(inner: &Inner, node: &str) -> Answer {
    let has = |engine| super::search::has(inner, node, engine);
    let optional = [
        (has(Engine::Clouseau), "search"),
        (has(Engine::Nouveau), "nouveau"),
        (inner.world.version_of(node) >= V3_4_0, "quickjs"),
    ];
    let optional = optional.into_iter().filter(|(is, _)| *is).map(|(_, name)| name);
    let features =
        ["access-ready", "partitioned", "pluggable-storage-engines", "reshard", "scheduler"];
    let features: Vec<&str> = optional.chain(features).collect();
    let mut welcome = welcome(inner, node);
    welcome.insert("git_sha".to_owned(), "simulated".into());
    welcome.insert("features".to_owned(), features.into());
    json(200, &welcome)
}

/// The response to `GET /` from a node's older interface.
pub(super) fn root_behind(inner: &Inner, node: &str) -> Answer {
    json(200, &welcome(inner, node)).behind()
}

/// Routes whose first segment begins with an underscore.
pub(super) fn route(inner: &mut Inner, ask: &ParsedRequest, segments: &[&str]) -> Answer {
    let get = ask.method == Method::GET;
    match segments {
        ["_up"] if get => up(inner, ask),
        ["_session"] if get => session(inner, ask),
        ["_session"] if ask.method == Method::POST => begin_session(ask),
        ["_session"] => wrong_method("GET,HEAD,POST,DELETE"),
        ["_up"] => wrong_method("GET,HEAD"),
        ["_all_dbs"] if get && lists_for_all(inner, ask) => all_dbs(inner, ask),
        ["_membership" | "_all_dbs" | "_active_tasks" | "_reshard", ..]
            if !ask.login.is_admin() =>
        {
            ask.admin_only().unwrap_or_else(accepted)
        }
        ["_membership" | "_all_dbs" | "_active_tasks" | "_reshard", ..] if !get => {
            wrong_method("GET,HEAD")
        }
        ["_membership"] => membership(inner),
        ["_all_dbs"] => all_dbs(inner, ask),
        ["_active_tasks"] => {
            let tasks: Vec<Value> =
                inner.world.tasks().iter().map(|task| shown_task(task, ask, true)).collect();
            json(200, &tasks)
        }
        ["_reshard", "jobs"] => reshard_jobs(inner, ask),
        ["_reshard", ..] => not_found("missing"),
        // `_users` and similar names are databases if they exist.
        [name, ..] if legal_name(name) => not_found("Database does not exist."),
        [name, ..] => illegal_name(name),
        [] => not_found("missing"),
    }
}

/// Whether users who are not admins may list the databases.
fn lists_for_all(inner: &Inner, ask: &ParsedRequest) -> bool {
    inner.world.setting(&ask.node, "chttpd", "admin_only_all_dbs") == Some("false")
}

fn up(inner: &Inner, ask: &ParsedRequest) -> Answer {
    match inner.world.setting(&ask.node, "couchdb", "maintenance_mode") {
        Some("true") => json(404, &value!({"status": "maintenance_mode"})),
        Some("nolb") => json(404, &value!({"status": "nolb"})),
        _ => json(200, &value!({"status": "ok", "seeds": {}})),
    }
}

/// The login of a request. A node that gets a forwarded `_session` returns the same.
pub(super) fn session(inner: &Inner, ask: &ParsedRequest) -> Answer {
    let name = ask.login.user().map(|user| user.name.as_str());
    let handlers = inner.world.setting(&ask.node, "chttpd", "authentication_handlers");
    let cookie = handlers.is_none_or(|all| all.contains("cookie_authentication_handler"));
    let handlers = if cookie { value!(["cookie", "default"]) } else { value!(["default"]) };
    let mut info = value!({"authentication_handlers": handlers});
    if let (Some(info), Some(handler)) = (info.as_object_mut(), ask.login.handler()) {
        info.insert("authenticated".to_owned(), handler.into());
    }
    let context = value!({"name": name, "roles": ask.login.roles()});
    json(200, &value!({"ok": true, "userCtx": context, "info": info}))
}

/// A request that arrives here has the correct password, or none.
fn begin_session(ask: &ParsedRequest) -> Answer {
    match session::form(ask.content_type.as_deref(), &ask.body) {
        Ok((name, _)) => json(200, &value!({"ok": true, "name": name, "roles": ask.login.roles()})),
        Err(LoginBodyError::ContentType) => {
            let reason =
                "Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'";
            error(415, "bad_content_type", reason)
        }
        Err(LoginBodyError::Json) => error(400, "bad_request", "invalid UTF-8 JSON"),
        Err(LoginBodyError::NoName) => {
            error(400, "bad_request", "request body must contain a username")
        }
    }
}

fn membership(inner: &Inner) -> Answer {
    let all = inner.world.nodes();
    let now = inner.world.now();
    let is_up = |node: &&String| {
        inner.world.node_up(node) == Some(true) && !inner.planned.is_given_up(node, now)
    };
    let up: Vec<&String> = all.iter().filter(is_up).collect();
    json(200, &value!({"all_nodes": up, "cluster_nodes": all})).behind()
}

fn all_dbs(inner: &Inner, ask: &ParsedRequest) -> Answer {
    let Ok(page) = ask.page() else {
        return error(400, "query_parse_error", "Invalid value for integer");
    };
    let names: Vec<String> =
        page.of(inner.world.databases_from(&page.start), String::as_str).collect();
    json(200, &names).chunked().tagged(&tag(names.len() as u64))
}

/// One entry of `_active_tasks`; only the cluster's list names the node.
pub(super) fn shown_task(task: &Task, ask: &ParsedRequest, with_node: bool) -> Value {
    let unix = |at: std::time::Duration| ask.wall_start.saturating_add(at.as_secs());
    let pid = format!("<0.{}.{}>", task.process, task.process % 7);
    let progress =
        (task.changes_done.saturating_mul(100)).checked_div(task.total_changes).unwrap_or(0);
    let mut entry = value!({
        "pid": pid,
        "process_status": "running",
        "database": task.shard,
        "progress": progress,
        "changes_done": task.changes_done,
        "total_changes": task.total_changes,
        "started_on": unix(task.started),
        "updated_on": unix(task.updated),
    });
    let kind_fields = match &task.kind {
        TaskKind::Database { phase } => value!({"type": "database_compaction", "phase": phase}),
        TaskKind::View { ddoc, phase, view } => value!({
            "type": "view_compaction", "design_document": ddoc, "phase": phase, "view": view,
        }),
        TaskKind::Search { ddoc, index } => {
            value!({"type": "search_indexer", "design_document": ddoc, "index": index})
        }
        TaskKind::Indexer { ddoc } => {
            value!({"type": "indexer", "design_document": ddoc, "indexer_pid": pid})
        }
    };
    if let (Some(fields), Value::Object(kind_fields)) = (entry.as_object_mut(), kind_fields) {
        fields.extend(kind_fields);
        fields.extend(with_node.then(|| ("node".to_owned(), task.node.clone().into())));
    }
    entry
}

fn reshard_jobs(inner: &Inner, ask: &ParsedRequest) -> Answer {
    let jobs: Vec<Value> = (0_u64..)
        .zip(inner.world.split_jobs())
        .map(|(at, split)| {
            value!({
                "id": format!("001-{:064x}", mix(at, 17)),
                "type": "split",
                "source": split.source,
                "target": split.targets,
                "job_state": "running",
                "split_state": "initial_copy",
                "state_info": {},
                "node": split.node,
                "start_time": ask.wall_start,
                "update_time": ask.wall_start,
                "history": [{"type": "new", "timestamp": ask.wall_start, "detail": null}],
            })
        })
        .collect();
    json(200, &value!({"total_rows": jobs.len(), "offset": 0, "jobs": jobs}))
}
