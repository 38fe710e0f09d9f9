//! The description of a simulated cluster.
//!
//! Owns the description of nodes, databases, design documents and users, and its validation. Never
//! computes a number that changes with time. Callers build it with struct update syntax
//! (`Database { q: 8, ..Database::new("orders") }`); the world reads it.

mod search;

pub use search::Search;

use couchdb_names::Version;
use std::{collections::BTreeSet, time::Duration};
use wall_clock::Moment;

/// Clustered databases of CouchDB itself; the only names that begin with an underscore.
pub const SYSTEM_DATABASES: [&str; 3] = ["_users", "_replicator", "_global_changes"];

/// The maximum length of a database name (`couch_db:validate_dbname_int/2`), in bytes.
const MAX_NAME_BYTES: usize = 238;

/// The default creation time of databases, in seconds since 1970: 21 November 2026.
const DEFAULT_CREATED: u64 = 1_795_225_160;

/// The number of log entries for a test of several days; a scan of a small cluster needs a few hundred.
const MAX_RECORDS: usize = 16_384;

/// The default version of nodes, which the simulator matches most closely.
pub(crate) const DEFAULT_VERSION: Version = Version::new(3, 5, 0);

/// The first version with `_smoosh/status`, nouveau and the lockout after bad logins.
pub(crate) const V3_4_0: Version = Version::new(3, 4, 0);

/// One CouchDB node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The name, such as `couchdb@sim-1.local`.
    pub name: String,
    /// The version it reports.
    pub version: Version,
    /// The size of its disk in bytes; `None` is unlimited and not reported.
    pub disk: Option<u64>,
    /// The volume of the disk. Nodes that name the same volume share it, and the first such node's
    /// `disk` is its size. `None`: a volume of its own.
    pub volume: Option<String>,
    /// Whether its built-in compactor is active, which runs `concurrency` compactions per channel.
    pub smoosh: bool,
    /// Whether clouseau is connected to it. Nouveau is a setting, `[nouveau] enable`.
    pub clouseau: bool,
    /// Additional settings, as (section, key, value).
    pub settings: Vec<(String, String, String)>,
}

impl Node {
    /// A 3.5.0 node without a disk limit and with an inactive built-in compactor.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: DEFAULT_VERSION,
            disk: None,
            volume: None,
            smoosh: false,
            clouseau: false,
            settings: Vec::new(),
        }
    }
}

/// A design document.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// The name without `_design/`; not empty.
    pub name: String,
    /// The names of its views. Two documents of equal language, views and `reduces` have one signature
    /// and so share one index. Empty: a document without views.
    pub views: Vec<String>,
    /// Whether its views reduce; the response of such a view has no `total_rows`.
    pub reduces: bool,
    /// Its search indexes.
    pub searches: Vec<Search>,
    /// `javascript`, `query`, or a language without a query server.
    pub language: String,
    /// Whether CouchDB keeps the index built automatically (`autoupdate`).
    pub autoupdate: bool,
    /// Live index bytes per document of the database.
    pub bytes_per_doc: u64,
    /// The ratio of file size to active size at the start.
    pub bloat: f64,
    /// The share of the database's sequences that is indexed at the start, 0 to 1.
    pub built: f64,
    /// The collator versions of its index; two or more need an upgrade.
    pub collators: Vec<String>,
    /// The document as a client saved it, with its id and revision. `None`: as the other fields describe it.
    pub saved: Option<serde_json::Map<String, serde_json::Value>>,
}

impl Design {
    /// A built JavaScript design document with one view.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            views: vec!["all".to_owned()],
            reduces: false,
            searches: Vec::new(),
            language: "javascript".to_owned(),
            autoupdate: true,
            bytes_per_doc: 120,
            bloat: 1.4,
            built: 1.0,
            collators: vec!["153.120".to_owned()],
            saved: None,
        }
    }
}

