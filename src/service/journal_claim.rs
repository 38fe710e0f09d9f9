//! Claims the journal for the observed cluster and loads the state of the previous process.

use crate::{
    model::records::{RecoveredState, StoreError},
    scan::EarlierProcess,
    store::journal::{ClaimError, ClusterIdentity, Journal},
};
use couchdb_client::{Client, Error};
use futures::future::join_all;
use std::{collections::BTreeSet, time::Duration};
use tokio::{sync::oneshot, time};

/// Delay before asking for the cluster's identity again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Time limit for one node; the answers of the others suffice.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);

/// Claims the journal as soon as the cluster's identity is known, and loads the stored state;
/// measured facts are sent to `before`. `None` if the journal belongs to another cluster: the
/// caller must end.
pub(super) async fn claim_and_recover(
    journal: Journal,
    whose: JournalOwner,
    before: oneshot::Sender<EarlierProcess>,
) -> Option<RecoveredState> {
    let mut logged = None;
    loop {
        let claimed = match whose.identity().await {
            Ok(identity) => journal.claim(identity).await.map_err(Some),
            // The scanner reports problems with CouchDB.
            Err(_) => Err(None),
        };
        match claimed {
            Ok(recovered) => {
                let left = load_measurements(&journal).await.unwrap_or_else(|why| {
                    tracing::warn!(%why, "the measurements of the previous process cannot be read");
                    EarlierProcess::default()
                });
                // The scanner may have started without them.
                let _late = before.send(left);
                return Some(recovered);
            }
            Err(Some(why @ ClaimError::OtherCluster { .. })) => {
                tracing::error!("{why}");
                return None;
            }
            Err(Some(ClaimError::Store(why))) if logged.as_ref() != Some(&why) => {
                tracing::warn!("{why}");
                logged = Some(why);
            }
            Err(_) => {}
        }
        time::sleep(RETRY_DELAY).await;
    }
}

async fn load_measurements(journal: &Journal) -> Result<EarlierProcess, StoreError> {
    Ok(EarlierProcess { blocks: journal.load_measurements().await?, marks: journal.marks().await? })
}

/// How to determine the owner of the journal.
#[derive(Debug)]
pub(super) enum JournalOwner {
    /// The cluster, according to CouchDB.
    Cluster(Client),
    /// The node in the settings, read from its files.
    Node(String),
}

impl JournalOwner {
    async fn identity(&self) -> Result<ClusterIdentity, Error> {
        match self {
            Self::Cluster(client) => cluster_identity(client).await,
            Self::Node(node) => Ok(ClusterIdentity {
                uuids: BTreeSet::new(),
                nodes: BTreeSet::from([node.clone()]),
            }),
        }
    }
}

/// The uuids of all nodes that answer. Nodes usually have different uuids, and it is random which
/// one answers first.
async fn cluster_identity(client: &Client) -> Result<ClusterIdentity, Error> {
    let (welcome, members) = (client.welcome().await?, client.membership().await?);
    let nodes: BTreeSet<String> = members.cluster_nodes.unwrap_or_default().into_iter().collect();
    let asked = nodes.iter().map(|node| time::timeout(NODE_TIMEOUT, client.node_welcome(node)));
    let answered = join_all(asked).await.into_iter().filter_map(|it| it.ok()?.ok());
    let uuids = answered.chain([welcome]).filter_map(|welcome| welcome.uuid).collect();
    Ok(ClusterIdentity { uuids, nodes })
}
