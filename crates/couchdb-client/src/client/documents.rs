//! Requests that read documents of one shard copy, and replications.

use super::Client;
use crate::{Error, Route, ShardRead, wire};

/// Documents of a page; histories of checkpoints may have 50 entries each.
const LOCAL_PAGE: usize = 200;

impl Client {
    /// Documents that changed after a sequence of this copy, up to `limit`.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn shard_changes(
        &self,
        node: &str,
        shard: &str,
        since: u64,
        limit: usize,
    ) -> Result<Vec<wire::ShardChange>, Error> {
        let read = ShardRead::Changes { since, limit };
        let route = Route::ShardDocuments { node, shard, read };
        let read: wire::ShardChanges = self.get(route).await?;
        Ok(read.results)
    }

    /// Documents of this copy that changed after a sequence and are not deleted, among the first
    /// `limit` changes; and the number of these changes.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn shard_docs(
        &self,
        node: &str,
        shard: &str,
        since: u64,
        limit: usize,
    ) -> Result<(Vec<wire::ShardDoc>, usize), Error> {
        let route = Route::ShardDocuments { node, shard, read: ShardRead::Docs { since, limit } };
        let rows: wire::DocRows = self.get(route).await?;
        Ok(rows.docs())
    }

    /// Every leaf revision of a document of this copy, with its text.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn shard_leaves(
        &self,
        node: &str,
        shard: &str,
        id: &str,
    ) -> Result<Vec<(wire::Leaf, String)>, Error> {
        let route = Route::ShardDocuments { node, shard, read: ShardRead::Leaves { id } };
        let rows: wire::List<wire::LeafRow> = self
            .get_checked(route, |rows: &wire::List<wire::LeafRow>| {
                wire::Leaf::of(&rows.0).map(drop).ok_or_else(|| "it has other revisions".to_owned())
            })
            .await?;
        Ok(wire::Leaf::of(&rows.0).unwrap_or_default())
    }

    /// The `_local` documents of this copy, up to `most`, and whether these are all of them.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn local_docs(
        &self,
        node: &str,
        shard: &str,
        most: usize,
    ) -> Result<(Vec<wire::LocalRow>, bool), Error> {
        let mut all: Vec<wire::LocalRow> = Vec::new();
        loop {
            let after = all.last().and_then(|row| row.id.clone());
            let read = ShardRead::Local { from: after.as_deref(), limit: LOCAL_PAGE + 1 };
            let route = Route::ShardDocuments { node, shard, read };
            let page: wire::LocalDocs = self.get(route).await?;
            let is_last = page.rows.len() <= LOCAL_PAGE;
            let before = all.len();
            all.extend(page.rows.into_iter().filter(|row| row.id.is_some() && row.id > after));
            if is_last || all.len() == before || all.len() >= most {
                return Ok((all, is_last));
            }
        }
    }

    /// Replications of the cluster: those described by documents of `_replicator`, and those that run or wait; up to
    /// `limit` of each.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn replications(&self, limit: usize) -> Result<Vec<wire::Replication>, Error> {
        let mut all = Vec::new();
        for of_documents in [true, false] {
            let route = Route::Replications { of_documents, limit };
            let read: wire::Replications = self.get(route).await?;
            all.extend(read.docs.into_iter().chain(read.jobs));
        }
        Ok(all)
    }

    /// How many documents of a database changed after a sequence; `None` if CouchDB does not say.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn changes_left(&self, db: &str, since: &str) -> Result<Option<u64>, Error> {
        let read: wire::ChangesLeft = self.get(Route::ChangesLeft { db, since }).await?;
        Ok(read.pending.map(|pending| pending.saturating_add(read.results.len() as u64)))
    }

    /// Whether a database exists and has a document of this id below `_local/`.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn has_local_doc(&self, db: &str, id: &str) -> Result<bool, Error> {
        match self.get::<wire::Checkpoint>(Route::LocalDoc { db, id }).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How many entries about purges a compaction of the database's shards keeps at least.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn purges_limit(&self, db: &str) -> Result<u64, Error> {
        self.get(Route::PurgesLimit { db }).await
    }

    /// When the changes of a database were made. `None` if CouchDB does not record that, as before
    /// 3.6.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn time_seq(&self, db: &str) -> Result<Option<wire::TimeSeq>, Error> {
        or_missing(self.get(Route::TimeSeq { db }).await)
    }

    /// How long CouchDB keeps deleted documents of a database. `None` if it always keeps them, as
    /// before 3.6.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn auto_purge(&self, db: &str) -> Result<Option<wire::AutoPurge>, Error> {
        or_missing(self.get(Route::AutoPurge { db }).await)
    }
}

/// A route that older versions take for a document's id.
fn or_missing<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::NotFound { reason, .. }) if reason == "missing" => Ok(None),
        Err(Error::Status { status: 400, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
