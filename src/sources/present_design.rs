//! Reads the current version of one design document, or of all of a database.

use super::couchdb::describe;
use couchdb_client::{Client, ErrorKind};
use futures::future::BoxFuture;
use std::{fmt::Debug, time::Duration};
use tokio::{sync::watch, time};

/// Time limit for the document, because a user waits for it.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The answer of a [`DesignReader`]; an error says why there is none.
pub type DesignResult<'a, T> = BoxFuture<'a, Result<T, String>>;

/// Reads design documents.
pub trait DesignReader: Debug + Send + Sync {
    /// The JSON text of a database's design document, as CouchDB sent it; `None` if there is none.
    ///
    /// # Errors
    /// Why it could not be read.
    fn design<'a>(&'a self, db: &'a str, id: &'a str) -> DesignResult<'a, Option<String>>;

    /// The JSON texts of all design documents of a database.
    ///
    /// # Errors
    /// Why they could not be read.
    fn designs<'a>(&'a self, db: &'a str) -> DesignResult<'a, Vec<String>>;
}

/// Reads with the current client.
#[derive(Clone, Debug)]
pub struct CurrentClient(pub watch::Receiver<Client>);

impl DesignReader for CurrentClient {
    fn design<'a>(&'a self, db: &'a str, id: &'a str) -> DesignResult<'a, Option<String>> {
        let client = self.0.borrow().clone();
        Box::pin(async move { read_design(&client, db, id).await })
    }

    fn designs<'a>(&'a self, db: &'a str) -> DesignResult<'a, Vec<String>> {
        let client = self.0.borrow().clone();
        Box::pin(async move { read_designs(&client, db).await })
    }
}

/// The JSON text of a database's design document; `None` if there is none.
///
/// # Errors
/// Why it could not be read.
pub async fn read_design(client: &Client, db: &str, id: &str) -> Result<Option<String>, String> {
    let read = time::timeout(TIMEOUT, client.design_doc(db, id)).await;
    match read {
        Ok(Ok(found)) => Ok(found.map(|doc| doc.text)),
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => Ok(None),
        Ok(Err(error)) => Err(describe(&error)),
        Err(_) => Err(no_answer()),
    }
}

/// The JSON texts of all design documents of a database.
///
/// # Errors
/// Why they could not be read.
pub async fn read_designs(client: &Client, db: &str) -> Result<Vec<String>, String> {
    match time::timeout(TIMEOUT, client.design_docs(db, [])).await {
        Ok(Ok(docs)) => Ok(docs.into_iter().map(|doc| doc.text).collect()),
        Ok(Err(error)) => Err(describe(&error)),
        Err(_) => Err(no_answer()),
    }
}

fn no_answer() -> String {
    format!("CouchDB did not answer within {} seconds", TIMEOUT.as_secs())
}
