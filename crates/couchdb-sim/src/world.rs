//! The state machine of a simulated cluster.
//!
//! Owns what has changed since the start: which files were written, which jobs run, which nodes
//! are up. Everything else follows from (configuration, seed, time) and is computed on request,
//! so an unchanged shard costs no memory and reading changes nothing. Never reads a clock, never
//! does I/O. [`World::advance`] moves the time; the routes in `http` and tests read and change
//! the state.

mod compaction_log;
mod database;
mod disk_files;
mod files;
mod index;
mod info;
mod jobs;
mod keys;
mod node;
mod scheduled_events;
mod search;
mod smoosh;
mod tally;
mod updates;

pub use compaction_log::{Compaction, CompactionEnd, Obstacle, StartedBy};
pub(super) use database::{DatabaseInfo, LookupError, ShardMapEntry};
pub use disk_files::{DiskFile, DiskWalk, ViewFile};
pub use info::{DiskUse, SearchInfo, ShardInfo, Sizes, Task, TaskKind, ViewInfo};
pub use tally::Tally;
pub(super) use updates::{DbEvent, EventKind, Update, WRITE_DELAY};

use super::{
    catalog::{Catalog, Db, range_at, range_of_doc},
    config::{Config, ConfigError, Database},
    growth::{Compacted, CompactedView},
};
use couchdb_names::Range;
use files::Extra;
use index::BuildState;
use jobs::Job;
use keys::{File, Index, JobKey};
use node::NodeState;
use scheduled_events::ScheduledEvent;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What changed in one file. A file without an entry is as described in the configuration.
#[derive(Clone, Debug, Default)]
struct FileChanges {
    /// The result of the last compaction.
    swap: Option<Compacted>,
    /// The files of an interrupted compaction.
    leftover: Leftover,
    /// How far indexes are built, if not as described.
    built: BTreeMap<Index, BuildState>,
    /// View indexes after their last compaction, by the position of their design document.
    compacted: BTreeMap<usize, CompactedView>,
    /// Bytes of stale index files, if not as described.
    stale: Option<u64>,
    /// Documents that other copies of the range have and this one lacks.
    lacks: u64,
}

/// Temporary files without a running job.
#[derive(Clone, Copy, Debug, Default)]
struct Leftover {
    bytes: u64,
    /// When they were last written, if after the start.
    written: Duration,
    /// Whether they are still being written.
    grows: bool,
    /// The completed share of the compaction, 0 to 1.
    resume: f64,
}

/// A simulated cluster at one moment.
#[derive(Debug)]
pub struct World {
    /// The configuration without its databases, which are in the catalog.
    config: Config,
    seed: u64,
    /// Whether any database is written to.
    is_written: bool,
    now: Duration,
    catalog: Catalog,
    nodes: Vec<NodeState>,
    changed: BTreeMap<File, FileChanges>,
    /// Files outside the shard map.
    extra: Vec<Extra>,
    jobs: BTreeMap<JobKey, Job>,
    ends: BTreeSet<(Duration, JobKey)>,
    chronicle: compaction_log::CompactionLog,
    /// The number of the last started process.
    processes: u64,
    /// Documents that callers wrote, by database: when, and how many.
    written: BTreeMap<Db, Vec<(Duration, u64)>>,
    /// Database creations and deletions since the start.
    db_events: Vec<DbEvent>,
    /// When the current `_global_changes` was created.
    global_changes_since: Duration,
    next_smoosh: Duration,
    /// The most bytes that any disk had to hold.
    peak_disk: u64,
    /// When events are due.
    scheduled: BTreeSet<(Duration, ScheduledEvent)>,
    trash: Vec<disk_files::DeletedFile>,
}

/// The next event.
#[derive(Clone, Copy, Debug)]
enum Next {
    End(JobKey),
    Smoosh,
    Event(ScheduledEvent),
}

impl World {
    /// A new world.
    ///
    /// # Errors
    /// The errors of [`Config::check`].
    pub fn new(mut config: Config, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let catalog = Catalog::new(&config, seed);
        let nodes = config.nodes.drain(..).map(|node| NodeState::new(node, seed)).collect();
        let templates = config.fleets.iter().map(|fleet| &fleet.template);
        let is_written =
            config.databases.iter().chain(templates).any(|db| db.writes_per_second > 0.0);
        config.databases.clear();
        config.fleets.clear();
        let mut world = Self {
            seed,
            is_written,
            now: Duration::ZERO,
            catalog,
            nodes,
            changed: BTreeMap::new(),
            extra: Vec::new(),
            jobs: BTreeMap::new(),
            ends: BTreeSet::new(),
            chronicle: compaction_log::CompactionLog::of(config.records.saturating_mul(4)),
            processes: 1_000,
            written: BTreeMap::new(),
            db_events: Vec::new(),
            global_changes_since: Duration::ZERO,
            next_smoosh: config.smoosh_every,
            peak_disk: 0,
            scheduled: BTreeSet::new(),
            trash: Vec::new(),
            config,
        };
        world.add_extra_files();
        world.add_leftovers();
        world.schedule_first_events();
        Ok(world)
    }

