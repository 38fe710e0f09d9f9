//! A fake CouchDB cluster in one handler.

use crate::{Address, Client, ClientSettings, Login, Transport};
use axum::{
    Router,
    body::Body,
    extract::Request,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

pub(super) const NODES: [&str; 3] = ["couchdb@a", "couchdb@b", "couchdb@c"];

/// One request as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) host: String,
    pub(super) path: String,
    /// Whether it begins a session.
    pub(super) login: bool,
    /// The password, in whichever form it came.
    pub(super) password: Option<String>,
    /// The secret of the server that made the request's cookie, if it has one: servers do not count
    /// wrong cookies.
    pub(super) secret: Option<String>,
}

/// How a test answers a request; `None` leaves it to the cluster.
pub(super) type Rule = Arc<dyn Fn(&Seen) -> Option<Response> + Send + Sync>;

/// The state of the fake servers.
#[derive(Clone)]
pub(super) struct Cluster {
    /// The right password of each server, by node.
    pub(super) passwords: watch::Sender<[&'static str; 3]>,
    /// Each server's secret, with which it recognises its sessions; `None` if it recognises none.
    pub(super) sessions: watch::Sender<[Option<&'static str>; 3]>,
    log: mpsc::Sender<Seen>,
    rule: Rule,
    /// How long each answer takes.
    pub(super) delay: Duration,
    pub(super) in_flight: Arc<AtomicUsize>,
    pub(super) most_in_flight: Arc<AtomicUsize>,
}

pub(super) fn json(status: u16, body: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_owned()).into_response()
}

pub(super) const BAD_LOGIN: &str =
    r#"{"error":"unauthorized","reason":"Name or password is incorrect."}"#;
pub(super) const NOT_ADMIN: &str =
    r#"{"error":"unauthorized","reason":"You are not a server admin."}"#;

fn shard(name: &str) -> Response {
    let name = percent_encoding::percent_decode_str(name).decode_utf8().unwrap();
    let body = serde_json::json!({
        "db_name": name, "update_seq": 7, "sizes": {"file": 4096, "active": 1024, "external": 900},
    });
    json(200, &body.to_string())
}

impl Cluster {
    /// The cluster, and the log of requests that arrived.
    pub(super) fn new(
        rule: impl Fn(&Seen) -> Option<Response> + Send + Sync + 'static,
    ) -> (Self, mpsc::Receiver<Seen>) {
        let (log, seen) = mpsc::channel(100_000);
        let cluster = Self {
            passwords: watch::Sender::new(["right"; 3]),
            sessions: watch::Sender::new([Some("s"); 3]),
            log,
            rule: Arc::new(rule),
            delay: Duration::from_millis(10),
            in_flight: Arc::default(),
            most_in_flight: Arc::default(),
        };
        (cluster, seen)
    }

    pub(super) fn router(&self) -> Router {
        let cluster = self.clone();
        Router::new().fallback(move |request: Request| {
            let cluster = cluster.clone();
            async move { cluster.answer(seen_of(request).await).await }
        })
    }

    /// How a node answers a login: the body of the refusal if the password is wrong, otherwise
    /// whether it knows the user.
    fn login(&self, node: &str, seen: &Seen) -> Result<bool, &'static str> {
        let at = NODES.iter().position(|name| *name == node).unwrap_or_default();
        let right = seen.password.as_deref() == Some(self.passwords.borrow()[at]);
        if seen.secret.is_none() {
            return if right { Ok(true) } else { Err(BAD_LOGIN) };
        }
        Ok(right && seen.secret.as_deref() == self.sessions.borrow()[at])
    }

    async fn answer(&self, seen: Seen) -> Response {
        self.log.try_send(seen.clone()).unwrap();
        let now = self.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_in_flight.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(self.delay).await;
        self.in_flight.fetch_sub(1, Ordering::SeqCst);
        if let Some(answer) = (self.rule)(&seen) {
            return answer;
        }
        self.answer_as_couchdb(&seen)
    }

