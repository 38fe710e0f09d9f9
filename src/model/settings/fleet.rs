//! Which other recliners are shown together, and how they are reached.

use crate::config_format::{
    When,
    form::{list, settings},
    section::Section,
    values::{SECOND, duration, path, text, tls_files, url},
};
use couchdb_client::{Address, Tls};
use std::{path::PathBuf, time::Duration};

settings! {
    /// Which other recliners are shown together, and how they are reached.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FleetSettings {
        /// URLs of recliners, each for its own cluster; they are only read.
        "fleet.urls" => urls: Vec<Address> = Vec::new(), Live, list(url("a recliner", "http://recliner-a:10984"));
        /// Files that list more, as for Prometheus's file_sd_configs, with * in the last part of a path; read again when they change.
        "fleet.file_sd" => file_sd: Vec<PathBuf> = Vec::new(), Live, list(path());
        /// URLs of such lists, as for Prometheus's http_sd_configs; recliners that only one over http names get no login.
        "fleet.http_sd" => http_sd: Vec<Address> = Vec::new(), Live, list(url("a list of recliners", "https://inventory.example/recliners"));
        /// How often each one is asked.
        "fleet.interval" => interval: Duration = 30 * SECOND, Live, duration(SECOND);
        /// The user to log in as at all of them; without it, RECLINER_USER and RECLINER_PASSWORD.
        "fleet.username" => username: Option<String> = None, Live, text().optional();
        /// A file that holds the user's password, read at start and at a reload.
        "fleet.password_file" => password_file: Option<PathBuf> = None, Live, path().optional();
        /// Trusted authorities (default the system's), and a client certificate (default none).
        "fleet.tls" => tls: Tls = Tls::default(), Live, tls_files(When::Live);
    }
    check = check_login;
}

impl FleetSettings {
    /// Whether any recliner is to be shown.
    pub fn is_configured(&self) -> bool {
        !(self.urls.is_empty() && self.file_sd.is_empty() && self.http_sd.is_empty())
    }
}

fn check_login(settings: &mut FleetSettings, section: &mut Section<'_, '_>) {
    if settings.username.as_ref().is_some_and(|user| user.contains(':')) {
        let says = "a user name contains no colon, because a login cannot carry it";
        section.refuse_key("username", says);
    }
    for (given, missing) in [("username", "password_file"), ("password_file", "username")] {
        if section.key_at(missing).is_none() {
            section
                .refuse_key(given, format!("found {given} without {missing}; a login needs both"));
        }
    }
}
