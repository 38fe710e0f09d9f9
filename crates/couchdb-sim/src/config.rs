//! What a simulated cluster is made of.
//!
//! Owns the description of nodes, databases, design documents and users, and its check.
//! Never computes a number that changes with time. Built by callers in struct-update
//! style (`Database { q: 8, ..Database::new("orders") }`), read by the world.

mod search;

pub use search::Search;

use couchdb_names::Version;
use std::{collections::BTreeSet, time::Duration};
use wall_clock::Moment;

/// Clustered databases that CouchDB itself may own; the only names with a leading underscore.
pub const SYSTEM_DATABASES: [&str; 3] = ["_users", "_replicator", "_global_changes"];

/// CouchDB's longest database name (`couch_db:validate_dbname_int/2`), in bytes.
const MAX_NAME_BYTES: usize = 238;

/// Creation of databases that give none, in seconds since 1970: 21 November 2026.
const DEFAULT_CREATED: u64 = 1_795_225_160;

/// Records that a test of some days needs; a scan of a small cluster is a few hundred.
const MAX_RECORDS: usize = 16_384;

/// The version that nodes run unless the configuration says otherwise; the simulator is closest to
/// it.
pub(crate) const DEFAULT_VERSION: Version = Version::new(3, 5, 0);

/// The first version with `_smoosh/status`, nouveau and the lockout after bad logins.
pub(crate) const V3_4_0: Version = Version::new(3, 4, 0);

/// One CouchDB node.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Its name, such as `couchdb@sim-1.local`.
    pub name: String,
    /// What it says it runs.
    pub version: Version,
    /// The size of its disk in bytes; `None` is without limit and never asked.
    pub disk: Option<u64>,
    /// The volume that disk is; nodes that name the same one share it, and its size is that of
    /// the first of them. `None`: one of its own.
    pub volume: Option<String>,
    /// Whether a built-in compactor works through its bloated files, one at a time.
    pub smoosh: bool,
    /// Whether a clouseau is connected to it. Its nouveau is a setting, `[nouveau] enable`.
    pub clouseau: bool,
    /// Settings beyond the defaults, as (section, key, value).
    pub settings: Vec<(String, String, String)>,
}

impl Node {
    /// A 3.5.0 node without a disk limit, its built-in compactor idle.
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
    /// Its name without `_design/`; anything but the empty text.
    pub name: String,
    /// The names of its views; two documents of equal language, views and
    /// `reduces` share one signature and so one index. Empty: a document without views.
    pub views: Vec<String>,
    /// Whether its views reduce; a view that does answers without `total_rows`.
    pub reduces: bool,
    /// Its search indexes.
    pub searches: Vec<Search>,
    /// `javascript`, `query`, or what no query server serves.
    pub language: String,
    /// Whether CouchDB keeps the index built by itself (`autoupdate`).
    pub autoupdate: bool,
    /// Live index bytes for one document of the database.
    pub bytes_per_doc: u64,
    /// File over active at the start.
    pub bloat: f64,
    /// The share of the database's sequences that is indexed at the start, 0 to 1.
    pub built: f64,
    /// Collator versions its index was written with; two or more ask for an upgrade.
    pub collators: Vec<String>,
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
        }
    }
}

