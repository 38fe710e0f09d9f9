//! Who may log in, and what wrong passwords cost.
//!
//! Owns users and failed logins. Never remembers a session: its cookie says all. Asked
//! once for each request by the routes.

use super::{
    config::{Role, User},
    session::{Claim, Keeping},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, header};
use std::{collections::BTreeMap, time::Duration};

/// Failed logins after which a name is locked out (`[chttpd_auth_lockout] threshold`).
const THRESHOLD: u32 = 5;
/// How long it stays locked out (`max_lifetime`).
const LIFETIME: Duration = Duration::from_secs(300);

/// Users and failed logins.
#[derive(Debug)]
pub(super) struct Access {
    users: Vec<User>,
    /// How often each password was changed.
    changes: BTreeMap<String, u64>,
    /// Failures and the last one's time, by node and name.
    failed: BTreeMap<(String, String), (u32, Duration)>,
}

/// What a request shows of a login. No `Debug` shows it.
#[derive(Clone, Default)]
pub(super) struct Shown {
    /// Name and password: of Basic authentication, or of a login.
    pub(super) password: Option<(String, String)>,
    pub(super) session: Option<Claim>,
}

impl std::fmt::Debug for Shown {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Shown").field("user", &self.user()).finish_non_exhaustive()
    }
}

impl Shown {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let basic = headers.get(header::AUTHORIZATION);
        Self {
            password: basic
                .map(|basic| basic.to_str().ok().and_then(self::basic).unwrap_or_default()),
            session: Claim::read(headers),
        }
    }

    /// The name.
    pub(super) fn user(&self) -> Option<&str> {
        let given = self.password.as_ref().map(|(name, _)| name.as_str());
        given.or_else(|| Some(self.session.as_ref()?.name.as_str()))
    }
}

/// How one node checks a login.
#[derive(Clone, Debug)]
pub(super) struct Checks {
    /// Whether it counts failures: since 3.4, and not where another node passed the
    /// request on (`couch_auth_lockout:lockout/3`).
    pub(super) lockout: bool,
    pub(super) sessions: Keeping,
    /// Seconds since 1970.
    pub(super) wall: u64,
}

/// What a request's credentials come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// It has none.
    Anonymous,
    /// It has those of this user.
    As {
        /// The user.
        user: User,
        /// Whether a session told.
        by_session: bool,
        /// The header that makes the session go on, where it is time.
        renewal: Option<String>,
    },
    /// They are wrong.
    Wrong,
    /// They may be right, but too many wrong ones came before.
    Locked,
}

