//! Every key of the file, described once; each section has its own module.
//!
//! The keys of most sections are declared with their defaults in `model::settings`. This module
//! combines all sections into one file, and declares the remaining keys.

mod by_flag;
mod channels;
mod couchdb;

pub(super) use by_flag::FLAGS;
pub(super) use channels::write as write_channel;

use crate::{
    config_format::{
        form::{Form, Key, keys, list, section},
        output,
        section::{Section, Spanned},
        tree::{Node, Value},
        values::{SECOND, boolean, duration, node_name, one_of, patterns, read_node_name, url},
    },
    model::settings::{
        Files, Scan, ServedNodes, Settings, advice, fleet::FleetSettings, limits,
        otlp::OtlpSettings, shared::SharedLimits, work,
    },
};
use ::couchdb_client::Login;
use std::{collections::BTreeSet, path::PathBuf};

/// The content of the file. Values that a flag may override are kept separately with their place.
#[derive(Clone, Debug)]
pub(super) struct FileSettings {
    pub(super) settings: Settings,
    pub(super) username: Option<Spanned<String>>,
    pub(super) password_file: Option<Spanned<PathBuf>>,
    /// The place where the file names nodes, if it does.
    pub(super) names_nodes: Option<Spanned<()>>,
    /// The place where the file trusts hosts by name, if it does.
    pub(super) trusts_hosts: Option<Spanned<()>>,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self {
            settings: Settings::new(::couchdb_client::ClientSettings::new(Vec::new())),
            username: None,
            password_file: None,
            names_nodes: None,
            trusts_hosts: None,
        }
    }
}

impl FileSettings {
    /// The file that would produce these settings, except for a password given directly.
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
            names_nodes: None,
            trusts_hosts: None,
        }
    }
}

/// The keys of the policy: the rules under which compactions start.
const POLICY_KEYS: [&str; 8] =
    ["nodes", "mode", "channels", "ignore", "limits", "headroom", "rent", "views"];

/// The form of the whole file.
pub(super) fn document() -> Form<FileSettings> {
    section(file_keys(), check)
}

/// The form of the policy: the rules under which compactions start, and the names of nodes, which
/// identify the cluster.
pub(super) fn policy() -> Form<FileSettings> {
    let names = Key::new(COUCHDB, &["Nodes' own addresses."], None, couchdb::nodes_form());
    let keys = file_keys().into_iter().filter(|key| POLICY_KEYS.contains(&key.name()));
    section(std::iter::once(names).chain(keys).collect(), check)
}

/// The section from which the policy only takes the names of nodes.
const COUCHDB: &str = "couchdb";

/// Removes the keys that do not belong to the policy.
pub(super) fn keep_policy(file: &mut Node) {
    keep(file, |name| name == COUCHDB || POLICY_KEYS.contains(&name));
    if let Value::Map(entries) = &mut file.value {
        for (_, couchdb) in entries.iter_mut().filter(|(key, _)| key.text == COUCHDB) {
            if let Value::Map(entries) = &mut couchdb.value {
                entries.retain(|(key, _)| key.text == "nodes");
            }
        }
    }
}

/// The form of the section `fleet` by itself.
pub(super) fn fleet() -> Form<FileSettings> {
    let keys = file_keys().into_iter().filter(|key| key.name() == FLEET);
    section(keys.collect(), |_, _| {})
}

/// Removes the keys that do not belong to the fleet.
pub(super) fn keep_fleet(file: &mut Node) {
    keep(file, |name| name == FLEET);
}

/// Whether a file has the fleet and nothing else.
pub(super) fn is_fleet_alone(file: &Node) -> bool {
    let Value::Map(entries) = &file.value else { return false };
    !entries.is_empty() && entries.iter().all(|(key, _)| key.text == FLEET)
}

const FLEET: &str = "fleet";

/// Removes known keys for which `is_kept` is false; unknown ones stay, to be reported.
fn keep(file: &mut Node, is_kept: impl Fn(&str) -> bool) {
    let keys = file_keys();
    let is_other = |name: &str| keys.iter().any(|key| key.name() == name) && !is_kept(name);
    if let Value::Map(entries) = &mut file.value {
        entries.retain(|(key, _)| !is_other(&key.text));
    }
}

