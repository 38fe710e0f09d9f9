//! One request out and its answer in, without any choice of where or when.

use super::{
    Asked, Error, Metrics, Route,
    directory::Way,
    gate::Pass,
    metrics,
    transport::{Failure, Outgoing, Reply, Transport},
    wire,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// Bodies larger than this are read on a thread that may take its time.
const LARGE: usize = 1 << 20;

/// Sends requests and counts them.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) transport: Transport,
    pub(super) metrics: Metrics,
    pub(super) timeout: Duration,
}

/// What a server answered.
#[derive(Debug)]
pub(super) enum Answer {
    /// The body, and how long it took.
    Whole { body: Bytes, status: u16, took: Duration },
    /// 401 or 403.
    Refused { status: u16, refusal: wire::Refusal },
}

impl Sender {
    /// Sends one request. An answer that is an error is counted here, one that has to be
    /// read in [`Self::read`].
    pub(super) async fn send(
        &self,
        route: Route<'_>,
        path: &str,
        way: &Way,
        pass: &Pass,
    ) -> Result<Answer, Error> {
        let start = Instant::now();
        let at = &way.server.address;
        let out = Outgoing {
            method: route.method(),
            path,
            login: pass.header.as_ref(),
            header: route.header(),
            body: route.body(),
            limit: route.body_limit(),
        };
        let sending = self.transport.send(at, out);
        let outcome = tokio::time::timeout(self.timeout, sending).await;
        let took = start.elapsed();
        let reply = match outcome {
            Ok(Ok(reply)) => reply,
            Ok(Err(failure)) => {
                let error = self.failed(route, path, way, failure);
                if !matches!(error, Error::Unaddressable(_)) {
                    self.metrics.count(route.label(), error.kind().label(), took);
                }
                return Err(error);
            }
            Err(_) => {
                way.late();
                let asked = Asked::new(&route, path, at);
                let error = Error::Timeout { asked, after: self.timeout };
                self.metrics.count(route.label(), error.kind().label(), took);
                return Err(error);
            }
        };
        way.heal();
        let status = reply.status;
        // A server in maintenance says so with a 404.
        let says_so = status == 404 && matches!(route, Route::Up);
        if (200..300).contains(&status) || says_so {
            return Ok(Answer::Whole { body: reply.body, status, took });
        }
        self.metrics.count(route.label(), metrics::code(status), took);
        self.refused(route, path, way, pass, reply)
    }

    fn failed(&self, route: Route<'_>, path: &str, way: &Way, failure: Failure) -> Error {
        let asked = Asked::new(&route, path, &way.server.address);
        match failure {
            Failure::Connect(detail) => {
                way.server.breaker.strike();
                Error::Connect { asked, detail }
            }
            Failure::Tls(detail) => {
                way.server.breaker.strike();
                Error::Tls { asked, detail }
            }
            Failure::Garbage(detail) => Error::Garbage { asked, detail },
            Failure::TooLarge => Error::TooLarge { asked, limit: route.body_limit() },
            Failure::Unaddressable(cause) => Error::Unaddressable(cause),
        }
    }

    /// What a status other than 2xx means.
    fn refused(
        &self,
        route: Route<'_>,
        path: &str,
        way: &Way,
        pass: &Pass,
        reply: Reply,
    ) -> Result<Answer, Error> {
        let status = reply.status;
        let refusal: wire::Refusal = serde_json::from_slice(&reply.body).unwrap_or_default();
        if matches!(status, 401 | 403) {
            return Ok(Answer::Refused { status, refusal });
        }
        let asked = Asked::new(&route, path, &way.server.address);
        let reason = pass.scrub(&words(&refusal));
        let down = refusal.error.as_deref() == Some("nodedown");
        Err(match (status, route.node()) {
            (300..=399, _) => {
                let to = reply.location.map_or_else(|| "nowhere".to_owned(), |to| bare(&to));
                Error::Redirect { asked, status, to: pass.scrub(&to) }
            }
            (412, Some(node)) if down => Error::NodeDown { asked, node: node.to_owned() },
            (404, Some(_)) if reason.contains("no such node") => {
                Error::UnknownNode { asked, reason }
            }
            (404, _) => Error::NotFound { asked, reason },
            _ => Error::Status { asked, status, reason },
        })
    }

    /// Makes `T` of a body, if `check` finds it to be what was asked for, and counts the
    /// request.
    pub(super) async fn read<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        path: &str,
        way: &Way,
        answer: (Bytes, u16, Duration),
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> Result<T, Error> {
        let (body, status, took) = answer;
        let parsed = if body.len() > LARGE {
            let parsing = tokio::task::spawn_blocking(move || serde_json::from_slice::<T>(&body));
            match parsing.await {
                Ok(parsed) => parsed.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        } else {
            serde_json::from_slice::<T>(&body).map_err(|error| error.to_string())
        };
        match parsed.and_then(|read| check(&read).map(|()| read)) {
            Ok(read) => {
                self.metrics.count(route.label(), metrics::code(status), took);
                Ok(read)
            }
            Err(detail) => {
                let asked = Asked::new(&route, path, &way.server.address);
                let error = Error::Garbage { asked, detail };
                self.metrics.count(route.label(), error.kind().label(), took);
                Err(error)
            }
        }
    }

    /// Asks who the login is: `Ok(Err(_))` says in words how it was refused.
    pub(super) async fn session(
        &self,
        route: Route<'_>,
        way: &Way,
        pass: &Pass,
    ) -> Result<Result<(), String>, Error> {
        let path = route.path()?;
        match self.send(route, &path, way, pass).await? {
            Answer::Refused { status, refusal } => {
                Ok(Err(format!("HTTP {status}, {}", pass.scrub(&words(&refusal)))))
            }
            Answer::Whole { body, status, took } => {
                let has_user = |session: &wire::Session| match session.user {
                    Some(_) => Ok(()),
                    None => Err("it has no userCtx".to_owned()),
                };
                let session: wire::Session =
                    self.read(route, &path, way, (body, status, took), has_user).await?;
                let known = session.name().is_some() || session.is_admin();
                Ok(if known { Ok(()) } else { Err("taken for an anonymous client".to_owned()) })
            }
        }
    }
}

/// A refusal in words.
pub(super) fn words(refusal: &wire::Refusal) -> String {
    match (&refusal.error, &refusal.reason) {
        (_, Some(reason)) => reason.clone(),
        (Some(error), None) => error.clone(),
        (None, None) => "without a reason".to_owned(),
    }
}

/// A redirect's aim without user, password, query and fragment.
fn bare(to: &str) -> String {
    let path = to.split(['?', '#']).next().unwrap_or_default();
    match path.split_once("//") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = authority.rsplit('@').next().unwrap_or_default();
            format!("{scheme}//{host}/{path}")
        }
        None => path.to_owned(),
    }
}

/// One sentence for a refused login.
pub(super) fn refused_why(at: &dyn std::fmt::Display, user: &str, said: &str) -> Arc<str> {
    format!(
        "{at} refused the login of {user:?} ({said}); it is tried again when the password changes, or after six minutes, because CouchDB locks accounts: check couchdb.username and couchdb.password_file"
    )
    .into()
}
