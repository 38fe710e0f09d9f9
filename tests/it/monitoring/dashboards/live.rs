//! The dashboards on data of a demo that a real Prometheus scrapes.

use super::{
    super::{
        demo::Demo,
        rules,
        servers::Server,
        tools::{self, PROMETHEUS},
    },
    Board, Query, boards, expand, is_by_rent, text,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, UNIX_EPOCH},
};
use tokio::time;

/// Timeout for a demo to show every kind of event.
const PATIENCE: Duration = Duration::from_secs(240);

/// The database of the demo with everything: many ranges, views, writes.
const DATABASE: &str = "orders";

async fn prometheus_query(prometheus: &Server, path: &str, parameters: &[(&str, &str)]) -> Value {
    let query =
        reqwest::Url::parse_with_params("http://x/", parameters).expect("the parameters are valid");
    let answer = prometheus.get(&format!("{path}?{}", query.query().unwrap_or_default())).await;
    assert_eq!(answer["status"], "success", "{parameters:?}: {answer}");
    answer["data"].clone()
}

/// The values that Grafana would insert for variables set to "All" or to their first value.
async fn resolve(board: &Board, prometheus: &Server) -> BTreeMap<String, String> {
    let mut values = BTreeMap::from([
        ("__rate_interval".to_owned(), "15s".to_owned()),
        ("__range".to_owned(), "120s".to_owned()),
    ]);
    for variable in board.variables().iter().skip(1) {
        let name = text(variable, "/name");
        let query = text(variable, "/query/query");
        let inner = query.strip_prefix("label_values(").and_then(|it| it.strip_suffix(')'));
        let (selector, label) = inner.and_then(|it| it.rsplit_once(", ")).expect("a query");
        let selector = with_values(selector, &values);
        let path = format!("/api/v1/label/{label}/values");
        let found = prometheus_query(prometheus, &path, &[("match[]", &selector)]).await;
        let found: Vec<&str> =
            found.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let value = match (name, variable["allValue"].as_str()) {
            ("db", _) => found.contains(&DATABASE).then(|| DATABASE.to_owned()),
            (_, Some(all)) => Some(all.to_owned()),
            (_, None) => Some(format!("({})", found.join("|"))),
        };
        let value = value.filter(|_| !found.is_empty());
        let value = value.unwrap_or_else(|| panic!("{}: ${name} has {found:?}", board.stem));
        assert!(!value.contains("_cluster"), "{}: ${name} offers {value}", board.stem);
        values.insert(name.to_owned(), value);
    }
    values
}

fn with_values(expression: &str, values: &BTreeMap<String, String>) -> String {
    let values: Vec<(&str, &str)> =
        values.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    expand(expression, &values)
}

#[tokio::test]
async fn every_query_has_results_in_a_demo() {
    if !tools::installed(&[PROMETHEUS]) {
        return;
    }
    let demo = Demo::start().await;
    demo.suspend("channel:upgrade_views", "to show it").await;
    let scrape = format!(
        "global: {{evaluation_interval: 1s}}\nrule_files: [recording.yaml]\n\
         scrape_configs: [{{job_name: recliner, honor_labels: true, scrape_interval: 1s, \
         static_configs: [{{targets: [\"{}\"], labels: {{cluster: demo}}}}]}}]",
        demo.address
    );
    let files = [("recording.yaml", rules::RECORDING)];
    let prometheus = Server::prometheus(&scrape, &files).await;
    // The demo has to show something of each kind first.
    drop(demo.metrics().await);
    let boards = boards();
    let mut missing: VecDeque<(Query, String)> = VecDeque::new();
    let mut suspended = Vec::new();
    for board in &boards {
        let seen = async {
            // Variables have no values until the first scrape is stored.
            let up = [("query", "recliner_target_file_bytes")];
            while prometheus_query(&prometheus, "/api/v1/query", &up).await["result"][0].is_null() {
                time::sleep(Duration::from_millis(250)).await;
            }
        };
        time::timeout(PATIENCE, seen).await.expect("the demo is scraped");
        let values = resolve(board, &prometheus).await;
        let queries = board.queries().into_iter().filter(|query| !is_by_rent(&query.expression));
        missing.extend(queries.map(|query| {
            let mut expression = with_values(&query.expression, &values);
            if query.expression.contains("recliner_disk_known") {
                // The demo knows every volume, so these queries are changed to show what they show of unknown ones.
                expression = expression.replace("== 0", "== 1").replace("== bool 0", "== bool 1");
            }
            if query.expression.contains("recliner_suspension_info") {
                suspended.push(expression.clone());
            }
            (query, expression)
        }));
    }
    let found_all = async {
        while let Some(next) = missing.front() {
            let data =
                prometheus_query(&prometheus, "/api/v1/query", &[("query", next.1.as_str())]).await;
            let next = missing.pop_front().expect("it was there");
            if data["result"][0].is_null() {
                missing.push_back(next);
                time::sleep(Duration::from_millis(100)).await;
            }
        }
    };
    let in_time = time::timeout(PATIENCE, found_all).await.is_ok();
    let empty: Vec<String> = missing
        .iter()
        .map(|(query, expression)| format!("{}: {expression}", query.place))
        .collect();
    assert!(in_time, "no results in\n{}", empty.join("\n"));

    assert_eq!(suspended.len(), 3, "overview, nodes and enforcement say what is suspended");
    for expression in suspended {
        let data =
            prometheus_query(&prometheus, "/api/v1/query", &[("query", expression.as_str())]).await;
        let found = data["result"].as_array().expect("a vector").clone();
        let [row] = &*found else { panic!("{found:?}") };
        assert_eq!(row["metric"]["scope"], "channel:upgrade_views");
        assert_eq!(row["metric"]["by"], "127.0.0.1");
        assert_eq!(row["metric"]["why"], "to show it");
        let since = row["value"][1].as_str().and_then(|since| since.parse::<f64>().ok());
        let since = UNIX_EPOCH + Duration::from_secs_f64(since.expect("a number") / 1e3);
        let age = since.elapsed().expect("the suspension is in the past");
        assert!(age < 2 * PATIENCE, "suspended {age:?} ago");
    }
}
