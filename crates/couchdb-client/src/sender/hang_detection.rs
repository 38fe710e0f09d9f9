//! Tells a server that hangs from one that is slow, long before the timeout.
//!
//! A server that has been silent for a while gets a cheap request. If that is not answered either,
//! the waiting requests are given up and the breaker opens, so that one node that hangs delays a
//! sweep by less than one timeout. If that request or any other is answered, the client waits for
//! the full timeout. A timeout alone is not enough: with its full length, each sweep with a hanging
//! node takes twice the timeout, and a shorter one gives up nodes that are only slow.

use super::{Sender, late, outgoing};
use crate::{
    Error, Route,
    active_login::ActiveLogin,
    breaker::Breaker,
    credential::Credential,
    directory::{Call, Destination, Server},
    transport::{Reply, SendFailure},
};
use http::{HeaderName, HeaderValue};
use std::{pin::Pin, time::Duration};
use tokio::time::{Instant, error::Elapsed, sleep_until, timeout, timeout_at};

impl Sender {
    /// How long a server may be silent before it gets a cheap request.
    pub(crate) fn silence_threshold(&self) -> Duration {
        self.timeout / 10
    }

    /// How long a cheap request may take: long, because an overloaded server answers it slowly too;
    /// less if the server hung before.
    fn probe_timeout(&self, breaker: &Breaker) -> Duration {
        if breaker.is_tripped() { self.timeout / 10 } else { self.timeout / 3 }
    }

    /// Waits further for an answer that is already late, while checking whether the server hangs.
    pub(super) async fn wait_longer(
        &self,
        sending: Pin<&mut impl Future<Output = Result<Reply, SendFailure>>>,
        start: Instant,
        call: Call<'_>,
        login: &ActiveLogin,
        credential: &Credential,
    ) -> Result<Reply, Error> {
        let answer_or_hang = async {
            tokio::select! {
                sent = sending => sent.map_err(|failure| self.failed(call, failure)),
                probe = self.detect_hang(start, call.destination, login, credential) => {
                    let error = Error::Hangs { asked: call.info(), after: start.elapsed(), probe };
                    call.destination.server.remember_failure(&error);
                    Err(error)
                }
            }
        };
        let waited = timeout_at(start + self.timeout, answer_or_hang).await;
        waited.unwrap_or_else(|_| Err(late(call, self.timeout)))
    }

    /// Ends as soon as the server, or the node behind it, is found to hang; returns the path that
    /// was not answered.
    async fn detect_hang(
        &self,
        start: Instant,
        destination: &Destination,
        login: &ActiveLogin,
        credential: &Credential,
    ) -> String {
        let server = &destination.server;
        loop {
            // Anybody may send this, so it carries no login.
            let hangs = self.hangs(&server.breaker, start, server, Route::Welcome, None).await;
            if let Some(probe) = hangs {
                return probe;
            }
            // Another password in flight might lock the account.
            if let Some(node) = &destination.forwarded_to
                && credential.cookie().is_some()
            {
                let route = Route::NodeWelcome { node: &node.name };
                let login = login.header(credential);
                let hangs = self.hangs(&node.breaker, start, server, route, login).await;
                if let Some(probe) = hangs {
                    return probe;
                }
            }
            let alive_at = destination.last_alive().unwrap_or(start).max(start);
            let silent_again = alive_at + self.silence_threshold();
            sleep_until(silent_again.max(Instant::now() + self.silence_threshold() / 2)).await;
        }
    }

    /// Sends a cheap request; `Err` if nothing came within `limit`.
    async fn probe(
        &self,
        server: &Server,
        (route, path): (Route<'_>, &str),
        login: Option<(HeaderName, HeaderValue)>,
        limit: Duration,
    ) -> Result<Result<Reply, SendFailure>, Elapsed> {
        let out = outgoing(route, path, login);
        timeout(limit, self.transport.send(&server.address, out)).await
    }

    /// Whether a server whose requests are held back answers a cheap request again. It carries no
    /// login and is never held back.
    pub(crate) async fn answers_again(&self, server: &Server) -> bool {
        let Ok(path) = Route::Welcome.path() else { return false };
        let limit = self.silence_threshold();
        let answer = self.probe(server, (Route::Welcome, &path), None, limit).await;
        let answers_again = matches!(answer, Ok(Ok(_)));
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
        server: &Server,
        route: Route<'_>,
        login: Option<(HeaderName, HeaderValue)>,
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
        let limit = self.probe_timeout(breaker);
        match self.probe(server, (route, &path), login, limit).await {
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
