//! Authentication: users, and lockout after wrong passwords.
//!
//! Owns users and failed logins. Keeps no sessions, because a cookie contains everything. The routes
//! call it once for each request.

use super::{
    config::{Role, User},
    session::{Keeping, SessionCookie},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderMap, header};
use std::{collections::BTreeMap, time::Duration};

/// The number of failed logins after which a user is locked (`[chttpd_auth_lockout] threshold`).
const THRESHOLD: u32 = 5;
/// How long the user stays locked (`max_lifetime`).
const LIFETIME: Duration = Duration::from_secs(300);

/// Users and failed logins.
#[derive(Debug)]
pub(super) struct Access {
    users: Vec<User>,
    /// The number of password changes of each user.
    changes: BTreeMap<String, u64>,
    /// The number of failures and the time of the last one, by node and user.
    failed: BTreeMap<(String, String), (u32, Duration)>,
}

/// The credentials of a request. No `Debug` shows them.
#[derive(Clone, Default)]
pub(super) struct Shown {
    /// User and password, from Basic authentication or from a login.
    pub(super) password: Option<(String, String)>,
    pub(super) session: Option<SessionCookie>,
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
            session: SessionCookie::read(headers),
        }
    }

    pub(super) fn user(&self) -> Option<&str> {
        let from_password = self.password.as_ref().map(|(name, _)| name.as_str());
        from_password.or_else(|| Some(self.session.as_ref()?.name.as_str()))
    }
}

/// The rules by which one node checks a login.
#[derive(Clone, Debug)]
pub(super) struct Checks {
    /// Whether it counts failures: since 3.4, but not for requests that another node passed on
    /// (`couch_auth_lockout:lockout/3`).
    pub(super) lockout: bool,
    pub(super) sessions: Keeping,
    /// Seconds since 1970.
    pub(super) wall: u64,
}

/// The result of checking a request's credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// No credentials were sent.
    Anonymous,
    /// The credentials belong to this user.
    As {
        user: User,
        /// Whether the credentials are a session cookie.
        by_session: bool,
        /// The header that renews the session, if it is due.
        renewal: Option<String>,
    },
    /// The credentials are wrong.
    Wrong,
    /// The credentials may be correct, but the user is locked after too many wrong passwords.
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

    /// A value whose change ends a user's sessions.
    fn salt(&self, user: &User) -> String {
        let changes = self.changes.get(&user.name).copied().unwrap_or_default();
        format!("{}\0{changes}", user.password)
    }

    /// Checks credentials on a node: first a session, then a password.
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

    /// Checks a password; failures are counted only on nodes with `lockout`.
    fn password(
        &mut self,
        node: &str,
        name: &str,
        password: &str,
        lockout: bool,
        now: Duration,
    ) -> Login {
        let key = (node.to_owned(), name.to_owned());
        let (count, last) = self.failed.get(&key).copied().unwrap_or((0, now));
        let is_over = now.saturating_sub(last) >= LIFETIME;
        if lockout && count >= THRESHOLD && !is_over {
            return Login::Locked;
        }
        match self.users.iter().find(|user| user.name == name && user.password == password) {
            Some(user) => Login::As { user: user.clone(), by_session: false, renewal: None },
            None => {
                if lockout {
                    let count = if is_over { 1 } else { count.saturating_add(1) };
                    self.failed.insert(key, (count, now));
                }
                Login::Wrong
            }
        }
    }

    /// The number of failures of a user on a node.
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

    /// Takes the header that renews the session.
    pub(super) const fn take_renewal(&mut self) -> Option<String> {
        match self {
            Self::As { renewal, .. } => renewal.take(),
            Self::Anonymous | Self::Wrong | Self::Locked => None,
        }
    }

    /// CouchDB's handler that accepted the login.
    pub(super) const fn handler(&self) -> Option<&'static str> {
        match self {
            Self::As { by_session: true, .. } => Some("cookie"),
            Self::As { by_session: false, .. } => Some("default"),
            Self::Anonymous | Self::Wrong | Self::Locked => None,
        }
    }

    /// Whether the login has all rights.
    pub(super) fn is_admin(&self) -> bool {
        self.user().is_some_and(|user| user.role == Role::ServerAdmin)
    }

    /// Whether the login may read a node's metrics.
    pub(super) fn reads_metrics(&self) -> bool {
        self.is_admin() || self.user().is_some_and(|user| user.role == Role::Metrics)
    }

    /// Whether the login may read a database.
    pub(super) fn is_member(&self, db: &str) -> bool {
        self.user().is_some_and(|user| match &user.role {
            Role::ServerAdmin => true,
            Role::Member(databases) => databases.iter().any(|known| known == db),
            Role::Metrics => false,
        })
    }

    /// The roles in the session's response.
    pub(super) fn roles(&self) -> &'static [&'static str] {
        match self.user().map(|user| &user.role) {
            Some(Role::ServerAdmin) => &["_admin"],
            Some(Role::Metrics) => &["_metrics"],
            Some(Role::Member(_)) | None => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_wrong_passwords_lock_the_user_for_five_minutes() {
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
    fn session_survives_lockout_but_not_password_change() {
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
