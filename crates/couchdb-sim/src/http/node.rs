//! Routes below `/_node/{node}` that the node's own interface answers.

use super::{
    answer::{Answer, Routed, error, json, not_found, wrong_method},
    ask::ParsedRequest,
    backend, login, system,
};
use crate::{cluster::Inner, config::V3_4_0};
use http::Method;
use serde_json::{Value, json as value};

/// Routes of a node, as answered by the node that received the request.
pub(super) fn route(inner: &mut Inner, ask: &ParsedRequest, node: &str, rest: &[&str]) -> Routed {
    let metrics = matches!(rest, ["_system" | "_prometheus" | "_stats", ..]);
    if let Some(refused) = ask.admin_only().filter(|_| !(metrics && ask.login.reads_metrics())) {
        return refused.into();
    }
    let entry = inner.world.version_of(&ask.node);
    // The node in this path is ignored, even if it is down or unknown.
    if rest == ["_smoosh", "status"] && entry >= V3_4_0 {
        return smoosh_status(inner, ask).into();
    }
    let local = node == "_local";
    let node = if local { ask.node.clone() } else { node.to_owned() };
    let given_up = inner.planned.is_given_up(&node, inner.world.now());
    match inner.world.node_up(&node).map(|up| up && !given_up) {
        None => return not_found(&format!("no such node: {node}")).into(),
        Some(false) => return error(412, "nodedown", &format!("{node} is down")).into(),
        Some(true) => {}
    }
    match rest {
        [] if local => json(200, &value!({"name": node})).into(),
        ["_config", rest @ ..] => config(inner, ask, &node, rest).into(),
        ["_prometheus"] => system::prometheus(inner, &node).into(),
        ["_system"] => system::system(inner, &node).into(),
        ["_stats", "fsync", "count"] => {
            let value = inner.world.flushes(&node);
            let desc = "number of fsync calls";
            json(200, &value!({"value": value, "type": "counter", "desc": desc})).into()
        }
        rest => behind(inner, ask, &node, rest),
    }
}

/// Routes through the node's older interface, which checks the login again, by cookie or password.
fn behind(inner: &mut Inner, ask: &ParsedRequest, node: &str, rest: &[&str]) -> Routed {
    let checks = login::checks(inner, node, ask.wall_start, true);
    let now = inner.world.now();
    let login = inner.access.login(node, &ask.shown, &checks, now);
    match rest {
        ["_session"] if ask.method == Method::GET => {
            super::server::session(inner, &ask.passed_on(node, login)).behind().into()
        }
        // Public in the older interface.
        ["_all_dbs"] => backend::route(inner, ask, node, rest),
        _ if !login.is_admin() => {
            error(401, "unauthorized", "You are not a server admin.").behind().into()
        }
        rest => backend::route(inner, ask, node, rest),
    }
}

fn smoosh_status(inner: &Inner, ask: &ParsedRequest) -> Answer {
    if ask.method != Method::GET {
        return wrong_method("GET");
    }
    let channels: serde_json::Map<String, Value> = inner
        .world
        .smoosh_status(&ask.node)
        .into_iter()
        .map(|(channel, waiting)| {
            let number = |value: f64| if value == 0.0 { 0.into() } else { value!(value) };
            let size = waiting.size;
            let channel_status = value!({
                "active": waiting.active,
                "starting": 0,
                "waiting": {"size": size, "min": number(waiting.min), "max": number(waiting.max)},
            });
            (<&str>::from(channel).to_owned(), channel_status)
        })
        .collect();
    json(200, &value!({"channels": channels}))
}

fn config(inner: &mut Inner, ask: &ParsedRequest, node: &str, rest: &[&str]) -> Answer {
    let unknown = || not_found("unknown_config_value");
    match (ask.method.as_str(), rest) {
        ("GET", []) => json(200, &inner.world.settings(node)),
        ("GET", [section]) => {
            let empty = std::collections::BTreeMap::new();
            json(200, inner.world.section(node, section).unwrap_or(&empty))
        }
        ("GET", [section, key]) => {
            inner.world.setting(node, section, key).map_or_else(unknown, |value| json(200, &value))
        }
        ("PUT", [section, key]) => match serde_json::from_slice(&ask.body) {
            Ok(Value::String(new)) => {
                // The old value of an unset key is empty.
                let old = match ask.persists {
                    true => inner.world.set(node, section, key, &new),
                    false => inner.world.set_until_restart(node, section, key, &new),
                };
                json(200, &old.unwrap_or_default())
            }
            Ok(_) => error(400, "bad_request", "a JSON string expected"),
            Err(_) => error(400, "bad_request", "invalid UTF-8 JSON"),
        },
        ("DELETE", [section, key]) => {
            let old = match ask.persists {
                true => inner.world.unset(node, section, key),
                false => inner.world.reset(node, section, key),
            };
            old.map_or_else(unknown, |old| json(200, &old))
        }
        _ => wrong_method("GET,PUT,DELETE"),
    }
}
