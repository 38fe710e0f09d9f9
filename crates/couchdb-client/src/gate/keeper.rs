//! The task that decides whether a login may be used.

use super::{Command, EXCUSED_FOR, Excuse, Gate, Pass, Said, State, Verdict};
use crate::{
    Error, Login, LoginError, Route,
    credential::{Cookie, Credential},
    directory::{Directory, Server, Way},
    door::LOCKOUT,
    sender::{Sender, contradicted_why, is_unknown_there, refused_why},
    settings::Settings,
};
use secrecy::{ExposeSecret as _, SecretString};
use std::{fmt::Display, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::{self, Instant},
};

/// How often the password file is looked at while the login works.
const LOOK: Duration = Duration::from_secs(30);
/// How often it is looked at while the login is refused.
const LOOK_CLOSED: Duration = Duration::from_secs(5);

/// How long after no server answered in time nobody is asked again: requests that come one
/// after the other would each wait for all of them.
const BREATH: Duration = Duration::from_secs(5);

/// Owns the state of the gate.
#[derive(Debug)]
pub(crate) struct Keeper {
    login: Login,
    state: watch::Sender<State>,
    orders: mpsc::Receiver<Command>,
    directory: Arc<Directory>,
    sender: Sender,
    /// The password in use.
    password: Option<SecretString>,
    /// A newer one that was refused while the one in use still worked.
    declined: Option<SecretString>,
    pass: Pass,
    attempt: u64,
    /// When a refused login is tried once more.
    closed_until: Option<Instant>,
    /// When no server answered in time, and what the last one failed with.
    unanswered: Option<(Instant, Error)>,
}

/// How one proof ended.
enum Proof {
    Accepted(Credential),
    Refused(Arc<str>),
    Unreachable(Error),
}

/// What became of a session.
enum Session {
    /// It goes on: the refusal is about privileges.
    GoesOn,
    /// It ended, or is not the one to use any more.
    Ended,
    /// The server knows it, the node behind does not.
    UnknownBehind,
    /// The server knows it for an administrator's at one time and not at another.
    ComesAndGoes,
    Unreachable(Error),
}

impl Keeper {
    pub(crate) fn new(
        settings: &Settings,
        gate: &Gate,
        orders: mpsc::Receiver<Command>,
        directory: Arc<Directory>,
        sender: Sender,
    ) -> Self {
        let mut pass = Pass::new(None, None);
        pass.generation = 0;
        Self {
            login: settings.login.clone(),
            state: gate.state.clone(),
            orders,
            directory,
            sender,
            password: None,
            declined: None,
            pass,
            attempt: 0,
            closed_until: None,
            unanswered: None,
        }
    }

