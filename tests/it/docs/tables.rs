//! The book's tables of metrics, reasons, routes, advice and alerts.

use super::{
    first_cells,
    generated::{codes, hold, sentence, table},
};
use crate::monitoring::rules::{ALERTS, groups};
use recliner::{
    act::warmer::BuildRefusal,
    advice::{FAMILIES, Family, Rule},
    model::score::MissReason,
    plan::{RefusalClass, RefusalReason},
    serve::http::{families, openapi},
    text::Label,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn book_lists_the_metrics() {
    let rows = families::all().map(|family| {
        let kind = family.metric_type.label().to_owned();
        [codes([family.name]), kind, codes(family.labels), family.help.to_owned()]
    });
    hold("metrics.md", &[("metrics", table(["metric", "type", "labels", "meaning"], rows))]);
}

#[test]
fn book_lists_the_refusal_reasons() {
    let misses = MissReason::each().map(|it| [codes([it.label()]), it.because().to_owned()]);
    let refusals = RefusalReason::each()
        .map(|it| [codes([it.label()]), it.because().to_owned(), it.ends_when().to_owned()]);
    let waits = RefusalReason::each()
        .filter(|it| it.class() == RefusalClass::InLine && *it != RefusalReason::Duty);
    let waits = format!("{}.", codes(waits.map(RefusalReason::label)));
    let misses = table(["reason", "the channel does not take the target because"], misses);
    let heads = ["reason", "the target does not start because", "it ends when"];
    hold("why.md", &[("misses", misses), ("refusals", table(heads, refusals)), ("waits", waits)]);
}

#[test]
fn book_lists_the_index_build_reasons() {
    let rows = BuildRefusal::each().map(|it| [codes([it.label()]), it.because().to_owned()]);
    let heads = ["reason", "an index that lags is not built because"];
    hold("indexes.md", &[("waits", table(heads, rows))]);
}

#[test]
fn book_lists_the_alerts() {
    let rows = groups(ALERTS).into_iter().flat_map(|group| group.rules).map(|rule| {
        let name = rule.alert.expect("alerts alone are there");
        let after = rule.hold.map_or_else(|| "at once".to_owned(), |hold| format!("`{hold}`"));
        let link = format!("[{name}](#{})", name.to_lowercase());
        [link, codes([&rule.labels["severity"]]), after, rule.annotations["summary"].clone()]
    });
    let heads = ["alert", "severity", "fires after", "meaning"];
    hold("alerts.md", &[("alerts", table(heads, rows))]);
}

#[test]
fn book_lists_the_advice_rules() {
    let rule = |rule: &Rule| {
        let severities = codes(rule.severities.iter().map(|it| it.label()));
        let Rule { code, finds, because, untried, .. } = rule;
        let untried = untried.map_or_else(String::new, |why| {
            format!(" Its remedies were not tried on a real CouchDB: {why}.")
        });
        format!("#### `{code}`\n\n{finds} Severity: {severities}.{untried}\n\n{because}\n\n")
    };
    let family = |family: &Family| {
        let rules: String = family.rules.iter().map(rule).collect();
        format!("### {}\n\n{rules}", family.title)
    };
    let families: String = FAMILIES.iter().map(family).collect();
    hold("advice.md", &[("advice", families)]);
}

/// The meaning of a parameter, and the words it accepts, if they are few.
fn about(document: &Value, parameter: &Value, schema: &Value) -> String {
    let about = sentence(parameter["description"].as_str().unwrap_or_default());
    let schema = if schema["items"].is_object() { &schema["items"] } else { schema };
    // An optional field of a body.
    let schema = if schema["anyOf"].is_array() { &schema["anyOf"][0] } else { schema };
    let name = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next());
    let schema = name.map_or(schema, |name| &document["components"]["schemas"][name]);
    let words: Vec<&str> =
        schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match &words[..] {
        [] => about,
        // The types of events have their own table.
        many if many.len() > 10 => about,
        few => format!("{about} One of {}.", codes(few)),
    }
}

