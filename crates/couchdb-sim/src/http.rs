//! CouchDB's HTTP routes over a simulated cluster.
//!
//! Owns the path of a request: finds its node, injects faults, checks the login, routes it, and adds it
//! to the log. The routes are in the modules below, each a synchronous function of the locked cluster;
//! only feeds wait. Never listens: axum, or a client in the same process, calls the router.

mod answer;
mod ask;
mod backend;
mod database;
mod feed;
mod frozen;
mod inject;
mod node;
mod search;
mod server;
mod system;

use super::{
    Cluster, ConnectionRefused, Exchange,
    access::{Checks, Login, Shown},
    cluster::Inner,
    config::V3_4_0,
    fault::Effect,
    session,
    session::Keeping,
};
use answer::{Answer, error};
use ask::ParsedRequest;
pub(super) use ask::query;
use axum::{Router, body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;

/// The maximum size of a request in bytes: more than CouchDB's node interface ever needs.
const MAX_BODY_BYTES: usize = 1 << 20;

/// How the node of a request is determined.
#[derive(Clone, Debug)]
pub(super) enum Entry {
    /// It arrived at this node's address.
    Node(Arc<str>),
    /// By its host.
    Host,
}

/// The result of a route.
#[derive(Debug)]
enum Routed {
    /// An immediate response.
    Answer(Answer),
    /// A feed that waits.
    Feed(feed::Feed),
    /// A query that waits for its index.
    Search(search::Query),
    /// No response, as when CouchDB hangs.
    Hang,
}

impl From<Answer> for Routed {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

pub(super) fn router(cluster: Cluster, entry: Entry) -> Router {
    Router::new().fallback(move |request: Request| {
        let (cluster, entry) = (cluster.clone(), entry.clone());
        async move { answer(cluster, entry, request).await }
    })
}

fn refused() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.extensions_mut().insert(ConnectionRefused);
    response
}

/// The node of a host: the part of its name after the `@`, without a port.
fn node_of_host(nodes: Vec<String>, request: &Request) -> Option<String> {
    let header = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
    let host = request.uri().host().or(header)?;
    // A port, but not the last group of a bare IPv6 address.
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    };
    nodes.into_iter().find(|node| node.split_once('@').is_some_and(|(_, own)| own == host))
}

/// The body of a request, where its method has one.
async fn read_body(method: &http::Method, body: Body) -> Result<Bytes, axum::Error> {
    if *method == http::Method::GET || *method == http::Method::HEAD {
        return Ok(Bytes::new());
    }
    axum::body::to_bytes(body, MAX_BODY_BYTES).await
}

/// The name and password that a request to begin a session carries.
fn credentials_in_body(parts: &http::request::Parts, body: &Bytes) -> Shown {
    let kind = parts.headers.get(http::header::CONTENT_TYPE);
    match session::form(kind.and_then(|kind| kind.to_str().ok()), body) {
        Ok(given) => Shown { password: Some(given), session: None },
        Err(_) => Shown::default(),
    }
}

async fn answer(cluster: Cluster, entry: Entry, request: Request) -> Response {
    let node = match entry {
        Entry::Node(node) => Some(node.to_string()),
        Entry::Host => node_of_host(cluster.world(|world| world.nodes()), &request),
    };
    let Some(node) = node else { return refused() };
    let (parts, body) = request.into_parts();
    let Ok(body) = read_body(&parts.method, body).await else {
        return error(413, "too_large", "the request entity is too large").response("3.5.0", 0);
    };
    let begins = parts.method == http::Method::POST && parts.uri.path() == "/_session";
    let shown =
        if begins { credentials_in_body(&parts, &body) } else { Shown::read(&parts.headers) };
    let (up, effect) = cluster.locked(|inner| {
        let up = inner.world.node_up(&node) == Some(true);
        let target =
            parts.uri.path().strip_prefix("/_node/").and_then(|rest| rest.split('/').next());
        let target = target.map(|name| name.replace("%40", "@"));
        let path = parts.uri.path();
        (up, inner.planned.effect_on(&node, target.as_deref(), &parts.method, path))
    });
    if !up {
        note(&cluster, &parts, &node, &shown, 0);
        return refused();
    }
    if let Some(Effect::Delay(span)) = effect {
        tokio::time::sleep(span).await;
    }
    if effect == Some(Effect::Hang) {
        note(&cluster, &parts, &node, &shown, 0);
        return std::future::pending().await;
    }
    let wall_start = cluster.wall().unix().saturating_sub(cluster.elapsed().as_secs());
    if frozen::waits(&cluster, &node, parts.uri.path()) {
        let mut left = Left { asked: Some((&cluster, &parts, &node, &shown)) };
        frozen::waited(&cluster, &node, parts.uri.path()).await;
        left.asked = None;
    }
    frozen::connected(&cluster, &node, parts.uri.path()).await;
    let (routed, version, request, set_cookie) = cluster.locked(|inner| {
        let version = inner.world.version_of(&node);
        let checks = checks(inner, &node, wall_start, false);
        let now = inner.world.now();
        let mut login = inner.access.login(&node, &shown, &checks, now);
        let set_cookie = if !begins {
            login.take_renewal()
        } else if login == Login::Wrong {
            Some(session::ENDED.to_owned())
        } else {
            inner.access.begin_session(&login, &checks)
        };
        let mut ask =
            ParsedRequest::new(&parts, node.clone(), (login, shown.clone()), body, wall_start);
        if effect == Some(Effect::FromStart) {
            ask = ask.since_the_start();
        }
        (routed(inner, ask), version, inner.log.seen(), set_cookie)
    });
    let version = version.to_string();
    let answer = match routed {
        Routed::Answer(answer) => answer,
        Routed::Search(query) => {
            let mut left = Left { asked: Some((&cluster, &parts, &node, &shown)) };
            let answer = query.answer(cluster.clone()).await;
            left.asked = None;
            answer
        }
        Routed::Feed(feed) => feed.answer(cluster.clone(), &node).await,
        Routed::Hang => {
            note(&cluster, &parts, &node, &shown, 0);
            return std::future::pending().await;
        }
    };
    let mut response = answer.response(&version, request);
    if let Some(set) = set_cookie.and_then(|set| http::HeaderValue::try_from(set).ok()) {
        response.headers_mut().insert(http::header::SET_COOKIE, set);
    }
    if parts.method == http::Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    let (response, status) = match effect {
        Some(effect) => inject::apply(effect, response, &version).await,
        None => {
            let status = response.status().as_u16();
            (response, status)
        }
    };
    note(&cluster, &parts, &node, &shown, status);
    response
}

