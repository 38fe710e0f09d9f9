//! Attacks by a lying CouchDB, or by a machine that pretends to be one.

use crate::victim::{Victim, run};
use axum::{
    Router,
    body::{Body, Bytes},
    extract::Request,
    http::{StatusCode, header},
    middleware::{Next, from_fn},
    response::{IntoResponse, Response},
};
use couchdb_sim::{Cluster, Config, Database, Role, User};
use futures::{StreamExt as _, future::join_all, stream};
use serde_json::json;
use std::{
    io::Write as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
    time,
};
use wall_clock::Clock;

pub(crate) const PASSWORD: &str = "s3kr3t-pa55";

const NODE: &str = "node1@127.0.0.1";

/// The false answer to a request; `None`: the true one.
type Lie = Arc<dyn Fn(&Request) -> Option<Response> + Send + Sync>;

pub(crate) fn small_world() -> Config {
    let mut config = Config::new(&[NODE]).with(Database {
        q: 2,
        n: 1,
        docs: 9_000,
        bloat: 9.0,
        ..Database::new("orders")
    });
    config.users =
        vec![User { name: "adm".into(), password: PASSWORD.into(), role: Role::ServerAdmin }];
    config
}

/// A cluster of one node that tells the truth except for `lie`.
pub(crate) struct FalseCouch {
    pub(crate) url: String,
    _server: JoinSet<()>,
}

impl FalseCouch {
    pub(crate) async fn open(
        config: Config,
        lie: impl Fn(&Request) -> Option<Response> + Send + Sync + 'static,
    ) -> Self {
        let cluster = Cluster::new(config, 1, Clock::System).expect("the configuration is valid");
        let (_, router) = cluster.routers().into_iter().next().expect("it has a node");
        let lie: Lie = Arc::new(lie);
        let router = router.layer(from_fn(move |request: Request, next: Next| {
            let answer = lie(&request);
            async move {
                match answer {
                    Some(answer) => answer,
                    None => next.run(request).await,
                }
            }
        }));
        let (url, server) = serve(router).await;
        Self { url, _server: server }
    }

    /// Starts a service that reads this CouchDB.
    async fn read_by_a_service(&self, yaml: &str) -> Victim {
        Victim::serving(std::slice::from_ref(&self.url), yaml).await
    }
}

async fn serve(router: Router) -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
    let mut servers = JoinSet::new();
    servers.spawn(async move { axum::serve(listener, router).await.unwrap_or_default() });
    (url, servers)
}

fn json_response(body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}

/// Lines of a continuous feed, as fast as the client reads them.
fn flood_of_events(name: impl Fn(usize) -> String + Send + 'static) -> Response {
    let pieces = stream::iter(0_usize..).map(move |at| {
        let lines: String = (at * 100..at * 100 + 100)
            .map(|at| {
                let line =
                    json!({"db_name": name(at), "type": "updated", "seq": format!("{at}-x")});
                format!("{line}\n")
            })
            .collect();
        Ok::<_, String>(Bytes::from(lines))
    });
    json_response(Body::from_stream(pieces))
}

/// A configuration that follows feeds into a journal whose events take at most 32 MiB.
const FOLLOWING: &str = "journal: {events: {max_size: 32MiB}}\n";

async fn flood_with_events(name: fn(usize) -> String) {
    let couch = FalseCouch::open(small_world(), move |request| {
        let asked = request.uri().to_string();
        asked.contains("_db_updates?feed=continuous").then(|| flood_of_events(name))
    })
    .await;
    let victim = couch.read_by_a_service(FOLLOWING).await;
    let ((), harm) = victim.during(time::sleep(Duration::from_secs(15))).await;
    harm.within(400);
    assert!(harm.disk_mib < 200, "{harm:?}");
    victim.stop().await;
}

#[tokio::test]
async fn event_flood_of_long_names_fills_neither_disk_nor_memory() {
    flood_with_events(|at| format!("{}{at}", "n".repeat(5_000))).await;
}

#[tokio::test]
async fn event_flood_of_new_names_fills_neither_disk_nor_memory() {
    flood_with_events(|at| format!("new{at}")).await;
}

#[tokio::test]
async fn hundred_thousand_tasks_do_not_stall_the_service() {
    let tasks: Vec<_> = (0..60_000_u64)
        .map(|at| {
            json!({
                "type": "database_compaction", "node": NODE, "pid": format!("<0.{at}.0>"),
                "database": format!("shards/00000000-7fffffff/db{at}.1700000000"),
                "changes_done": 1, "total_changes": 2, "progress": 50,
                "started_on": 1_700_000_000, "updated_on": 1_700_000_001,
            })
        })
        .collect();
    let body = Bytes::from(serde_json::to_vec(&tasks).expect("valid JSON"));
    let couch = FalseCouch::open(small_world(), move |request| {
        request.uri().path().ends_with("/_active_tasks").then(|| json_response(body.clone()))
    })
    .await;
    let victim = couch.read_by_a_service("poll: 1s\n").await;
    let ((), harm) = victim.during(time::sleep(Duration::from_secs(15))).await;
    harm.within(400);
    victim.stop().await;
}

