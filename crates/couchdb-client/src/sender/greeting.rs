//! Finds out without a login whether a CouchDB answers at an address.

use super::{Greeting, Sender};
use crate::{
    Error, Route,
    active_login::ActiveLogin,
    credential::Credential,
    directory::{Call, Destination, Server},
    observer::status_label,
    wire,
};
use std::sync::Arc;

impl Sender {
    /// The error of a first request to `server`, or that no CouchDB answers there.
    pub(crate) async fn explain_error(&self, server: &Arc<Server>, error: Error) -> Error {
        if error.strange_at().is_none() {
            return error;
        }
        match self.greeting(server).await {
            Ok(Greeting::Other(found)) => Error::NotCouchDb { at: server.address.clone(), found },
            Ok(Greeting::CouchDb | Greeting::WantsLogin) | Err(_) => error,
        }
    }

    /// Asks `server` what it is. Sends no login, cookie or password.
    ///
    /// # Errors
    ///
    /// If no answer shows it: no connection, no trust, a timeout, a redirect, or a server error.
    pub(crate) async fn greeting(&self, server: &Arc<Server>) -> Result<Greeting, Error> {
        let (route, destination) = (Route::Welcome, Destination::direct(Arc::clone(server)));
        let call = Call { route, path: &route.path()?, destination: &destination };
        let description = match self.send(call, &ActiveLogin::default(), &Credential::Basic).await {
            Ok(Ok(answer)) => {
                let status = status_label(answer.status);
                self.observer.request_ended(route.label(), status, answer.took);
                match wire::read::<wire::Welcome>(&answer.body) {
                    Ok(welcome) => match other_server(&welcome) {
                        None => return Ok(Greeting::CouchDb),
                        Some(description) => description,
                    },
                    Err(_) => stranger("its answer to GET / is not JSON; is it a login page?"),
                }
            }
            Ok(Err(_)) => return Ok(Greeting::WantsLogin),
            Err(Error::NotFound { .. }) => stranger("it answers GET / with HTTP 404"),
            Err(Error::Proxy { status, .. } | Error::Status { status: status @ 400..=499, .. }) => {
                stranger(&format!("it answers GET / with HTTP {status}"))
            }
            Err(Error::TooLarge { .. }) => stranger("its answer to GET / is too large"),
            Err(error) => return Err(error),
        };
        Ok(Greeting::Other(description))
    }
}

fn stranger(found: &str) -> String {
    format!("answered, but it is not a CouchDB ({found}): check the URL")
}

/// What the server is, if its greeting is not that of a supported CouchDB.
fn other_server(welcome: &wire::Welcome) -> Option<String> {
    let version = welcome.version.as_deref().unwrap_or_default();
    let vendor = welcome.vendor.name.as_deref().unwrap_or_default();
    let named = |name: &str| vendor.contains(name) || version.contains(name);
    if named("Cloudant") {
        return Some("is IBM Cloudant, which compacts by itself and shows no nodes".to_owned());
    }
    if let Some(name) = ["PouchDB", "Sync Gateway"].into_iter().find(|name| named(name)) {
        return Some(format!("is {name}, not CouchDB: it has no nodes or shards"));
    }
    if welcome.couchdb.is_none() {
        return Some(stranger("its answer to GET / does not contain couchdb"));
    }
    let old = matches!(version.split_once('.'), Some(("0" | "1" | "2", _)));
    old.then(|| format!("is CouchDB {version}, which is not supported: 3.0 or later"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_identifies_servers_that_are_not_supported_couchdb() {
        for (greeting, says) in [
            (r#"{"couchdb":"Welcome","version":"3.3.3","features":[]}"#, None),
            (r#"{"couchdb":"Welcome"}"#, None),
            (
                r#"{"couchdb":"Welcome","version":"2.3.1","vendor":{"name":"The Apache Software Foundation"}}"#,
                Some("is CouchDB 2.3.1, which is not supported: 3.0 or later"),
            ),
            (
                r#"{"couchdb":"Welcome","uuid":"1","version":"1.6.1","vendor":{"name":"Ubuntu"}}"#,
                Some("is CouchDB 1.6.1, which is not supported: 3.0 or later"),
            ),
            (
                r#"{"express-pouchdb":"Welcome!","version":"4.2.0","vendor":{"name":"PouchDB authors"}}"#,
                Some("is PouchDB, not CouchDB: it has no nodes or shards"),
            ),
            (
                r#"{"couchdb":"Welcome","vendor":{"name":"Couchbase Sync Gateway","version":"3.1"},"version":"Couchbase Sync Gateway/3.1.0(577;) EE"}"#,
                Some("is Sync Gateway, not CouchDB: it has no nodes or shards"),
            ),
            (
                r#"{"couchdb":"Welcome","version":"3.3.3+cloudant","vendor":{"name":"IBM Cloudant"}}"#,
                Some("is IBM Cloudant, which compacts by itself and shows no nodes"),
            ),
            (
                r#"{"version":"1"}"#,
                Some(
                    "answered, but it is not a CouchDB (its answer to GET / does not contain couchdb): check the URL",
                ),
            ),
        ] {
            let welcome = wire::read(greeting.as_bytes()).unwrap();
            assert_eq!(other_server(&welcome).as_deref(), says, "{greeting}");
        }
    }
}
