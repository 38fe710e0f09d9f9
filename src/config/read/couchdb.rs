//! `couchdb`: how CouchDB is reached.

use super::{FromFile, path, set};
use crate::config::{
    problem::FindingKind,
    section::{Section, Spanned, scalar},
    value,
};
use couchdb_client::{HostPattern, Tls};
use std::time::Duration;

pub(super) fn read(section: &mut Section<'_, '_>, found: &mut FromFile) {
    let couchdb = &mut found.settings.couchdb;
    let server = value::url("a CouchDB server", "http://couch-a:5984");
    if let Some(urls) = section.values("urls", &server) {
        couchdb.urls = urls.into_iter().map(|url| url.value).collect();
    }
    found.username = section.spanned("username", value::text);
    let base = section.report.base.clone();
    found.password_file = section.spanned("password_file", value::path).map(|mut file| {
        file.value = base.join(&file.value);
        file
    });
    set(&mut couchdb.tls, section.section("tls", tls));
    let least = Duration::from_millis(100);
    set(&mut couchdb.timeout, section.value("timeout", value::duration(least)));
    set(
        &mut couchdb.requests_in_flight,
        section.value("requests_in_flight", value::integer(1..=1_024)),
    );
    set(&mut couchdb.cold_reads_per_second, section.value("cold_reads_per_second", pace));
    let nodes = section.free("nodes", |report, key, node, path| {
        let name = value::node_name(&key.text).map_err(|why| report.refuse(key.at, path, why));
        let address = scalar(report, node, path, &server);
        Some((name.ok()?, address?))
    });
    set(&mut couchdb.nodes, nodes.map(|nodes| nodes.into_iter().collect()));
    found.trusts_hosts = trust_node_hosts(section, &mut couchdb.trust_node_hosts);
}

/// Reads the hosts that are trusted by name; where they are written, if there are any.
fn trust_node_hosts(
    section: &mut Section<'_, '_>,
    hosts: &mut Vec<HostPattern>,
) -> Option<Spanned<()>> {
    let path = section.path_of("trust_node_hosts");
    let at = section.key_at("trust_node_hosts")?;
    let found = section.values("trust_node_hosts", value::host_pattern)?;
    for wide in found.iter().filter(|found| found.value.is_wide()) {
        let says = format!(
            "{} trusts every host below a domain of one word, and mostly nobody watches who answers for those",
            wide.value
        );
        section.report.note(wide.at, &wide.path, FindingKind::Doubtful, says);
    }
    *hosts = found.into_iter().map(|found| found.value).collect();
    (!hosts.is_empty()).then_some(Spanned { value: (), at, path })
}

fn pace(text: &str) -> value::Read<u32> {
    if text == "off" {
        return Ok(0);
    }
    value::integer(1..=1_000_000)(text).map_err(|why| format!("{why}, or off for no pace"))
}

fn tls(section: &mut Section<'_, '_>) -> Tls {
    let (cert_at, key_at) = (section.key_at("cert_file"), section.key_at("key_file"));
    for (given, missing, is_missing) in
        [("cert_file", "key_file", key_at.is_none()), ("key_file", "cert_file", cert_at.is_none())]
    {
        if let Some(at) = section.key_at(given)
            && is_missing
        {
            let path = section.path_of(given);
            section.report.refuse(
                at,
                &path,
                format!("found {given} without {missing}; a client certificate needs both"),
            );
        }
    }
    Tls {
        ca_file: path(section, "ca_file"),
        cert_file: path(section, "cert_file"),
        key_file: path(section, "key_file"),
    }
}
