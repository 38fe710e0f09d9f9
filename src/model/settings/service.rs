//! How the process itself is reached and what it logs. Flags only.

use crate::log::{LogFormat, LogLevel};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

/// The HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSettings {
    /// The address on which it listens.
    pub listen_address: SocketAddr,
    /// Users and certificates, in the file format of Prometheus's exporters.
    pub config_file: Option<PathBuf>,
    /// Whether `/-/reload` and `/-/quit` answer.
    pub enable_lifecycle: bool,
    /// Whether requests may change anything.
    pub enable_admin_api: bool,
    /// Values of `Host` that mean this service, in addition to this machine's own names.
    pub allowed_hosts: Vec<String>,
    /// The Unix socket over which the service's own user suspends and resumes; `None` to have no
    /// socket.
    pub admin_socket: Option<PathBuf>,
}

impl WebSettings {
    /// Whether read requests need a `Host` that means this service. An address that only this
    /// machine can reach is safe from everything except pages in its own browser, which DNS
    /// rebinding brings here under a foreign name; any other address is open to the network, where
    /// the names that clients use for it are unknown.
    #[must_use]
    pub fn checks_host(&self) -> bool {
        self.listen_address.ip().to_canonical().is_loopback() || !self.allowed_hosts.is_empty()
    }

    /// The default path of the socket for a storage path.
    #[must_use]
    pub fn default_admin_socket(storage_path: &Path) -> PathBuf {
        storage_path.join("admin.sock")
    }

    /// The socket that `--web.admin-socket` selects: a path; no socket if it is `none` or empty;
    /// the default socket if it is absent.
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
    /// The lowest level that is logged.
    pub level: LogLevel,
    /// The format of a log line.
    pub format: LogFormat,
}
