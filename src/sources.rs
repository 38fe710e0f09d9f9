//! The sources of facts: CouchDB over HTTP, the node's files, and other recliners.
//!
//! Owns the reads. Keeps nothing: the results go to `scan` as observations.

pub(crate) mod couchdb;
pub mod doc_sample;
pub(crate) mod fetch;
pub mod inventory;
pub mod node_settings;
pub mod present_design;
mod random_places;
pub(crate) mod recliner;
pub mod request_metrics;
pub mod tombstones;
pub mod xray;

use crate::table::Snapshot;
use std::{collections::BTreeSet, sync::Arc};
use tokio::sync::watch;

/// Completes when the set of reachable nodes differs from `known`.
pub(crate) async fn nodes_changed(
    snapshots: &mut watch::Receiver<Arc<Snapshot>>,
    known: &BTreeSet<String>,
) {
    // The sender ends only when the whole service stops, so there is nothing to report.
    if snapshots.wait_for(|snapshot| snapshot.reachable_nodes() != *known).await.is_err() {
        std::future::pending().await
    }
}
