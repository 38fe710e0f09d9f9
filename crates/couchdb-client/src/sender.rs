//! Sends one request and reads its answer. Where and when is decided by the caller.

use super::{
    Error, Observer, RequestInfo, Route,
    auth_gate::{ProvenLogin, is_about_login},
    credential::{Cookie, Credential},
    directory::{Destination, Server},
    greeting::Greeting,
    hang_detection::WaitEnded,
    observer::status_label,
    transport::{BodyStream, OutgoingRequest, Reply, SendFailure, Transport, read_body},
    wire,
};
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// Bodies larger than this are parsed on a blocking thread, in bytes.
const BLOCKING_PARSE_SIZE: usize = 1 << 20;

/// Sends requests and reports them to the observer.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) transport: Transport,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) timeout: Duration,
}

/// What a server answered.
#[derive(Debug)]
pub(super) enum ServerResponse {
    /// The whole body, how long it took, and the session that it begins.
    Complete { body: Bytes, status: u16, took: Duration, cookie: Option<Cookie> },
    /// A body that is still arriving.
    Streaming(BodyStream),
    /// 401 or 403.
    Refused { status: u16, refusal: wire::ErrorBody },
}

/// Whether a status other than 2xx says that no request can succeed at this server, rather than that one cannot: a
/// login that is refused, a redirect, an error of no CouchDB, or an error about nothing but the server.
const fn is_unusable(route: Route<'_>, status: u16, refusal: &wire::ErrorBody) -> bool {
    let about_server = matches!(
        route,
        Route::Welcome | Route::Session | Route::Login | Route::Membership | Route::AllDbs { .. }
    );
    let by_couchdb = refusal.error.is_some();
    match status {
        300..=399 => true,
        // A login that may not read one route gets a 401 as well.
        401 => !by_couchdb || matches!(route, Route::Session | Route::Login),
        500.. => about_server || !by_couchdb,
        _ => about_server && !by_couchdb,
    }
}

impl Sender {
    /// Sends one request. An error is reported to the observer here, a success in
    /// [`Self::read`].
    pub(super) async fn send(
        &self,
        route: Route<'_>,
        path: &str,
        destination: &Destination,
        proven: &ProvenLogin,
        credential: &Credential,
    ) -> Result<ServerResponse, Error> {
        let start = Instant::now();
        let at = &destination.server.address;
        let begins = matches!(route, Route::Login);
        let form = if begins {
            proven.form()
        } else if route.starts_work() {
            // CouchDB checks only the content type.
            Some(Bytes::from_static(b"{}"))
        } else {
            route.value()
        };
        let out = OutgoingRequest {
            method: route.method(),
            path,
            login: if begins { None } else { proven.header(credential) },
            header: route.header(),
            form,
            limit: route.body_limit(),
        };
        let mut sending = pin!(self.transport.send(at, out));
        let outcome = match timeout(self.silence_threshold(), &mut sending).await {
            Ok(outcome) => Ok(outcome),
            Err(_) => self.wait_longer(sending, start, destination, proven, credential).await,
        };
        let took = start.elapsed();
        let mut reply = match outcome {
            Ok(Ok(reply)) => reply,
            Ok(Err(failure)) => {
                let error = self.failed(route, path, destination, failure);
                if !matches!(error, Error::Unaddressable(_)) {
                    self.observer.request_ended(route.label(), error.kind().label(), took);
                }
                return Err(error);
            }
            Err(given_up) => {
                let asked = RequestInfo::new(&route, path, at);
                let error = match given_up {
                    WaitEnded::TimedOut => {
                        destination.record_timeout();
                        Error::Timeout { asked, after: self.timeout }
                    }
                    WaitEnded::Hangs(probe) => Error::Hangs { asked, after: took, probe },
                };
                destination.server.remember_failure(&error);
                self.observer.request_ended(route.label(), error.kind().label(), took);
                return Err(error);
            }
        };
        destination.record_success();
        let status = reply.status;
        let mut cookie = reply.cookie.take();
        if !begins && let Some(cookie) = cookie.take() {
            destination.server.auth.renew(proven.generation, cookie);
        }
        // A server in maintenance says so with a 404.
        let says_so = status == 404 && matches!(route, Route::Up);
        if (200..300).contains(&status) || says_so {
            return Ok(ServerResponse::Complete { body: reply.body, status, took, cookie });
        }
        self.observer.request_ended(route.label(), status_label(status), took);
        self.refused(route, path, destination, |text| proven.scrub(credential, text), reply)
    }

