//! Identity of the cluster that a journal belongs to.

use crate::model::records::StoreError;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, fmt};

/// Identifies a cluster by the uuids of its nodes, or by their names if CouchDB shows no uuid. Both
/// may change while a cluster lives, one node at a time, so two identities that share a member are
/// the same cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterIdentity {
    /// The uuids in `GET /` of the queried nodes. Nodes of one cluster may share one.
    pub uuids: BTreeSet<String>,
    /// Names of the members in CouchDB.
    pub nodes: BTreeSet<String>,
}

impl ClusterIdentity {
    /// Whether two identities describe the same cluster. Names are compared only if a uuid is
    /// missing, because every single-node cluster may be named `nonode@nohost`.
    pub fn is_same_cluster(&self, other: &Self) -> bool {
        let shared = |one: &BTreeSet<String>, two: &BTreeSet<String>| !one.is_disjoint(two);
        if self.uuids.is_empty() || other.uuids.is_empty() {
            shared(&self.nodes, &other.nodes)
        } else {
            shared(&self.uuids, &other.uuids)
        }
    }

    /// The updated identity of the same cluster. Uuids that were not shown this time are kept,
    /// because their node may be the only one that is up next time.
    pub fn merged_with(&self, now: &Self) -> Self {
        let uuids = self.uuids.union(&now.uuids).cloned().collect();
        Self { uuids, nodes: now.nodes.clone() }
    }
}

impl fmt::Display for ClusterIdentity {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: &BTreeSet<String>| names.iter().cloned().collect::<Vec<_>>().join(", ");
        match (self.nodes.is_empty(), self.uuids.is_empty()) {
            (true, true) => out.write_str("an unknown cluster"),
            (false, true) => write!(out, "the cluster of {}", list(&self.nodes)),
            (true, false) => write!(out, "the cluster with uuid {}", list(&self.uuids)),
            (false, false) => {
                write!(out, "the cluster of {} (uuid {})", list(&self.nodes), list(&self.uuids))
            }
        }
    }
}

/// Why a journal cannot be claimed for a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// The journal belongs to another cluster.
    #[error(
        "{storage} belongs to {owner}, but CouchDB is {found}: use a separate --storage.path for this cluster, or move the file away to start a new journal"
    )]
    OtherCluster {
        /// The file.
        storage: String,
        /// The cluster the journal belongs to.
        owner: Box<ClusterIdentity>,
        /// The cluster that wants to claim the journal.
        found: Box<ClusterIdentity>,
    },
    /// The journal cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(uuids: &[&str], nodes: &[&str]) -> ClusterIdentity {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        ClusterIdentity { uuids: set(uuids), nodes: set(nodes) }
    }

    #[test]
    fn a_cluster_keeps_its_identity_while_nodes_come_and_go() {
        for (one, two, same) in [
            (identity(&["u"], &["a", "b"]), identity(&["u"], &["c"]), true),
            (identity(&["u", "v"], &["a", "b"]), identity(&["v", "w"], &["b", "c"]), true),
            (identity(&["u"], &["nonode@nohost"]), identity(&["v"], &["nonode@nohost"]), false),
            (identity(&[], &["a", "b"]), identity(&["u"], &["b"]), true),
            (identity(&[], &["a"]), identity(&["u"], &["b"]), false),
            (identity(&[], &[]), identity(&[], &[]), false),
        ] {
            assert_eq!(
                (one.is_same_cluster(&two), two.is_same_cluster(&one)),
                (same, same),
                "{one} / {two}"
            );
        }
        let later = identity(&["u"], &["a"]).merged_with(&identity(&[], &["a", "b"]));
        assert_eq!(later, identity(&["u"], &["a", "b"]));
        assert_eq!(later.to_string(), "the cluster of a, b (uuid u)");
        let other_up = later.merged_with(&identity(&["u", "v"], &["a", "b"]));
        assert!(
            other_up
                .merged_with(&identity(&["u"], &["a"]))
                .is_same_cluster(&identity(&["v"], &["b"]))
        );
    }
}
