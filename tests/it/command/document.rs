//! A running service, compared with its own OpenAPI document and with its response types.

use super::{PATIENCE, Site, service::Running, world};
use boon::{Compiler, Schemas};
use recliner::{
    serve::report::{
        Configuration, DbUpdates, Events, Explanations, Failed, Hours, Jobs, Outcomes, Planned,
        Queues, Space, Status, Success, Targets, orders,
    },
    sources::inventory::FactsPage,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time;

const LOCATION: &str = "http://localhost/openapi.json";

/// A service and its OpenAPI document.
pub(super) struct Described {
    base: String,
    http: reqwest::Client,
    pub(super) document: Value,
}

impl Described {
    pub(super) async fn of(address: &str) -> Self {
        let _again = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().expect("the HTTP client is valid");
        let mut described = Self { base: format!("http://{address}"), http, document: Value::Null };
        let ready = async {
            while described.send("get", "/-/ready", "", None).await.0 != 200 {
                time::sleep(Duration::from_millis(50)).await;
            }
        };
        time::timeout(PATIENCE, ready).await.expect("it looks at the cluster");
        let (_, text) = described.send("get", "/api/v1/openapi.json", "", None).await;
        described.document = serde_json::from_str(&text).expect("valid JSON");
        described
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        query: &str,
        body: Option<&Value>,
    ) -> (u16, String) {
        let url = format!("{}{path}{query}", self.base);
        let request = match (method, body) {
            ("post", Some(body)) => {
                let request = self.http.post(url).header("content-type", "application/json");
                request.body(body.to_string())
            }
            _ => self.http.get(url),
        };
        let answer = request.send().await.expect("a response arrives");
        (answer.status().as_u16(), answer.text().await.expect("the body is text"))
    }

    /// Asserts that a response has its status, matches its schema, and round-trips through its type
    /// without loss.
    async fn check<T: DeserializeOwned + Serialize>(
        &self,
        (method, path, query): (&str, &str, &str),
        body: Option<&Value>,
        status: u16,
    ) {
        let (found, text) = self.send(method, path, query, body).await;
        assert_eq!(found, status, "{method} {path}{query}: {text}");
        let value: Value = serde_json::from_str(&text).expect("valid JSON");
        self.validate((method, path, status), &value);
        let typed: T = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"));
        assert_eq!(json!(typed), value, "{method} {path}{query}");
    }

    /// Asserts that a response matches its schema.
    pub(super) fn validate(&self, (method, path, status): (&str, &str, u16), value: &Value) {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource(LOCATION, self.document.clone()).expect("it is a document");
        let pointer = format!(
            "{LOCATION}#/paths/{}/{method}/responses/{status}/content/application~1json/schema",
            path.replace('/', "~1")
        );
        let schema = compiler.compile(&pointer, &mut schemas);
        let schema = schema.unwrap_or_else(|why| panic!("{pointer}: {why:#}"));
        if let Err(why) = schemas.validate(value, schema) {
            panic!("{method} {path}: {why:#}\n{value}");
        }
    }
}

#[tokio::test]
async fn real_responses_match_schema_and_types() {
    let site = Site::open(world()).await;
    let dir = tempfile::tempdir().unwrap();
    let mut running = Running::start(&site, dir.path(), &["--web.enable-admin-api"]).await;
    let service = Described::of(&running.address).await;

    let get = |path: &'static str, query: &'static str| ("get", path, query);
    service.check::<Success<Status>>(get("/api/v1/status", ""), None, 200).await;
    let all = get("/api/v1/targets", "?limit=10000");
    service.check::<Success<Targets>>(all, None, 200).await;
    service.check::<Success<Space>>(get("/api/v1/space", ""), None, 200).await;
    service.check::<Success<Queues>>(get("/api/v1/queue", "?limit=10000"), None, 200).await;
    service.check::<Success<Planned>>(get("/api/v1/plan", "?limit=10000"), None, 200).await;
    service.check::<Success<FactsPage>>(get("/api/v1/facts", ""), None, 200).await;
    service.check::<Success<Jobs>>(get("/api/v1/jobs", ""), None, 200).await;
    let database = get("/api/v1/explain", "?target=orders/2024%2Bx");
    service.check::<Success<Explanations>>(database, None, 200).await;
    service.check::<Success<Outcomes>>(get("/api/v1/history", ""), None, 200).await;
    let hours = get("/api/v1/history/hours", "?since=3d");
    service.check::<Success<Hours>>(hours, None, 200).await;
    service.check::<Success<Configuration>>(get("/api/v1/config", ""), None, 200).await;
    service.check::<DbUpdates>(get("/_db_updates", ""), None, 200).await;
    service.check::<Failed>(get("/api/v1/targets", "?kind=x"), None, 400).await;
    service.check::<Failed>(get("/api/v1/explain", "?target=x"), None, 404).await;

    let post = |path: &'static str| ("post", path, "");
    let body = json!({ "scope": "channel:ratio_dbs", "why": "a test" });
    service.check::<Success<orders::Suspended>>(post("/api/v1/suspend"), Some(&body), 200).await;
    // The suspension appears in the events, the status and the plan.
    service.check::<Success<Events>>(get("/api/v1/events", ""), None, 200).await;
    service.check::<Success<Status>>(get("/api/v1/status", ""), None, 200).await;
    service.check::<Success<Planned>>(get("/api/v1/plan", ""), None, 200).await;
    let nothing = json!({});
    service.check::<Success<orders::Resumed>>(post("/api/v1/resume"), Some(&nothing), 200).await;
    service.check::<Success<orders::Rescanning>>(post("/api/v1/rescan"), Some(&nothing), 200).await;
    service.check::<Success<orders::Flushed>>(post("/api/v1/flush"), Some(&nothing), 200).await;
    let all = json!({ "all": true });
    service.check::<Success<orders::Released>>(post("/api/v1/release"), Some(&all), 200).await;
    let several = json!({ "target": "orders/2024+x" });
    service.check::<Failed>(post("/api/v1/compact"), Some(&several), 409).await;
    service.check::<Failed>(post("/api/v1/compact"), Some(&nothing), 400).await;
    running.stop().await;
}