    /// Sends one request whose body is read as it arrives, and waits `within` for its head. Silence
    /// is normal here, so nothing checks whether the server hangs.
    pub(super) async fn open(
        &self,
        route: Route<'_>,
        path: &str,
        destination: &Destination,
        (proven, credential): (&ProvenLogin, &Credential),
        within: Duration,
    ) -> Result<ServerResponse, Error> {
        let start = Instant::now();
        let at = &destination.server.address;
        let limit = route.body_limit();
        let out = OutgoingRequest {
            method: route.method(),
            path,
            login: proven.header(credential),
            header: None,
            form: None,
            limit,
        };
        let count = |error: &Error| {
            if !matches!(error, Error::Unaddressable(_)) {
                self.observer.request_ended(route.label(), error.kind().label(), start.elapsed());
            }
        };
        let late = || {
            destination.record_timeout();
            let error = Error::Timeout { asked: RequestInfo::new(&route, path, at), after: within };
            destination.server.remember_failure(&error);
            error
        };
        let opened = match timeout(within, self.transport.open(at, out)).await {
            Ok(opened) => opened.map_err(|failure| self.failed(route, path, destination, failure)),
            Err(_) => Err(late()),
        };
        let mut opened = opened.inspect_err(count)?;
        destination.record_success();
        if let Some(cookie) = opened.cookie.take() {
            destination.server.auth.renew(proven.generation, cookie);
        }
        let status = opened.status;
        self.observer.request_ended(route.label(), status_label(status), start.elapsed());
        if (200..300).contains(&status) {
            return Ok(ServerResponse::Streaming(opened.body));
        }
        let body = match timeout(self.timeout, read_body(opened.body, 0, limit)).await {
            Ok(body) => body.map_err(|failure| self.failed(route, path, destination, failure))?,
            Err(_) => return Err(late()),
        };
        let reply = Reply { status, location: opened.location, cookie: None, body };
        self.refused(route, path, destination, |text| proven.scrub(credential, text), reply)
    }

    pub(super) fn failed(
        &self,
        route: Route<'_>,
        path: &str,
        destination: &Destination,
        failure: SendFailure,
    ) -> Error {
        let asked = RequestInfo::new(&route, path, &destination.server.address);
        let unanswered = |error| {
            destination.server.breaker.record_failure();
            destination.server.remember_failure(&error);
            error
        };
        match failure {
            SendFailure::Connect(detail) => unanswered(Error::Connect { asked, detail }),
            SendFailure::Tls(detail) => unanswered(Error::Tls { asked, detail }),
            SendFailure::Malformed(detail) => {
                let error = Error::Malformed { asked, detail };
                destination.server.remember_unusable(&error);
                error
            }
            SendFailure::TooLarge => Error::TooLarge { asked, limit: route.body_limit() },
            SendFailure::Unaddressable(cause) => Error::Unaddressable(cause),
        }
    }

