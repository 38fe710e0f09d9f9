//! Settings that only flags can change: shown with the configuration, but never in the file.

use crate::{
    config_format::{
        When::{self, Live, Restart},
        output::{Output, text},
    },
    model::settings::{
        Settings,
        service::{LogSettings, WebSettings},
    },
    text::Label,
};
use std::path::Path;

/// A setting that only a flag changes.
pub(in crate::config) struct Flag {
    pub(in crate::config) flag: &'static str,
    /// The section and the key under which the setting is shown.
    pub(in crate::config) shown: (&'static str, &'static str),
    /// When a changed value takes effect.
    pub(in crate::config) when: When,
    /// Writes the setting's value.
    pub(in crate::config) write: fn(&Settings) -> Output,
}

/// All settings that only flags change.
#[rustfmt::skip]
pub(in crate::config) const FLAGS: [Flag; 10] = [
    Flag { flag: "--storage.path", shown: ("storage", "path"), when: Restart, write: |it| Output::path(&it.storage_path) },
    Flag { flag: "--web.listen-address", shown: ("web", "listen_address"), when: Restart, write: |it| text(&it.web.listen_address.to_string()) },
    Flag { flag: "--web.config.file", shown: ("web", "config_file"), when: Restart, write: |it| path_or_nothing(it.web.config_file.as_deref()) },
    Flag { flag: "--web.enable-lifecycle", shown: ("web", "enable_lifecycle"), when: Restart, write: |it| Output::Bool(it.web.enable_lifecycle) },
    Flag { flag: "--web.enable-admin-api", shown: ("web", "enable_admin_api"), when: Restart, write: |it| Output::Bool(it.web.enable_admin_api) },
    Flag { flag: "--web.enable-mcp", shown: ("web", "enable_mcp"), when: Restart, write: |it| Output::Bool(it.web.enable_mcp) },
    Flag { flag: "--web.allowed-host", shown: ("web", "allowed_hosts"), when: Restart, write: |it| Output::List(it.web.allowed_hosts.iter().map(|name| text(name)).collect()) },
    Flag { flag: "--web.admin-socket", shown: ("web", "admin_socket"), when: Restart, write: |it| path_or_nothing(it.web.admin_socket.as_deref()) },
    Flag { flag: "--log.level", shown: ("log", "level"), when: Live, write: |it| text(it.log.level.label()) },
    Flag { flag: "--log.format", shown: ("log", "format"), when: Restart, write: |it| text(it.log.format.label()) },
];

// Does not compile if a setting is missing above.
#[rustfmt::skip]
const _: fn(&WebSettings, &LogSettings) = |
    WebSettings { listen_address: _, config_file: _, enable_lifecycle: _, enable_admin_api: _, enable_mcp: _, allowed_hosts: _, admin_socket: _ },
    LogSettings { level: _, format: _ },
| {};

fn path_or_nothing(path: Option<&Path>) -> Output {
    path.map_or(Output::Nothing, Output::path)
}
