//! Claims the journal for the observed cluster and loads the state of the previous process.

use crate::{
    model::memory::{Recovered, Trouble},
    scan::Before,
    store::journal::{ClaimError, Identity, Journal},
};
use couchdb_client::{Client, Error};
use futures::future::join_all;
use std::{collections::BTreeSet, time::Duration};
use tokio::{sync::oneshot, time};

/// Delay before asking for the cluster's identity again.
const AGAIN: Duration = Duration::from_secs(5);

/// Time limit for one node; the answers of the others suffice.
const WITHIN: Duration = Duration::from_secs(5);

/// Claims the journal as soon as the cluster's identity is known, and loads the stored state;
/// measured facts are sent to `before`. `None` if the journal belongs to another cluster: the
/// caller must end.
pub(super) async fn recover(
    journal: Journal,
    whose: Whose,
    before: oneshot::Sender<Before>,
) -> Option<Recovered> {
    let mut said = None;
    loop {
        let claimed = match whose.identity().await {
            Ok(identity) => journal.claim(identity).await.map_err(Some),
            // The scanner reports problems with CouchDB.
            Err(_) => Err(None),
        };
        match claimed {
            Ok(recovered) => {
                let left = left(&journal).await.unwrap_or_else(|why| {
                    tracing::warn!(%why, "the measurements of the previous process cannot be read");
                    Before::default()
                });
                // The scanner may have started without them.
                let _late = before.send(left);
                return Some(recovered);
            }
            Err(Some(why @ ClaimError::Another { .. })) => {
                tracing::error!("{why}");
                return None;
            }
            Err(Some(ClaimError::Trouble(why))) if said.as_ref() != Some(&why) => {
                tracing::warn!("{why}");
                said = Some(why);
            }
            Err(_) => {}
        }
        time::sleep(AGAIN).await;
    }
}

async fn left(journal: &Journal) -> Result<Before, Trouble> {
    Ok(Before { blocks: journal.measured().await?, marks: journal.marks().await? })
}

/// How to determine the owner of the journal.
#[derive(Debug)]
pub(super) enum Whose {
    /// The cluster, according to CouchDB.
    Cluster(Client),
    /// The node in the settings, read from its files.
    Node(String),
}

impl Whose {
    async fn identity(&self) -> Result<Identity, Error> {
        match self {
            Self::Cluster(client) => identity(client).await,
            Self::Node(node) => {
                Ok(Identity { uuids: BTreeSet::new(), nodes: BTreeSet::from([node.clone()]) })
            }
        }
    }
}

/// The uuids of all nodes that answer. Nodes usually have different uuids, and it is random which
/// one answers first.
async fn identity(client: &Client) -> Result<Identity, Error> {
    let (welcome, members) = (client.welcome().await?, client.membership().await?);
    let nodes: BTreeSet<String> = members.cluster_nodes.unwrap_or_default().into_iter().collect();
    let asked = nodes.iter().map(|node| time::timeout(WITHIN, client.node_welcome(node)));
    let answered = join_all(asked).await.into_iter().filter_map(|it| it.ok()?.ok());
    let uuids = answered.chain([welcome]).filter_map(|welcome| welcome.uuid).collect();
    Ok(Identity { uuids, nodes })
}
