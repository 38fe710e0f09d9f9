//! The requests by which the enforcer starts work in CouchDB.

use crate::{jobs::RequestResult, sources::couchdb::describe};
use couchdb_client::{Client, Error, ErrorKind, Route, WriteOutcome};
use futures::{FutureExt, future::BoxFuture};
use std::fmt::Debug;

/// A request that starts work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompactionCommand {
    /// Compact one shard copy.
    CompactShard {
        node: String,
        /// Name of the shard file.
        shard: String,
    },
    /// Compact one copy of a view index.
    CompactViewCopy {
        node: String,
        /// Name of the shard file.
        shard: String,
        /// The design document's id.
        design: String,
    },
    /// Compact every copy of a view index.
    CompactView {
        /// The clustered database.
        db: String,
        /// The design document's id.
        design: String,
    },
    /// Delete index files that no design document uses.
    Cleanup {
        /// The clustered database.
        db: String,
    },
}

/// Sends requests that start compactions. Nothing else in the program does.
pub(crate) trait CompactionApi: Debug + Send + Sync {
    /// Sends a request, once.
    fn send(&self, command: CompactionCommand) -> BoxFuture<'static, RequestResult>;

    /// Checks whether a node is in service; an error contains its status or why it did not answer.
    /// A node whose own address is unknown counts as in service.
    fn check_in_service(&self, node: &str) -> BoxFuture<'static, Result<(), String>>;
}

impl CompactionApi for Client {
    fn send(&self, command: CompactionCommand) -> BoxFuture<'static, RequestResult> {
        let client = self.clone();
        let sending = async move {
            let route = match &command {
                CompactionCommand::CompactShard { node, shard } => {
                    Route::NodeCompact { node, shard }
                }
                CompactionCommand::CompactViewCopy { node, shard, design } => {
                    Route::NodeCompactView { node, shard, ddoc: design }
                }
                CompactionCommand::CompactView { db, design } => {
                    Route::CompactView { db, ddoc: design }
                }
                CompactionCommand::Cleanup { db } => Route::ViewCleanup { db },
            };
            client.write(route).await
        };
        sending.map(RequestResult::from).boxed()
    }

    fn check_in_service(&self, node: &str) -> BoxFuture<'static, Result<(), String>> {
        let (client, node) = (self.clone(), node.to_owned());
        let request = async move {
            match client.up(&node).await {
                Ok(up) => match up.status.as_deref() {
                    Some("ok") => Ok(()),
                    status => Err(format!("{node} reports status {}", status.unwrap_or("nothing"))),
                },
                Err(error) if error.kind() == ErrorKind::NoOwnAddress => Ok(()),
                Err(error) => Err(describe(&error)),
            }
        };
        request.boxed()
    }
}

impl From<WriteOutcome> for RequestResult {
    fn from(written: WriteOutcome) -> Self {
        let why = |error: Error| describe(&error);
        match written {
            WriteOutcome::Accepted => Self::Accepted,
            WriteOutcome::Refused(error) => Self::Refused(why(error)),
            WriteOutcome::NotSent(error) => Self::NotSent(why(error)),
            WriteOutcome::Unknown(error) => Self::MayHaveArrived(why(error)),
        }
    }
}
