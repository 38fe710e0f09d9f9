//! Finds out without a login whether a CouchDB answers at an address.

use super::{
    Error, Route,
    auth_gate::ProvenLogin,
    credential::Credential,
    directory::{Destination, Directory, Server},
    observer::status_label,
    sender::{Sender, ServerResponse},
    wire,
};
use std::sync::Arc;

/// What a server answered to `GET /`, which CouchDB answers to anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Greeting {
    /// It is a CouchDB.
    CouchDb,
    /// It wants a login first, as CouchDB does with `[chttpd] require_valid_user`, and as a
    /// proxy may.
    WantsLogin,
    /// It is something else; says what was found.
    Other(String),
}

impl Sender {
    /// The error of a first request, or that no CouchDB answers there.
    pub(super) async fn explain_error(&self, error: Error, directory: &Directory) -> Error {
        let (Error::Malformed { asked, .. }
        | Error::NotFound { asked, .. }
        | Error::TooLarge { asked, .. }
        | Error::Status { asked, .. }) = &error
        else {
            return error;
        };
        let at = directory.server(&asked.at);
        self.explain_error_of(&at, error).await
    }

    /// The same, for a known server.
    pub(super) async fn explain_error_of(&self, server: &Arc<Server>, error: Error) -> Error {
        if !error.is_strange() {
            return error;
        }
        match self.greeting(server).await {
            Ok(Greeting::Other(found)) => Error::NotCouchDb { at: server.address.clone(), found },
            Ok(Greeting::CouchDb | Greeting::WantsLogin) | Err(_) => error,
        }
    }

    /// Asks `server` what it is. No login, cookie or password goes with it.
    ///
    /// # Errors
    /// When no answer tells: no connection, no trust, a timeout, a redirect, a server error.
    pub(super) async fn greeting(&self, server: &Arc<Server>) -> Result<Greeting, Error> {
        let route = Route::Welcome;
        let path = route.path()?;
        let destination = Destination::direct(Arc::clone(server));
        let answer =
            self.send(route, &path, &destination, &ProvenLogin::none(), &Credential::Basic).await;
        let found = match answer {
            Ok(ServerResponse::Complete { body, status, took, .. }) => {
                self.observer.request_ended(route.label(), status_label(status), took);
                match wire::read::<wire::Welcome>(&body) {
                    Ok(welcome) if welcome.couchdb.is_some() => return Ok(Greeting::CouchDb),
                    Ok(_) => "its answer to GET / does not say couchdb".to_owned(),
                    Err(_) => "its answer to GET / is not CouchDB's JSON".to_owned(),
                }
            }
            Ok(ServerResponse::Refused { .. } | ServerResponse::Streaming(_)) => {
                return Ok(Greeting::WantsLogin);
            }
            Err(Error::NotFound { .. }) => "it answers GET / with HTTP 404".to_owned(),
            Err(Error::Status { status: status @ 400..=499, .. }) => {
                format!("it answers GET / with HTTP {status}")
            }
            Err(Error::TooLarge { .. }) => "its answer to GET / is large".to_owned(),
            Err(error) => return Err(error),
        };
        Ok(Greeting::Other(found))
    }
}