/// A clustered database.
#[derive(Clone, Debug, PartialEq)]
pub struct Database {
    /// The name, by CouchDB's rules.
    pub name: String,
    /// The number of ranges.
    pub q: u32,
    /// The number of copies of each range; limited by the number of nodes.
    pub n: u32,
    /// The number of documents at the start, without tombstones.
    pub docs: u64,
    /// The number of deleted documents at the start.
    pub deleted_docs: u64,
    /// The documents of the first range at the start, as a multiple of any other range's, as with one large
    /// partition. At 1, `docs` is the total of all ranges.
    pub first_range: f64,
    /// Live bytes of a document in the file, without attachments.
    pub doc_bytes: u64,
    /// Live attachment bytes of a document. Where `bloat` is above one, nodes before 3.4.3 also count dead
    /// ones as active until the first compaction.
    pub attachment_bytes: u64,
    /// Attachment bytes that an average write replaces. The file keeps the old ones until it is
    /// compacted, and nodes before 3.4.3 count them as active until then.
    pub replaced_bytes: u64,
    /// The ratio of file size to active size at the start.
    pub bloat: f64,
    /// The share of the initial update sequence at the last compaction; 0: never compacted.
    pub compacted: f64,
    /// The ratio of the file size after a compaction to the active size, which depends on the shape of
    /// the documents (0.70 to 1.19 was measured on real shards).
    pub compacts_to: f64,
    /// Whether documents are so alike that compacting any copy leaves nearly the size that active bytes and rewrites
    /// predict.
    pub even: bool,
    /// The average number of writes per second, in bursts.
    pub writes_per_second: f64,
    /// The share of writes that create a document.
    pub new_share: f64,
    /// The share of writes that delete one, at most `new_share`. The rest are updates.
    pub delete_share: f64,
    /// Its design documents.
    pub designs: Vec<Design>,
    /// Bytes of index files without a design document, for each shard copy.
    pub stale_index_bytes: u64,
    /// The creation time, which is in the shard files' suffix. `None`: derived from the seed.
    pub created: Option<Moment>,
    /// The names of the nodes with copies; empty: all nodes, rotated by the seed.
    pub placed_on: Vec<String>,
    /// Copies in the shard map that are missing on disk, as (range index, node name).
    pub missing: Vec<(u32, String)>,
    /// Whether its first range is being split, on the first node with a copy of it.
    pub splitting: bool,
    /// Compactions of its copies that were interrupted before the start.
    pub interrupted: Vec<Interrupted>,
}

/// A compaction that was interrupted and left its files.
#[derive(Clone, Debug, PartialEq)]
pub struct Interrupted {
    /// The position of the range.
    pub range: u32,
    /// The node with the interrupted copy.
    pub node: String,
    /// The completed share, 0 to 1.
    pub done: f64,
    /// The size of the leftover files in bytes, if they are still being written and outgrow the
    /// compaction.
    pub grown_to: Option<u64>,
}

impl Interrupted {
    /// A compaction that no longer runs.
    #[must_use]
    pub fn new(range: u32, node: &str, done: f64) -> Self {
        Self { range, node: node.to_owned(), done, grown_to: None }
    }
}

impl Database {
    /// A database without writes, with q=2, n=3 and a thousand documents.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            q: 2,
            n: 3,
            docs: 1_000,
            first_range: 1.0,
            deleted_docs: 0,
            doc_bytes: 1_000,
            attachment_bytes: 0,
            replaced_bytes: 0,
            bloat: 1.5,
            compacted: 0.0,
            compacts_to: 1.0,
            even: false,
            writes_per_second: 0.0,
            new_share: 0.3,
            delete_share: 0.1,
            designs: Vec::new(),
            stale_index_bytes: 0,
            created: None,
            placed_on: Vec::new(),
            missing: Vec::new(),
            splitting: false,
            interrupted: Vec::new(),
        }
    }
}

/// Many databases that differ only in name and numbers, without memory for each.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// The description of each database; its `name` is the prefix. `created`, `missing` and `splitting`
    /// are ignored.
    pub template: Database,
    /// The number of databases.
    pub count: u32,
    /// The decimal digits of the number after the prefix.
    pub digits: u32,
    /// The factor of 1 or more by which documents, and so bytes, of the members vary.
    pub spread: f64,
}

impl Fleet {
    /// `count` databases like `template`, named `<prefix><number>` with `length` characters.
    #[must_use]
    pub fn named(template: Database, count: u32, length: usize) -> Self {
        let digits = u32::try_from(length.saturating_sub(template.name.len())).unwrap_or(u32::MAX);
        Self { template, count, digits: digits.max(1), spread: 4.0 }
    }
}

