//! How the process itself is reached and what it logs. Flags only.

use crate::log::{LogFormat, LogLevel};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

/// The HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebSettings {
    /// The address to listen on.
    pub listen_address: SocketAddr,
    /// Users and certificates, in the file format of Prometheus's exporters.
    pub config_file: Option<PathBuf>,
    /// Whether `/-/reload` and `/-/quit` are available.
    pub enable_lifecycle: bool,
    /// Whether API requests may change anything.
    pub enable_admin_api: bool,
    /// Whether assistants may ask over the Model Context Protocol.
    pub enable_mcp: bool,
    /// Values of `Host` that mean this service, in addition to this machine's own names.
    pub allowed_hosts: Vec<String>,
    /// The Unix socket over which the service's own user suspends and resumes; `None` to have no
    /// socket.
    pub admin_socket: Option<PathBuf>,
}

impl WebSettings {
    /// The socket that `--web.admin-socket` selects: a path; no socket if it is `none` or empty;
    /// the default socket if it is absent.
    pub fn admin_socket(given: Option<&Path>, storage_path: &Path) -> Option<PathBuf> {
        match given {
            None => Some(storage_path.join("admin.sock")),
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
            enable_mcp: false,
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