/// Logs a request as unanswered when it is dropped, because its client no longer waits.
struct Left<'a> {
    asked: Option<(&'a Cluster, &'a http::request::Parts, &'a str, &'a Shown)>,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        if let Some((cluster, parts, node, shown)) = self.asked {
            note(cluster, parts, node, shown, 0);
        }
    }
}

/// Adds one request to the log.
fn note(cluster: &Cluster, parts: &http::request::Parts, node: &str, shown: &Shown, status: u16) {
    let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    cluster.locked(|inner| {
        inner.log.note(Exchange {
            at: inner.world.now(),
            node: node.to_owned(),
            method: parts.method.clone(),
            path,
            user: shown.user().map(str::to_owned),
            status,
        });
    });
}

/// How a node checks a login; `behind`: of a request that another node passed on.
fn checks(inner: &Inner, node: &str, wall_start: u64, behind: bool) -> Checks {
    let version = inner.world.version_of(node);
    let set = |section: &str, key: &str| inner.world.setting(node, section, key);
    let usual = Keeping::default();
    let handlers = set(if behind { "httpd" } else { "chttpd" }, "authentication_handlers");
    let sessions = Keeping {
        secret: set("chttpd_auth", "secret").map_or(usual.secret, str::to_owned),
        timeout: set("chttpd_auth", "timeout")
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or(usual.timeout),
        reads_cookies: handlers.is_none_or(|all| all.contains("cookie_authentication_handler")),
    };
    let lockout = !behind && version >= V3_4_0;
    Checks { lockout, sessions, wall: wall_start.saturating_add(inner.world.now().as_secs()) }
}

/// The response to a missing or wrong login; `None`: the request may proceed.
fn turned_away(inner: &Inner, ask: &ParsedRequest) -> Option<Answer> {
    match ask.login {
        Login::Wrong => Some(error(401, "unauthorized", "Name or password is incorrect.")),
        Login::Locked => {
            let reason = "Account is temporarily locked due to multiple authentication failures";
            Some(error(403, "forbidden", reason))
        }
        Login::Anonymous => {
            let asked = |key| inner.world.setting(&ask.node, "chttpd", key) == Some("true");
            let but_up = asked("require_valid_user_except_for_up");
            let strict = asked("require_valid_user");
            // Anyone may try to log in.
            let open = match ask.segments.as_slice() {
                [first] if first == "_session" => ask.method == http::Method::POST,
                [first] if first == "_up" => but_up,
                _ => false,
            };
            ((strict || but_up) && !open)
                .then(|| error(401, "unauthorized", "Authentication required."))
        }
        Login::As { .. } => None,
    }
}

/// Checks the login and routes the request.
fn routed(inner: &mut Inner, ask: ParsedRequest) -> Routed {
    if let Some(refused) = turned_away(inner, &ask) {
        return refused.into();
    }
    let segments: Vec<&str> = ask.segments.iter().map(String::as_str).collect();
    match segments.as_slice() {
        _ if frozen::is_lost(inner, &segments) => {
            error(500, "nodedown", "progress not possible").into()
        }
        ["_node", node, rest @ ..] => node::route(inner, &ask, node, rest),
        ["_db_updates"] => feed::route(inner, &ask),
        ["_global_changes"] if ask.method == http::Method::GET => feed::database(inner, &ask),
        [] => server::root(inner, &ask.node).into(),
        [first, ..] if first.starts_with('_') && inner.world.description(first).is_none() => {
            server::route(inner, &ask, &segments).into()
        }
        [db, rest @ ..] => database::route(inner, &ask, db, rest),
    }
}

/// The response to a request without admin rights; `None`: it may proceed.
fn admin_only(ask: &ParsedRequest) -> Option<Answer> {
    (!ask.login.is_admin()).then(|| error(401, "unauthorized", "You are not a server admin."))
}

#[cfg(test)]
mod tests;
