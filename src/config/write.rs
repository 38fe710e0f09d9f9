//! The way back: settings as YAML that reads as the same settings, and as JSON to show.
//!
//! Owns how each type of value is written and quoted. A given password is never written;
//! the path of a password's file is.

mod describe;
mod emit;

use crate::model::{
    channel::Channels,
    settings::{
        Settings,
        service::{Log, Web},
    },
};
use emit::{Out, map, text};

/// The effective configuration as JSON, in the shape of the file, with what flags alone
/// say beside it. Secrets read `"<secret>"`.
#[must_use]
pub fn shown(settings: &Settings) -> serde_json::Value {
    let mut entries = describe::settings(settings);
    entries.push(("storage", map([("path", Out::path(&settings.storage_path))])));
    let Web { listen_address, config_file, enable_lifecycle, enable_admin_api, admin_socket } =
        &settings.web;
    entries.push((
        "web",
        Out::Map(vec![
            ("listen_address".to_owned(), text(&listen_address.to_string())),
            ("config_file".to_owned(), config_file.as_deref().map_or(Out::Nothing, Out::path)),
            ("enable_lifecycle".to_owned(), Out::Bool(*enable_lifecycle)),
            ("enable_admin_api".to_owned(), Out::Bool(*enable_admin_api)),
            ("admin_socket".to_owned(), admin_socket.as_deref().map_or(Out::Nothing, Out::path)),
        ]),
    ));
    let Log { level, format } = &settings.log;
    entries.push(("log", map([("level", text(level.label())), ("format", text(format.label()))])));
    if let Some(password) = describe::given_password(&settings.couchdb)
        && let Some((_, Out::Map(couchdb))) = entries.iter_mut().find(|(key, _)| *key == "couchdb")
    {
        couchdb.push(("password".to_owned(), password));
    }
    map(entries).json()
}

/// The effective configuration as a `recliner.yml`: loaded with the same flags for what
/// flags alone say (storage, web, log, a given password), it gives equal settings. Paths
/// are as they were resolved.
#[must_use]
pub fn to_yaml(settings: &Settings) -> String {
    map(describe::settings(settings)).yaml()
}

/// Channels as a `recliner.yml` writes them: `channels` whole, with what differs from the
/// defaults, and `ignore` where there is any.
#[must_use]
pub fn channels_yaml(channels: &Channels) -> String {
    let Channels { list, ignore } = channels;
    let mut entries = vec![(
        "channels",
        Out::List(list.iter().map(|channel| describe::channel(channel, false)).collect()),
    )];
    if !ignore.texts().is_empty() {
        entries.push(("ignore", Out::texts(ignore.texts())));
    }
    map(entries).yaml()
}
