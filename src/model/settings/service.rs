//! How the process itself is reached and what it logs. Flags only.

use crate::log::{LogFormat, LogLevel};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

/// The HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSettings {
    /// Where it listens.
    pub listen_address: SocketAddr,
    /// Users and certificates, in the form Prometheus's exporters share.
    pub config_file: Option<PathBuf>,
    /// Whether `/-/reload` and `/-/quit` answer.
    pub enable_lifecycle: bool,
    /// Whether requests may change anything.
    pub enable_admin_api: bool,
    /// Names in `Host` that mean this service, besides those of this machine.
    pub allowed_hosts: Vec<String>,
    /// The Unix socket over which the service's own user suspends and resumes; none where
    /// there is to be none.
    pub admin_socket: Option<PathBuf>,
}

impl WebSettings {
    /// Whether what is read needs a `Host` that means this service. An address that only this machine reaches
    /// is safe from all but pages in its own browser, which DNS rebinding brings here under a foreign name;
    /// any other is open to the network, where nobody knows by which names it is asked.
    #[must_use]
    pub fn checks_host(&self) -> bool {
        self.listen_address.ip().to_canonical().is_loopback() || !self.allowed_hosts.is_empty()
    }

    /// The socket's place where only the storage path is known.
    #[must_use]
    pub fn default_admin_socket(storage_path: &Path) -> PathBuf {
        storage_path.join("admin.sock")
    }

    /// The socket that `--web.admin-socket` means: a path, or `none` or nothing for none; left
    /// out, the default one.
    #[must_use]
    pub fn admin_socket(given: Option<&Path>, storage_path: &Path) -> Option<PathBuf> {
        match given {
            None => Some(Self::default_admin_socket(storage_path)),
            Some(path) if path.as_os_str().is_empty() || path == Path::new("none") => None,
            Some(path) => Some(path.to_owned()),
        }
    }
}

impl Default for WebSettings {
    fn default() -> Self {
        Self {
            listen_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 10_984)),
            config_file: None,
            enable_lifecycle: false,
            enable_admin_api: false,
            allowed_hosts: Vec::new(),
            admin_socket: None,
        }
    }
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// The least important level that is logged.
    pub level: LogLevel,
    /// The form of a line.
    pub format: LogFormat,
}