    /// Advances the world to `now`, the time since its start; never backwards.
    ///
    /// Jobs end and events occur at their own times in between, so the state at `now` does not
    /// depend on how often this was called before.
    pub fn advance(&mut self, now: Duration) {
        while let Some((at, next)) = self.next().filter(|(at, _)| *at <= now) {
            self.now = self.now.max(at);
            match next {
                Next::End(key) => self.end(key),
                Next::Smoosh => {
                    self.next_smoosh = self.now + self.config.smoosh_every;
                    self.smoosh();
                }
                Next::Event(what) => self.run_event(at, what),
            }
        }
        self.now = self.now.max(now);
    }

    fn next(&self) -> Option<(Duration, Next)> {
        let smooshing = self.nodes.iter().any(|state| state.node.smoosh);
        let end = self.ends.first().map(|(at, key)| (*at, Next::End(*key)));
        let tick = smooshing.then_some((self.next_smoosh, Next::Smoosh));
        let happens = self.scheduled.first().map(|(at, what)| (*at, Next::Event(*what)));
        [end, tick, happens].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// When the world next changes, apart from steady writes.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        self.next().map(|(at, _)| at)
    }

    /// The time since the start.
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// The range of a document of a database; `None`: no such database.
    pub fn range_of(&self, db: &str, doc: &str) -> Option<Range> {
        let q = self.catalog.ranges(self.catalog.find(db)?);
        Some(range_at(q, range_of_doc(q, doc)))
    }

    /// The names of the databases, sorted.
    pub fn databases(&self) -> impl Iterator<Item = String> + '_ {
        self.databases_from("")
    }

    /// The sorted names of the databases, from `start` on.
    pub(super) fn databases_from(&self, start: &str) -> impl Iterator<Item = String> + '_ {
        self.catalog.from(start).map(|(_, name)| name.into_owned())
    }

    /// The number of databases whose name sorts before `start`.
    pub(super) fn rank_of(&self, start: &str) -> u64 {
        self.catalog.rank(start)
    }

    /// The databases that existed at the start and still exist.
    pub(super) fn databases_at_start(&self) -> impl Iterator<Item = String> + '_ {
        let old = |db| self.catalog.created_after(db) == Duration::ZERO;
        self.catalog.from("").filter(move |(db, _)| old(*db)).map(|(_, name)| name.into_owned())
    }

    /// Whether `_global_changes` exists, which `_db_updates` reads.
    pub(super) const fn has_global_changes(&self) -> bool {
        self.config.global_changes
    }

    /// Creates or deletes `_global_changes`. A new one has no earlier events, and its sequences
    /// start again.
    pub const fn set_global_changes(&mut self, exists: bool) {
        if exists && !self.config.global_changes {
            self.global_changes_since = self.now;
        }
        self.config.global_changes = exists;
    }

    /// Writes documents to a database now, with its usual mix of new, changed and deleted ones.
    pub fn write(&mut self, db: &str, documents: u64) {
        if let Some(db) = self.catalog.find(db) {
            self.written.entry(db).or_default().push((self.now, documents));
        }
    }

    /// Creates a database now.
    ///
    /// # Errors
    /// If CouchDB would refuse the name, the database exists, or one of its numbers is out of
    /// bounds.
    pub fn create(&mut self, database: Database) -> Result<(), ConfigError> {
        if self.catalog.find(&database.name).is_some() {
            return Err(ConfigError::Name(database.name));
        }
        let described = Config {
            nodes: self.nodes.iter().map(|state| state.node.clone()).collect(),
            databases: vec![database.clone()],
            fleets: Vec::new(),
            orphans: Vec::new(),
            ..self.config.clone()
        };
        described.check()?;
        let name = database.name.clone();
        let db = self.catalog.add(database, self.now);
        self.add_split_files(db);
        self.record_event(EventKind::Created, name);
        Ok(())
    }

    /// Deletes a database now. With `leave_files`, its shard files remain as orphans.
    pub fn delete(&mut self, db: &str, leave_files: bool) {
        let Some(db_key) = self.catalog.find(db) else { return };
        for file in self.copies_of(db_key) {
            if leave_files {
                let bytes = self.sizes_of(file).file;
                self.add_extra(self.node_of(file), self.name_of(file), bytes);
            }
            self.drop_jobs(|key| key.file == file);
            self.changed.remove(&file);
        }
        if self.catalog.description(db_key).splitting && !leave_files {
            self.delete_split_files(db_key);
        }
        self.written.remove(&db_key);
        self.catalog.remove(db_key);
        self.record_event(EventKind::Deleted, db.to_owned());
    }
}

#[cfg(test)]
mod tests;
