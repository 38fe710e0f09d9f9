//! The bundled dashboards, checked against recliner's exports and Grafana's requirements.
//!
//! The checks follow Grafana's dashboard-linter and this project's rules: titles, descriptions,
//! units, templated data sources, variables, links, and queries that name only existing series and
//! count once what two processes see.

mod live;

use super::{
    catalogue::{self, OF_THE_SCRAPE, Series},
    promql::{self, Selector},
    rules,
};
use metrics_text::MetricType;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

/// The dashboards that must exist.
const NAMES: [&str; 4] =
    ["recliner-enforcement", "recliner-node", "recliner-overview", "recliner-target"];

/// Panel types that any Grafana since 10 draws without a plugin. A `row` is a heading.
const KINDS: [&str; 9] = [
    "alertlist",
    "bargauge",
    "gauge",
    "row",
    "stat",
    "state-timeline",
    "table",
    "text",
    "timeseries",
];

/// The Grafana units that fit recliner's measurements.
const UNITS: [&str; 9] =
    ["binBps", "bytes", "cpm", "cps", "none", "percentunit", "reqps", "s", "short"];

/// Values for Grafana's variables in queries that are only parsed.
const READ: [(&str, &str); 8] = [
    ("__rate_interval", "61s"),
    ("__range", "3607s"),
    ("datasource", "DATASOURCE"),
    ("cluster", "CLUSTER"),
    ("job", "JOB"),
    ("instance", "INSTANCE"),
    ("node", "NODE"),
    ("db", "DB"),
];
const RATE_INTERVAL: Duration = Duration::from_secs(61);
const RANGE: Duration = Duration::from_secs(3607);

/// One file of `dashboards/`.
#[derive(Debug)]
struct Board {
    stem: String,
    text: String,
    json: Value,
}

/// A query of a dashboard, and its location.
#[derive(Clone, Debug)]
struct Query {
    place: String,
    expression: String,
    /// The labels in the legend or in the table's columns.
    labels: BTreeSet<String>,
}

fn boards() -> Vec<Board> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    let mut boards: Vec<Board> = fs::read_dir(&dir)
        .expect("dashboards/ is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "json"))
        .map(|path| {
            let stem = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("it is text");
            let json = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{stem}: {why}"));
            Board { stem, text, json }
        })
        .collect();
    boards.sort_by(|a, b| a.stem.cmp(&b.stem));
    boards
}

fn list<'a>(json: &'a Value, pointer: &str) -> &'a [Value] {
    json.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(json: &'a Value, pointer: &str) -> &'a str {
    json.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Replaces Grafana's variables by values.
fn expand(expression: &str, variables: &[(&str, &str)]) -> String {
    variables.iter().fold(expression.to_owned(), |text, (name, value)| {
        text.replace(&format!("${{{name}}}"), value).replace(&format!("${name}"), value)
    })
}

/// The names in double braces.
fn legend(format: &str) -> impl Iterator<Item = String> {
    let parts = format.split("{{").skip(1);
    parts.filter_map(|part| Some(part.split_once("}}")?.0.trim().to_owned()))
}

impl Board {
    fn panels(&self) -> &[Value] {
        list(&self.json, "/panels")
    }

    fn variables(&self) -> &[Value] {
        list(&self.json, "/templating/list")
    }

    /// The queries of panels and annotations.
    fn queries(&self) -> Vec<Query> {
        let mut queries = Vec::new();
        for panel in self.panels() {
            let renamed = list(panel, "/transformations").iter().flat_map(|it| {
                let names = ["/options/renameByName", "/options/excludeByName"];
                names.into_iter().filter_map(|at| it.pointer(at)?.as_object())
            });
            let columns = renamed.flat_map(|names| names.keys().cloned());
            let columns: BTreeSet<String> =
                columns.filter(|name| name != "Time" && !name.starts_with("Value")).collect();
            let place = format!("{}, {:?}", self.stem, text(panel, "/title"));
            for target in list(panel, "/targets") {
                let mut labels: BTreeSet<String> = legend(text(target, "/legendFormat")).collect();
                // A column of a table may come from any of its queries.
                labels.extend(columns.iter().cloned());
                queries.push(Query {
                    place: format!("{place} {}", text(target, "/refId")),
                    expression: text(target, "/expr").to_owned(),
                    labels,
                });
            }
        }
        for annotation in list(&self.json, "/annotations/list") {
            if text(annotation, "/expr").is_empty() {
                continue;
            }
            let formats = ["/titleFormat", "/textFormat"].map(|at| legend(text(annotation, at)));
            let keys = text(annotation, "/tagKeys").split(',').map(str::to_owned);
            queries.push(Query {
                place: format!("{}, annotation {:?}", self.stem, text(annotation, "/name")),
                expression: text(annotation, "/expr").to_owned(),
                labels: formats.into_iter().flatten().chain(keys).collect(),
            });
        }
        queries
    }
}

/// Every series that a query may select, with its labels.
fn known_series() -> BTreeMap<String, Series> {
    let mut known = catalogue::exported();
    known.extend(catalogue::of_prometheus());
    known
}

/// Collects all problems, so that a test reports them at once.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn unless(&mut self, sound: bool, what: impl FnOnce() -> String) {
        if !sound {
            self.0.push(what());
        }
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        assert!(self.0.is_empty() || std::thread::panicking(), "\n{}", self.0.join("\n"));
    }
}