/// A clustered database.
#[derive(Clone, Debug, PartialEq)]
pub struct Database {
    /// Its name, within CouchDB's rules.
    pub name: String,
    /// Ranges.
    pub q: u32,
    /// Copies of each range; at most the number of nodes is placed.
    pub n: u32,
    /// Documents at the start, tombstones not counted.
    pub docs: u64,
    /// Deleted documents at the start.
    pub deleted_docs: u64,
    /// Live bytes of a document in the file, without attachments.
    pub doc_bytes: u64,
    /// Live bytes of attachments of a document. Nodes before 3.4.3 also count dead ones
    /// as active.
    pub attachment_bytes: u64,
    /// File over active at the start.
    pub bloat: f64,
    /// The share of the update sequence at the start that the last compaction saw;
    /// 0: never compacted.
    pub compacted: f64,
    /// File size after a compaction over active, by the shape of its documents
    /// (0.70 to 1.19 was measured on real shards).
    pub compacts_to: f64,
    /// Writes each second on average, in bursts.
    pub writes_per_second: f64,
    /// The share of writes that make a new document.
    pub new_share: f64,
    /// The share of writes that delete one; at most `new_share`. What remains updates.
    pub delete_share: f64,
    /// Its design documents.
    pub designs: Vec<Design>,
    /// Bytes of index files without a design document, in each shard copy.
    pub stale_index_bytes: u64,
    /// When it was created: the shard files' suffix. `None`: from the seed.
    pub created: Option<Moment>,
    /// Names of the nodes that hold copies; empty: all, rotated by the seed.
    pub placed_on: Vec<String>,
    /// Copies that the shard map names but no disk has, as (range index, node name).
    pub missing: Vec<(u32, String)>,
    /// Whether its first range is being split on the first node that holds it.
    pub splitting: bool,
    /// Compactions of its copies that were interrupted before the start.
    pub interrupted: Vec<Interrupted>,
}

/// A compaction that ended before its time and left its files.
#[derive(Clone, Debug, PartialEq)]
pub struct Interrupted {
    /// The range's place.
    pub range: u32,
    /// The node.
    pub node: String,
    /// How much of it was done, 0 to 1.
    pub done: f64,
}

impl Database {
    /// A quiet database of q=2, n=3 with a thousand documents.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            q: 2,
            n: 3,
            docs: 1_000,
            deleted_docs: 0,
            doc_bytes: 1_000,
            attachment_bytes: 0,
            bloat: 1.5,
            compacted: 0.0,
            compacts_to: 1.0,
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

/// Many databases that differ only in name and numbers; they cost no memory each.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// The database each is like; its `name` is the prefix. `created`, `missing` and
    /// `splitting` are ignored.
    pub template: Database,
    /// How many.
    pub count: u32,
    /// Decimal digits of the number that follows the prefix.
    pub digits: u32,
    /// Documents (and with them bytes) of a member vary by up to this factor, 1 or more.
    pub spread: f64,
}

impl Fleet {
    /// `count` databases like `like`, named `<prefix><number>` with `length` characters.
    #[must_use]
    pub fn named(template: Database, count: u32, length: usize) -> Self {
        let digits = u32::try_from(length.saturating_sub(template.name.len())).unwrap_or(u32::MAX);
        Self { template, count, digits: digits.max(1), spread: 4.0 }
    }
}

/// A design document that is changed again and again: each time its views get another name,
/// and the index of before is of no use any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Deploy {
    /// The database, described by itself.
    pub db: String,
    /// The document, and what is the same in all its states.
    pub design: Design,
    /// From one change to the next.
    pub every: Duration,
}

/// A shard file that no database of the shard map owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The node whose disk has it.
    pub node: String,
    /// The file's name without `.couch`, such as `shards/00000000-ffffffff/gone.1700000000`.
    pub file: String,
    /// Its bytes.
    pub bytes: u64,
}

/// What a user may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    ServerAdmin,
    /// `_stats`, `_system` and `_prometheus` of nodes (`_metrics`).
    Metrics,
    /// Administrator of the databases named.
    DatabaseAdmin(Vec<String>),
    /// Member of the databases named.
    Member(Vec<String>),
}

/// Someone who may log in.
#[derive(Clone, PartialEq, Eq)]
pub struct User {
    /// The name.
    pub name: String,
    /// The password.
    pub password: String,
    /// What it may do.
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
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Databases described one by one.
    pub databases: Vec<Database>,
    /// Databases described by the thousand.
    pub fleets: Vec<Fleet>,
    /// Leftovers on disks.
    pub orphans: Vec<Orphan>,
    /// View indexes on disks whose shard, of this name, is gone.
    pub orphan_indexes: Vec<Orphan>,
    /// Design documents that keep changing.
    pub deploys: Vec<Deploy>,
    /// How often a compaction is killed, on one node after the other; `None`: never.
    pub killed_every: Option<Duration>,
    /// Bytes a second that a disk lets go of what was deleted; `None`: all at once.
    pub delete_rate: Option<u64>,
    /// Who may log in.
    pub users: Vec<User>,
    /// Whether `_global_changes` exists, without which `_db_updates` answers 404.
    pub global_changes: bool,
    /// Bytes a second one compaction copies.
    pub compaction_rate: u64,
    /// Changes a second one index build maps.
    pub index_rate: u64,
    /// The least time any compaction or build takes.
    pub shortest_job: Duration,
    /// When databases without a `created` were created at the earliest.
    pub created: Moment,
    /// How many of the latest requests are kept, and four times as many compactions.
    pub records: usize,
}

