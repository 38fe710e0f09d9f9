//! What starts work, one method a route. Each is sent once: whoever asks decides whether it
//! is sent again, because a request that was not answered may have arrived.

use super::{Client, Whom};
use crate::{Error, Route, directory::Way, metrics};

/// What CouchDB answers where it took a request on: it works on it, or did already.
const ACCEPTED: u16 = 202;

/// What it answers to a query.
const ANSWERED: u16 = 200;

/// What came of a request that starts work.
#[derive(Clone, Debug)]
pub enum Written {
    /// CouchDB took it on, which is not to say that anything started.
    Accepted,
    /// CouchDB answered that it will not.
    Refused(Error),
    /// It never went out, or to a node that is down.
    NotSent(Error),
    /// It may have arrived.
    Unknown(Error),
}

impl Client {
    /// Starts to compact one shard copy, or a node-local database such as `_dbs`.
    pub async fn compact_shard(&self, node: &str, shard: &str) -> Written {
        self.write(Route::NodeCompact { node, shard }, Whom::Node(node)).await
    }

    /// Starts to compact one copy of a view index; only on the range that holds the design
    /// document.
    pub async fn compact_shard_view(&self, node: &str, shard: &str, ddoc: &str) -> Written {
        self.write(Route::NodeCompactView { node, shard, ddoc }, Whom::Node(node)).await
    }

    /// Starts to compact every copy of a view index on every node at once.
    pub async fn compact_view(&self, db: &str, ddoc: &str) -> Written {
        self.write(Route::CompactView { db, ddoc }, Whom::Any).await
    }

    /// Has every node delete the index files of a database that no design document names.
    pub async fn cleanup_views(&self, db: &str) -> Written {
        self.write(Route::ViewCleanup { db }, Whom::Any).await
    }

    /// Has every copy of a view index built that is behind; `view` is any of the document's.
    pub async fn build_view(&self, db: &str, ddoc: &str, view: &str) -> Written {
        self.write(Route::BuildView { db, ddoc, view }, Whom::Any).await
    }

    pub(super) async fn write(&self, route: Route<'_>, whom: Whom<'_>) -> Written {
        let due = if route.starts_work() { ACCEPTED } else { ANSWERED };
        match self.sent_once(route, whom).await {
            Ok((status, _)) if status == due => Written::Accepted,
            Ok((status, asked)) => {
                let detail = format!("HTTP {status} where {due} is due");
                Written::Unknown(Error::Garbage { asked, detail })
            }
            Err(error) => Written::of(error, route),
        }
    }

    /// Sends a request one way, within the limits on what is in flight, and not again.
    async fn sent_once(
        &self,
        route: Route<'_>,
        whom: Whom<'_>,
    ) -> Result<(u16, std::sync::Arc<crate::Asked>), Error> {
        let shared = &self.shared;
        let path = route.path()?;
        let node = match whom {
            Whom::Any => None,
            Whom::Node(name) | Whom::Own(name) => Some(shared.directory.node(name)),
        };
        if let Some(node) = &node {
            node.sought.get_or_init(|| self.seek(node)).await;
        }
        let _about = match &node {
            Some(node) => Some(node.in_flight.acquire().await.map_err(|_| Error::Stopped)?),
            None => None,
        };
        shared.gate.pass().await?;
        let generation = shared.gate.generation();
        let way = match &node {
            Some(node) => shared.directory.way_to(node, &[], generation)?,
            None => shared.directory.any(&[], generation).map(Way::direct)?,
        };
        let (_, status, took) = self.attempt(route, &path, &way).await?;
        shared.sender.metrics.count(route.label(), metrics::code(status), took);
        Ok((status, crate::Asked::new(&route, &path, &way.server.address)))
    }
}

impl Written {
    /// What an error of a request on this route means for whoever sent it.
    fn of(error: Error, route: Route<'_>) -> Self {
        match &error {
            // Asking who the login is comes first, and may fail by itself.
            Error::Timeout { asked, .. }
            | Error::Connect { asked, .. }
            | Error::Tls { asked, .. }
            | Error::TooLarge { asked, .. }
            | Error::Garbage { asked, .. } => {
                if asked.route == route.label() {
                    Self::Unknown(error)
                } else {
                    Self::NotSent(error)
                }
            }
            Error::Status { .. }
            | Error::NotFound { .. }
            | Error::Forbidden { .. }
            | Error::NoUser { .. }
            | Error::Redirect { .. } => Self::Refused(error),
            Error::Resting { .. }
            | Error::Hangs { .. }
            | Error::NodeDown { .. }
            | Error::UnknownNode { .. }
            | Error::LoginClosed { .. }
            | Error::NotCouchDb { .. }
            | Error::Unproved(_)
            | Error::Unaddressable(_)
            | Error::NoOwnAddress { .. }
            | Error::Stopped => Self::NotSent(error),
        }
    }
}
