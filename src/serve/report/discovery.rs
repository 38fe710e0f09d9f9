//! Responses for programs that speak the formats of Prometheus or CouchDB.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The address of one CouchDB node's own metrics, in the form of Prometheus's HTTP service discovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetGroup {
    /// The node's host and port.
    pub targets: Vec<String>,
    /// Prometheus labels of the node.
    pub labels: TargetLabels,
}

/// The labels of a node in Prometheus's service discovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetLabels {
    /// The URL scheme: `http` or `https`.
    #[serde(rename = "__scheme__")]
    pub scheme: String,
    /// The URL path of the metrics.
    #[serde(rename = "__metrics_path__")]
    pub metrics_path: String,
    /// CouchDB's name for the node.
    #[serde(rename = "__meta_recliner_node")]
    pub node: String,
    /// The node's CouchDB version; empty if unknown.
    #[serde(rename = "__meta_recliner_version")]
    pub version: String,
}

/// Events of databases, in CouchDB's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DbUpdates {
    /// The events, in order.
    pub results: Vec<DbUpdate>,
    /// The sequence to continue from.
    pub last_seq: String,
}

/// One event of a database, in CouchDB's format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DbUpdate {
    /// The database's name.
    pub db_name: String,
    /// The type of event: `created`, `updated` or `deleted`.
    #[serde(rename = "type")]
    pub change: String,
    /// The event's sequence.
    pub seq: String,
}
