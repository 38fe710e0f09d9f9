//! Claims the journal for the observed cluster, loads the state of the previous process, and checks
//! after each reload that CouchDB is still that cluster.

use crate::{
    model::records::{JournalFailure, RecoveredState, StoreError},
    scan::EarlierProcess,
    sources::couchdb::describe,
    store::journal::{ClaimError, ClusterIdentity, Journal},
};
use couchdb_client::{Client, Error};
use futures::future::join_all;
use std::{collections::BTreeSet, time::Duration};
use tokio::{
    sync::{oneshot, watch as latest},
    time,
};

/// Delay before asking for the cluster's identity again.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Time limit for one node; the answers of the others suffice.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);

/// Claims the journal as soon as the cluster's identity is known, and loads the stored state;
/// measured facts are sent to `before`. While it waits, the reason is sent to `obstacle`. A journal
/// of another cluster is tried again, because a reload may correct the address of CouchDB.
pub(super) async fn claim_and_recover(
    journal: Journal,
    whose: JournalOwner,
    before: oneshot::Sender<EarlierProcess>,
    obstacle: latest::Sender<JournalFailure>,
) -> RecoveredState {
    loop {
        let failure = match whose.identity().await {
            Ok(identity) => match journal.claim(identity).await {
                Ok(recovered) => {
                    let measurements = load_measurements(&journal).await.unwrap_or_else(|why| {
                        tracing::warn!(%why, "cannot read the measurements of the previous process");
                        EarlierProcess::default()
                    });
                    // The scanner may have started already, without the measurements.
                    let _late = before.send(measurements);
                    return recovered;
                }
                Err(why @ ClaimError::OtherCluster { .. }) => {
                    JournalFailure::OtherCluster(why.to_string())
                }
                Err(ClaimError::Store(why)) => JournalFailure::NotLoaded(why.to_string()),
            },
            Err(why) => {
                // The scanner reports problems with CouchDB.
                let why =
                    format!("CouchDB has not reported which cluster it is: {}", describe(&why));
                obstacle.send_replace(JournalFailure::NotLoaded(why));
                time::sleep(RETRY_DELAY).await;
                continue;
            }
        };
        let is_new = obstacle.send_if_modified(|known| {
            let is_new = *known != failure;
            known.clone_from(&failure);
            is_new
        });
        if is_new {
            match failure {
                JournalFailure::OtherCluster(why) => log_other_cluster(&why),
                JournalFailure::NotLoaded(why) | JournalFailure::NotWritable(why) => {
                    tracing::warn!("{why}");
                }
            }
        }
        time::sleep(RETRY_DELAY).await;
    }
}

/// Claims the journal again whenever the client was replaced: a reload may have led to another
/// cluster, whose records must not mix with those of the first.
pub(super) async fn keep_claimed(journal: Journal, mut clients: latest::Receiver<Client>) {
    let mut is_ours = true;
    while clients.changed().await.is_ok() {
        let identity = loop {
            let client = clients.borrow_and_update().clone();
            match cluster_identity(&client).await {
                Ok(identity) => break identity,
                // The scanner reports problems with CouchDB.
                Err(_) => time::sleep(RETRY_DELAY).await,
            }
        };
        match journal.claim(identity).await {
            Ok(_) if is_ours => {}
            Ok(_) => {
                is_ours = true;
                tracing::info!(
                    "CouchDB is the journal's cluster again: recliner uses the journal again"
                );
            }
            Err(ClaimError::OtherCluster { .. }) if !is_ours => {}
            Err(why @ ClaimError::OtherCluster { .. }) => {
                is_ours = false;
                log_other_cluster(&why.to_string());
            }
            Err(ClaimError::Store(why)) => {
                tracing::warn!(%why, "cannot claim the journal for this cluster")
            }
        }
    }
}

fn log_other_cluster(why: &str) {
    tracing::error!(
        why,
        "nothing is recorded and nothing starts: the journal belongs to another cluster"
    );
}

async fn load_measurements(journal: &Journal) -> Result<EarlierProcess, StoreError> {
    Ok(EarlierProcess { blocks: journal.load_measurements().await?, marks: journal.marks().await? })
}

/// How to determine the owner of the journal.
#[derive(Debug)]
pub(super) enum JournalOwner {
    /// The cluster, according to CouchDB.
    Cluster(latest::Receiver<Client>),
    /// The node in the settings, read from its files.
    Node(String),
}

impl JournalOwner {
    async fn identity(&self) -> Result<ClusterIdentity, Error> {
        match self {
            Self::Cluster(client) => {
                let client = client.borrow().clone();
                cluster_identity(&client).await
            }
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
    let requests = nodes.iter().map(|node| time::timeout(NODE_TIMEOUT, client.node_welcome(node)));
    let answered = join_all(requests).await.into_iter().filter_map(|it| it.ok()?.ok());
    let uuids = answered.chain([welcome]).filter_map(|welcome| welcome.uuid).collect();
    Ok(ClusterIdentity { uuids, nodes })
}

#[cfg(test)]
mod tests;