/// Whether a query has results only if a channel ranks by rent, which no channel of a demo does.
fn is_by_rent(expression: &str) -> bool {
    ["recliner_queue_rent_", "recliner_rent_"].iter().any(|begins| expression.contains(begins))
}

#[test]
fn panels_of_some_channels_state_when_they_have_data() {
    for (metric, says) in [
        ("recliner_queue_ratio_", "ranks by ratio"),
        ("recliner_queue_slack_", "ranks by slack"),
        ("recliner_queue_rent_", "ranks by rent (channels: rent)"),
        ("recliner_rent_horizon_", "ranks by rent (channels: rent)"),
    ] {
        let boards = boards();
        let panels = boards.iter().flat_map(Board::panels).filter(|panel| {
            let queries = list(panel, "/targets").iter();
            text(panel, "/type") == "timeseries"
                && queries.map(|it| text(it, "/expr")).any(|it| it.contains(metric))
        });
        let empty: Vec<&str> =
            panels.map(|panel| text(panel, "/fieldConfig/defaults/noValue")).collect();
        assert!(!empty.is_empty(), "no panel shows {metric}");
        assert!(empty.iter().all(|it| it.ends_with(says)), "{metric}: {empty:?}");
    }
}

#[test]
fn every_dashboard_can_be_provisioned() {
    let boards = boards();
    let stems: Vec<&str> = boards.iter().map(|board| board.stem.as_str()).collect();
    assert_eq!(stems, NAMES);
    let mut wrong = Wrong::default();
    for Board { stem, text: file, json } in &boards {
        let mut need = |sound, what: &str| wrong.unless(sound, || format!("{stem}: {what}"));
        let stable = serde_json::to_string_pretty(json).expect("valid JSON") + "\n";
        need(*file == stable, "not as two-space JSON with sorted keys");
        need(text(json, "/uid") == *stem && stem.len() <= 40, "uid is not the file's name");
        need(json["id"].is_null(), "has an id of one Grafana");
        need(!text(json, "/title").is_empty(), "no title");
        need(!text(json, "/description").is_empty(), "no description");
        need(json["editable"] == false, "editable is not false");
        need(json["schemaVersion"] == 39, "another schemaVersion");
        need(json["graphTooltip"] == 1, "no shared crosshair");
        need(json["tags"] == serde_json::json!(["recliner"]), "other tags");
        need(text(json, "/timezone") == "browser", "another time zone");
        need(!text(json, "/refresh").is_empty(), "no refresh");
        let link = &json["links"][0];
        need(
            text(link, "/type") == "dashboards"
                && link["tags"] == json["tags"]
                && link["includeVars"] == true
                && link["keepTime"] == true,
            "no links to the other boards that keep time and variables",
        );
        let annotations = list(json, "/annotations/list").iter();
        let shown = annotations.filter(|it| it["enable"] == true && it["hide"] == false);
        let shown: BTreeSet<&str> = shown.map(|it| text(it, "/name")).collect();
        need(shown == BTreeSet::from(["Ends", "Starts"]), "no annotations of starts and ends");
        for part in file.split("/d/").skip(1) {
            let uid = part.split(['?', '"', '/']).next().unwrap_or_default();
            need(NAMES.contains(&uid), &format!("a link to {uid}, which is no board"));
        }
    }
}

