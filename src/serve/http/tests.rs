//! The web interface as a whole, called through the router without a socket.

mod admin;
mod answers;
mod backup;
mod console;
mod databases;
mod docs;
mod fleet;
mod golden;
mod hostile;
mod journal;
mod openapi;
mod orders;
mod preflight;
mod runs;
mod scrape;
mod shared_limits;
pub(crate) mod sums;
mod suspended;
mod updates;
mod what_if;

use super::*;
use crate::{
    act::sharing::Sharing,
    advice::{
        AdviceView, Finding, Gain, Remedy, RuleResult, Severity, Subject, Surplus, rule_of_code,
    },
    model::{
        channel::{Channels, Mode},
        facts::{FactFlags, FactSource, Facts, Measurement, OptionalU64},
        records::{AdviceKey, Mute, ScorecardHour, ScorecardSide, hour_begin, hour_of},
        target::TargetState,
    },
    plan::{Conditions, Plan, Queues},
    scan::{Progress, ScanStatus, xrays::XrayHandle},
    sources::present_design::DesignReader,
    table::{
        DbName, Draft, NodeSmoosh, PriorityRange, ShardMapEntry, SmooshChannel, Snapshot, TargetIx,
        View,
    },
    what_if::scorecard::{AdviceCounters, ScorecardState, ScorecardView},
};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, Request, StatusCode},
};
use couchdb_client::{self, CertificateEnds, EntryStatus, OwnAddress};
use couchdb_names::{Range, Signature, Version};
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use wall_clock::{Clock, Moment, TimeSource};

const MIB: u64 = 1 << 20;
const NOW: Moment = Moment::from_unix(1_795_222_440);
const RANGE: Range = Range { from: 0, to: u32::MAX };

/// A clock that stands still at `NOW`.
const STOPPED: Clock = Clock::Custom(&Stopped);

#[derive(Debug)]
struct Stopped;

impl TimeSource for Stopped {
    fn now(&self) -> Moment {
        NOW
    }
}

/// The names of a database and a design document with unusual characters.
const ODD_DB: &str = "app/_design/x+y(1)$";
const ODD_DESIGN: &str = "_design/\"b\\\u{fc}cher\"\n<script>alert(1)</script>&amp;%2F..";

fn facts(file: u64, active: u64) -> Facts {
    Facts {
        external_bytes: OptionalU64::new(active * 2),
        ..Facts::read(file, active, Moment::from_unix(1_795_222_434))
    }
}

/// The design document of every database, or the reason why it cannot be read.
#[derive(Debug)]
struct Designs(Result<Option<&'static str>, &'static str>);

impl DesignReader for Designs {
    fn design<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, String>> {
        let read = self.0.map(|text| text.map(str::to_owned)).map_err(str::to_owned);
        Box::pin(async { read })
    }

    fn designs<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Vec<String>, String>> {
        let read = self.0.map(|text| text.map(str::to_owned).into_iter().collect());
        let read = read.map_err(str::to_owned);
        Box::pin(async { read })
    }
}

