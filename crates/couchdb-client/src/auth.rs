//! The gate that every request with a login passes.
//!
//! Owns which login is in use, and whether it may be used. No request goes out before one request
//! has proved the login. Each endpoint records what it accepted and refused (`endpoint_auth`). A
//! login that no server accepts any more closes the gate until its password changes, or for longer
//! than CouchDB locks an account.
//!
//! Logins and examinations of refusals run in [`AuthTask`], so that a caller that gives up does not
//! leave a password in flight whose answer nobody sees.

mod endpoints;

use super::{
    Error, Login, LoginError,
    active_login::ActiveLogin,
    credential::Credential,
    directory::{Destination, Directory, Server},
    endpoint_auth::LOCKOUT,
    sender::{Refusal, Sender},
};
use arc_swap::ArcSwap;
use futures::{StreamExt as _, future::BoxFuture, stream};
use secrecy::{ExposeSecret as _, SecretString};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    time::{self, Instant},
};

/// Length of the queue of logins and examinations; a full one only makes requests wait.
const QUEUE: usize = 64;

/// Time between checks of the password file while the login works.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Time between checks while the login is refused.
const CHECK_WHILE_REFUSED: Duration = Duration::from_secs(5);

/// Pause after an attempt in which no server answered in time. Without it, each of several
/// consecutive requests would wait for all servers.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(5);

/// The login in use.
#[derive(Debug)]
pub(super) struct Auth {
    source: Login,
    /// The password that a pipe gave.
    piped: OnceLock<SecretString>,
    directory: Arc<Directory>,
    sender: Sender,
    state: ArcSwap<State>,
    /// Allows only one proof of a new login at a time.
    proof: Semaphore,
    jobs: mpsc::Sender<BoxFuture<'static, ()>>,
}

#[derive(Clone, Debug, Default)]
struct State {
    login: Arc<ActiveLogin>,
    gate: Gate,
}

/// Whether requests may carry the login.
#[derive(Clone, Debug)]
enum Gate {
    /// No server has accepted or refused it. Holds when the last attempt ended, and why.
    Unproved(Option<(Instant, Error)>),
    Open,
    /// It was refused: who refused it, what to do, and when it is tried again.
    Closed(Arc<str>, Instant),
}

impl Default for Gate {
    fn default() -> Self {
        Self::Unproved(None)
    }
}

/// What to do with a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Send it again: the login has changed, or the refusal was not final.
    Again,
    /// Give up: the login is valid but lacks the privilege.
    Forbidden,
}

/// Runs logins, and checks for new passwords.
#[derive(Debug)]
pub(super) struct AuthTask {
    auth: Arc<Auth>,
    jobs: mpsc::Receiver<BoxFuture<'static, ()>>,
}

impl AuthTask {
    /// Never ends.
    pub(super) async fn run(mut self) {
        let jobs = stream::poll_fn(|context| self.jobs.poll_recv(context));
        let mut jobs = jobs.buffer_unordered(usize::MAX);
        let all = async { while jobs.next().await.is_some() {} };
        tokio::join!(all, self.auth.watch_login());
    }
}

impl Auth {
    pub(super) fn new(
        source: Login,
        directory: Arc<Directory>,
        sender: Sender,
    ) -> (Arc<Self>, AuthTask) {
        let (orders, jobs) = mpsc::channel(QUEUE);
        let auth = Arc::new(Self {
            source,
            piped: OnceLock::new(),
            directory,
            sender,
            state: ArcSwap::default(),
            proof: Semaphore::new(1),
            jobs: orders,
        });
        (Arc::clone(&auth), AuthTask { auth, jobs })
    }

    /// The generation of the login in use; 0 if there is none.
    pub(super) fn generation(&self) -> u64 {
        let state = self.state.load();
        if matches!(state.gate, Gate::Open) { state.login.generation } else { 0 }
    }

    /// Whether `login` is in use now.
    pub(super) fn is_current(&self, login: &ActiveLogin) -> bool {
        self.generation() == login.generation
    }

    /// Whether the login was refused, or could not be proved.
    pub(super) fn is_unusable(&self) -> bool {
        !matches!(self.state.load().gate, Gate::Open)
    }

    /// Why nothing is sent, if the login was refused.
    pub(super) fn refusal(&self) -> Option<Error> {
        match &self.state.load().gate {
            Gate::Closed(why, _) => Some(Error::LoginClosed { why: Arc::clone(why) }),
            Gate::Open | Gate::Unproved(_) => None,
        }
    }

    /// Why the gate is closed, if it closed after `asked`.
    fn closed_since(&self, asked: Instant) -> Option<Arc<str>> {
        match &self.state.load().gate {
            Gate::Closed(why, until) if *until >= asked + LOCKOUT => Some(Arc::clone(why)),
            Gate::Closed(..) | Gate::Open | Gate::Unproved(_) => None,
        }
    }

