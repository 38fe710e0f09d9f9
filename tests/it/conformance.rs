//! The simulator compared with recorded responses of real CouchDB servers.
//!
//! Each request recorded in `crates/couchdb-client/tests/data/http/<version>/` is sent to a simulated cluster
//! in the same state. These must agree: status; keys and types of the body, recursively, in every array
//! element; content type, cache control and server to the letter; whether there are an entity tag, a
//! location, a request id, `connection: close`, chunks.

#![expect(clippy::wildcard_enum_match_arm, reason = "JSON will have no further kind of value")]

use axum::body::Body;
use couchdb_names::{Engine, Version};
use couchdb_sim::{Cluster, Config, Database, Design, Node, Search};
use http::{Method, Request, header};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value};
use std::{collections::BTreeSet, fs, path::Path, time::Duration};
use tower::ServiceExt as _;
use wall_clock::{Clock, Moment};

/// Parts of recordings that are not compared, with the reason.
const NOT_HELD: &[(&str, &str, &str)] = &[
    ("system", "/message_queues", "names of Erlang processes, which no client reads"),
    ("prometheus", "", "188 metrics, of which the simulator has a handful; the format is held"),
    ("smoosh_ratio_config", "", "settings are what someone set"),
    ("smoosh_config", "", "settings are what someone set"),
];

fn database(name: &str, q: u32, docs: u64, created: u64) -> Database {
    let created = Some(Moment::from_unix(created));
    Database { q, docs, created, compacted: 0.0, ..Database::new(name) }
}

/// A database with three search indexes: a built one, an unbuilt one, and one of clouseau's.
fn searched(created: u64) -> Database {
    let new = Search { built: 0.0, ..Search::new(Engine::Nouveau, "new") };
    let searches =
        vec![Search::new(Engine::Nouveau, "text"), new, Search::new(Engine::Clouseau, "c")];
    let design = Design { views: vec![], searches, ..Design::new("s") };
    Database { designs: vec![design], ..database("rec_search", 2, 1_400, created) }
}

/// A cluster like the recorded one.
fn cluster(version: &str, case: &str) -> Cluster {
    let recent = version == "3.5.0";
    let nodes: &[&str] = if recent {
        &["node4@127.0.0.1", "node5@127.0.0.1", "node6@127.0.0.1"]
    } else {
        &["node1@127.0.0.1"]
    };
    let created = if recent { 1_795_225_160 } else { 1_795_227_144 };
    let stats = Design { reduces: true, views: vec!["by_r".to_owned()], ..Design::new("stats") };
    let noauto = Design {
        autoupdate: false,
        built: 0.0,
        views: vec!["a".to_owned()],
        ..Design::new("noauto")
    };
    let mango = Design {
        language: "query".to_owned(),
        views: vec!["by-r".to_owned()],
        ..Design::new("mango")
    };
    let mut config = Config::new(nodes)
        .with(Database {
            designs: vec![stats.clone(), noauto, mango],
            bloat: 5.0,
            ..database("rec_app", 4, 403, created)
        })
        .with(Database { designs: vec![stats], ..database("rec_small", 1, 32, created) })
        .with(Database {
            placed_on: nodes.iter().take(2).map(|name| (*name).to_owned()).collect(),
            ..database("rec_app/slash", 2, 0, created)
        })
        .with(Database {
            designs: vec![Design::new("v")],
            bloat: 4.0,
            ..database("rec_big", 1, 119_999, created)
        })
        .with(database("_users", 2, 0, created))
        .with(database("_replicator", 2, 0, created));
    let version = if recent { Version::new(3, 5, 0) } else { Version::new(3, 3, 3) };
    config.nodes = nodes.iter().map(|name| Node { version, ..Node::new(name) }).collect();
    if ["nouveau_", "absent_", "search_"].iter().any(|of_search| case.starts_with(of_search)) {
        config = config.with(searched(created));
    }
    if case.starts_with("nouveau_") {
        let enable = || ("nouveau".to_owned(), "enable".to_owned(), "true".to_owned());
        config.nodes.iter_mut().for_each(|node| node.settings.push(enable()));
    }
    config.global_changes = case != "db_updates_without_global_changes";
    config.index_rate = 100;
    let clock = Clock::anchored(Moment::from_unix(1_795_230_000));
    Cluster::new(config, 1, clock).expect("the configuration is valid")
}

