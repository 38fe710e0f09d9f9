//! What can be changed of a node's configuration: values that last until it restarts.

use super::{Client, Whom};
use crate::{Error, Route};

impl Client {
    /// Sets a value of `node`'s configuration until the node restarts, or reads its files
    /// again. Its files stay as they are. Sent twice, it does no more than once.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn set_config(
        &self,
        node: &str,
        section: &str,
        key: &str,
        value: &str,
    ) -> Result<(), Error> {
        let route = Route::SetConfig { node, section, key, value };
        // The answer is the value before; one that was not set reads as an empty one.
        self.get::<String>(route, Whom::Node(node), false).await.map(drop)
    }

    /// Puts a value of `node`'s configuration back to what the node's files say, which may
    /// be nothing. A value that somebody else had set until the restart is lost.
    ///
    /// # Errors
    /// As [`Error`] says.
    pub async fn reset_config(&self, node: &str, section: &str, key: &str) -> Result<(), Error> {
        let route = Route::ResetConfig { node, section, key };
        match self.get::<String>(route, Whom::Node(node), false).await {
            // It was not set at all: so it is as it should be.
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
