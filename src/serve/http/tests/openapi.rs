//! Compares the OpenAPI document with the router and with real responses.

use super::*;
use boon::{Compiler, SchemaIndex, Schemas};

/// An OpenAPI document, whose schemas are found by JSON pointers.
pub(super) struct Document {
    pub(super) whole: Value,
}

const LOCATION: &str = "http://localhost/openapi.json";

impl Document {
    /// The document with objects that allow only the described fields.
    fn strict(mut whole: Value) -> Self {
        close(&mut whole["components"]["schemas"]);
        Self { whole }
    }

    fn compiled(&self, pointer: &str) -> (Schemas, SchemaIndex) {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.add_resource(LOCATION, self.whole.clone()).unwrap();
        let schema = compiler.compile(&format!("{LOCATION}#{pointer}"), &mut schemas);
        (schemas, schema.unwrap_or_else(|why| panic!("{pointer}: {why:#}")))
    }

    /// Asserts that a value matches the schema at a JSON pointer.
    fn check(&self, pointer: &str, value: &Value) {
        let (schemas, schema) = self.compiled(pointer);
        if let Err(why) = schemas.validate(value, schema) {
            panic!("{pointer}: {why:#}\n{value}");
        }
    }
}

/// Forbids undescribed fields in all objects.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(close);
            if fields.get("properties").is_some_and(Value::is_object)
                && fields.get("type").is_some_and(|it| it == "object")
            {
                fields.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        Value::Array(list) => list.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The JSON pointer of the schema of a response.
fn pointer(path: &str, method: &str, status: u16) -> String {
    let path = path.replace('~', "~0").replace('/', "~1");
    format!("/paths/{path}/{method}/responses/{status}/content/application~1json/schema")
}

async fn document(surface: &Surface) -> Document {
    let (status, whole) = surface.json("/api/v1/openapi.json").await;
    assert_eq!(status, StatusCode::OK);
    Document::strict(whole)
}

#[tokio::test]
async fn documented_routes_support_exactly_the_documented_methods() {
    let surface = Surface::new();
    let document = document(&surface).await;
    assert_eq!(document.whole["openapi"], "3.1.0");
    for (path, methods) in document.whole["paths"].as_object().unwrap() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let described = methods.get(method.as_str().to_lowercase()).is_some();
            let answer = surface.ask(method.clone(), path, &[]).await;
            let served = answer.status != StatusCode::METHOD_NOT_ALLOWED;
            assert_eq!(served, described, "{method} {path}");
            let unknown = [&b"no such page"[..], b"there is no /api"];
            let known = |part: &[u8]| !answer.body.windows(part.len()).any(|it| it == part);
            assert!(unknown.into_iter().all(known), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn responses_match_the_document() {
    let surface = Surface::new();
    let document = document(&surface).await;
    for (path, query, code) in [
        ("/api/v1/status", "", 200),
        ("/api/v1/status", "?x=1", 400),
        ("/api/v1/space", "", 200),
        ("/api/v1/targets", "", 200),
        ("/api/v1/targets", "?kind=shard", 400),
        ("/api/v1/queue", "", 200),
        ("/api/v1/plan", "", 200),
        ("/api/v1/facts", "", 200),
        ("/api/v1/jobs", "", 200),
        ("/api/v1/explain", "?target=orders", 200),
        ("/api/v1/explain", "?target=nothing", 404),
        ("/api/v1/history", "", 404),
        ("/api/v1/history/hours", "", 404),
        ("/api/v1/history/hours", "?since=36d", 400),
        ("/api/v1/config", "", 200),
        ("/api/v1/backup", "", 404),
        ("/api/v1/backup", "?x=1", 400),
        ("/api/v1/openapi.json", "", 200),
        ("/sd", "", 200),
        ("/_db_updates", "", 404),
        ("/_db_updates", "?feed=x", 400),
    ] {
        let (status, body) = surface.json(&format!("{path}{query}")).await;
        assert_eq!(status, code, "{path}{query}");
        document.check(&pointer(path, "get", code), &body);
    }
}

#[tokio::test]
async fn examples_match_their_schemas() {
    let document = document(&Surface::new()).await;
    let mut examples = Vec::new();
    find_examples(&document.whole["paths"], "/paths", &mut examples);
    assert!(examples.len() > 40, "{}", examples.len());
    for (at, example) in examples {
        document.check(&format!("{at}/schema"), &example);
    }
}

/// Collects every object with an example and a schema, with its JSON pointer.
fn find_examples(value: &Value, at: &str, found: &mut Vec<(String, Value)>) {
    if let Some(example) = value.get("example").filter(|_| value.get("schema").is_some()) {
        found.push((at.to_owned(), example.clone()));
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let name = name.replace('~', "~0").replace('/', "~1");
        find_examples(field, &format!("{at}/{name}"), found);
    }
    for (place, item) in value.as_array().into_iter().flatten().enumerate() {
        find_examples(item, &format!("{at}/{place}"), found);
    }
}

#[tokio::test]
async fn document_lists_the_active_channels() {
    let document = document(&Surface::new()).await;
    let parameters = &document.whole["paths"]["/api/v1/queue"]["get"]["parameters"];
    let mut parameters = parameters.as_array().unwrap().iter();
    let channel = parameters.find(|it| it["name"] == "channel").unwrap();
    assert_eq!(channel["schema"]["enum"][0], "ratio_dbs");
    assert_eq!(channel["schema"]["type"], "string");
}
