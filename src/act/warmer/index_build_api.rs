//! Requests that make CouchDB build an index, and the setting that limits builds.

use crate::{sources::couchdb::describe, table::IndexQuery};
use couchdb_client::{Client, WriteOutcome};
use couchdb_names::Engine;
use futures::{FutureExt as _, future::BoxFuture};
use std::fmt::Debug;

/// Default disk usage in percent from which CouchDB's disk monitor stops builds
/// (`couch_disk_monitor`, 3.4 and later).
const DEFAULT_THRESHOLD_PERCENT: f64 = 80.0;

/// Whether CouchDB accepted a build, or why not.
pub(super) type BuildResult = BoxFuture<'static, Result<(), String>>;

/// Requests index builds from CouchDB.
pub trait IndexBuildApi: Debug + Send + Sync {
    /// Makes CouchDB build every copy of a view index, or of a search index of `engine`. Does not
    /// wait for the end. The error tells why CouchDB refused.
    fn build(&self, db: &str, query: &IndexQuery, engine: Option<Engine>) -> BuildResult;

    /// Disk usage in percent from which a node's disk monitor stops builds; `None` if it is off or
    /// unknown.
    fn disk_threshold(&self, node: &str) -> BoxFuture<'static, Option<f64>>;
}

impl IndexBuildApi for Client {
    fn build(&self, db: &str, query: &IndexQuery, engine: Option<Engine>) -> BuildResult {
        let (client, db, query) = (self.clone(), db.to_owned(), query.clone());
        let request = async move {
            let (design, name) = (&*query.design, &*query.view);
            let written = match engine {
                None => client.build_view(&db, design, name).await,
                Some(engine) => client.build_search(engine, &db, design, name).await,
            };
            match written {
                WriteOutcome::Accepted => Ok(()),
                WriteOutcome::Refused(error)
                | WriteOutcome::NotSent(error)
                | WriteOutcome::Unknown(error) => Err(describe(&error)),
            }
        };
        request.boxed()
    }

    fn disk_threshold(&self, node: &str) -> BoxFuture<'static, Option<f64>> {
        let (client, node) = (self.clone(), node.to_owned());
        let request = async move {
            let section = client.config_section(&node, "disk_monitor").await.ok()?;
            let enabled = section.get("enable").is_some_and(|word| word == "true");
            let set = section.get("background_view_indexing_threshold");
            let threshold =
                set.and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_THRESHOLD_PERCENT);
            enabled.then_some(threshold)
        };
        request.boxed()
    }
}
