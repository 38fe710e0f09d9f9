//! What the file can say: every key, described once, one file for each section.
//!
//! A key has its type and its default in `model::settings`, where the rest of the program
//! finds it, and everything else in its section here: notation, limits, the moment from which
//! a changed value is in force, and the sentence that an editor shows. A new key is a line in
//! both, and one in the example of `docs/src/configuration.md`.

mod advice;
mod by_flag;
mod channels;
mod couchdb;
mod failure;
mod files;
mod follow;
mod headroom;
mod journal;
mod limits;
mod pressure;
mod rent;
mod scan;
mod smoosh;
mod views;
mod warmer;

pub(super) use by_flag::FLAGS;
pub(super) use channels::write as write_channel;

use super::{
    form::{Form, Key, keys, list, section},
    section::{Section, Spanned},
    tree::{Node, Value},
    values::{SECOND, boolean, duration, node_name, one_of, patterns, url},
};
use crate::model::{
    channel::Mode,
    settings::{ServedNodes, Settings},
};
use ::couchdb_client::Login;
use std::path::PathBuf;

/// What the file says. Where a flag may say otherwise, it is kept apart with its place.
#[derive(Clone, Debug)]
pub(super) struct FileSettings {
    pub(super) settings: Settings,
    pub(super) username: Option<Spanned<String>>,
    pub(super) password_file: Option<Spanned<PathBuf>>,
    pub(super) mode: Option<Spanned<Mode>>,
    /// Where nodes are named, if they are.
    pub(super) names_nodes: Option<Spanned<()>>,
    /// Where hosts are trusted by their names, if any are.
    pub(super) trusts_hosts: Option<Spanned<()>>,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self {
            settings: Settings::new(::couchdb_client::ClientSettings::new(Vec::new())),
            username: None,
            password_file: None,
            mode: None,
            names_nodes: None,
            trusts_hosts: None,
        }
    }
}

impl FileSettings {
    /// What a file would have to say for these settings; a given password is not in it.
    pub(super) fn of(settings: &Settings) -> Self {
        let (username, password_file) = match &settings.couchdb.login {
            Login::None => (None, None),
            Login::Password { username, password: _ } => (Some(username), None),
            Login::File { username, path } => (Some(username), Some(path)),
        };
        Self {
            settings: settings.clone(),
            username: username.cloned().map(Spanned::nowhere),
            password_file: password_file.cloned().map(Spanned::nowhere),
            mode: Some(Spanned::nowhere(settings.mode)),
            names_nodes: None,
            trusts_hosts: None,
        }
    }
}

/// The keys that say under which rules compactions start.
const POLICY_KEYS: [&str; 8] =
    ["nodes", "mode", "channels", "ignore", "limits", "headroom", "rent", "views"];

/// The whole file.
pub(super) fn document() -> Form<FileSettings> {
    section(file_keys(), check)
}

/// The part of a file that says under which rules compactions start, and the names of nodes, which tell
/// which cluster it is for.
pub(super) fn policy() -> Form<FileSettings> {
    let about = (COUCHDB, "Nodes' own addresses.");
    let names = Key::new(about, None, couchdb::nodes_form(), |file| file, |file| file);
    let keys = file_keys().into_iter().filter(|key| POLICY_KEYS.contains(&key.name()));
    section(std::iter::once(names).chain(keys).collect(), check)
}

/// The section of which only the names of nodes count as policy.
const COUCHDB: &str = "couchdb";

/// Removes the keys of a file that say nothing about these rules.
pub(super) fn keep_policy(file: &mut Node) {
    let keys = file_keys();
    let is_other =
        |name: &str| keys.iter().any(|key| key.name() == name) && !POLICY_KEYS.contains(&name);
    if let Value::Map(entries) = &mut file.value {
        entries.retain(|(key, _)| key.text == COUCHDB || !is_other(&key.text));
        for (_, couchdb) in entries.iter_mut().filter(|(key, _)| key.text == COUCHDB) {
            if let Value::Map(entries) = &mut couchdb.value {
                entries.retain(|(key, _)| key.text == "nodes");
            }
        }
    }
}

