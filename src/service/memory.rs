//! What outlives the process: the journal, claimed for the cluster that is seen.

use crate::{
    model::memory::{Recovered, Trouble},
    scan::Before,
    store::journal::{ClaimError, Identity, Journal},
};
use couchdb_client::{Client, Error};
use futures::future::join_all;
use std::{collections::BTreeSet, time::Duration};
use tokio::{sync::oneshot, time};

/// From one question who the cluster is to the next, where nobody answered.
const AGAIN: Duration = Duration::from_secs(5);

/// The longest that one node is waited for; the others tell enough.
const WITHIN: Duration = Duration::from_secs(5);

/// Claims the journal for the cluster as soon as that says who it is, and reads back what
/// was kept; what was measured goes to `before`. `None` where it is another cluster's: whoever
/// waits has to end.
pub(super) async fn recover(
    journal: Journal,
    whose: Whose,
    before: oneshot::Sender<Before>,
) -> Option<Recovered> {
    let mut said = None;
    loop {
        let claimed = match whose.identity().await {
            Ok(identity) => journal.claim(identity).await.map_err(Some),
            // The scanner says what is wrong with CouchDB.
            Err(_) => Err(None),
        };
        match claimed {
            Ok(recovered) => {
                let left = left(&journal).await.unwrap_or_else(|why| {
                    tracing::warn!(%why, "what was measured before the start is not known");
                    Before::default()
                });
                // The scanner may have begun without.
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

/// Who says whose journal it is.
#[derive(Debug)]
pub(super) enum Whose {
    /// The cluster itself.
    Cluster(Client),
    /// Nobody but the settings: this node's, read from its files.
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

/// The uuids of all nodes that answer: each node made its own up, unless somebody set it, and
/// which of them answers first is chance.
async fn identity(client: &Client) -> Result<Identity, Error> {
    let (welcome, members) = (client.welcome().await?, client.membership().await?);
    let nodes: BTreeSet<String> = members.cluster_nodes.unwrap_or_default().into_iter().collect();
    let asked = nodes.iter().map(|node| time::timeout(WITHIN, client.node_welcome(node)));
    let answered = join_all(asked).await.into_iter().filter_map(|it| it.ok()?.ok());
    let uuids = answered.chain([welcome]).filter_map(|welcome| welcome.uuid).collect();
    Ok(Identity { uuids, nodes })
}
