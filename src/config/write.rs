//! Converts settings to YAML that reads as the same settings, to JSON for display, and provides the
//! JSON Schema of the file.
//!
//! A password given directly is never written; the path of a password file is.

use super::sections::{FLAGS, FileSettings, document, fleet, policy, write_channel};
use crate::{
    config_format::{output::Output, values::patterns},
    model::{channel::Channels, settings::Settings},
};
use couchdb_client::Login;

/// The effective configuration as JSON in the shape of the file, including the settings that only
/// flags change. Secrets are shown as `"<secret>"`.
pub fn to_json(settings: &Settings) -> serde_json::Value {
    let mut shown = file(settings).json();
    for flag in &FLAGS {
        let (section, key) = flag.shown;
        shown[section][key] = (flag.write)(settings).json();
    }
    if matches!(settings.couchdb.login, Login::Password { .. }) {
        shown["couchdb"]["password"] = "<secret>".into();
    }
    shown
}

/// The effective configuration as a `recliner.yml`. Loading it with the same flags for settings
/// that only flags change (storage, web, log, a given password) results in equal settings. Paths
/// are already resolved.
pub fn to_yaml(settings: &Settings) -> String {
    file(settings).yaml()
}

/// The section `fleet` of a `recliner.yml`.
pub fn fleet_to_yaml(settings: &Settings) -> String {
    fleet().write(&FileSettings::of(settings)).unwrap_or(Output::Nothing).yaml()
}

/// The policy part of a `recliner.yml`, which [`load_policy`](super::load_policy) reads.
pub fn policy_to_yaml(settings: &Settings) -> String {
    policy().write(&FileSettings::of(settings)).unwrap_or(Output::Nothing).yaml()
}

/// Channels as in a `recliner.yml`: `channels` with all values that differ from the defaults, and
/// `ignore` if it is not empty.
pub(crate) fn channels_yaml(channels: &Channels) -> String {
    let Channels { list, ignore } = channels;
    let list = list.iter().map(|channel| write_channel(channel, false)).collect();
    let mut entries = vec![("channels".to_owned(), Output::List(list))];
    if !ignore.texts().is_empty() {
        entries.extend(patterns().write(ignore).map(|ignore| ("ignore".to_owned(), ignore)));
    }
    Output::Map(entries).yaml()
}

/// The JSON Schema (draft 2020-12) of `recliner.yml`, for editors. Rules that involve several keys
/// or the servers are left to `check-config`.
pub fn schema() -> serde_json::Value {
    let defaults = FileSettings::of(&FileSettings::default().settings);
    let mut schema = document().schema(Some(&defaults));
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "recliner.yml".into();
    schema["description"] = "The configuration of recliner.".into();
    schema
}

fn file(settings: &Settings) -> Output {
    document().write(&FileSettings::of(settings)).unwrap_or(Output::Nothing)
}
