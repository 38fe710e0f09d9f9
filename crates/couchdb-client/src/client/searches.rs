//! What nodes tell of search indexes, and how one is built.

use super::{Client, Whom, Written};
use crate::{Error, Kind, Route, wire};
use couchdb_names::Engine;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// What CouchDB says of an index that nouveau does not have
/// (`IndexManager.java`, through `nouveau_api:jaxrs_error/2`).
const NEVER_BUILT: &str = "Index does not exist";

/// A query is waited for so long: indexers start in milliseconds, and they go on when whoever
/// asked for them has left (`nouveau_index_manager`, `dreyfus_index`). A query that has nothing
/// to wait for, and most refusals, are answered by then.
const STARTED_WITHIN: Duration = Duration::from_secs(2);

impl Client {
    /// What a server says of itself at the own address of `node`: there alone it names what it
    /// has beside CouchDB's own.
    ///
    /// # Errors
    /// As [`Error`] says; [`Kind::NoOwnAddress`] where the address is not known.
    pub async fn own_welcome(&self, node: &str) -> Result<wire::Welcome, Error> {
        self.get(Route::Welcome, Whom::Own(node), false).await
    }

    /// A search index over the cluster; `None` where none of a range's copies was ever built.
    ///
    /// Of clouseau it makes the server create such an index, empty, so it is asked sparingly.
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
        match self.get(route, Whom::Any, false).await {
            Ok(info) => Ok(Some(info)),
            Err(Error::NotFound { reason, .. }) if reason == NEVER_BUILT => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Has every copy of a search index built that is behind. Taken for accepted where no
    /// answer comes: the query waits for the build.
    pub async fn build_search(&self, engine: Engine, db: &str, ddoc: &str, index: &str) -> Written {
        let route = Route::BuildSearch { engine, db, ddoc, index };
        let began = Instant::now();
        match timeout(STARTED_WITHIN, self.write(route, Whom::Any)).await {
            Ok(Written::Unknown(error)) if error.kind() == Kind::Timeout => Written::Accepted,
            Ok(written) => written,
            Err(_) => {
                let late = Kind::Timeout.label();
                self.shared.sender.metrics.count(route.label(), late, began.elapsed());
                Written::Accepted
            }
        }
    }
}
