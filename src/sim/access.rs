//! Who may log in, and what wrong passwords cost.
//!
//! Owns users and failed logins. Never holds a session: clients use Basic. Asked once
//! for each request by the routes.

use super::config::{Role, User};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::{collections::BTreeMap, time::Duration};

/// Failed logins after which a name is locked out (`[chttpd_auth_lockout] threshold`).
const THRESHOLD: u32 = 5;
/// How long it stays locked out (`max_lifetime`).
const LIFETIME: Duration = Duration::from_secs(300);

/// Users and failed logins.
#[derive(Debug)]
pub(super) struct Access {
    users: Vec<User>,
    /// Failures and the last one's time, by node and name.
    failed: BTreeMap<(String, String), (u32, Duration)>,
}

/// What a request's credentials come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// It has none.
    Anonymous,
    /// It has those of this user.
    As(User),
    /// They are wrong.
    Wrong,
    /// They may be right, but too many wrong ones came before.
    Locked,
}

/// The name and password of an `Authorization` header.
pub(super) fn basic(header: &str) -> Option<(String, String)> {
    let encoded = header.strip_prefix("Basic ")?;
    let decoded = String::from_utf8(BASE64_STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some((name.to_owned(), password.to_owned()))
}

impl Access {
    pub(super) fn new(users: &[User]) -> Self {
        Self { users: users.to_vec(), failed: BTreeMap::new() }
    }

    /// What these credentials come to on a node; only `lockout` nodes count failures.
    pub(super) fn login(
        &mut self,
        node: &str,
        credentials: Option<(&str, &str)>,
        lockout: bool,
        now: Duration,
    ) -> Login {
        let Some((name, password)) = credentials else { return Login::Anonymous };
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
            Some(user) => Login::As(user.clone()),
            None => {
                let key = key.unwrap_or_else(|| (node.to_owned(), name.to_owned()));
                let failed = self.failed.entry(key).or_insert((0, now));
                let over = now.saturating_sub(failed.1) >= LIFETIME;
                *failed = (if over { 1 } else { failed.0.saturating_add(1) }, now);
                Login::Wrong
            }
        }
    }

    pub(super) fn change_password(&mut self, user: &str, password: &str) {
        for known in self.users.iter_mut().filter(|known| known.name == user) {
            known.password = password.to_owned();
        }
    }
}

impl Login {
    pub(super) fn user(&self) -> Option<&User> {
        match self {
            Self::As(user) => Some(user),
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
        for _ in 0..5 {
            assert_eq!(access.login("n", Some(("a", "x")), true, at(1)), Login::Wrong);
        }
        assert_eq!(access.login("n", Some(("a", "b")), true, at(2)), Login::Locked);
        assert_eq!(access.login("m", Some(("a", "b")), true, at(2)), Login::As(user.clone()));
        assert_eq!(access.login("n", Some(("a", "b")), false, at(2)), Login::As(user.clone()));
        assert_eq!(access.login("n", Some(("a", "b")), true, at(301)), Login::As(user));
    }
}
