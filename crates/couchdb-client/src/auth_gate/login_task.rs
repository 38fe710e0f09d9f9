//! The task that decides whether a login may be used.

use super::{
    AuthGate, GateCommand, GateState, PRIVILEGE_REFUSAL_TTL, PrivilegeRefusal, ProvenLogin,
    Rejection, Verdict,
};
use crate::{
    Error, Login, LoginError, Route,
    credential::{Cookie, Credential},
    directory::{Destination, Directory, Server},
    endpoint_auth::LOCKOUT,
    sender::{Sender, contradiction_message, is_unknown_there, refusal_message},
    settings::ClientSettings,
};
use secrecy::{ExposeSecret as _, SecretString};
use std::{fmt::Display, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{self, Instant},
};

/// From one check of the password file to the next while the login works.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// From one check to the next while the login is refused.
const CHECK_WHILE_REFUSED: Duration = Duration::from_secs(5);

/// How long no server is asked again after none answered in time. Without it, requests that arrive
/// one after the other would each wait for all servers.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(5);

/// Owns the state of the gate.
#[derive(Debug)]
pub(crate) struct LoginTask {
    login: Login,
    state: watch::Sender<GateState>,
    orders: mpsc::Receiver<GateCommand>,
    directory: Arc<Directory>,
    sender: Sender,
    /// The password in use.
    password: Option<SecretString>,
    /// A newer password that was refused while the one in use still worked.
    declined: Option<SecretString>,
    proven: ProvenLogin,
    attempt: u64,
    /// When a refused login is tried again.
    closed_until: Option<Instant>,
    /// When no server answered in time, and the last error.
    unanswered: Option<(Instant, Error)>,
}

/// The result of one proof.
enum Proof {
    Accepted(Credential),
    Refused(Arc<str>),
    Unreachable(Error),
}

/// The state of a session after a refusal.
enum SessionCheck {
    /// It is valid: the refusal is about privileges.
    Valid,
    /// It ended, or is no longer in use.
    Ended,
    /// The server accepts it, but the node behind the server does not.
    UnknownToNode,
    /// The server recognises it at one time and not at another.
    Inconsistent,
    Unreachable(Error),
}

impl LoginTask {
    pub(crate) fn new(
        settings: &ClientSettings,
        gate: &AuthGate,
        orders: mpsc::Receiver<GateCommand>,
        directory: Arc<Directory>,
        sender: Sender,
    ) -> Self {
        let mut proven = ProvenLogin::new(None, None);
        proven.generation = 0;
        Self {
            login: settings.login.clone(),
            state: gate.state.clone(),
            orders,
            directory,
            sender,
            password: None,
            declined: None,
            proven,
            attempt: 0,
            closed_until: None,
            unanswered: None,
        }
    }

