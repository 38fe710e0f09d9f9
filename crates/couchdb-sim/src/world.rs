//! The pure state machine of a simulated cluster.
//!
//! Owns what has happened: which files were touched, which jobs run, which nodes are up.
//! Everything else follows from (configuration, seed, time) and is computed when asked,
//! so that an untouched shard costs no memory and asking changes nothing. Never reads a
//! clock, never does I/O. Moved by [`World::advance`]; asked and changed by the routes
//! in `http` and by tests.

mod chronicle;
mod database;
mod files;
mod happenings;
mod index;
mod jobs;
mod litter;
mod node;
mod search;
mod smoosh;
mod truth;
mod updates;

pub use chronicle::{Compaction, CompactionEnd, Obstacle, StartedBy};
pub(super) use database::{Gone, Known, Mapped};
pub use litter::{DiskFile, DiskWalk, ViewFile};
pub use truth::{DiskUse, SearchInfo, ShardInfo, Sizes, StartError, Task, TaskKind, ViewInfo};
pub(super) use updates::{Happened, Type, Update, WRITE_DELAY};

use super::{
    catalog::{Catalog, Db, range_at, range_of_doc},
    config::{Config, ConfigError, Database},
    growth::Swap,
};
use couchdb_names::Range;
use files::{Extra, File};
use happenings::Happening;
use index::IndexState;
use jobs::{Job, JobKey};
use node::NodeState;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// What happened to one file; a file without an entry is as its description says.
#[derive(Clone, Debug, Default)]
struct Touched {
    /// The last compaction's result.
    swap: Option<Swap>,
    /// Bytes of temporary files without a running job.
    leftover: u64,
    /// When they were last written to, where that was since the start.
    left_at: Duration,
    /// How much of an interrupted compaction is done, 0 to 1.
    resume: f64,
    /// Index files that were built or compacted, by the place of their design document.
    indexes: BTreeMap<usize, IndexState>,
    /// Search indexes that were built, by their design document's place and their own.
    searches: BTreeMap<(usize, usize), index::Built>,
    /// Bytes of stale index files, where not those of the description.
    stale: Option<u64>,
}

/// A simulated cluster at one moment.
#[derive(Debug)]
pub struct World {
    /// What was described, less its databases: those are in the catalog.
    config: Config,
    seed: u64,
    now: Duration,
    catalog: Catalog,
    nodes: Vec<NodeState>,
    touched: BTreeMap<File, Touched>,
    /// Files outside the shard map; a deleted one leaves its place empty.
    extra: Vec<Option<Extra>>,
    jobs: BTreeMap<JobKey, Job>,
    ends: BTreeSet<(Duration, JobKey)>,
    chronicle: chronicle::Chronicle,
    /// Numbers processes.
    processes: u64,
    /// Documents that callers wrote, by database: when, and how many.
    written: BTreeMap<Db, Vec<(Duration, u64)>>,
    /// Creations and deletions since the start.
    happened: Vec<Happened>,
    /// When the `_global_changes` that is there was made.
    tells_since: Duration,
    next_smoosh: Duration,
    /// What happens by itself.
    to_come: BTreeSet<(Duration, Happening)>,
    trash: Vec<litter::Deleted>,
}

/// What comes next by itself.
#[derive(Clone, Copy, Debug)]
enum Next {
    End(JobKey),
    Smoosh,
    Happens(Happening),
}

impl World {
    /// A world at its start.
    ///
    /// # Errors
    /// What [`Config::check`] finds.
    pub fn new(mut config: Config, seed: u64) -> Result<Self, ConfigError> {
        config.check()?;
        let catalog = Catalog::new(&config, seed);
        let nodes = config.nodes.drain(..).map(|node| NodeState::new(node, seed)).collect();
        config.databases.clear();
        config.fleets.clear();
        let mut world = Self {
            seed,
            now: Duration::ZERO,
            catalog,
            nodes,
            touched: BTreeMap::new(),
            extra: Vec::new(),
            jobs: BTreeMap::new(),
            ends: BTreeSet::new(),
            chronicle: chronicle::Chronicle::of(config.records.saturating_mul(4)),
            processes: 1_000,
            written: BTreeMap::new(),
            happened: Vec::new(),
            tells_since: Duration::ZERO,
            next_smoosh: smoosh::PERIOD,
            to_come: BTreeSet::new(),
            trash: Vec::new(),
            config,
        };
        world.lay_extra_files();
        world.lay_leftovers();
        world.expect_happenings();
        Ok(world)
    }

