//! What is worth knowing of how nodes will be reached: where the login may go to whoever
//! answers, and which nodes cannot be asked at an address of their own.

use super::{
    problem::{Finding, FindingKind, Place},
    section::{Report, Spanned},
};
use crate::model::settings::{Nodes, Settings};

/// Where the file says what is looked at here.
#[derive(Debug)]
pub(super) struct Places {
    /// `nodes`, unless a flag names them.
    pub(super) nodes: Option<Spanned<()>>,
    /// `couchdb.trust_node_hosts`.
    pub(super) trusts_hosts: Option<Spanned<()>>,
}

/// Adds to the report what there is to know.
pub(super) fn look(settings: &Settings, places: Places, report: &mut Report) {
    let couchdb = &settings.couchdb;
    if let Some(found) = places.trusts_hosts
        && couchdb.urls.first().is_some_and(|url| !url.is_https())
    {
        let says = "whoever answers for such a host is sent the password in plain text, because http proves no host; https with couchdb.tls.ca_file does";
        report.note(found.at, &found.path, FindingKind::Doubtful, says);
    }
    let Nodes::Named(names) = &settings.nodes else { return };
    let without: Vec<&str> =
        names.iter().map(String::as_str).filter(|node| !couchdb.has_address_for(node)).collect();
    // A URL may be a node's own although its host is called otherwise, as beside a sidecar.
    let taken = names.len() - without.len();
    let spare = couchdb.urls.len().saturating_sub(taken);
    if couchdb.urls.is_empty() || without.len() <= spare {
        return;
    }
    let place = match places.nodes {
        Some(found) => report.place(found.at, &found.path),
        None => Place::Flag("--node"),
    };
    report.findings.extend(without.into_iter().map(|node| Finding {
        place: place.clone(),
        kind: FindingKind::Doubtful,
        text: format!("{node} has no direct address: list it under couchdb.nodes"),
    }));
}
