//! What one endpoint that checks logins has accepted and refused.
//!
//! An endpoint is a server, or a node behind it: CouchDB checks a login where a request arrives
//! and again on the node that gets the forwarded request, and each node counts bad logins itself.
//! So one request tries the login at each endpoint before others follow, and an endpoint that
//! refuses it gets no requests for longer than CouchDB locks an account.

use super::{
    Error,
    credential::{Cookie, Credential},
};
use arc_swap::ArcSwapOption;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

/// How long nothing is sent where a login was refused: CouchDB locks an account for five
/// minutes after five bad logins (`[chttpd_auth_lockout] max_lifetime`), and each further
/// one would keep it locked.
pub(super) const LOCKOUT: Duration = Duration::from_secs(6 * 60);

/// Requests in flight that carry a password, at a server without sessions. If the password has
/// just changed, these and one more attempt stay below the five that lock the account.
pub(super) const MAX_WITH_PASSWORD: usize = 3;

/// The shortest time between two logins at one endpoint, whatever it answered meanwhile.
pub(super) const LOGIN_INTERVAL: Duration = Duration::from_secs(10);

/// A session that ends sooner did not expire.
const YOUNG_SESSION: Duration = Duration::from_secs(60);
/// How many sessions in a row may end young before no more are begun: servers behind one address
/// may not recognise each other's sessions. CouchDB itself may end the first, when it hashes a
/// password again after a login.
const MAX_YOUNG_ENDS: u32 = 2;

/// What one endpoint has accepted and refused.
#[derive(Debug)]
pub(super) struct EndpointAuth {
    /// The login that was accepted here.
    open: ArcSwapOption<Open>,
    /// Lets one proof run at a time.
    pub(super) proof: Semaphore,
    /// Limits the requests that carry a password.
    pub(super) with_password: Semaphore,
    refusal: ArcSwapOption<LoginRefusal>,
    /// The generation of the login that cannot use sessions here; 0 for none.
    no_sessions: AtomicU64,
    young_ends: AtomicU32,
    /// Lets one request at a time wait for the next login.
    turn: Semaphore,
    logged_in: ArcSwapOption<Instant>,
    /// When the endpoint last refused a password that it had accepted.
    contradicted: ArcSwapOption<Instant>,
    /// The last login, if it was neither accepted nor refused.
    failed: ArcSwapOption<Failed>,
}

#[derive(Debug)]
struct Open {
    generation: u64,
    credential: Credential,
}

#[derive(Debug)]
struct Failed {
    at: Instant,
    why: Error,
}

#[derive(Debug)]
struct LoginRefusal {
    generation: u64,
    at: Instant,
    why: Arc<str>,
}

impl EndpointAuth {
    pub(super) fn new() -> Self {
        Self {
            open: ArcSwapOption::empty(),
            proof: Semaphore::new(1),
            with_password: Semaphore::new(MAX_WITH_PASSWORD),
            refusal: ArcSwapOption::empty(),
            no_sessions: AtomicU64::new(0),
            young_ends: AtomicU32::new(0),
            turn: Semaphore::new(1),
            logged_in: ArcSwapOption::empty(),
            contradicted: ArcSwapOption::empty(),
            failed: ArcSwapOption::empty(),
        }
    }

    /// The time until the next login is allowed here; zero if it is allowed now.
    pub(super) fn until_login(&self) -> Duration {
        let since = self.logged_in.load();
        since
            .as_ref()
            .map_or(Duration::ZERO, |since| LOGIN_INTERVAL.saturating_sub(since.elapsed()))
    }

    /// Waits until a login is allowed here, and counts it. `at` names the endpoint in the log.
    pub(super) async fn wait_for_login_turn(&self, at: &str) -> Result<(), Error> {
        let _alone = self.turn.acquire().await.map_err(|_| Error::Stopped)?;
        let last = self.logged_in.load_full().map(|since| since.elapsed());
        if let Some(last) = last.filter(|last| *last < YOUNG_SESSION) {
            let wait = self.until_login();
            let (last, wait) = (last.as_secs(), wait.as_secs());
            tracing::warn!(%at, "the session ended early: logging in again {last} s after the last login, in {wait} s");
        }
        sleep(self.until_login()).await;
        self.logged_in.store(Some(Arc::new(Instant::now())));
        Ok(())
    }

    /// Records that a password that was accepted here is refused. Returns whether that happened not
    /// long ago too: then the endpoint contradicts itself, and more attempts risk a lockout.
    pub(super) fn record_contradiction(&self) -> bool {
        let before = self.contradicted.swap(Some(Arc::new(Instant::now())));
        before.is_some_and(|before| before.elapsed() < LOCKOUT)
    }

    /// How requests carry the login of `generation` here; `None` if it is not proved.
    pub(super) fn credential(&self, generation: u64) -> Option<Credential> {
        let open = self.open.load();
        let open = open.as_ref().filter(|open| open.generation == generation)?;
        let over = open.credential.cookie().is_some_and(|cookie| cookie.is_expired());
        (!over).then(|| open.credential.clone())
    }

    /// Whether the login of `generation` was accepted here.
    pub(super) fn is_open(&self, generation: u64) -> bool {
        self.credential(generation).is_some()
    }

    /// Why the login of `generation` must not be tried here now.
    pub(super) fn refusal(&self, generation: u64) -> Option<Arc<str>> {
        let refusal = self.refusal.load();
        let refusal = refusal.as_ref()?;
        (refusal.generation == generation && refusal.at.elapsed() < LOCKOUT)
            .then(|| Arc::clone(&refusal.why))
    }