/// A gigabyte of spaces, compressed a thousandfold.
fn bomb() -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let blanks = vec![b' '; 1 << 20];
    for _ in 0..1_024 {
        encoder.write_all(&blanks).expect("a vector takes it");
    }
    Bytes::from(encoder.finish().expect("a vector takes it"))
}

/// Answers a route with each kind of endless body, one after the other.
async fn lie_without_end(route: &'static str, packed: Bytes) {
    let endless = |piece: &'static str| {
        let whole = Bytes::from(piece.repeat((64 << 10) / piece.len()));
        json_response(Body::from_stream(stream::repeat(Ok::<_, String>(whole))))
    };
    for lie in 0..3 {
        let packed = packed.clone();
        let couch = FalseCouch::open(small_world(), move |request| {
            request.uri().path().ends_with(route).then(|| match lie {
                0 => {
                    let mut answer = json_response(packed.clone());
                    let gzip = header::HeaderValue::from_static("gzip");
                    answer.headers_mut().insert(header::CONTENT_ENCODING, gzip);
                    answer
                }
                1 => endless("[[],"),
                _ => endless("\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\","),
            })
        })
        .await;
        let victim = couch.read_by_a_service("poll: 1s\n").await;
        let ((), harm) = victim.during(time::sleep(Duration::from_secs(2))).await;
        assert!(harm.memory_mib < 500, "{route}, lie {lie}: {harm:?}");
        harm.within(500);
    }
}

#[tokio::test]
async fn compressed_or_endless_answers_stay_within_memory_limit() {
    let packed = bomb();
    let routes = ["/_membership", "/_active_tasks", "/_all_dbs", "/_dbs/_changes", "/_dbs_info"];
    join_all(routes.map(|route| lie_without_end(route, packed.clone()))).await;
}

/// A page of a thousand rows after which there is always another page.
fn page_without_end(asked: &AtomicUsize) -> Response {
    let page = asked.fetch_add(1, Ordering::Relaxed);
    let rows: Vec<_> = (0..1_000)
        .map(|at| json!({"id": format!("db{page:09}{at:05}"), "key": "k", "value": {"rev": "1-a"}}))
        .collect();
    json_response(json!({"total_rows": 1_u64 << 50, "offset": 0, "rows": rows}).to_string())
}

#[tokio::test]
async fn endless_paging_stays_within_memory_limit() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let couch = FalseCouch::open(small_world(), move |request| {
        request.uri().path().ends_with("_all_docs").then(|| page_without_end(&count))
    })
    .await;
    let victim = couch.read_by_a_service("poll: 1s\n").await;
    let ((), harm) = victim.during(time::sleep(Duration::from_secs(10))).await;
    harm.within(600);
    victim.stop().await;
}

/// A server that records every request, so that a test can tell whether a login reached it.
async fn eavesdropper() -> (String, Arc<Mutex<Vec<String>>>, JoinSet<()>) {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let notes = Arc::clone(&heard);
    let router = Router::new().fallback(move |request: Request| {
        let notes = Arc::clone(&notes);
        async move {
            let head = format!("{} {} {:?}", request.method(), request.uri(), request.headers());
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap_or_default();
            let whole = format!("{head} {}", String::from_utf8_lossy(&body));
            notes.lock().expect("no test panics while holding the lock").push(whole);
            StatusCode::NOT_FOUND
        }
    });
    let (url, server) = serve(router).await;
    (url, heard, server)
}

fn assert_no_login(heard: &Mutex<Vec<String>>) {
    for request in heard.lock().expect("no test panics while holding the lock").iter() {
        let low = request.to_lowercase();
        for secret in ["authorization", "cookie", "authsession", PASSWORD, "name=adm"] {
            assert!(!low.contains(secret), "{request}");
        }
    }
}

