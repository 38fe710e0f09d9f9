//! A login in the forms in which requests carry it.

use super::PrivilegeRefusal;
use crate::{credential::Credential, redact::Redactor};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

/// A login as requests carry it.
#[derive(Clone, Debug)]
pub(crate) struct ProvenLogin {
    /// Basic authentication; `None` without a login. Marked as sensitive, so `Debug` hides it.
    basic: Option<HeaderValue>,
    /// The JSON body that begins a session.
    form: Option<SecretString>,
    /// The number of the password, from 1.
    pub(crate) generation: u64,
    /// The number of the proof it passed, from 1.
    pub(crate) epoch: u64,
    /// A refusal that was found to be about privileges.
    pub(super) privilege_refusal: Option<PrivilegeRefusal>,
    /// Removes the secrets from texts.
    redactor: Redactor,
}

impl ProvenLogin {
    /// This login, not proved yet.
    pub(super) fn new(username: Option<&str>, password: Option<&SecretString>) -> Self {
        let mut proven = Self {
            basic: None,
            form: None,
            generation: 1,
            epoch: 0,
            privilege_refusal: None,
            redactor: Redactor::default(),
        };
        let Some((username, password)) = username.zip(password) else { return proven };
        let token = STANDARD.encode(format!("{username}:{}", password.expose_secret()));
        // Base64 is always a valid header.
        proven.basic = HeaderValue::from_str(&format!("Basic {token}")).ok().map(|mut header| {
            header.set_sensitive(true);
            header
        });
        let form = serde_json::json!({"name": username, "password": password.expose_secret()});
        proven.form = Some(form.to_string().into());
        proven.redactor = Redactor::new(username, password.expose_secret(), token);
        proven
    }

    /// No login, for requests sent before the login. No endpoint has accepted its generation.
    pub(crate) fn none() -> Self {
        Self { generation: 0, ..Self::new(None, None) }
    }

    /// Whether there is a login at all.
    pub(crate) const fn is_login(&self) -> bool {
        self.basic.is_some()
    }

    /// The header that carries the login as `credential`.
    pub(crate) fn header(&self, credential: &Credential) -> Option<(HeaderName, HeaderValue)> {
        match credential {
            Credential::Cookie(cookie) => Some((header::COOKIE, cookie.header.clone())),
            Credential::Basic | Credential::SameAsEntry => {
                Some((header::AUTHORIZATION, self.basic.clone()?))
            }
        }
    }

    /// The body of the request that begins a session.
    pub(crate) fn form(&self) -> Option<Bytes> {
        let form = self.form.as_ref()?;
        Some(Bytes::copy_from_slice(form.expose_secret().as_bytes()))
    }

    /// Whether `reason` was found to be about privileges, not long ago.
    pub(super) fn is_known_privilege_refusal(&self, reason: &str) -> bool {
        let privilege_refusal = self.privilege_refusal.as_ref();
        privilege_refusal.is_some_and(|privilege_refusal| {
            *privilege_refusal.reason == *reason && Instant::now() < privilege_refusal.until
        })
    }

    /// A server's text, shortened to one line, with the login and its credential redacted.
    pub(crate) fn scrub(&self, credential: &Credential, text: &str) -> String {
        const MAX_LETTERS: usize = 200;
        let text = self.redactor.redact(text, credential.cookie().map(|cookie| cookie.secret()));
        let plain = |letter: char| if letter.is_control() { ' ' } else { letter };
        let short: String = text.chars().take(MAX_LETTERS).map(plain).collect();
        if short.len() < text.len() { format!("{short}…") } else { short }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_header_is_basic_authentication() {
        let proven = ProvenLogin::new(Some("adm"), Some(&"pass:wörd".into()));
        let (name, value) = proven.header(&Credential::Basic).unwrap();
        assert_eq!(
            (name, value),
            (header::AUTHORIZATION, "Basic YWRtOnBhc3M6d8O2cmQ=".parse().unwrap())
        );
        assert_eq!(proven.form().unwrap(), r#"{"name":"adm","password":"pass:wörd"}"#);
        let none = ProvenLogin::new(None, None);
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
            let proven = ProvenLogin::new(Some("adm"), Some(&password.as_str().into()));
            let token = STANDARD.encode(format!("adm:{password}"));
            let shown = format!("{proven:?}");
            prop_assert!(!shown.contains(&password) && !shown.contains(&token), "{shown}");
            for secret in [&password, &token] {
                let shown = proven.scrub(&Credential::Basic, &format!("{before}{secret}{after}"));
                prop_assert!(!shown.contains(secret.as_str()), "{shown}");
            }
        }
    }
}