/// The parameters of an operation, or the fields of its body, each with its meaning.
fn parameters<'a>(document: &'a Value, operation: &'a Value) -> Vec<(&'a str, String)> {
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let described = parameters.map(|it| (it["name"].as_str(), about(document, it, &it["schema"])));
    let body = &operation["requestBody"]["content"]["application/json"]["schema"];
    let name = body["$ref"].as_str().and_then(|name| name.rsplit('/').next()).unwrap_or_default();
    let fields = document["components"]["schemas"][name]["properties"].as_object();
    let fields = fields.into_iter().flatten();
    described
        .chain(fields.map(|(name, it)| (Some(name.as_str()), about(document, it, it))))
        .map(|(name, about)| (name.unwrap_or_default(), about))
        .collect()
}

#[test]
fn book_lists_the_routes() {
    let document = openapi(&[]);
    let mut by_tag: BTreeMap<&str, Vec<[String; 3]>> = BTreeMap::new();
    let mut meanings: Vec<(&str, String, Vec<&str>)> = Vec::new();
    for (route, methods) in document["paths"].as_object().expect("it has paths") {
        for (method, operation) in methods.as_object().expect("it has methods") {
            let parameters = parameters(&document, operation);
            let texts = [&operation["summary"], &operation["description"]].map(Value::as_str);
            let about: Vec<&str> = texts.into_iter().flatten().collect();
            let method = method.to_uppercase();
            by_tag.entry(operation["tags"][0].as_str().unwrap_or_default()).or_default().push([
                format!("`{method} {route}`"),
                about.join(" "),
                codes(parameters.iter().map(|(name, _)| *name)),
            ]);
            for (name, about) in parameters {
                match meanings.iter_mut().find(|(known, text, _)| *known == name && *text == about)
                {
                    Some((_, _, routes)) => routes.push(route),
                    None => meanings.push((name, about, vec![route])),
                }
            }
        }
    }
    meanings.sort_by_key(|(name, ..)| *name);
    let meanings =
        meanings.into_iter().map(|(name, about, routes)| [codes([name]), codes(routes), about]);
    let mut tables = Vec::new();
    for (name, last) in [("read", "parameters"), ("order", "body"), ("probe", "parameters")] {
        let rows = by_tag.remove(name).unwrap_or_default();
        tables.push((name, table(["route", "returns", last], rows)));
    }
    assert!(by_tag.is_empty(), "tags without a table: {by_tag:?}");
    tables.push(("parameters", table(["name", "of", "meaning"], meanings)));
    hold("http-api.md", &tables);
}

#[test]
fn book_lists_every_event_type() {
    let document = openapi(&[]);
    let types = document["components"]["schemas"]["EventType"]["enum"].as_array().into_iter();
    let types: BTreeSet<String> =
        types.flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect();
    assert!(types.len() > 5, "the document names types: {types:?}");
    assert_eq!(first_cells("Types of events"), types);
}

/// The documentation of the library crate, from its first heading to its last, as a page of the
/// book: one heading level lower, and with names instead of links to modules.
fn library() -> String {
    let text: String = include_str!("../../../src/lib.rs")
        .lines()
        .map_while(|line| line.strip_prefix("//!"))
        .map(|line| format!("{}\n", line.strip_prefix(' ').unwrap_or(line)))
        .collect();
    let (_, text) = text.split_once("\n# Data flow\n").expect("it shows how data flows");
    let mut rest = format!("# Data flow\n{text}");
    let mut page = String::new();
    while let Some((before, after)) = rest.split_once("[`") {
        let (name, after) = after.split_once("`]").expect("a link ends");
        page.push_str(&format!("{before}`{name}`"));
        let target = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        rest = target.map_or(after, |(_, after)| after).to_owned();
    }
    page.push_str(&rest);
    page.replace("\n# ", "\n## ").replacen("# ", "## ", 1)
}

#[test]
fn book_repeats_the_documentation_of_the_library() {
    hold("architecture.md", &[("library", library())]);
}
