//! When two settings are the same, for a reload that asks what changed.

use super::{ClientSettings, Login};
use secrecy::ExposeSecret as _;

impl PartialEq for ClientSettings {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            urls,
            nodes,
            trust_node_hosts,
            login,
            tls,
            timeout,
            requests_in_flight,
            cold_reads_per_second,
        } = self;
        *urls == other.urls
            && *nodes == other.nodes
            && *trust_node_hosts == other.trust_node_hosts
            && *login == other.login
            && *tls == other.tls
            && *timeout == other.timeout
            && *requests_in_flight == other.requests_in_flight
            && *cold_reads_per_second == other.cold_reads_per_second
    }
}

/// Equal when user and password are, or user and file: a password that changed in its file
/// is seen where the file is read.
impl PartialEq for Login {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (
                Self::Password { username, password },
                Self::Password { username: name, password: word },
            ) => username == name && password.expose_secret() == word.expose_secret(),
            (Self::File { username, path }, Self::File { username: name, path: file }) => {
                username == name && path == file
            }
            (Self::None | Self::Password { .. } | Self::File { .. }, _) => false,
        }
    }
}
