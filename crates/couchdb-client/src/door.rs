//! One way in at which a login is checked: a server, or the node behind it.
//!
//! CouchDB checks a login where a request arrives and once more on the node it is
//! forwarded to, and each node counts bad ones by itself. So each way in is tried with
//! one request before others follow, and one that refuses is left alone for longer than
//! an account stays locked.

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

/// Requests in flight at a server that carry a password, where no session is to be had:
/// when the password has just changed, they and the one that asks again stay below the
/// five that lock the account.
pub(super) const WITH_PASSWORD: usize = 3;

/// From one login at a way in to the next at least, whatever was answered meanwhile.
pub(super) const LOGIN_EVERY: Duration = Duration::from_secs(10);

/// A session that ends sooner was not ended by its age.
const YOUNG: Duration = Duration::from_secs(60);
/// After so many that end young, one after the other, no further one is begun: servers
/// behind one address may not know each other's. CouchDB itself may end the first, where
/// it hashes a password anew after a login.
const YOUNG_ENDS: u32 = 2;

/// A way in.
#[derive(Debug)]
pub(super) struct Door {
    /// The login that was accepted here.
    open: ArcSwapOption<Open>,
    /// Lets one proof run at a time.
    pub(super) proof: Semaphore,
    /// Limits what carries a password.
    pub(super) with_password: Semaphore,
    refusal: ArcSwapOption<Refusal>,
    /// The generation of the login whose sessions are of no use here; 0 for none.
    no_sessions: AtomicU64,
    young_ends: AtomicU32,
    /// Lets one wait for its turn to log in.
    turn: Semaphore,
    logged_in: ArcSwapOption<Instant>,
    /// When it last refused a password that it had accepted.
    contradicted: ArcSwapOption<Instant>,
    /// The last login, where it was neither accepted nor refused.
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
struct Refusal {
    generation: u64,
    at: Instant,
    why: Arc<str>,
}

impl Door {
    pub(super) fn new() -> Self {
        Self {
            open: ArcSwapOption::empty(),
            proof: Semaphore::new(1),
            with_password: Semaphore::new(WITH_PASSWORD),
            refusal: ArcSwapOption::empty(),
            no_sessions: AtomicU64::new(0),
            young_ends: AtomicU32::new(0),
            turn: Semaphore::new(1),
            logged_in: ArcSwapOption::empty(),
            contradicted: ArcSwapOption::empty(),
            failed: ArcSwapOption::empty(),
        }
    }

    /// How long it is until the password may be shown here as a login; zero for now.
    pub(super) fn until_login(&self) -> Duration {
        let since = self.logged_in.load();
        since.as_ref().map_or(Duration::ZERO, |since| LOGIN_EVERY.saturating_sub(since.elapsed()))
    }

    /// Waits until the password may be shown here as a login, and takes that turn. `at` says
    /// where, for the log.
    pub(super) async fn login_turn(&self, at: &str) -> Result<(), Error> {
        let _alone = self.turn.acquire().await.map_err(|_| Error::Stopped)?;
        let last = self.logged_in.load_full().map(|since| since.elapsed());
        if let Some(last) = last.filter(|last| *last < YOUNG) {
            let wait = self.until_login();
            let (last, wait) = (last.as_secs(), wait.as_secs());
            tracing::warn!(%at, "the login there did not last: it is shown again {last} s after the last time, in {wait} s");
        }
        sleep(self.until_login()).await;
        self.logged_in.store(Some(Arc::new(Instant::now())));
        Ok(())
    }

    /// A password that was accepted here is refused. Whether that happened before, not long
    /// ago: the two answers contradict each other then, and more would cost more passwords.
    pub(super) fn contradicts(&self) -> bool {
        let before = self.contradicted.swap(Some(Arc::new(Instant::now())));
        before.is_some_and(|before| before.elapsed() < LOCKOUT)
    }

    /// How the login of `generation` is shown here; `None` where it has to be proved.
    pub(super) fn credential(&self, generation: u64) -> Option<Credential> {
        let open = self.open.load();
        let open = open.as_ref().filter(|open| open.generation == generation)?;
        let over = open.credential.cookie().is_some_and(|cookie| cookie.is_over());
        (!over).then(|| open.credential.clone())
    }

    /// Whether the login of `generation` was accepted here.
    pub(super) fn is_open(&self, generation: u64) -> bool {
        self.credential(generation).is_some()
    }

    /// Why the login of `generation` is not tried here now.
    pub(super) fn refusal(&self, generation: u64) -> Option<Arc<str>> {
        let refusal = self.refusal.load();
        let refusal = refusal.as_ref()?;
        (refusal.generation == generation && refusal.at.elapsed() < LOCKOUT)
            .then(|| Arc::clone(&refusal.why))
    }