#[test]
fn dashboards_have_all_variables_and_list_only_real_nodes() {
    let known = known_series();
    let mut wrong = Wrong::default();
    for board in boards() {
        let stem = &board.stem;
        let mut need = |sound, what: String| wrong.unless(sound, || format!("{stem}: {what}"));
        let names: Vec<&str> = board.variables().iter().map(|it| text(it, "/name")).collect();
        let wanted = ["datasource", "cluster", "job", "instance", "node"];
        need(names.starts_with(&wanted), format!("has the variables {names:?}"));
        for variable in board.variables() {
            let name = text(variable, "/name");
            need(!text(variable, "/label").is_empty(), format!("${name} has no label"));
            need(
                !text(variable, "/description").is_empty(),
                format!("${name} says not what it is"),
            );
            if name == "datasource" {
                need(text(variable, "/type") == "datasource", "$datasource is none".to_owned());
                continue;
            }
            need(variable["refresh"] == 2, format!("${name} does not follow the time range"));
            need(
                text(variable, "/datasource/uid") == "${datasource}",
                format!("${name} asks a fixed data source"),
            );
            let all = match name {
                "cluster" => Some(".*"),
                "job" | "instance" => Some(".+"),
                // "All" means all listed nodes, never the pseudo node.
                _ => None,
            };
            need(variable["allValue"].as_str() == all, format!("${name}: all is another value"));
            need(
                variable["multi"] == (name != "db"),
                format!("${name}: one or several, the other way round"),
            );
            let query = text(variable, "/query/query");
            let parts = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
            let parts = parts.and_then(|it| it.rsplit_once(", "));
            let Some((selector, label)) = parts else {
                need(false, format!("${name}: {query} is no label_values(selector, label)"));
                continue;
            };
            let reading = promql::read(&expand(selector, &READ)).expect("it is PromQL");
            let [selector] = reading.selectors.as_slice() else {
                need(false, format!("${name}: {query} has not one selector"));
                continue;
            };
            let has = |series: &str| {
                let series = known.get(series);
                series.is_some_and(|it| OF_THE_SCRAPE.contains(&label) || it.labels.contains(label))
            };
            need(selector.names().all(has), format!("${name}: {query} names what is not"));
            // The pseudo node is neither up nor down.
            need(
                name != "node" || selector.name == "recliner_node_up",
                format!("{query} lists others too"),
            );
        }
    }
}

