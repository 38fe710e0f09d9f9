//! Who may log in, and what a wrong password costs.

use super::User;

/// Users and failed logins.
#[derive(Debug)]
pub(super) struct Access {
    users: Vec<User>,
}

impl Access {
    pub(super) fn new(users: &[User]) -> Self {
        Self { users: users.to_vec() }
    }

    pub(super) fn change_password(&mut self, user: &str, password: &str) {
        for known in self.users.iter_mut().filter(|known| known.name == user) {
            known.password = password.to_owned();
        }
    }
}
