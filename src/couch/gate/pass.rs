//! A proved login, ready to be sent.

use super::Excuse;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

/// A login as requests carry it.
#[derive(Clone, Debug)]
pub(in crate::couch) struct Pass {
    /// The header; `None` without a login. It is marked as sensitive, so that no `Debug`
    /// shows it.
    pub(in crate::couch) header: Option<HeaderValue>,
    /// Counts passwords, from 1.
    pub(in crate::couch) generation: u64,
    /// The number of the proof it passed, from 1.
    pub(in crate::couch) epoch: u64,
    /// A refusal that was found to be about privileges.
    pub(super) excuse: Option<Excuse>,
    /// What must not appear in a text.
    secrets: Vec<SecretString>,
}

impl Pass {
    /// A pass for this login that has not been proved yet.
    pub(super) fn new(username: Option<&str>, password: Option<&SecretString>) -> Self {
        let mut pass =
            Self { header: None, generation: 1, epoch: 0, excuse: None, secrets: Vec::new() };
        let Some((username, password)) = username.zip(password) else { return pass };
        let token = STANDARD.encode(format!("{username}:{}", password.expose_secret()));
        // Base64 is always a valid header.
        pass.header = HeaderValue::from_str(&format!("Basic {token}")).ok().map(|mut header| {
            header.set_sensitive(true);
            header
        });
        pass.secrets = vec![password.clone(), token.into()];
        pass
    }

    /// Whether `reason` was looked into lately and found to be about privileges.
    pub(super) fn excuses(&self, reason: &str) -> bool {
        let excuse = self.excuse.as_ref();
        excuse.is_some_and(|excuse| *excuse.reason == *reason && Instant::now() < excuse.until)
    }

    /// A server's text, short, on one line, without the login.
    pub(in crate::couch) fn scrub(&self, text: &str) -> String {
        const LONGEST: usize = 200;
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.expose_secret(), "[hidden]");
        }
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
        assert_eq!(pass.header.unwrap(), "Basic YWRtOnBhc3M6d8O2cmQ=");
        assert!(Pass::new(None, None).header.is_none());
    }

    proptest! {
        #[test]
        fn neither_debug_nor_scrubbed_texts_show_the_login(
            password in "[ -~]{8,40}",
            before in "[ -~]{0,150}",
            after in "[ -~]{0,300}",
        ) {
            let pass = Pass::new(Some("adm"), Some(&password.as_str().into()));
            let token = STANDARD.encode(format!("adm:{password}"));
            let shown = format!("{pass:?}");
            prop_assert!(!shown.contains(&password) && !shown.contains(&token), "{shown}");
            for secret in [&password, &token] {
                let shown = pass.scrub(&format!("{before}{secret}{after}"));
                prop_assert!(!shown.contains(secret.as_str()), "{shown}");
            }
        }
    }
}
