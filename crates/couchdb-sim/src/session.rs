//! Sessions: the cookies of `POST /_session`.
//!
//! Pure functions, as in `couch_httpd_auth`: a cookie contains the user, the time, and a hash of both
//! with the node's secret and the user's password. So no session is stored, and a new password ends
//! every session. The hash is not cryptographic.

use super::growth::mix;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use http::{HeaderMap, header};
use url::form_urlencoded;

/// The session settings of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Keeping {
    /// `[chttpd_auth] secret`.
    pub(super) secret: String,
    /// `[chttpd_auth] timeout`, in seconds.
    pub(super) timeout: u64,
    /// Whether `[chttpd] authentication_handlers` includes the one for cookies.
    pub(super) reads_cookies: bool,
}

impl Default for Keeping {
    fn default() -> Self {
        Self { secret: "simulated".to_owned(), timeout: 600, reads_cookies: true }
    }
}

/// The content of a session cookie; not verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SessionCookie {
    pub(super) name: String,
    since: u64,
    hash: u64,
}

impl SessionCookie {
    /// The session in a request's cookies.
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|all| all.to_str().ok());
        let mut pairs = cookies.flat_map(|all| all.split(';'));
        let value = pairs.find_map(|pair| pair.trim().strip_prefix("AuthSession="))?;
        let text = String::from_utf8(BASE64_URL_SAFE_NO_PAD.decode(value).ok()?).ok()?;
        let (name, rest) = text.split_once(':')?;
        let (since, hash) = rest.split_once(':')?;
        Some(Self {
            name: name.to_owned(),
            since: u64::from_str_radix(since, 16).ok()?,
            hash: u64::from_str_radix(hash, 16).ok()?,
        })
    }
}

impl Keeping {
    fn hash(&self, name: &str, since: u64, salt: &str) -> u64 {
        let texts = [&*self.secret, "\0", name, "\0", salt];
        texts.iter().flat_map(|text| text.bytes()).fold(since, |hash, byte| mix(hash, byte.into()))
    }

    /// Whether a session is valid at `now`, for the user with this salt.
    pub(super) fn holds(&self, cookie: &SessionCookie, salt: &str, now: u64) -> bool {
        self.reads_cookies
            && now < cookie.since.saturating_add(self.timeout)
            && cookie.hash == self.hash(&cookie.name, cookie.since, salt)
    }

    /// Whether a response renews a session: after a tenth of its lifetime
    /// (`couch_httpd_auth:cookie_authentication_handler/2`).
    pub(super) fn renews(&self, cookie: &SessionCookie, now: u64) -> bool {
        let left = cookie.since.saturating_add(self.timeout).saturating_sub(now);
        left.saturating_mul(10) < self.timeout.saturating_mul(9)
    }

    /// The `Set-Cookie` header of a session that begins or is renewed at `now`.
    pub(super) fn cookie(&self, name: &str, salt: &str, now: u64) -> String {
        let hash = self.hash(name, now, salt);
        let value = BASE64_URL_SAFE_NO_PAD.encode(format!("{name}:{now:X}:{hash:x}"));
        let age = self.timeout;
        format!("AuthSession={value}; Version=1; Max-Age={age}; Path=/; HttpOnly")
    }
}

/// The header that ends a session.
pub(super) const ENDED: &str = "AuthSession=; Version=1; Path=/; HttpOnly";

/// The keys and values of a query string, or of a form.
pub(super) fn query(text: &[u8]) -> Vec<(String, String)> {
    form_urlencoded::parse(text).into_owned().collect()
}

/// User and password in the body of `POST /_session`: JSON or a form.
pub(super) fn form(
    content_type: Option<&str>,
    body: &[u8],
) -> Result<(String, String), LoginBodyError> {
    let kind = content_type.unwrap_or_default();
    let pairs: Vec<(String, String)> = if kind.starts_with("application/json") {
        match serde_json::from_slice::<std::collections::BTreeMap<String, String>>(body) {
            Ok(pairs) => pairs.into_iter().collect(),
            Err(_) => return Err(LoginBodyError::Json),
        }
    } else if kind.starts_with("application/x-www-form-urlencoded") {
        query(body)
    } else {
        return Err(LoginBodyError::ContentType);
    };
    let field = |wanted: &str| {
        let mut pairs = pairs.iter();
        pairs.find(|(key, _)| key == wanted).map(|(_, value)| value.clone())
    };
    let name = field("name").or_else(|| field("username")).ok_or(LoginBodyError::NoName)?;
    Ok((name, field("password").unwrap_or_default()))
}

/// Why the body of `POST /_session` begins no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoginBodyError {
    ContentType,
    Json,
    NoName,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cookie(set: &str) -> SessionCookie {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, set.split(';').next().unwrap().parse().unwrap());
        SessionCookie::read(&headers).unwrap()
    }

    #[test]
    fn session_depends_on_time_password_and_secret() {
        let keeping = Keeping::default();
        let cookie = cookie(&keeping.cookie("adm", "salt", 1_000));
        assert_eq!(cookie.name, "adm");
        assert!(keeping.holds(&cookie, "salt", 1_599));
        assert!(!keeping.holds(&cookie, "salt", 1_600));
        assert!(!keeping.holds(&cookie, "other", 1_000));
        assert!(!keeping.renews(&cookie, 1_060) && keeping.renews(&cookie, 1_061));
        let other = Keeping { secret: "other".to_owned(), ..Keeping::default() };
        assert!(!other.holds(&cookie, "salt", 1_000));
        let blind = Keeping { reads_cookies: false, ..Keeping::default() };
        assert!(!blind.holds(&cookie, "salt", 1_000));
    }

    #[test]
    fn login_body_may_be_json_or_form() {
        let pair = Ok(("adm".to_owned(), "a&b".to_owned()));
        let json = br#"{"name":"adm","password":"a&b"}"#;
        assert_eq!(form(Some("application/json"), json), pair);
        let kind = Some("application/x-www-form-urlencoded");
        assert_eq!(form(kind, b"username=adm&password=a%26b"), pair);
        assert_eq!(form(kind, b"password=x"), Err(LoginBodyError::NoName));
        assert_eq!(form(Some("application/json"), b"["), Err(LoginBodyError::Json));
        assert_eq!(form(None, json), Err(LoginBodyError::ContentType));
    }
}