fn file_keys() -> Vec<Key<FileSettings>> {
    let mut keys = vec![Key::new(COUCHDB, &["How CouchDB is reached."], None, couchdb::form())];
    keys.extend(keys!(in FileSettings {
        /// The nodes whose databases this process reads: [_all], or their names.
        "nodes" => settings.nodes, NextSweep, nodes();
        /// URLs of sidecars that measure shard and view files.
        "peers" => settings.peers, NextSweep, list(url("a sidecar", "http://couch-a:10984"));
        /// Whether this process handles views and cleanups of the whole cluster; exactly one must.
        "cluster_targets" => settings.cluster_targets, NextSweep, boolean();
        /// How often facts are read, and how long they count.
        "scan" => settings.scan, _, Scan::form();
        /// Interval between two checks of running compactions.
        "poll" => settings.poll, Live, duration(SECOND);
        /// This node's own directories, read in addition to CouchDB.
        "files" => settings.files, _, Files::form();
        /// advise starts nothing; enforce starts compactions, within limits and gates.
        "mode" => settings.mode, Live, one_of();
        /// What is worth compacting: a list, tried in order, or smoosh for its seven channels, or rent for three by rent; default smoosh.
        "channels" => settings.channels.list, Live, channels::form();
        /// Databases or shard files that are never compacted.
        "ignore" => settings.channels.ignore, Live, patterns();
        /// How much runs at a time; every compaction counts, whatever started it.
        "limits" => settings.limits, _, limits::Limits::form();
        /// Limits that several clusters on the same storage share.
        "shared_limits" => settings.shared_limits, _, SharedLimits::form();
        /// What must stay free on the disks.
        "headroom" => settings.headroom, _, limits::Headroom::form();
        /// How the horizons of channels by rent adapt to scarce space.
        "rent" => settings.rent, _, limits::RentSettings::form();
        /// When a node is too busy: above high nothing starts there, until the value falls to low.
        "pressure" => settings.pressure, _, limits::Pressure::form();
        /// What happens after a failed compaction.
        "failure" => settings.failure, _, limits::FailureSettings::form();
        /// Which views may be compacted.
        "views" => settings.views, _, work::ViewSettings::form();
        /// How recliner treats CouchDB's own compaction daemon.
        "smoosh" => settings.smoosh, _, work::Smoosh::form();
        /// How changes of databases are followed.
        "follow" => settings.follow, _, work::Follow::form();
        /// How indexes are kept up to date.
        "warmer" => settings.warmer, _, work::Warmer::form();
        /// Thresholds above which recliner gives advice.
        "advice" => settings.advice, _, advice::AdviceSettings::form();
        /// Access logs that show who reads the indexes.
        "reads" => settings.reads, _, work::ReadsSettings::form();
        /// Where to push metrics over OTLP, in addition to scraping.
        "otlp" => settings.otlp, _, OtlpSettings::form();
        /// What `recliner report` shows in addition to bytes.
        "report" => settings.report, _, work::ReportSettings::form();
        /// Recliners of other clusters to show together.
        "fleet" => settings.fleet, _, FleetSettings::form();
        /// Limits on the age and total size of entries; the one reached first applies.
        "journal" => settings.journal, _, work::JournalRetention::form();
    }));
    keys
}

fn check(file: &mut FileSettings, section: &mut Section<'_, '_>) {
    note_unknown_sizes(&file.settings, section);
    section.refuse_key("web", "set by flags, not in this file: --web.listen-address and others");
    section.refuse_key("storage", "set by a flag, not in this file: --storage.path");
    section.refuse_key("log", "set by flags, not in this file: --log.level and --log.format");
    let Some(at) = section.value_at("nodes").and_then(|_| section.key_at("nodes")) else { return };
    file.names_nodes = Some(Spanned { value: (), at, path: "nodes".to_owned() });
    // Even views and cleanups are found through the copies of databases on served nodes.
    if file.settings.nodes.is_empty() {
        let says = "found no node, so nothing would be watched; write [_all], or names such as [couchdb@couch-a]";
        section.report.refuse(at, "nodes", says);
    }
}

/// Notes the volumes whose size is needed but missing.
fn note_unknown_sizes(settings: &Settings, section: &mut Section<'_, '_>) {
    let Some(found) = section.value_at("headroom") else { return };
    let headroom = &settings.headroom;
    let mut effects = Vec::new();
    if headroom.keep_free_percent > 0.0 {
        effects.push("headroom.keep_free has no effect there");
    }
    if settings.channels.by_rent().next().is_some() {
        effects.push("the horizons of channels by rent do not shrink as it fills up");
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

// Does not compile if a setting has no key.
#[rustfmt::skip]
const _: fn(&Settings) = |Settings {
    couchdb: _, nodes: _, peers: _, cluster_targets: _, scan: _, poll: _, files: _, mode: _,
    channels: _, limits: _, headroom: _, rent: _, pressure: _, failure: _, views: _, smoosh: _, follow: _,
    warmer: _, advice: _, reads: _, otlp: _, report: _, fleet: _, journal: _, storage_path: _, web: _, log: _,
    shared_limits: _,
}| {};

/// Either `[_all]` or a list of names.
fn nodes() -> Form<ServedNodes> {
    const ALL: &str = "_all";
    let name = node_name();
    let item = Form::scalar(
        |text| {
            if text == ALL { Ok(text.to_owned()) } else { read_node_name(text) }
        },
        |name: &String| output::text(name),
        serde_json::json!({"anyOf": [{"const": ALL}, name.schema(None)]}),
    );
    list(item.spanned())
        .inspect(|report, _, _, names| {
            let all = names.iter().find(|name| name.value == ALL);
            if let Some(all) = all.filter(|_| names.len() > 1) {
                let says = "found _all together with other names; write [_all], or only the names";
                report.refuse(all.at, &all.path, says);
            }
        })
        .map(
            |names| {
                let names = names.into_iter().map(|name| name.value).collect::<BTreeSet<_>>();
                Ok(if names.contains(ALL) { ServedNodes::All } else { ServedNodes::Named(names) })
            },
            |nodes| match nodes {
                ServedNodes::All => vec![Spanned::nowhere(ALL.to_owned())],
                ServedNodes::Named(names) => names.iter().cloned().map(Spanned::nowhere).collect(),
            },
        )
}
