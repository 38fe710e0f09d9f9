//! The current configuration next to its defaults.

use super::{
    Page, Part, Screen,
    cells::{ago, name, with_code},
};
use crate::serve::report::ConfigLine;
use maud::{Markup, html};
use serde_json::Value;
use wall_clock::Moment;

/// The page at `/configuration`. The caller has replaced secrets.
pub(in crate::serve) fn configuration(
    shown: &Value,
    defaults: &Value,
    state: &ConfigLine,
    now: Moment,
) -> Page {
    let mut lines = Vec::new();
    collect("", shown, &mut lines);
    let changed = |key: &str, value: &str| {
        let mut default_lines = Vec::new();
        collect("", defaults, &mut default_lines);
        default_lines
            .iter()
            .find(|(name, _)| name == key)
            .map(|(_, default)| default.clone())
            .filter(|default| default != value)
    };
    let list = html! {
        p { "Loaded " (ago(&state.loaded_at, now)) "."
            @if !state.last_reload_successful { span.bad { " The last reload did not take effect." } }
            @if !state.needs_restart.is_empty() { span.warn { " A restart is needed for " (state.needs_restart.join(", ")) "." } } }
        @if let Some(problem) = &state.web_problem { p.banner { (with_code(problem)) } }
        p { "Each key is explained " a href="docs/configuration.html" { "in the book" } "; " a href="api/v1/config" { "as JSON" } "." }
        div.wide tabindex="0" role="region" aria-label="Configuration" { table {
            thead { tr { th { "key" } th { "value" } th { "default, where it differs" } } }
            tbody { @for (key, value) in &lines { (row(key, value, changed(key, value), state)) } }
        } }
    };
    Page::live(Screen::Configuration, "Configuration", vec![Part::new("list", list)])
}

fn row(key: &str, value: &str, default: Option<String>, state: &ConfigLine) -> Markup {
    let waits = state.needs_restart.iter().any(|waiting| key.starts_with(&**waiting));
    html! { tr {
        td.named { code { (name(key)) } @if waits { span.warn { " after a restart" } } }
        td { code { (name(value)) } }
        td { @if let Some(default) = default { code { (name(&default)) } } }
    } }
}

/// Every leaf of a configuration with its path; lists of plain values are one leaf.
fn collect(path: &str, value: &Value, out: &mut Vec<(String, String)>) {
    let under = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                collect(&under(key), value, out);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            for (at, item) in items.iter().enumerate() {
                let named = item.get("name").and_then(Value::as_str);
                let key = named.map_or_else(|| at.to_string(), ToOwned::to_owned);
                collect(&under(&key), item, out);
            }
        }
        Value::String(text) => out.push((path.to_owned(), text.clone())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => {
            out.push((path.to_owned(), value.to_string()));
        }
    }
}
