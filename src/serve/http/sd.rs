//! `/sd`: where each CouchDB node listens, for Prometheus's `http_sd_configs`.
//!
//! CouchDB answers `/_node/_local/_prometheus` for the node that is asked alone, so each has
//! to be scraped at its own address. Only addresses whose server said the node's name are
//! listed: of any other, Prometheus would take one node's numbers for another's.

use super::{State, answer, probes};
use crate::{
    serve::report::{TargetGroup, TargetLabels},
    table::Node,
};
use axum::{
    extract,
    response::{IntoResponse, Response},
};
use couchdb_client::Address;
use std::sync::Arc;

/// CouchDB's own metrics, below whatever path a proxy puts before it (CouchDB 3.2 and later).
const METRICS: &str = "/_node/_local/_prometheus";

/// Every member of the cluster whose own address is known, in the service discovery's shape;
/// before the first sweep an error, at which Prometheus keeps the list it has.
pub(super) async fn discovery(extract::State(state): extract::State<State>) -> Response {
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
            version: node.version.map_or_else(String::new, |it| it.to_string()),
        },
    }
}
