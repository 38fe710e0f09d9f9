//! A login in the forms in which requests carry it.

use super::{credential::Credential, redact::Redactor};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};

/// A login as requests carry it; the default is none, which no endpoint accepts.
#[derive(Clone, Debug, Default)]
pub(super) struct ActiveLogin {
    /// Basic authentication; `None` without a login. Marked as sensitive, so `Debug` hides it.
    basic: Option<HeaderValue>,
    /// The JSON body that begins a session.
    form: Option<SecretString>,
    pub(super) password: Option<SecretString>,
    /// Number of passwords read so far; 0 before the first.
    pub(super) generation: u64,
    /// Removes the secrets from texts.
    redactor: Redactor,
}

impl ActiveLogin {
    pub(super) fn new(
        generation: u64,
        username: Option<&str>,
        password: Option<&SecretString>,
    ) -> Self {
        let mut login = Self { generation, ..Self::default() };
        let Some((username, password)) = username.zip(password) else { return login };
        let token = STANDARD.encode(format!("{username}:{}", password.expose_secret()));
        // Base64 is always a valid header.
        login.basic = HeaderValue::from_str(&format!("Basic {token}")).ok().map(|mut header| {
            header.set_sensitive(true);
            header
        });
        let form = serde_json::json!({"name": username, "password": password.expose_secret()});
        login.form = Some(form.to_string().into());
        login.password = Some(password.clone());
        login.redactor = Redactor::new(username, password.expose_secret(), token);
        login
    }

    /// Whether there is a login at all.
    pub(super) const fn is_login(&self) -> bool {
        self.basic.is_some()
    }

    /// The header that carries the login as `credential`.
    pub(super) fn header(&self, credential: &Credential) -> Option<(HeaderName, HeaderValue)> {
        match credential {
            Credential::Cookie(cookie) => Some((header::COOKIE, cookie.header.clone())),
            Credential::Basic | Credential::SameAsEntry => {
                Some((header::AUTHORIZATION, self.basic.clone()?))
            }
        }
    }

    /// The body of the request that begins a session.
    pub(super) fn form(&self) -> Option<Bytes> {
        let form = self.form.as_ref()?;
        Some(Bytes::copy_from_slice(form.expose_secret().as_bytes()))
    }

    /// A server's text, shortened to one line, with the login and its credential redacted.
    pub(super) fn scrub(&self, credential: &Credential, text: &str) -> String {
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
    fn sends_login_as_basic_authentication() {
        let login = ActiveLogin::new(1, Some("adm"), Some(&"pass:wörd".into()));
        let (name, value) = login.header(&Credential::Basic).unwrap();
        assert_eq!(
            (name, value),
            (header::AUTHORIZATION, "Basic YWRtOnBhc3M6d8O2cmQ=".parse().unwrap())
        );
        assert_eq!(login.form().unwrap(), r#"{"name":"adm","password":"pass:wörd"}"#);
        let none = ActiveLogin::default();
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
            let login = ActiveLogin::new(1, Some("adm"), Some(&password.as_str().into()));
            let token = STANDARD.encode(format!("adm:{password}"));
            let shown = format!("{login:?}");
            prop_assert!(!shown.contains(&password) && !shown.contains(&token), "{shown}");
            for secret in [&password, &token] {
                let shown = login.scrub(&Credential::Basic, &format!("{before}{secret}{after}"));
                prop_assert!(!shown.contains(secret.as_str()), "{shown}");
            }
        }
    }
}
