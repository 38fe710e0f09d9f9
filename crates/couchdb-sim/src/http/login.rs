//! The login of a request: the credentials it carries, and how a node checks them.

use super::{
    answer::{Answer, error},
    ask::ParsedRequest,
};
use crate::{
    access::{Checks, Login, Shown},
    cluster::Inner,
    config::V3_4_0,
    session::{self, Keeping},
};
use bytes::Bytes;

/// The name and password in the body of a request that begins a session.
pub(super) fn credentials_in_body(parts: &http::request::Parts, body: &Bytes) -> Shown {
    let kind = parts.headers.get(http::header::CONTENT_TYPE);
    match session::form(kind.and_then(|kind| kind.to_str().ok()), body) {
        Ok(given) => Shown { password: Some(given), session: None },
        Err(_) => Shown::default(),
    }
}

/// The rules by which a node checks a login; `behind`: for requests that another node forwarded.
pub(super) fn checks(inner: &Inner, node: &str, wall_start: u64, behind: bool) -> Checks {
    let version = inner.world.version_of(node);
    let set = |section: &str, key: &str| inner.world.setting(node, section, key);
    let usual = Keeping::default();
    let handlers = set(if behind { "httpd" } else { "chttpd" }, "authentication_handlers");
    let sessions = Keeping {
        secret: set("chttpd_auth", "secret").map_or(usual.secret, str::to_owned),
        timeout: set("chttpd_auth", "timeout")
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or(usual.timeout),
        reads_cookies: handlers.is_none_or(|all| all.contains("cookie_authentication_handler")),
    };
    let lockout = !behind && version >= V3_4_0;
    Checks { lockout, sessions, wall: wall_start.saturating_add(inner.world.now().as_secs()) }
}

/// The response to a missing or wrong login; `None`: the request may proceed.
pub(super) fn turned_away(inner: &Inner, ask: &ParsedRequest) -> Option<Answer> {
    match ask.login {
        Login::Wrong => Some(error(401, "unauthorized", "Name or password is incorrect.")),
        Login::Locked => {
            let reason = "Account is temporarily locked due to multiple authentication failures";
            Some(error(403, "forbidden", reason))
        }
        Login::Anonymous => {
            let is_set = |key| inner.world.setting(&ask.node, "chttpd", key) == Some("true");
            let but_up = is_set("require_valid_user_except_for_up");
            let strict = is_set("require_valid_user");
            // Anyone may try to log in.
            let open = match ask.segments.as_slice() {
                [first] if first == "_session" => ask.method == http::Method::POST,
                [first] if first == "_up" => but_up,
                _ => false,
            };
            ((strict || but_up) && !open)
                .then(|| error(401, "unauthorized", "Authentication required."))
        }
        Login::As { .. } => None,
    }
}
