//! The bundled rules: valid for Prometheus, following the conventions of mixins, and consistent
//! with recliner's exports.

use super::{
    catalogue::{OF_THE_SCRAPE, Series, exported, of_prometheus},
    promql::{self, Reading},
    tools::{self, PROMTOOL},
};
use metrics_text::MetricType;
use recliner::{
    model::{channel::Mode, records::JobResult},
    plan::RefusalReason,
    text::Label,
};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

pub(crate) const RECORDING: &str = include_str!("../../../alerts/recording.yaml");
pub(crate) const ALERTS: &str = include_str!("../../../alerts/alerts.yaml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    groups: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) rules: Vec<Rule>,
}

/// A recording rule or an alert.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    pub(crate) record: Option<String>,
    pub(crate) alert: Option<String>,
    pub(crate) expr: String,
    #[serde(rename = "for")]
    pub(crate) hold: Option<String>,
    #[serde(rename = "keep_firing_for")]
    _keep: Option<String>,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) annotations: BTreeMap<String, String>,
}

pub(crate) fn groups(text: &str) -> Vec<Group> {
    yaml_serde::from_str::<File>(text).expect("rules are YAML").groups
}

/// Every alert, by name.
pub(crate) fn alerts() -> BTreeMap<String, Rule> {
    let rules = groups(ALERTS).into_iter().flat_map(|group| group.rules);
    rules.map(|rule| (rule.alert.clone().expect("the file has only alerts"), rule)).collect()
}

/// Every recorded series: the level in its name gives its labels.
pub(crate) fn recorded() -> BTreeMap<String, Series> {
    let rules = groups(RECORDING).into_iter().flat_map(|group| group.rules);
    let names = rules.map(|rule| rule.record.expect("the file has only recording rules"));
    let series = |name: &str| {
        let level = name.split(':').next().unwrap_or_default();
        let labels = level.split('_').map(str::to_owned);
        Series { metric_type: MetricType::Gauge, labels: labels.collect() }
    };
    names.map(|name| (name.clone(), series(&name))).collect()
}

/// Unknown names in an expression: series, labels, and values of closed sets.
pub(crate) fn unknown_names(reading: &Reading) -> Vec<String> {
    let mut known = exported();
    known.extend(recorded());
    known.extend(of_prometheus());
    let mut wrong = Vec::new();
    let mut labels: BTreeSet<&str> = OF_THE_SCRAPE.into();
    for selector in &reading.selectors {
        let Some(series) = known.get(&selector.name) else {
            wrong.push(format!("there is no {:?}", selector.name));
            continue;
        };
        labels.extend(series.labels.iter().map(String::as_str));
        for matcher in &selector.matchers {
            let label = matcher.label.as_str();
            if !series.labels.contains(label) && !OF_THE_SCRAPE.contains(&label) {
                wrong.push(format!("{} has no label {label}", selector.name));
            }
            let Some(closed) = closed_set(label) else { continue };
            let values = matcher.value.split('|').filter(|value| !closed.contains(value));
            wrong.extend(values.map(|value| format!("{label} is never {value:?}")));
        }
    }
    let unknown = reading.labels.iter().filter(|label| !labels.contains(label.as_str()));
    wrong.extend(unknown.map(|label| format!("nothing there has a label {label}")));
    wrong
}

/// All values of a label whose values are a closed set.
fn closed_set(label: &str) -> Option<BTreeSet<&'static str>> {
    let labels = match label {
        "mode" => Mode::labels(),
        "gate" => RefusalReason::gates().map(Label::label).collect(),
        "result" => JobResult::labels(),
        "decision" => [RefusalReason::labels(), vec!["start"]].concat(),
        _ => return None,
    };
    Some(labels.into_iter().collect())
}

fn read(rule: &Rule) -> Reading {
    promql::read(&rule.expr).unwrap_or_else(|why| panic!("{}: {why}", rule.expr))
}

fn all_rules() -> Vec<Rule> {
    let both = groups(RECORDING).into_iter().chain(groups(ALERTS));
    both.flat_map(|group| group.rules).collect()
}

#[tokio::test]
async fn promtool_accepts_the_rules_without_warnings() {
    if !tools::installed(&[PROMTOOL]) {
        return;
    }
    for file in ["alerts/recording.yaml", "alerts/alerts.yaml"] {
        let words = ["check", "rules", "--lint=all", "--lint-fatal", file];
        let ran = tools::run(PROMTOOL, &words, "").await;
        assert!(ran.success, "{}", ran.said);
    }
}

#[test]
fn rules_name_existing_series_and_labels() {
    for rule in all_rules() {
        let wrong = unknown_names(&read(&rule));
        assert!(wrong.is_empty(), "{}\n{wrong:#?}", rule.expr);
    }
}

#[test]
fn series_exported_by_two_processes_count_once() {
    let exported = exported();
    for rule in all_rules() {
        for selector in read(&rule).selectors {
            let Some(series) = exported.get(&selector.name) else { continue };
            let summed = selector.aggregations.iter().any(|it| it == "sum");
            let first = selector.aggregations.last().map(String::as_str);
            let once = matches!(first, Some("max" | "min" | "count"));
            let own = series.metric_type == MetricType::Counter;
            assert!(own || !summed || once, "{} is summed raw: {}", selector.name, rule.expr);
            if own {
                let function = selector.function;
                let ranged = matches!(function, Some("rate" | "increase"));
                assert!(ranged, "the counter {} is read as a gauge", selector.name);
            }
        }
    }
}

