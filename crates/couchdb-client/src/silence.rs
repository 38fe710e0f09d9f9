//! Telling what hangs from what is slow, long before a timeout.
//!
//! A server that has said nothing for a while is asked something that costs it nothing. If
//! that is not answered either, what waits for it is given up and it rests: one node that
//! hangs holds up a sweep for less than one timeout. Where that is answered, or anything
//! else was meanwhile, the answer is waited for as long as the settings say.

use super::{
    Route,
    breaker::Breaker,
    credential::Credential,
    directory::{Server, Way},
    gate::Pass,
    sender::Sender,
    transport::{Failure, Outgoing, Reply},
};
use std::{pin::Pin, time::Duration};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// Why an answer is no longer waited for.
#[derive(Debug)]
pub(super) enum GivenUp {
    /// It took too long.
    Late,
    /// Nor was this path answered.
    Hangs(String),
}

impl Sender {
    /// How long silence is nothing unusual.
    pub(super) fn suspicious(&self) -> Duration {
        self.timeout / 10
    }

    /// How long something that costs nothing may take: long, because a server that is
    /// busy beyond measure is slow with that as well; less where it hung before.
    fn look_within(&self, breaker: &Breaker) -> Duration {
        if breaker.is_on_probation() { self.timeout / 10 } else { self.timeout / 3 }
    }

    /// Waits on for an answer that has already taken suspiciously long.
    pub(super) async fn wait_longer(
        &self,
        sending: Pin<&mut impl Future<Output = Result<Reply, Failure>>>,
        start: Instant,
        way: &Way,
        pass: &Pass,
        credential: &Credential,
    ) -> Result<Result<Reply, Failure>, GivenUp> {
        let found_out = async {
            tokio::select! {
                outcome = sending => Ok(outcome),
                probe = self.found_hanging(start, way, pass, credential) => {
                    Err(GivenUp::Hangs(probe))
                }
            }
        };
        timeout_at(start + self.timeout, found_out).await.unwrap_or(Err(GivenUp::Late))
    }

    /// Ends once the server, or the node behind it, is found to hang.
    async fn found_hanging(
        &self,
        start: Instant,
        way: &Way,
        pass: &Pass,
        credential: &Credential,
    ) -> String {
        let direct = Way::direct(way.server.clone());
        loop {
            let server = &way.server.breaker;
            // Open to anyone, so that it carries no login.
            let hangs = self.hangs(server, start, &direct, Route::Welcome, None).await;
            if let Some(probe) = hangs {
                return probe;
            }
            // A password more in flight might be one too many.
            if let Some(node) = &way.on_to
                && credential.cookie().is_some()
            {
                let route = Route::NodeWelcome { node: &node.name };
                let login = Some((pass, credential));
                if let Some(probe) = self.hangs(&node.breaker, start, way, route, login).await {
                    return probe;
                }
            }
            let heard = way.heard().unwrap_or(start).max(start);
            let silent_again = heard + self.suspicious();
            sleep_until(silent_again.max(Instant::now() + self.suspicious() / 2)).await;
        }
    }

    /// Whether a server that had to rest answers again what costs it nothing: asked at any time,
    /// without a login.
    pub(super) async fn wakes(&self, server: &Server) -> bool {
        let route = Route::Welcome;
        let Ok(path) = route.path() else { return false };
        let out = Outgoing {
            method: route.method(),
            path: &path,
            login: None,
            header: None,
            form: None,
            limit: route.body_limit(),
        };
        let asked = timeout(self.suspicious(), self.transport.send(&server.address, out)).await;
        let wakes = matches!(asked, Ok(Ok(_)));
        if wakes {
            server.breaker.heal();
        }
        wakes
    }

    /// The path that got no answer, if `breaker`'s server or node has said nothing for a
    /// while and hangs.
    async fn hangs(
        &self,
        breaker: &Breaker,
        start: Instant,
        way: &Way,
        route: Route<'_>,
        login: Option<(&Pass, &Credential)>,
    ) -> Option<String> {
        let silent = || breaker.heard().unwrap_or(start).max(start).elapsed() >= self.suspicious();
        if !silent() {
            return None;
        }
        let path = route.path().ok()?;
        let _alone = breaker.look.acquire().await.ok()?;
        if breaker.resting() {
            return Some(path);
        }
        if !silent() {
            return None;
        }
        let login = login.and_then(|(pass, credential)| pass.header(credential));
        let out = Outgoing {
            method: route.method(),
            path: &path,
            login,
            header: None,
            form: None,
            limit: route.body_limit(),
        };
        let looking = self.transport.send(&way.server.address, out);
        match timeout(self.look_within(breaker), looking).await {
            // A connection that fails is no silence: the request itself will see it.
            Ok(Ok(_)) => {
                breaker.hear();
                None
            }
            Ok(Err(_)) => None,
            Err(_) => {
                breaker.trip();
                Some(path)
            }
        }
    }
}
