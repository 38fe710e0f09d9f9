//! What a server says of itself, its cluster and the login.

use super::loose;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `GET /`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Welcome {
    /// A greeting, by which a CouchDB is known; not told of another node.
    #[serde(deserialize_with = "loose::loose")]
    pub couchdb: Option<String>,
    /// The version, `3.5.0`.
    #[serde(deserialize_with = "loose::loose")]
    pub version: Option<String>,
    /// The server's configured uuid.
    #[serde(deserialize_with = "loose::loose")]
    pub uuid: Option<String>,
    /// What it has beside the usual, such as `nouveau` and `search`; not told of another
    /// node.
    #[serde(deserialize_with = "loose::loose")]
    pub features: Option<Vec<String>>,
    /// Who built it.
    #[serde(deserialize_with = "loose::loose")]
    pub vendor: Vendor,
}

/// Who built a server.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Vendor {
    /// The name.
    #[serde(deserialize_with = "loose::loose")]
    pub name: Option<String>,
}

/// `GET /_up`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Up {
    /// `ok`, `maintenance_mode`, `nolb` or `seeding`.
    #[serde(deserialize_with = "loose::loose")]
    pub status: Option<String>,
}

/// `GET /_session`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Session {
    /// Who is logged in; `None` where the answer has no `userCtx`.
    #[serde(rename = "userCtx", deserialize_with = "loose::loose")]
    pub user: Option<UserContext>,
}

impl Session {
    /// The login's name; `None` for an anonymous one.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.user.as_ref()?.name.as_deref()
    }

    /// Whether the login is a server admin.
    #[must_use]
    pub fn is_admin(&self) -> bool {
        self.has_role("_admin")
    }

    /// Whether the login has `role`.
    #[must_use]
    pub fn has_role(&self, role: &str) -> bool {
        let roles = self.user.as_ref().and_then(|user| user.roles.as_deref());
        roles.unwrap_or_default().iter().any(|has| has == role)
    }
}

/// A login's name and roles.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct UserContext {
    /// The name; null for an anonymous one.
    #[serde(deserialize_with = "loose::loose")]
    pub name: Option<String>,
    /// The roles, such as `_admin` and `_metrics`.
    #[serde(deserialize_with = "loose::loose")]
    pub roles: Option<Vec<String>>,
}

/// `GET /_membership`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Membership {
    /// Nodes that are connected to the one that answered.
    #[serde(deserialize_with = "loose::loose")]
    pub all_nodes: Option<Vec<String>>,
    /// Nodes that belong to the cluster.
    #[serde(deserialize_with = "loose::loose")]
    pub cluster_nodes: Option<Vec<String>>,
}

/// `GET /_node/_local`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct LocalName {
    /// The name of the node that answered.
    #[serde(deserialize_with = "loose::loose")]
    pub name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CollationDriver {
    #[serde(deserialize_with = "loose::loose")]
    collator_version: Option<String>,
}

/// `GET /_node/{node}/_versions`, since 3.2.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(from = "RawVersions")]
pub struct Versions {
    /// The version of ICU's collator, as indexes record it.
    pub collator_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawVersions {
    #[serde(deserialize_with = "loose::loose")]
    collation_driver: CollationDriver,
}

impl From<RawVersions> for Versions {
    fn from(raw: RawVersions) -> Self {
        Self { collator_version: raw.collation_driver.collator_version }
    }
}

/// `GET /_node/{node}/_system`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct System {
    /// Erlang processes that wait for a scheduler.
    #[serde(deserialize_with = "loose::loose")]
    pub run_queue: Option<u64>,
    /// Shard copies that wait to be brought level with others.
    #[serde(deserialize_with = "loose::loose")]
    pub internal_replication_jobs: Option<u64>,
    /// Seconds since the node started.
    #[serde(deserialize_with = "loose::loose")]
    pub uptime: Option<u64>,
}

/// `GET /{db}/_shards/{doc}`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct DocShards {
    /// The range that holds the document.
    #[serde(deserialize_with = "loose::loose")]
    pub range: Option<String>,
    /// The nodes with a copy of it.
    #[serde(deserialize_with = "loose::loose")]
    pub nodes: Option<Vec<String>>,
}

/// `GET /{db}/_shards`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct DbShards {
    /// Range to the nodes with a copy of it.
    #[serde(deserialize_with = "loose::loose")]
    pub shards: BTreeMap<String, Vec<String>>,
}

/// The body of an error.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Refusal {
    /// A word, such as `not_found` and `nodedown`.
    #[serde(deserialize_with = "loose::loose")]
    pub error: Option<String>,
    /// A sentence.
    #[serde(deserialize_with = "loose::loose")]
    pub reason: Option<String>,
}

impl loose::Object for Vendor {}
impl loose::Object for UserContext {}
impl loose::Object for CollationDriver {}