    /// Runs until every handle of the gate is dropped.
    pub(crate) async fn run(mut self) {
        loop {
            let closed = matches!(*self.state.borrow(), GateState::Closed { .. });
            let next_check = time::sleep(if closed { CHECK_WHILE_REFUSED } else { CHECK_INTERVAL });
            // Both arms are cancel-safe.
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => self.handle(order).await,
                    None => return,
                },
                () = next_check => self.check_login().await,
            }
        }
    }

    async fn handle(&mut self, order: GateCommand) {
        match order {
            GateCommand::ProofWanted { attempt } => {
                let unproved = matches!(
                    *self.state.borrow(),
                    GateState::Unproved { .. } | GateState::Proving { .. }
                );
                if unproved && attempt == self.attempt && !self.repeat_recent_failure() {
                    let order = self.other_entries(None);
                    self.prove(&order).await;
                }
            }
            GateCommand::Refused { destination, proven, credential, rejection, verdict } => {
                let judged = match credential.cookie() {
                    Some(cookie) => {
                        self.judge_session(&destination, &proven, cookie, &rejection).await
                    }
                    None => self.judge(&destination, &proven, &rejection).await,
                };
                // The request may have been cancelled.
                let _gone = verdict.send(judged);
            }
        }
    }

    /// Repeats the last failure if no server answered in time a moment ago.
    fn repeat_recent_failure(&mut self) -> bool {
        let just_now = |(at, _): &&(Instant, Error)| at.elapsed() < UNANSWERED_PAUSE;
        let Some((_, why)) = self.unanswered.as_ref().filter(just_now) else { return false };
        let why = Some(why.clone());
        self.attempt = self.attempt.saturating_add(1);
        self.state.send_replace(GateState::Unproved { attempt: self.attempt, why });
        true
    }

    /// The entries other than `not` that have not refused this login, live ones first.
    fn other_entries(&self, not: Option<&Arc<Server>>) -> Vec<Arc<Server>> {
        let other = |server: &&Arc<Server>| not.is_none_or(|not| !Arc::ptr_eq(server, not));
        let welcome = |server: &&Arc<Server>| server.auth.refusal(self.proven.generation).is_none();
        let (mut live, resting): (Vec<_>, Vec<_>) = self
            .directory
            .entries
            .iter()
            .filter(other)
            .filter(welcome)
            .map(Arc::clone)
            .partition(|server| !server.breaker.is_resting());
        live.extend(resting);
        // A stable sort, so that the same one comes first among those ready for a login.
        live.sort_by_key(|server| (server.breaker.is_resting(), server.auth.until_login()));
        live
    }

    /// Decides about the refusal of a request that carried the password.
    async fn judge(
        &mut self,
        destination: &Destination,
        proven: &Arc<ProvenLogin>,
        rejection: &Rejection,
    ) -> Verdict {
        let about_login = rejection.about_login;
        let newest =
            proven.epoch == self.proven.epoch && proven.generation == self.proven.generation;
        if about_login && newest {
            self.doubt(destination, proven);
        }
        if !about_login && newest && destination.server.auth.until_login() > Duration::ZERO {
            // The login was accepted a moment ago, so this is about privileges.
            self.reopen(proven);
            self.remember_privilege_refusal(proven, &rejection.reason);
            return self.verdict(proven, false);
        }
        if proven.epoch == self.proven.epoch
            && !matches!(*self.state.borrow(), GateState::Closed { .. })
        {
            self.prove(&self.servers_to_ask(&destination.server, about_login)).await;
            if !about_login {
                self.remember_privilege_refusal(proven, &rejection.reason);
            }
        }
        self.verdict(proven, about_login)
    }

    /// Records that a destination refused a password it had accepted. One that does so twice gets
    /// no more requests, because it would go on.
    fn doubt(&self, destination: &Destination, proven: &ProvenLogin) {
        let generation = proven.generation;
        let (auth, at): (_, &dyn Display) = match &destination.forwarded_to {
            Some(node) => (&node.auth, &node.name),
            None => (&destination.server.auth, &destination.server.address),
        };
        let was_open = auth.is_open(generation);
        destination.server.auth.doubt();
        destination.forwarded_to.iter().for_each(|node| node.auth.doubt());
        if was_open && auth.record_contradiction() {
            let user = self.login.username().unwrap_or_default();
            let why = contradiction_message(at, user);
            tracing::warn!(%why, "nothing is sent there");
            auth.refuse(generation, why);
        }
    }

    /// The servers to ask after a refusal. A server that has just refused the login gets no second
    /// bad one if another server can answer as well.
    fn servers_to_ask(&self, server: &Arc<Server>, about_login: bool) -> Vec<Arc<Server>> {
        let others = self.other_entries(Some(server));
        match (about_login, others.is_empty()) {
            (true, false) => others,
            (true, true) => vec![Arc::clone(server)],
            (false, _) => std::iter::once(Arc::clone(server)).chain(others).collect(),
        }
    }

    /// Decides about the refusal of a request that carried a session's cookie. Checking whether the
    /// session is valid does not count as a bad login.
    async fn judge_session(
        &mut self,
        destination: &Destination,
        proven: &Arc<ProvenLogin>,
        cookie: &Arc<Cookie>,
        rejection: &Rejection,
    ) -> Verdict {
        let generation = self.proven.generation;
        let auth = &destination.server.auth;
        let in_use = || {
            let now = auth.credential(generation);
            now.is_some_and(|now| now.cookie().is_some_and(|now| Arc::ptr_eq(now, cookie)))
        };
        if proven.generation != generation
            || matches!(*self.state.borrow(), GateState::Closed { .. })
        {
            return self.verdict(proven, true);
        }
        if !in_use() || self.proven.is_known_privilege_refusal(&rejection.reason) {
            self.reopen(proven);
            return self.verdict(proven, !in_use());
        }
        match self.check_session(destination, cookie, rejection).await {
            SessionCheck::Ended => {
                if in_use() {
                    auth.record_session_end(generation, cookie);
                }
                if proven.epoch == self.proven.epoch {
                    // The password may have changed on that server.
                    self.prove(&self.servers_to_ask(&destination.server, true)).await;
                }
                return self.verdict(proven, true);
            }
            SessionCheck::UnknownToNode => {
                destination
                    .forwarded_to
                    .iter()
                    .for_each(|node| node.auth.disable_sessions(generation));
            }
            SessionCheck::Inconsistent => auth.disable_sessions(generation),
            SessionCheck::Valid => {
                self.reopen(proven);
                self.remember_privilege_refusal(proven, &rejection.reason);
                return self.verdict(proven, false);
            }
            SessionCheck::Unreachable(error) => {
                self.reopen(proven);
                return Verdict::Failed(error);
            }
        }
        self.reopen(proven);
        self.verdict(proven, true)
    }

    async fn check_session(
        &self,
        destination: &Destination,
        cookie: &Arc<Cookie>,
        rejection: &Rejection,
    ) -> SessionCheck {
        let credential = Credential::Cookie(Arc::clone(cookie));
        let direct = Destination::direct(Arc::clone(&destination.server));
        let asked = self.sender.session(Route::Session, &direct, &self.proven, &credential).await;
        let session = match asked {
            Ok(Ok(session)) => session,
            Ok(Err(_)) => return SessionCheck::Ended,
            Err(error) => return SessionCheck::Unreachable(error),
        };
        if let Some(node) = &destination.forwarded_to {
            let route = Route::NodeSession { node: &node.name };
            match self.sender.session(route, destination, &self.proven, &credential).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return SessionCheck::UnknownToNode,
                Err(error) if is_unknown_there(&error) => {}
                Err(error) => return SessionCheck::Unreachable(error),
            }
        }
        // CouchDB never answers 401 to an administrator: one address may lead to servers that
        // recognise the session and to others that do not.
        if rejection.status == 401 && session.is_admin() {
            return SessionCheck::Inconsistent;
        }
        SessionCheck::Valid
    }

    /// What a refused request has to do now. `again` means that the refusal was not about
    /// privileges.
    fn verdict(&self, proven: &ProvenLogin, again: bool) -> Verdict {
        match &*self.state.borrow() {
            GateState::Closed { why } => {
                Verdict::Failed(Error::LoginClosed { why: Arc::clone(why) })
            }
            GateState::Unproved { why, .. } => {
                let why = why.clone().unwrap_or(Error::Stopped);
                Verdict::Failed(Error::unproved(why))
            }
            GateState::Proving { .. } => Verdict::Again,
            GateState::Open(open) if open.generation != proven.generation || again => {
                Verdict::Again
            }
            GateState::Open(_) => Verdict::Forbidden,
        }
    }

    /// Remembers that `reason` is about privileges, not about the login.
    fn remember_privilege_refusal(&mut self, proven: &ProvenLogin, reason: &Arc<str>) {
        if proven.generation != self.proven.generation {
            return;
        }
        self.proven.privilege_refusal = Some(PrivilegeRefusal {
            reason: Arc::clone(reason),
            until: Instant::now() + PRIVILEGE_REFUSAL_TTL,
        });
        let proven = Arc::new(self.proven.clone());
        self.state.send_if_modified(|state| {
            let open = matches!(state, GateState::Open(_));
            if open {
                *state = GateState::Open(proven);
            }
            open
        });
    }

    /// Checks for a new password and for the end of the pause after a refusal.
    async fn check_login(&mut self) {
        let (open, closed) = match *self.state.borrow() {
            GateState::Open(_) => (true, false),
            GateState::Closed { .. } => (false, true),
            GateState::Unproved { .. } | GateState::Proving { .. } => (false, false),
        };
        let changed = self.changed_password().await;
        if open && let Some(password) = changed {
            self.try_new_password(password).await;
        } else if closed {
            let due = self.closed_until.is_some_and(|until| until <= Instant::now());
            if due || changed.is_some() {
                let order = self.other_entries(None);
                self.prove(&order).await;
            }
        }
    }

    /// The password in the file, if it is neither in use nor declined.
    async fn changed_password(&self) -> Option<SecretString> {
        if !matches!(self.login, Login::File { .. }) {
            return None;
        }
        let password = self.login.read().await.ok().flatten()?;
        let known = [&self.password, &self.declined].into_iter().flatten();
        let mut known = known.map(SecretString::expose_secret);
        (!known.any(|known| known == password.expose_secret())).then_some(password)
    }

    /// Tries a new password while the old one still works. A refused one changes nothing and is not
    /// tried again.
    async fn try_new_password(&mut self, password: SecretString) {
        let mut proven = ProvenLogin::new(self.login.username(), Some(&password));
        proven.generation = self.proven.generation.saturating_add(1);
        for server in self.other_entries(None) {
            match self.try_login(&server, &proven).await {
                Proof::Accepted(credential) => {
                    self.attempt = self.attempt.saturating_add(1);
                    self.proven = proven;
                    self.password = Some(password);
                    return self.open(Some((&server, credential)));
                }
                Proof::Refused(why) => {
                    tracing::warn!(%why, "the password file has changed, the old password stays in use");
                    self.declined = Some(password);
                    return;
                }
                Proof::Unreachable(_) => {}
            }
        }
    }

    /// Reads the login again.
    async fn refresh(&mut self) -> Result<(), LoginError> {
        let password = match self.login.read().await {
            Ok(password) => password,
            // The file may be half written: the last password may still work.
            Err(error) if self.proven.generation != 0 => {
                tracing::warn!(%error, "the last password stays in use");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let known = self.password.as_ref().map(SecretString::expose_secret);
        if self.proven.generation == 0
            || known != password.as_ref().map(SecretString::expose_secret)
        {
            let mut proven = ProvenLogin::new(self.login.username(), password.as_ref());
            proven.generation = self.proven.generation.saturating_add(1);
            self.proven = proven;
            self.password = password;
        }
        Ok(())
    }

    /// Proves the login with one request to the first server of `order` that answers.
    async fn prove(&mut self, order: &[Arc<Server>]) {
        let generation = self.proven.generation;
        self.state.send_replace(GateState::Proving { attempt: self.attempt, generation });
        self.attempt = self.attempt.saturating_add(1);
        if let Err(error) = self.refresh().await {
            self.close(error.to_string().into());
            return;
        }
        if !self.proven.is_login() {
            return self.open(None);
        }
        // A server that refused the last password has not seen this one.
        let all = (self.proven.generation != generation).then(|| self.other_entries(None));
        let order = all.as_deref().unwrap_or(order);
        // No server gets a login that it has refused.
        if let [only] = order
            && let Some(why) = only.auth.refusal(self.proven.generation)
        {
            return self.close(why);
        }
        let mut last = None;
        for server in order {
            match self.try_login(server, &self.proven).await {
                Proof::Accepted(credential) => return self.open(Some((server, credential))),
                Proof::Refused(why) => return self.close(why),
                Proof::Unreachable(error) => last = Some(error),
            }
        }
        let refused = || Error::LoginClosed { why: "every CouchDB URL rejected the login".into() };
        let why = last.unwrap_or_else(refused);
        self.unanswered = Some((Instant::now(), why.clone()));
        self.state.send_replace(GateState::Unproved { attempt: self.attempt, why: Some(why) });
    }

    /// Reopens the gate after the refusal of a request with `proven`, because the login was not the
    /// cause.
    fn reopen(&mut self, proven: &ProvenLogin) {
        let closed = matches!(*self.state.borrow(), GateState::Proving { .. });
        if closed && proven.epoch == self.proven.epoch {
            self.attempt = self.attempt.saturating_add(1);
            self.open(None);
        }
    }

    /// Opens the gate. `accepted` is the server that has just accepted the login, if one did.
    fn open(&mut self, accepted: Option<(&Arc<Server>, Credential)>) {
        self.proven.epoch = self.attempt;
        self.declined = None;
        self.closed_until = None;
        self.unanswered = None;
        if let Some((server, credential)) = accepted {
            self.proven.privilege_refusal = None;
            server.auth.open(self.proven.generation, credential);
        }
        self.state.send_replace(GateState::Open(Arc::new(self.proven.clone())));
    }

    fn close(&mut self, why: Arc<str>) {
        tracing::error!(%why, "nothing is sent to CouchDB");
        self.closed_until = Some(Instant::now() + LOCKOUT);
        self.state.send_replace(GateState::Closed { why });
    }

    /// The one request that may carry a wrong password.
    async fn try_login(&self, server: &Arc<Server>, proven: &ProvenLogin) -> Proof {
        let user = self.login.username().unwrap_or_default();
        match self.sender.log_in(server, proven).await {
            Ok(Ok(credential)) => Proof::Accepted(credential),
            Ok(Err(rejection)) => {
                Proof::Refused(refusal_message(&server.address, user, &rejection))
            }
            Err(error) => Proof::Unreachable(error),
        }
    }
}