    /// The error that a status other than 2xx means.
    fn refused(
        &self,
        route: Route<'_>,
        path: &str,
        destination: &Destination,
        scrub: impl Fn(&str) -> String,
        reply: Reply,
    ) -> Result<ServerResponse, Error> {
        let status = reply.status;
        let refusal: wire::ErrorBody = wire::read(&reply.body).unwrap_or_default();
        let asked = RequestInfo::new(&route, path, &destination.server.address);
        let reason = scrub(&reason_text(&refusal));
        if is_unusable(route, status, &refusal) {
            let (asked, reason) = (asked.clone(), reason.clone());
            destination.server.remember_unusable(&Error::Status { asked, status, reason });
        }
        let by_proxy = refusal.error.is_none() && matches!(status, 400 | 402..=499);
        if matches!(status, 401 | 403) && !by_proxy {
            return Ok(ServerResponse::Refused { status, refusal });
        }
        let down = refusal.error.as_deref() == Some("nodedown");
        Err(match (status, route.node()) {
            (300..=399, _) => {
                let to =
                    reply.location.map_or_else(|| "nowhere".to_owned(), |to| without_secrets(&to));
                Error::Redirect { asked, status, to: scrub(&to) }
            }
            _ if by_proxy => Error::Proxy { asked, status },
            (412, Some(node)) if down => Error::NodeDown { asked, node: node.to_owned() },
            (404, Some(_)) if reason.contains("no such node") => {
                Error::UnknownNode { asked, reason }
            }
            (404, _) => Error::NotFound { asked, reason },
            _ => Error::Status { asked, status, reason },
        })
    }

    /// Parses a body as `T`, lets `check` compare it with the request, and reports the request.
    pub(super) async fn read<T: DeserializeOwned + Send + 'static>(
        &self,
        route: Route<'_>,
        path: &str,
        destination: &Destination,
        answer: (Bytes, u16, Duration),
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> Result<T, Error> {
        let (body, status, took) = answer;
        let parsed = if body.len() > BLOCKING_PARSE_SIZE {
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
                destination.server.remember_usable();
                self.observer.request_ended(route.label(), status_label(status), took);
                Ok(read)
            }
            Err(detail) => {
                let asked = RequestInfo::new(&route, path, &destination.server.address);
                let error = Error::Malformed { asked, detail };
                destination.server.remember_unusable(&error);
                self.observer.request_ended(route.label(), error.kind().label(), took);
                Err(error)
            }
        }
    }

    /// Asks who the login is. `Ok(Err(_))` holds the server's words if it refuses the login.
    pub(super) async fn session(
        &self,
        route: Route<'_>,
        destination: &Destination,
        proven: &ProvenLogin,
        credential: &Credential,
    ) -> Result<Result<wire::Session, String>, Error> {
        let path = route.path()?;
        match self.send(route, &path, destination, proven, credential).await? {
            ServerResponse::Refused { status, refusal } => Ok(Err(format!(
                "HTTP {status}, {}",
                proven.scrub(credential, &reason_text(&refusal))
            ))),
            ServerResponse::Streaming(_) => Ok(Err("without a whole answer".to_owned())),
            ServerResponse::Complete { body, status, took, .. } => {
                let has_user = |session: &wire::Session| match session.user {
                    Some(_) => Ok(()),
                    None => Err("it has no userCtx".to_owned()),
                };
                let session: wire::Session =
                    self.read(route, &path, destination, (body, status, took), has_user).await?;
                let known = session.name().is_some() || session.is_admin();
                Ok(if known {
                    Ok(session)
                } else {
                    Err("taken for an anonymous client".to_owned())
                })
            }
        }
    }

    /// Logs in: by a session if the server has them and recognises its own, else by name and
    /// password. `Ok(Err(_))` holds the server's words if it refuses the login.
    pub(super) async fn log_in(
        &self,
        server: &Arc<Server>,
        proven: &ProvenLogin,
    ) -> Result<Result<Credential, String>, Error> {
        let destination = Destination::direct(Arc::clone(server));
        server.auth.wait_for_login_turn(server.address.as_str()).await?;
        match self.log_in_now(server, &destination, proven).await {
            Ok(known) => Ok(known),
            Err(error) => Err(self.explain_error_of(server, error).await),
        }
    }

    async fn log_in_now(
        &self,
        server: &Arc<Server>,
        destination: &Destination,
        proven: &ProvenLogin,
    ) -> Result<Result<Credential, String>, Error> {
        if server.auth.uses_sessions(proven.generation) {
            match self.begin_session(destination, proven).await? {
                SessionStart::Session(cookie) => return Ok(Ok(Credential::Cookie(cookie))),
                SessionStart::Refused(words) => return Ok(Err(words)),
                SessionStart::NoSession => {
                    // A server that is not a CouchDB must not get the password.
                    if let Ok(Greeting::Other(found)) = self.greeting(server).await {
                        return Err(Error::NotCouchDb { at: server.address.clone(), found });
                    }
                    tracing::warn!(
                        address = %server.address,
                        "this server offers no session, so the password goes with each request, a few at a time: is the cookie handler among [chttpd] authentication_handlers, and are POST /_session and its cookie let through?"
                    );
                    server.auth.disable_sessions(proven.generation);
                }
            }
        }
        match self.session(Route::Session, destination, proven, &Credential::Basic).await {
            // A server that does not know the route has not refused the login.
            Ok(Ok(_)) => Ok(Ok(Credential::Basic)),
            Err(error) if is_unknown_there(&error) => Ok(Ok(Credential::Basic)),
            Ok(Err(words)) => Ok(Err(words)),
            Err(error) => Err(error),
        }
    }

    async fn begin_session(
        &self,
        destination: &Destination,
        proven: &ProvenLogin,
    ) -> Result<SessionStart, Error> {
        let path = Route::Login.path()?;
        let answer = self.send(Route::Login, &path, destination, proven, &Credential::Basic).await;
        let cookie = match answer {
            Ok(ServerResponse::Complete { status, took, cookie, .. }) => {
                self.observer.request_ended(Route::Login.label(), status_label(status), took);
                cookie
            }
            Ok(ServerResponse::Refused { status, refusal }) if is_about_login(&refusal) => {
                let words = proven.scrub(&Credential::Basic, &reason_text(&refusal));
                return Ok(SessionStart::Refused(format!("HTTP {status}, {words}")));
            }
            // A proxy may block POST.
            Ok(ServerResponse::Refused { .. } | ServerResponse::Streaming(_)) => None,
            Err(error) if is_unknown_there(&error) => None,
            Err(error) => return Err(error),
        };
        let Some(cookie) = cookie else { return Ok(SessionStart::NoSession) };
        let credential = Credential::Cookie(Arc::new(cookie));
        let known = self.session(Route::Session, destination, proven, &credential).await?;
        match (known, credential) {
            (Ok(_), Credential::Cookie(cookie)) => Ok(SessionStart::Session(cookie)),
            (Ok(_) | Err(_), _) => Ok(SessionStart::NoSession),
        }
    }
}

