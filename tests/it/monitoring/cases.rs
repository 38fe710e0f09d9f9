//! Test cases of every alert for promtool; no alert lacks one.

use super::{
    catalogue::{OF_THE_SCRAPE, exported, of_prometheus},
    promql,
    rules::{ALERTS, RECORDING, alerts, groups},
    tools::{self, PROMTOOL},
};
use futures::{StreamExt as _, stream};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "rule_files")]
    _rule_files: Vec<String>,
    #[serde(rename = "evaluation_interval")]
    _evaluation_interval: String,
    #[serde(rename = "group_eval_order")]
    order: Vec<String>,
    tests: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(rename = "interval")]
    _interval: String,
    input_series: Vec<Input>,
    #[serde(default)]
    alert_rule_test: Vec<Look>,
    #[serde(default)]
    promql_expr_test: Vec<yaml_serde::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    series: String,
    #[serde(rename = "values")]
    _values: String,
}

/// The alerts expected at one moment.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Look {
    eval_time: String,
    alertname: String,
    #[serde(default)]
    exp_alerts: Vec<Expected>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    exp_labels: BTreeMap<String, String>,
    exp_annotations: BTreeMap<String, String>,
}

impl Look {
    fn at(&self) -> Duration {
        humantime::parse_duration(&self.eval_time).expect("a time is a duration")
    }
}

/// Files with cases of single alerts, and under `stories` whole days that exercise every alert.
fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("alerts/tests");
    let all = [dir.clone(), dir.join("stories")];
    let entries = all.iter().flat_map(|dir| fs::read_dir(dir).expect("cases are there"));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("cases are readable").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .collect();
    files.sort();
    files
}

fn read() -> Vec<File> {
    let text = |path: PathBuf| fs::read_to_string(path).expect("cases are readable");
    let read = |text: String| yaml_serde::from_str(&text).expect("they are promtool's");
    files().into_iter().map(text).map(read).collect()
}

fn cases() -> Vec<Case> {
    read().into_iter().flat_map(|file| file.tests).collect()
}

/// Otherwise promtool evaluates groups in any order, and an alert may see values recorded one
/// interval earlier.
#[test]
fn recording_rules_are_evaluated_before_alerts() {
    let groups = groups(RECORDING).into_iter().chain(groups(ALERTS));
    let names: Vec<String> = groups.map(|group| group.name).collect();
    for file in read() {
        assert_eq!(file.order, names);
    }
}

/// Whether a rule may have a result if only series of these names exist.
fn may_yield(expr: &str, names: &BTreeSet<String>) -> bool {
    let there = |name: &str| name.is_empty() || name.starts_with("ALERTS") || names.contains(name);
    promql::may_yield(expr, &there).unwrap_or_else(|why| panic!("{expr}: {why}"))
}

/// The rules in two files, without those that cannot have a result if only these series, and series
/// recorded from them, exist.
fn reachable_rules(files: [&str; 2], mut names: BTreeSet<String>) -> [String; 2] {
    let mut files =
        files.map(|text| yaml_serde::from_str::<yaml_serde::Value>(text).expect("rules are YAML"));
    let all: Vec<_> =
        [RECORDING, ALERTS].into_iter().flat_map(groups).flat_map(|it| it.rules).collect();
    loop {
        let before = names.len();
        let live = all.iter().filter(|rule| may_yield(&rule.expr, &names));
        let recorded: Vec<String> = live.filter_map(|rule| rule.record.clone()).collect();
        names.extend(recorded);
        if names.len() == before {
            break;
        }
    }
    for file in &mut files {
        let groups = file["groups"].as_sequence_mut().expect("rules are in groups");
        for group in groups {
            let rules = group["rules"].as_sequence_mut().expect("a group has rules");
            rules.retain(|rule| may_yield(rule["expr"].as_str().expect("an expression"), &names));
        }
    }
    files.map(|file| yaml_serde::to_string(&file).expect("it was YAML"))
}

/// Splits a file of cases into files in a folder, each with the rules that its series can reach,
/// because promtool takes as long for a rule without a result. Returns their paths.
pub(crate) fn split_by_reachable_rules(
    cases: &str,
    [recording, alerts]: [&str; 2],
    folder: &Path,
) -> Vec<String> {
    let mut whole: yaml_serde::Value = yaml_serde::from_str(cases).expect("cases are YAML");
    let cases = whole["tests"].as_sequence().expect("a file has cases").clone();
    let mut by_names: BTreeMap<BTreeSet<String>, Vec<yaml_serde::Value>> = BTreeMap::new();
    for case in cases {
        let inputs = case["input_series"].as_sequence().into_iter().flatten();
        let series = inputs.map(|it| it["series"].as_str().expect("a series is text"));
        let names = series.map(|it| it.split('{').next().unwrap_or_default().to_owned());
        by_names.entry(names.collect()).or_default().push(case);
    }
    let mut split = Vec::new();
    for (at, (names, cases)) in by_names.into_iter().enumerate() {
        let write = |name: &str, text: String| {
            let name = format!("{at}-{name}.yaml");
            fs::write(folder.join(&name), text).expect("it is written");
            name
        };
        let [recording, alerts] = reachable_rules([recording, alerts], names);
        let rules = [write("recording", recording), write("alerts", alerts)];
        whole["rule_files"] = rules.map(yaml_serde::Value::from).to_vec().into();
        whole["tests"] = cases.into();
        let name = write("cases", yaml_serde::to_string(&whole).expect("it was YAML"));
        split.push(folder.join(name).display().to_string());
    }
    split
}

