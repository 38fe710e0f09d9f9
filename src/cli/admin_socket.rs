//! Selects the recliner that receives an order: one on this machine over its Unix socket, or one
//! at a URL.
//!
//! Owns the order of attempts, and the message that names the recliner if the user did not.

use super::{
    CommandError,
    args::ReachArgs,
    print_error,
    service_client::{DEFAULT_URL, ServiceClient, url_in_environment},
};
use crate::model::settings::{Settings, service::WebSettings};
use std::{io, path::Path, time::Duration};
use tokio::{net::UnixStream, time};

/// Maximum wait for a connection to a socket.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

impl ReachArgs {
    /// A client for the named recliner, by a flag or by the environment. If none is named: for the one whose
    /// socket is in the default storage path, and a note says so; without that socket, for the one at the
    /// default URL.
    ///
    /// # Errors
    ///
    /// If the named recliner cannot be reached, or the login or a TLS file cannot be used.
    pub(super) async fn client(&self) -> Result<ServiceClient, CommandError> {
        if self.service.url.is_some() {
            return self.service.client();
        }
        let default = Settings::default_storage_path();
        let storage = self.storage.as_deref().unwrap_or(&default);
        let Some(path) = WebSettings::admin_socket(self.admin_socket.as_deref(), storage) else {
            return self.service.client();
        };
        let named = self.storage.is_some() || self.admin_socket.is_some();
        if !named && url_in_environment().is_some() {
            return self.service.client();
        }
        match check_socket(&path).await {
            Ok(()) => {
                if !named {
                    print_error(&format!(
                        "asking the recliner of the Unix socket {}",
                        path.display()
                    ));
                }
                ServiceClient::over_socket(&path)
            }
            // The order must only reach the recliner that was named.
            Err(why) if named => Err(CommandError::failed(format!(
                "{why}; check that recliner is running there, or connect over TCP with --recliner.url"
            ))),
            Err(why) => {
                print_error(&format!("{why}; asking {DEFAULT_URL}"));
                self.service.login.client(DEFAULT_URL)
            }
        }
    }
}

/// Checks that a process listens on a socket and accepts this user.
async fn check_socket(path: &Path) -> Result<(), String> {
    let name = path.display();
    match time::timeout(CONNECT_TIMEOUT, UnixStream::connect(path)).await {
        Ok(Ok(_)) => Ok(()),
        Err(_) => Err(format!("no answer on the Unix socket {name}")),
        Ok(Err(why)) if why.kind() == io::ErrorKind::NotFound => {
            Err(format!("there is no Unix socket {name}"))
        }
        Ok(Err(why)) if why.kind() == io::ErrorKind::ConnectionRefused => {
            Err(format!("no process listens on the Unix socket {name}"))
        }
        Ok(Err(why)) if why.kind() == io::ErrorKind::PermissionDenied => Err(format!(
            "the Unix socket {name} belongs to another user; run this command as recliner's user or as root"
        )),
        Ok(Err(why)) => Err(format!("cannot use the Unix socket {name}: {why}")),
    }
}
