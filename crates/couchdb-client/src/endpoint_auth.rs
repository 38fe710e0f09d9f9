//! What one endpoint that checks logins has accepted and refused.
//!
//! An endpoint is a server, or a node behind it: CouchDB checks a login where a request arrives and
//! again on the node that gets the forwarded request, and each node counts bad logins itself. So
//! one request tries the login at each endpoint before others follow. An endpoint that refuses it
//! gets no requests for longer than CouchDB locks an account.

use super::{
    Error,
    credential::{Cookie, Credential},
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};

/// How long nothing is sent after a refused login: CouchDB locks an account for five minutes after
/// five bad logins (`[chttpd_auth_lockout] max_lifetime`), and each further bad login would keep it
/// locked.
pub(super) const LOCKOUT: Duration = Duration::from_secs(6 * 60);

/// Requests in flight that carry a password, at a server without sessions. If the password has
/// just changed, these and one more attempt stay below the five that lock the account.
const MAX_WITH_PASSWORD: usize = 3;

/// Minimum time between two logins at one endpoint, regardless of its answers.
const LOGIN_INTERVAL: Duration = Duration::from_secs(10);

/// How long a refusal for lack of privileges is trusted without checking the login again.
const PRIVILEGE_REFUSAL_TTL: Duration = Duration::from_secs(60);

/// A session that ends sooner did not expire.
const YOUNG_SESSION: Duration = Duration::from_secs(60);
/// How many consecutive sessions may end early before no more are begun: servers behind one address
/// may not recognise each other's sessions. CouchDB itself may end the first one, when it rehashes
/// a password after a login.
const MAX_YOUNG_ENDS: u32 = 2;

/// What one endpoint has accepted and refused.
#[derive(Debug)]
pub(super) struct EndpointAuth {
    /// Held while a request tries the login here or examines why a request was refused.
    pub(super) proof: Semaphore,
    /// Limits the requests that carry a password.
    pub(super) with_password: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The generation of the login that was accepted, and how requests carry it.
    accepted: Option<(u64, Credential)>,
    /// Number of refused requests whose reason is not known yet; nothing is sent while there are
    /// any.
    holds: u32,
    /// The generation of the login that was refused, when and why.
    refused: Option<(u64, Instant, Arc<str>)>,
    /// The last login, if it was neither accepted nor refused.
    failed: Option<(Instant, Error)>,
    logged_in: Option<Instant>,
    /// The generation of the login that cannot use sessions here; 0 for none.
    no_sessions: u64,
    young_ends: u32,
    /// When the endpoint last refused a password that it had accepted.
    contradicted: Option<Instant>,
    /// The last refusal for lack of privileges: the login's generation, when, and the server's
    /// words.
    privilege_refusal: Option<(u64, Instant, String)>,
}

