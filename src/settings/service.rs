//! How the process itself is reached and what it logs. Flags only.

use crate::log::{Format, Level};
use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

/// The HTTP interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Web {
    /// Where it listens.
    pub listen_address: SocketAddr,
    /// Users and certificates, in the form Prometheus's exporters share.
    pub config_file: Option<PathBuf>,
    /// Whether `/-/reload` and `/-/quit` answer.
    pub enable_lifecycle: bool,
    /// Whether requests may change anything.
    pub enable_admin_api: bool,
}

impl Default for Web {
    fn default() -> Self {
        Self {
            listen_address: SocketAddr::from((Ipv4Addr::LOCALHOST, 10_984)),
            config_file: None,
            enable_lifecycle: false,
            enable_admin_api: false,
        }
    }
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The least important level that is logged.
    pub level: Level,
    /// The form of a line.
    pub format: Format,
}
