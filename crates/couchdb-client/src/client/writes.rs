//! Requests that change something. Each is sent once. The caller decides whether to
//! send it again, because a request that was not answered may have arrived.

use super::{Client, ServerChoice, turn_about};
use crate::{Error, RequestInfo, Route, directory::Call, observer::status_label, sender::Answer};
use std::sync::Arc;

/// CouchDB's status for a request that it is processing or has processed.
const ACCEPTED: u16 = 202;

/// CouchDB's status for an answered query, and for a deletion that a majority of copies has.
const ANSWERED: u16 = 200;

/// CouchDB's status for a document that a majority of copies has.
const CREATED: u16 = 201;

/// The outcome of a request that starts work.
#[derive(Clone, Debug)]
pub enum WriteOutcome {
    /// CouchDB accepted it, which does not mean that anything started.
    Accepted,
    /// CouchDB refused it.
    Refused(Error),
    /// It was not sent, or it was sent to a node that is down.
    NotSent(Error),
    /// It may have arrived.
    Unknown(Error),
}

impl Client {
    /// Sends a request that changes something: to the node that it names, otherwise to any server.
    pub async fn write(&self, route: Route<'_>) -> WriteOutcome {
        let due = if matches!(route, Route::PutDesign { .. }) {
            CREATED
        } else if route.starts_work() {
            ACCEPTED
        } else {
            ANSWERED
        };
        match self.sent_once(route).await {
            Ok((status, _)) if status == due => WriteOutcome::Accepted,
            Ok((status, asked)) => {
                let detail = format!("HTTP {status} instead of {due}");
                WriteOutcome::Unknown(Error::Malformed { asked, detail })
            }
            Err(error) => WriteOutcome::of(error, route),
        }
    }

    /// Makes CouchDB build every copy of a view index that is behind; `view` is any view of the
    /// document.
    pub async fn build_view(&self, db: &str, ddoc: &str, view: &str) -> WriteOutcome {
        self.write(Route::BuildView { db, ddoc, view }).await
    }

    /// Saves a design document. Accepted only if a majority of copies has it.
    pub async fn put_design(&self, db: &str, ddoc: &str, body: &str) -> WriteOutcome {
        self.write(Route::PutDesign { db, ddoc, body }).await
    }

    /// Deletes this revision of a design document. Accepted only if a majority of copies knows.
    pub async fn delete_design(&self, db: &str, ddoc: &str, rev: &str) -> WriteOutcome {
        self.write(Route::DeleteDesign { db, ddoc, rev }).await
    }

    /// Sends a request once, to one destination, within the limits on requests in flight.
    async fn sent_once(&self, route: Route<'_>) -> Result<(u16, Arc<RequestInfo>), Error> {
        let (path, target) = (route.path()?, ServerChoice::of(&route));
        let node = self.node(target).await;
        let _about = turn_about(node.as_deref()).await?;
        self.shared.auth.login().await?;
        let destination = self.choose(target, node.as_ref(), &[])?;
        let call = Call { route, path: &path, destination: &destination };
        let Answer { status, took, .. } = self.attempt(call).await?;
        let observer = &self.shared.sender.observer;
        observer.request_ended(route.label(), status_label(status), took);
        Ok((status, call.info()))
    }
}

impl WriteOutcome {
    /// What an error of a request on this route means for the caller.
    fn of(error: Error, route: Route<'_>) -> Self {
        match &error {
            // The request that proves the login comes first, and may fail itself.
            Error::Timeout { asked, .. }
            | Error::Connect { asked, .. }
            | Error::Tls { asked, .. }
            | Error::TooLarge { asked, .. }
            | Error::Malformed { asked, .. } => {
                if asked.route == route.label() {
                    Self::Unknown(error)
                } else {
                    Self::NotSent(error)
                }
            }
            Error::Status { .. }
            | Error::NotFound { .. }
            | Error::Proxy { .. }
            | Error::SlashDecoded { .. }
            | Error::Forbidden { .. }
            | Error::NoUser { .. }
            | Error::Redirect { .. } => Self::Refused(error),
            Error::Resting { .. }
            | Error::Hangs { .. }
            | Error::NodeDown { .. }
            | Error::UnknownNode { .. }
            | Error::LoginClosed { .. }
            | Error::NotCouchDb { .. }
            | Error::Unproved(_)
            | Error::Unaddressable(_)
            | Error::NoOwnAddress { .. }
            | Error::Stopped => Self::NotSent(error),
        }
    }
}
