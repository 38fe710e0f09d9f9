//! The OpenAPI document: every route with its parameters, bodies, responses and errors.
//!
//! Assembles the document from the descriptions of the routes. The schemas are generated from the
//! types that the server parses and sends, so that both always have the same fields. The enum of
//! channels lists the active ones.

mod examples;

use super::{
    answer,
    query::{NoQuery, ValidQuery},
    route::{Body, Kind, Operation, Route},
    schemas::{HTML, JSON, Schemas, TEXT},
    state::AppState,
};
use crate::{
    plan::Plan,
    serve::report::{CouchDbError, Failed},
};
use axum::{Extension, body::Bytes, extract, response::Response, routing::get};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// The version of OpenAPI. Its schemas are JSON Schema 2020-12 without extensions.
const OPENAPI: &str = "3.1.0";

/// The route of the document that describes these operations and itself.
pub(super) fn route(mut operations: Vec<Operation>) -> Route {
    let route = |handler| {
        Route::api::<NoQuery, ()>(
            "/api/v1/openapi.json",
            "openapi",
            handler,
            "The OpenAPI document of these routes.",
        )
        .described(|operation| Operation {
            answers: |_| vec![(JSON, json!({ "type": "object" }))],
            ..operation
        })
    };
    operations.push(route(get(openapi)).operation);
    let text = LastText { operations: operations.into(), last: Arc::default() };
    route(get(openapi).layer(Extension(text)))
}

async fn openapi(
    extract::State(state): extract::State<AppState>,
    Extension(last): Extension<LastText>,
    ValidQuery(NoQuery {}): ValidQuery<NoQuery>,
) -> Response {
    let plan = Arc::clone(&state.plan.borrow());
    answer::json(last.of(&channels(&plan)).into())
}

/// The document as last sent, with the channels that it lists.
#[derive(Clone, Debug)]
struct LastText {
    operations: Arc<[Operation]>,
    last: Arc<Mutex<(Vec<String>, Bytes)>>,
}

impl LastText {
    fn of(&self, channels: &[&str]) -> Bytes {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.1.is_empty() || last.0 != channels {
            let names = channels.iter().map(|name| (*name).to_owned()).collect();
            *last = (names, answer::text(&document(&self.operations, channels)).into());
        }
        last.1.clone()
    }
}

fn channels(plan: &Plan) -> Vec<&str> {
    plan.channels.list.iter().map(|channel| &*channel.name).collect()
}

/// The document that describes these operations of a service with these channels.
pub(super) fn document(operations: &[Operation], channels: &[&str]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for operation in operations {
        let described = operation.described(&mut schemas, channels);
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = described;
    }
    json!({
        "openapi": OPENAPI,
        "info": {
            "title": "recliner",
            "summary": "What waits for compaction in a CouchDB cluster, and what it would free.",
            "description": "Responses under /api/v1/ have Prometheus's envelope. Unknown values are null. Times are RFC 3339 in UTC. Only preflight waits for CouchDB.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "tags": [
            { "name": "read", "description": "What recliner sees and decides." },
            { "name": "order", "description": "Orders from an operator, by POST; disabled unless a flag allows them." },
            { "name": "probe", "description": "For supervisors, Prometheus and people." },
        ],
        // The empty entry means that a service without users needs no login.
        "security": [{}, { "basic": [] }, { "certificate": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas.definitions(),
            "securitySchemes": {
                "basic": { "type": "http", "scheme": "basic", "description": "A user of `--web.config.file`." },
                "certificate": { "type": "mutualTLS", "description": "A client certificate, if `--web.config.file` requires one." },
            },
        },
    })
}

impl Operation {
    fn described(&self, schemas: &mut Schemas, channels: &[&str]) -> Value {
        let mut described = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "summary": self.summary,
            "responses": self.responses(schemas),
        });
        if let Some(description) = self.detail {
            described["description"] = description.into();
        }
        if self.is_open {
            described["security"] = json!([]);
        }
        let mut parameters = (self.parameters)(schemas);
        for parameter in &mut parameters {
            if parameter["name"] == "channel" {
                parameter["schema"]["enum"] = json!(channels);
            }
            if let Some(example) = examples::parameter(self.path, &parameter["name"]) {
                parameter["example"] = example;
            }
        }
        if !parameters.is_empty() {
            described["parameters"] = parameters.into();
        }
        if let Some(Body { schema, example }) = &self.body {
            described["requestBody"] = json!({
                "required": true,
                "content": { "application/json": { "schema": schema(schemas), "example": example } },
            });
        }
        described
    }

    fn responses(&self, schemas: &mut Schemas) -> Value {
        let mut responses = Map::new();
        let content: Map<String, Value> = (self.answers)(schemas)
            .into_iter()
            .map(|(kind, schema)| {
                let mut content = json!({ "schema": schema });
                if let Some(example) = examples::answer(self.id).filter(|_| kind == JSON) {
                    content["example"] = example;
                }
                (kind.to_owned(), content)
            })
            .collect();
        responses.insert("200".into(), json!({ "description": self.answer, "content": content }));
        for (code, description) in self.errors {
            let content = match self.kind {
                _ if *code == 304 => json!({}),
                Kind::Api => json!({ JSON: {
                    "schema": schemas.written::<Failed>(),
                    "example": examples::error(*code, description),
                } }),
                Kind::CouchDb => json!({ JSON: {
                    "schema": schemas.written::<CouchDbError>(),
                } }),
                Kind::Text => json!({ TEXT: { "schema": { "type": "string" } } }),
                Kind::Html => json!({ HTML: { "schema": { "type": "string" } } }),
            };
            let mut response = json!({ "description": description });
            if content != json!({}) {
                response["content"] = content;
            }
            responses.insert(code.to_string(), response);
        }
        if !self.is_open {
            for (code, description) in [
                (401, "The service has users, and the request has no valid login."),
                (
                    429,
                    "Too many passwords from this address are waiting to be checked. Try again later.",
                ),
            ] {
                let text = json!({ TEXT: { "schema": { "type": "string" } } });
                let response = json!({ "description": description, "content": text });
                responses.entry(code.to_string()).or_insert(response);
            }
        }
        responses.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_is_rerendered_only_if_channels_change() {
        let last = LastText { operations: Arc::default(), last: Arc::default() };
        let (first, again) = (last.of(&["a"]), last.of(&["a"]));
        assert_eq!(first.as_ptr(), again.as_ptr());
        let others = last.of(&["a", "b"]);
        assert_ne!(others.as_ptr(), first.as_ptr());
        assert_ne!(last.of(&["a"]).as_ptr(), others.as_ptr());
    }
}