    /// A login was neither accepted nor refused.
    pub(super) fn login_failed(&self, why: Error) {
        self.failed.store(Some(Arc::new(Failed { at: Instant::now(), why })));
    }

    /// Why the last login failed, if that was after `asked`: whoever has waited for it since then
    /// need not wait for one more.
    pub(super) fn failed_since(&self, asked: Instant) -> Option<Error> {
        let failed = self.failed.load();
        failed.as_ref().filter(|failed| failed.at >= asked).map(|failed| failed.why.clone())
    }

    /// Whether the last login failed and the next one has to wait.
    pub(super) fn awaits_login(&self) -> bool {
        self.failed.load().is_some() && self.until_login() > Duration::ZERO
    }

    /// The login of `generation` was accepted, and is shown by `credential` from now on.
    pub(super) fn open(&self, generation: u64, credential: Credential) {
        self.failed.store(None);
        self.refusal.store(None);
        self.open.store(Some(Arc::new(Open { generation, credential })));
    }

    /// The session of the login of `generation` goes on with this cookie.
    pub(super) fn renew(&self, generation: u64, cookie: Cookie) {
        let credential = Credential::Cookie(Arc::new(cookie));
        let renewed = Arc::new(Open { generation, credential });
        self.open.rcu(|open| {
            let same = open.as_ref().filter(|open| open.generation == generation);
            match same.map(|open| &open.credential) {
                Some(Credential::Cookie(_)) => Some(Arc::clone(&renewed)),
                Some(Credential::Basic | Credential::OfEntry) | None => open.clone(),
            }
        });
    }

    /// It has to be tried again before others follow.
    pub(super) fn doubt(&self) {
        self.open.store(None);
    }

    /// The login of `generation` was refused.
    pub(super) fn refuse(&self, generation: u64, why: Arc<str>) {
        self.doubt();
        self.refusal.store(Some(Arc::new(Refusal { generation, at: Instant::now(), why })));
    }

    /// The session of this cookie, of the login of `generation`, has ended.
    pub(super) fn session_ended(&self, generation: u64, cookie: &Cookie) {
        self.doubt();
        if cookie.age() >= YOUNG {
            self.young_ends.store(0, Ordering::Relaxed);
        } else if self.young_ends.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= YOUNG_ENDS {
            self.without_sessions(generation);
        }
    }

    /// Sessions are of no use here for the login of `generation`.
    pub(super) fn without_sessions(&self, generation: u64) {
        self.doubt();
        self.no_sessions.store(generation, Ordering::Release);
    }

    /// Whether a session is worth a try.
    pub(super) fn takes_sessions(&self, generation: u64) -> bool {
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

    fn sent(door: &Door, generation: u64) -> Option<String> {
        let credential = door.credential(generation)?;
        Some(credential.cookie()?.header.to_str().unwrap().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_lasts_longer_than_a_lockout_or_until_the_login_changes() {
        let door = Door::new();
        assert!(!door.is_open(1));
        door.refuse(1, "no".into());
        assert_eq!(door.refusal(1).as_deref(), Some("no"));
        assert_eq!(door.refusal(2), None);
        tokio::time::advance(LOCKOUT).await;
        assert_eq!(door.refusal(1), None);
        door.open(1, Credential::Basic);
        assert!(door.is_open(1) && !door.is_open(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_renewed_while_it_lasts_and_not_brought_back() {
        let door = Door::new();
        door.renew(1, cookie("early"));
        assert_eq!(sent(&door, 1), None);
        door.open(1, Credential::Cookie(Arc::new(cookie("a"))));
        tokio::time::advance(Duration::from_secs(500)).await;
        door.renew(2, cookie("other"));
        door.renew(1, cookie("b"));
        tokio::time::advance(Duration::from_secs(500)).await;
        assert_eq!(sent(&door, 1).as_deref(), Some("AuthSession=b"));
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(sent(&door, 1), None);
        door.doubt();
        door.renew(1, cookie("late"));
        assert_eq!(sent(&door, 1), None);
        door.open(1, Credential::Basic);
        door.renew(1, cookie("stray"));
        assert!(matches!(door.credential(1), Some(Credential::Basic)));
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_end_young_twice_are_given_up() {
        let door = Door::new();
        let young = cookie("a");
        door.session_ended(1, &young);
        tokio::time::advance(YOUNG).await;
        door.session_ended(1, &young);
        door.session_ended(1, &cookie("b"));
        assert!(door.takes_sessions(1));
        door.session_ended(1, &cookie("c"));
        assert!(!door.takes_sessions(1) && door.takes_sessions(2));
    }
}
