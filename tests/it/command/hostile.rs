//! Names from a cluster or a service can neither control a terminal nor hide text on it, in any
//! command's tables, JSON or errors.

use super::{Database, Design, NODES, PASSWORD, PATIENCE, Ran, Site, recliner, service, world};
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{Method, StatusCode},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use couchdb_sim::Cluster;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::{net::TcpListener, task::JoinSet, time};
use wall_clock::Clock;

/// The placeholder for the names of a database and a design document and for a reason, which is
/// replaced by hostile text.
const NAME: &str = "placeholder";

/// Every control character except line feed, every bidirectional control, every zero-width
/// character.
fn letters() -> impl Iterator<Item = char> {
    let ranges = ['\0'..='\t', '\u{b}'..='\u{1f}', '\u{7f}'..='\u{9f}']
        .into_iter()
        .chain(['\u{200b}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2060}'..='\u{2069}'])
        .chain(['\u{61c}'..='\u{61c}', '\u{feff}'..='\u{feff}', '\u{e0020}'..='\u{e007f}']);
    ranges.flatten()
}

fn hostile() -> String {
    letters().collect()
}

/// A JSON string whose hostile characters are unescaped wherever JSON allows that.
fn in_json() -> String {
    serde_json::to_string(&hostile()).expect("it is text").trim_matches('"').to_owned()
}

/// Asserts that no hostile character was printed.
fn assert_harmless(words: &[&str], ran: &Ran) {
    for printed in [&ran.out, &ran.err] {
        let raw = printed.chars().find(|letter| letters().any(|hidden| hidden == *letter));
        assert_eq!(raw, None, "{words:?}: {printed:?}");
    }
}

/// How the responses of a service are changed on the way to the client.
#[derive(Clone, Copy, Debug)]
enum Told {
    /// [`NAME`] and the name of the third node become hostile.
    Names,
    /// Every text in every response ends with hostile characters.
    Everything,
    /// Every response is a refusal.
    Refusal(StatusCode),
}

