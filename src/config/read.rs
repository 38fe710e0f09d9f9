//! The shape of `recliner.yml`, one file for each group of its keys.

mod channels;
mod couchdb;
mod holds;
mod work;

pub(super) use channels::has_effect;

use super::{
    problem::FindingKind,
    section::{Report, Section, Spanned},
    tree::Node,
    value,
};
use crate::{
    model::{
        channel::Mode,
        settings::{Files, Nodes, Scan, ScanViews, Settings},
    },
    text::duration,
};
use std::{collections::BTreeSet, path::PathBuf, time::Duration};

const SECOND: Duration = Duration::from_secs(1);

/// What the file says, where a flag may say otherwise kept apart.
#[derive(Debug)]
pub(super) struct FromFile {
    pub(super) settings: Settings,
    pub(super) username: Option<Spanned<String>>,
    pub(super) password_file: Option<Spanned<PathBuf>>,
    pub(super) mode: Option<Spanned<Mode>>,
    /// Where nodes are named, if they are.
    pub(super) names_nodes: Option<Spanned<()>>,
    /// Where hosts are trusted that nodes' names name, if any are.
    pub(super) trusts_hosts: Option<Spanned<()>>,
}

impl Default for FromFile {
    fn default() -> Self {
        Self {
            settings: Settings::new(couchdb_client::Settings::new(Vec::new())),
            username: None,
            password_file: None,
            mode: None,
            names_nodes: None,
            trusts_hosts: None,
        }
    }
}

/// Reads a whole document; what is wrong is in the report.
pub(super) fn document(report: &mut Report, node: &Node) -> FromFile {
    let mut found = FromFile::default();
    let (mut root, is_mapping) = Section::open(report, node, "");
    root.section("couchdb", |section| couchdb::read(section, &mut found));
    let FromFile { settings, mode, names_nodes: named_at, .. } = &mut found;
    let names_nodes = root.key_at("nodes");
    if let Some(nodes) = nodes(&mut root) {
        settings.nodes = nodes;
        let path = "nodes".to_owned();
        *named_at = names_nodes.map(|at| Spanned { value: (), at, path });
    }
    if let Some(peers) = root.values("peers", value::url("a sidecar", "http://couch-a:10984")) {
        settings.peers = peers.into_iter().map(|peer| peer.value).collect();
    }
    set(&mut settings.cluster_targets, root.value("cluster_targets", value::boolean));
    if settings.nodes.is_empty()
        && !settings.cluster_targets
        && let Some(at) = names_nodes
    {
        let says = "found no node, and cluster_targets is false: nothing is left to watch; write [_all], or names such as [couchdb@couch-a]";
        root.report.refuse(at, "nodes", says);
    }
    set(&mut settings.scan, root.section("scan", scan));
    set(&mut settings.poll, root.value("poll", value::duration(SECOND)));
    set(&mut settings.files, root.section("files", files));
    *mode = root.spanned("mode", value::one_of(Mode::ALL, Mode::label));
    set(&mut settings.channels.list, channels::list(&mut root));
    set(&mut settings.channels.ignore, channels::patterns(&mut root, "ignore"));
    set(&mut settings.limits, root.section("limits", holds::limits));
    set(&mut settings.headroom, root.section("headroom", holds::headroom));
    set(&mut settings.pressure, root.section("pressure", holds::pressure));
    set(&mut settings.failure, root.section("failure", holds::failure));
    set(&mut settings.views, root.section("views", work::views));
    set(&mut settings.smoosh, root.section("smoosh", work::smoosh));
    set(&mut settings.follow, root.section("follow", work::follow));
    set(&mut settings.warmer, root.section("warmer", work::warmer));
    set(&mut settings.journal, root.section("journal", work::journal));
    root.refuse_key("web", "not set in this file, but by flags: --web.listen-address and others");
    root.refuse_key("storage", "not set in this file, but by a flag: --storage.path");
    root.refuse_key("log", "not set in this file, but by flags: --log.level and --log.format");
    root.close(is_mapping);
    found
}

/// Replaces a default by what was found.
pub(super) fn set<T>(default: &mut T, found: Option<T>) {
    if let Some(found) = found {
        *default = found;
    }
}

fn nodes(root: &mut Section<'_, '_>) -> Option<Nodes> {
    let names = root.values("nodes", |text| {
        if text == "_all" { Ok(text.to_owned()) } else { value::node_name(text) }
    })?;
    if let Some(all) = names.iter().find(|name| name.value == "_all") {
        if names.len() > 1 {
            let says = "found _all beside other names; write [_all], or the names alone";
            root.report.refuse(all.at, &all.path, says);
        }
        return Some(Nodes::All);
    }
    Some(Nodes::Named(names.into_iter().map(|name| name.value).collect::<BTreeSet<_>>()))
}

fn scan(section: &mut Section<'_, '_>) -> Scan {
    let interval = section.value("interval", value::duration(SECOND));
    let mut scan = interval.map_or_else(Scan::default, Scan::every);
    let followed = section.spanned("interval_followed", value::duration(SECOND));
    if let Some(found) = &followed
        && found.value < scan.interval
    {
        let says = format!(
            "found {}, but a followed database is read at most as often as any other, every {} (scan.interval)",
            duration::exact(found.value),
            duration::exact(scan.interval)
        );
        section.report.refuse(found.at, &found.path, says);
    }
    let fresh_for = section.spanned("fresh_for", value::duration(SECOND));
    // Not a problem: too short a span only holds starts back, which is safe, and a sweep
    // may well be quicker than its interval allows for.
    if let Some(found) = &fresh_for
        && found.value < scan.interval.saturating_mul(Scan::FRESH_INTERVALS)
    {
        let says = format!(
            "{} is less than {} scan intervals of {}: one slow sweep makes every fact stale, and stale facts start nothing",
            duration::exact(found.value),
            Scan::FRESH_INTERVALS,
            duration::exact(scan.interval)
        );
        section.report.note(found.at, &found.path, FindingKind::Doubtful, says);
    }
    set(&mut scan.interval_followed, followed.map(|found| found.value));
    set(&mut scan.fresh_for, fresh_for.map(|found| found.value));
    set(&mut scan.views, section.value("views", value::one_of(ScanViews::ALL, ScanViews::label)));
    set(&mut scan.top, section.value("top", value::integer(0..=100_000)));
    scan
}

fn files(section: &mut Section<'_, '_>) -> Files {
    Files { data_dir: path(section, "data_dir"), view_index_dir: path(section, "view_index_dir") }
}

/// A path; a relative one starts at the file's own directory.
fn path(section: &mut Section<'_, '_>, key: &'static str) -> Option<PathBuf> {
    let base = section.report.base.clone();
    section.value(key, value::path).map(|path| base.join(path))
}
