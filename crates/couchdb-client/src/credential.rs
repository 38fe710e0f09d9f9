//! How a request carries a login: as name and password, or as a session's cookie.
//!
//! Owns the cookie's text, the parser of `Set-Cookie`, and the cookie's lifetime. Never decides
//! when to log in: `EndpointAuth` and the login task do.

use http::{HeaderMap, HeaderValue, header};
use secrecy::{ExposeSecret as _, SecretString};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// CouchDB's cookie (`couch_httpd_auth:cookie_auth_cookie/3`).
const COOKIE_NAME: &str = "AuthSession";
/// Longer cookies are not CouchDB's, which hold a name, a time and a hash in base 64.
const MAX_COOKIE_BYTES: usize = 4096;

/// Minimum lifetime that is taken at face value. A cookie with a shorter one is used until the
/// server refuses it; otherwise each request would need a login.
const MIN_LIFETIME: Duration = Duration::from_secs(12);

/// How a request carries a login.
#[derive(Clone, Debug)]
pub(super) enum Credential {
    /// Name and password. Servers count wrong passwords.
    Basic,
    /// The cookie of a session. Servers do not count wrong ones.
    Cookie(Arc<Cookie>),
    /// The same credential as at the server that forwards the request.
    SameAsEntry,
}

impl Credential {
    /// The cookie, if the credential is one.
    pub(super) const fn cookie(&self) -> Option<&Arc<Cookie>> {
        match self {
            Self::Cookie(cookie) => Some(cookie),
            Self::Basic | Self::SameAsEntry => None,
        }
    }

    /// Whether both are the same session, or both the password.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self.cookie(), other.cookie()) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}

/// A session's cookie. `Debug` hides it.
#[derive(Debug)]
pub(super) struct Cookie {
    /// The value of the `Cookie` header.
    pub(super) header: HeaderValue,
    value: SecretString,
    since: Instant,
    /// The lifetime, if the server gives a believable one.
    lasts: Option<Duration>,
}

impl Cookie {
    /// The session that a response's headers begin or renew; `None` if they do neither, or end it.
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        headers.get_all(header::SET_COOKIE).iter().find_map(|set| Self::parse(set.to_str().ok()?))
    }

    fn parse(set: &str) -> Option<Self> {
        let mut parts = set.split(';').map(str::trim);
        let value = parts.next()?.strip_prefix(COOKIE_NAME)?.trim_start().strip_prefix('=')?.trim();
        let value = value.trim_matches('"');
        let plain = |byte: u8| byte.is_ascii_graphic() && !b"\",;\\".contains(&byte);
        if value.is_empty() || value.len() > MAX_COOKIE_BYTES || !value.bytes().all(plain) {
            return None;
        }
        let mut lasts = None;
        for part in parts {
            if let Some((name, seconds)) = part.split_once('=')
                && name.trim().eq_ignore_ascii_case("max-age")
            {
                let seconds = seconds.trim().parse().ok().map(Duration::from_secs);
                lasts = seconds.filter(|lasts| *lasts >= MIN_LIFETIME);
            }
        }
        let mut header = HeaderValue::from_str(&format!("{COOKIE_NAME}={value}")).ok()?;
        header.set_sensitive(true);
        Some(Self { header, value: value.into(), since: Instant::now(), lasts })
    }

    /// How long ago the server sent it.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether the server may no longer accept it. A tenth of the lifetime is kept in reserve.
    pub(super) fn is_expired(&self) -> bool {
        self.lasts.is_some_and(|lasts| self.age() >= lasts - lasts / 10)
    }

    /// The secret that must not appear in a text.
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
    async fn finds_session_cookie_and_expires_it_early() {
        let set = "AuthSession=YWRtOjY1_-x; Version=1; Path=/; HttpOnly; Max-Age=600";
        let cookie = read(&["SERVERID=a; path=/", set]).unwrap();
        assert_eq!(cookie.header, "AuthSession=YWRtOjY1_-x");
        tokio::time::advance(Duration::from_secs(539)).await;
        assert!(!cookie.is_expired());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(cookie.is_expired());
        let shown = format!("{cookie:?}");
        assert!(!shown.contains("YWRt"), "{shown}");
    }

    #[tokio::test(start_paused = true)]
    async fn session_without_lifetime_is_used_until_refused() {
        let cookie = read(&["AuthSession=abc; Path=/; HttpOnly"]).unwrap();
        tokio::time::advance(Duration::from_secs(1 << 20)).await;
        assert!(!cookie.is_expired());
    }

    #[tokio::test(start_paused = true)]
    async fn implausibly_short_session_lifetime_is_ignored() {
        for (age, believed) in [(0, false), (1, false), (11, false), (12, true), (600, true)] {
            let cookie = read(&[&format!("AuthSession=abc; Max-Age={age}")]).unwrap();
            tokio::time::advance(Duration::from_secs(age)).await;
            assert_eq!(cookie.is_expired(), believed, "{age}");
        }
    }

    #[test]
    fn ended_and_invalid_session_cookies_are_ignored() {
        for set in [
            "AuthSession=; Version=1; Path=/; HttpOnly",
            "AuthSession=\"\"; Path=/",
            "AuthSessions=abc",
            "AuthSession",
            "Other=AuthSession=abc",
            "AuthSession=a b",
            &format!("AuthSession={}", "x".repeat(MAX_COOKIE_BYTES + 1)),
        ] {
            assert!(read(&[set]).is_none(), "{set}");
        }
        assert!(read(&[]).is_none());
    }
}
