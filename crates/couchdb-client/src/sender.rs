//! Sends one request and reads its answer. Where and when is decided by the caller.

use super::{
    Error, Observer, Route,
    active_login::ActiveLogin,
    credential::{Cookie, Credential},
    directory::{Call, Destination},
    observer::status_label,
    transport::{BodyStream, OutgoingRequest, Reply, SendFailure, Transport, read_body},
    wire,
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use serde::de::DeserializeOwned;
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

mod greeting;
mod hang_detection;

/// Bodies larger than this are parsed on a blocking thread, in bytes.
const BLOCKING_PARSE_SIZE: usize = 1 << 20;

/// Sends requests and reports them to the observer.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) transport: Transport,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) timeout: Duration,
}

/// A complete answer with a success status.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) body: Bytes,
    pub(super) status: u16,
    pub(super) took: Duration,
    /// The session that a login begins.
    pub(super) cookie: Option<Cookie>,
}

/// An answer of 401 or 403.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) status: u16,
    /// The server's words, with the login redacted.
    pub(super) reason: String,
    /// Whether they are about the login itself, not its privileges
    /// (`couch_httpd_auth:default_authentication_handler/2`,
    /// `chttpd_auth_lockout`'s "temporarily locked").
    pub(super) about_login: bool,
}

/// What a server answered to `GET /`, which CouchDB answers without a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// It is a CouchDB.
    CouchDb,
    /// It requires a login first, as CouchDB does with `[chttpd] require_valid_user`, and as a
    /// proxy may.
    WantsLogin,
    /// It is something else; described as a predicate.
    Other(String),
}

/// Whether a status other than 2xx means that no request can succeed at this server, rather than just this one: a
/// refused login, a redirect, an error that is not CouchDB's, or an error that concerns only the server.
fn is_unusable(call: Call<'_>, status: u16, refusal: &wire::ErrorBody) -> bool {
    let about_server = call.destination.forwarded_to.is_none() && call.route.is_about_server();
    let by_couchdb = refusal.error.is_some();
    match status {
        300..=399 => true,
        // A login that may not read one route gets a 401 as well.
        401 => !by_couchdb || matches!(call.route, Route::Session | Route::Login),
        500.. => about_server || !by_couchdb,
        _ => about_server && !by_couchdb,
    }
}

impl Sender {
    /// Sends one request. An error is reported to the observer here, a success in
    /// [`Self::read`].
    pub(super) async fn send(
        &self,
        call: Call<'_>,
        login: &ActiveLogin,
        credential: &Credential,
    ) -> Result<Result<Answer, Refusal>, Error> {
        let start = Instant::now();
        let Call { route, path, destination } = call;
        let begins = matches!(route, Route::Login);
        let mut out = outgoing(route, path, login.header(credential).filter(|_| !begins));
        if begins {
            out.form = login.form();
        }
        let mut sending = pin!(self.transport.send(&destination.server.address, out));
        let sent = match timeout(self.silence_threshold(), &mut sending).await {
            Ok(sent) => sent.map_err(|failure| self.failed(call, failure)),
            Err(_) => self.wait_longer(sending, start, call, login, credential).await,
        };
        let took = start.elapsed();
        let mut reply = sent.inspect_err(|error| self.count_error(call, error, took))?;
        destination.record_success();
        let cookie = reply.cookie.take();
        let cookie = if begins { cookie } else { renew(call, login, cookie) };
        let status = reply.status;
        // A server in maintenance says so with a 404.
        let says_so = status == 404 && matches!(route, Route::Up);
        if (200..300).contains(&status) || says_so {
            return Ok(Ok(Answer { body: reply.body, status, took, cookie }));
        }
        self.observer.request_ended(route.label(), status_label(status), took);
        refused(call, login, credential, &reply).map(Err)
    }

    /// Sends one request whose body is read as it arrives, and waits `within` for its head. Silence
    /// is normal here, so nothing checks whether the server hangs.
    pub(super) async fn open(
        &self,
        call: Call<'_>,
        login: &ActiveLogin,
        credential: &Credential,
        within: Duration,
    ) -> Result<Result<BodyStream, Refusal>, Error> {
        let start = Instant::now();
        let Call { route, path, destination } = call;
        let out = outgoing(route, path, login.header(credential));
        let sent =
            match timeout(within, self.transport.open(&destination.server.address, out)).await {
                Ok(sent) => sent.map_err(|failure| self.failed(call, failure)),
                Err(_) => Err(late(call, within)),
            };
        let sent = sent.inspect_err(|error| self.count_error(call, error, start.elapsed()));
        let mut reply = sent?;
        destination.record_success();
        renew(call, login, reply.cookie.take());
        let status = reply.status;
        self.observer.request_ended(route.label(), status_label(status), start.elapsed());
        if (200..300).contains(&status) {
            return Ok(Ok(reply.body));
        }
        let body = match timeout(self.timeout, read_body(reply.body, 0, route.body_limit())).await {
            Ok(body) => body.map_err(|failure| self.failed(call, failure))?,
            Err(_) => return Err(late(call, within)),
        };
        let reply = Reply { status, location: reply.location, cookie: None, body };
        refused(call, login, credential, &reply).map(Err)
    }

    fn count_error(&self, call: Call<'_>, error: &Error, took: Duration) {
        if !matches!(error, Error::Unaddressable(_)) {
            self.observer.request_ended(call.route.label(), error.kind().label(), took);
        }
    }