impl EndpointAuth {
    pub(super) fn new() -> Self {
        Self {
            proof: Semaphore::new(1),
            with_password: Semaphore::new(MAX_WITH_PASSWORD),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time until the next login is allowed here; zero if it is allowed now.
    pub(super) fn until_login(&self) -> Duration {
        let since = self.state().logged_in;
        since.map_or(Duration::ZERO, |since| LOGIN_INTERVAL.saturating_sub(since.elapsed()))
    }

    /// Waits until a login is allowed here, and counts it. `at` names the endpoint in the log.
    /// The caller holds [`Self::proof`].
    pub(super) async fn wait_for_login_turn(&self, generation: u64, at: &str) {
        let had_session = |state: &State| {
            let accepted = state.accepted.as_ref().filter(|(of, _)| *of == generation);
            accepted.is_some_and(|(_, credential)| credential.cookie().is_some())
        };
        let logged_in = Some(self.state()).filter(|it| had_session(it)).and_then(|it| it.logged_in);
        let last = logged_in.map(|since| since.elapsed());
        if let Some(last) = last.filter(|last| *last < YOUNG_SESSION) {
            let wait = self.until_login();
            let (last, wait) = (last.as_secs(), wait.as_secs());
            tracing::warn!(%at, "the session ended early, {last} s after the last login: logging in again in {wait} s");
        }
        sleep(self.until_login()).await;
        self.state().logged_in = Some(Instant::now());
    }

    /// Records that a password that was accepted here is now refused. Returns whether that also
    /// happened recently: then the endpoint contradicts itself, and more attempts risk a lockout.
    pub(super) fn record_contradiction(&self) -> bool {
        let before = self.state().contradicted.replace(Instant::now());
        before.is_some_and(|before| before.elapsed() < LOCKOUT)
    }

    /// How requests carry the login of `generation` here; `None` if it was not accepted.
    pub(super) fn accepted(&self, generation: u64) -> Option<Credential> {
        let state = self.state();
        let (_, credential) = state.accepted.as_ref().filter(|(of, _)| *of == generation)?;
        let over = credential.cookie().is_some_and(|cookie| cookie.is_expired());
        (!over).then(|| credential.clone())
    }

    /// Like [`Self::accepted`], for a request to be sent now: `None` also while a refusal is
    /// examined.
    pub(super) fn credential(&self, generation: u64) -> Option<Credential> {
        let held = self.state().holds > 0;
        self.accepted(generation).filter(|_| !held)
    }

    pub(super) fn hold(&self) {
        self.state().holds += 1;
    }

    pub(super) fn release(&self) {
        let mut state = self.state();
        state.holds = state.holds.saturating_sub(1);
    }

    /// Why the login of `generation` must not be tried here now.
    pub(super) fn refusal(&self, generation: u64) -> Option<Arc<str>> {
        let state = self.state();
        let (of, at, why) = state.refused.as_ref()?;
        (*of == generation && at.elapsed() < LOCKOUT).then(|| Arc::clone(why))
    }

    /// Records a login that was neither accepted nor refused.
    pub(super) fn login_failed(&self, why: Error) {
        self.state().failed = Some((Instant::now(), why));
    }

    /// Why the last login failed, if it failed after `asked`: requests that have waited since then
    /// do not wait for another login.
    pub(super) fn failed_since(&self, asked: Instant) -> Result<(), Error> {
        match &self.state().failed {
            Some((at, why)) if *at >= asked => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Whether the last login failed and the next one has to wait.
    pub(super) fn awaits_login(&self) -> bool {
        self.state().failed.is_some() && self.until_login() > Duration::ZERO
    }

    /// Records that the login of `generation` was accepted; requests carry it as `credential`.
    pub(super) fn open(&self, generation: u64, credential: Credential) {
        let mut state = self.state();
        state.failed = None;
        state.refused = None;
        state.accepted = Some((generation, credential));
    }

    /// Replaces the cookie of the session of the login of `generation`.
    pub(super) fn renew(&self, generation: u64, cookie: Cookie) {
        if let Some((of, Credential::Cookie(now))) = &mut self.state().accepted
            && *of == generation
        {
            *now = Arc::new(cookie);
        }
    }

    /// Forgets that the login was accepted: one request has to prove it again.
    pub(super) fn doubt(&self) {
        self.state().accepted = None;
    }

    /// Records that the login of `generation` was refused.
    pub(super) fn refuse(&self, generation: u64, why: Arc<str>) {
        let mut state = self.state();
        state.accepted = None;
        state.refused = Some((generation, Instant::now(), why));
    }

    /// Remembers that `reason` is about privileges, not about the login of `generation`.
    pub(super) fn remember_privilege_refusal(&self, generation: u64, reason: &str) {
        self.state().privilege_refusal = Some((generation, Instant::now(), reason.to_owned()));
    }

    /// Whether `reason` was found to be about privileges, not long ago.
    pub(super) fn is_privilege_refusal(&self, generation: u64, reason: &str) -> bool {
        self.state().privilege_refusal.as_ref().is_some_and(|(of, at, known)| {
            *of == generation && at.elapsed() < PRIVILEGE_REFUSAL_TTL && known == reason
        })
    }

    /// Records that the session of this cookie, of the login of `generation`, has ended.
    pub(super) fn record_session_end(&self, generation: u64, cookie: &Cookie) {
        let mut state = self.state();
        state.accepted = None;
        let young = cookie.age() < YOUNG_SESSION;
        state.young_ends = if young { state.young_ends.saturating_add(1) } else { 0 };
        if state.young_ends >= MAX_YOUNG_ENDS {
            state.no_sessions = generation;
        }
    }

    /// Stops using sessions here for the login of `generation`.
    pub(super) fn disable_sessions(&self, generation: u64) {
        let mut state = self.state();
        state.accepted = None;
        state.no_sessions = generation;
    }

    /// Whether to try a session for the login of `generation`.
    pub(super) fn uses_sessions(&self, generation: u64) -> bool {
        self.state().no_sessions != generation
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
        assert!(auth.accepted(1).is_none());
        auth.refuse(1, "no".into());
        assert_eq!(auth.refusal(1).as_deref(), Some("no"));
        assert_eq!(auth.refusal(2), None);
        tokio::time::advance(LOCKOUT).await;
        assert_eq!(auth.refusal(1), None);
        auth.open(1, Credential::Basic);
        assert!(auth.accepted(1).is_some() && auth.accepted(2).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn renews_a_live_session_but_never_an_ended_one() {
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
    async fn gives_up_sessions_after_two_end_early() {
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