/// A design document that is changed repeatedly: each time its views get new names, and the previous
/// index becomes stale.
#[derive(Clone, Debug, PartialEq)]
pub struct Deploy {
    /// An individually described database.
    pub db: String,
    /// The document, with everything that does not change.
    pub design: Design,
    /// The time between two changes.
    pub every: Duration,
}

/// Documents that a job writes at once, again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// An individually described database.
    pub db: String,
    /// The number of documents.
    pub documents: u64,
    /// The time of the first batch, since the start.
    pub first: Duration,
    /// The time between two batches.
    pub every: Duration,
}

/// A shard file outside the shard map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The node with the file.
    pub node: String,
    /// The file's name without `.couch`, such as `shards/00000000-ffffffff/gone.1700000000`.
    pub file: String,
    /// The size in bytes.
    pub bytes: u64,
}

/// The rights of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// All rights.
    ServerAdmin,
    /// `_system` and `_prometheus` of nodes (`_metrics`).
    Metrics,
    /// Member of these databases.
    Member(Vec<String>),
}

/// A user that can log in.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
    /// The user's rights.
    pub role: Role,
}

impl std::fmt::Debug for User {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("User")
            .field("name", &self.name)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// A whole cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The cluster's nodes.
    pub nodes: Vec<Node>,
    /// Individually described databases.
    pub databases: Vec<Database>,
    /// Fleets of databases.
    pub fleets: Vec<Fleet>,
    /// Shard files outside the shard map.
    pub orphans: Vec<Orphan>,
    /// View indexes on disk whose shard, with this name, no longer exists.
    pub orphan_indexes: Vec<Orphan>,
    /// Files of deleted databases that `enable_database_recovery` keeps.
    pub recoverable: Vec<Orphan>,
    /// Design documents that are changed repeatedly.
    pub deploys: Vec<Deploy>,
    /// Jobs that write many documents at once.
    pub batches: Vec<Batch>,
    /// How often a built-in compactor looks at what was written to.
    pub smoosh_every: Duration,
    /// How often a compaction is killed, with the nodes taking turns; `None`: never.
    pub killed_every: Option<Duration>,
    /// How many deleted bytes a disk frees per second; `None`: all at once.
    pub delete_rate: Option<u64>,
    /// The users that can log in.
    pub users: Vec<User>,
    /// Whether `_global_changes` exists. Without it, `_db_updates` responds with 404.
    pub global_changes: bool,
    /// The bytes per second that one compaction copies.
    pub compaction_rate: u64,
    /// The changes per second that one index build processes.
    pub index_rate: u64,
    /// The minimum duration of a compaction or build.
    pub shortest_job: Duration,
    /// The earliest creation time of databases without `created`.
    pub created: Moment,
    /// How many requests are kept in the log, and a quarter of the number of compactions.
    pub records: usize,
}

impl Config {
    /// A cluster of 3.5.0 nodes without databases, with one administrator, `admin` and `secret`.
    #[must_use]
    pub fn new(nodes: &[&str]) -> Self {
        Self {
            nodes: nodes.iter().map(|name| Node::new(name)).collect(),
            databases: Vec::new(),
            fleets: Vec::new(),
            orphans: Vec::new(),
            orphan_indexes: Vec::new(),
            recoverable: Vec::new(),
            deploys: Vec::new(),
            batches: Vec::new(),
            smoosh_every: Duration::from_secs(5),
            killed_every: None,
            delete_rate: None,
            users: vec![User {
                name: "admin".to_owned(),
                password: "secret".to_owned(),
                role: Role::ServerAdmin,
            }],
            global_changes: true,
            compaction_rate: 50_000_000,
            index_rate: 5_000,
            shortest_job: Duration::from_millis(200),
            created: Moment::from_unix(DEFAULT_CREATED),
            records: MAX_RECORDS,
        }
    }

    /// The same cluster with one more database.
    #[must_use]
    pub fn with(mut self, database: Database) -> Self {
        self.databases.push(database);
        self
    }

    /// The same cluster with one more fleet.
    #[must_use]
    pub fn with_fleet(mut self, fleet: Fleet) -> Self {
        self.fleets.push(fleet);
        self
    }

