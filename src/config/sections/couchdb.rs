//! `couchdb`: how to reach CouchDB.

use super::FileSettings;
use crate::config_format::{
    When,
    form::{Form, keys, list, mapping, section},
    section::Spanned,
    values::{
        couchdb_url, duration, host_pattern, integer, integer_or_off, node_name, path, text,
        tls_files,
    },
};
use std::time::Duration;

pub(super) fn form() -> Form<FileSettings> {
    let keys = keys!(in FileSettings {
        /// URLs of CouchDB nodes; one is enough to see the cluster.
        "couchdb.urls" => settings.couchdb.urls, NextSweep, list(couchdb_url());
        /// The user to log in as; only a server admin sees everything.
        "couchdb.username" => username, NextSweep, text().placed();
        /// A file with the user's password, reread when it changes.
        "couchdb.password_file" => password_file, NextSweep, path().placed();
        /// Trusted authorities (default the system's), and a client certificate (default none).
        "couchdb.tls" => settings.couchdb.tls, NextSweep, tls_files(When::NextSweep);
        /// Maximum time for one complete response; CouchDB's node routes have no timeout of their own.
        "couchdb.timeout" => settings.couchdb.timeout, NextSweep, duration(Duration::from_millis(100));
        /// Maximum number of concurrent requests to each node.
        "couchdb.requests_in_flight" => settings.couchdb.requests_in_flight, NextSweep, integer(1..=1_024);
        /// Maximum reads per second, on each node, of shards that CouchDB may have to open; off for no limit.
        "couchdb.cold_reads_per_second" => settings.couchdb.cold_reads_per_second, NextSweep, integer_or_off(1..=1_000_000);
        /// Nodes' own addresses by name; used once the server at the address confirms the name.
        "couchdb.nodes" => settings.couchdb.nodes, NextSweep, mapping(node_name(), couchdb_url());
        /// Hosts in node names that may receive the login, such as *.couchdb.svc.cluster.local; any server that answers for such a host gets the password.
        "couchdb.trust_node_hosts" => settings.couchdb.trust_node_hosts, NextSweep, trusted_hosts();
    });
    section(keys, |file, section| {
        let hosts = &file.settings.couchdb.trust_node_hosts;
        let at = section.key_at("trust_node_hosts").filter(|_| !hosts.is_empty());
        let path = section.path_of("trust_node_hosts");
        file.trusts_hosts = at.map(|at| Spanned { value: (), at, path });
    })
}

/// The form of the nodes' own addresses alone.
pub(super) fn nodes_form() -> Form<FileSettings> {
    let keys = keys!(in FileSettings {
        /// Nodes' own addresses by name.
        "couchdb.nodes" => settings.couchdb.nodes, NextSweep, mapping(node_name(), couchdb_url());
    });
    section(keys, |_, _| {})
}

fn trusted_hosts() -> Form<Vec<couchdb_client::HostPattern>> {
    list(host_pattern().inspect(|report, node, path, host| {
        if host.is_wide() {
            let says = format!(
                "{host} trusts every host below a single-word domain, where other people's servers may answer"
            );
            report.note(node.at, path, says);
        }
    }))
}