    /// Moves the world to `now`, the time since its start; never back.
    ///
    /// What ends or starts by itself in between does so at its own moment, so that the
    /// state at `now` is the same however often this was called on the way.
    pub fn advance(&mut self, now: Duration) {
        while let Some((at, next)) = self.next().filter(|(at, _)| *at <= now) {
            self.now = self.now.max(at);
            match next {
                Next::End(key) => self.end(key),
                Next::Smoosh => {
                    self.next_smoosh = at + smoosh::PERIOD;
                    self.smoosh();
                }
                Next::Happens(what) => self.happen(at, what),
            }
        }
        self.now = self.now.max(now);
    }

    fn next(&self) -> Option<(Duration, Next)> {
        let smooshing = self.nodes.iter().any(|node| node.node.smoosh);
        let end = self.ends.first().map(|(at, key)| (*at, Next::End(*key)));
        let tick = smooshing.then_some((self.next_smoosh, Next::Smoosh));
        let happens = self.to_come.first().map(|(at, what)| (*at, Next::Happens(*what)));
        [end, tick, happens].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// The time since the start.
    #[must_use]
    pub const fn now(&self) -> Duration {
        self.now
    }

    /// The range that holds this document of a database; `None`: no such database.
    #[must_use]
    pub fn range_of(&self, db: &str, doc: &str) -> Option<Range> {
        let q = self.catalog.ranges(self.catalog.find(db)?);
        Some(range_at(q, range_of_doc(q, doc)))
    }

    /// The databases' names in their order.
    pub fn databases(&self) -> impl Iterator<Item = String> + '_ {
        self.catalog.from("").map(|(_, name)| name.into_owned())
    }

    /// The databases' names from one on, in their order.
    pub(super) fn databases_from(&self, start: &str) -> impl Iterator<Item = String> + '_ {
        self.catalog.from(start).map(|(_, name)| name.into_owned())
    }

    /// How many databases have a name below this one.
    pub(super) fn rank_of(&self, start: &str) -> u64 {
        self.catalog.rank(start)
    }

    /// The databases that were there at the start and still are.
    pub(super) fn databases_at_start(&self) -> impl Iterator<Item = String> + '_ {
        let old = self.catalog.from("").filter(|(db, _)| self.catalog.born(*db) == Duration::ZERO);
        old.map(|(_, name)| name.into_owned())
    }

    /// Whether `_db_updates` has anything to read from.
    pub(super) const fn has_global_changes(&self) -> bool {
        self.config.global_changes
    }

    /// Makes `_global_changes`, or deletes it. One that is made knows nothing of the time before,
    /// and its sequences begin anew.
    pub const fn set_global_changes(&mut self, there: bool) {
        if there && !self.config.global_changes {
            self.tells_since = self.now;
        }
        self.config.global_changes = there;
    }

    /// Writes documents to a database now: new, changed and deleted ones in its usual mix.
    pub fn write(&mut self, db: &str, documents: u64) {
        if let Some(db) = self.catalog.find(db) {
            self.written.entry(db).or_default().push((self.now, documents));
        }
    }

    /// Creates a database now.
    ///
    /// # Errors
    /// When CouchDB would refuse its name, there is one of that name, or a number of it
    /// is out of bounds.
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
        self.lay_split_files(db);
        self.note(Type::Created, name);
        Ok(())
    }

    /// Deletes a database now; with `leave_files` its shard files stay behind as orphans.
    pub fn delete(&mut self, db: &str, leave_files: bool) {
        let Some(found) = self.catalog.find(db) else { return };
        let mut left_behind = Vec::new();
        for file in self.copies_of(found) {
            if let Some(left) = leave_files.then(|| self.sizes_of(file)).flatten() {
                let File::Copy { node, db, range } = file else { continue };
                let name = self.catalog.file(db, range);
                left_behind.push(Some(Extra { node, name, bytes: left.file }));
            }
            self.drop_jobs(|key| key.file == file);
            self.touched.remove(&file);
        }
        let targets = self.split_targets(found);
        let splits = self.catalog.like(found).is_some_and(|like| like.splitting);
        for slot in self.extra.iter_mut().filter(|_| splits && !leave_files) {
            slot.take_if(|extra| targets.contains(&extra.name));
        }
        self.extra.append(&mut left_behind);
        self.written.remove(&found);
        self.catalog.remove(found);
        self.note(Type::Deleted, db.to_owned());
    }
}

#[cfg(test)]
mod tests;
