//! Proves a login at each endpoint, with one request before others follow, and finds out what a
//! refused request means.

use super::{Auth, Verdict};
use crate::{
    Error, Route,
    active_login::ActiveLogin,
    credential::{Cookie, Credential},
    directory::{Call, Destination, Node, Server},
    endpoint_auth::EndpointAuth,
    observer::status_label,
    sender::{Greeting, Refusal},
    wire,
};
use std::{fmt::Display, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The result of a login: how requests carry it, or the server's words.
type LoggedIn = Result<Credential, String>;

/// The result of an attempt to begin a session.
enum SessionStart {
    Session(Arc<Cookie>),
    Refused(String),
    NoSession,
}

impl Auth {
    /// Proves `login` at a server that may have accepted it already. A session is checked first,
    /// because servers do not count bad ones.
    pub(super) async fn prove_at(
        &self,
        server: &Arc<Server>,
        login: &ActiveLogin,
    ) -> Result<Result<(), Arc<str>>, Error> {
        let asked = Instant::now();
        let _alone = server.auth.proof.acquire().await.map_err(|_| Error::Stopped)?;
        if let Some(why) = server.auth.refusal(login.generation) {
            return Ok(Err(why));
        }
        let accepted = server.auth.accepted(login.generation);
        if let Some(credential @ Credential::Cookie(_)) = accepted {
            let direct = Destination::direct(Arc::clone(server));
            let existing = self.sender.session(Route::Session, &direct, login, &credential).await?;
            if existing.is_ok() {
                return Ok(Ok(()));
            }
        }
        match self.log_in(server, login, asked).await? {
            Ok(credential) => {
                server.auth.open(login.generation, credential);
                Ok(Ok(()))
            }
            Err(words) => Ok(Err(self.refuse(&server.auth, &server.address, login, &words))),
        }
    }

    /// Whether nothing is left to prove, now that no other proof is in flight.
    fn is_settled(
        &self,
        auth: &EndpointAuth,
        login: &ActiveLogin,
        asked: Instant,
    ) -> Result<bool, Error> {
        if auth.accepted(login.generation).is_some() || !self.is_current(login) {
            return Ok(true);
        }
        if let Some(why) = auth.refusal(login.generation) {
            return Err(Error::LoginClosed { why });
        }
        // Logins are rate limited, so one login serves every request that waits for it.
        auth.failed_since(asked).map(|()| false)
    }

    /// Proves `login` at a server for a request that came at `asked`.
    pub(super) async fn prove_server(
        &self,
        server: &Arc<Server>,
        login: &ActiveLogin,
        asked: Instant,
    ) -> Result<(), Error> {
        let auth = &server.auth;
        let alone = auth.proof.acquire().await.map_err(|_| Error::Stopped)?;
        if self.is_settled(auth, login, asked)? {
            return Ok(());
        }
        if self.changed_password(login).await.is_some() {
            drop(alone);
            return self.prove_changed(login).await;
        }
        match self
            .log_in(server, login, asked)
            .await
            .inspect_err(|why| auth.login_failed(why.clone()))?
        {
            Ok(credential) => {
                auth.open(login.generation, credential);
                Ok(())
            }
            Err(words) => {
                let why = self.refuse(auth, &server.address, login, &words);
                drop(alone);
                self.close_unless_accepted(login, &why).await;
                Err(Error::LoginClosed { why })
            }
        }
    }

    /// Closes the gate after a refusal if another entry refuses the login too, or if no other is
    /// left.
    async fn close_unless_accepted(&self, login: &ActiveLogin, why: &Arc<str>) {
        let others = self.servers(login.generation);
        if others.is_empty() {
            return self.close(login, Arc::clone(why));
        }
        for other in others {
            match self.prove_at(&other, login).await {
                Ok(Ok(())) => return,
                Ok(Err(why)) => return self.close(login, why),
                Err(_) => {}
            }
        }
    }

    /// Proves `login` at a node behind a server that has accepted it.
    pub(super) async fn prove_node(
        &self,
        node: &Node,
        destination: &Destination,
        login: &ActiveLogin,
        asked: Instant,
    ) -> Result<(), Error> {
        let auth = &node.auth;
        let _alone = auth.proof.acquire().await.map_err(|_| Error::Stopped)?;
        if self.is_settled(auth, login, asked)? {
            return Ok(());
        }
        let Some(at_entry) = destination.server.auth.accepted(login.generation) else {
            return Ok(());
        };
        let route = Route::NodeSession { node: &node.name };
        if at_entry.cookie().is_some() && auth.uses_sessions(login.generation) {
            match self.sender.session(route, destination, login, &at_entry).await {
                // A node may have its own secret (`[chttpd_auth] secret`), or another hash of
                // the same password (`[admins]`).
                Ok(Err(_)) => auth.disable_sessions(login.generation),
                Err(error) if !is_unknown_there(&error) => return Err(error),
                Ok(Ok(_)) | Err(_) => {
                    auth.open(login.generation, Credential::SameAsEntry);
                    return Ok(());
                }
            }
        }
        auth.wait_for_login_turn(login.generation, &node.name).await;
        let words = match self.sender.session(route, destination, login, &Credential::Basic).await {
            Ok(Err(words)) => words,
            // CouchDB 3.5 answers 500 to a wrong password in a forwarded request: it fails to
            // log the peer, which a forwarded request does not have.
            Err(Error::Status { status: 500, reason, .. })
                if reason.contains("function_clause") =>
            {
                "HTTP 500, as if the password were wrong".to_owned()
            }
            Err(error) if !is_unknown_there(&error) => {
                auth.login_failed(error.clone());
                return Err(error);
            }
            Ok(Ok(_)) | Err(_) => {
                auth.open(login.generation, Credential::Basic);
                return Ok(());
            }
        };
        let at = format_args!("node {}", node.name);
        Err(Error::LoginClosed { why: self.refuse(auth, &at, login, &words) })
    }

    /// Stops sending to an endpoint that refused the login.
    fn refuse(
        &self,
        auth: &EndpointAuth,
        at: &dyn Display,
        login: &ActiveLogin,
        words: &str,
    ) -> Arc<str> {
        let why = self.refusal_message(at, words);
        tracing::warn!(%why, "nothing is sent there");
        auth.refuse(login.generation, Arc::clone(&why));
        why
    }

    pub(super) fn refusal_message(&self, at: &dyn Display, words: &str) -> Arc<str> {
        let user = self.source.username().unwrap_or_default();
        format!("{at} rejected the login of {user:?} ({words}): check the user name and the password; {NEXT_ATTEMPT}").into()
    }

    /// Decides about a request that was refused.
    pub(super) async fn judge(
        &self,
        destination: &Destination,
        login: &ActiveLogin,
        credential: &Credential,
        refusal: &Refusal,
    ) -> Result<Verdict, Error> {
        let (auth, generation) = (&destination.server.auth, login.generation);
        let _alone = auth.proof.acquire().await.map_err(|_| Error::Stopped)?;
        let in_use = destination.accepted(generation).is_some_and(|now| now.is_same(credential));
        if !self.is_current(login) || !in_use {
            return Ok(Verdict::Again);
        }
        if !refusal.about_login && auth.is_privilege_refusal(generation, &refusal.reason) {
            return Ok(Verdict::Forbidden);
        }
        if let Some(cookie) = credential.cookie() {
            return self.judge_session(destination, login, cookie, refusal).await;
        }
        if refusal.about_login {
            self.doubt(destination, generation);
            return Ok(Verdict::Again);
        }
        auth.remember_privilege_refusal(generation, &refusal.reason);
        // A login accepted a moment ago is not the cause; otherwise one more request proves it.
        let proved_by = destination.forwarded_to.as_ref().map_or(auth, |node| &node.auth);
        if proved_by.until_login() > Duration::ZERO {
            return Ok(Verdict::Forbidden);
        }
        proved_by.doubt();
        Ok(Verdict::Again)
    }

    /// Records that a destination refused a password it had accepted. After the second time it gets
    /// no more requests, because it would keep doing so.
    fn doubt(&self, destination: &Destination, generation: u64) {
        let (auth, at): (_, &dyn Display) = match &destination.forwarded_to {
            Some(node) => (&node.auth, &node.name),
            None => (&destination.server.auth, &destination.server.address),
        };
        destination.server.auth.doubt();
        auth.doubt();
        if auth.record_contradiction() {
            let user = self.source.username().unwrap_or_default();
            let why: Arc<str> = format!("{at} sometimes accepts and sometimes rejects the login of {user:?}: check that all servers behind that address have the same [admins]; {NEXT_ATTEMPT}").into();
            tracing::warn!(%why, "nothing is sent there");
            auth.refuse(generation, why);
        }
    }

    /// Decides about the refusal of a request that carried a session's cookie. Checking whether the
    /// session is valid does not count as a bad login.
    async fn judge_session(
        &self,
        destination: &Destination,
        login: &ActiveLogin,
        cookie: &Arc<Cookie>,
        refusal: &Refusal,
    ) -> Result<Verdict, Error> {
        let (auth, generation) = (&destination.server.auth, login.generation);
        let credential = Credential::Cookie(Arc::clone(cookie));
        let direct = Destination::direct(Arc::clone(&destination.server));
        let checked = self.sender.session(Route::Session, &direct, login, &credential).await?;
        let Ok(session) = checked else {
            auth.record_session_end(generation, cookie);
            return Ok(Verdict::Again);
        };
        if let Some(node) = &destination.forwarded_to {
            let route = Route::NodeSession { node: &node.name };
            match self.sender.session(route, destination, login, &credential).await {
                Ok(Err(_)) => {
                    node.auth.disable_sessions(generation);
                    return Ok(Verdict::Again);
                }
                Err(error) if !is_unknown_there(&error) => return Err(error),
                Ok(Ok(_)) | Err(_) => {}
            }
        }
        // CouchDB never answers 401 to an administrator: one address may lead to servers that
        // recognise the session and to others that do not.
        if refusal.status == 401 && session.is_admin() {
            auth.disable_sessions(generation);
            return Ok(Verdict::Again);
        }
        auth.remember_privilege_refusal(generation, &refusal.reason);
        Ok(Verdict::Forbidden)
    }

    /// Logs in: with a session if the server supports sessions and recognises its own, otherwise
    /// with name and password. `Ok(Err(_))` contains the server's message if it refuses the login.
    /// Sends nothing if the gate has closed since `asked`. The caller holds the server's proof.
    pub(super) async fn log_in(
        &self,
        server: &Arc<Server>,
        login: &ActiveLogin,
        asked: Instant,
    ) -> Result<LoggedIn, Error> {
        server.auth.wait_for_login_turn(login.generation, server.address.as_str()).await;
        if let Some(why) = self.closed_since(asked) {
            return Err(Error::LoginClosed { why });
        }
        match self.log_in_now(server, login).await {
            Ok(known) => Ok(known),
            Err(error) => Err(self.sender.explain_error(server, error).await),
        }
    }

    async fn log_in_now(
        &self,
        server: &Arc<Server>,
        login: &ActiveLogin,
    ) -> Result<LoggedIn, Error> {
        let destination = &Destination::direct(Arc::clone(server));
        if server.auth.uses_sessions(login.generation) {
            match self.begin_session(destination, login).await? {
                SessionStart::Session(cookie) => return Ok(Ok(Credential::Cookie(cookie))),
                SessionStart::Refused(words) => return Ok(Err(words)),
                SessionStart::NoSession => {
                    // A server that is not a CouchDB must not get the password.
                    if let Ok(Greeting::Other(found)) = self.sender.greeting(server).await {
                        return Err(Error::NotCouchDb { at: server.address.clone(), found });
                    }
                    tracing::warn!(
                        address = %server.address,
                        "this server offers no session, so each request carries the password, a few at a time: is the cookie handler among [chttpd] authentication_handlers, and do proxies pass POST /_session and its cookie?"
                    );
                    server.auth.disable_sessions(login.generation);
                }
            }
        }
        match self.sender.session(Route::Session, destination, login, &Credential::Basic).await {
            Ok(Err(words)) => Ok(Err(words)),
            // A server that does not know the route has not refused the login.
            Err(error) if !is_unknown_there(&error) => Err(error),
            Ok(Ok(_)) | Err(_) => Ok(Ok(Credential::Basic)),
        }
    }

    async fn begin_session(
        &self,
        destination: &Destination,
        login: &ActiveLogin,
    ) -> Result<SessionStart, Error> {
        let (sender, route) = (&self.sender, Route::Login);
        let call = Call { route, path: &route.path()?, destination };
        let cookie = match sender.send(call, login, &Credential::Basic).await {
            Ok(Ok(answer)) => {
                let status = status_label(answer.status);
                sender.observer.request_ended(route.label(), status, answer.took);
                answer.cookie
            }
            Ok(Err(refusal)) if refusal.about_login => {
                return Ok(SessionStart::Refused(refusal.words()));
            }
            // A proxy may block POST.
            Ok(Err(_)) => None,
            Err(error) if is_unknown_there(&error) => None,
            Err(error) => return Err(error),
        };
        let Some(cookie) = cookie.map(Arc::new) else { return Ok(SessionStart::NoSession) };
        let credential = Credential::Cookie(Arc::clone(&cookie));
        let valid = sender.session(Route::Session, destination, login, &credential).await?;
        Ok(valid.map_or(SessionStart::NoSession, |_: wire::Session| SessionStart::Session(cookie)))
    }
}

/// When a refused login is tried again, for messages.
const NEXT_ATTEMPT: &str = "because CouchDB locks accounts, a running recliner tries again only when the password changes, or after six minutes";

/// Whether a server refuses a request about logins because it does not know the route.
const fn is_unknown_there(error: &Error) -> bool {
    matches!(
        error,
        Error::NotFound { .. }
            | Error::Proxy { .. }
            | Error::Status { status: 400..=499 | 501, .. }
    )
}
