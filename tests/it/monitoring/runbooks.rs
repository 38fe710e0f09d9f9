//! The runbooks: a section for every alert, and only names that exist.

use super::{
    promql,
    rules::{ALERTS, alerts, unknown_names},
};
use crate::docs::command_line::wrong_with;
use std::collections::{BTreeMap, BTreeSet};

const RUNBOOKS: &str = include_str!("../../../docs/src/alerts.md");
const METRICS: &str = include_str!("../../../docs/src/metrics.md");

/// The sections under second-level headings, by heading.
fn sections() -> BTreeMap<&'static str, &'static str> {
    let parts = RUNBOOKS.split("\n## ").skip(1);
    parts.filter_map(|part| part.split_once('\n')).collect()
}

/// The lines of the code blocks in this language.
fn code(text: &'static str, language: &str) -> Vec<&'static str> {
    let blocks = text.split("\n```").skip(1).step_by(2);
    let blocks = blocks.filter_map(|block| block.split_once('\n'));
    blocks.filter(|(said, _)| *said == language).flat_map(|(_, lines)| lines.lines()).collect()
}

#[test]
fn alerts_and_runbooks_match_one_to_one() {
    let alerts = alerts();
    let named: BTreeSet<&str> = alerts.keys().map(String::as_str).collect();
    let written: BTreeSet<&str> =
        sections().into_keys().filter(|heading| heading.starts_with("Recliner")).collect();
    assert_eq!(written, named);
    let page = "http://127.0.0.1:10984/docs/alerts.html";
    for (name, rule) in &alerts {
        // A heading's anchor is the heading in lower case.
        let leads = format!("{page}#{}", name.to_lowercase());
        assert_eq!(rule.annotations["runbook_url"], leads);
    }
    assert_eq!(ALERTS.matches("runbook_url:").count(), alerts.len());
}

/// An alert only reports a condition; if a rule of advice knows the commands, the alert links to it.
#[test]
fn alerts_link_to_advice_with_the_remedy() {
    let page = "http://127.0.0.1:10984/docs/advice.html#";
    let mut led = 0;
    for (name, rule) in &alerts() {
        let Some(url) = rule.annotations.get("advice_url") else { continue };
        let code = url.strip_prefix(page).unwrap_or_else(|| panic!("{name}: {url}"));
        let has_rule = recliner::advice::rule_of_code(code).is_some();
        assert!(has_rule || code == "{{ $labels.code }}", "{name}: {code}");
        let text = sections()[name.as_str()];
        let link = if has_rule { format!("advice.md#{code}") } else { "advice.md".to_owned() };
        assert!(text.contains(&link), "{name}: the runbook does not name {code}");
        led += 1;
    }
    assert_eq!(ALERTS.matches("advice_url:").count(), led);
    assert!(led > 10, "{led}");
}

#[test]
fn every_section_has_meaning_check_and_action() {
    for (name, text) in sections().into_iter().filter(|(name, _)| name.starts_with("Recliner")) {
        let parts = ["**Means.**", "**Check.**", "**Do.**"];
        let places = parts.map(|part| text.find(part));
        assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{name}: {places:?}");
        let checks = ["promql", "sh"].iter().any(|language| !code(text, language).is_empty());
        assert!(checks, "{name} has no command and no query to check by");
    }
}

#[test]
fn runbook_queries_name_existing_series() {
    let queries = [code(RUNBOOKS, "promql"), code(METRICS, "promql")].concat();
    assert!(queries.len() > 10, "queries are found: {queries:?}");
    for query in queries {
        let expression = query.split(" #").next().unwrap_or_default();
        let reading = promql::read(expression).unwrap_or_else(|why| panic!("{query}: {why}"));
        let wrong = unknown_names(&reading);
        assert!(wrong.is_empty(), "{query}\n{wrong:#?}");
    }
}

#[test]
fn runbooks_use_only_commands_that_exist() {
    let lines = code(RUNBOOKS, "sh");
    assert!(lines.iter().any(|line| line.starts_with("curl ")), "commands are found: {lines:?}");
    let wrong: Vec<String> = lines.iter().filter_map(|line| wrong_with(line)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn runbooks_name_existing_metrics() {
    let words = RUNBOOKS.split(|c: char| !(c.is_ascii_alphanumeric() || "_:".contains(c)));
    for word in words.filter(|word| word.contains("recliner_")) {
        let reading = promql::read(word).expect("a name is an expression");
        assert_eq!(unknown_names(&reading), [""; 0], "{word}");
    }
}
