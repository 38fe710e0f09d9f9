//! The demo without faults starts with a week of history, in which recliner did better than smoosh.

use super::data_of;
use crate::monitoring::{demo::Demo, tools};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time;

/// The time from the first response until everything is known.
const PATIENCE: Duration = Duration::from_secs(30);

const WEEK: u64 = 7 * 86_400;

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("it is known: {value}"))
}

async fn answer(demo: &Demo, path: &str) -> Value {
    let url = format!("http://{}{path}", demo.address);
    let answer = tools::http().get(url).send().await.expect("a response arrives");
    data_of(&answer.text().await.expect("the body is text"))
}

#[tokio::test]
async fn demo_starts_after_a_week_with_less_waste_than_under_smoosh() {
    let demo = Demo::start_with(&[]).await;
    let http = tools::http();
    let url = |path: &str| format!("http://{}{path}", demo.address);
    let get = async |path: &str| answer(&demo, path).await;
    let forecast = async || {
        let asked = http.post(url("/api/v1/what-if")).header("content-type", "application/json");
        asked.body(r#"{"days": 7}"#).send().await.expect("a response arrives").status().is_success()
    };
    let ready = async {
        while get("/api/v1/space").await["volumes"][0]["growth_known"] != true
            || get("/api/v1/advice").await["checked_at"].is_null()
            || !forecast().await
        {
            time::sleep(Duration::from_millis(200)).await;
        }
    };
    time::timeout(PATIENCE, ready).await.expect("forecasts are known in time");

    let history = get("/api/v1/history?limit=1000").await;
    let outcomes = history["outcomes"].as_array().expect("a list");
    assert!(outcomes.len() > 100, "{} jobs", outcomes.len());
    assert!(outcomes.iter().all(|it| it["result"] == "freed"), "nothing fails or is futile");
    let first = outcomes.last().expect("there are some")["started_at"].to_string();
    let now = get("/api/v1/status").await["generated_at"].to_string();
    assert!(first[..11] < now[..11], "{first} is days before {now}");
    let errors = outcomes.iter().map(|it| (number(&it["estimate_ratio"]) - 1.0).abs());
    let mean = errors.sum::<f64>() / outcomes.len() as f64;
    assert!(mean <= 0.02, "predictions are wrong by {mean}");

    let hours = get("/api/v1/history/hours?since=12h").await;
    let last_night = hours["hours"].as_array().expect("a list").iter();
    assert!(last_night.map(|hour| number(&hour["compactions"])).sum::<f64>() > 0.0);
    for database in get("/api/v1/databases").await["databases"].as_array().expect("a list") {
        let name = database["db"].as_str().unwrap_or_default();
        assert!(name.starts_with('_') || number(&database["growth_week_bytes"]) >= 0.0);
    }
    let enforced = number(&get("/api/v1/scorecard?since=7d").await["enforced_seconds"]);
    assert!(enforced > WEEK as f64 * 0.95, "{enforced} s");
    let advice = get("/api/v1/advice").await;
    let grave = |it: &&Value| it["severity"] != "info";
    assert_eq!(advice["advice"].as_array().expect("a list").iter().find(grave), None);

    let weeks = get("/api/v1/status").await["simulated_weeks"].clone();
    let [ours, smoosh] = weeks.as_array().map(Vec::as_slice).expect("a list") else {
        panic!("there are two: {weeks}")
    };
    assert_eq!((&ours["by"], &smoosh["by"]), (&json!("recliner"), &json!("smoosh")));
    for sum in ["rewritten_bytes", "reclaimable_bytes"] {
        assert!(number(&ours[sum]) < number(&smoosh[sum]), "{sum}: {weeks}");
    }
    assert_eq!(number(&ours["futile"]), 0.0, "{weeks}");
    // Some targets wait, each with a reason.
    let planned = get("/api/v1/plan").await;
    assert!(number(&get("/api/v1/space").await["waiting"]) >= 4.0, "{planned}");
    let mut refused = planned["refused"].as_array().expect("a list").iter();
    assert!(refused.any(|it| it["refusal"]["reason"] == "window"), "{planned}");
    let page = http.get(url("/")).send().await.expect("a response arrives").text().await;
    let page = page.expect("the body is text");
    assert!(page.contains("The same week under recliner and under smoosh"));
}

#[tokio::test]
async fn in_advise_mode_only_smoosh_compacts() {
    let demo = Demo::start_with(&["--mode=advise"]).await;
    let history = answer(&demo, "/api/v1/history?limit=1000").await;
    let outcomes = history["outcomes"].as_array().expect("a list");
    assert!(outcomes.len() > 20, "{} jobs", outcomes.len());
    assert!(outcomes.iter().all(|it| it["owner"] != "recliner"), "nothing was started");
    let idle = |it: &&Value| it["target"].as_str().is_some_and(|id| id.contains("archive-2019"));
    assert_eq!(outcomes.iter().find(idle), None, "smoosh never looks at what nobody writes to");
    let scorecard = answer(&demo, "/api/v1/scorecard?since=7d").await;
    assert!(number(&scorecard["advised_seconds"]) > WEEK as f64 * 0.9, "{scorecard}");
}
