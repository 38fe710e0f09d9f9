//! What outlives the process: the journal, claimed for the cluster that is seen.

use crate::{
    couch::{Client, Error},
    journal::{ClaimError, Identity, Journal},
    memory::Recovered,
    snapshot::Block,
};
use std::time::Duration;
use tokio::{sync::oneshot, time};

/// From one question who the cluster is to the next, where nobody answered.
const AGAIN: Duration = Duration::from_secs(5);

/// Claims the journal for the cluster as soon as that says who it is, and reads back what
/// was kept; what was measured goes to `before`. `None` where it is another cluster's: whoever
/// waits has to end.
pub(super) async fn recover(
    journal: Journal,
    client: Client,
    before: oneshot::Sender<Vec<Block>>,
) -> Option<Recovered> {
    let mut said = None;
    loop {
        let claimed = match identity(&client).await {
            Ok(identity) => journal.claim(identity).await.map_err(Some),
            // The scanner says what is wrong with CouchDB.
            Err(_) => Err(None),
        };
        match claimed {
            Ok(recovered) => {
                let measured = journal.measured().await.unwrap_or_else(|why| {
                    tracing::warn!(%why, "what was measured before the start is not known");
                    Vec::new()
                });
                // The scanner may have begun without.
                let _late = before.send(measured);
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

async fn identity(client: &Client) -> Result<Identity, Error> {
    let (welcome, members) = (client.welcome().await?, client.membership().await?);
    Ok(Identity {
        uuids: welcome.uuid.into_iter().collect(),
        nodes: members.cluster_nodes.unwrap_or_default().into_iter().collect(),
    })
}