    /// Records a login that was neither accepted nor refused.
    pub(super) fn login_failed(&self, why: Error) {
        self.failed.store(Some(Arc::new(Failed { at: Instant::now(), why })));
    }

    /// Why the last login failed, if that was after `asked`: requests that have waited since then do
    /// not wait for another one.
    pub(super) fn failed_since(&self, asked: Instant) -> Option<Error> {
        let failed = self.failed.load();
        failed.as_ref().filter(|failed| failed.at >= asked).map(|failed| failed.why.clone())
    }

    /// Whether the last login failed and the next one has to wait.
    pub(super) fn awaits_login(&self) -> bool {
        self.failed.load().is_some() && self.until_login() > Duration::ZERO
    }

    /// Records that the login of `generation` was accepted; requests carry it as `credential`.
    pub(super) fn open(&self, generation: u64, credential: Credential) {
        self.failed.store(None);
        self.refusal.store(None);
        self.open.store(Some(Arc::new(Open { generation, credential })));
    }

    /// Replaces the cookie of the session of the login of `generation`.
    pub(super) fn renew(&self, generation: u64, cookie: Cookie) {
        let credential = Credential::Cookie(Arc::new(cookie));
        let renewed = Arc::new(Open { generation, credential });
        self.open.rcu(|open| {
            let same = open.as_ref().filter(|open| open.generation == generation);
            match same.map(|open| &open.credential) {
                Some(Credential::Cookie(_)) => Some(Arc::clone(&renewed)),
                Some(Credential::Basic | Credential::SameAsEntry) | None => open.clone(),
            }
        });
    }

    /// Forgets what was accepted: one request has to prove the login again.
    pub(super) fn doubt(&self) {
        self.open.store(None);
    }

    /// Records that the login of `generation` was refused.
    pub(super) fn refuse(&self, generation: u64, why: Arc<str>) {
        self.doubt();
        self.refusal.store(Some(Arc::new(LoginRefusal { generation, at: Instant::now(), why })));
    }

    /// Records that the session of this cookie, of the login of `generation`, has ended.
    pub(super) fn record_session_end(&self, generation: u64, cookie: &Cookie) {
        self.doubt();
        if cookie.age() >= YOUNG_SESSION {
            self.young_ends.store(0, Ordering::Relaxed);
        } else if self.young_ends.fetch_add(1, Ordering::Relaxed).saturating_add(1)
            >= MAX_YOUNG_ENDS
        {
            self.disable_sessions(generation);
        }
    }

    /// Stops using sessions here for the login of `generation`.
    pub(super) fn disable_sessions(&self, generation: u64) {
        self.doubt();
        self.no_sessions.store(generation, Ordering::Release);
    }

    /// Whether to try a session for the login of `generation`.
    pub(super) fn uses_sessions(&self, generation: u64) -> bool {
        self.no_sessions.load(Ordering::Acquire) != generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(value: &str) -> Cookie {
        let mut headers = http::HeaderMap::new();
        let set = format!("AuthSession={value}; Max-Age=600").parse().unwrap();
        headers.insert(http::header::SET_COOKIE, set);
        Cookie::read(&headers).unwrap()
    }

    fn sent(auth: &EndpointAuth, generation: u64) -> Option<String> {
        let credential = auth.credential(generation)?;
        Some(credential.cookie()?.header.to_str().unwrap().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_lasts_longer_than_a_lockout_or_until_the_login_changes() {
        let auth = EndpointAuth::new();
        assert!(!auth.is_open(1));
        auth.refuse(1, "no".into());
        assert_eq!(auth.refusal(1).as_deref(), Some("no"));
        assert_eq!(auth.refusal(2), None);
        tokio::time::advance(LOCKOUT).await;
        assert_eq!(auth.refusal(1), None);
        auth.open(1, Credential::Basic);
        assert!(auth.is_open(1) && !auth.is_open(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_renewed_while_it_lasts_and_not_brought_back() {
        let auth = EndpointAuth::new();
        auth.renew(1, cookie("early"));
        assert_eq!(sent(&auth, 1), None);
        auth.open(1, Credential::Cookie(Arc::new(cookie("a"))));
        tokio::time::advance(Duration::from_secs(500)).await;
        auth.renew(2, cookie("other"));
        auth.renew(1, cookie("b"));
        tokio::time::advance(Duration::from_secs(500)).await;
        assert_eq!(sent(&auth, 1).as_deref(), Some("AuthSession=b"));
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(sent(&auth, 1), None);
        auth.doubt();
        auth.renew(1, cookie("late"));
        assert_eq!(sent(&auth, 1), None);
        auth.open(1, Credential::Basic);
        auth.renew(1, cookie("stray"));
        assert!(matches!(auth.credential(1), Some(Credential::Basic)));
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_end_young_twice_are_given_up() {
        let auth = EndpointAuth::new();
        let young = cookie("a");
        auth.record_session_end(1, &young);
        tokio::time::advance(YOUNG_SESSION).await;
        auth.record_session_end(1, &young);
        auth.record_session_end(1, &cookie("b"));
        assert!(auth.uses_sessions(1));
        auth.record_session_end(1, &cookie("c"));
        assert!(!auth.uses_sessions(1) && auth.uses_sessions(2));
    }
}
