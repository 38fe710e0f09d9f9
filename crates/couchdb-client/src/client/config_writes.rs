//! Requests that change a node's configuration until the node restarts.

use super::Client;
use crate::{Error, Route};

impl Client {
    /// Sets a value of `node`'s configuration until the node restarts or reads its files again. The
    /// files do not change. Sending it twice has the same effect as once.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn set_config(
        &self,
        node: &str,
        section: &str,
        key: &str,
        value: &str,
    ) -> Result<(), Error> {
        let route = Route::SetConfig { node, section, key, value };
        // The answer is the previous value, which is empty if it was not set.
        self.get::<String>(route).await.map(drop)
    }

    /// Resets a value of `node`'s configuration to the value in the node's files, which may be
    /// absent. A value that somebody else had set until the restart is lost.
    ///
    /// # Errors
    ///
    /// See [`Error`].
    pub async fn reset_config(&self, node: &str, section: &str, key: &str) -> Result<(), Error> {
        let route = Route::ResetConfig { node, section, key };
        match self.get::<String>(route).await {
            // It was not set, which is the wanted state.
            Ok(_) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
