//! Information about a server, its cluster and the login.

use super::lenient::lenient;
use std::collections::BTreeMap;

lenient! {
    /// `GET /`.
    pub struct Welcome {
        /// The greeting that identifies CouchDB; missing when another node was asked.
        pub couchdb: Option<String>,
        /// The version, `3.5.0`.
        pub version: Option<String>,
        /// The server's configured uuid.
        pub uuid: Option<String>,
        /// Optional features, such as `nouveau` and `search`; missing when another node was asked.
        pub features: Option<Vec<String>>,
        /// The vendor of the build.
        pub vendor: Vendor,
    }

    /// The vendor of a build.
    pub struct Vendor {
        /// The name.
        pub name: Option<String>,
    }

    /// `GET /_up`.
    pub struct Up {
        /// `ok`, `maintenance_mode`, `nolb` or `seeding`.
        pub status: Option<String>,
    }

    /// `GET /_session`.
    pub struct Session {
        /// The login; `None` if the response has no `userCtx`.
        #[serde(rename = "userCtx")]
        pub user: Option<UserContext>,
    }

    /// A login's name and roles.
    pub struct UserContext {
        /// The name; `None` if it is anonymous.
        pub name: Option<String>,
        /// The roles, such as `_admin` and `_metrics`.
        pub roles: Option<Vec<String>>,
    }

    /// `GET /_membership`.
    pub struct Membership {
        /// Nodes that are connected to the responding node.
        pub all_nodes: Option<Vec<String>>,
        /// Nodes that belong to the cluster.
        pub cluster_nodes: Option<Vec<String>>,
    }

    /// `GET /_node/_local`.
    pub struct LocalName {
        /// The name of the responding node.
        pub name: Option<String>,
    }

    /// One counter of `GET /_node/{node}/_stats/...`.
    #[derive(Copy)]
    pub struct Counter {
        /// Its value since the node started.
        pub value: Option<u64>,
    }

    /// `GET /_node/{node}/_system`.
    #[derive(Copy)]
    pub struct System {
        /// Erlang processes that wait for a scheduler.
        pub run_queue: Option<u64>,
        /// Shard copies that wait for internal replication.
        pub internal_replication_jobs: Option<u64>,
        /// Seconds since the node started.
        pub uptime: Option<u64>,
    }

    /// `GET /{db}/_shards`.
    pub struct DbShards {
        /// The nodes with a copy of each range.
        pub shards: BTreeMap<String, Vec<String>>,
    }

    /// The body of an error.
    pub struct ErrorBody {
        /// The error's name, such as `not_found` or `nodedown`.
        pub error: Option<String>,
        /// The description.
        pub reason: Option<String>,
    }
}

impl Session {
    /// The login's name; `None` if it is anonymous.
    pub fn name(&self) -> Option<&str> {
        self.user.as_ref()?.name.as_deref()
    }

    /// Whether the login is a server admin.
    pub fn is_admin(&self) -> bool {
        self.has_role("_admin")
    }

    /// Whether the login has `role`.
    pub fn has_role(&self, role: &str) -> bool {
        let roles = self.user.as_ref().and_then(|user| user.roles.as_deref());
        roles.unwrap_or_default().iter().any(|has| has == role)
    }
}