/// The name and password of an `Authorization` header.
fn basic(header: &str) -> Option<(String, String)> {
    let encoded = header.strip_prefix("Basic ")?;
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

impl Access {
    pub(super) fn new(users: &[User]) -> Self {
        let (changes, failed) = (BTreeMap::new(), BTreeMap::new());
        Self { users: users.to_vec(), changes, failed }
    }

    /// What ends a user's sessions when it changes.
    fn salt(&self, user: &User) -> String {
        let changes = self.changes.get(&user.name).copied().unwrap_or_default();
        format!("{}\0{changes}", user.password)
    }

    /// What is shown comes to on a node: a session first, then a password.
    pub(super) fn login(
        &mut self,
        node: &str,
        shown: &Shown,
        checks: &Checks,
        now: Duration,
    ) -> Login {
        if let Some(claim) = &shown.session
            && let Some(user) = self.users.iter().find(|user| user.name == claim.name)
        {
            let (salt, sessions, wall) = (self.salt(user), &checks.sessions, checks.wall);
            if sessions.holds(claim, &salt, wall) {
                let renewal = sessions.renews(claim, wall);
                let renewal = renewal.then(|| sessions.cookie(&user.name, &salt, wall));
                return Login::As { user: user.clone(), by_session: true, renewal };
            }
        }
        match &shown.password {
            Some((name, password)) => self.password(node, name, password, checks.lockout, now),
            None => Login::Anonymous,
        }
    }

    /// The header that begins a session.
    pub(super) fn begin_session(&self, login: &Login, checks: &Checks) -> Option<String> {
        let user = login.user()?;
        Some(checks.sessions.cookie(&user.name, &self.salt(user), checks.wall))
    }

    /// What a password comes to; only `lockout` nodes count failures.
    fn password(
        &mut self,
        node: &str,
        name: &str,
        password: &str,
        lockout: bool,
        now: Duration,
    ) -> Login {
        // Nobody failed, so nothing need be looked up: the way of almost every request.
        let key = (!self.failed.is_empty()).then(|| (node.to_owned(), name.to_owned()));
        let failed = key.as_ref().and_then(|key| self.failed.get(key));
        if lockout
            && failed.is_some_and(|(count, last)| {
                *count >= THRESHOLD && now.saturating_sub(*last) < LIFETIME
            })
        {
            return Login::Locked;
        }
        match self.users.iter().find(|user| user.name == name && user.password == password) {
            Some(user) => Login::As { user: user.clone(), by_session: false, renewal: None },
            None if !lockout => Login::Wrong,
            None => {
                let key = key.unwrap_or_else(|| (node.to_owned(), name.to_owned()));
                let failed = self.failed.entry(key).or_insert((0, now));
                let over = now.saturating_sub(failed.1) >= LIFETIME;
                *failed = (if over { 1 } else { failed.0.saturating_add(1) }, now);
                Login::Wrong
            }
        }
    }

    /// How many failures a node counts of a name.
    pub(super) fn failures(&self, node: &str, name: &str) -> u32 {
        let key = (node.to_owned(), name.to_owned());
        self.failed.get(&key).map_or(0, |(count, _)| *count)
    }

    pub(super) fn change_password(&mut self, user: &str, password: &str) {
        for known in self.users.iter_mut().filter(|known| known.name == user) {
            known.password = password.to_owned();
        }
        let changes = self.changes.entry(user.to_owned()).or_default();
        *changes = changes.saturating_add(1);
    }
}

impl Login {
    pub(super) fn user(&self) -> Option<&User> {
        match self {
            Self::As { user, .. } => Some(user),
            Self::Anonymous | Self::Wrong | Self::Locked => None,
        }
    }

    /// The header that makes its session go on.
    pub(super) const fn take_renewal(&mut self) -> Option<String> {
        match self {
            Self::As { renewal, .. } => renewal.take(),
            Self::Anonymous | Self::Wrong | Self::Locked => None,
        }
    }

    /// Which of CouchDB's handlers let it in.
    pub(super) const fn handler(&self) -> Option<&'static str> {
        match self {
            Self::As { by_session: true, .. } => Some("cookie"),
            Self::As { by_session: false, .. } => Some("default"),
            Self::Anonymous | Self::Wrong | Self::Locked => None,
        }
    }

    /// Whether it may do everything.
    pub(super) fn is_admin(&self) -> bool {
        self.user().is_some_and(|user| user.role == Role::ServerAdmin)
    }

    /// Whether it may read a node's metrics.
    pub(super) fn reads_metrics(&self) -> bool {
        self.is_admin() || self.user().is_some_and(|user| user.role == Role::Metrics)
    }

    /// Whether it may read a database.
    pub(super) fn is_member(&self, db: &str) -> bool {
        self.administers(db)
            || self.user().is_some_and(|user| match &user.role {
                Role::Member(databases) => databases.iter().any(|known| known == db),
                Role::ServerAdmin | Role::Metrics | Role::DatabaseAdmin(_) => false,
            })
    }

    /// Whether it may compact a database.
    pub(super) fn administers(&self, db: &str) -> bool {
        self.user().is_some_and(|user| match &user.role {
            Role::ServerAdmin => true,
            Role::DatabaseAdmin(databases) => databases.iter().any(|known| known == db),
            Role::Metrics | Role::Member(_) => false,
        })
    }

    /// The roles as a session tells of them.
    pub(super) fn roles(&self) -> &'static [&'static str] {
        match self.user().map(|user| &user.role) {
            Some(Role::ServerAdmin) => &["_admin"],
            Some(Role::Metrics) => &["_metrics"],
            Some(Role::DatabaseAdmin(_) | Role::Member(_)) | None => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_wrong_passwords_lock_the_right_one_out_for_five_minutes() {
        let user = User { name: "a".into(), password: "b".into(), role: Role::ServerAdmin };
        let mut access = Access::new(std::slice::from_ref(&user));
        let at = Duration::from_secs;
        let checks =
            |lockout| Checks { lockout, sessions: Keeping::default(), wall: 1_795_230_000 };
        let shown = |password: &str| Shown {
            password: Some(("a".to_owned(), password.to_owned())),
            session: None,
        };
        for _ in 0..5 {
            assert_eq!(access.login("n", &shown("x"), &checks(true), at(1)), Login::Wrong);
        }
        assert_eq!(access.failures("n", "a"), 5);
        let right = Login::As { user, by_session: false, renewal: None };
        assert_eq!(access.login("n", &shown("b"), &checks(true), at(2)), Login::Locked);
        assert_eq!(access.login("m", &shown("b"), &checks(true), at(2)), right);
        assert_eq!(access.login("n", &shown("b"), &checks(false), at(2)), right);
        assert_eq!(access.login("n", &shown("b"), &checks(true), at(301)), right);
    }

    #[test]
    fn a_session_goes_on_where_its_password_is_locked_out_and_ends_when_it_changes() {
        let user = User { name: "a".into(), password: "b".into(), role: Role::ServerAdmin };
        let mut access = Access::new(std::slice::from_ref(&user));
        let checks = |wall| Checks { lockout: true, sessions: Keeping::default(), wall };
        let by_password = Login::As { user, by_session: false, renewal: None };
        let set = access.begin_session(&by_password, &checks(1_000)).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, set.split(';').next().unwrap().parse().unwrap());
        let shown = Shown::read(&headers);
        let at = |access: &mut Access, wall| {
            let login = access.login("n", &shown, &checks(wall), Duration::ZERO);
            (login.handler(), matches!(login, Login::As { renewal: Some(_), .. }))
        };
        let bad = Shown { password: Some(("a".into(), "x".into())), session: None };
        for _ in 0..5 {
            access.login("n", &bad, &checks(1_000), Duration::ZERO);
        }
        assert_eq!(at(&mut access, 1_060), (Some("cookie"), false));
        assert_eq!(at(&mut access, 1_061), (Some("cookie"), true));
        access.change_password("a", "b");
        assert_eq!(at(&mut access, 1_061), (None, false));
    }
}
