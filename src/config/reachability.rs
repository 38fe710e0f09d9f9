//! Findings about how nodes will be reached: which hosts could pose as a node and receive the
//! login, and which nodes have no direct address.

use crate::{
    config_format::{
        problem::{Finding, Place},
        section::{Report, Spanned},
    },
    model::settings::{ServedNodes, Settings},
};

/// Places in the file of the settings that these findings are about.
#[derive(Debug)]
pub(super) struct Places {
    /// Place of `nodes`, unless a flag names the nodes.
    pub(super) nodes: Option<Spanned<()>>,
    /// Place of `couchdb.trust_node_hosts`.
    pub(super) trusts_hosts: Option<Spanned<()>>,
}

/// Adds the findings to the report.
pub(super) fn check(settings: &Settings, places: Places, report: &mut Report) {
    let couchdb = &settings.couchdb;
    if let Some(found) = places.trusts_hosts
        && couchdb.urls.first().is_some_and(|url| !url.is_https())
    {
        let says = "any server that answers for such a host receives the password in plain text, because http does not prove the host's identity; use https with couchdb.tls.ca_file";
        report.note(found.at, &found.path, says);
    }
    let ServedNodes::Named(names) = &settings.nodes else { return };
    let without: Vec<&str> =
        names.iter().map(String::as_str).filter(|node| !couchdb.has_address_for(node)).collect();
    // A URL may belong to a node although its host has another name, as next to a sidecar.
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
        text: format!("{node} has no direct address: list it under couchdb.nodes, or repeat --couchdb.url for it"),
    }));
}
