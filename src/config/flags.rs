//! Flags that override the file, and flags for settings that the file cannot contain.

use super::{reachability, sections::FileSettings};
use crate::{
    config_format::{
        problem::{Place, Problem, quoted},
        section::Report,
        values::{
            self, read_couchdb_url, read_host_name, read_listen_address, read_node_name,
            read_one_of,
        },
    },
    model::{
        channel::Mode,
        settings::{ServedNodes, Settings, service},
    },
};
use couchdb_client::{Login, LoginError};
use secrecy::{ExposeSecret, SecretString};
use std::{
    fmt,
    os::unix::net::SocketAddr,
    path::{Path, PathBuf},
};

/// The command line and the environment as given. They may contain a password in a URL, so `Debug`
/// prints no field.
#[derive(Clone, Default)]
pub struct Flags {
    /// `--couchdb.url`, repeatable.
    pub couchdb_urls: Vec<String>,
    /// `--couchdb.username`.
    pub couchdb_username: Option<String>,
    /// `--couchdb.password-file`.
    pub couchdb_password_file: Option<PathBuf>,
    /// `COUCHDB_USER`.
    pub env_user: Option<String>,
    /// `COUCHDB_PASSWORD`.
    pub env_password: Option<SecretString>,
    /// `--mode`.
    pub mode: Option<String>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
    /// `--view-index-dir`.
    pub view_index_dir: Option<PathBuf>,
    /// `--node`, repeatable.
    pub nodes: Vec<String>,
    /// `--storage.path`.
    pub storage_path: Option<PathBuf>,
    /// `--web.listen-address`.
    pub web_listen_address: Option<String>,
    /// `--web.config.file`.
    pub web_config_file: Option<PathBuf>,
    /// `--web.enable-lifecycle`.
    pub web_enable_lifecycle: bool,
    /// `--web.enable-admin-api`.
    pub web_enable_admin_api: bool,
    /// `--web.enable-mcp`.
    pub web_enable_mcp: bool,
    /// `--web.allowed-host`, repeatable.
    pub web_allowed_hosts: Vec<String>,
    /// `--web.admin-socket`.
    pub web_admin_socket: Option<PathBuf>,
    /// `--log.level`.
    pub log_level: Option<String>,
    /// `--log.format`.
    pub log_format: Option<String>,
}

impl fmt::Debug for Flags {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Flags").finish_non_exhaustive()
    }
}

/// The problem with these settings if anyone who reaches the process could start compactions.
pub fn admin_api_exposed(settings: &Settings, has_users: bool) -> Option<Problem> {
    let web = &settings.web;
    let closed = settings.mode == Mode::Advise
        || !web.enable_admin_api
        || web.listen_address.ip().to_canonical().is_loopback()
        || has_users;
    let says = || {
        format!(
            "anyone who can reach {} could start compactions; listen on 127.0.0.1, define users in --web.config.file, or omit this flag or --mode=enforce",
            web.listen_address
        )
    };
    (!closed).then(|| Problem { place: Place::Flag("--web.enable-admin-api"), text: says() })
}

/// Why a path cannot be that of a Unix socket, if it is longer than the system allows.
fn too_long(path: &Path) -> Option<String> {
    SocketAddr::from_pathname(path).err().map(|why| {
        format!(
            "{} cannot be the path of a Unix socket ({why}): it is {} bytes long, and the limit is about 100; give a shorter one, such as /run/recliner/admin.sock, or none",
            path.display(),
            path.as_os_str().len()
        )
    })
}

impl Report {
    /// Reads a flag's value, and reports an invalid one as a problem of that flag.
    fn flag<T>(
        &mut self,
        name: &'static str,
        text: &str,
        read: impl FnOnce(&str) -> values::Read<T>,
    ) -> Option<T> {
        read(text).map_err(|text| self.refuse_flag(name, text)).ok()
    }

    fn refuse_flag(&mut self, name: &'static str, text: impl Into<String>) {
        self.problems.push(Problem { place: Place::Flag(name), text: text.into() });
    }
}