    /// Runs for ever.
    pub(crate) async fn run(mut self) {
        loop {
            let closed = matches!(*self.state.borrow(), State::Closed { .. });
            let look = time::sleep(if closed { LOOK_CLOSED } else { LOOK });
            // Both arms are cancel-safe.
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return,
                },
                () = look => self.look().await,
            }
        }
    }

    async fn obey(&mut self, order: Command) {
        match order {
            Command::Wanted { attempt } => {
                let unproved =
                    matches!(*self.state.borrow(), State::Unproved { .. } | State::Proving { .. });
                if unproved && attempt == self.attempt && !self.still_unanswered() {
                    let order = self.entries_but(None);
                    self.prove(&order).await;
                }
            }
            Command::Refused { way, pass, credential, said, verdict } => {
                let judged = match credential.cookie() {
                    Some(cookie) => self.judge_session(&way, &pass, cookie, &said).await,
                    None => self.judge(&way, &pass, &said).await,
                };
                // Whoever asked may have given up.
                let _gone = verdict.send(judged);
            }
        }
    }

    /// Gives the same answer again where no server gave one in time a moment ago.
    fn still_unanswered(&mut self) -> bool {
        let just_now = |(at, _): &&(Instant, Error)| at.elapsed() < BREATH;
        let Some((_, why)) = self.unanswered.as_ref().filter(just_now) else { return false };
        let why = Some(why.clone());
        self.attempt = self.attempt.saturating_add(1);
        self.state.send_replace(State::Unproved { attempt: self.attempt, why });
        true
    }

    /// Live entries other than `not` that have not refused this login.
    fn entries_but(&self, not: Option<&Arc<Server>>) -> Vec<Arc<Server>> {
        let other = |server: &&Arc<Server>| not.is_none_or(|not| !Arc::ptr_eq(server, not));
        let welcome = |server: &&Arc<Server>| server.door.refusal(self.pass.generation).is_none();
        let (mut live, resting): (Vec<_>, Vec<_>) = self
            .directory
            .entries
            .iter()
            .filter(other)
            .filter(welcome)
            .map(Arc::clone)
            .partition(|server| !server.breaker.resting());
        live.extend(resting);
        // Stable: of those at which no login has to wait, the same comes first.
        live.sort_by_key(|server| (server.breaker.resting(), server.door.until_login()));
        live
    }

    /// Judges the refusal of a request that carried the password.
    async fn judge(&mut self, way: &Way, pass: &Arc<Pass>, said: &Said) -> Verdict {
        let of_login = said.of_login;
        let newest = pass.epoch == self.pass.epoch && pass.generation == self.pass.generation;
        if of_login && newest {
            self.doubt(way, pass);
        }
        if !of_login && newest && way.server.door.until_login() > Duration::ZERO {
            // The login was right a moment ago, so that this is a matter of privileges.
            self.reopen(pass);
            self.excuse(pass, &said.reason);
            return self.verdict(pass, false);
        }
        if pass.epoch == self.pass.epoch && !matches!(*self.state.borrow(), State::Closed { .. }) {
            self.prove(&self.order_after(&way.server, of_login)).await;
            if !of_login {
                self.excuse(pass, &said.reason);
            }
        }
        self.verdict(pass, of_login)
    }

    /// The password was refused this way, which had accepted it. A way that does so twice is
    /// left alone: it would go on.
    fn doubt(&self, way: &Way, pass: &Pass) {
        let generation = pass.generation;
        let (door, at): (_, &dyn Display) = match &way.on_to {
            Some(node) => (&node.door, &node.name),
            None => (&way.server.door, &way.server.address),
        };
        let was_open = door.is_open(generation);
        way.server.door.doubt();
        way.on_to.iter().for_each(|node| node.door.doubt());
        if was_open && door.contradicts() {
            let user = self.login.username().unwrap_or_default();
            let why = contradicted_why(at, user);
            tracing::warn!(%why, "nothing is sent there");
            door.refuse(generation, why);
        }
    }

    /// Whom to ask after a refusal. A server that has just refused the login is not given
    /// a second bad one where another can tell as well.
    fn order_after(&self, server: &Arc<Server>, of_login: bool) -> Vec<Arc<Server>> {
        let others = self.entries_but(Some(server));
        match (of_login, others.is_empty()) {
            (true, false) => others,
            (true, true) => vec![Arc::clone(server)],
            (false, _) => std::iter::once(Arc::clone(server)).chain(others).collect(),
        }
    }

    /// Judges the refusal of a request that carried a session's cookie. It costs no bad
    /// login to ask whether the session goes on.
    async fn judge_session(
        &mut self,
        way: &Way,
        pass: &Arc<Pass>,
        cookie: &Arc<Cookie>,
        said: &Said,
    ) -> Verdict {
        let generation = self.pass.generation;
        let door = &way.server.door;
        let in_use = || {
            let now = door.credential(generation);
            now.is_some_and(|now| now.cookie().is_some_and(|now| Arc::ptr_eq(now, cookie)))
        };
        if pass.generation != generation || matches!(*self.state.borrow(), State::Closed { .. }) {
            return self.verdict(pass, true);
        }
        if !in_use() || self.pass.excuses(&said.reason) {
            self.reopen(pass);
            return self.verdict(pass, !in_use());
        }
        match self.look_at_session(way, cookie, said).await {
            Session::Ended => {
                if in_use() {
                    door.session_ended(generation, cookie);
                }
                if pass.epoch == self.pass.epoch {
                    // Its password may have changed there.
                    self.prove(&self.order_after(&way.server, true)).await;
                }
                return self.verdict(pass, true);
            }
            Session::UnknownBehind => {
                way.on_to.iter().for_each(|node| node.door.without_sessions(generation));
            }
            Session::ComesAndGoes => door.without_sessions(generation),
            Session::GoesOn => {
                self.reopen(pass);
                self.excuse(pass, &said.reason);
                return self.verdict(pass, false);
            }
            Session::Unreachable(error) => {
                self.reopen(pass);
                return Verdict::Failed(error);
            }
        }
        self.reopen(pass);
        self.verdict(pass, true)
    }

    async fn look_at_session(&self, way: &Way, cookie: &Arc<Cookie>, said: &Said) -> Session {
        let credential = Credential::Cookie(Arc::clone(cookie));
        let direct = Way::direct(Arc::clone(&way.server));
        let asked = self.sender.session(Route::Session, &direct, &self.pass, &credential).await;
        let session = match asked {
            Ok(Ok(session)) => session,
            Ok(Err(_)) => return Session::Ended,
            Err(error) => return Session::Unreachable(error),
        };
        if let Some(node) = &way.on_to {
            let route = Route::NodeSession { node: &node.name };
            match self.sender.session(route, way, &self.pass, &credential).await {
                Ok(Ok(_)) => {}
                Ok(Err(_)) => return Session::UnknownBehind,
                Err(error) if is_unknown_there(&error) => {}
                Err(error) => return Session::Unreachable(error),
            }
        }
        // To an administrator CouchDB never answers 401: those who know the session and
        // those who do not may stand behind one address.
        if said.status == 401 && session.is_admin() {
            return Session::ComesAndGoes;
        }
        Session::GoesOn
    }

    /// What a refused request has to do, as things stand; `again`, where the refusal was
    /// not about its privileges.
    fn verdict(&self, pass: &Pass, again: bool) -> Verdict {
        match &*self.state.borrow() {
            State::Closed { why } => Verdict::Failed(Error::LoginClosed { why: Arc::clone(why) }),
            State::Unproved { why, .. } => {
                let why = why.clone().unwrap_or(Error::Stopped);
                Verdict::Failed(Error::unproved(why))
            }
            State::Proving { .. } => Verdict::Again,
            State::Open(open) if open.generation != pass.generation || again => Verdict::Again,
            State::Open(_) => Verdict::Forbidden,
        }
    }

    /// Remembers that `reason` was no matter of the login.
    fn excuse(&mut self, pass: &Pass, reason: &Arc<str>) {
        if pass.generation != self.pass.generation {
            return;
        }
        self.pass.excuse =
            Some(Excuse { reason: Arc::clone(reason), until: Instant::now() + EXCUSED_FOR });
        let pass = Arc::new(self.pass.clone());
        self.state.send_if_modified(|state| {
            let open = matches!(state, State::Open(_));
            if open {
                *state = State::Open(pass);
            }
            open
        });
    }

    /// Looks whether there is something new: another password, or the end of a back-off.
    async fn look(&mut self) {
        let (open, closed) = match *self.state.borrow() {
            State::Open(_) => (true, false),
            State::Closed { .. } => (false, true),
            State::Unproved { .. } | State::Proving { .. } => (false, false),
        };
        let changed = self.changed_password().await;
        if open && let Some(password) = changed {
            self.change_over(password).await;
        } else if closed {
            let due = self.closed_until.is_some_and(|until| until <= Instant::now());
            if due || changed.is_some() {
                let order = self.entries_but(None);
                self.prove(&order).await;
            }
        }
    }

    /// The file's password, where it is neither in use nor declined.
    async fn changed_password(&self) -> Option<SecretString> {
        if !matches!(self.login, Login::File { .. }) {
            return None;
        }
        let password = self.login.read().await.ok().flatten()?;
        let known = [&self.password, &self.declined].into_iter().flatten();
        let mut known = known.map(SecretString::expose_secret);
        (!known.any(|known| known == password.expose_secret())).then_some(password)
    }

    /// Tries a new password while the old one still works: one that is refused changes
    /// nothing, and is not tried again.
    async fn change_over(&mut self, password: SecretString) {
        let mut pass = Pass::new(self.login.username(), Some(&password));
        pass.generation = self.pass.generation.saturating_add(1);
        for server in self.entries_but(None) {
            match self.canary(&server, &pass).await {
                Proof::Accepted(credential) => {
                    self.attempt = self.attempt.saturating_add(1);
                    self.pass = pass;
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

    /// Takes up the login as it is now.
    async fn refresh(&mut self) -> Result<(), LoginError> {
        let password = match self.login.read().await {
            Ok(password) => password,
            // The file is being written: what was read last may still do.
            Err(error) if self.pass.generation != 0 => {
                tracing::warn!(%error, "the last password stays in use");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let known = self.password.as_ref().map(SecretString::expose_secret);
        if self.pass.generation == 0 || known != password.as_ref().map(SecretString::expose_secret)
        {
            let mut pass = Pass::new(self.login.username(), password.as_ref());
            pass.generation = self.pass.generation.saturating_add(1);
            self.pass = pass;
            self.password = password;
        }
        Ok(())
    }

    /// Proves the login with one request to the first server of `order` that answers.
    async fn prove(&mut self, order: &[Arc<Server>]) {
        let generation = self.pass.generation;
        self.state.send_replace(State::Proving { attempt: self.attempt, generation });
        self.attempt = self.attempt.saturating_add(1);
        if let Err(error) = self.refresh().await {
            self.close(error.to_string().into());
            return;
        }
        if !self.pass.is_login() {
            return self.open(None);
        }
        // Whoever refused the last password has not seen this one.
        let all = (self.pass.generation != generation).then(|| self.entries_but(None));
        let order = all.as_deref().unwrap_or(order);
        // No server is given twice what it has refused.
        if let [only] = order
            && let Some(why) = only.door.refusal(self.pass.generation)
        {
            return self.close(why);
        }
        let mut last = None;
        for server in order {
            match self.canary(server, &self.pass).await {
                Proof::Accepted(credential) => return self.open(Some((server, credential))),
                Proof::Refused(why) => return self.close(why),
                Proof::Unreachable(error) => last = Some(error),
            }
        }
        let refused = || Error::LoginClosed { why: "every CouchDB URL refused the login".into() };
        let why = last.unwrap_or_else(refused);
        self.unanswered = Some((Instant::now(), why.clone()));
        self.state.send_replace(State::Unproved { attempt: self.attempt, why: Some(why) });
    }

    /// Opens the gate again that the refusal of a request with `pass` closed, where it
    /// turned out that the login is not to blame.
    fn reopen(&mut self, pass: &Pass) {
        let closed = matches!(*self.state.borrow(), State::Proving { .. });
        if closed && pass.epoch == self.pass.epoch {
            self.attempt = self.attempt.saturating_add(1);
            self.open(None);
        }
    }

    /// Opens the gate; the server is the one that has just accepted the login.
    fn open(&mut self, accepted: Option<(&Arc<Server>, Credential)>) {
        self.pass.epoch = self.attempt;
        self.declined = None;
        self.closed_until = None;
        self.unanswered = None;
        if let Some((server, credential)) = accepted {
            self.pass.excuse = None;
            server.door.open(self.pass.generation, credential);
        }
        self.state.send_replace(State::Open(Arc::new(self.pass.clone())));
    }

    fn close(&mut self, why: Arc<str>) {
        tracing::error!(%why, "nothing is sent to CouchDB");
        self.closed_until = Some(Instant::now() + LOCKOUT);
        self.state.send_replace(State::Closed { why });
    }

    /// The one request that may carry a wrong password.
    async fn canary(&self, server: &Arc<Server>, pass: &Pass) -> Proof {
        let user = self.login.username().unwrap_or_default();
        match self.sender.log_in(server, pass).await {
            Ok(Ok(credential)) => Proof::Accepted(credential),
            Ok(Err(said)) => Proof::Refused(refused_why(&server.address, user, &said)),
            Err(error) => Proof::Unreachable(error),
        }
    }
}
