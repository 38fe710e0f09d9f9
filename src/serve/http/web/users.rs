//! Authentication: Basic authentication against bcrypt hashes.

use super::{ActiveWebConfig, WebAccess};
use crate::{
    config::PasswordHash,
    serve::http::peer::{Connection, Peer},
};
use arc_swap::ArcSwap;
use axum::{
    body::{Body, HttpBody as _},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use base64::Engine as _;
use futures::StreamExt as _;
use ring::{hmac, rand::SystemRandom};
use secrecy::{ExposeSecret as _, SecretSlice};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};
use tokio::time;

/// How soon a streamed response ends after its user was removed or the password changed.
const RECHECK_INTERVAL: Duration = Duration::from_secs(10);

/// The longest password, in bytes: bcrypt ignores all further bytes.
const MAX_PASSWORD: usize = 72;

/// Paths that need no user, because supervisors have none.
pub(in super::super) const PUBLIC_PATHS: [&str; 2] = ["/-/healthy", "/-/ready"];

/// The users of one file.
#[derive(Default)]
pub(super) struct Users {
    hashes: BTreeMap<String, PasswordHash>,
    /// The hash that is checked for an unknown user, so that the response takes as long.
    slowest: Option<PasswordHash>,
    verified: Verified,
}

/// Verified passwords as keyed digests, at most one per user: bcrypt is slow, and Prometheus
/// scrapes every few seconds.
#[derive(Default)]
struct Verified {
    /// Without a key, nothing is stored.
    key: Option<hmac::Key>,
    tags: ArcSwap<HashMap<String, hmac::Tag>>,
}

impl fmt::Debug for Users {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.hashes.keys()).finish()
    }
}

/// The user of a request, whose password was correct.
#[derive(Clone, Debug)]
pub(in super::super) struct AuthenticatedUser(pub(in super::super) String);

/// A user and password, as sent.
struct SubmittedLogin {
    user: String,
    password: SecretSlice<u8>,
}

impl Users {
    pub(super) fn new(hashes: BTreeMap<String, PasswordHash>) -> Self {
        let slowest = hashes.values().max_by_key(|hash| hash.cost).cloned();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok();
        Self { hashes, slowest, verified: Verified { key, tags: ArcSwap::default() } }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether this user still has the same password as in `before`.
    fn same_password(&self, user: &str, before: &Self) -> bool {
        let [now, then] =
            [self, before].map(|it| it.hashes.get(user).map(|hash| hash.text.expose_secret()));
        now == then
    }

    /// Whether the password was verified before.
    fn is_verified(&self, login: &SubmittedLogin) -> bool {
        let tags = self.verified.tags.load();
        let known = self.verified.key.as_ref().zip(tags.get(&login.user));
        known.is_some_and(|(key, tag)| {
            hmac::verify(key, login.password.expose_secret(), tag.as_ref()).is_ok()
        })
    }

    /// Checks the password; uses a core for as long as the hash's cost demands.
    fn verify(&self, login: &SubmittedLogin) -> bool {
        let own = self.hashes.get(&login.user);
        let Some(hash) = own.or(self.slowest.as_ref()) else { return false };
        let password = login.password.expose_secret();
        let right = bcrypt::verify(password, hash.text.expose_secret()).unwrap_or(false);
        let right = right && own.is_some();
        let most = self.slowest.as_ref().map_or(0, |hash| hash.cost);
        if !right {
            // Each cost step doubles the work, so the sum equals that of the most expensive hash.
            // The duration of a refusal must not reveal whether the user exists.
            for cost in hash.cost..most {
                let _same = bcrypt::hash_with_salt(password, cost, [0; 16]);
            }
        }
        if right && let Some(key) = &self.verified.key {
            let tag = hmac::sign(key, password);
            self.verified.tags.rcu(|tags| {
                let mut tags = HashMap::clone(tags);
                tags.insert(login.user.clone(), tag);
                tags
            });
        }
        right
    }
}

/// Authenticates a request, and adds the configured headers to every response.
pub(in super::super) async fn authenticate(
    State(web): State<WebAccess>,
    mut request: Request,
    next: Next,
) -> Response {
    let in_force = web.active().await;
    let connection = request.extensions().get::<Connection>().copied();
    let owner = connection.is_some_and(|it| it.peer.is_owner());
    let public = owner || in_force.users.is_empty() || PUBLIC_PATHS.contains(&request.uri().path());
    let login = login(request.headers()).filter(|_| !public);
    let user = login.as_ref().map(|login| AuthenticatedUser(login.user.clone()));
    let unknown = Peer::Tcp(Ipv4Addr::UNSPECIFIED.into());
    let from = connection.map_or(unknown, |it| it.peer);
    let may_ask = if public { Ok(()) } else { check_login(&web, &in_force, login, from).await };
    let mut response = match may_ask {
        Ok(()) => {
            if let Some(user) = user.clone() {
                request.extensions_mut().insert(user);
            }
            request.extensions_mut().insert(Arc::clone(&in_force));
            let response = next.run(request).await;
            match user {
                Some(AuthenticatedUser(user)) => {
                    response.map(|body| end_with_login(body, user, &web, &in_force))
                }
                None => response,
            }
        }
        Err(why) => why.into_response(),
    };
    for (name, value) in &in_force.headers {
        response.headers_mut().insert(name, value.clone());
    }
    response
}

/// Ends a streamed body when its user is removed; complete bodies are sent at once anyway.
fn end_with_login(
    body: Body,
    user: String,
    web: &WebAccess,
    before: &Arc<ActiveWebConfig>,
) -> Body {
    if body.size_hint().exact().is_some() {
        return body;
    }
    let (web, before) = (web.clone(), Arc::clone(before));
    let revoked = async move {
        loop {
            time::sleep(RECHECK_INTERVAL).await;
            let now = web.active().await;
            if !Arc::ptr_eq(&now, &before) && !now.users.same_password(&user, &before.users) {
                return;
            }
        }
    };
    Body::from_stream(body.into_data_stream().take_until(Box::pin(revoked)))
}

/// Why a login is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginRefused {
    /// No such user, or another password.
    WrongLogin,
    /// The password is too long or has a zero byte: bcrypt would check only a part of it.
    UnsupportedPassword,
    /// Too many passwords wait to be checked.
    Busy,
}