/// One node that answers and one that does not; targets of every kind and most states.
fn snapshot() -> Arc<Snapshot> {
    let mut draft = Draft::new(3);
    let a = draft.get_or_add_node("couchdb@a");
    let b = draft.get_or_add_node("couchdb@b");
    draft.update_node(a, |node| {
        node.is_up = Some(true);
        node.is_member = true;
        node.build = Some(Version::new(3, 5, 0).into());
        node.own_address = OwnAddress::Found("http://couch-a:5984/db".parse().unwrap());
        node.last_success = Some(NOW);
        node.oldest_fact = Some(Moment::from_unix(1_795_222_434));
        node.smoosh = NodeSmoosh::Channels(vec![SmooshChannel {
            name: "ratio_dbs".into(),
            active: 1,
            starting: 0,
            waiting: 7,
            priority_range: Some(PriorityRange { min: 2.5, max: f64::INFINITY }),
        }]);
    });
    draft.update_node(b, |node| {
        node.is_up = Some(false);
        node.is_member = true;
    });
    let orders = draft.get_or_add_db(DbName { db: "orders", suffix: ".17" });
    let shard = draft.get_or_add_shard(a, orders, Some(RANGE));
    draft.set_facts(shard, facts(100 * MIB, 10 * MIB));
    let unread = draft.get_or_add_shard(b, orders, Some(RANGE));
    draft.set_state(unread, TargetState::Missing);
    // The previous instance of the database, whose file was left behind.
    let old = draft.get_or_add_db(DbName { db: "orders", suffix: ".16" });
    let old = draft.get_or_add_shard(a, old, Some(RANGE));
    draft.set_facts(old, facts(500 * MIB, MIB));
    draft.set_state(old, TargetState::Orphan);
    let odd = draft.get_or_add_db(DbName { db: ODD_DB, suffix: ".17" });
    let odd_shard = draft.get_or_add_shard(a, odd, Some(RANGE));
    draft.set_facts(odd_shard, facts(60 * MIB, 20 * MIB));
    // A node-local database: no range, no suffix.
    let dbs = draft.get_or_add_db(DbName { db: "_dbs", suffix: "" });
    let dbs = draft.get_or_add_shard(a, dbs, None);
    draft.set_facts(dbs, facts(8_192, 0));
    let mut view = |db, signature, designs: &[&str], file| {
        let view = View {
            signature: Signature([signature; 16]),
            designs: designs.iter().map(|design| (*design).into()).collect(),
            language: "javascript".into(),
            collators: ["153.120".into()].into(),
            exact_range: true,
            ..View::default()
        };
        let ix = draft.add_view(db, view);
        draft.set_shard_map(db, ShardMapEntry { copies: 3, ranges: 1 }, &[ix]);
        let flags = FactFlags { estimated: true, ..FactFlags::default() };
        let known = Facts { flags, updates_pending: OptionalU64::new(4), ..facts(file, MIB) };
        draft.set_facts(ix, known);
    };
    view(orders, 1, &["_design/clients", "_design/customers"], 30 * MIB);
    view(odd, 1, &[ODD_DESIGN], 20 * MIB);
    draft.get_or_add_cleanup(orders);
    draft.publish(NOW)
}

fn planned(snapshot: &Arc<Snapshot>) -> Plan {
    let mut queues = Queues::new(Arc::new(Channels::default()));
    queues.apply_snapshot(snapshot, NOW);
    queues.make_plan(snapshot, &Conditions::default(), &Arc::default(), NOW)
}

/// A URL that answers, one that does not, and one that was not tried yet.
fn entries() -> Arc<[EntryStatus]> {
    let entry = |url: &str, up| EntryStatus { url: url.parse().unwrap(), up, why: None };
    let down =
        EntryStatus { why: Some("no answer".to_owned()), ..entry("http://b:5984", Some(false)) };
    [entry("http://a:5984", Some(true)), down, entry("http://c:5984/couch", None)].into()
}

/// Advice with a muted finding and one that is not muted.
fn advice() -> AdviceView {
    let finding = |db: &str| Finding {
        severity: Severity::Info,
        subject: Subject::Database(db.to_owned()),
        says: format!("2 shard files of {db} belong to no database."),
        evidence: vec![("files", 2_u64.into()), ("nodes", "n@a".to_owned().into())],
        gain: Gain::Bytes(70 << 20),
        remedy: vec![Remedy::recliner("List the files:", &["explain", db])],
    };
    let rule = rule_of_code("orphan_shards").unwrap();
    let results = vec![RuleResult {
        rule,
        findings: vec![finding("old"), finding("older")],
        surplus: Surplus::default(),
    }];
    let mute =
        Mute { since: NOW, until: NOW.plus(Duration::from_secs(86_400)), by: None, why: None };
    let mut view = AdviceView::found(results, NOW);
    view.set_mute(AdviceKey::of(rule.code, "older".to_owned()), Some(mute));
    view
}

/// A scorecard with two hours of advice, of which the second is the current one.
fn scorecard() -> ScorecardView {
    let hour = |advised_seconds: u64, freed_bytes| ScorecardHour {
        advised_seconds,
        real: ScorecardSide {
            waste_byte_seconds: (90 * MIB * advised_seconds) as f64,
            peak_waste_bytes: 95 * MIB,
            ..ScorecardSide::default()
        },
        advised: ScorecardSide {
            compactions: 2,
            freed_bytes,
            rewritten_bytes: 20 * MIB,
            waste_byte_seconds: (30 * MIB * advised_seconds) as f64,
            peak_waste_bytes: 95 * MIB,
            peak_extra_bytes: 10 * MIB,
            ..ScorecardSide::default()
        },
        conflicts: 1,
        ..ScorecardHour::default()
    };
    let this = hour_of(NOW);
    let before = (NOW.unix() - hour_begin(this).unix()).min(3_000);
    ScorecardView {
        hours: [(this - 1, hour(3_000, 60 * MIB)), (this, hour(before, 5 * MIB))].into(),
        state: ScorecardState::Advising,
        running: 1,
        targets: 3,
        counters: AdviceCounters { compactions: 4, ..AdviceCounters::default() },
        advised_waste_bytes: Some(30 * MIB),
        updated_at: NOW,
    }
}

