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
mod login;
mod node;
mod search;
mod server;
mod system;

use super::{
    Cluster, ConnectionRefused, Exchange,
    access::{Login, Shown},
    cluster::Inner,
    fault::Effect,
    session,
};
use answer::{Routed, error};
use ask::ParsedRequest;
use axum::{Router, body::Body, extract::Request, response::Response};
use bytes::Bytes;
use http::StatusCode;
use std::sync::Arc;

/// The maximum size of a request in bytes: more than CouchDB's node interface ever needs.
const MAX_BODY_BYTES: usize = 1 << 20;

/// How the node of a request is determined.
#[derive(Clone, Debug)]
enum Entry {
    /// The request arrived at this node's address.
    Node(Arc<str>),
    /// By the host in the request.
    Host,
}

fn router(cluster: Cluster, entry: Entry) -> Router {
    Router::new().fallback(move |request: Request| answer(cluster.clone(), entry.clone(), request))
}

impl Cluster {
    /// The HTTP server at this node's own address.
    pub fn router(&self, node: &str) -> Router {
        router(self.clone(), Entry::Node(node.into()))
    }

    /// One router for all nodes, selected by the host in the request's URI or `Host` header: the
    /// host of `couchdb@sim-1.local` is `sim-1.local`, with any port.
    pub fn by_host(&self) -> Router {
        router(self.clone(), Entry::Host)
    }

    /// Each node's name with its router.
    pub fn routers(&self) -> Vec<(String, Router)> {
        let nodes = self.world(|world| world.nodes());
        nodes.into_iter().map(|node| (node.clone(), self.router(&node))).collect()
    }
}

fn refused() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.extensions_mut().insert(ConnectionRefused);
    response
}

/// The node with this host, which is the part of a node's name after the `@`; the port is ignored.
fn node_of_host(nodes: Vec<String>, request: &Request) -> Option<String> {
    let header = request.headers().get(http::header::HOST).and_then(|host| host.to_str().ok());
    let host = request.uri().host().or(header)?;
    // The part after the last colon is a port, unless it is the last group of a bare IPv6 address.
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    };
    nodes.into_iter().find(|node| node.split_once('@').is_some_and(|(_, own)| own == host))
}

/// The body of a request; empty for GET and HEAD.
async fn read_body(method: &http::Method, body: Body) -> Result<Bytes, axum::Error> {
    if *method == http::Method::GET || *method == http::Method::HEAD {
        return Ok(Bytes::new());
    }
    axum::body::to_bytes(body, MAX_BODY_BYTES).await
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
    let shown = if begins {
        login::credentials_in_body(&parts, &body)
    } else {
        Shown::read(&parts.headers)
    };
    let visit = Visit { cluster: &cluster, parts: &parts, node: &node, shown: &shown };
    let path = parts.uri.path();
    let (up, effect) = cluster.locked(|inner| {
        let up = inner.world.node_up(&node) == Some(true);
        let target = path.strip_prefix("/_node/").and_then(|rest| rest.split('/').next());
        let target = target.map(|name| name.replace("%40", "@"));
        (up, inner.planned.effect_on(&node, target.as_deref(), &parts.method, path))
    });
    if !up {
        visit.note(0);
        return refused();
    }
    if let Some(Effect::Delay(span)) = effect {
        tokio::time::sleep(span).await;
    }
    if effect == Some(Effect::Hang) {
        return visit.hang().await;
    }
    let wall_start = cluster.wall().unix().saturating_sub(cluster.elapsed().as_secs());
    if frozen::waits(&cluster, &node, path) {
        visit.noted_if_left(frozen::waited(&cluster, &node, path)).await;
    }
    frozen::connected(&cluster, &node, path).await;
    let (routed, version, request, set_cookie) = cluster.locked(|inner| {
        let version = inner.world.version_of(&node).to_string();
        let checks = login::checks(inner, &node, wall_start, false);
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
    let answer = match routed {
        Routed::Answer(answer) => answer,
        Routed::Wait(answer) => visit.noted_if_left(answer(cluster.clone())).await,
        Routed::Hang => return visit.hang().await,
    };
    let mut response = answer.response(&version, request);
    if let Some(set) = set_cookie.and_then(|set| http::HeaderValue::try_from(set).ok()) {
        response.headers_mut().insert(http::header::SET_COOKIE, set);
    }
    if parts.method == http::Method::HEAD {
        *response.body_mut() = Body::empty();
    }
    let mut status = response.status().as_u16();
    if let Some(effect) = effect {
        (response, status) = inject::apply(effect, response, &version).await;
    }
    visit.note(status);
    response
}

/// A request at a node.
#[derive(Clone, Copy)]
struct Visit<'a> {
    cluster: &'a Cluster,
    parts: &'a http::request::Parts,
    node: &'a str,
    shown: &'a Shown,
}

impl Visit<'_> {
    /// Adds the request to the log.
    fn note(self, status: u16) {
        let path = self.parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
        self.cluster.locked(|inner| {
            inner.log.note(Exchange {
                at: inner.world.now(),
                node: self.node.to_owned(),
                method: self.parts.method.clone(),
                path,
                user: self.shown.user().map(str::to_owned),
                status,
            });
        });
    }

    /// Logs the request and never responds.
    async fn hang(self) -> Response {
        self.note(0);
        std::future::pending().await
    }

    /// Logs the request as unanswered if this future is dropped because its client no longer waits.
    async fn noted_if_left<T>(self, wait: impl Future<Output = T>) -> T {
        let mut guard = NotedOnDrop(Some(self));
        let output = wait.await;
        guard.0 = None;
        output
    }
}

struct NotedOnDrop<'a>(Option<Visit<'a>>);

impl Drop for NotedOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(visit) = self.0 {
            visit.note(0);
        }
    }
}

/// Checks the login and routes the request.
fn routed(inner: &mut Inner, ask: ParsedRequest) -> Routed {
    if let Some(refused) = login::turned_away(inner, &ask) {
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

#[cfg(test)]
mod tests;