/// The result of an attempt to begin a session.
enum SessionStart {
    Session(Arc<Cookie>),
    Refused(String),
    NoSession,
}

/// Whether a server refuses a request about logins because it does not know the route.
pub(super) const fn is_unknown_there(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. }
            | Error::Proxy { .. }
            | Error::Status { status: 400..=499 | 501, .. }
    )
}

/// The reason of a refusal, for messages.
pub(super) fn reason_text(refusal: &wire::ErrorBody) -> String {
    match (&refusal.error, &refusal.reason) {
        (_, Some(reason)) => reason.clone(),
        (Some(error), None) => error.clone(),
        (None, None) => "without a reason".to_owned(),
    }
}

/// A redirect's target without user, password, query and fragment.
fn without_secrets(to: &str) -> String {
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

/// The message about a refused login.
pub(super) fn refusal_message(at: &dyn std::fmt::Display, user: &str, words: &str) -> Arc<str> {
    format!(
        "{at} rejected the login of {user:?} ({words}): check the user name and the password; because CouchDB locks accounts, a running recliner tries again only when the password changes, or after six minutes"
    )
    .into()
}

/// The message about a login that is accepted and refused by turns.
pub(super) fn contradiction_message(at: &dyn std::fmt::Display, user: &str) -> Arc<str> {
    format!(
        "{at} sometimes accepts and sometimes rejects the login of {user:?}: check that all servers behind that address have the same [admins]; because CouchDB locks accounts, a running recliner tries again only when the password changes, or after six minutes"
    )
    .into()
}