/// Appends hostile characters to every text of a value.
fn all_texts(value: &mut Value) {
    match value {
        Value::String(text) if text != "success" => text.push_str(&hostile()),
        Value::Array(list) => list.iter_mut().for_each(all_texts),
        Value::Object(fields) => fields.values_mut().for_each(all_texts),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Told {
    fn instead_of(self, body: &str) -> String {
        match self {
            Self::Names => body.replace(NAME, &in_json()).replace(NODES[2], &in_json()),
            Self::Everything => {
                let mut value: Value = serde_json::from_str(body).unwrap_or_default();
                all_texts(&mut value);
                value.to_string()
            }
            Self::Refusal(_) => {
                let name = hostile();
                let data = json!({ "candidates": [name], "total": 2 });
                json!({ "status": "error", "errorType": name, "error": name, "data": data })
                    .to_string()
            }
        }
    }
}

/// A proxy that forwards requests to a service and changes the responses.
async fn start_proxy(service: &str, told: Told, servers: &mut JoinSet<()>) -> String {
    let _again = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().expect("the HTTP client is valid");
    let service: Arc<str> = format!("http://{service}").into();
    let pass = move |request: Request| {
        let (http, service) = (http.clone(), Arc::clone(&service));
        async move {
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, 1 << 20).await.expect("it is whole");
            let mut asks = http.request(parts.method, format!("{service}{}", parts.uri)).body(body);
            if let Some(kind) = parts.headers.get("content-type") {
                asks = asks.header("content-type", kind);
            }
            let answer = asks.send().await.expect("a response arrives");
            let status = match told {
                Told::Refusal(status) => status,
                Told::Names | Told::Everything => answer.status(),
            };
            (status, told.instead_of(&answer.text().await.expect("the body is text")))
                .into_response()
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let router = Router::new().fallback(pass);
    servers.spawn(async move { axum::serve(listener, router).await.unwrap_or_default() });
    url
}

fn hostile_world() -> couchdb_sim::Config {
    let design = |name: &str| Design { bloat: 9.0, ..Design::new(name) };
    let database = Database {
        bloat: 9.0,
        docs: 60_000,
        designs: vec![design(NAME)],
        q: 1,
        ..Database::new(NAME)
    };
    let mut world = couchdb_sim::Config::new(&NODES).with(database);
    world.users = self::world().users;
    world
}

/// Waits until a service has recorded how a job ended.
async fn wait_for_outcome(address: &str) {
    let url = format!("http://{address}");
    let remembered = async {
        loop {
            let ran = recliner(&["history", "--recliner.url", &url, "--format", "json"], &[]).await;
            if ran.out.contains(NAME) {
                return;
            }
            time::sleep(Duration::from_millis(100)).await;
        }
    };
    time::timeout(PATIENCE, remembered).await.expect("a job ends in time");
}

const COMMANDS: &[&[&str]] = &[
    &["plan"],
    &["explain", NAME],
    &["explain", NAME, "--all"],
    &["history"],
    &["history", NAME],
    &["events"],
    &["events", "--all"],
    &["suspend", "channel:big", "--why", NAME],
    &["suspend", "channel:big", "--why", NAME],
    &["plan"],
    &["resume", "channel:big"],
    &["resume", "channel:big"],
    &["compact", NAME],
    &["release", "--all"],
    &["release", NAME],
    &["rescan"],
    &["flush"],
];

#[tokio::test]
async fn service_responses_cannot_control_a_terminal() {
    let site = Site::open(hostile_world()).await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("recliner.yml");
    std::fs::write(&config, "mode: enforce\nviews: {enforce: all}\npoll: 1s\nscan: {interval: 5s}\nlimits: {wait: 0s, duty: 100%}\n")
        .unwrap();
    let config = config.display().to_string();
    let flags = ["--web.enable-admin-api", "--config.file", &config];
    let mut running = service::Running::start(&site, dir.path(), &flags).await;
    wait_for_outcome(&running.address).await;
    let mut servers = JoinSet::new();
    let refused = Told::Refusal(StatusCode::CONFLICT);
    let lost = Told::Refusal(StatusCode::INTERNAL_SERVER_ERROR);
    let mut shown = 0;
    for told in [Told::Names, Told::Everything, refused, lost] {
        let url = start_proxy(&running.address, told, &mut servers).await;
        for words in COMMANDS {
            for format in ["table", "json"] {
                let mut all = words.to_vec();
                all.extend(["--recliner.url", &url, "--format", format]);
                let ran = recliner(&all, &[("COLUMNS", "80")]).await;
                assert_harmless(&all, &ran);
                assert!(ran.code < 2, "{all:?}: {ran:?}");
                let escaped = ["202e", "009b"]
                    .iter()
                    .any(|code| ran.out.contains(code) || ran.err.contains(code));
                shown += usize::from(escaped);
            }
        }
    }
    assert!(shown > 60, "{shown} of them show hostile text");
    running.stop().await;
}

/// Adds a member with a hostile name and a hostile version to the responses.
async fn hostile_server(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    if *request.method() != Method::GET || !(path == "/" || path.ends_with("_membership")) {
        return next.run(request).await;
    }
    let (mut head, body) = next.run(request).await.into_parts();
    let text = to_bytes(body, 1 << 20).await.expect("it is whole");
    let mut value: Value = serde_json::from_slice(&text).unwrap_or_default();
    for list in ["all_nodes", "cluster_nodes"] {
        if let Some(list) = value[list].as_array_mut() {
            list.push(format!("couchdb@{}", hostile()).into());
        }
    }
    if path == "/" {
        value["vendor"]["name"] = hostile().into();
        value["version"] = format!("3.5.0{}", hostile()).into();
    }
    head.headers.remove("content-length");
    Response::from_parts(head, Body::from(value.to_string()))
}

#[tokio::test]
async fn cluster_responses_cannot_control_a_terminal() {
    let mut world = hostile_world();
    world.databases[0].designs = vec![Design { bloat: 9.0, ..Design::new(&hostile()) }];
    let cluster = Cluster::new(world, 1, Clock::System).expect("the configuration is valid");
    let mut servers = JoinSet::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let router = cluster.router(NODES[0]).layer(from_fn(hostile_server));
    servers.spawn(async move { axum::serve(listener, router).await.unwrap_or_default() });
    for words in [
        &["scan"][..],
        &["scan", "--format", "json"],
        &["plan"],
        &["plan", "--format", "json"],
        &["explain", NAME],
        &["explain", NAME, "--format", "json"],
        &["import", "smoosh"],
        &["import", "compaction-daemon"],
        &["restore-smoosh"],
    ] {
        let mut all = words.to_vec();
        all.extend(["--couchdb.url", &url]);
        let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD), ("COLUMNS", "80")];
        let ran = recliner(&all, &login).await;
        assert_harmless(&all, &ran);
        assert!(!ran.out.is_empty() || !ran.err.is_empty(), "{all:?}: {ran:?}");
    }
}
