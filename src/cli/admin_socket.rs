//! Which recliner an order goes to: one on this machine over its Unix socket, or one at a URL.
//!
//! Owns the order in which they are tried, and the sentence that says which was asked where
//! nobody named one.

use super::{
    Failure,
    args::OrderArgs,
    complain,
    service_client::{DEFAULT_URL, ServiceClient},
};
use crate::model::settings::{Settings, service::Web};
use std::{io, path::Path, time::Duration};
use tokio::{net::UnixStream, time};

/// How long a socket may take to let somebody in.
const PATIENCE: Duration = Duration::from_secs(2);

impl OrderArgs {
    /// A client for the recliner that was named. Where none was, for the one whose socket is in
    /// the default storage path; where none is there, for the one at the default URL.
    ///
    /// # Errors
    /// When the one that was named cannot be reached, or the login or a file for TLS cannot be
    /// used.
    pub(super) async fn client(&self) -> Result<ServiceClient, Failure> {
        if self.service.url.is_some() {
            return self.service.client();
        }
        let default = Settings::default_storage_path();
        let storage = self.storage.as_deref().unwrap_or(&default);
        let Some(path) = Web::admin_socket(self.admin_socket.as_deref(), storage) else {
            return self.service.client();
        };
        let named = self.storage.is_some() || self.admin_socket.is_some();
        match reached(&path).await {
            Ok(()) => ServiceClient::over_socket(&path),
            // Another one than was meant must not get the order.
            Err(why) if named => Err(Failure::failed(format!(
                "{why}; is recliner running there? --recliner.url names one to ask over TCP"
            ))),
            Err(why) => {
                complain(&format!("{why}; asking {DEFAULT_URL}"));
                self.service.client()
            }
        }
    }
}

/// Whether somebody listens on a socket and lets this user in, or why not.
async fn reached(path: &Path) -> Result<(), String> {
    let name = path.display();
    match time::timeout(PATIENCE, UnixStream::connect(path)).await {
        Ok(Ok(_)) => Ok(()),
        Err(_) => Err(format!("nobody answers on the Unix socket {name}")),
        Ok(Err(why)) if why.kind() == io::ErrorKind::NotFound => {
            Err(format!("there is no Unix socket {name}"))
        }
        Ok(Err(why)) if why.kind() == io::ErrorKind::ConnectionRefused => {
            Err(format!("nobody listens on the Unix socket {name}"))
        }
        Ok(Err(why)) if why.kind() == io::ErrorKind::PermissionDenied => Err(format!(
            "the Unix socket {name} is another user's: run this as the user that recliner runs as, or as root"
        )),
        Ok(Err(why)) => Err(format!("cannot use the Unix socket {name}: {why}")),
    }
}
