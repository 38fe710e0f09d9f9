//! Proving a login at each way in, with one request before others follow.

use super::Client;
use crate::{
    Error, Route,
    credential::Credential,
    directory::{Node, Server, Way},
    door::Door,
    gate::{Pass, Said},
    sender::{is_unknown_there, refused_why},
};
use std::{fmt::Display, sync::Arc};
use tokio::time::Instant;

impl Client {
    /// Proves the login at the next door of `way` that has not accepted it.
    pub(super) async fn prove_doors(&self, way: &Way, pass: &Arc<Pass>) -> Result<(), Error> {
        if !way.server.door.is_open(pass.generation) {
            return self.prove_server(&way.server, pass).await;
        }
        match &way.on_to {
            Some(node) => self.prove_node(node, way, pass).await,
            None => Ok(()),
        }
    }

    /// Whether there is nothing to prove any more, once no other proof is on its way.
    fn is_settled(&self, door: &Door, pass: &Pass) -> Result<bool, Error> {
        if door.is_open(pass.generation) || !self.shared.gate.is_current(pass) {
            return Ok(true);
        }
        door.refusal(pass.generation).map_or(Ok(false), |why| Err(Error::LoginClosed { why }))
    }

    async fn prove_server(&self, server: &Arc<Server>, pass: &Arc<Pass>) -> Result<(), Error> {
        let door = &server.door;
        let asked = Instant::now();
        let alone = door.proof.acquire().await.map_err(|_| Error::Stopped)?;
        if self.is_settled(door, pass)? {
            return Ok(());
        }
        // Logins follow each other slowly, so that one is made for all who wait for it.
        door.failed_since(asked).map_or(Ok(()), Err)?;
        let said = self.shared.sender.log_in(server, pass).await;
        match said.inspect_err(|why| door.login_failed(why.clone()))? {
            Ok(credential) => {
                door.open(pass.generation, credential);
                Ok(())
            }
            Err(said) => {
                let why = self.shut(door, &server.address, pass, &said);
                drop(alone);
                self.tell_where_none_is_left(server, pass, &said).await;
                Err(Error::LoginClosed { why })
            }
        }
    }

    async fn prove_node(&self, node: &Node, way: &Way, pass: &Arc<Pass>) -> Result<(), Error> {
        let door = &node.door;
        let asked = Instant::now();
        let _alone = door.proof.acquire().await.map_err(|_| Error::Stopped)?;
        if self.is_settled(door, pass)? {
            return Ok(());
        }
        door.failed_since(asked).map_or(Ok(()), Err)?;
        let Some(at_entry) = way.server.door.credential(pass.generation) else { return Ok(()) };
        let route = Route::NodeSession { node: &node.name };
        let sender = &self.shared.sender;
        let session = at_entry.cookie().is_some() && door.takes_sessions(pass.generation);
        if session {
            match sender.session(route, way, pass, &at_entry).await {
                Ok(Ok(_)) => {
                    door.open(pass.generation, Credential::OfEntry);
                    return Ok(());
                }
                // A node may have its own secret (`[chttpd_auth] secret`), or another hash of
                // the same password (`[admins]`).
                Ok(Err(_)) => door.without_sessions(pass.generation),
                Err(error) if is_unknown_there(&error) => {
                    door.open(pass.generation, Credential::OfEntry);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        door.login_turn(&node.name).await?;
        match sender.session(route, way, pass, &Credential::Basic).await {
            Ok(Ok(_)) => door.open(pass.generation, Credential::Basic),
            Err(error) if is_unknown_there(&error) => {
                door.open(pass.generation, Credential::Basic);
            }
            Ok(Err(said)) => return Err(self.shut_node(node, pass, &said)),
            // To a wrong password that another node passes on, CouchDB 3.5 answers 500: it
            // wants to warn of the peer, which such a request has not.
            Err(Error::Status { status: 500, reason, .. })
                if reason.contains("function_clause") =>
            {
                return Err(self.shut_node(node, pass, "HTTP 500, as for a wrong password"));
            }
            Err(error) => {
                door.login_failed(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    fn shut_node(&self, node: &Node, pass: &Pass, said: &str) -> Error {
        let at = format_args!("node {}", node.name);
        Error::LoginClosed { why: self.shut(&node.door, &at, pass, said) }
    }

    /// Sends nothing more through a door that refused the login.
    fn shut(&self, door: &Door, at: &dyn Display, pass: &Pass, said: &str) -> Arc<str> {
        let user = self.shared.settings.login.username().unwrap_or_default();
        let why = refused_why(at, user, said);
        tracing::warn!(%why, "nothing is sent there");
        door.refuse(pass.generation, Arc::clone(&why));
        why
    }

    /// Tells the keeper of the gate when every entry has refused the login, one by one.
    async fn tell_where_none_is_left(&self, server: &Arc<Server>, pass: &Arc<Pass>, said: &str) {
        let mut entries = self.shared.directory.entries.iter();
        if entries.all(|entry| entry.door.refusal(pass.generation).is_some()) {
            let said = Said { status: 401, reason: said.into(), of_login: true };
            let way = Way::direct(Arc::clone(server));
            let _verdict = self.shared.gate.refused(&way, pass, &Credential::Basic, said).await;
        }
    }
}
