//! Which other recliners to show together, and how to reach them.

use crate::config_format::{
    When,
    form::{Form, list, settings},
    output::Output,
    section::Section,
    values::{SECOND, duration, path, read_url, text, tls_files, url},
};
use couchdb_client::{Address, Tls};
use serde_json::json;
use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

settings! {
    /// Which other recliners to show together, and how to reach them.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FleetSettings {
        /// URLs of recliners of other clusters; they are only read.
        "fleet.urls" => urls: Vec<Address> = Vec::new(), Live, list(url("a recliner", "http://recliner-a:10984"));
        /// Files that list more, in the format of Prometheus's file_sd_configs, with * allowed in the last part of a
        /// path; reread when they change.
        "fleet.file_sd" => file_sd: Vec<PathBuf> = Vec::new(), Live, list(path());
        /// URLs of such lists, in the format of Prometheus's http_sd_configs; recliners listed only over plain http get
        /// no login.
        "fleet.http_sd" => http_sd: Vec<ListUrl> = Vec::new(), Live, list(list_url());
        /// How often each one is asked.
        "fleet.interval" => interval: Duration = 30 * SECOND, Live, duration(SECOND);
        /// The user to log in as at all recliners; default RECLINER_USER and RECLINER_PASSWORD.
        "fleet.username" => username: Option<String> = None, Live, text().optional();
        /// A file with the user's password, read at start and on reload.
        "fleet.password_file" => password_file: Option<PathBuf> = None, Live, path().optional();
        /// Trusted authorities (default the system's), and a client certificate (default none).
        "fleet.tls" => tls: Tls = Tls::default(), Live, tls_files(When::Live);
    }
    check = check_login;
}

/// The URL of a list. It is shown without its query, which may hold a secret.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListUrl {
    address: Address,
    text: Arc<str>,
}

impl ListUrl {
    /// The URL with its query.
    pub(crate) fn with_query(&self) -> &str {
        &self.text
    }

    /// Whether it is fetched over TLS.
    pub(crate) fn is_https(&self) -> bool {
        self.address.is_https()
    }

    /// Reads a URL.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        if query.contains('#') {
            return Err("found a URL with a fragment (#), which is never sent".to_owned());
        }
        let address = read_url(base, "a list of recliners", EXAMPLE_LIST)?;
        Ok(Self { address, text: text.into() })
    }
}

impl fmt::Display for ListUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let query = if self.text.contains('?') { "?<secret>" } else { "" };
        write!(out, "{}{query}", self.address)
    }
}

impl fmt::Debug for ListUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

const EXAMPLE_LIST: &str = "https://inventory.example/recliners";

fn list_url() -> Form<ListUrl> {
    let schema = json!({
        "type": "string",
        "pattern": r"^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+(/[^?#]*)?(\?[^#]*)?$",
        "examples": [EXAMPLE_LIST],
    });
    Form::scalar(ListUrl::read, |url: &ListUrl| Output::Text(url.to_string()), schema)
}

impl FleetSettings {
    /// Whether any recliner is to be shown.
    pub fn is_configured(&self) -> bool {
        !(self.urls.is_empty() && self.file_sd.is_empty() && self.http_sd.is_empty())
    }
}

fn check_login(settings: &mut FleetSettings, section: &mut Section<'_, '_>) {
    if settings.username.as_ref().is_some_and(|user| user.contains(':')) {
        let says = "a user name must not contain a colon, because HTTP logins cannot carry it";
        section.refuse_key("username", says);
    }
    for (given, missing) in [("username", "password_file"), ("password_file", "username")] {
        if section.key_at(missing).is_none() {
            section
                .refuse_key(given, format!("found {given} without {missing}; a login needs both"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_url_is_fetched_as_written_and_shown_without_its_query() {
        for (text, shown) in [
            ("https://sd/list", "https://sd:443/list"),
            ("https://sd/list/?token=q9zsecret&x=a%2Fb", "https://sd:443/list?<secret>"),
            ("http://sd:1?q9zsecret=@", "http://sd:1?<secret>"),
        ] {
            let url = ListUrl::read(text).unwrap();
            assert_eq!((url.with_query(), &*url.to_string()), (text, shown));
            assert_eq!(format!("{url:?}"), shown);
        }
        for text in [
            "http://ann:q9zsecret@sd/list?x=1",
            "http://q9zsecret?word@sd:x/#y",
            "q9zsecret?token=q9zsecret",
            "https://sd/list?token=q9zsecret#part",
            "https://sd/#q9zsecret",
        ] {
            let why = ListUrl::read(text).unwrap_err();
            assert!(!why.contains("token") && !why.contains("ann"), "{text}: {why}");
        }
    }
}