fn file_keys() -> Vec<Key<FileSettings>> {
    let about = (COUCHDB, "How CouchDB is reached.");
    let mut keys = vec![Key::new(about, None, couchdb::form(), |file| file, |file| file)];
    keys.extend(keys!(in FileSettings {
        "nodes" => settings.nodes, NextSweep, nodes(),
            "The nodes whose databases this process reads: [_all], or their names.";
        "peers" => settings.peers, NextSweep, list(url("a sidecar", "http://couch-a:10984")),
            "Sidecars whose parts of views are used.";
        "cluster_targets" => settings.cluster_targets, NextSweep, boolean(),
            "Read views and cleanups, which belong to the whole cluster; exactly one process does.";
        "scan" => settings.scan, _, scan::form(),
            "What is read when.";
        "poll" => settings.poll, Live, duration(SECOND),
            "From one look at running compactions to the next.";
        "files" => settings.files, _, files::form(),
            "This node's own directories, where they are read beside CouchDB.";
        "mode" => mode, Live, one_of::<Mode>().placed(),
            "advise starts nothing; enforce starts compactions, within limits and gates.";
        "channels" => settings.channels.list, Live, channels::form(),
            "What is worth compacting, tried in this order: a list, or smoosh for its seven channels, or rent for three by rent; left out, smoosh.";
        "ignore" => settings.channels.ignore, Live, patterns(),
            "Databases or shard files that no channel takes.";
        "limits" => settings.limits, _, limits::form(),
            "How much runs at a time; every compaction counts, whatever started it.";
        "headroom" => settings.headroom, _, headroom::form(),
            "What must stay free on the disks.";
        "rent" => settings.rent, _, rent::form(),
            "How the horizons of channels by rent adapt to scarce space.";
        "pressure" => settings.pressure, _, pressure::form(),
            "When a node is too busy for more: above high nothing is started, until it is down to low.";
        "failure" => settings.failure, _, failure::form(),
            "What follows a failed compaction.";
        "views" => settings.views, _, views::form(),
            "Which views may be compacted.";
        "smoosh" => settings.smoosh, _, smoosh::form(),
            "What is done about CouchDB's own compaction daemon.";
        "follow" => settings.follow, _, follow::form(),
            "How changes of databases are followed.";
        "warmer" => settings.warmer, _, warmer::form(),
            "How indexes are kept built.";
        "advice" => settings.advice, _, advice::form(),
            "From when on recliner advises something.";
        "journal" => settings.journal, _, journal::form(),
            "What is kept, for how long and in how many bytes; whichever ends first.";
    }));
    keys
}

fn check(file: &mut FileSettings, section: &mut Section<'_, '_>) {
    note_unknown_sizes(&file.settings, section);
    section
        .refuse_key("web", "not set in this file, but by flags: --web.listen-address and others");
    section.refuse_key("storage", "not set in this file, but by a flag: --storage.path");
    section.refuse_key("log", "not set in this file, but by flags: --log.level and --log.format");
    let Some(at) = section.value_at("nodes").and_then(|_| section.key_at("nodes")) else { return };
    file.names_nodes = Some(Spanned { value: (), at, path: "nodes".to_owned() });
    // Views and cleanups too are found through the copies of databases on served nodes.
    if file.settings.nodes.is_empty() {
        let says = "found no node, so nothing is watched; write [_all], or names such as [couchdb@couch-a]";
        section.report.refuse(at, "nodes", says);
    }
}

/// Notes the volumes whose size is needed and not given.
fn note_unknown_sizes(settings: &Settings, section: &mut Section<'_, '_>) {
    let Some(found) = section.value_at("headroom") else { return };
    let headroom = &settings.headroom;
    let mut effects = Vec::new();
    if headroom.keep_free_percent > 0.0 {
        effects.push("headroom.keep_free keeps nothing free there");
    }
    if settings.channels.by_rent().next().is_some() {
        effects.push("the horizons of channels by rent do not shorten as it fills");
    }
    if effects.is_empty() {
        return;
    }
    let effects = effects.join(", and ");
    for (at, _) in headroom.volumes.iter().enumerate().filter(|(_, it)| !it.has_size()) {
        let says = format!(
            "the size of this volume is unknown, so {effects}; add size, or prometheus.size_query"
        );
        section.report.note(found.at, &format!("headroom.volumes[{at}]"), says);
    }
}

// A setting that no key makes does not compile.
#[rustfmt::skip]
const _: fn(&Settings) = |Settings {
    couchdb: _, nodes: _, peers: _, cluster_targets: _, scan: _, poll: _, files: _, mode: _,
    channels: _, limits: _, headroom: _, rent: _, pressure: _, failure: _, views: _, smoosh: _, follow: _,
    warmer: _, advice: _, journal: _, storage_path: _, web: _, log: _,
}| {};

/// `[_all]`, or names.
fn nodes() -> Form<ServedNodes> {
    const ALL: &str = "_all";
    let name = node_name();
    let item = Form::scalar(
        |text| {
            if text == ALL { Ok(text.to_owned()) } else { super::values::read_node_name(text) }
        },
        |name: &String| super::output::text(name),
        serde_json::json!({"anyOf": [{"const": ALL}, name.schema(None)]}),
    );
    let placed = list(item.placed());
    placed
        .inspect(|report, _, _, names| {
            let all = names.iter().flatten().find(|name| name.value == ALL);
            if let Some(all) = all.filter(|_| names.len() > 1) {
                let says = "found _all together with other names; write [_all], or only the names";
                report.refuse(all.at, &all.path, says);
            }
        })
        .map(
            |names| {
                let names = names.into_iter().flatten().map(|name| name.value);
                let names: std::collections::BTreeSet<_> = names.collect();
                Ok(if names.contains(ALL) { ServedNodes::All } else { ServedNodes::Named(names) })
            },
            |nodes| match nodes {
                ServedNodes::All => vec![Some(Spanned::nowhere(ALL.to_owned()))],
                ServedNodes::Named(names) => {
                    names.iter().map(|name| Some(Spanned::nowhere(name.clone()))).collect()
                }
            },
        )
}
