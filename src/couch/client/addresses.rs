//! Finding each node's own address: an address is a node's own once the server there
//! gives that name.

use super::{Client, Way};
use crate::couch::{
    Address, Error, Route,
    directory::{Node, Server},
    wire,
};
use futures::{StreamExt as _, future::join_all, stream};
use std::{sync::Arc, time::Duration};
use tokio::time;

/// How often names are asked again: addresses move, servers come back.
const AGAIN: Duration = Duration::from_secs(60);

/// How long a name is waited for, so that a dead host holds nothing up.
const NAME_WITHIN: Duration = Duration::from_secs(5);

/// Names asked for at the same time.
const AT_ONCE: usize = 8;

impl Client {
    /// Asks again from time to time, for ever.
    pub(super) async fn keep_addresses(&self) {
        loop {
            time::sleep(AGAIN).await;
            let nodes = self.shared.directory.nodes();
            if nodes.is_empty() {
                continue;
            }
            self.name_entries().await;
            stream::iter(&nodes)
                .for_each_concurrent(AT_ONCE, async |node| match node.own.load_full() {
                    Some(own) => self.confirm(node, &own).await,
                    None => self.try_candidates(node).await,
                })
                .await;
        }
    }

    /// Looks for `node`'s own address for the first time.
    pub(super) async fn seek(&self, node: &Arc<Node>) {
        self.shared.entries_named.get_or_init(|| self.name_entries()).await;
        if node.own.load().is_none() {
            self.try_candidates(node).await;
        }
    }

    /// Asks every entry for its name.
    async fn name_entries(&self) {
        let named = self.shared.directory.entries.iter().map(async |entry| {
            if let Ok(name) = self.name_at(entry).await {
                self.adopt(&self.shared.directory.node(&name), entry);
            }
        });
        join_all(named).await;
    }

    /// Tries the address that the settings give, then the host in the node's name with
    /// the first URL's port.
    async fn try_candidates(&self, node: &Arc<Node>) {
        let settings = &self.shared.settings;
        let given = settings.nodes.get(&*node.name).cloned();
        let derived = settings.urls.first().and_then(|first| first.of_node(&node.name));
        let mut tried: Option<Address> = None;
        for address in given.into_iter().chain(derived) {
            if tried.as_ref() == Some(&address) {
                continue;
            }
            let server = self.shared.directory.server(&address);
            match self.name_at(&server).await {
                Ok(name) if *name == *node.name => return self.adopt(node, &server),
                Ok(name) => {
                    tracing::debug!(node = %node.name, %address, %name, "another node answers there");
                }
                Err(error) => tracing::debug!(node = %node.name, %error, "no own address yet"),
            }
            tried = Some(address);
        }
    }

    fn adopt(&self, node: &Node, server: &Arc<Server>) {
        let known = node.own.load().as_ref().is_some_and(|own| own.address == server.address);
        if !known {
            tracing::debug!(node = %node.name, address = %server.address, "own address found");
            node.own.store(Some(Arc::clone(server)));
        }
    }

    /// Lets an address go at which another node answers.
    async fn confirm(&self, node: &Node, own: &Arc<Server>) {
        if let Ok(name) = self.name_at(own).await
            && *name != *node.name
        {
            tracing::warn!(node = %node.name, address = %own.address, %name, "another node answers there now");
            node.own.store(None);
        }
    }

    async fn name_at(&self, server: &Arc<Server>) -> Result<String, Error> {
        let way = Way::direct(Arc::clone(server));
        let route = Route::LocalName;
        let path = route.path()?;
        // The wait for a proof is not the server's fault.
        self.shared.gate.pass().await?;
        let asking = async {
            let answer = self.attempt(route, &path, &way).await?;
            let named = |local: &wire::LocalName| {
                local.name.as_ref().map(drop).ok_or_else(|| "it has no name".to_owned())
            };
            let local: wire::LocalName =
                self.shared.sender.read(route, &path, &way, answer, named).await?;
            Ok(local.name.unwrap_or_default())
        };
        let limit = NAME_WITHIN.min(self.shared.settings.timeout);
        time::timeout(limit, asking).await.unwrap_or_else(|_| {
            let asked = crate::couch::Asked::new(&route, &path, &server.address);
            Err(Error::Timeout { asked, after: limit })
        })
    }
}