#[test]
fn only_rules_that_cannot_have_results_are_left_out() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let some = names(&["a", "b:recorded:max"]);
    for (expr, may) in [
        ("a > 1", true),
        ("max by (x) (c) > 1", false),
        ("max by (x) (c) or a", true),
        ("c unless a", false),
        ("a unless c", true),
        ("a and on (x) c", false),
        ("a / c", false),
        ("a / on (x) group_left () max by (x) (a) * 2", true),
        ("max_over_time((c > 2)[1h:])", false),
        ("time() - c > 3600", false),
        ("b:recorded:max == 0", true),
        ("absent(c)", true),
        ("c or vector(0)", true),
        ("{__name__=~\"c|a\"}", true),
        ("count(ALERTS)", true),
        ("time() > bool 5", true),
    ] {
        assert_eq!(may_yield(expr, &some), may, "{expr}");
    }
    let [recording, alerts] =
        reachable_rules([RECORDING, ALERTS], names(&["recliner_disk_available_bytes"]));
    assert!(
        recording.contains("recliner_disk_available_bytes") && !recording.contains("gate_open")
    );
    assert!(alerts.contains("ReclinerAbsent") && !alerts.contains("ReclinerFeedBehind"));
    let everything = exported().into_keys().chain(of_prometheus().into_keys()).collect();
    let [recording, alerts] = reachable_rules([RECORDING, ALERTS], everything);
    let count = |text: &str| groups(text).iter().map(|it| it.rules.len()).sum::<usize>();
    assert_eq!((count(&recording), count(&alerts)), (count(RECORDING), count(ALERTS)));
}

#[tokio::test]
async fn every_alert_case_passes_in_promtool() {
    if !tools::installed(&[PROMTOOL]) {
        return;
    }
    let run = async |path: PathBuf| {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let cases = fs::read_to_string(&path).expect("cases are readable");
        let split = split_by_reachable_rules(&cases, [RECORDING, ALERTS], folder.path());
        let files = split.iter().map(String::as_str);
        let arguments: Vec<&str> = ["test", "rules"].into_iter().chain(files).collect();
        let ran = tools::run(PROMTOOL, &arguments, "").await;
        assert!(ran.success, "{}: {}", path.display(), ran.said);
    };
    // Each run takes seconds of CPU time: at most one run per core, so that none waits long.
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    stream::iter(files()).for_each_concurrent(cores, run).await;
}

#[test]
fn every_alert_has_firing_pending_and_healthy_cases() {
    let mut lacks: BTreeMap<String, BTreeSet<&str>> =
        alerts().into_keys().map(|name| (name, ["firing", "not yet", "healthy"].into())).collect();
    for case in cases() {
        let looked: BTreeSet<&String> =
            case.alert_rule_test.iter().map(|it| &it.alertname).collect();
        for name in looked {
            let lacks = lacks.get_mut(name).unwrap_or_else(|| panic!("there is no {name}"));
            let looks = case.alert_rule_test.iter().filter(|it| it.alertname == *name);
            let (fires, rests): (Vec<&Look>, Vec<&Look>) =
                looks.partition(|look| !look.exp_alerts.is_empty());
            let first = fires.iter().map(|look| look.at()).min();
            if let Some(first) = first {
                lacks.remove("firing");
                if rests.iter().any(|look| look.at() < first) {
                    lacks.remove("not yet");
                }
            } else if !case.input_series.is_empty() {
                lacks.remove("healthy");
            }
        }
    }
    lacks.retain(|_, lacks| !lacks.is_empty());
    assert!(lacks.is_empty(), "alerts without such a case: {lacks:#?}");
}

#[test]
fn cases_name_existing_series_and_expect_complete_alerts() {
    let mut known = exported();
    known.extend(of_prometheus());
    let alerts = alerts();
    for case in cases() {
        assert!(!case.alert_rule_test.is_empty() || !case.promql_expr_test.is_empty());
        for input in &case.input_series {
            let reading = promql::read(&input.series).expect("a series is a selector");
            let [selector] = &*reading.selectors else { panic!("{}", input.series) };
            let series = known.get(&selector.name);
            let series = series.unwrap_or_else(|| panic!("{}: no {}", case.name, selector.name));
            let labels: BTreeSet<String> = (selector.matchers.iter())
                .map(|matcher| matcher.label.clone())
                .filter(|label| !OF_THE_SCRAPE.contains(&label.as_str()))
                .collect();
            assert_eq!(labels, series.labels, "{}: {}", case.name, input.series);
        }
        let looks = case.alert_rule_test.iter();
        let expected = looks.flat_map(|look| look.exp_alerts.iter().map(move |it| (look, it)));
        for (look, expected) in expected {
            assert!(expected.exp_labels.contains_key("severity"), "{}", case.name);
            let all = alerts[&look.alertname].annotations.len();
            assert_eq!(expected.exp_annotations.len(), all, "{}", case.name);
            let texts = expected.exp_annotations.values();
            assert!(texts.clone().all(|text| !text.contains("<no value>")), "{}", case.name);
        }
    }
}