    /// The login, once it is proved.
    pub(super) async fn login(self: &Arc<Self>) -> Result<Arc<ActiveLogin>, Error> {
        if !matches!(self.state.load().gate, Gate::Unproved(_)) {
            return self.proved();
        }
        let (auth, asked) = (Arc::clone(self), Instant::now());
        self.run_to_end(Box::pin(async move { auth.prove_once(asked).await })).await
    }

    fn proved(&self) -> Result<Arc<ActiveLogin>, Error> {
        let state = self.state.load();
        match &state.gate {
            Gate::Open => Ok(Arc::clone(&state.login)),
            Gate::Closed(why, _) => Err(Error::LoginClosed { why: Arc::clone(why) }),
            Gate::Unproved(Some((_, why))) => Err(Error::unproved(why.clone())),
            Gate::Unproved(None) => Err(Error::Stopped),
        }
    }

    /// Decides what to do about a refused request. The server gets no other request until then.
    pub(super) async fn examine(
        self: &Arc<Self>,
        destination: &Destination,
        login: &Arc<ActiveLogin>,
        credential: &Credential,
        refusal: &Refusal,
    ) -> Result<Verdict, Error> {
        let held = Held::new(&destination.server);
        let auth = Arc::clone(self);
        let (login, destination) = (Arc::clone(login), destination.clone());
        let (credential, refusal) = (credential.clone(), refusal.clone());
        let judging = async move {
            let _held = held;
            auth.judge(&destination, &login, &credential, &refusal).await
        };
        self.run_to_end(Box::pin(judging)).await
    }

    /// Proves the login at the first endpoint of `destination` that has not accepted it.
    pub(super) async fn prove_endpoints(
        self: &Arc<Self>,
        destination: &Destination,
        login: &Arc<ActiveLogin>,
    ) -> Result<(), Error> {
        let (auth, asked) = (Arc::clone(self), Instant::now());
        let (login, destination) = (Arc::clone(login), destination.clone());
        let proving = async move {
            match &destination.forwarded_to {
                Some(node) if destination.server.auth.credential(login.generation).is_some() => {
                    auth.prove_node(node, &destination, &login, asked).await
                }
                _ => auth.prove_server(&destination.server, &login, asked).await,
            }
        };
        self.run_to_end(Box::pin(proving)).await
    }

