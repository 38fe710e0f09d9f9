//! How the process itself is reached and what it logs. Flags only.

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

/// How important a line of the log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something failed and someone should look.
    Error,
    /// Something is not as it should be.
    Warn,
    /// What happened.
    #[default]
    Info,
    /// Why it happened.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// Every level, the most important first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// The word in flags.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// `key=value` pairs.
    #[default]
    Logfmt,
    /// One JSON object a line.
    Json,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 2] = [Self::Logfmt, Self::Json];

    /// The word in flags.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Logfmt => "logfmt",
            Self::Json => "json",
        }
    }
}
