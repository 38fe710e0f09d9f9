//! Finds each node's own address. An address belongs to a node once the server there reports the node's name.
//!
//! Asking for the name needs a login, and a login is sent only where the settings allow it
//! ([`ClientSettings::candidates`](crate::ClientSettings)). A host that is known only from a node's name is
//! sent nothing at all, unless the settings trust it; a trusted host is first asked, without the login,
//! whether it is a CouchDB.

use super::Client;
use crate::{
    Error, Route,
    directory::{Call, Destination, Node, Server},
    sender::Greeting,
    settings::AddressCandidate,
    wire,
};
use futures::{StreamExt as _, future::join_all, stream};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tokio::time;

/// Time between confirmations of the addresses: addresses move, and servers come back.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(60);

/// How long the client waits for a name, so that a dead host delays nothing else.
const NAME_TIMEOUT: Duration = Duration::from_secs(5);

/// How many names are asked for at the same time.
const MAX_CONCURRENT: usize = 8;

impl Client {
    /// Confirms the addresses from time to time, and never ends.
    pub(super) async fn keep_addresses(&self) {
        loop {
            time::sleep(CONFIRM_INTERVAL).await;
            let nodes = self.shared.directory.nodes();
            if nodes.is_empty() {
                continue;
            }
            self.name_entries(true).await;
            stream::iter(&nodes)
                .for_each_concurrent(MAX_CONCURRENT, async |node| match node.own.load_full() {
                    Some(own) => self.confirm(node, &own).await,
                    None => self.try_candidates(node).await,
                })
                .await;
        }
    }

    /// Searches for `node`'s own address for the first time.
    pub(super) async fn find_own_address(&self, node: &Arc<Node>) {
        let naming = self.shared.entries_named.get_or_init(|| self.name_entries(false));
        // Another caller continues with the other entries: an entry that hangs delays only its own
        // node.
        tokio::select! {
            biased;
            () = node.is_found() => {}
            _ = naming => {}
        }
        if node.own.load().is_none() {
            self.try_candidates(node).await;
        }
    }

    /// Asks every entry for its name; entries that have already reported it are asked only if
    /// `again`.
    async fn name_entries(&self, again: bool) {
        let entries = self.shared.directory.entries.iter();
        let unnamed = entries.filter(|entry| again || !entry.named.load(Ordering::Relaxed));
        let named = unnamed.map(async |entry| {
            if let Ok(name) = self.name_at(entry).await {
                entry.named.store(true, Ordering::Relaxed);
                self.adopt(&self.shared.directory.node(&name), entry);
            }
        });
        join_all(named).await;
    }

    /// Tries the addresses at which the settings allow a search for the node.
    async fn try_candidates(&self, node: &Arc<Node>) {
        let shared = &self.shared;
        let proves = shared.sender.transport.proves_hosts();
        let candidates = shared.settings.candidates(&node.name, proves);
        // An entry that has not reported its name yet may be this node.
        let entries = &shared.directory.entries;
        let all_named = || entries.iter().all(|entry| entry.named.load(Ordering::Relaxed));
        if candidates.is_empty() && all_named() {
            node.no_address_given.store(true, Ordering::Relaxed);
        }
        for AddressCandidate { address, guessed } in candidates {
            let server = shared.directory.server(&address);
            if guessed && !self.is_couchdb(node, &server).await {
                continue;
            }
            match self.name_at(&server).await {
                Ok(name) if *name == *node.name => return self.adopt(node, &server),
                Ok(name) => {
                    tracing::debug!(node = %node.name, %address, %name, "another node answers there");
                }
                Err(error) => tracing::debug!(node = %node.name, %error, "no direct address yet"),
            }
        }
    }

    /// Whether a CouchDB answers at the host in `node`'s name; asked without the login.
    async fn is_couchdb(&self, node: &Node, server: &Arc<Server>) -> bool {
        let limit = NAME_TIMEOUT.min(self.shared.settings.timeout);
        let greeting = time::timeout(limit, self.shared.sender.greeting(server)).await;
        match greeting {
            Ok(Ok(Greeting::CouchDb | Greeting::WantsLogin)) => return true,
            Ok(Ok(Greeting::Other(found))) => {
                tracing::debug!(node = %node.name, address = %server.address, found, "no CouchDB answers there");
            }
            Ok(Err(error)) => tracing::debug!(node = %node.name, %error, "no direct address yet"),
            Err(_) => {
                tracing::debug!(node = %node.name, address = %server.address, "no answer there");
            }
        }
        false
    }

    fn adopt(&self, node: &Node, server: &Arc<Server>) {
        let is_known = node.own.load().as_ref().is_some_and(|own| own.address == server.address);
        if !is_known {
            tracing::debug!(node = %node.name, address = %server.address, "own address found");
            node.own.store(Some(Arc::clone(server)));
            node.found.notify_waiters();
        }
    }

    /// Gives up an address at which another node answers now.
    async fn confirm(&self, node: &Node, own: &Arc<Server>) {
        if let Ok(name) = self.name_at(own).await
            && *name != *node.name
        {
            tracing::warn!(node = %node.name, address = %own.address, %name, "another node answers there now");
            node.own.store(None);
        }
    }

    async fn name_at(&self, server: &Arc<Server>) -> Result<String, Error> {
        let destination = Destination::direct(Arc::clone(server));
        let route = Route::LocalName { encoded: false };
        let call = Call { route, path: &route.path()?, destination: &destination };
        // Waiting for the proof of the login does not count as time of the server.
        self.shared.auth.login().await?;
        let asking = async {
            let answer = self.attempt(call).await?;
            let named = |local: &wire::LocalName| {
                local.name.as_ref().map(drop).ok_or_else(|| "it has no name".to_owned())
            };
            let local = self.shared.sender.read(call, answer, named).await?;
            Ok(local.name.unwrap_or_default())
        };
        let limit = NAME_TIMEOUT.min(self.shared.settings.timeout);
        let timeout = |_| Err(Error::Timeout { asked: call.info(), after: limit });
        time::timeout(limit, asking).await.unwrap_or_else(timeout)
    }
}