    /// Validates everything that CouchDB would refuse or that makes no sense.
    ///
    /// # Errors
    /// Returns the first problem.
    pub fn check(&self) -> Result<(), ConfigError> {
        let mut nodes = BTreeSet::new();
        if self.nodes.is_empty() {
            return Err(ConfigError::NoNodes);
        }
        for node in &self.nodes {
            if !nodes.insert(node.name.as_str()) || !node.name.contains('@') {
                return Err(ConfigError::Node(node.name.clone()));
            }
        }
        let known = |name: &String| {
            nodes
                .contains(name.as_str())
                .then_some(())
                .ok_or_else(|| ConfigError::Node(name.clone()))
        };
        let mut names = BTreeSet::new();
        for database in &self.databases {
            if !legal_name(&database.name) || !names.insert(database.name.as_str()) {
                return Err(ConfigError::Name(database.name.clone()));
            }
            database.check()?;
            database.placed_on.iter().try_for_each(known)?;
            database.missing.iter().try_for_each(|(_, node)| known(node))?;
            database.interrupted.iter().try_for_each(|it| known(&it.node))?;
        }
        for fleet in &self.fleets {
            let longest = fleet.template.name.len().saturating_add(fleet.digits as usize);
            let fits = 10_u64
                .checked_pow(fleet.digits)
                .is_none_or(|numbers| u64::from(fleet.count) <= numbers);
            if !legal_name(&fleet.template.name) || longest > MAX_NAME_BYTES || !fits {
                return Err(ConfigError::Name(fleet.template.name.clone()));
            }
            if !(fleet.spread >= 1.0 && fleet.spread.is_finite()) {
                return Err(ConfigError::Number(fleet.template.name.clone(), "spread"));
            }
            fleet.template.check()?;
            fleet.template.placed_on.iter().try_for_each(known)?;
        }
        let orphans = self.orphans.iter().chain(&self.orphan_indexes).chain(&self.recoverable);
        orphans.map(|orphan| &orphan.node).try_for_each(known)
    }
}

impl Database {
    fn check(&self) -> Result<(), ConfigError> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let factor = |value: f64| value >= 1.0 && value.is_finite();
        let deletes = share(self.delete_share) && self.delete_share <= self.new_share;
        let numbers = [
            ("q", (1..=65_536).contains(&self.q)),
            ("n", self.n > 0),
            ("bloat", factor(self.bloat)),
            ("compacted", share(self.compacted)),
            ("compacts_to", (0.1..=2.0).contains(&self.compacts_to)),
            ("first_range", (0.0..=1_000.0).contains(&self.first_range)),
            ("writes_per_second", (0.0..=1e6).contains(&self.writes_per_second)),
            ("new_share", share(self.new_share + self.delete_share)),
            ("delete_share", deletes),
            ("missing", self.missing.iter().all(|(range, _)| *range < self.q)),
            ("interrupted", self.interrupted.iter().all(|it| it.range < self.q && share(it.done))),
            ("designs", self.designs.iter().all(|it| factor(it.bloat) && share(it.built))),
        ];
        if let Some((what, _)) = numbers.into_iter().find(|(_, is_valid)| !is_valid) {
            return Err(ConfigError::Number(self.name.clone(), what));
        }
        match self.designs.iter().any(|design| design.name.is_empty()) {
            true => Err(ConfigError::Design(self.name.clone())),
            false => Ok(()),
        }
    }
}

/// Whether CouchDB accepts `name` for a database: lowercase letters, digits and `_$()+/-`, beginning
/// with a letter, or the name of one of its own databases.
pub(super) fn legal_name(name: &str) -> bool {
    SYSTEM_DATABASES.contains(&name)
        || (name.len() <= MAX_NAME_BYTES
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.bytes().all(|byte| {
                byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_$()+/-".contains(&byte)
            }))
}

/// Why a cluster cannot be simulated.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ConfigError {
    /// There are no nodes.
    #[error("a simulated cluster needs at least one node")]
    NoNodes,
    /// A node's name is used twice, has no `@`, or is unknown.
    #[error("{0:?} is not a node of this cluster, or its name has no @ or is used twice")]
    Node(String),
    /// CouchDB refuses the database's name, or it is used twice.
    #[error(
        "{0:?} cannot be a database's name: CouchDB takes lowercase letters, digits and _$()+/-, beginning with a letter, each name once"
    )]
    Name(String),
    /// A number of a database is out of bounds.
    #[error("database {0:?} has an invalid value of {1}")]
    Number(String, &'static str),
    /// A design document has no name.
    #[error("database {0:?} has a design document without a name")]
    Design(String),
}

#[cfg(test)]
mod tests;
