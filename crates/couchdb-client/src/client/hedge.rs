//! Sends a second request in parallel to another server while the first server is silent.
//!
//! Only for requests that every server can answer itself. An entry that hangs then delays no
//! request, even before the client knows that it hangs.

use super::Client;
use crate::{
    Address, Error, Route,
    directory::{Call, Destination, Server},
    sender::Answer,
};
use futures::future::{Either, select};
use std::{pin::pin, sync::Arc};
use tokio::time::timeout;

impl Client {
    /// Sends a request to a server and, if that server is silent for too long, to another one that
    /// was not `tried`. Returns which of them answered, and the answer.
    pub(super) async fn attempt_hedged(
        &self,
        route: Route<'_>,
        path: &str,
        first: &Arc<Server>,
        tried: &[Address],
    ) -> (Destination, Result<Answer, Error>) {
        let destination = Destination::direct(Arc::clone(first));
        let mut request = pin!(self.attempt(Call { route, path, destination: &destination }));
        if let Ok(outcome) = timeout(self.shared.sender.silence_threshold(), &mut request).await {
            return (destination.clone(), outcome);
        }
        let generation = self.shared.auth.generation();
        let Some(other) = self.shared.directory.another(first, tried, generation) else {
            return (destination.clone(), request.await);
        };
        let other = Destination::direct(other);
        let second = pin!(self.attempt(Call { route, path, destination: &other }));
        match select(request, second).await {
            Either::Left((Err(error), second)) => match second.await {
                Ok(answer) => (other.clone(), Ok(answer)),
                Err(_) => (destination.clone(), Err(error)),
            },
            Either::Left((outcome, _)) => (destination.clone(), outcome),
            Either::Right((Ok(answer), _)) => {
                first.breaker.record_failure();
                (other.clone(), Ok(answer))
            }
            Either::Right((Err(_), request)) => (destination.clone(), request.await),
        }
    }
}
