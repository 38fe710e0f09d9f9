//! How a request shows a login: by name and password, or by a session's cookie.
//!
//! Owns the cookie's text, what is read from `Set-Cookie`, and how long it lasts. Never
//! decides when a login is made or given up: doors and the keeper of the gate do.

use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// CouchDB's cookie (`couch_httpd_auth:cookie_auth_cookie/3`).
const NAME: &str = "AuthSession";
/// Longer ones are not CouchDB's: a name, a time and a hash, in base 64.
const LONGEST: usize = 4096;

/// The shortest time for which a cookie is begun again before it is refused. One that says
/// less is used until it is refused: to believe it would cost a login for each request.
const SHORTEST: Duration = Duration::from_secs(12);

/// How a request shows a login.
#[derive(Clone, Debug)]
pub(super) enum Credential {
    /// Name and password, which a server counts when they are wrong.
    Basic,
    /// The cookie of a session, which it does not count.
    Cookie(Arc<Cookie>),
    /// As at the server that passes the request on.
    OfEntry,
}

impl Credential {
    /// The cookie, where it is one.
    pub(super) const fn cookie(&self) -> Option<&Arc<Cookie>> {
        match self {
            Self::Cookie(cookie) => Some(cookie),
            Self::Basic | Self::OfEntry => None,
        }
    }
}

/// A session's cookie. No `Debug` shows it.
#[derive(Debug)]
pub(super) struct Cookie {
    /// As it is sent.
    pub(super) header: HeaderValue,
    value: SecretString,
    since: Instant,
    /// How long it is good for, where the server says so and means it.
    lasts: Option<Duration>,
}

impl Cookie {
    /// The session that an answer's headers begin or renew; `None` where they do neither,
    /// or end one.
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        headers.get_all(header::SET_COOKIE).iter().find_map(|set| Self::parse(set.to_str().ok()?))
    }

    fn parse(set: &str) -> Option<Self> {
        let mut parts = set.split(';').map(str::trim);
        let value = parts.next()?.strip_prefix(NAME)?.trim_start().strip_prefix('=')?.trim();
        let value = value.trim_matches('"');
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte);
        if value.is_empty() || value.len() > LONGEST || !value.bytes().all(plain) {
            return None;
        }
        let mut lasts = None;
        for part in parts {
            if let Some((name, seconds)) = part.split_once('=')
                && name.trim().eq_ignore_ascii_case("max-age")
            {
                let seconds = seconds.trim().parse().ok().map(Duration::from_secs);
                lasts = seconds.filter(|lasts| *lasts >= SHORTEST);
            }
        }
        let mut header = HeaderValue::from_str(&format!("{NAME}={value}")).ok()?;
        header.set_sensitive(true);
        Some(Self { header, value: value.into(), since: Instant::now(), lasts })
    }

    /// How long ago the server gave it.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether the server may no longer accept it: a tenth is left for the way.
    pub(super) fn is_over(&self) -> bool {
        self.lasts.is_some_and(|lasts| self.age() >= lasts - lasts / 10)
    }

    /// What must not appear in a text.
    pub(super) fn secret(&self) -> &str {
        self.value.expose_secret()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[&str]) -> Option<Cookie> {
        let mut headers = HeaderMap::new();
        for set in set {
            headers.append(header::SET_COOKIE, set.parse().unwrap());
        }
        Cookie::read(&headers)
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_is_read_from_among_other_cookies_and_ends_a_little_early() {
        let set = "AuthSession=YWRtOjY1_-x; Version=1; Path=/; HttpOnly; Max-Age=600";
        let cookie = read(&["SERVERID=a; path=/", set]).unwrap();
        assert_eq!(cookie.header, "AuthSession=YWRtOjY1_-x");
        tokio::time::advance(Duration::from_secs(539)).await;
        assert!(!cookie.is_over());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cookie.is_over());
        let shown = format!("{cookie:?}");
        assert!(!shown.contains("YWRt"), "{shown}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_without_a_length_is_used_until_it_is_refused() {
        let cookie = read(&["AuthSession=abc; Path=/; HttpOnly"]).unwrap();
        tokio::time::advance(Duration::from_secs(1 << 20)).await;
        assert!(!cookie.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn a_length_that_no_session_has_is_not_believed() {
        for (age, believed) in [(0, false), (1, false), (11, false), (12, true), (600, true)] {
            let cookie = read(&[&format!("AuthSession=abc; Max-Age={age}")]).unwrap();
            tokio::time::advance(Duration::from_secs(age)).await;
            assert_eq!(cookie.is_over(), believed, "{age}");
        }
    }

    #[test]
    fn what_ends_a_session_or_is_none_is_not_taken() {
        for set in [
            "AuthSession=; Version=1; Path=/; HttpOnly",
            "AuthSession=\"\"; Path=/",
            "AuthSessions=abc",
            "AuthSession",
            "Other=AuthSession=abc",
            "AuthSession=a b",
            &format!("AuthSession={}", "x".repeat(LONGEST + 1)),
        ] {
            assert!(read(&[set]).is_none(), "{set}");
        }
        assert!(read(&[]).is_none());
    }
}