/// The state of a web interface, with the other ends of its channels.
pub(in crate::serve::http) struct Surface {
    pub(in crate::serve::http) state: AppState,
    plan: watch::Sender<Arc<Plan>>,
    status: watch::Sender<Arc<ScanStatus>>,
    config: watch::Sender<Arc<ConfigStatus>>,
    orders: mpsc::Receiver<Command>,
}

impl Surface {
    pub(in crate::serve::http) fn new() -> Self {
        let (plan, plan_rx) = watch::channel(Arc::new(planned(&snapshot())));
        let status = ScanStatus {
            ready: true,
            sweeps: 2,
            last_duration: Some(Duration::from_millis(2_500)),
            last_end: Some(NOW),
            last_success: Some(NOW),
            errors: [(("couchdb@b".into(), "connect"), 2)].into(),
            last_error: Some("could not ask couchdb@b".to_owned()),
            last_error_at: Some(Moment::from_unix(NOW.unix() - 60)),
            ..ScanStatus::default()
        };
        let (status, status_rx) = watch::channel(Arc::new(status));
        let config = ConfigStatus {
            shown: json!({"scan": {"interval": "5m"}}),
            mode: Mode::Advise,
            price_per_gib_month: Some(0.5),
            reload_successful: true,
            loaded_at: Moment::from_unix(1_795_222_000),
            needs_restart: Vec::new(),
        };
        let (config, config_rx) = watch::channel(Arc::new(config));
        let (orders_tx, orders) = mpsc::channel(1);
        let about = ProcessInfo {
            version: "0.1.0",
            revision: "unknown",
            date: "unknown",
            simulated: false,
            simulated_weeks: Vec::new(),
        };
        let state = AppState {
            plan: plan_rx,
            scorecard: watch::channel(Arc::new(scorecard())).1,
            ledger: watch::channel(Arc::default()).1,
            fleet: watch::channel(Arc::default()).1,
            sharing: Sharing::none(),
            reads: watch::channel(Arc::default()).1,
            waste_reasons: KeptReasons::default(),
            advice: watch::channel(Arc::new(advice())).1,
            status: status_rx,
            couchdb: watch::channel(entries()).1,
            counts: watch::channel(Arc::default()).1,
            about: Arc::new(about),
            clock: Clock::anchored(NOW),
            config: config_rx,
            changes: watch::channel(Arc::default()).1,
            takeovers: watch::channel(Arc::default()).1,
            node_settings: watch::channel(Arc::default()).1,
            designs: Arc::new(Designs(Ok(None))),
            xrays: XrayHandle::none(),
            certificates: watch::channel(CertificateEnds::default()).1,
            builds: watch::channel(Arc::default()).1,
            registry: prometheus::Registry::new(),
            journal: None,
            feed: None,
            orders: orders_tx,
            allow: Allow { lifecycle: true, admin: true, ..Allow::default() },
            web: WebAccess::default(),
            stop: CancellationToken::new(),
            limits: Limits::default(),
        };
        Self { state, plan, status, config, orders }
    }

    /// The service's router. A request that names no host names this machine's address.
    fn router(&self) -> Router {
        let with_host = middleware::map_request(async |mut request: Request<Body>| {
            let address = HeaderValue::from_static("127.0.0.1:10984");
            request.headers_mut().entry("host").or_insert(address);
            request
        });
        Router::new().fallback_service(router(self.state.clone())).layer(with_host)
    }

    async fn ask(&self, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
        ask(self.router(), method, path, headers).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[]).await
    }

    async fn json(&self, path: &str) -> (StatusCode, Value) {
        let answer = self.get(path).await;
        assert_eq!(answer.header("content-type"), "application/json", "{path}");
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }

    /// The data of a successful response, as its type.
    async fn answer<T: DeserializeOwned>(&self, path: &str) -> T {
        serde_json::from_value(self.data(path).await).unwrap_or_else(|why| panic!("{path}: {why}"))
    }

    /// The data of a successful response, for tests of the JSON itself.
    async fn data(&self, path: &str) -> Value {
        let (status, mut body) = self.json(path).await;
        assert_eq!((status, &body["status"]), (StatusCode::OK, &json!("success")), "{path}");
        assert_eq!(body.as_object().unwrap().len(), 2, "{path}");
        body["data"].take()
    }
}

