//! Who may ask: Basic authentication against bcrypt hashes.

use super::{InForce, Web};
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

/// How soon an answer that goes on ends after its user was struck out, or the password changed.
const LOOK: Duration = Duration::from_secs(10);

/// The longest password, in bytes: bcrypt reads no more of one.
const LONGEST: usize = 72;

/// What answers without a user, for supervisors have none.
const OPEN: [&str; 2] = ["/-/healthy", "/-/ready"];

/// The users of one file.
#[derive(Default)]
pub(super) struct Users {
    hashes: BTreeMap<String, PasswordHash>,
    /// What is checked for a user that there is not, so that the answer takes as long.
    costliest: Option<PasswordHash>,
    verified: Verified,
}

/// Passwords that were found right, as keyed digests: bcrypt takes its time, and Prometheus
/// comes every few seconds. No more than one for a user.
#[derive(Default)]
struct Verified {
    /// Nothing is remembered without.
    key: Option<hmac::Key>,
    tags: ArcSwap<HashMap<String, hmac::Tag>>,
}

impl fmt::Debug for Users {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_set().entries(self.hashes.keys()).finish()
    }
}

/// The user who asks, whose password was right.
#[derive(Clone, Debug)]
pub(in super::super) struct Asker(pub(in super::super) String);

/// A user and a password, as they were sent.
struct Login {
    user: String,
    password: SecretSlice<u8>,
}

impl Users {
    pub(super) fn new(hashes: BTreeMap<String, PasswordHash>) -> Self {
        let costliest = hashes.values().max_by_key(|hash| hash.cost).cloned();
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new()).ok();
        Self { hashes, costliest, verified: Verified { key, tags: ArcSwap::default() } }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Whether this user is let in by the same password as `before`.
    fn keeps(&self, user: &str, before: &Self) -> bool {
        let [now, then] =
            [self, before].map(|it| it.hashes.get(user).map(|hash| hash.text.expose_secret()));
        now == then
    }

    /// Whether the password was found right before.
    fn remembers(&self, login: &Login) -> bool {
        let tags = self.verified.tags.load();
        let known = self.verified.key.as_ref().zip(tags.get(&login.user));
        known.is_some_and(|(key, tag)| {
            hmac::verify(key, login.password.expose_secret(), tag.as_ref()).is_ok()
        })
    }

    /// Whether it is this user's password; takes a core for as long as its hash is meant to.
    fn verify(&self, login: &Login) -> bool {
        let own = self.hashes.get(&login.user);
        let Some(hash) = own.or(self.costliest.as_ref()) else { return false };
        let password = login.password.expose_secret();
        let right = bcrypt::verify(password, hash.text.expose_secret()).unwrap_or(false);
        let right = right && own.is_some();
        let most = self.costliest.as_ref().map_or(0, |hash| hash.cost);
        if !right {
            // Each step doubles the work, so that these add up to what is missing of the most:
            // how long a refusal takes says nothing of whether there is such a user.
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

/// Lets a request in if it may ask, and gives every answer the headers of the file.
pub(in super::super) async fn admit(
    State(web): State<Web>,
    mut request: Request,
    next: Next,
) -> Response {
    let in_force = web.in_force().await;
    let connection = request.extensions().get::<Connection>().copied();
    let owner = connection.is_some_and(|it| it.peer.is_owner());
    let anyone = owner || in_force.users.is_empty() || OPEN.contains(&request.uri().path());
    let login = login(request.headers()).filter(|_| !anyone);
    let asker = login.as_ref().map(|login| Asker(login.user.clone()));
    let unknown = Peer::Tcp(Ipv4Addr::UNSPECIFIED.into());
    let from = connection.map_or(unknown, |it| it.peer);
    let may_ask = if anyone { Ok(()) } else { may_ask(&web, &in_force, login, from).await };
    let mut response = match may_ask {
        Ok(()) => {
            if let Some(asker) = asker.clone() {
                request.extensions_mut().insert(asker);
            }
            request.extensions_mut().insert(Arc::clone(&in_force));
            let response = next.run(request).await;
            match asker {
                Some(Asker(user)) => response.map(|body| while_let_in(body, user, &web, &in_force)),
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

/// A body that goes on for as long as its reader may ask; whole ones are told at once anyway.
fn while_let_in(body: Body, user: String, web: &Web, before: &Arc<InForce>) -> Body {
    if body.size_hint().exact().is_some() {
        return body;
    }
    let (web, before) = (web.clone(), Arc::clone(before));
    let struck_out = async move {
        loop {
            time::sleep(LOOK).await;
            let now = web.in_force().await;
            if !Arc::ptr_eq(&now, &before) && !now.users.keeps(&user, &before.users) {
                return;
            }
        }
    };
    Body::from_stream(body.into_data_stream().take_until(Box::pin(struck_out)))
}

/// Why somebody may not ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    /// There is no such user with this password.
    Nobody,
    /// Of a longer password, or one with a zero byte, bcrypt takes a part for the whole.
    Unfit,
    /// Too many passwords wait to be checked.
    Crowd,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let wanted = HeaderValue::from_static("Basic realm=\"recliner\", charset=\"UTF-8\"");
        let asks = [(header::WWW_AUTHENTICATE, wanted)];
        match self {
            Self::Nobody => {
                let says = "recliner wants a user and a password\n";
                (StatusCode::UNAUTHORIZED, asks, says).into_response()
            }
            Self::Unfit => {
                let says = format!(
                    "a password has at most {LONGEST} bytes, and none is zero: bcrypt takes no others\n"
                );
                (StatusCode::UNAUTHORIZED, asks, says).into_response()
            }
            Self::Crowd => {
                let says = "too many passwords wait to be checked; try again\n";
                let again = [(header::RETRY_AFTER, HeaderValue::from_static("1"))];
                (StatusCode::TOO_MANY_REQUESTS, again, says).into_response()
            }
        }
    }
}

async fn may_ask(
    web: &Web,
    in_force: &Arc<InForce>,
    login: Option<Login>,
    from: Peer,
) -> Result<(), Refused> {
    let login = login.ok_or(Refused::Nobody)?;
    let password = login.password.expose_secret();
    if password.len() > LONGEST || password.contains(&0) {
        return Err(Refused::Unfit);
    }
    if in_force.users.remembers(&login) {
        return Ok(());
    }
    let checks = web.checks().ok_or(Refused::Nobody)?;
    let turn = checks.turn(from.shared()).await.ok_or(Refused::Crowd)?;
    let in_force = Arc::clone(in_force);
    let verified = tokio::task::spawn_blocking(move || {
        // The turn ends with the work, not with the client's patience.
        let _turn = turn;
        in_force.users.verify(&login)
    });
    // A task that was lost found nothing.
    if verified.await.unwrap_or(false) { Ok(()) } else { Err(Refused::Nobody) }
}

/// The login of the one `Authorization` header.
fn login(headers: &HeaderMap) -> Option<Login> {
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
    Some(Login { user, password })
}
