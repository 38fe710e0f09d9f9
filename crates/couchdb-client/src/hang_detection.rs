//! Tells a server that hangs from one that is slow, long before the timeout.
//!
//! A server that has been silent for a while gets a cheap request. If that is not answered either,
//! the waiting requests are given up and the breaker trips, so that one node that hangs delays a
//! sweep by less than one timeout. If that or any other request is answered meanwhile, the client
//! waits for the full timeout.

use super::{
    Route,
    auth_gate::ProvenLogin,
    breaker::Breaker,
    credential::Credential,
    directory::{Destination, Server},
    sender::Sender,
    transport::{OutgoingRequest, Reply, SendFailure},
};
use std::{pin::Pin, time::Duration};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Why the client no longer waits for an answer.
#[derive(Debug)]
pub(super) enum WaitEnded {
    /// The timeout passed.
    TimedOut,
    /// The server hangs: a request to this path was not answered either.
    Hangs(String),
}

impl Sender {
    /// How long silence is normal.
    pub(super) fn silence_threshold(&self) -> Duration {
        self.timeout / 10
    }

    /// How long a cheap request may take: long, because an overloaded server is slow with that too;
    /// less if the server hung before.
    fn probe_timeout(&self, breaker: &Breaker) -> Duration {
        if breaker.is_tripped() { self.timeout / 10 } else { self.timeout / 3 }
    }

    /// Waits further for an answer that is already late, while checking whether the server hangs.
    pub(super) async fn wait_longer(
        &self,
        sending: Pin<&mut impl Future<Output = Result<Reply, SendFailure>>>,
        start: Instant,
        destination: &Destination,
        proven: &ProvenLogin,
        credential: &Credential,
    ) -> Result<Result<Reply, SendFailure>, WaitEnded> {
        let found_out = async {
            tokio::select! {
                outcome = sending => Ok(outcome),
                probe = self.detect_hang(start, destination, proven, credential) => {
                    Err(WaitEnded::Hangs(probe))
                }
            }
        };
        timeout_at(start + self.timeout, found_out).await.unwrap_or(Err(WaitEnded::TimedOut))
    }

    /// Ends as soon as the server, or the node behind it, is found to hang; returns the path that
    /// was not answered.
    async fn detect_hang(
        &self,
        start: Instant,
        destination: &Destination,
        proven: &ProvenLogin,
        credential: &Credential,
    ) -> String {
        let direct = Destination::direct(destination.server.clone());
        loop {
            let server = &destination.server.breaker;
            // Anybody may send this, so it carries no login.
            let hangs = self.hangs(server, start, &direct, Route::Welcome, None).await;
            if let Some(probe) = hangs {
                return probe;
            }
            // One more password in flight might lock the account.
            if let Some(node) = &destination.forwarded_to
                && credential.cookie().is_some()
            {
                let route = Route::NodeWelcome { node: &node.name };
                let login = Some((proven, credential));
                if let Some(probe) =
                    self.hangs(&node.breaker, start, destination, route, login).await
                {
                    return probe;
                }
            }
            let alive_at = destination.last_alive().unwrap_or(start).max(start);
            let silent_again = alive_at + self.silence_threshold();
            sleep_until(silent_again.max(Instant::now() + self.silence_threshold() / 2)).await;
        }
    }

    /// Whether a server whose requests are held back answers a cheap request again. It carries no
    /// login and is never held back.
    pub(super) async fn answers_again(&self, server: &Server) -> bool {
        let route = Route::Welcome;
        let Ok(path) = route.path() else { return false };
        let out = OutgoingRequest {
            method: route.method(),
            path: &path,
            login: None,
            header: None,
            form: None,
            limit: route.body_limit(),
        };
        let asked =
            timeout(self.silence_threshold(), self.transport.send(&server.address, out)).await;
        let answers_again = matches!(asked, Ok(Ok(_)));
        if answers_again {
            server.breaker.record_success();
        }
        answers_again
    }

    /// The path that got no answer, if the server or node of `breaker` was silent for a while and
    /// hangs.
    async fn hangs(
        &self,
        breaker: &Breaker,
        start: Instant,
        destination: &Destination,
        route: Route<'_>,
        login: Option<(&ProvenLogin, &Credential)>,
    ) -> Option<String> {
        let silent = || {
            breaker.last_alive().unwrap_or(start).max(start).elapsed() >= self.silence_threshold()
        };
        if !silent() {
            return None;
        }
        let path = route.path().ok()?;
        let _alone = breaker.hang_check.acquire().await.ok()?;
        if breaker.is_resting() {
            return Some(path);
        }
        if !silent() {
            return None;
        }
        let login = login.and_then(|(proven, credential)| proven.header(credential));
        let out = OutgoingRequest {
            method: route.method(),
            path: &path,
            login,
            header: None,
            form: None,
            limit: route.body_limit(),
        };
        let looking = self.transport.send(&destination.server.address, out);
        match timeout(self.probe_timeout(breaker), looking).await {
            // A failed connection is not silence: the request itself will report it.
            Ok(Ok(_)) => {
                breaker.record_alive();
                None
            }
            Ok(Err(_)) => None,
            Err(_) => {
                breaker.record_hang();
                Some(path)
            }
        }
    }
}
