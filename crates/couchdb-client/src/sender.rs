//! One request out and its answer in, without any choice of where or when.

use super::{
    Asked, Error, Metrics, Route,
    credential::{Cookie, Credential},
    directory::{Server, Way},
    gate::{Pass, speaks_of_login},
    greeting::Greeting,
    metrics,
    silence::GivenUp,
    transport::{Coming, Failure, Outgoing, Reply, Transport, collected},
    wire,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

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
    /// The body, and how long it took; a session that begins with it.
    Whole { body: Bytes, status: u16, took: Duration, cookie: Option<Cookie> },
    /// What comes bit by bit.
    Coming(Coming),
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
        credential: &Credential,
    ) -> Result<Answer, Error> {
        let start = Instant::now();
        let at = &way.server.address;
        let begins = matches!(route, Route::Login);
        let form = if begins {
            pass.form()
        } else if route.starts_work() {
            // CouchDB looks at the type alone.
            Some(Bytes::from_static(b"{}"))
        } else {
            route.value()
        };
        let out = Outgoing {
            method: route.method(),
            path,
            login: if begins { None } else { pass.header(credential) },
            header: route.header(),
            form,
            limit: route.body_limit(),
        };
        let mut sending = pin!(self.transport.send(at, out));
        let outcome = match timeout(self.suspicious(), &mut sending).await {
            Ok(outcome) => Ok(outcome),
            Err(_) => self.wait_longer(sending, start, way, pass, credential).await,
        };
        let took = start.elapsed();
        let mut reply = match outcome {
            Ok(Ok(reply)) => reply,
            Ok(Err(failure)) => {
                let error = self.failed(route, path, way, failure);
                if !matches!(error, Error::Unaddressable(_)) {
                    self.metrics.count(route.label(), error.kind().label(), took);
                }
                return Err(error);
            }
            Err(given_up) => {
                let asked = Asked::new(&route, path, at);
                let error = match given_up {
                    GivenUp::Late => {
                        way.late();
                        Error::Timeout { asked, after: self.timeout }
                    }
                    GivenUp::Hangs(probe) => Error::Hangs { asked, after: took, probe },
                };
                way.server.note_failure(&error);
                self.metrics.count(route.label(), error.kind().label(), took);
                return Err(error);
            }
        };
        way.heal();
        let status = reply.status;
        let mut cookie = reply.cookie.take();
        if !begins && let Some(cookie) = cookie.take() {
            way.server.door.renew(pass.generation, cookie);
        }
        // A server in maintenance says so with a 404.
        let says_so = status == 404 && matches!(route, Route::Up);
        if (200..300).contains(&status) || says_so {
            return Ok(Answer::Whole { body: reply.body, status, took, cookie });
        }
        self.metrics.count(route.label(), metrics::code(status), took);
        self.refused(route, path, way, |text| pass.scrub(credential, text), reply)
    }

    /// Sends one request whose answer is read as it comes, and waits so long for its head.
    /// Silence is nothing unusual here and nobody looks into it.
    pub(super) async fn open(
        &self,
        route: Route<'_>,
        path: &str,
        way: &Way,
        (pass, credential): (&Pass, &Credential),
        within: Duration,
    ) -> Result<Answer, Error> {
        let start = Instant::now();
        let at = &way.server.address;
        let limit = route.body_limit();
        let out = Outgoing {
            method: route.method(),
            path,
            login: pass.header(credential),
            header: None,
            form: None,
            limit,
        };
        let count = |error: &Error| {
            if !matches!(error, Error::Unaddressable(_)) {
                self.metrics.count(route.label(), error.kind().label(), start.elapsed());
            }
        };
        let late = || {
            way.late();
            let error = Error::Timeout { asked: Asked::new(&route, path, at), after: within };
            way.server.note_failure(&error);
            error
        };
        let opened = match timeout(within, self.transport.open(at, out)).await {
            Ok(opened) => opened.map_err(|failure| self.failed(route, path, way, failure)),
            Err(_) => Err(late()),
        };
        let mut opened = opened.inspect_err(count)?;
        way.heal();
        if let Some(cookie) = opened.cookie.take() {
            way.server.door.renew(pass.generation, cookie);
        }
        let status = opened.status;
        self.metrics.count(route.label(), metrics::code(status), start.elapsed());
        if (200..300).contains(&status) {
            return Ok(Answer::Coming(opened.body));
        }
        let body = match timeout(self.timeout, collected(opened.body, 0, limit)).await {
            Ok(body) => body.map_err(|failure| self.failed(route, path, way, failure))?,
            Err(_) => return Err(late()),
        };
        let reply = Reply { status, location: opened.location, cookie: None, body };
        self.refused(route, path, way, |text| pass.scrub(credential, text), reply)
    }

    pub(super) fn failed(
        &self,
        route: Route<'_>,
        path: &str,
        way: &Way,
        failure: Failure,
    ) -> Error {
        let asked = Asked::new(&route, path, &way.server.address);
        let unanswered = |error| {
            way.server.breaker.strike();
            way.server.note_failure(&error);
            error
        };
        match failure {
            Failure::Connect(detail) => unanswered(Error::Connect { asked, detail }),
            Failure::Tls(detail) => unanswered(Error::Tls { asked, detail }),
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
        scrub: impl Fn(&str) -> String,
        reply: Reply,
    ) -> Result<Answer, Error> {
        let status = reply.status;
        let refusal: wire::Refusal = wire::read(&reply.body).unwrap_or_default();
        if matches!(status, 401 | 403) {
            return Ok(Answer::Refused { status, refusal });
        }
        let asked = Asked::new(&route, path, &way.server.address);
        let reason = scrub(&words(&refusal));
        let down = refusal.error.as_deref() == Some("nodedown");
        Err(match (status, route.node()) {
            (300..=399, _) => {
                let to = reply.location.map_or_else(|| "nowhere".to_owned(), |to| bare(&to));
                Error::Redirect { asked, status, to: scrub(&to) }
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
            let parsing = tokio::task::spawn_blocking(move || wire::read::<T>(&body));
            match parsing.await {
                Ok(parsed) => parsed.map_err(|error| error.to_string()),
                Err(error) => Err(error.to_string()),
            }
        } else {
            wire::read::<T>(&body).map_err(|error| error.to_string())
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
        credential: &Credential,
    ) -> Result<Result<wire::Session, String>, Error> {
        let path = route.path()?;
        match self.send(route, &path, way, pass, credential).await? {
            Answer::Refused { status, refusal } => {
                Ok(Err(format!("HTTP {status}, {}", pass.scrub(credential, &words(&refusal)))))
            }
            Answer::Coming(_) => Ok(Err("without a whole answer".to_owned())),
            Answer::Whole { body, status, took, .. } => {
                let has_user = |session: &wire::Session| match session.user {
                    Some(_) => Ok(()),
                    None => Err("it has no userCtx".to_owned()),
                };
                let session: wire::Session =
                    self.read(route, &path, way, (body, status, took), has_user).await?;
                let known = session.name().is_some() || session.is_admin();
                Ok(if known {
                    Ok(session)
                } else {
                    Err("taken for an anonymous client".to_owned())
                })
            }
        }
    }

    /// Logs in: by a session where the server has them and knows its own again, else by
    /// name and password. `Ok(Err(_))` says in words how the login was refused.
    pub(super) async fn log_in(
        &self,
        server: &Arc<Server>,
        pass: &Pass,
    ) -> Result<Result<Credential, String>, Error> {
        let way = Way::direct(Arc::clone(server));
        server.door.login_turn(server.address.as_str()).await?;
        match self.log_in_now(server, &way, pass).await {
            Ok(known) => Ok(known),
            Err(error) => Err(self.explained_of(server, error).await),
        }
    }

    async fn log_in_now(
        &self,
        server: &Arc<Server>,
        way: &Way,
        pass: &Pass,
    ) -> Result<Result<Credential, String>, Error> {
        if server.door.takes_sessions(pass.generation) {
            match self.begin_session(way, pass).await? {
                Begun::Session(cookie) => return Ok(Ok(Credential::Cookie(cookie))),
                Begun::Refused(said) => return Ok(Err(said)),
                Begun::NoSession => {
                    // The password is not for whoever knows nothing of sessions.
                    if let Ok(Greeting::Other(found)) = self.greeting(server).await {
                        return Err(Error::NotCouchDb { at: server.address.clone(), found });
                    }
                    tracing::warn!(
                        address = %server.address,
                        "no session can be had there, so that the password goes with each request, a few at a time: is the cookie handler among [chttpd] authentication_handlers, and are POST /_session and its cookie let through?"
                    );
                    server.door.without_sessions(pass.generation);
                }
            }
        }
        match self.session(Route::Session, way, pass, &Credential::Basic).await {
            // A server that does not know the question has refused nothing.
            Ok(Ok(_)) => Ok(Ok(Credential::Basic)),
            Err(error) if is_unknown_there(&error) => Ok(Ok(Credential::Basic)),
            Ok(Err(said)) => Ok(Err(said)),
            Err(error) => Err(error),
        }
    }

    async fn begin_session(&self, way: &Way, pass: &Pass) -> Result<Begun, Error> {
        let path = Route::Login.path()?;
        let answer = self.send(Route::Login, &path, way, pass, &Credential::Basic).await;
        let cookie = match answer {
            Ok(Answer::Whole { status, took, cookie, .. }) => {
                self.metrics.count(Route::Login.label(), metrics::code(status), took);
                cookie
            }
            Ok(Answer::Refused { status, refusal }) if speaks_of_login(&refusal) => {
                let said = pass.scrub(&Credential::Basic, &words(&refusal));
                return Ok(Begun::Refused(format!("HTTP {status}, {said}")));
            }
            // A proxy that lets no POST through.
            Ok(Answer::Refused { .. } | Answer::Coming(_)) => None,
            Err(error) if is_unknown_there(&error) => None,
            Err(error) => return Err(error),
        };
        let Some(cookie) = cookie else { return Ok(Begun::NoSession) };
        let credential = Credential::Cookie(Arc::new(cookie));
        let known = self.session(Route::Session, way, pass, &credential).await?;
        match (known, credential) {
            (Ok(_), Credential::Cookie(cookie)) => Ok(Begun::Session(cookie)),
            (Ok(_) | Err(_), _) => Ok(Begun::NoSession),
        }
    }
}

/// What came of the try to begin a session.
enum Begun {
    Session(Arc<Cookie>),
    Refused(String),
    NoSession,
}

/// Whether a server refuses a question about logins because it does not know it.
pub(super) const fn is_unknown_there(error: &Error) -> bool {
    matches!(error, Error::NotFound { .. } | Error::Status { status: 400..=499 | 501, .. })
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

/// One sentence for a login that is accepted and refused in turn.
pub(super) fn contradicted_why(at: &dyn std::fmt::Display, user: &str) -> Arc<str> {
    format!(
        "{at} accepts the login of {user:?} at one time and refuses it at another; it is tried again when the password changes, or after six minutes, because CouchDB locks accounts: do all servers behind that address have the same [admins]?"
    )
    .into()
}
