//! What any server answers by itself is asked of another one beside, where the first is silent:
//! one entry that hangs holds nobody up until that is plain.

use super::Client;
use crate::{
    Address, Error, Route,
    directory::{Server, Way},
};
use bytes::Bytes;
use futures::future::{Either, select};
use std::{pin::pin, sync::Arc, time::Duration};
use tokio::time::timeout;

/// An answer with its status and how long it took, or none.
type Outcome = Result<(Bytes, u16, Duration), Error>;

impl Client {
    /// Sends a request to a server and, where that is suspiciously silent, to another one that was
    /// not `tried`: which of them answered, and what.
    pub(super) async fn attempt_beside(
        &self,
        route: Route<'_>,
        path: &str,
        first: &Arc<Server>,
        tried: &[Address],
    ) -> (Way, Outcome) {
        let way = Way::direct(Arc::clone(first));
        let mut asked = pin!(self.attempt(route, path, &way));
        if let Ok(outcome) = timeout(self.shared.sender.suspicious(), &mut asked).await {
            return (way.clone(), outcome);
        }
        let generation = self.shared.gate.generation();
        let Some(other) = self.shared.directory.another(first, tried, generation) else {
            return (way.clone(), asked.await);
        };
        let other = Way::direct(other);
        let beside = pin!(self.attempt(route, path, &other));
        match select(asked, beside).await {
            Either::Left((Err(error), beside)) => match beside.await {
                Ok(answer) => (other.clone(), Ok(answer)),
                Err(_) => (way.clone(), Err(error)),
            },
            Either::Left((outcome, _)) => (way.clone(), outcome),
            Either::Right((Ok(answer), _)) => {
                first.breaker.strike();
                (other.clone(), Ok(answer))
            }
            Either::Right((Err(_), asked)) => (way.clone(), asked.await),
        }
    }
}
