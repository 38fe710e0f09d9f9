//! Finding each node's own address: an address is a node's own once the server there
//! gives that name.
//!
//! That name wants a login, and a login is shown only where the settings allow it
//! ([`Settings::candidates`](crate::Settings)): nothing at all is sent to a host that
//! merely stands in a node's name. Where such a host may be asked, it is first asked without
//! the login whether it is a CouchDB.

use super::{Client, Way};
use crate::{
    Error, Route,
    directory::{Node, Server},
    greeting::Greeting,
    settings::Candidate,
    wire,
};
use futures::{StreamExt as _, future::join_all, stream};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
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
                entry.named.store(true, Ordering::Relaxed);
                self.adopt(&self.shared.directory.node(&name), entry);
            }
        });
        join_all(named).await;
    }

    /// Tries the addresses at which the settings let the node be looked for.
    async fn try_candidates(&self, node: &Arc<Node>) {
        let shared = &self.shared;
        let proves = shared.sender.transport.proves_hosts();
        let candidates = shared.settings.candidates(&node.name, proves);
        // An entry that has not said its name yet may be this node.
        let entries = &shared.directory.entries;
        let all_named = || entries.iter().all(|entry| entry.named.load(Ordering::Relaxed));
        if candidates.is_empty() && all_named() {
            node.ungiven.store(true, Ordering::Relaxed);
        }
        for Candidate { address, guessed } in candidates {
            let server = shared.directory.server(&address);
            if guessed && !self.greets(node, &server).await {
                continue;
            }
            match self.name_at(&server).await {
                Ok(name) if *name == *node.name => return self.adopt(node, &server),
                Ok(name) => {
                    tracing::debug!(node = %node.name, %address, %name, "another node answers there");
                }
                Err(error) => tracing::debug!(node = %node.name, %error, "no own address yet"),
            }
        }
    }

    /// Whether a CouchDB answers where `node`'s name says; asked without the login.
    async fn greets(&self, node: &Node, server: &Arc<Server>) -> bool {
        let limit = NAME_WITHIN.min(self.shared.settings.timeout);
        let greeting = time::timeout(limit, self.shared.sender.greeting(server)).await;
        match greeting {
            Ok(Ok(Greeting::CouchDb | Greeting::WantsLogin)) => return true,
            Ok(Ok(Greeting::Other(found))) => {
                tracing::debug!(node = %node.name, address = %server.address, found, "no CouchDB answers there");
            }
            Ok(Err(error)) => tracing::debug!(node = %node.name, %error, "no own address yet"),
            Err(_) => {
                tracing::debug!(node = %node.name, address = %server.address, "no answer there");
            }
        }
        false
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
            let asked = crate::Asked::new(&route, &path, &server.address);
            Err(Error::Timeout { asked, after: limit })
        })
    }
}
