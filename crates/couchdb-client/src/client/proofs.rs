//! Proves a login at each endpoint, with one request before others follow.

use super::Client;
use crate::{
    Error, Route,
    auth_gate::{ProvenLogin, Rejection},
    credential::Credential,
    directory::{Destination, Node, Server},
    endpoint_auth::EndpointAuth,
    sender::{is_unknown_there, refusal_message},
};
use std::{fmt::Display, sync::Arc};
use tokio::time::Instant;

impl Client {
    /// Proves the login at the first endpoint of `destination` that has not accepted it.
    pub(super) async fn prove_endpoints(
        &self,
        destination: &Destination,
        proven: &Arc<ProvenLogin>,
    ) -> Result<(), Error> {
        if !destination.server.auth.is_open(proven.generation) {
            return self.prove_server(&destination.server, proven).await;
        }
        match &destination.forwarded_to {
            Some(node) => self.prove_node(node, destination, proven).await,
            None => Ok(()),
        }
    }

    /// Whether nothing is left to prove, now that no other proof is in flight.
    fn is_settled(&self, auth: &EndpointAuth, proven: &ProvenLogin) -> Result<bool, Error> {
        if auth.is_open(proven.generation) || !self.shared.gate.is_current(proven) {
            return Ok(true);
        }
        auth.refusal(proven.generation).map_or(Ok(false), |why| Err(Error::LoginClosed { why }))
    }

    async fn prove_server(
        &self,
        server: &Arc<Server>,
        proven: &Arc<ProvenLogin>,
    ) -> Result<(), Error> {
        let auth = &server.auth;
        let asked = Instant::now();
        let alone = auth.proof.acquire().await.map_err(|_| Error::Stopped)?;
        if self.is_settled(auth, proven)? {
            return Ok(());
        }
        // Logins are rate limited, so one serves every request that waits for it.
        auth.failed_since(asked).map_or(Ok(()), Err)?;
        let reason = self.shared.sender.log_in(server, proven).await;
        match reason.inspect_err(|why| auth.login_failed(why.clone()))? {
            Ok(credential) => {
                auth.open(proven.generation, credential);
                Ok(())
            }
            Err(reason) => {
                let why = self.refuse_endpoint(auth, &server.address, proven, &reason);
                drop(alone);
                self.report_if_all_refused(server, proven, &reason).await;
                Err(Error::LoginClosed { why })
            }
        }
    }

    async fn prove_node(
        &self,
        node: &Node,
        destination: &Destination,
        proven: &Arc<ProvenLogin>,
    ) -> Result<(), Error> {
        let auth = &node.auth;
        let asked = Instant::now();
        let _alone = auth.proof.acquire().await.map_err(|_| Error::Stopped)?;
        if self.is_settled(auth, proven)? {
            return Ok(());
        }
        auth.failed_since(asked).map_or(Ok(()), Err)?;
        let Some(at_entry) = destination.server.auth.credential(proven.generation) else {
            return Ok(());
        };
        let route = Route::NodeSession { node: &node.name };
        let sender = &self.shared.sender;
        let session = at_entry.cookie().is_some() && auth.uses_sessions(proven.generation);
        if session {
            match sender.session(route, destination, proven, &at_entry).await {
                Ok(Ok(_)) => {
                    auth.open(proven.generation, Credential::SameAsEntry);
                    return Ok(());
                }
                // A node may have its own secret (`[chttpd_auth] secret`), or another hash of
                // the same password (`[admins]`).
                Ok(Err(_)) => auth.disable_sessions(proven.generation),
                Err(error) if is_unknown_there(&error) => {
                    auth.open(proven.generation, Credential::SameAsEntry);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        auth.wait_for_login_turn(&node.name).await?;
        match sender.session(route, destination, proven, &Credential::Basic).await {
            Ok(Ok(_)) => auth.open(proven.generation, Credential::Basic),
            Err(error) if is_unknown_there(&error) => {
                auth.open(proven.generation, Credential::Basic);
            }
            Ok(Err(reason)) => return Err(self.refuse_node(node, proven, &reason)),
            // CouchDB 3.5 answers 500 to a wrong password in a forwarded request: it fails to
            // log the peer, which a forwarded request does not have.
            Err(Error::Status { status: 500, reason, .. })
                if reason.contains("function_clause") =>
            {
                return Err(self.refuse_node(node, proven, "HTTP 500, as for a wrong password"));
            }
            Err(error) => {
                auth.login_failed(error.clone());
                return Err(error);
            }
        }
        Ok(())
    }

    fn refuse_node(&self, node: &Node, proven: &ProvenLogin, reason: &str) -> Error {
        let at = format_args!("node {}", node.name);
        Error::LoginClosed { why: self.refuse_endpoint(&node.auth, &at, proven, reason) }
    }

    /// Stops sending to an endpoint that refused the login.
    fn refuse_endpoint(
        &self,
        auth: &EndpointAuth,
        at: &dyn Display,
        proven: &ProvenLogin,
        reason: &str,
    ) -> Arc<str> {
        let user = self.shared.settings.login.username().unwrap_or_default();
        let why = refusal_message(at, user, reason);
        tracing::warn!(%why, "nothing is sent there");
        auth.refuse(proven.generation, Arc::clone(&why));
        why
    }

    /// Reports to the login task when every entry has refused the login.
    async fn report_if_all_refused(
        &self,
        server: &Arc<Server>,
        proven: &Arc<ProvenLogin>,
        reason: &str,
    ) {
        let mut entries = self.shared.directory.entries.iter();
        if entries.all(|entry| entry.auth.refusal(proven.generation).is_some()) {
            let reason = Rejection { status: 401, reason: reason.into(), about_login: true };
            let destination = Destination::direct(Arc::clone(server));
            let _verdict =
                self.shared.gate.refused(&destination, proven, &Credential::Basic, reason).await;
        }
    }
}
