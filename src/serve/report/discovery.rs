//! Responses for programs that speak the formats of Prometheus or CouchDB.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where one CouchDB node serves its own metrics, in the form of Prometheus's HTTP service
/// discovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetGroup {
    /// The node's host and port.
    pub targets: Vec<String>,
    /// Labels of the target.
    pub labels: TargetLabels,
}

/// The labels of a node in Prometheus's service discovery.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetLabels {
    /// `http` or `https`.
    #[serde(rename = "__scheme__")]
    pub scheme: String,
    /// The path of the metrics.
    #[serde(rename = "__metrics_path__")]
    pub metrics_path: String,
    /// CouchDB's name of the node.
    #[serde(rename = "__meta_recliner_node")]
    pub node: String,
    /// The node's version; empty where it is not known.
    #[serde(rename = "__meta_recliner_version")]
    pub version: String,
}

/// What happened to databases, in CouchDB's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DbUpdates {
    /// What happened, in order.
    pub results: Vec<DbUpdate>,
    /// The sequence to go on from.
    pub last_seq: String,
}

/// Something that happened to a database, in CouchDB's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DbUpdate {
    /// The database.
    pub db_name: String,
    /// `created`, `updated` or `deleted`.
    #[serde(rename = "type")]
    pub change: String,
    /// The sequence of the event.
    pub seq: String,
}
