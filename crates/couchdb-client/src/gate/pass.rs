//! A proved login, ready to be sent.

use super::Excuse;
use crate::{credential::Credential, hidden::Hidden};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

/// A login as requests carry it.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    /// Basic authentication; `None` without a login. It is marked as sensitive, so that no
    /// `Debug` shows it.
    basic: Option<HeaderValue>,
    /// What begins a session, in JSON.
    form: Option<SecretString>,
    /// Counts passwords, from 1.
    pub(crate) generation: u64,
    /// The number of the proof it passed, from 1.
    pub(crate) epoch: u64,
    /// A refusal that was found to be about privileges.
    pub(super) excuse: Option<Excuse>,
    /// What must not appear in a text.
    hidden: Hidden,
}

impl Pass {
    /// A pass for this login that has not been proved yet.
    pub(super) fn new(username: Option<&str>, password: Option<&SecretString>) -> Self {
        let mut pass = Self {
            basic: None,
            form: None,
            generation: 1,
            epoch: 0,
            excuse: None,
            hidden: Hidden::default(),
        };
        let Some((username, password)) = username.zip(password) else { return pass };
        let token = STANDARD.encode(format!("{username}:{}", password.expose_secret()));
        // Base64 is always a valid header.
        pass.basic = HeaderValue::from_str(&format!("Basic {token}")).ok().map(|mut header| {
            header.set_sensitive(true);
            header
        });
        let form = serde_json::json!({"name": username, "password": password.expose_secret()});
        pass.form = Some(form.to_string().into());
        pass.hidden = Hidden::new(username, password.expose_secret(), token);
        pass
    }

    /// Without a login, for what is asked before one is shown. No door knows its generation.
    pub(crate) fn none() -> Self {
        Self { generation: 0, ..Self::new(None, None) }
    }

    /// Whether there is a login at all.
    pub(crate) const fn is_login(&self) -> bool {
        self.basic.is_some()
    }

    /// The header that shows the login by `credential`.
    pub(crate) fn header(&self, credential: &Credential) -> Option<(HeaderName, HeaderValue)> {
        match credential {
            Credential::Cookie(cookie) => Some((header::COOKIE, cookie.header.clone())),
            Credential::Basic | Credential::OfEntry => {
                Some((header::AUTHORIZATION, self.basic.clone()?))
            }
        }
    }

    /// The body of the request that begins a session.
    pub(crate) fn form(&self) -> Option<Bytes> {
        let form = self.form.as_ref()?;
        Some(Bytes::copy_from_slice(form.expose_secret().as_bytes()))
    }

    /// Whether `reason` was looked into lately and found to be about privileges.
    pub(super) fn excuses(&self, reason: &str) -> bool {
        let excuse = self.excuse.as_ref();
        excuse.is_some_and(|excuse| *excuse.reason == *reason && Instant::now() < excuse.until)
    }

    /// A server's text, short, on one line, without the login and what showed it.
    pub(crate) fn scrub(&self, credential: &Credential, text: &str) -> String {
        const LONGEST: usize = 200;
        let text = self.hidden.hide(text, credential.cookie().map(|cookie| cookie.secret()));
        let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
        let short: String = text.chars().take(LONGEST).map(plain).collect();
        if short.len() < text.len() { format!("{short}…") } else { short }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_header_is_basic_authentication() {
        let pass = Pass::new(Some("adm"), Some(&"pass:wörd".into()));
        let (name, value) = pass.header(&Credential::Basic).unwrap();
        assert_eq!(
            (name, value),
            (header::AUTHORIZATION, "Basic YWRtOnBhc3M6d8O2cmQ=".parse().unwrap())
        );
        assert_eq!(pass.form().unwrap(), r#"{"name":"adm","password":"pass:wörd"}"#);
        let none = Pass::new(None, None);
        assert!(
            !none.is_login() && none.header(&Credential::Basic).is_none() && none.form().is_none()
        );
    }

    proptest! {
        #[test]
        fn neither_debug_nor_scrubbed_texts_show_the_login(
            password in "[ -~]{7,39}[0-9]",
            before in "[ -~]{0,150}",
            after in "[ -~]{0,300}",
        ) {
            let pass = Pass::new(Some("adm"), Some(&password.as_str().into()));
            let token = STANDARD.encode(format!("adm:{password}"));
            let shown = format!("{pass:?}");
            prop_assert!(!shown.contains(&password) && !shown.contains(&token), "{shown}");
            for secret in [&password, &token] {
                let shown = pass.scrub(&Credential::Basic, &format!("{before}{secret}{after}"));
                prop_assert!(!shown.contains(secret.as_str()), "{shown}");
            }
        }
    }
}