#[test]
fn recording_rules_are_named_by_level_metric_and_operation() {
    for (name, _) in recorded() {
        let parts: Vec<&str> = name.split(':').collect();
        let sound = |part: &str| {
            !part.is_empty()
                && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        assert!(parts.len() == 3 && parts.iter().all(|part| sound(part)), "{name}");
    }
    for rule in groups(RECORDING).into_iter().flat_map(|group| group.rules) {
        assert!(rule.labels.is_empty() && rule.annotations.is_empty() && rule.hold.is_none());
    }
}

#[test]
fn groups_are_named_and_small() {
    for group in groups(RECORDING).into_iter().chain(groups(ALERTS)) {
        assert!(group.name.len() <= 40 && group.rules.len() <= 20, "{}", group.name);
    }
}

/// Whether a name is in camel case: `^([A-Z]+[a-z0-9]+)+$`, one capital per word.
fn is_camel_case(name: &str) -> bool {
    let capitals = name.match_indices(|c: char| c.is_ascii_uppercase());
    let starts: Vec<usize> = capitals.map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([name.len()]);
    starts.first() == Some(&0)
        && name.chars().all(|c| c.is_ascii_alphanumeric())
        && starts.iter().zip(ends).all(|(start, end)| end - start > 1)
}

/// Checks an alert's link to a dashboard against the existing dashboards, their variables, and the
/// alert's labels.
fn assert_links_to_a_board(name: &str, rule: &Rule) {
    let url = &rule.annotations["dashboard_url"];
    let place = url.strip_prefix("http://127.0.0.1:3000/d/");
    let place = place.unwrap_or_else(|| panic!("{name} leads to {url}"));
    let uid = place.split(['?', '{']).next().unwrap_or_default();
    let board = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("dashboards/{uid}.json"));
    let board = fs::read_to_string(board).unwrap_or_else(|why| panic!("{name}: {uid}: {why}"));
    let board: serde_json::Value = serde_json::from_str(&board).expect("a board is JSON");
    assert_eq!(board["uid"], uid, "{name}");
    let variables = board["templating"]["list"].as_array().expect("it has variables");
    let mut set = 0;
    for (at, _) in place.match_indices("var-") {
        let (variable, value) = place[at + 4..].split_once('=').expect("a variable has a value");
        assert!(
            variables.iter().any(|it| it["name"] == variable),
            "{name}: {uid} has no {variable}"
        );
        // A label that the alert may lack is set only if it exists.
        let (before, _) = place.split_at(at);
        let optional = format!("{{{{ with $labels.{variable} }}}}");
        let is_optional = before.trim_end_matches(['?', '&']).ends_with(&optional);
        let label = if is_optional { "{{ . |" } else { &*format!("{{{{ $labels.{variable} |") };
        assert!(value.starts_with(label), "{name}: {variable} is {value}");
        assert!(is_optional || variable != "cluster", "{name}: a cluster may have no label");
        set += 1;
    }
    assert!(set > 0, "{name} links to a board without setting a variable");
}

#[test]
fn alerts_follow_the_conventions_of_mixins() {
    let keys: BTreeSet<&str> = ["summary", "description", "runbook_url", "dashboard_url"].into();
    let alerts = alerts();
    let all = groups(ALERTS).iter().map(|group| group.rules.len()).sum::<usize>();
    assert_eq!(alerts.len(), all, "alert names are unique");
    for (name, rule) in alerts {
        assert!(name.starts_with("Recliner") && name.len() <= 40, "{name}");
        assert!(is_camel_case(&name), "{name}");
        let severity = rule.labels.get("severity").map(String::as_str);
        assert!(matches!(severity, Some("critical" | "warning" | "info")), "{name}: {severity:?}");
        assert_eq!(rule.labels.len(), 1, "{name}");
        assert!(rule.hold.is_some(), "{name} fires on a single evaluation");
        let mut has: BTreeSet<&str> = rule.annotations.keys().map(String::as_str).collect();
        has.remove("advice_url");
        assert_eq!(has, keys, "{name}");

        assert_links_to_a_board(&name, &rule);
        let summary = &rule.annotations["summary"];
        assert!(summary.ends_with('.') && !summary.contains("{{"), "{name}: {summary}");
        let reading = read(&rule);
        let known = exported().into_iter().chain(recorded()).chain(of_prometheus());
        let selected: BTreeSet<String> = known
            .filter(|(name, _)| reading.selectors.iter().any(|it| it.name == *name))
            .flat_map(|(_, series)| series.labels)
            .chain(OF_THE_SCRAPE.map(str::to_owned))
            .collect();
        let description = &rule.annotations["description"];
        assert!(!description.contains('\n'), "{name}: {description}");
        let named: Vec<&str> = description
            .split("$labels.")
            .skip(1)
            .filter_map(|rest| rest.split(|c: char| !(c.is_alphanumeric() || c == '_')).next())
            .collect();
        assert!(!named.is_empty(), "{name} does not say where: {description}");
        let lacks = named.iter().find(|label| !selected.contains(**label));
        assert_eq!(lacks, None, "{name} has no such label");
        // An absent series has no value, and the value of a series at 0 adds nothing.
        let condition = rule.expr.split(" unless ").next().unwrap_or_default();
        let silent = condition.starts_with("absent(") || condition.trim_end().ends_with("== 0");
        let valued = description.contains("$value") || silent;
        assert!(valued, "{name} does not say how much: {description}");
    }
}