impl Config {
    /// An empty cluster of 3.5.0 nodes with one administrator, `admin` and `secret`.
    #[must_use]
    pub fn new(nodes: &[&str]) -> Self {
        Self {
            nodes: nodes.iter().map(|name| Node::new(name)).collect(),
            databases: Vec::new(),
            fleets: Vec::new(),
            orphans: Vec::new(),
            orphan_indexes: Vec::new(),
            deploys: Vec::new(),
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

    /// The same with one more database.
    #[must_use]
    pub fn with(mut self, database: Database) -> Self {
        self.databases.push(database);
        self
    }

    /// The same with one more fleet.
    #[must_use]
    pub fn with_fleet(mut self, fleet: Fleet) -> Self {
        self.fleets.push(fleet);
        self
    }

    /// Checks what CouchDB would refuse and what would make no sense.
    ///
    /// # Errors
    /// The first thing found wrong.
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
        let orphans = self.orphans.iter().chain(&self.orphan_indexes);
        orphans.map(|orphan| &orphan.node).try_for_each(known)
    }
}

impl Database {
    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |what| Err(ConfigError::Number(self.name.clone(), what));
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let factor = |value: f64| value >= 1.0 && value.is_finite();
        match self {
            _ if !(1..=65_536).contains(&self.q) => wrong("q"),
            _ if self.n == 0 => wrong("n"),
            _ if !factor(self.bloat) => wrong("bloat"),
            _ if !share(self.compacted) => wrong("compacted"),
            _ if !(0.1..=2.0).contains(&self.compacts_to) => wrong("compacts_to"),
            _ if !(self.writes_per_second >= 0.0 && self.writes_per_second <= 1e6) => {
                wrong("writes_per_second")
            }
            _ if !share(self.new_share + self.delete_share) => wrong("new_share"),
            _ if !(share(self.delete_share) && self.delete_share <= self.new_share) => {
                wrong("delete_share")
            }
            _ if self.missing.iter().any(|(range, _)| *range >= self.q) => wrong("missing"),
            _ if self.interrupted.iter().any(|it| it.range >= self.q || !share(it.done)) => {
                wrong("interrupted")
            }
            _ => self.designs.iter().try_for_each(|design| {
                if design.name.is_empty() {
                    return Err(ConfigError::Design(self.name.clone()));
                }
                if !(factor(design.bloat) && share(design.built)) {
                    return wrong("designs");
                }
                Ok(())
            }),
        }
    }
}

/// Whether CouchDB takes `name` for a database: lowercase letters, digits and
/// `_$()+/-`, beginning with a letter, or one of its own.
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
    /// There is no node.
    #[error("a simulated cluster needs at least one node")]
    NoNodes,
    /// A node's name is used twice, has no `@`, or is not among the cluster's.
    #[error("{0:?} is no node of this cluster: node names hold an @ and are there once")]
    Node(String),
    /// CouchDB refuses the database's name, or it is there twice.
    #[error(
        "{0:?} cannot be a database's name: CouchDB takes lowercase letters, digits and _$()+/-, beginning with a letter, each name once"
    )]
    Name(String),
    /// A number of a database is out of bounds.
    #[error("database {0:?} has a value of {1} out of bounds")]
    Number(String, &'static str),
    /// A design document has no name.
    #[error("database {0:?} has a design document without a name")]
    Design(String),
}

#[cfg(test)]
mod tests;
