//! `/sd`: the addresses of CouchDB's nodes, for Prometheus's `http_sd_configs`.
//!
//! CouchDB answers `/_node/_local/_prometheus` only for the node that receives the request, so each
//! node must be scraped at its own address. Only addresses whose server confirmed the node's name
//! are listed: otherwise Prometheus would assign one node's numbers to another.

use super::{
    answer, probes,
    route::{Operation, Route},
    schemas::{JSON, Schemas},
    state::AppState,
};
use crate::{
    serve::report::{TargetGroup, TargetLabels},
    table::Node,
};
use axum::{
    extract,
    response::{IntoResponse, Response},
    routing::get,
};
use couchdb_client::Address;
use couchdb_names::Build;
use std::sync::Arc;

pub(super) fn routes() -> Vec<Route> {
    let nodes = Route::plain(
        "/sd",
        "serviceDiscovery",
        get(discovery),
        "CouchDB's nodes, for Prometheus's service discovery.",
        &[(503, "The first sweep has not ended.")],
    );
    let answers = |schemas: &mut Schemas| vec![(JSON, schemas.written::<Vec<TargetGroup>>())];
    let answer = "Every node whose direct address is known.";
    let nodes = nodes.described(|operation| Operation { answer, answers, ..operation });
    vec![
        nodes.detail(
            "Each node's direct address, with its name; 503 before the first sweep has ended.",
        ),
    ]
}

/// The path of CouchDB's own metrics, below a proxy's path prefix (CouchDB 3.2 and later).
const METRICS: &str = "/_node/_local/_prometheus";

/// Lists every cluster member with a known address, in the service discovery format. Before the
/// first sweep the response is an error, and Prometheus keeps its previous list.
pub(super) async fn discovery(extract::State(state): extract::State<AppState>) -> Response {
    if let Some(answer) = probes::unready(&state) {
        return answer.into_response();
    }
    let snapshot = Arc::clone(&state.plan.borrow().snapshot);
    let groups: Vec<TargetGroup> = snapshot
        .nodes()
        .iter()
        .filter(|node| node.is_member)
        .filter_map(|node| Some(group(node, node.own_address.found()?)))
        .collect();
    answer::whole(&groups)
}

fn group(node: &Node, address: &Address) -> TargetGroup {
    TargetGroup {
        targets: vec![address.authority().to_owned()],
        labels: TargetLabels {
            scheme: if address.is_https() { "https" } else { "http" }.to_owned(),
            metrics_path: format!("{}{METRICS}", address.prefix()),
            node: node.name.to_string(),
            version: node.build.as_ref().map(Build::to_string).unwrap_or_default(),
        },
    }
}