#[tokio::test]
async fn login_is_not_sent_to_redirects_or_node_names() {
    let (thief, heard, _server) = eavesdropper().await;
    let place = thief.trim_start_matches("http://").to_owned();
    let host = place.split(':').next().expect("it has a host").to_owned();
    let membership = json!({
        "all_nodes": [NODE, format!("couchdb@{host}"), format!("couchdb@{place}")],
        "cluster_nodes": [NODE, format!("couchdb@{host}"), format!("couchdb@{place}")],
    })
    .to_string();
    let to = thief.clone();
    let couch = FalseCouch::open(small_world(), move |request| match request.uri().path() {
        "/_membership" => Some(json_response(membership.clone())),
        "/_active_tasks" | "/_all_dbs" => {
            let place = format!("{to}{}", request.uri().path());
            Some((StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, place)]).into_response())
        }
        _ => None,
    })
    .await;
    let victim = couch.read_by_a_service("poll: 1s\n").await;
    let ((), harm) = victim.during(time::sleep(Duration::from_secs(6))).await;
    harm.within(200);
    assert_no_login(&heard);
    victim.stop().await;
}

#[tokio::test]
async fn ninety_cookies_do_not_stop_reading() {
    let couch = FalseCouch::open(small_world(), |request| {
        (request.uri().path() == "/").then(|| {
            let mut answer = json_response(r#"{"couchdb":"Welcome","version":"3.5.0"}"#);
            for at in 0..90 {
                let cookie = format!("AuthSession{at}={}; Path=/", "c".repeat(200));
                let cookie = cookie.try_into().expect("it is a header");
                answer.headers_mut().append(header::SET_COOKIE, cookie);
            }
            answer
        })
    })
    .await;
    let victim = couch.read_by_a_service("poll: 1s\n").await;
    victim.until("/metrics", &format!("recliner_node_up{{node=\"{NODE}\"}} 1")).await;
    victim.stop().await;
}

/// A server that answers every request with endless `100 Continue` lines.
async fn endless_continue() -> (String, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let address = listener.local_addr().expect("the listener is bound").to_string();
    let mut servers = JoinSet::new();
    servers.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            connections.spawn(async move {
                let mut request = [0; 4_096];
                let _read = stream.read(&mut request).await;
                let go_on = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1_000);
                while stream.write_all(go_on.as_bytes()).await.is_ok() {
                    // A hundred thousand of them a second.
                    time::sleep(Duration::from_millis(10)).await;
                }
            });
        }
    });
    (format!("http://{address}"), servers)
}

#[tokio::test]
async fn command_fails_on_endless_continue_responses() {
    let (url, _server) = endless_continue().await;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];
    let fails = async |words: &[&str], seconds: u64| {
        let begun = time::Instant::now();
        let (code, out, err) = run(dir.path(), words, &login).await;
        assert!(code != 0 && out.is_empty() && !err.is_empty(), "{words:?}: {code} {out} {err}");
        let within = Duration::from_secs(seconds);
        assert!(begun.elapsed() < within, "{words:?}: {:?}", begun.elapsed());
        let says =
            err.contains("did not begin to answer within 10 s") || err.contains("never comes");
        assert!(says, "{words:?}: {err}");
    };
    let (scan, plan) = (["scan", "--couchdb.url", &url], ["plan", "--recliner.url", &url]);
    // A service may take longer for these, while it answers other requests.
    let order = ["compact", "orders", "--recliner.url", &url];
    let forecast = ["what-if", "--recliner.url", &url];
    let copy = ["backup", "copy.redb", "--recliner.url", &url];
    tokio::join!(
        fails(&scan, 15),
        fails(&plan, 15),
        fails(&order, 35),
        fails(&forecast, 35),
        fails(&copy, 35),
    );
}

/// Names that attack a line, a page, a shell, a metric or a terminal.
fn hostile_names() -> Vec<String> {
    let mut names: Vec<String> = [
        "couchdb@a\nrecliner_evil 1\n",
        "couchdb@<script>alert(1)</script>",
        "couchdb@a\"><img src=x onerror=alert(1)>",
        "couchdb@$(touch evil);`touch evil`|'touch evil'",
        "couchdb@a\",node=\"b\"} 7",
        "couchdb@a\\",
        "couchdb@\u{1b}[2J\u{7}\u{202e}\0",
        "../../_config/admins",
        "couchdb@a?x=1#y%0d%0a",
        "",
    ]
    .map(str::to_owned)
    .into();
    names.push(format!("couchdb@{}", "n".repeat(10_000)));
    names
}

