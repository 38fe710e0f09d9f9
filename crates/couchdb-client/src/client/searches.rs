//! Requests about search indexes, and one that builds them.

use super::{Client, writes::WriteOutcome};
use crate::{Error, ErrorKind, Route, wire};
use couchdb_names::Engine;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// CouchDB's reason for an index that nouveau does not have
/// (`IndexManager.java`, through `nouveau_api:jaxrs_error/2`).
const NEVER_BUILT: &str = "Index does not exist";

/// How long the client waits for a query that builds an index. Indexers start within milliseconds
/// and continue when the client disconnects (`nouveau_index_manager`, `dreyfus_index`). A query
/// with nothing to build, and most refusals, are answered by then.
const STARTED_WITHIN: Duration = Duration::from_secs(2);

impl Client {
    /// Version, vendor and features at the own address of `node`: only there does a server list
    /// features that are not CouchDB's own.
    ///
    /// # Errors
    /// As [`Error`] says; [`ErrorKind::NoOwnAddress`] where the address is not known.
    pub async fn own_welcome(&self, node: &str) -> Result<wire::Welcome, Error> {
        self.get_own(Route::Welcome, node).await
    }

    /// A search index over the cluster; `None` if no copy of a range was ever built.
    ///
    /// For clouseau the server creates such an index, empty, so ask sparingly.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn search_info(
        &self,
        engine: Engine,
        db: &str,
        ddoc: &str,
        index: &str,
    ) -> Result<Option<wire::SearchInfo>, Error> {
        let route = Route::SearchInfo { engine, db, ddoc, index };
        match self.get(route).await {
            Ok(info) => Ok(Some(info)),
            Err(Error::NotFound { reason, .. }) if reason == NEVER_BUILT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes CouchDB build every copy of a search index that is behind. A missing answer counts as
    /// accepted, because the query waits for the build.
    pub async fn build_search(
        &self,
        engine: Engine,
        db: &str,
        ddoc: &str,
        index: &str,
    ) -> WriteOutcome {
        let route = Route::BuildSearch { engine, db, ddoc, index };
        let began = Instant::now();
        match timeout(STARTED_WITHIN, self.write(route)).await {
            Ok(WriteOutcome::Unknown(error)) if error.kind() == ErrorKind::Timeout => {
                WriteOutcome::Accepted
            }
            Ok(written) => written,
            Err(_) => {
                let late = ErrorKind::Timeout.label();
                self.shared.sender.observer.request_ended(route.label(), late, began.elapsed());
                WriteOutcome::Accepted
            }
        }
    }
}