impl IntoResponse for LoginRefused {
    fn into_response(self) -> Response {
        let challenge = HeaderValue::from_static("Basic realm=\"recliner\", charset=\"UTF-8\"");
        let headers = [(header::WWW_AUTHENTICATE, challenge)];
        match self {
            Self::WrongLogin => {
                let text = "recliner needs a user and a password\n";
                (StatusCode::UNAUTHORIZED, headers, text).into_response()
            }
            Self::UnsupportedPassword => {
                let text = format!(
                    "a password may have at most {MAX_PASSWORD} bytes and no zero byte, because bcrypt ignores the rest\n"
                );
                (StatusCode::UNAUTHORIZED, headers, text).into_response()
            }
            Self::Busy => {
                let text = "too many passwords are waiting to be checked; try again\n";
                let again = [(header::RETRY_AFTER, HeaderValue::from_static("1"))];
                (StatusCode::TOO_MANY_REQUESTS, again, text).into_response()
            }
        }
    }
}

async fn check_login(
    web: &WebAccess,
    in_force: &Arc<ActiveWebConfig>,
    login: Option<SubmittedLogin>,
    from: Peer,
) -> Result<(), LoginRefused> {
    let login = login.ok_or(LoginRefused::WrongLogin)?;
    let password = login.password.expose_secret();
    if password.len() > MAX_PASSWORD || password.contains(&0) {
        return Err(LoginRefused::UnsupportedPassword);
    }
    if in_force.users.is_verified(&login) {
        return Ok(());
    }
    let queue = web.password_queue().ok_or(LoginRefused::WrongLogin)?;
    let slot = queue.acquire(from.shared()).await.ok_or(LoginRefused::Busy)?;
    let in_force = Arc::clone(in_force);
    let verified = tokio::task::spawn_blocking(move || {
        // The slot is freed when the check ends, not when the client disconnects.
        let _turn = slot;
        in_force.users.verify(&login)
    });
    // A task that was lost verified nothing.
    if verified.await.unwrap_or(false) { Ok(()) } else { Err(LoginRefused::WrongLogin) }
}

/// The login of the `Authorization` header, if there is exactly one.
fn login(headers: &HeaderMap) -> Option<SubmittedLogin> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(only), None) = (all.next(), all.next()) else { return None };
    let (scheme, value) = only.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = base64::prelude::BASE64_STANDARD.decode(value.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let (user, password) = decoded.split_at_checked(colon)?;
    let user = std::str::from_utf8(user).ok()?.to_owned();
    let password = password.get(1..).unwrap_or_default().to_vec().into();
    Some(SubmittedLogin { user, password })
}