    pub(super) fn failed(&self, call: Call<'_>, failure: SendFailure) -> Error {
        let (asked, server) = (call.info(), &call.destination.server);
        let unanswered = |error| {
            server.breaker.record_failure();
            server.remember_failure(&error);
            error
        };
        match failure {
            SendFailure::Connect(detail) => unanswered(Error::Connect { asked, detail }),
            SendFailure::Tls(detail) => unanswered(Error::Tls { asked, detail }),
            SendFailure::Malformed(detail) => {
                let error = Error::Malformed { asked, detail };
                server.remember_unusable(&error);
                error
            }
            SendFailure::TooLarge => Error::TooLarge { asked, limit: call.route.body_limit() },
            SendFailure::Unaddressable(cause) => Error::Unaddressable(cause),
        }
    }

    /// Parses a body as `T`, lets `check` compare it with the request, and reports the request.
    pub(super) async fn read<T: DeserializeOwned + Send + 'static>(
        &self,
        call: Call<'_>,
        answer: Answer,
        check: impl FnOnce(&T) -> Result<(), String>,
    ) -> Result<T, Error> {
        let Answer { body, status, took, .. } = answer;
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
                call.destination.server.remember_usable();
                self.observer.request_ended(call.route.label(), status_label(status), took);
                Ok(read)
            }
            Err(detail) => {
                let error = Error::Malformed { asked: call.info(), detail };
                call.destination.server.remember_unusable(&error);
                self.count_error(call, &error, took);
                Err(error)
            }
        }
    }

    /// Asks which user the login belongs to. `Ok(Err(_))` contains the server's message if it
    /// refuses the login.
    pub(super) async fn session(
        &self,
        route: Route<'_>,
        destination: &Destination,
        login: &ActiveLogin,
        credential: &Credential,
    ) -> Result<Result<wire::Session, String>, Error> {
        let call = Call { route, path: &route.path()?, destination };
        let answer = match self.send(call, login, credential).await? {
            Ok(answer) => answer,
            Err(refusal) => return Ok(Err(refusal.words())),
        };
        let has_user = |session: &wire::Session| match session.user {
            Some(_) => Ok(()),
            None => Err("it has no userCtx".to_owned()),
        };
        let session: wire::Session = self.read(call, answer, has_user).await?;
        let known = session.name().is_some() || session.is_admin();
        Ok(if known { Ok(session) } else { Err("it treats the user as anonymous".to_owned()) })
    }
}

impl Refusal {
    /// The status and the server's words.
    pub(super) fn words(&self) -> String {
        format!("HTTP {}, {}", self.status, self.reason)
    }
}

/// A request with this header for the login.
fn outgoing<'a>(
    route: Route<'a>,
    path: &'a str,
    login: Option<(HeaderName, HeaderValue)>,
) -> OutgoingRequest<'a> {
    // CouchDB checks only the content type.
    let form = if route.starts_work() { Some(Bytes::from_static(b"{}")) } else { route.value() };
    OutgoingRequest {
        method: route.method(),
        path,
        login,
        header: route.header(),
        form,
        limit: route.body_limit(),
    }
}

/// Stores the cookie that renews the session.
fn renew(call: Call<'_>, login: &ActiveLogin, cookie: Option<Cookie>) -> Option<Cookie> {
    call.destination.server.auth.renew(login.generation, cookie?);
    None
}

/// No answer came in time.
fn late(call: Call<'_>, after: Duration) -> Error {
    call.destination.record_timeout();
    let error = Error::Timeout { asked: call.info(), after };
    call.destination.server.remember_failure(&error);
    error
}

/// What a status other than 2xx means: a refusal of the login or its privileges, or an error.
fn refused(
    call: Call<'_>,
    login: &ActiveLogin,
    credential: &Credential,
    reply: &Reply,
) -> Result<Refusal, Error> {
    let (status, asked) = (reply.status, call.info());
    let refusal: wire::ErrorBody = wire::read(&reply.body).unwrap_or_default();
    let reason = login.scrub(credential, &reason_text(&refusal));
    if is_unusable(call, status, &refusal) {
        let (asked, reason) = (call.info(), reason.clone());
        call.destination.server.remember_unusable(&Error::Status { asked, status, reason });
    }
    let by_proxy = refusal.error.is_none() && matches!(status, 400 | 402..=499);
    if matches!(status, 401 | 403) && !by_proxy {
        return Ok(Refusal { status, reason, about_login: is_about_login(&refusal) });
    }
    let down = refusal.error.as_deref() == Some("nodedown");
    Err(match (status, call.route.node()) {
        (300..=399, _) => {
            let to = reply.location.as_deref().map(without_secrets);
            let to = to.as_deref().unwrap_or("nowhere");
            Error::Redirect { asked, status, to: login.scrub(credential, to) }
        }
        _ if by_proxy => Error::Proxy { asked, status },
        (412, Some(node)) if down => Error::NodeDown { asked, node: node.to_owned() },
        (404, Some(_)) if reason.contains("no such node") => Error::UnknownNode { asked, reason },
        (404, _) => Error::NotFound { asked, reason },
        _ => Error::Status { asked, status, reason },
    })
}

fn is_about_login(refusal: &wire::ErrorBody) -> bool {
    let reason = refusal.reason.as_deref().unwrap_or_default().to_ascii_lowercase();
    reason.contains("password") || reason.contains("locked")
}

/// The reason of a refusal, for messages.
fn reason_text(refusal: &wire::ErrorBody) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_login_refusals_from_missing_privileges() {
        for (reason, about_login) in [
            ("Name or password is incorrect.", true),
            ("Account is temporarily locked due to multiple authentication failures", true),
            ("You are not a server admin.", false),
            ("You are not authorized to access this db.", false),
            ("You are not allowed to access this db.", false),
            ("", false),
        ] {
            let refusal = wire::ErrorBody { error: None, reason: Some(reason.to_owned()) };
            assert_eq!(is_about_login(&refusal), about_login, "{reason}");
        }
        assert!(!is_about_login(&wire::ErrorBody::default()));
    }
}
