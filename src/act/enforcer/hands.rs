//! The requests by which the enforcer starts work in CouchDB.

use crate::{jobs::Sent, sources::couchdb::describe};
use couchdb_client::{Client, Error, Kind, Written};
use futures::{FutureExt, future::BoxFuture};
use std::fmt::Debug;

/// A request that starts work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Compact one shard copy.
    Shard {
        /// The node.
        node: String,
        /// Name of the shard file.
        shard: String,
    },
    /// Compact one copy of a view index.
    Copy {
        /// The node.
        node: String,
        /// Name of the shard file.
        shard: String,
        /// The design document's id.
        design: String,
    },
    /// Compact every copy of a view index.
    Whole {
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
pub trait Hands: Debug + Send + Sync {
    /// Sends a request, once.
    fn send(&self, order: Order) -> BoxFuture<'static, Sent>;

    /// Checks whether a node is in service; an error gives its status or why it did not answer. A
    /// node whose own address is unknown counts as in service.
    fn in_service(&self, node: &str) -> BoxFuture<'static, Result<(), String>>;
}

impl Hands for Client {
    fn send(&self, order: Order) -> BoxFuture<'static, Sent> {
        let client = self.clone();
        let sending = async move {
            match &order {
                Order::Shard { node, shard } => client.compact_shard(node, shard).await,
                Order::Copy { node, shard, design } => {
                    client.compact_shard_view(node, shard, design).await
                }
                Order::Whole { db, design } => client.compact_view(db, design).await,
                Order::Cleanup { db } => client.cleanup_views(db).await,
            }
        };
        sending.map(Sent::from).boxed()
    }

    fn in_service(&self, node: &str) -> BoxFuture<'static, Result<(), String>> {
        let (client, node) = (self.clone(), node.to_owned());
        let asking = async move {
            match client.up(&node).await {
                Ok(up) => match up.status.as_deref() {
                    Some("ok") => Ok(()),
                    status => Err(format!("{node} reports status {}", status.unwrap_or("nothing"))),
                },
                Err(error) if error.kind() == Kind::NoOwnAddress => Ok(()),
                Err(error) => Err(describe(&error)),
            }
        };
        asking.boxed()
    }
}

impl From<Written> for Sent {
    fn from(written: Written) -> Self {
        let why = |error: Error| describe(&error);
        match written {
            Written::Accepted => Self::Accepted,
            Written::Refused(error) => Self::Refused(why(error)),
            Written::NotSent(error) => Self::NotSent(why(error)),
            Written::Unknown(error) => Self::Unknown(why(error)),
        }
    }
}
