use super::*;
use crate::{Config, Database, Design, Effect, Fault, Node, Role, User};
use couchdb_names::Version;
use http::{Method, header};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::time::Duration;
use tower::ServiceExt as _;
use wall_clock::{Clock, Moment};

const A: &str = "couchdb@sim-1.local";
const B: &str = "couchdb@sim-2.local";
const ADMIN: &str = "Basic YWRtaW46c2VjcmV0";

fn cluster() -> Cluster {
    let design = Design::new("50% off/ü");
    let config = Config::new(&[A, B])
        .with(Database { q: 4, designs: vec![design], ..Database::new("app/a+b") })
        .with(Database { docs: 10_000_000, q: 1, ..Database::new("big") });
    let mut config = config;
    for (name, role) in
        [("metrics", Role::Metrics), ("reader", Role::Member(vec!["big".to_owned()]))]
    {
        config.users.push(User { name: name.to_owned(), password: "p".to_owned(), role });
    }
    Cluster::new(config, 1, Clock::anchored(Moment::from_unix(1_795_230_000))).unwrap()
}

fn request(method: Method, path: &str, login: Option<&str>) -> Request {
    let mut request = http::Request::builder().method(method).uri(path);
    if let Some(login) = login {
        request = request.header(header::AUTHORIZATION, login);
    }
    request.header(header::CONTENT_TYPE, "application/json").body(Body::empty()).unwrap()
}

async fn send(router: Router, request: Request) -> (u16, Value) {
    let response = tokio::time::timeout(Duration::from_secs(600), router.oneshot(request));
    let response = response.await.unwrap().unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let body = body.ok().and_then(|body| serde_json::from_slice(&body).ok());
    (status, body.unwrap_or(Value::Null))
}

async fn get(cluster: &Cluster, path: &str) -> (u16, Value) {
    send(cluster.router(A), request(Method::GET, path, Some(ADMIN))).await
}

async fn post(cluster: &Cluster, path: &str) -> (u16, Value) {
    send(cluster.router(A), request(Method::POST, path, Some(ADMIN))).await
}

fn login(name: &str, password: &str) -> String {
    use base64::Engine as _;
    let pair = format!("{name}:{password}");
    format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(pair))
}

#[tokio::test(start_paused = true)]
async fn design_document_is_found_only_on_its_range() {
    let cluster = cluster();
    let files = cluster.world(|world| world.files(A)).unwrap();
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.contains("app/a+b")) {
        let file = couchdb_names::encode_part(file);
        let ddoc = couchdb_names::encode_part("50% off/ü");
        let path = format!("/_node/{A}/{file}/_design/{ddoc}/_info");
        let compact = format!("/_node/{B}/{file}/_compact/{ddoc}");
        let (status, body) = get(&cluster, &path).await;
        assert_eq!(post(&cluster, &compact).await.0, if status == 200 { 202 } else { 404 });
        match status {
            200 => found.push(body.pointer("/name").cloned()),
            _ => assert_eq!(body, json!({"error": "not_found", "reason": "missing"})),
        }
    }
    assert_eq!(found, [Some(json!("50% off/ü"))]);
}