/// Brings the cluster into the state in which the case was recorded.
async fn arrange(case: &str, cluster: &Cluster, recorded: &Value) {
    let busy = recorded.get("body").and_then(Value::as_array).is_some_and(|body| !body.is_empty());
    let big = |cluster: &Cluster| {
        let node = cluster.world(|world| world.nodes()).remove(0);
        let files = cluster.world(|world| world.files(&node)).expect("the node is known");
        let mut on_first = files.into_iter().filter(|file| file.contains("/rec_big."));
        (node, on_first.next().expect("rec_big is on every node"))
    };
    let first = |cluster: &Cluster| {
        let node = cluster.world(|world| world.nodes()).remove(0);
        let files = cluster.world(|world| world.files(&node)).expect("the node is known");
        let file =
            files.into_iter().find(|file| file.starts_with("shards/00000000-3fffffff/rec_app."));
        (node, file.expect("rec_app is on every node"))
    };
    match case {
        "active_tasks_compacting" if busy => {
            cluster.world(|world| world.build("rec_app", "noauto"))
        }
        "active_tasks_view_compacting" if busy => {
            let (node, file) = first(cluster);
            cluster.world(|world| {
                world.build("rec_app", "noauto");
                world.compact(&node, &file).expect("the file exists");
            });
        }
        "active_tasks_database_compaction" => {
            let (node, file) = big(cluster);
            cluster.world(|world| world.compact(&node, &file)).expect("the file exists");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        "active_tasks_view_compaction" => {
            let (node, file) = big(cluster);
            cluster.world(|world| world.compact_view(&node, &file, "v")).expect("the file exists");
        }
        "nouveau_active_tasks" | "nouveau_node_active_tasks" => {
            let index = (Engine::Nouveau, "s", "new");
            cluster.world(|world| world.build_search("rec_search", index));
        }
        "node_shard_right_after_compact" | "node_shard_after_compact" => {
            let (node, file) = first(cluster);
            cluster.world(|world| world.compact(&node, &file)).expect("the file exists");
            if case == "node_shard_after_compact" {
                tokio::time::sleep(Duration::from_secs(60)).await;
            }
        }
        "db_updates_timeout_longpoll" => {
            let rows = recorded.pointer("/body/results").and_then(Value::as_array);
            if rows.is_some_and(|rows| !rows.is_empty()) {
                cluster.world(|world| world.write("rec_app", 1));
            }
        }
        _ => {}
    }
}

/// The shape of a value: types of leaves, keys of objects, the set of an array's shapes.
fn shape(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if number.is_f64() => "float".to_owned(),
        Value::Number(_) => "integer".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(items) => {
            let shapes: BTreeSet<String> = items.iter().map(shape).collect();
            format!("[{}]", shapes.into_iter().collect::<Vec<_>>().join(" | "))
        }
        Value::Object(fields) => {
            let fields: Vec<String> =
                fields.iter().map(|(key, value)| format!("{key}: {}", shape(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// Removes the excluded parts from a body.
fn trimmed(case: &str, mut body: Value) -> Value {
    for (held, pointer, _) in NOT_HELD {
        if *held == case
            && let Some(part) = body.pointer_mut(pointer)
        {
            *part = Value::Null;
        }
    }
    body
}

/// One frame of a body with content; heartbeats are skipped.
async fn frame(body: &mut Body) -> String {
    loop {
        let frame = tokio::time::timeout(Duration::from_secs(120), body.frame()).await;
        let frame = frame.expect("the feed says something").expect("it has not ended");
        let data = frame.expect("the frame is intact").into_data().expect("there are no trailers");
        let text = String::from_utf8(data.to_vec()).expect("it is text");
        if text != "\n" {
            return text;
        }
    }
}

async fn whole(body: Body) -> Vec<u8> {
    let all = tokio::time::timeout(Duration::from_secs(120), body.collect()).await;
    all.expect("the body ends").expect("it is whole").to_bytes().to_vec()
}

/// The differences between a recording and the simulator's response.
async fn differences(version: &str, case: &str, recorded: &Value) -> Vec<String> {
    let cluster = cluster(version, case);
    arrange(case, &cluster, recorded).await;
    let text = |pointer: &str| recorded.pointer(pointer).and_then(Value::as_str);
    let path = text("/request/path").expect("a recording has a path");
    let method: Method = text("/request/method").expect("and a method").parse().expect("known");
    let mut request = Request::builder().method(method).uri(path);
    if recorded.pointer("/request/authorized") == Some(&Value::Bool(true)) {
        request = request.header(header::AUTHORIZATION, "Basic YWRtaW46c2VjcmV0");
    } else if case == "wrong_password" {
        request = request.header(header::AUTHORIZATION, "Basic YWRtaW46d3Jvbmc=");
    }
    let body = text("/request/body").map(str::to_owned);
    if body.is_some() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    let request = request.body(body.map_or_else(Body::empty, Body::from)).expect("it is sound");
    let node = cluster.world(|world| world.nodes()).remove(0);
    let response = cluster.router(&node).oneshot(request);
    let response = tokio::time::timeout(Duration::from_secs(120), response).await;
    let Ok(response) = response.expect("an answer comes");

    let mut differ = Vec::new();
    let mut held = |what: &str, sim: String, real: String| {
        if sim != real {
            differ.push(format!("{version}/{case}: {what}: simulated {sim}, recorded {real}"));
        }
    };
    let (parts, mut body) = response.into_parts();
    let status = recorded.get("status").map(ToString::to_string).unwrap_or_default();
    held("status", parts.status.as_u16().to_string(), status);
    let real = |name: &str| recorded.get("headers").and_then(|all| all.get(name)?.as_str());
    let sim = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    for name in ["content-type", "cache-control", "server"] {
        held(name, format!("{:?}", sim(name)), format!("{:?}", real(name)));
    }
    for name in ["etag", "location", "x-couch-request-id", "x-couchdb-body-time", "connection"] {
        held(name, sim(name).is_some().to_string(), real(name).is_some().to_string());
    }
    let chunked = axum::body::HttpBody::size_hint(&body).exact().is_none();
    held("chunks", chunked.to_string(), real("transfer-encoding").is_some().to_string());

    let real_body = recorded.get("body").expect("a recording has a body");
    match real_body {
        lines if case == "db_updates_continuous" => {
            cluster.world(|world| world.create(Database::new("new"))).expect("the database is new");
            let line = frame(&mut body).await;
            let row = |line: &str| serde_json::from_str::<Value>(line).unwrap_or(Value::Null);
            // A single recorded line was stored as an object, several lines as text.
            let first = match lines {
                Value::String(lines) => row(lines.lines().next().unwrap_or_default()),
                object => object.clone(),
            };
            held("row", shape(&row(&line)), shape(&first));
        }
        Value::String(text) if case == "db_updates_eventsource" => {
            held("event", frame(&mut body).await, text.clone());
        }
        Value::String(text) => {
            let all = whole(body).await;
            let simulated = String::from_utf8(all).expect("it is text");
            // Whether there is a HELP line, and what separates it from the TYPE line.
            let format = |text: &str| (text.starts_with("\n# HELP "), text.contains("\r# TYPE "));
            held("format", format!("{:?}", format(&simulated)), format!("{:?}", format(text)));
        }
        value => {
            let all = whole(body).await;
            let simulated = serde_json::from_slice(&all).unwrap_or(Value::Null);
            let simulated = shape(&trimmed(case, simulated));
            held("body", simulated, shape(&trimmed(case, value.clone())));
            if parts.status.is_client_error() {
                let text: Value = serde_json::from_slice(&all).unwrap_or(Value::Null);
                held("error", text.to_string(), value.to_string());
            }
        }
    }
    differ
}

#[tokio::test(start_paused = true)]
async fn simulator_responses_match_recorded_servers() {
    let mut differ = Vec::new();
    let mut compared = 0;
    for version in ["3.5.0", "3.3.3"] {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("crates/couchdb-client/tests/data/http")
            .join(version);
        for entry in fs::read_dir(dir).expect("recordings are there") {
            let path = entry.expect("recordings are readable").path();
            let case = path.file_stem().and_then(|stem| stem.to_str()).expect("cases are named");
            let text = fs::read_to_string(&path).expect("a recording is readable");
            let recorded: Value = serde_json::from_str(&text).expect("a recording is JSON");
            differ.extend(differences(version, case, &recorded).await);
            compared += 1;
        }
    }
    assert_eq!(compared, 140, "every recording is compared");
    assert!(differ.is_empty(), "{} differences\n{}", differ.len(), differ.join("\n"));
}

#[test]
fn excluded_response_parts_exist_in_recordings() {
    for (case, _, reason) in NOT_HELD {
        let path = format!("crates/couchdb-client/tests/data/http/3.5.0/{case}.json");
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path));
        let recorded: Map<String, Value> =
            serde_json::from_str(&text.expect("there is such a case")).expect("valid JSON");
        assert!(recorded.contains_key("body") && !reason.is_empty());
    }
}
