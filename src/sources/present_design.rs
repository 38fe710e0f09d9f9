//! Reads one design document as a database has it now.

use super::couchdb::describe;
use couchdb_client::{Client, ErrorKind};
use futures::future::BoxFuture;
use std::{fmt::Debug, time::Duration};
use tokio::{sync::watch, time};

/// Time limit for the document: somebody waits for it.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Whoever can read a design document.
pub trait DesignReader: Debug + Send + Sync {
    /// The JSON text of a database's design document, as CouchDB sent it; none if there is none.
    ///
    /// # Errors
    /// Why it could not be read.
    fn design<'a>(
        &'a self,
        db: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, String>>;
}

/// Reads with the client that is in force.
#[derive(Clone, Debug)]
pub struct CurrentClient(pub watch::Receiver<Client>);

impl DesignReader for CurrentClient {
    fn design<'a>(
        &'a self,
        db: &'a str,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, String>> {
        let client = self.0.borrow().clone();
        Box::pin(async move { read_design(&client, db, id).await })
    }
}

/// The JSON text of a database's design document; none if there is none.
///
/// # Errors
/// Why it could not be read.
pub async fn read_design(client: &Client, db: &str, id: &str) -> Result<Option<String>, String> {
    let read = time::timeout(TIMEOUT, client.design_doc(db, id)).await;
    match read {
        Ok(Ok(found)) => Ok(found.map(|doc| doc.text)),
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Ok(Err(error)) => Err(describe(&error)),
        Err(_) => Err(format!("CouchDB did not answer within {} seconds", TIMEOUT.as_secs())),
    }
}
