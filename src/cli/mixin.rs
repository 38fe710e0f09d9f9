//! `recliner mixin`: the rules, dashboards and runbook that belong to this version of recliner.
//!
//! Owns their copies in the program, and the parts of them that differ between installations:
//! addresses in links, and the labels of recliner's scrape targets. Everything else is printed as
//! it is in the repository, under `alerts/`, `dashboards/` and `docs/`.

mod essential;
mod link_base;
mod selector;

pub(super) use link_base::LinkBase;
pub(super) use selector::Selector;

use super::{
    CommandError, Exit,
    args::{AlertSet, MixinArgs, MixinFormat, MixinPart},
    output::{print_own, write_files},
};
use crate::book;
use serde_json::{Map, Value};

/// The rule files, in the order in which the rules depend on each other.
const RULES: [(&str, &str); 2] = [
    ("recording", include_str!("../../alerts/recording.yaml")),
    ("alerts", include_str!("../../alerts/alerts.yaml")),
];

const DASHBOARDS: [(&str, &str); 4] = [
    ("recliner-overview.json", include_str!("../../dashboards/recliner-overview.json")),
    ("recliner-node.json", include_str!("../../dashboards/recliner-node.json")),
    ("recliner-target.json", include_str!("../../dashboards/recliner-target.json")),
    ("recliner-enforcement.json", include_str!("../../dashboards/recliner-enforcement.json")),
];

/// The page of the book with a section for each alert.
const RUNBOOK: &str = "alerts.md";

/// The base of runbook links in the shipped files: recliner's default address.
const RUNBOOK_BASE: &str = "http://127.0.0.1:10984/docs";

/// The base of dashboard links in the shipped files: Grafana's default address.
const DASHBOARD_BASE: &str = "http://127.0.0.1:3000";

/// The files that `--format kubernetes` writes.
const KUBERNETES_RULES: &str = "recliner-rules.yaml";
const KUBERNETES_DASHBOARDS: &str = "recliner-dashboards.yaml";

const GROUPS: &str = "groups:\n";

pub(super) fn run(args: &MixinArgs) -> Result<Exit, CommandError> {
    refuse_flags_without_effect(args)?;
    match (args.part, &args.out) {
        (MixinPart::Rules, None) => print_own(args.rules_document().as_bytes())?,
        (MixinPart::Rules, Some(directory)) => write_files(directory, &args.rule_files())?,
        (MixinPart::Dashboards, None) if args.format.is_some() => {
            print_own(args.kubernetes_dashboards().as_bytes())?;
        }
        (MixinPart::Dashboards, Some(directory)) if args.format.is_some() => {
            write_files(directory, &[(KUBERNETES_DASHBOARDS, args.kubernetes_dashboards())])?;
        }
        (MixinPart::Dashboards, None) => {
            let text = format!("{:#}\n", dashboards_by_name(&args.dashboards())?);
            print_own(text.as_bytes())?;
        }
        (MixinPart::Dashboards, Some(directory)) => write_files(directory, &args.dashboards())?,
        (MixinPart::Runbook, None) => print_own(args.runbook()?.as_bytes())?,
        (MixinPart::Runbook, Some(directory)) => {
            write_files(directory, &[(RUNBOOK, args.runbook()?)])?;
        }
    }
    Ok(Exit::Done)
}

/// Fails if a flag has no effect on the part to print.
fn refuse_flags_without_effect(args: &MixinArgs) -> Result<(), CommandError> {
    let is_rules = args.part == MixinPart::Rules;
    let links_to_the_book = is_rules || args.part == MixinPart::Runbook;
    let has_format = is_rules
        || args.part == MixinPart::Dashboards && args.format == Some(MixinFormat::Kubernetes);
    let without_effect = [
        ("--runbook-url", args.runbook_url.is_some() && !links_to_the_book),
        ("--dashboard-url", args.dashboard_url.is_some() && !is_rules),
        ("--format", args.format.is_some() && !has_format),
        ("--only", args.only.is_some() && !is_rules),
    ];
    match without_effect.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(CommandError::usage(format!(
            "{flag} has no effect on {}; omit it",
            args.part.name()
        ))),
        None => Ok(()),
    }
}

impl MixinArgs {
    /// A rule file with this installation's links and selector.
    fn rules(&self, shipped: &str) -> String {
        let has_alerts = shipped.contains("- alert:");
        let mut text = match self.only {
            Some(AlertSet::Essential) if has_alerts => essential::only_essential(shipped),
            Some(AlertSet::Essential) | None => shipped.to_owned(),
        };
        if let Some(base) = &self.runbook_url {
            for link in ["runbook_url", "advice_url"] {
                let shipped = format!("{link}: {RUNBOOK_BASE}/");
                text = text.replace(&shipped, &format!("{link}: {base}/"));
            }
        }
        if let Some(base) = &self.dashboard_url {
            let shipped = format!("dashboard_url: {DASHBOARD_BASE}/");
            text = text.replace(&shipped, &format!("dashboard_url: {base}/"));
        }
        if let Some(selector) = &self.selector {
            text = text.replace(Selector::SHIPPED, &selector.to_string());
        }
        text
    }