impl Flags {
    /// Overrides the file's settings with the flags, and checks the rules that involve both.
    pub(super) fn complete(&self, file: FileSettings, report: &mut Report) -> Settings {
        let Self {
            couchdb_urls,
            couchdb_username: _,
            couchdb_password_file: _,
            env_user: _,
            env_password: _,
            mode,
            data_dir,
            view_index_dir,
            nodes,
            storage_path,
            web_listen_address,
            web_config_file,
            web_enable_lifecycle,
            web_enable_admin_api,
            web_enable_mcp,
            web_allowed_hosts,
            web_admin_socket,
            log_level,
            log_format,
        } = self;
        let login = self.login(&file, report);
        let mut settings = file.settings;
        settings.couchdb.login = login;

        if !couchdb_urls.is_empty() {
            let read = |url: &String| report.flag("--couchdb.url", url, read_couchdb_url);
            settings.couchdb.urls = couchdb_urls.iter().filter_map(read).collect();
        }
        if !nodes.is_empty() {
            let read = |name: &String| report.flag("--node", name, read_node_name);
            settings.nodes = ServedNodes::Named(nodes.iter().filter_map(read).collect());
        }
        settings.files.data_dir = data_dir.clone().or(settings.files.data_dir);
        settings.files.view_index_dir = view_index_dir.clone().or(settings.files.view_index_dir);
        let files_alone = settings.files.data_dir.is_some();
        if settings.files.view_index_dir.is_some() && !files_alone {
            report.refuse_flag(
                "--view-index-dir",
                "the view directory is given without the database directory; also give --data-dir or files.data_dir",
            );
        }
        if settings.couchdb.urls.is_empty() && couchdb_urls.is_empty() && !files_alone {
            report.refuse_flag("--couchdb.url", "no CouchDB is named; give this flag, or couchdb.urls in the configuration file, such as http://127.0.0.1:5984");
        }

        if let Some(mode) = mode {
            settings.mode = report.flag("--mode", mode, read_one_of).unwrap_or_default();
        }
        if settings.mode == Mode::Enforce && settings.couchdb.urls.is_empty() && files_alone {
            let says = "no CouchDB is named, but enforce mode needs one to start compactions; give --couchdb.url, or use mode advise";
            report.refuse_flag("--mode", says);
        }
        if let Some(path) = storage_path {
            settings.storage_path.clone_from(path);
        }
        let web = &mut settings.web;
        if let Some(address) = web_listen_address
            && let Some(address) = report.flag("--web.listen-address", address, read_listen_address)
        {
            web.listen_address = address;
        }
        web.config_file.clone_from(web_config_file);
        web.enable_lifecycle = *web_enable_lifecycle;
        web.enable_admin_api = *web_enable_admin_api;
        web.enable_mcp = *web_enable_mcp;
        let read = |name: &String| report.flag("--web.allowed-host", name, read_host_name);
        web.allowed_hosts = web_allowed_hosts.iter().filter_map(read).collect();
        web.admin_socket =
            service::WebSettings::admin_socket(web_admin_socket.as_deref(), &settings.storage_path);
        if let Some(path) = &web.admin_socket
            && let Some(says) = too_long(path)
        {
            report.refuse_flag("--web.admin-socket", says);
        }
        // A web configuration file may define users, which is known only once it has been opened.
        if web.config_file.is_none() {
            report.problems.extend(admin_api_exposed(&settings, false));
        }
        let log = &mut settings.log;
        if let Some(level) = log_level
            && let Some(level) = report.flag("--log.level", level, read_one_of)
        {
            log.level = level;
        }
        if let Some(format) = log_format
            && let Some(format) = report.flag("--log.format", format, read_one_of)
        {
            log.format = format;
        }
        let in_file = file.names_nodes.filter(|_| nodes.is_empty());
        let places = reachability::Places { nodes: in_file, trusts_hosts: file.trusts_hosts };
        reachability::check(&settings, places, report);
        settings
    }

    /// The login for CouchDB. User and password are each taken from the flag, otherwise from the
    /// environment, otherwise from the file.
    fn login(&self, file: &FileSettings, report: &mut Report) -> Login {
        let username = self
            .couchdb_username
            .clone()
            .or_else(|| self.env_user.clone().filter(|name| !name.is_empty()))
            .or_else(|| file.username.as_ref().map(|found| found.value.clone()));
        let env_password =
            self.env_password.as_ref().filter(|secret| !secret.expose_secret().is_empty());
        let in_file = file.password_file.as_ref().map(|found| &found.value);
        let asks_for = "give --couchdb.password-file, couchdb.password_file or COUCHDB_PASSWORD";
        let Some(username) = username else {
            let why = "a password is given without a user; give --couchdb.username, couchdb.username or COUCHDB_USER";
            if let Some(found) = &file.password_file {
                report.refuse(found.at, &found.path, why);
            } else if self.couchdb_password_file.is_some() {
                report.refuse_flag("--couchdb.password-file", why);
            } else if env_password.is_some() {
                report.refuse_flag("COUCHDB_PASSWORD", why);
            }
            return Login::None;
        };
        let login = match (&self.couchdb_password_file, env_password, in_file) {
            (Some(path), _, _) | (None, None, Some(path)) => Login::file(&username, path),
            (None, Some(secret), _) => Login::password(&username, secret.expose_secret()),
            (None, None, None) => {
                self.refuse_user(
                    file,
                    report,
                    format!("a user is given without a password; {asks_for}"),
                );
                return Login::None;
            }
        };
        match login {
            Ok(login) => login,
            Err(LoginError::Username(name)) => {
                let says = format!(
                    "found {}, but a user name must not contain a colon or a control character, because HTTP logins cannot carry them",
                    quoted(&name)
                );
                self.refuse_user(file, report, says);
                Login::None
            }
            Err(why @ LoginError::File { .. }) => {
                self.refuse_user(file, report, why.to_string());
                Login::None
            }
        }
    }

    /// Reports a problem at the place from which the user's name was taken.
    fn refuse_user(&self, file: &FileSettings, report: &mut Report, says: String) {
        let in_env = self.env_user.as_ref().is_some_and(|name| !name.is_empty());
        match &file.username {
            _ if self.couchdb_username.is_some() => report.refuse_flag("--couchdb.username", says),
            Some(found) if !in_env => report.refuse(found.at, &found.path, says),
            _ => report.refuse_flag("COUCHDB_USER", says),
        }
    }
}
