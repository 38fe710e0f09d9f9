//! Settings as YAML that reads as the same settings, as JSON to show, and the JSON Schema of
//! the file.
//!
//! A given password is never written; the path of a password's file is.

use super::sections::{FLAGS, FileSettings, document, policy, write_channel};
use crate::{
    config_format::{output::Output, values::patterns},
    model::{channel::Channels, settings::Settings},
};
use couchdb_client::Login;

/// The effective configuration as JSON, in the shape of the file, with what flags alone
/// say beside it. Secrets read `"<secret>"`.
#[must_use]
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

/// The effective configuration as a `recliner.yml`: loaded with the same flags for what
/// flags alone say (storage, web, log, a given password), it gives equal settings. Paths
/// are as they were resolved.
#[must_use]
pub fn to_yaml(settings: &Settings) -> String {
    file(settings).yaml()
}

/// The part of a `recliner.yml` that [`load_policy`](super::load_policy) reads.
#[must_use]
pub fn policy_to_yaml(settings: &Settings) -> String {
    policy().write(&FileSettings::of(settings)).unwrap_or(Output::Nothing).yaml()
}

/// Channels as a `recliner.yml` writes them: `channels` whole, with what differs from the
/// defaults, and `ignore` where there is any.
#[must_use]
pub(crate) fn channels_yaml(channels: &Channels) -> String {
    let Channels { list, ignore } = channels;
    let list = list.iter().map(|channel| write_channel(channel, false)).collect();
    let mut entries = vec![("channels".to_owned(), Output::List(list))];
    if !ignore.texts().is_empty() {
        entries.extend(patterns().write(ignore).map(|ignore| ("ignore".to_owned(), ignore)));
    }
    Output::Map(entries).yaml()
}

/// The JSON Schema (draft 2020-12) of `recliner.yml`, for editors. What only a look at several
/// keys or at the servers shows is left to `check-config`.
#[must_use]
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