    /// Runs `work` in the task, to its end even if the caller gives up.
    async fn run_to_end<T: Send + 'static>(
        &self,
        work: BoxFuture<'static, Result<T, Error>>,
    ) -> Result<T, Error> {
        let (done, outcome) = oneshot::channel();
        let job = async move {
            let _caller_left = done.send(work.await);
        };
        self.jobs.send(Box::pin(job)).await.map_err(|_| Error::Stopped)?;
        outcome.await.unwrap_or(Err(Error::Stopped))
    }

    /// Proves the login unless that has just been tried.
    async fn prove_once(&self, asked: Instant) -> Result<Arc<ActiveLogin>, Error> {
        let _alone = self.proof.acquire().await.map_err(|_| Error::Stopped)?;
        let due = match &self.state.load().gate {
            Gate::Unproved(Some((at, _))) => *at < asked && at.elapsed() >= UNANSWERED_PAUSE,
            Gate::Unproved(None) => true,
            Gate::Open | Gate::Closed(..) => false,
        };
        if due {
            self.prove().await;
        }
        self.proved()
    }

    /// Proves a password that has changed since that of `login` was read.
    async fn prove_changed(&self, login: &ActiveLogin) -> Result<(), Error> {
        let _alone = self.proof.acquire().await.map_err(|_| Error::Stopped)?;
        if self.is_current(login) {
            self.prove().await;
        }
        Ok(())
    }

    /// Proves the login with one request to the first server that answers.
    async fn prove(&self) {
        let login = match self.newest_login().await {
            Ok(login) => login,
            Err(error) => return self.close(&self.state.load().login, error.to_string().into()),
        };
        if !login.is_login() {
            return self.set(login, Gate::Open);
        }
        let mut last = None;
        for server in self.servers(login.generation) {
            match self.prove_at(&server, &login).await {
                Ok(Ok(())) => return self.set(login, Gate::Open),
                Ok(Err(why)) => {
                    self.set(Arc::clone(&login), Gate::Unproved(None));
                    return self.close(&login, why);
                }
                Err(error) => last = Some(error),
            }
        }
        let refused = || Error::LoginClosed { why: "every CouchDB URL rejected the login".into() };
        let why = last.unwrap_or_else(refused);
        self.set(login, Gate::Unproved(Some((Instant::now(), why))));
    }

    fn set(&self, login: Arc<ActiveLogin>, gate: Gate) {
        self.state.store(Arc::new(State { login, gate }));
    }

    /// Closes the gate, unless another login has taken the place of `login`.
    fn close(&self, login: &ActiveLogin, why: Arc<str>) {
        let state = self.state.load();
        if state.login.generation == login.generation {
            tracing::error!(%why, "nothing is sent to CouchDB");
            let until = Instant::now() + LOCKOUT;
            self.set(Arc::clone(&state.login), Gate::Closed(why, until));
        }
    }

    /// The servers of the settings that have not refused this login, live ones first.
    fn servers(&self, generation: u64) -> Vec<Arc<Server>> {
        let entries = self.directory.entries.iter();
        let welcome = |server: &&Arc<Server>| server.auth.refusal(generation).is_none();
        let mut servers: Vec<_> = entries.filter(welcome).map(Arc::clone).collect();
        // A stable sort: among servers ready for a login, the same one always comes first.
        servers.sort_by_key(|server| (server.breaker.is_resting(), server.auth.until_login()));
        servers
    }

    /// The login with the password that the settings give now.
    async fn newest_login(&self) -> Result<Arc<ActiveLogin>, LoginError> {
        let login = Arc::clone(&self.state.load().login);
        match self.newest_password().await {
            Ok(password) if login.generation == 0 || !is_same(&login, password.as_ref()) => {
                Ok(Arc::new(self.next_login(&login, password.as_ref())))
            }
            Ok(_) => Ok(login),
            // The file may be half written: the last password may still work.
            Err(error) if login.generation != 0 => {
                tracing::warn!(%error, "the last password stays in use");
                Ok(login)
            }
            Err(error) => Err(error),
        }
    }

    /// The password that the settings give now; from a pipe, what it gave at first.
    async fn newest_password(&self) -> Result<Option<SecretString>, LoginError> {
        if let Some(piped) = self.piped.get() {
            return Ok(Some(piped.clone()));
        }
        let password = self.source.read().await?;
        if let Some(password) = password.as_ref().filter(|_| self.source.is_piped()) {
            let _first = self.piped.set(password.clone());
        }
        Ok(password)
    }

    fn next_login(&self, login: &ActiveLogin, password: Option<&SecretString>) -> ActiveLogin {
        ActiveLogin::new(login.generation.saturating_add(1), self.source.username(), password)
    }

    /// The password in the file, if it differs from that of `login`.
    async fn changed_password(&self, login: &ActiveLogin) -> Option<SecretString> {
        if !matches!(self.source, Login::File { .. }) {
            return None;
        }
        let password = self.newest_password().await.ok().flatten()?;
        (!is_same(login, Some(&password))).then_some(password)
    }

    /// Checks from time to time for a new password and for the end of the pause after a refusal.
    async fn watch_login(&self) {
        let mut declined: Option<SecretString> = None;
        loop {
            let closed = self.refusal().is_some();
            time::sleep(if closed { CHECK_WHILE_REFUSED } else { CHECK_INTERVAL }).await;
            let Ok(_alone) = self.proof.acquire().await else { return };
            let state = self.state.load_full();
            let changed = self.changed_password(&state.login).await;
            match (&state.gate, changed) {
                (Gate::Open, Some(password)) => {
                    let refused = declined.as_ref().map(SecretString::expose_secret);
                    if refused != Some(password.expose_secret()) {
                        declined = self.try_beside(&state.login, password).await;
                    }
                }
                (Gate::Closed(_, until), changed) => {
                    if changed.is_some() || *until <= Instant::now() {
                        self.prove().await;
                    }
                }
                (Gate::Open | Gate::Unproved(_), _) => {}
            }
        }
    }

    /// Tries a new password while the old one still works. Returns the new one if it is refused, so
    /// that it is not tried again.
    async fn try_beside(
        &self,
        login: &ActiveLogin,
        password: SecretString,
    ) -> Option<SecretString> {
        let next = Arc::new(self.next_login(login, Some(&password)));
        let asked = Instant::now();
        for server in self.servers(next.generation) {
            let Ok(_alone) = server.auth.proof.acquire().await else { return None };
            match self.log_in(&server, &next, asked).await {
                Ok(Ok(credential)) => {
                    server.auth.open(next.generation, credential);
                    self.set(next, Gate::Open);
                    return None;
                }
                Ok(Err(words)) => {
                    let why = self.refusal_message(&server.address, &words);
                    tracing::warn!(%why, "the password file has changed, the old password stays in use");
                    return Some(password);
                }
                Err(_) => {}
            }
        }
        None
    }
}

fn is_same(login: &ActiveLogin, password: Option<&SecretString>) -> bool {
    let current = login.password.as_ref().map(SecretString::expose_secret);
    current == password.map(SecretString::expose_secret)
}

/// Holds back the requests to a server until it is dropped.
struct Held(Arc<Server>);

impl Held {
    fn new(server: &Arc<Server>) -> Self {
        server.auth.hold();
        Self(Arc::clone(server))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.auth.release();
    }
}