#[test]
fn every_panel_has_a_description_and_unit() {
    let mut wrong = Wrong::default();
    for board in boards() {
        let mut ids = BTreeSet::new();
        let mut titles = BTreeSet::new();
        let mut taken = BTreeMap::new();
        for panel in board.panels() {
            let (title, kind) = (text(panel, "/title"), text(panel, "/type"));
            let place = format!("{}, {title:?}", board.stem);
            let mut need = |sound, what: &str| wrong.unless(sound, || format!("{place}: {what}"));
            need(KINDS.contains(&kind), "not a kind of panel that every Grafana draws");
            need(!title.is_empty() && titles.insert(title), "no title of its own");
            need(ids.insert(panel["id"].as_u64()), "an id that another has");
            let at = |name: &str| panel["gridPos"][name].as_u64().expect("it has a place");
            need(at("w") > 0 && at("h") > 0 && at("x") + at("w") <= 24, "stands over the edge");
            for x in at("x")..at("x") + at("w") {
                for y in at("y")..at("y") + at("h") {
                    let other = taken.insert((x, y), title);
                    need(other.is_none_or(|other| other == title), "stands over another");
                }
            }
            if kind == "row" {
                continue;
            }
            need(text(panel, "/description").len() > 20, "no description");
            if kind == "text" {
                continue;
            }
            if kind == "alertlist" {
                let of_recliner = text(panel, "/options/alertInstanceLabelFilter");
                need(of_recliner.contains(r#"alertname=~"Recliner.+""#), "others' alerts too");
                continue;
            }
            need(!list(panel, "/targets").is_empty(), "no query");
            let unit = text(panel, "/fieldConfig/defaults/unit");
            need(UNITS.contains(&unit), "no unit, or an unheard-of one");
            let none = text(panel, "/fieldConfig/defaults/noValue");
            need(!none.is_empty(), "says nothing where nothing is known");
            let sources = std::iter::once(panel).chain(list(panel, "/targets"));
            for source in sources {
                need(text(source, "/datasource/uid") == "${datasource}", "a fixed data source");
            }
            let mut refs = BTreeSet::new();
            for target in list(panel, "/targets") {
                need(refs.insert(text(target, "/refId")), "two queries of one name");
                let table = text(target, "/format") == "table";
                need(table == (kind == "table"), "not a table's query");
            }
        }
    }
}

#[test]
fn legends_distinguish_nodes_of_different_clusters() {
    let mut wrong = Wrong::default();
    for board in boards() {
        for panel in board.panels() {
            for target in list(panel, "/targets") {
                let labels: Vec<String> = legend(text(target, "/legendFormat")).collect();
                let of_one = |label: &str| labels.iter().any(|it| it == label);
                wrong.unless(of_one("cluster") || !(of_one("node") || of_one("instance")), || {
                    format!("{}, {}: a node of which cluster?", board.stem, panel["title"])
                });
            }
        }
    }
}

#[test]
fn overview_lists_alerts() {
    let boards = boards();
    let overview = boards.iter().find(|board| board.stem == "recliner-overview");
    let kinds = overview.into_iter().flat_map(Board::panels).map(|panel| text(panel, "/type"));
    assert_eq!(kinds.filter(|kind| *kind == "alertlist").count(), 1);
}

#[test]
fn dashboard_queries_use_existing_series_and_count_nothing_twice() {
    let (known, recorded) = (known_series(), rules::recorded());
    let mut wrong = Wrong::default();
    for query in boards().iter().flat_map(Board::queries) {
        let Query { place, expression, labels } = &query;
        let mut need = |sound, what: String| wrong.unless(sound, || format!("{place}: {what}"));
        let reading = match promql::read(&expand(expression, &READ)) {
            Ok(reading) => reading,
            Err(why) => {
                need(false, why);
                continue;
            }
        };
        let mut there: BTreeSet<&str> = OF_THE_SCRAPE.into();
        for selector in &reading.selectors {
            let name = &selector.name;
            let has = |label: &str, value: &str| {
                selector
                    .matchers
                    .iter()
                    .any(|it| it.label == label && it.op == "=~" && it.value == value)
            };
            need(has("cluster", "CLUSTER"), format!("{name} of whichever cluster"));
            // Series of Prometheus itself, and recorded series, whose rules have already summed
            // over jobs and instances.
            if name.starts_with("ALERTS") || recorded.contains_key(name) {
                there.extend(["alertname", "alertstate", "severity", "node", "volume", "channel"]);
                there.extend(
                    recorded.get(name).iter().flat_map(|it| &it.labels).map(String::as_str),
                );
                continue;
            }
            need(has("job", "JOB") && has("instance", "INSTANCE"), format!("{name} of whoever"));
            let Some(series) = known.get(name) else {
                need(false, format!("{name} is not exported"));
                continue;
            };
            there.extend(series.labels.iter().map(String::as_str));
            for matcher in &selector.matchers {
                let label = matcher.label.as_str();
                let exists = OF_THE_SCRAPE.contains(&label) || series.labels.contains(label);
                need(exists, format!("{name} has no label {label}"));
            }
            let chosen = has("node", "NODE") || has("node", "NODE|_cluster");
            need(chosen || !series.labels.contains("node"), format!("{name} of whichever node"));
            if series.metric_type == MetricType::Counter {
                let sound = match selector.function {
                    Some("rate") => selector.range == Some(RATE_INTERVAL),
                    Some("increase") => {
                        [Some(RATE_INTERVAL), Some(RANGE)].contains(&selector.range)
                    }
                    _ => false,
                };
                need(sound, format!("{name} is a counter, and not taken as one"));
            } else {
                // Series that several processes export alike: only one of them may count.
                let once = selector.aggregations.last().map(String::as_str);
                let once = once.is_some_and(|it| ["max", "min", "group"].contains(&it));
                need(once || name == "up", format!("{name} counts twice where two see it"));
            }
        }
        for label in reading.labels.iter().chain(labels) {
            need(there.contains(label.as_str()), format!("{label} is no label there"));
        }
    }
}

/// `dashboard-linter` wants job and instance in every query, which series without those labels cannot have.
#[test]
fn linter_exceptions_are_exactly_the_panels_that_need_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards/.lint");
    let exceptions: Value =
        yaml_serde::from_str(&fs::read_to_string(path).expect("it is there")).expect("valid YAML");
    let mut needed = BTreeSet::new();
    for board in boards() {
        for panel in board.panels() {
            for target in list(panel, "/targets") {
                let reading = promql::read(&expand(text(target, "/expr"), &READ)).expect("PromQL");
                let has_job = |it: &Selector| it.matchers.iter().any(|it| it.label == "job");
                if !reading.selectors.iter().all(has_job) {
                    needed.insert((
                        text(&board.json, "/title").to_owned(),
                        text(panel, "/title").to_owned(),
                    ));
                }
            }
        }
    }
    for rule in ["target-job-rule", "target-instance-rule"] {
        let entries = list(&exceptions["exclusions"][rule], "/entries").iter();
        let listed =
            entries.map(|it| (text(it, "/dashboard").to_owned(), text(it, "/panel").to_owned()));
        assert_eq!(listed.collect::<BTreeSet<_>>(), needed, "{rule}");
    }
}

/// Whether a family covers only some databases or some indexes, so that its sum is not a total.
fn is_cut(name: &str) -> bool {
    let of_some = ["recliner_database_", "recliner_target_", "recliner_view_part_"];
    let lagging = ["recliner_view_updates_pending", "recliner_search_updates_pending"];
    of_some.iter().any(|family| name.starts_with(family)) || lagging.contains(&name)
}

/// Whether an expression treats some databases as all of them: it sums, counts or averages over a
/// family that covers only some, and neither selects one database nor groups by database.
fn sums_what_is_cut(selector: &Selector) -> bool {
    let one = selector.matchers.iter().any(|it| it.label == "db" && it.op == "=");
    let over_all = selector.aggregations.iter().zip(&selector.groupings).any(|(op, grouping)| {
        !["max", "min", "group", "topk", "bottomk"].contains(&&**op) && !grouping.keeps("db")
    });
    selector.names().any(is_cut) && over_all && !one
}

#[test]
fn no_query_sums_a_partial_family() {
    let mut wrong = Wrong::default();
    for Query { place, expression, .. } in boards().iter().flat_map(Board::queries) {
        let reading = promql::read(&expand(&expression, &READ)).expect("it is PromQL");
        for selector in reading.selectors.iter().filter(|it| sums_what_is_cut(it)) {
            wrong.unless(false, || format!("{place}: {} is not complete", selector.name));
        }
    }
    for (expression, cut) in [
        ("sum(recliner_target_file_bytes)", true),
        ("count(max by (db) (recliner_target_file_bytes))", true),
        ("sum by (node) (max by (node, db) (recliner_view_part_file_bytes))", true),
        ("avg without (db) (recliner_database_file_bytes)", true),
        ("max(sum(max by (cluster, db) (recliner_database_copies{db=~\"a.*\"})))", true),
        ("sum(recliner_view_updates_pending)", true),
        ("sum(recliner_target_file_bytes{db=\"orders\"})", false),
        ("topk(5, sum by (db) (recliner_database_reclaimable_bytes))", false),
        ("topk(5, max by (node, range) (recliner_target_file_bytes))", false),
        ("sum(recliner_file_bytes)", false),
    ] {
        let reading = promql::read(expression).expect("it is PromQL");
        let found = reading.selectors.iter().any(sums_what_is_cut);
        wrong.unless(found == cut, || format!("{expression}: {found}"));
    }
}

#[test]
fn example_provisioning_reads_files_and_queries_prometheus() {
    let read = |kind: &str| -> yaml_serde::Value {
        let path = format!("deploy/grafana/provisioning/{kind}/recliner.yaml");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        yaml_serde::from_str(&fs::read_to_string(file).expect("it is there")).expect("valid YAML")
    };
    let (sources, providers) = (read("datasources"), read("dashboards"));
    assert_eq!((&sources["apiVersion"], &providers["apiVersion"]), (&1.into(), &1.into()));
    assert_eq!(sources["datasources"][0]["type"], "prometheus");
    assert_eq!(providers["providers"][0]["type"], "file");
    assert!(providers["providers"][0]["options"]["path"].is_string());
}
