//! Information about a server, its cluster and the login.

use super::lenient;
use serde::Deserialize;
use std::collections::BTreeMap;

/// `GET /`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Welcome {
    /// The greeting that identifies CouchDB; missing when another node was asked.
    #[serde(deserialize_with = "lenient::field")]
    pub couchdb: Option<String>,
    /// The version, `3.5.0`.
    #[serde(deserialize_with = "lenient::field")]
    pub version: Option<String>,
    /// The server's configured uuid.
    #[serde(deserialize_with = "lenient::field")]
    pub uuid: Option<String>,
    /// Optional features, such as `nouveau` and `search`; missing when another node was asked.
    #[serde(deserialize_with = "lenient::field")]
    pub features: Option<Vec<String>>,
    /// The vendor of the build.
    #[serde(deserialize_with = "lenient::field")]
    pub vendor: Vendor,
}

/// The vendor of a build.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Vendor {
    /// The name.
    #[serde(deserialize_with = "lenient::field")]
    pub name: Option<String>,
}

/// `GET /_up`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Up {
    /// `ok`, `maintenance_mode`, `nolb` or `seeding`.
    #[serde(deserialize_with = "lenient::field")]
    pub status: Option<String>,
}

/// `GET /_session`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Session {
    /// The login; `None` if the response has no `userCtx`.
    #[serde(rename = "userCtx", deserialize_with = "lenient::field")]
    pub user: Option<UserContext>,
}

impl Session {
    /// The login's name; `None` if it is anonymous.
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
    /// The name; `None` if it is anonymous.
    #[serde(deserialize_with = "lenient::field")]
    pub name: Option<String>,
    /// The roles, such as `_admin` and `_metrics`.
    #[serde(deserialize_with = "lenient::field")]
    pub roles: Option<Vec<String>>,
}

/// `GET /_membership`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Membership {
    /// Nodes that are connected to the responding node.
    #[serde(deserialize_with = "lenient::field")]
    pub all_nodes: Option<Vec<String>>,
    /// Nodes that belong to the cluster.
    #[serde(deserialize_with = "lenient::field")]
    pub cluster_nodes: Option<Vec<String>>,
}

/// `GET /_node/_local`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct LocalName {
    /// The name of the responding node.
    #[serde(deserialize_with = "lenient::field")]
    pub name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CollationDriver {
    #[serde(deserialize_with = "lenient::field")]
    collator_version: Option<String>,
}

/// `GET /_node/{node}/_versions`, since 3.2.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(from = "RawVersions")]
pub struct Versions {
    /// The version of ICU's collator, which indexes record.
    pub collator_version: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RawVersions {
    #[serde(deserialize_with = "lenient::field")]
    collation_driver: CollationDriver,
}

impl From<RawVersions> for Versions {
    fn from(raw: RawVersions) -> Self {
        Self { collator_version: raw.collation_driver.collator_version }
    }
}

/// One counter of `GET /_node/{node}/_stats/...`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct Counter {
    /// Its value since the node started.
    #[serde(deserialize_with = "lenient::field")]
    pub value: Option<u64>,
}

/// `GET /_node/{node}/_system`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct System {
    /// Erlang processes that wait for a scheduler.
    #[serde(deserialize_with = "lenient::field")]
    pub run_queue: Option<u64>,
    /// Shard copies that wait for internal replication.
    #[serde(deserialize_with = "lenient::field")]
    pub internal_replication_jobs: Option<u64>,
    /// Seconds since the node started.
    #[serde(deserialize_with = "lenient::field")]
    pub uptime: Option<u64>,
}

/// `GET /{db}/_shards/{doc}`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct DocShards {
    /// The range that contains the document.
    #[serde(deserialize_with = "lenient::field")]
    pub range: Option<String>,
    /// The nodes with a copy of the range.
    #[serde(deserialize_with = "lenient::field")]
    pub nodes: Option<Vec<String>>,
}

/// `GET /{db}/_shards`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct DbShards {
    /// The nodes with a copy of each range.
    #[serde(deserialize_with = "lenient::field")]
    pub shards: BTreeMap<String, Vec<String>>,
}

/// The body of an error.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub struct ErrorBody {
    /// The error's name, such as `not_found` or `nodedown`.
    #[serde(deserialize_with = "lenient::field")]
    pub error: Option<String>,
    /// The description.
    #[serde(deserialize_with = "lenient::field")]
    pub reason: Option<String>,
}

impl lenient::Object for Vendor {}
impl lenient::Object for UserContext {}
impl lenient::Object for CollationDriver {}