#[tokio::test]
async fn hostile_node_names_cannot_inject_output() {
    let names = hostile_names();
    let known = [vec![NODE.to_owned()], names.clone()].concat();
    let membership = json!({ "all_nodes": known, "cluster_nodes": known }).to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let couch = FalseCouch::open(small_world(), move |request| match request.uri().path() {
        "/_membership" => Some(json_response(membership.clone())),
        // The name that each node reports.
        "/_node/_local" => {
            let at = asked.fetch_add(1, Ordering::Relaxed) % names.len();
            Some(json_response(json!({ "name": names[at] }).to_string()))
        }
        _ => None,
    })
    .await;
    let victim = couch.read_by_a_service("poll: 1s\n").await;
    victim.until("/metrics", &format!("recliner_node_up{{node=\"{NODE}\"}} 1")).await;
    let ((), harm) = victim.during(time::sleep(Duration::from_secs(5))).await;
    harm.within(200);
    // An answer to HTTP/1.0 is not chunked.
    let request = format!("GET /metrics HTTP/1.0\r\nHost: {}\r\n\r\n", victim.address);
    let (_, metrics) = victim.send(&request).await;
    for line in metrics.lines() {
        let first = line.split(['{', ' ']).next().unwrap_or_default();
        let is_known = ["#", "process_", "recliner_"].iter().any(|it| first.starts_with(it));
        assert!(is_known && !first.starts_with("recliner_evil"), "{line:.300}");
        assert!(line.len() < 25_000, "{line:.300}");
    }
    for page in ["/", "/nodes", "/status", "/targets", "/queue", "/advice", "/api/v1/status", "/sd"]
    {
        let (status, text) = victim.get(page).await;
        assert_eq!(status, 200, "{page}");
        for raw in ["<script>alert", "<img src=x", "\u{1b}", "\u{7}", "\u{202e}"] {
            // JSON is not rendered as a page, and a filter echoes the name, which reveals nothing.
            let is_json = page.starts_with("/api") || page == "/sd";
            let harmless = if raw.starts_with('<') { is_json } else { page == "/targets" };
            assert!(harmless || !text.contains(raw), "{page}: {raw:?}");
        }
    }
    let url = format!("http://{}", victim.address);
    let dir = tempfile::tempdir().expect("a temporary directory");
    for words in [["plan"], ["advise"], ["scan"]] {
        let to = if words == ["scan"] { "--couchdb.url" } else { "--recliner.url" };
        let at = if words == ["scan"] { &couch.url } else { &url };
        let words = [&words[..], &[to, at]].concat();
        let login = [("COUCHDB_USER", "adm"), ("COUCHDB_PASSWORD", PASSWORD)];
        let (_, out, err) = run(dir.path(), &words, &login).await;
        let is_printable = |it: char| it == '\n' || !(it.is_control() || it == '\u{202e}');
        assert!([&out, &err].iter().all(|text| text.chars().all(is_printable)), "{out}{err}");
        assert!(!out.lines().any(|line| line.starts_with("recliner_evil")), "{out}");
    }
    let log = victim.stop().await;
    assert!(!log.lines().any(|line| line.starts_with("recliner_evil")), "{log:.2000}");
    assert!(!log.contains('\u{1b}'), "{log:.2000}");
}

/// A configuration that starts everything due at once.
const ENFORCING: &str = "mode: enforce
poll: 1s
limits: {per_node: 3, cluster: 9, wait: 0s, duty: 100%}
headroom: {volumes: [{nodes: ['node1@127.0.0.1'], available: 1TB}]}
pressure: {probe_latency: {high: 1h, low: 30m}}
";

#[tokio::test]
async fn ignored_orders_are_not_repeated() {
    let orders = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&orders);
    let couch = FalseCouch::open(small_world(), move |request| {
        let path = request.uri().path();
        let ordered = path.ends_with("/_compact") || path.ends_with("/_view_cleanup");
        ordered.then(|| {
            count.fetch_add(1, Ordering::Relaxed);
            (StatusCode::ACCEPTED, [(header::CONTENT_TYPE, "application/json")], r#"{"ok":true}"#)
                .into_response()
        })
    })
    .await;
    let victim = couch.read_by_a_service(ENFORCING).await;
    let ((), harm) = victim.during(time::sleep(Duration::from_secs(45))).await;
    harm.within(200);
    let sent = orders.load(Ordering::Relaxed);
    // Orders for the two shards, and a cleanup of the database's index files.
    assert!((1..=4).contains(&sent), "{sent} orders in 45 seconds");
    victim.stop().await;
}

#[tokio::test]
async fn deleted_journal_is_reported_while_reads_continue() {
    let couch = FalseCouch::open(small_world(), |_| None).await;
    let victim = couch.read_by_a_service(ENFORCING).await;
    victim.until("/metrics", "recliner_journal_usable 1").await;
    std::fs::remove_dir_all(victim.dir.path().join("data")).expect("the directory is removable");
    let ((), harm) = victim.during(victim.until("/metrics", "recliner_journal_usable 0")).await;
    harm.within(200);
    assert_eq!(victim.get("/api/v1/status").await.0, 200);
}
