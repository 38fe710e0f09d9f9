//! `recliner mixin` prints the repository's files, and Prometheus accepts its output with other
//! links and another selector too.

use super::recliner;
use crate::monitoring::{
    cases::split_by_reachable_rules,
    rules::{ALERTS, RECORDING},
    tools::{self, PROMTOOL},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

/// Links and a selector that differ from the shipped ones.
const ELSEWHERE: [&str; 6] = [
    "--runbook-url",
    "https://recliner.example/docs/",
    "--dashboard-url",
    "http://127.0.0.1:10984/docs",
    "--selector",
    "job=\"watcher\"",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The output of `mixin` with these arguments.
async fn print_mixin(arguments: &[&str]) -> String {
    let ran = recliner(&[&["mixin"], arguments].concat(), &[]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{arguments:?}");
    ran.out
}

/// The groups of a rule file.
fn groups(text: &str) -> Vec<yaml_serde::Value> {
    let file: yaml_serde::Value = yaml_serde::from_str(text).expect("rules are YAML");
    file["groups"].as_sequence().expect("they are in groups").clone()
}

/// The names of a directory's files with this ending.
fn names(directory: &Path, ending: &str) -> BTreeSet<String> {
    let files = fs::read_dir(directory).expect("it is readable");
    let names = files.map(|file| file.expect("it is readable").file_name().into_string());
    names.map(|name| name.expect("it is UTF-8")).filter(|name| name.ends_with(ending)).collect()
}

#[tokio::test]
async fn printed_rules_equal_the_repository_rules() {
    let both = [groups(RECORDING), groups(ALERTS)].concat();
    assert_eq!(groups(&print_mixin(&["rules"]).await), both);
    assert_eq!(groups(&print_mixin(&["rules", "--format", "prometheus"]).await), both);
    let comments = [RECORDING, ALERTS].map(|file| file.lines().next().unwrap_or_default());
    let printed = print_mixin(&["rules"]).await;
    assert!(comments.iter().all(|comment| printed.lines().any(|line| line == *comment)));
}

#[tokio::test]
async fn written_files_equal_the_repository_files() {
    for (part, from, ending) in
        [("rules", "alerts", ".yaml"), ("dashboards", "dashboards", ".json")]
    {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let out = folder.path().join("made/of/several");
        let ran = recliner(&["mixin", part, "--out", out.to_str().unwrap()], &[]).await;
        assert_eq!((ran.code, ran.out.as_str()), (0, ""), "{ran:?}");
        assert!(ran.err.contains(out.to_str().unwrap()), "{ran:?}");
        let written = names(&out, "");
        assert_eq!(written, names(&root().join(from), ending));
        for name in written {
            assert_eq!(read(out.join(&name)), read(root().join(from).join(&name)), "{name}");
        }
    }
}

#[tokio::test]
async fn prometheus_operator_rules_equal_the_bundled_rules() {
    let path = root().join("deploy/kubernetes/components/prometheus-operator/rules.yaml");
    let printed = print_mixin(&["rules", "--format", "kubernetes"]).await;
    if env::var_os("RECLINER_WRITE").is_some() {
        fs::write(&path, &printed).expect("it is writable");
    }
    assert!(read(path) == printed, "RECLINER_WRITE=1 cargo test --test it operator writes it");
    let documents: Vec<yaml_serde::Value> = yaml_serde::Deserializer::from_str(&printed)
        .map(|document| serde::Deserialize::deserialize(document).expect("valid YAML"))
        .collect();
    let groups =
        documents.iter().flat_map(|it| it["spec"]["groups"].as_sequence().unwrap().clone());
    assert_eq!(
        groups.collect::<Vec<_>>(),
        [self::groups(RECORDING), self::groups(ALERTS)].concat()
    );
}

#[tokio::test]
async fn grafana_sidecar_gets_the_same_dashboards() {
    let printed = print_mixin(&["dashboards", "--format", "kubernetes"]).await;
    assert_eq!(print_mixin(&["dashboards", "--format", "configmaps"]).await, printed);
    let mut files = BTreeSet::new();
    for document in yaml_serde::Deserializer::from_str(&printed) {
        let map: Value = serde::Deserialize::deserialize(document).expect("valid YAML");
        assert_eq!((&map["apiVersion"], &map["kind"]), (&json!("v1"), &json!("ConfigMap")));
        assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
        assert!(map.to_string().len() < 256 << 10, "kubectl apply keeps a copy in an annotation");
        for (file, text) in map["data"].as_object().expect("it has data") {
            let name = map["metadata"]["name"].as_str().expect("it has a name");
            assert_eq!(format!("{name}.json"), *file);
            assert_eq!(text.as_str(), Some(&*read(root().join("dashboards").join(file))));
            files.insert(file.clone());
        }
    }
    assert_eq!(files, names(&root().join("dashboards"), ".json"));
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().to_str().unwrap();
    let words = ["mixin", "dashboards", "--format", "kubernetes", "--out", out];
    assert_eq!(recliner(&words, &[]).await.code, 0);
    assert_eq!(read(folder.path().join("recliner-dashboards.yaml")), printed);
}

#[tokio::test]
async fn rules_use_the_given_links_and_selector() {
    let shipped = print_mixin(&["rules"]).await;
    let rules = print_mixin(&[&["rules"], &ELSEWHERE[..]].concat()).await;
    for (old, new) in [
        ("job=\"recliner\"", "job=\"watcher\""),
        (
            "runbook_url: http://127.0.0.1:10984/docs/",
            "runbook_url: https://recliner.example/docs/",
        ),
        ("advice_url: http://127.0.0.1:10984/docs/", "advice_url: https://recliner.example/docs/"),
        (
            "dashboard_url: http://127.0.0.1:3000/d/",
            "dashboard_url: http://127.0.0.1:10984/docs/d/",
        ),
    ] {
        let count = shipped.matches(old).count();
        assert!(count > 1, "{old}");
        assert_eq!((rules.matches(old).count(), rules.matches(new).count()), (0, count), "{old}");
    }
}

#[tokio::test]
async fn prometheus_accepts_rules_with_other_selectors() {
    if !tools::installed(&[PROMTOOL]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("rules.yaml").display().to_string();
    for selector in [
        "job=\"recliner\"",
        "{job=\"a: b #c\", namespace!=\"\"}",
        r#"job=~"re(cliner|\\d\")+", team="it's \"{ours}\"""#,
    ] {
        fs::write(&file, print_mixin(&["rules", "--selector", selector]).await).unwrap();
        let words = ["check", "rules", "--lint=all", "--lint-fatal", &file];
        let ran = tools::run(PROMTOOL, &words, "").await;
        assert!(ran.success, "{selector}: {}", ran.said);
    }
}

/// The alert cases that select recliner by its job, run with another job and other links.
#[tokio::test]
async fn alerts_fire_by_the_chosen_selector_with_the_chosen_links() {
    if !tools::installed(&[PROMTOOL]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().to_str().expect("a plain path");
    let ran = recliner(&[&["mixin", "rules", "--out", out], &ELSEWHERE[..]].concat(), &[]).await;
    assert_eq!(ran.code, 0, "{ran:?}");
    let mut cases = read(root().join("alerts/tests/process.yaml"));
    for (old, new) in [
        ("job=\"recliner\"", "job=\"watcher\""),
        ("job: recliner", "job: watcher"),
        ("of job recliner", "of job watcher"),
        ("var-job=recliner", "var-job=watcher"),
        ("http://127.0.0.1:10984/docs", "https://recliner.example/docs"),
        ("http://127.0.0.1:3000", "http://127.0.0.1:10984/docs"),
    ] {
        assert!(cases.contains(old), "{old}");
        cases = cases.replace(old, new);
    }
    let rules = ["recording.yaml", "alerts.yaml"].map(|name| read(folder.path().join(name)));
    let split = split_by_reachable_rules(&cases, rules.each_ref().map(|it| &**it), folder.path());
    let files = split.iter().map(String::as_str);
    let arguments: Vec<&str> = ["test", "rules"].into_iter().chain(files).collect();
    let ran = tools::run(PROMTOOL, &arguments, "").await;
    assert!(ran.success, "{}", ran.said);
}

/// Collects every text of a JSON document.
fn texts(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::String(text) => found.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| texts(value, found)),
        Value::Object(values) => values.values().for_each(|value| texts(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[tokio::test]
async fn selector_limits_every_dashboard_query() {
    let selector = r#"job="watcher", team=~"a\\.b""#;
    let all: Value =
        serde_json::from_str(&print_mixin(&["dashboards", "--selector", selector]).await).unwrap();
    let shipped: Value = serde_json::from_str(&print_mixin(&["dashboards"]).await).unwrap();
    for (name, shipped) in shipped.as_object().expect("each has a name") {
        let own: Value = serde_json::from_str(&read(root().join("dashboards").join(name))).unwrap();
        assert_eq!(*shipped, own, "{name}");
        let (mut before, mut after) = (Vec::new(), Vec::new());
        texts(shipped, &mut before);
        texts(&all[name], &mut after);
        let mut limited = 0;
        for (before, after) in before.iter().zip(&after) {
            let by_job = before.matches("job=~\"$job\"").count();
            let added = after.matches(selector).count();
            // The variables before the job choose among recliner's own series.
            let by_build = before.starts_with("label_values(recliner_build_info");
            assert_eq!(added, by_job.max(usize::from(by_build)), "{name}: {after}");
            limited += added;
        }
        assert_eq!(before.len(), after.len());
        assert!(limited > 20, "{name}: {limited} queries");
    }
}

#[tokio::test]
async fn runbook_links_lead_to_the_given_book() {
    let own = read(root().join("docs/src/alerts.md"));
    assert!(own.contains("](#reclinerdown)") || own.contains(".md"), "it has links");
    let shipped = print_mixin(&["runbook"]).await;
    assert!(shipped.contains("\n## ReclinerDown\n"));
    for (text, base) in [
        (shipped, "http://127.0.0.1:10984/docs"),
        (
            print_mixin(&[&["runbook"], &ELSEWHERE[..2]].concat()).await,
            "https://recliner.example/docs",
        ),
    ] {
        let parts = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let links: Vec<&str> = parts.collect();
        let lost = |link: &&&str| !(link.starts_with('#') || link.starts_with("http"));
        assert_eq!(links.iter().filter(lost).count(), 0, "{links:?}");
        let to_the_book = links.iter().filter(|link| link.starts_with(base)).count();
        let relative = [".md)", ".md#", "](images/"].map(|part| own.matches(part).count());
        assert_eq!(to_the_book, relative.iter().sum::<usize>());
        assert_eq!(text.lines().count(), own.lines().count());
    }
    let ours = print_mixin(&["runbook", "--selector", "job=\"watcher\""]).await;
    assert!(!ours.contains("job=\"recliner\"") && ours.contains("up{job=\"watcher\"}"));
}

#[tokio::test]
async fn refuses_flags_that_do_not_fit_the_part() {
    let out: PathBuf = root().join("Cargo.toml/rules");
    for (words, says) in [
        (&["rules", "--selector", "recliner"][..], &["--selector", "such as job="][..]),
        (&["rules", "--runbook-url", "recliner.example"], &["--runbook-url", "write a URL"]),
        (&["rules", "--dashboard-url", "http://{{x}}"], &["--dashboard-url", "write a URL"]),
        (&["dashboards", "--runbook-url", "http://a"], &["--runbook-url", "dashboards"]),
        (&["dashboards", "--dashboard-url", "http://a"], &["--dashboard-url", "dashboards"]),
        (&["dashboards", "--format", "prometheus"], &["--format", "dashboards"]),
        (&["runbook", "--format", "kubernetes"], &["--format", "the runbook"]),
        (&["runbook", "--dashboard-url", "http://a"], &["--dashboard-url", "the runbook"]),
        (&["panels"], &["panels", "dashboards"]),
        (&[], &["<PART>"]),
    ] {
        let ran = recliner(&[&["mixin"], words].concat(), &[]).await;
        assert_eq!((ran.code, ran.out.as_str()), (64, ""), "{ran:?}");
        assert!(says.iter().all(|part| ran.err.contains(part)), "{says:?}: {}", ran.err);
    }
    let ran = recliner(&["mixin", "rules", "--out", out.to_str().unwrap()], &[]).await;
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("cannot write"), "{ran:?}");
}