    fn answer_as_couchdb(&self, seen: &Seen) -> Response {
        if seen.path == "/" && seen.password.is_none() {
            return json(200, r#"{"couchdb":"Welcome","version":"3.5.0"}"#);
        }
        let here = format!("couchdb@{}", seen.host);
        let known = match self.login(&here, seen) {
            Ok(known) => known,
            Err(bad) => return json(401, bad),
        };
        if seen.login {
            let at = NODES.iter().position(|name| *name == here).unwrap_or_default();
            let secret = self.sessions.borrow()[at].unwrap_or("switched off");
            let password = seen.password.as_deref().unwrap_or_default();
            let cookie = format!("AuthSession={secret}.{password}; Path=/; Max-Age=600");
            let mut begun = json(200, r#"{"ok":true,"name":"adm","roles":["_admin"]}"#);
            begun.headers_mut().insert(header::SET_COOKIE, cookie.parse().unwrap());
            return begun;
        }
        let path = seen.path.split('?').next().unwrap();
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        match parts.as_slice() {
            ["_session"] => session(known),
            _ if !known => json(401, NOT_ADMIN),
            ["_up"] => json(404, r#"{"status":"maintenance_mode"}"#),
            ["_membership"] => json(200, r#"{"all_nodes":[],"cluster_nodes":[]}"#),
            ["_node", "_local"] => json(200, &format!(r#"{{"name":"{here}"}}"#)),
            ["_node", "_local", "_smoosh", "status"] => {
                json(200, &format!(r#"{{"channels":{{"{here}":{{"active":1}}}}}}"#))
            }
            ["_node", node, rest @ ..] => {
                let known = match self.login(node, seen) {
                    Ok(known) => known,
                    Err(bad) => return json(401, bad),
                };
                match rest {
                    ["_session"] => session(known),
                    _ if !known => json(401, NOT_ADMIN),
                    ["_all_dbs"] => json(200, r#"["_dbs"]"#),
                    [name] => shard(name),
                    _ => json(404, r#"{"error":"not_found","reason":"missing"}"#),
                }
            }
            [db] => shard(db),
            _ => json(404, r#"{"error":"not_found","reason":"missing"}"#),
        }
    }
}

async fn seen_of(request: Request) -> Seen {
    let (head, body) = request.into_parts();
    let text =
        |name| head.headers.get(name).map(|value: &http::HeaderValue| value.to_str().unwrap());
    let basic = text(header::AUTHORIZATION).map(|basic| {
        let login = STANDARD.decode(basic.strip_prefix("Basic ").unwrap()).unwrap();
        String::from_utf8(login).unwrap().strip_prefix("adm:").unwrap().to_owned()
    });
    let cookie = text(header::COOKIE).map(|cookie| {
        let (secret, password) =
            cookie.strip_prefix("AuthSession=").unwrap().split_once('.').unwrap();
        (secret.to_owned(), password.to_owned())
    });
    assert!(basic.is_none() || cookie.is_none(), "a password or a cookie, not both");
    let login = head.method == http::Method::POST;
    let form = if login {
        let body = axum::body::to_bytes(body, 4096).await.unwrap();
        let form: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&form["name"], text(header::CONTENT_TYPE)),
            (&"adm".into(), Some("application/json"))
        );
        form["password"].as_str().map(str::to_owned)
    } else {
        None
    };
    let (secret, by_cookie) = cookie.unzip();
    Seen {
        host: text(header::HOST).unwrap().split(':').next().unwrap().to_owned(),
        path: head.uri.path_and_query().unwrap().to_string(),
        login,
        password: basic.or(form).or(by_cookie),
        secret,
    }
}

fn session(known: bool) -> Response {
    json(
        200,
        if known {
            r#"{"ok":true,"userCtx":{"name":"adm","roles":["_admin"]}}"#
        } else {
            r#"{"ok":true,"userCtx":{"name":null,"roles":[]}}"#
        },
    )
}

/// A response whose body never ends.
pub(super) fn endless() -> Response {
    Response::new(Body::from_stream(futures::stream::pending::<Result<bytes::Bytes, String>>()))
}

pub(super) fn address(text: &str) -> Address {
    text.parse().unwrap()
}

pub(super) fn settings(urls: &[&str]) -> ClientSettings {
    let mut settings = ClientSettings::new(urls.iter().map(|url| address(url)).collect());
    settings.login = Login::password("adm", "right").unwrap();
    settings.cold_reads_per_second = 0;
    settings.trust_node_hosts = ["a", "b", "c"].map(|host| host.parse().unwrap()).into();
    settings
}

/// A running client; its task ends when this is dropped.
pub(super) struct Running {
    pub(super) client: Client,
    _task: AbortOnDropHandle<()>,
}

impl std::ops::Deref for Running {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

#[expect(clippy::disallowed_methods, reason = "a test is its own supervisor")]
pub(super) fn run(settings: ClientSettings, transport: Transport) -> Running {
    let (client, task) = Client::builder(settings).transport(transport).build().unwrap();
    let task = AbortOnDropHandle::new(tokio::spawn(task.run(CancellationToken::new())));
    Running { client, _task: task }
}

/// A client in the same process as its cluster.
pub(super) fn connect(cluster: &Cluster, settings: ClientSettings) -> Running {
    run(settings, Transport::in_process(cluster.router()))
}

/// Requests that have arrived since the last call.
pub(super) fn drain(seen: &mut mpsc::Receiver<Seen>) -> Vec<Seen> {
    std::iter::from_fn(|| seen.try_recv().ok()).collect()
}

/// Paths of the requests that have arrived since the last call.
pub(super) fn paths(seen: &mut mpsc::Receiver<Seen>) -> Vec<String> {
    let words = |seen: Seen| {
        let post = if seen.login { "POST " } else { "" };
        format!("{} {post}{}", seen.host, seen.path)
    };
    drain(seen).into_iter().map(words).collect()
}

/// How long `work` takes on tokio's clock, with a limit so that nothing hangs.
pub(super) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let done = tokio::time::timeout(Duration::from_secs(3600), work).await;
    (done.expect("it ends within an hour of tokio's time"), start.elapsed())
}