/// A TCP connection from this machine.
const HERE: peer::Connection = peer::Connection {
    peer: peer::Peer::Tcp(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
    encrypted: false,
};

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    /// A header, or an empty text without it.
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

async fn ask(router: Router, method: Method, path: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::builder().method(method).uri(path).extension(HERE);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let asked = router.oneshot(request.body(Body::empty()).unwrap());
    let answer = tokio::time::timeout(Duration::from_secs(60), asked).await;
    let (parts, body) = answer.expect("no response within a minute").unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes().to_vec();
    Answer { status: parts.status, headers: parts.headers, body }
}

#[tokio::test]
async fn every_response_has_security_headers() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let users = "basic_auth_users: {ann: $2b$12$hNf2lSsxfm0.i4a.1kVpSOVyBCfIB51VRjgBUyv6kdnyTlgWj81Ay}\n\
        http_server_config: {headers: {X-Frame-Options: sameorigin}}\n";
    std::fs::write(file.path(), users).unwrap();
    let mut surface = Surface::new();
    surface.state.web = WebAccess::open(Some(file.path())).unwrap();
    let refused = surface.get("/docs/").await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert_eq!(refused.header("x-content-type-options"), "nosniff");
    assert_eq!(refused.header("cache-control"), "no-store");
    assert_eq!(refused.header("x-frame-options"), "sameorigin");
    let surface = Surface::new();
    for path in
        ["/", "/metrics", "/-/healthy", "/-/reload", "/api/v1/status", "/api/v1/no", "/no", "/api"]
    {
        let answer = surface.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.header("x-frame-options"), "DENY", "{path}");
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none';"), "{path}: {policy}");
        assert!(!answer.header("content-type").is_empty(), "{path}");
    }
}

#[tokio::test]
async fn head_responds_like_get_without_a_body() {
    let surface = Surface::new();
    for (path, headers) in [
        ("/", &[][..]),
        ("/metrics", &[]),
        ("/metrics", &[("accept-encoding", "gzip")]),
        ("/-/healthy", &[]),
        ("/-/ready", &[]),
        ("/api/v1/status", &[]),
        ("/api/v1/targets", &[]),
        ("/api/v1/no", &[]),
        ("/no", &[]),
    ] {
        let get = surface.ask(Method::GET, path, headers).await;
        let head = surface.ask(Method::HEAD, path, headers).await;
        assert_eq!(head.status, get.status, "{path}");
        assert_eq!(head.headers, get.headers, "{path}");
        assert_eq!(head.body, b"", "{path}");
        assert!(!get.body.is_empty(), "{path}");
    }
    let head = surface.ask(Method::HEAD, "/metrics", &[]).await;
    let get = surface.get("/metrics").await;
    assert_eq!(head.header("content-length"), get.body.len().to_string());
}

#[tokio::test]
async fn refuses_other_methods_and_lists_the_supported_ones() {
    let surface = Surface::new();
    for (method, path, allow) in [
        (Method::POST, "/", "GET,HEAD"),
        (Method::POST, "/metrics", "GET,HEAD"),
        (Method::DELETE, "/-/ready", "GET,HEAD"),
        (Method::GET, "/-/reload", "POST"),
        (Method::PUT, "/-/reload", "POST"),
        (Method::HEAD, "/-/quit", "POST"),
        (Method::POST, "/api/v1/targets", "GET,HEAD"),
        (Method::PUT, "/api/v1/config", "GET,HEAD"),
    ] {
        let answer = surface.ask(method.clone(), path, &[]).await;
        assert_eq!(answer.status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
        assert_eq!(answer.header("allow"), allow, "{method} {path}");
        if path.starts_with("/api/") {
            let body: Value = serde_json::from_slice(&answer.body).unwrap();
            assert_eq!(body["errorType"], "method_not_allowed", "{method} {path}");
        }
    }
    let answer = surface.get("/nothing").await;
    assert_eq!(
        (answer.status, answer.text()),
        (StatusCode::NOT_FOUND, "no such page; / lists the pages\n")
    );
}