    /// All rules in one document.
    fn rules_document(&self) -> String {
        if self.format == Some(MixinFormat::Kubernetes) {
            return self.kubernetes_rules();
        }
        let (mut comments, mut groups) = (Vec::new(), Vec::new());
        for (_, shipped) in RULES {
            let rules = self.rules(shipped);
            let (comment, list) = rules.split_once(GROUPS).unwrap_or(("", &rules));
            comments.push(comment.to_owned());
            groups.push(list.to_owned());
        }
        [comments.join("#\n"), GROUPS.to_owned(), groups.join("\n")].concat()
    }

    /// The rules as the Prometheus operator reads them.
    fn kubernetes_rules(&self) -> String {
        let mut text = "\
# For the Prometheus operator: the rules of recliner in its envelope, as
# `recliner mixin rules --format kubernetes` prints them.
"
        .to_owned();
        for (name, shipped) in RULES {
            let name = format!("recliner-{name}");
            let api = "monitoring.coreos.com/v1\nkind: PrometheusRule";
            text += &manifest(api, &name, "", "spec:", 2, &self.rules(shipped));
        }
        text
    }

    /// The dashboards as the sidecar of Grafana's Helm chart finds them.
    fn kubernetes_dashboards(&self) -> String {
        let mut text = "\
# For Grafana's sidecar on Kubernetes: the dashboards of recliner in ConfigMaps with the
# label that it looks for, as `recliner mixin dashboards --format kubernetes` prints them.
"
        .to_owned();
        for (file, dashboard) in self.dashboards() {
            let name = file.strip_suffix(".json").unwrap_or(file);
            let label = ", grafana_dashboard: \"1\"";
            let data = format!("data:\n  {file}: |");
            text += &manifest("v1\nkind: ConfigMap", name, label, &data, 4, &dashboard);
        }
        text
    }

    fn rule_files(&self) -> Vec<(String, String)> {
        if self.format == Some(MixinFormat::Kubernetes) {
            return vec![(KUBERNETES_RULES.to_owned(), self.kubernetes_rules())];
        }
        let file = |(name, shipped)| (format!("{name}.yaml"), self.rules(shipped));
        RULES.map(file).into()
    }

    /// The runbook in Markdown, with complete links to the rest of the book.
    fn runbook(&self) -> Result<String, CommandError> {
        let base = self.runbook_url.as_ref().map(ToString::to_string);
        let text = book::with_links_to(RUNBOOK, base.as_deref().unwrap_or(RUNBOOK_BASE));
        let text = text.ok_or_else(|| CommandError::failed("the book has no runbook"))?;
        Ok(match &self.selector {
            Some(selector) => text.replace(Selector::SHIPPED, &selector.to_string()),
            None => text,
        })
    }

    /// The dashboards. A selector is added to every query of scraped series, which all have a matcher
    /// of `job`, and to the queries behind the variables.
    fn dashboards(&self) -> Vec<(&'static str, String)> {
        let Some(selector) = &self.selector else {
            return DASHBOARDS.map(|(name, shipped)| (name, shipped.to_owned())).into();
        };
        let quoted = Value::from(selector.to_string()).to_string();
        let matchers = quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default();
        let added = |shipped: &str| {
            [
                ("job=~\\\"$job\\\"", format!("{matchers}, job=~\\\"$job\\\"")),
                ("(recliner_build_info,", format!("(recliner_build_info{{{matchers}}},")),
                (
                    "(recliner_build_info{cluster=~\\\"$cluster\\\"}",
                    format!("(recliner_build_info{{{matchers}, cluster=~\\\"$cluster\\\"}}"),
                ),
            ]
            .iter()
            .fold(shipped.to_owned(), |text, (from, to)| text.replace(from, to))
        };
        DASHBOARDS.map(|(name, shipped)| (name, added(shipped))).into()
    }
}

/// A Kubernetes object with this text under one key.
fn manifest(api: &str, name: &str, label: &str, key: &str, indent: usize, text: &str) -> String {
    let mut object = format!(
        "---\napiVersion: {api}\nmetadata:\n  name: {name}\n  labels: {{app.kubernetes.io/name: recliner{label}}}\n{key}\n"
    );
    for line in text.lines() {
        let indent = if line.is_empty() { 0 } else { indent };
        object.push_str(&format!("{:indent$}{line}\n", ""));
    }
    object
}

/// The dashboards as one JSON object, keyed by file name.
fn dashboards_by_name(files: &[(&str, String)]) -> Result<Value, CommandError> {
    let entry = |(name, text): &(&str, String)| {
        let dashboard = serde_json::from_str(text).map_err(|why| {
            CommandError::failed(format!("the dashboard {name} is no longer JSON: {why}"))
        })?;
        Ok(((*name).to_owned(), dashboard))
    };
    files.iter().map(entry).collect::<Result<Map<_, _>, _>>().map(Value::Object)
}
