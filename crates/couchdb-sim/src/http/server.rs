//! Routes of the server as a whole.

use super::{
    admin_only,
    answer::{Answer, accepted, error, json, not_found, wrong_method},
    ask::ParsedRequest,
    database::info,
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
use serde_json::{Value, json as value};

/// The maximum number of keys of `_dbs_info` (`[chttpd] max_db_number_for_dbs_info_req`).
const MAX_KEYS: usize = 100;

/// The response to `GET /`, from a node.
pub(super) fn root(inner: &Inner, node: &str) -> Answer {
    let version = inner.world.version_of(node);
    let mut features =
        vec!["access-ready", "partitioned", "pluggable-storage-engines", "reshard", "scheduler"];
    if version >= V3_4_0 {
        features.insert(0, "quickjs");
    }
    if super::search::has(inner, node, Engine::Nouveau) {
        features.insert(0, "nouveau");
    }
    if super::search::has(inner, node, Engine::Clouseau) {
        features.insert(0, "search");
    }
    json(
        200,
        &value!({
            "couchdb": "Welcome",
            "version": version.to_string(),
            "git_sha": "simulated",
            "uuid": format!("{:032x}", inner.world.node_uuid(node)),
            "features": features,
            "vendor": {"name": "recliner's simulator"},
        }),
    )
}

/// The same response from a node's older interface.
pub(super) fn root_behind(inner: &Inner, node: &str) -> Answer {
    let version = inner.world.version_of(node);
    let welcome = value!({
        "couchdb": "Welcome",
        "uuid": format!("{:032x}", inner.world.node_uuid(node)),
        "version": version.to_string(),
        "vendor": {"name": "recliner's simulator"},
    });
    json(200, &welcome).behind()
}

/// The reason of an illegal database name, which older servers return for unknown paths.
pub(super) fn illegal_name(name: &str) -> Answer {
    let reason = format!(
        "Name: '{name}'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."
    );
    error(400, "illegal_database_name", &reason)
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
        ["_membership" | "_all_dbs" | "_dbs_info" | "_active_tasks" | "_reshard", ..]
            if !ask.login.is_admin() =>
        {
            admin_only(ask).unwrap_or_else(accepted)
        }
        ["_dbs_info"] if get || ask.method == Method::POST => dbs_info(inner, ask),
        ["_membership" | "_all_dbs" | "_active_tasks" | "_dbs_info" | "_reshard", ..] if !get => {
            wrong_method("GET,HEAD")
        }
        ["_membership"] => membership(inner),
        ["_all_dbs"] => all_dbs(inner, ask),
        ["_active_tasks"] => {
            let tasks: Vec<Value> =
                inner.world.tasks().iter().map(|task| shown_task(task, ask, true)).collect();
            json(200, &tasks)
        }
        ["_reshard"] => {
            let running = inner.world.split_jobs().len();
            json(
                200,
                &value!({
                    "state": "running", "state_reason": null, "completed": 0, "failed": 0,
                    "running": running, "stopped": 0, "total": running,
                }),
            )
        }
        ["_reshard", "jobs"] => reshard_jobs(inner, ask),
        ["_reshard", ..] => not_found("missing"),
        // `_users` and similar names are databases if they exist.
        [name, ..] if legal_name(name) => not_found("Database does not exist."),
        [name, ..] => illegal_name(name),
        [] => not_found("missing"),
    }
}

/// Whether databases are listed to users who are not an admin.
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

/// The login of a request. `_session` of a node behind another one returns the same.
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
    let start = ask.json_text(&["startkey", "start_key"]).unwrap_or_default();
    let end = ask.json_text(&["endkey", "end_key"]);
    let limit = ask.number("limit").ok().flatten().and_then(|limit| usize::try_from(limit).ok());
    let skip = ask.number("skip").ok().flatten().and_then(|skip| usize::try_from(skip).ok());
    let names: Vec<String> = inner
        .world
        .databases_from(&start)
        .skip(skip.unwrap_or(0))
        .take_while(|name| end.as_ref().is_none_or(|end| name <= end))
        .take(limit.unwrap_or(usize::MAX))
        .collect();
    json(200, &names).chunked().tagged(tag(names.len() as u64))
}

/// An entity tag as CouchDB makes them: 25 characters of base 36.
pub(super) fn tag(of: u64) -> String {
    const DIGITS: &[u8; 36] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let digit = |at: u64| DIGITS.get((mix(of, at) % 36) as usize).copied().map_or('0', char::from);
    (0..25).map(digit).collect()
}

fn dbs_info(inner: &Inner, ask: &ParsedRequest) -> Answer {
    let entry = |name: &str| match inner.world.database_info(name) {
        Ok(known) => value!({"key": name, "info": info(name, &known)}),
        Err(_) => value!({"key": name, "error": "not_found"}),
    };
    if ask.method == Method::GET {
        let entries: Vec<Value> = inner.world.databases().map(|name| entry(&name)).collect();
        return json(200, &entries).chunked();
    }
    if !ask.is_json() {
        return error(415, "bad_content_type", "Content-Type must be application/json");
    }
    let body: Option<Value> = serde_json::from_slice(&ask.body).ok();
    let keys = body.as_ref().and_then(|body| body.get("keys")).and_then(Value::as_array);
    let Some(keys) = keys else {
        return error(400, "bad_request", "`keys` member must exist.");
    };
    if keys.len() > MAX_KEYS {
        return error(400, "bad_request", "`keys` exceeds the maximum of 100.");
    }
    let entries: Vec<Value> = keys.iter().filter_map(Value::as_str).map(entry).collect();
    json(200, &entries).chunked()
}

/// One entry of `_active_tasks`; `with_node` in the cluster's list only.
pub(super) fn shown_task(task: &Task, ask: &ParsedRequest, with_node: bool) -> Value {
    let unix = |at: std::time::Duration| ask.wall_start.saturating_add(at.as_secs());
    let pid = format!("<0.{}.{}>", task.process, task.process % 7);
    let progress =
        (task.changes_done.saturating_mul(100)).checked_div(task.total_changes).unwrap_or(0);
    let mut shown = value!({
        "pid": pid,
        "process_status": "running",
        "database": task.shard,
        "progress": progress,
        "changes_done": task.changes_done,
        "total_changes": task.total_changes,
        "started_on": unix(task.started),
        "updated_on": unix(task.updated),
    });
    if let Some(fields) = shown.as_object_mut() {
        let mut set = |key: &str, value: Value| fields.insert(key.to_owned(), value);
        if with_node {
            set("node", task.node.clone().into());
        }
        match &task.kind {
            TaskKind::Database { phase } => {
                set("type", "database_compaction".into());
                set("phase", (*phase).into());
            }
            TaskKind::View { ddoc, phase, view } => {
                set("type", "view_compaction".into());
                set("design_document", ddoc.clone().into());
                set("phase", (*phase).into());
                set("view", value!(view));
            }
            TaskKind::Search { ddoc, index } => {
                set("type", "search_indexer".into());
                set("design_document", ddoc.clone().into());
                set("index", index.clone().into());
            }
            TaskKind::Indexer { ddoc } => {
                set("type", "indexer".into());
                set("design_document", ddoc.clone().into());
                set("indexer_pid", pid.into());
            }
        }
    }
    shown
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