#[tokio::test(start_paused = true)]
async fn compaction_over_http_runs_and_ends() {
    let cluster = cluster();
    let files = cluster.world(|world| world.files(A)).unwrap();
    let file = files.iter().find(|file| file.contains("big")).unwrap();
    let path = format!("/_node/{A}/{}", couchdb_names::encode_part(file));
    assert_eq!(
        get(&cluster, &format!("/_node/{A}/{file}")).await.0,
        404,
        "slashes must be percent-encoded"
    );
    let compact = format!("{path}/_compact");
    let bare = http::Request::post(&compact).header(header::AUTHORIZATION, ADMIN);
    let bare = bare.body(Body::empty()).unwrap();
    assert_eq!(send(cluster.router(A), bare).await.0, 415);
    assert_eq!(post(&cluster, &compact).await, (202, json!({"ok": true})));
    assert_eq!(get(&cluster, &path).await.1.pointer("/compact_running"), Some(&json!(true)));
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (_, tasks) = get(&cluster, "/_active_tasks").await;
    assert_eq!(tasks.pointer("/0/node"), Some(&json!(A)));
    assert_eq!(tasks.pointer("/0/started_on"), Some(&json!(1_795_230_000)));
    tokio::time::sleep(Duration::from_secs(300)).await;
    let (_, info) = get(&cluster, &path).await;
    assert_eq!(info.pointer("/compact_running"), Some(&json!(false)));
    assert_eq!(info.pointer("/compacted_seq"), info.pointer("/update_seq"));
    assert_eq!(get(&cluster, "/_active_tasks").await.1, json!([]));
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_frozen_node_until_considered_down() {
    let config = Config::new(&[A, B])
        .with(Database { q: 2, n: 1, placed_on: vec![B.to_owned()], ..Database::new("there") })
        .with(Database { q: 2, n: 1, placed_on: vec![A.to_owned()], ..Database::new("here") });
    let cluster = Cluster::new(config, 1, Clock::anchored(Moment::from_unix(1))).unwrap();
    let whole = format!("/_node/{B}/_all_dbs");
    cluster.faults().freeze(B, Duration::from_secs(60));
    let timed = async |path: &str| {
        let began = tokio::time::Instant::now();
        (get(&cluster, path).await.0, began.elapsed().as_secs())
    };
    for path in ["/", "/_membership", "/_node/_local/_all_dbs", "/_node/_local/_dbs/_all_docs"] {
        assert_eq!(timed(path).await, (200, 0), "{path}: a node answers that by itself");
    }
    assert_eq!(timed("/here/_design_docs").await, (200, 0));
    assert_eq!(timed("/there/_shards").await, (200, 0));
    let (jobs, lost, forwarded) =
        tokio::join!(timed("/_reshard/jobs"), timed("/there/_design_docs"), timed(&whole));
    assert_eq!((jobs, lost, forwarded), ((200, 60), (500, 60), (412, 67)));
    let (_, members) = get(&cluster, "/_membership").await;
    assert_eq!(members, json!({"all_nodes": [A], "cluster_nodes": [A, B]}));
    let own = cluster.router(B).oneshot(request(Method::GET, "/", Some(ADMIN)));
    let mut own = std::pin::pin!(own);
    let waited = tokio::time::timeout(Duration::from_secs(600), &mut own).await;
    assert!(waited.is_err(), "its own address accepts a request and never answers");
    cluster.faults().thaw(B);
    assert_eq!(own.await.unwrap().status(), 200);
    assert_eq!((timed(&whole).await, timed("/there/_design_docs").await), ((200, 0), (200, 0)));
}

#[tokio::test(start_paused = true)]
async fn down_node_refuses_connections_and_others_report_it() {
    let cluster = cluster();
    cluster.faults().down(B);
    let refused = cluster.router(B).oneshot(request(Method::GET, "/", None)).await.unwrap();
    assert!(refused.extensions().get::<ConnectionRefused>().is_some());
    let (status, body) = get(&cluster, &format!("/_node/{B}/_all_dbs")).await;
    assert_eq!((status, body.pointer("/error")), (412, Some(&json!("nodedown"))));
    let (_, members) = get(&cluster, "/_membership").await;
    assert_eq!(members, json!({"all_nodes": [A], "cluster_nodes": [A, B]}));
    // smoosh's status ignores the node in its path, even if that node is down.
    assert_eq!(get(&cluster, &format!("/_node/{B}/_smoosh/status")).await.0, 200);
    cluster.faults().up(B);
    assert_eq!(get(&cluster, &format!("/_node/{B}/_all_dbs")).await.0, 200);
    cluster.faults().maintenance(A, true);
    assert_eq!(get(&cluster, "/_up").await, (404, json!({"status": "maintenance_mode"})));
}

#[tokio::test(start_paused = true)]
async fn rights_follow_from_the_role() {
    let cluster = cluster();
    let of = async |login: Option<String>, method: Method, path: &str| {
        send(cluster.router(A), request(method, path, login.as_deref())).await.0
    };
    let get = Method::GET;
    let metrics = || Some(login("metrics", "p"));
    for (path, status) in [
        ("/_node/_local/_system", 200),
        ("/_node/_local/_prometheus", 200),
        ("/_node/_local/_smoosh/status", 401),
        ("/_node/_local/_all_dbs", 401),
        ("/_active_tasks", 401),
        ("/_all_dbs", 401),
        ("/_db_updates", 401),
        ("/big", 403),
        ("/_up", 200),
    ] {
        assert_eq!(of(metrics(), get.clone(), path).await, status, "{path}");
    }
    let reader = || Some(login("reader", "p"));
    assert_eq!(of(reader(), get.clone(), "/big").await, 200);
    assert_eq!(of(reader(), Method::POST, "/big/_compact").await, 401);
    assert_eq!(of(reader(), get.clone(), "/app%2Fa+b").await, 403);
    assert_eq!(of(None, get, "/big").await, 401);
}

#[tokio::test(start_paused = true)]
async fn lockout_depends_on_the_couchdb_version_of_the_node() {
    let mut config = Config::new(&[A, B]);
    config.nodes[1] = Node { version: Version::new(3, 3, 3), ..Node::new(B) };
    let cluster = Cluster::new(config, 1, Clock::anchored(Moment::from_unix(0))).unwrap();
    let of = async |node: &str, password: &str| {
        let login = login("admin", password);
        send(cluster.router(node), request(Method::GET, "/_all_dbs", Some(&login))).await.0
    };
    for _ in 0..5 {
        assert_eq!((of(A, "x").await, of(B, "x").await), (401, 401));
    }
    assert_eq!((of(A, "secret").await, of(B, "secret").await), (403, 200));
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(of(A, "secret").await, 200);
    cluster.faults().password("admin", "new");
    assert_eq!((of(A, "secret").await, of(A, "new").await), (401, 200));
}

#[tokio::test(start_paused = true)]
async fn host_header_selects_the_node() {
    let cluster = cluster();
    let name = async |uri: &str, host: Option<&str>| {
        let mut request = request(Method::GET, uri, Some(ADMIN));
        if let Some(host) = host {
            request.headers_mut().insert(header::HOST, host.parse().unwrap());
        }
        send(cluster.by_host(), request).await
    };
    let path = "/_node/_local";
    assert_eq!(name(path, Some("sim-2.local:5984")).await, (200, json!({"name": B})));
    let absolute = format!("http://sim-1.local:5984{path}");
    assert_eq!(name(&absolute, None).await, (200, json!({"name": A})));
    assert_eq!(name(path, Some("elsewhere:5984")).await.0, 503);
}

#[tokio::test(start_paused = true)]
async fn faults_take_effect_and_appear_in_request_log() {
    let cluster = cluster();
    let faults = cluster.faults();
    let effect_on = async |effect: Effect| {
        faults.clear();
        faults.plan(Fault::on(A, effect).at("/_membership"));
        get(&cluster, "/_membership").await
    };
    assert_eq!(effect_on(Effect::Status(500)).await.0, 500);
    assert_eq!(effect_on(Effect::Malformed).await, (200, Value::Null));
    assert_eq!(effect_on(Effect::HalfBody).await, (200, Value::Null));
    assert_eq!(effect_on(Effect::Drop).await, (200, Value::Null));
    assert_eq!(effect_on(Effect::Redirect("http://x/".to_owned())).await.0, 302);
    let before = cluster.elapsed();
    assert_eq!(effect_on(Effect::Delay(Duration::from_secs(9))).await.0, 200);
    assert_eq!(cluster.elapsed() - before, Duration::from_secs(9));
    faults.clear();
    faults.plan(Fault::on(B, Effect::Hang));
    let path = format!("/_node/{}/_all_dbs", B.replace('@', "%40"));
    let hung = cluster.router(A).oneshot(request(Method::GET, &path, Some(ADMIN)));
    assert!(tokio::time::timeout(Duration::from_secs(60), hung).await.is_err());
    let statuses: Vec<u16> = cluster.exchanges().iter().map(|exchange| exchange.status).collect();
    assert_eq!(statuses, [500, 200, 0, 0, 302, 200, 0]);
    let last = cluster.exchanges().pop().unwrap();
    assert_eq!((last.node.as_str(), last.path, last.user), (A, path, Some("admin".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn shard_map_supports_paging_and_longpoll() {
    let cluster = cluster();
    let page = "/_node/_local/_dbs/_all_docs?include_docs=true&limit=1";
    let (_, first) = get(&cluster, page).await;
    assert_eq!(first.pointer("/rows/0/id"), Some(&json!("app/a+b")));
    let suffix = first.pointer("/rows/0/doc/shard_suffix").unwrap().as_array().unwrap();
    assert_eq!(suffix[0], json!(46));
    let (_, second) = get(&cluster, &format!("{page}&startkey=%22app/a%2Bb%22&skip=1")).await;
    assert_eq!(second.pointer("/rows/0/id"), Some(&json!("big")));
    assert_eq!(second.pointer("/offset"), Some(&json!(1)));
    assert_eq!(second.pointer("/total_rows"), Some(&json!(2)));

    let (_, all) = get(&cluster, "/_node/_local/_dbs/_changes").await;
    assert_eq!(all.pointer("/last_seq"), Some(&json!(2)));
    let wait = "/_node/_local/_dbs/_changes?feed=longpoll&since=2&timeout=20000";
    assert_eq!(get(&cluster, wait).await.1.pointer("/results"), Some(&json!([])));
    assert_eq!(cluster.elapsed(), Duration::from_secs(20));
    let (_, changed) = tokio::join!(
        async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            cluster.world(|world| world.delete("big", false));
        },
        get(&cluster, wait)
    );
    assert_eq!(changed.1.pointer("/results/0/id"), Some(&json!("big")));
    assert_eq!(changed.1.pointer("/results/0/deleted"), Some(&json!(true)));
    let hangs = "/_node/_local/_dbs/_changes?feed=continuous";
    let hung = cluster.router(A).oneshot(request(Method::GET, hangs, Some(ADMIN)));
    assert!(tokio::time::timeout(Duration::from_secs(3_600), hung).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn continuous_feed_sends_rows_heartbeats_and_end() {
    let cluster = cluster();
    let path = "/_db_updates?feed=continuous&since=now&timeout=2000";
    let feed = cluster.router(A).oneshot(request(Method::GET, path, Some(ADMIN)));
    let response = feed.await.unwrap();
    cluster.world(|world| world.write("big", 3));
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let lines: Vec<Value> = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    assert_eq!(lines[0].pointer("/db_name"), Some(&json!("big")));
    assert_eq!(lines[0].pointer("/type"), Some(&json!("updated")));
    assert!(lines[1].pointer("/last_seq").is_some());
    assert_eq!(lines.len(), 2);
    let since = lines[1].pointer("/last_seq").unwrap().as_str().unwrap();
    let (_, rest) = get(&cluster, &format!("/_db_updates?since={since}")).await;
    assert_eq!(rest.pointer("/results"), Some(&json!([])));
    assert_eq!(get(&cluster, "/_db_updates?since=x").await.0, 400);
}

#[tokio::test(start_paused = true)]
async fn settings_are_read_changed_and_deleted_per_node() {
    let cluster = cluster();
    let path = format!("/_node/{B}/_config/smoosh.ratio_dbs/concurrency");
    let put = |value: &str| {
        let mut put = request(Method::PUT, &path, Some(ADMIN));
        *put.body_mut() = Body::from(value.to_owned());
        send(cluster.router(A), put)
    };
    assert_eq!(get(&cluster, &path).await.0, 404);
    assert_eq!(put("\"0\"").await, (200, json!("")));
    assert_eq!(put("\"2\"").await, (200, json!("0")));
    assert_eq!(put("2").await.0, 400);
    assert_eq!(get(&cluster, &path).await, (200, json!("2")));
    assert_eq!(get(&cluster, "/_node/_local/_config/smoosh.ratio_dbs").await, (200, json!({})));
    let delete = request(Method::DELETE, &path, Some(ADMIN));
    assert_eq!(send(cluster.router(A), delete).await, (200, json!("2")));
    assert_eq!(get(&cluster, &path).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn encoded_dots_never_compact_the_whole_database() {
    let cluster = cluster();
    // A URL library would turn `/app/_compact/..` into another path; here `..` is a name.
    assert_eq!(post(&cluster, "/big/_compact/%2e%2e").await.0, 404);
    assert_eq!(cluster.world(|world| world.tasks()).len(), 0);
}

/// Status, body and cookie of a request with these headers.
async fn with(
    router: Router,
    method: Method,
    path: &str,
    headers: &[(header::HeaderName, &str)],
    body: &str,
) -> (u16, Value, Option<String>) {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(name, *value);
    }
    let response =
        router.oneshot(request.body(Body::from(body.to_owned())).unwrap()).await.unwrap();
    let set = response.headers().get(header::SET_COOKIE);
    let set = set.map(|set| set.to_str().unwrap().split(';').next().unwrap().to_owned());
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null), set)
}

const LOGIN: &str = r#"{"name":"admin","password":"secret"}"#;

async fn begin(cluster: &Cluster, node: &str) -> String {
    let json = [(header::CONTENT_TYPE, "application/json")];
    let begun = with(cluster.router(node), Method::POST, "/_session", &json, LOGIN).await;
    assert_eq!(
        (begun.0, begun.1),
        (200, json!({"ok": true, "name": "admin", "roles": ["_admin"]}))
    );
    begun.2.unwrap()
}

#[tokio::test(start_paused = true)]
async fn session_is_valid_until_expiry_or_password_change() {
    let cluster = cluster();
    let cookie = begin(&cluster, A).await;
    let look = async |node: &str, path: &str, cookie: &str| {
        with(cluster.router(node), Method::GET, path, &[(header::COOKIE, cookie)], "").await
    };
    let (status, session, set) = look(A, "/_session", &cookie).await;
    assert_eq!((status, set), (200, None));
    assert_eq!(session.pointer("/info/authenticated"), Some(&json!("cookie")));
    assert_eq!(look(B, "/_all_dbs", &cookie).await.0, 200, "both nodes have the same secret");
    tokio::time::sleep(Duration::from_secs(61)).await;
    let renewed = look(A, "/_all_dbs", &cookie).await.2.unwrap();
    tokio::time::sleep(Duration::from_secs(540)).await;
    let (status, refusal, _) = look(A, "/_all_dbs", &cookie).await;
    assert_eq!((status, refusal["reason"].as_str()), (401, Some("You are not a server admin.")));
    assert_eq!(look(A, "/_all_dbs", &renewed).await.0, 200);
    cluster.faults().password("admin", "other");
    assert_eq!(look(A, "/_all_dbs", &renewed).await.0, 401);
    assert_eq!(cluster.failed_logins(A, "admin"), 0, "an invalid session is not a failed login");
    let json = [(header::CONTENT_TYPE, "application/json")];
    let (status, refusal, set) =
        with(cluster.router(A), Method::POST, "/_session", &json, LOGIN).await;
    let wrong = Some("Name or password is incorrect.");
    assert_eq!((status, refusal["reason"].as_str()), (401, wrong));
    assert_eq!((set.as_deref(), cluster.failed_logins(A, "admin")), (Some("AuthSession="), 1));
}

#[tokio::test(start_paused = true)]
async fn forwarded_session_is_invalid_under_another_secret() {
    let cluster = cluster();
    cluster.world(|world| world.set(B, "chttpd_auth", "secret", "its own"));
    let cookie = begin(&cluster, A).await;
    let look = async |path: String| {
        with(cluster.router(A), Method::GET, &path, &[(header::COOKIE, &cookie)], "").await
    };
    let behind = look(format!("/_node/{B}/_session")).await;
    assert_eq!((behind.0, behind.1.pointer("/userCtx/name")), (200, Some(&Value::Null)));
    assert_eq!(look(format!("/_node/{B}/_active_tasks")).await.0, 401);
    assert_eq!(look(format!("/_node/{B}/_all_dbs")).await.0, 200);
    assert_eq!(look(format!("/_node/{B}/_config/admins")).await.0, 200);
    assert_eq!(get(&cluster, &format!("/_node/{B}/_active_tasks")).await.0, 200);
    cluster.world(|world| world.set(A, "chttpd", "require_valid_user", "true"));
    let anonymous = with(cluster.router(A), Method::GET, "/_session", &[], "").await;
    assert_eq!(
        (anonymous.0, anonymous.1["reason"].as_str()),
        (401, Some("Authentication required."))
    );
    begin(&cluster, A).await;
    let handlers = "{chttpd_auth, default_authentication_handler}";
    cluster.world(|world| world.set(A, "chttpd", "authentication_handlers", handlers));
    assert_eq!(look("/_all_dbs".to_owned()).await.0, 401);
}
