//! The existing databases, the nodes of their copies, and the names of their files.
//!
//! Owns names and positions. Never knows a size or the time. Members of a [`Fleet`] exist only as
//! numbers; their names are generated on request. Used by the world.

use super::{
    config::{Config, Database, Design, Fleet, Node},
    design::signature_of,
    growth::{between, key_of, mix},
};
use couchdb_names::{Range, ShardName, Signature};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::Duration,
};
use wall_clock::Moment;

/// A database of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Db {
    /// A database with its own description, by its position in the list.
    Named(usize),
    /// A member of a fleet.
    Member {
        /// The fleet's position in the list.
        fleet: usize,
        number: u32,
    },
}

/// A database and its creation time.
#[derive(Debug)]
struct Named {
    database: Database,
    /// The signatures of its design documents, in order.
    signatures: Vec<Signature>,
    key: u64,
    /// When it was created, since the start of the world.
    created_after: Duration,
}

/// All databases. A deleted one keeps its description and its position, and has no name.
#[derive(Debug)]
pub(super) struct Catalog {
    seed: u64,
    created: Moment,
    nodes: Vec<String>,
    named: Vec<Named>,
    by_name: BTreeMap<String, usize>,
    fleets: Vec<Fleet>,
    /// The signatures of the fleets' design documents.
    fleet_signatures: Vec<Vec<Signature>>,
    deleted: BTreeSet<Db>,
}

fn signatures(designs: &[Design]) -> Vec<Signature> {
    designs.iter().map(signature_of).collect()
}

impl Catalog {
    pub(super) fn new(config: &Config, seed: u64) -> Self {
        let mut catalog = Self {
            seed,
            created: config.created,
            nodes: config.nodes.iter().map(|Node { name, .. }| name.clone()).collect(),
            named: Vec::new(),
            by_name: BTreeMap::new(),
            fleets: config.fleets.clone(),
            fleet_signatures: config
                .fleets
                .iter()
                .map(|it| signatures(&it.template.designs))
                .collect(),
            deleted: BTreeSet::new(),
        };
        for database in &config.databases {
            catalog.add(database.clone(), Duration::ZERO);
        }
        catalog
    }

    /// Adds a database, created now.
    pub(super) fn add(&mut self, database: Database, created_after: Duration) -> Db {
        let number = self.named.len();
        let key = mix(self.seed, key_of(&database.name));
        self.by_name.insert(database.name.clone(), number);
        let signatures = signatures(&database.designs);
        self.named.push(Named { database, signatures, key, created_after });
        Db::Named(number)
    }

    /// Forgets the name of a database.
    pub(super) fn remove(&mut self, db: Db) {
        match db {
            Db::Named(number) => _ = self.by_name.remove(&self.named[number].database.name),
            Db::Member { .. } => _ = self.deleted.insert(db),
        }
    }

    /// Replaces the design documents of an individually described database.
    pub(super) fn set_designs(&mut self, db: Db, designs: Vec<Design>) {
        let Db::Named(number) = db else { return };
        self.named[number].signatures = signatures(&designs);
        self.named[number].database.designs = designs;
    }

    /// Starts or ends the split of an individually described database.
    pub(super) fn set_splitting(&mut self, db: Db, splitting: bool) {
        let Db::Named(number) = db else { return };
        self.named[number].database.splitting = splitting;
    }

    /// The database of this name.
    pub(super) fn find(&self, name: &str) -> Option<Db> {
        if let Some(number) = self.by_name.get(name) {
            return Some(Db::Named(*number));
        }
        self.fleets.iter().enumerate().find_map(|(at, fleet)| {
            let digits = name.strip_prefix(fleet.template.name.as_str())?;
            let shaped = digits.len() == fleet.digits as usize
                && digits.bytes().all(|byte| byte.is_ascii_digit());
            let number = digits.parse().ok().filter(|number| shaped && *number < fleet.count)?;
            let db = Db::Member { fleet: at, number };
            (!self.deleted.contains(&db)).then_some(db)
        })
    }

    /// The description of a database; for a fleet's member, the fleet's template.
    pub(super) fn description(&self, db: Db) -> &Database {
        match db {
            Db::Named(number) => &self.named[number].database,
            Db::Member { fleet, .. } => &self.fleets[fleet].template,
        }
    }

    /// The signatures of a database's design documents, in order.
    pub(super) fn signatures(&self, db: Db) -> &[Signature] {
        match db {
            Db::Named(number) => &self.named[number].signatures,
            Db::Member { fleet, .. } => &self.fleet_signatures[fleet],
        }
    }

    /// The number of documents of a database, as a multiple of its description's.
    pub(super) fn scale(&self, db: Db) -> f64 {
        let Db::Member { fleet, .. } = db else { return 1.0 };
        let spread = self.fleets[fleet].spread;
        between(mix(self.key(db), 11), 1.0 / spread, spread)
    }

    /// The seed of a database's random numbers.
    pub(super) fn key(&self, db: Db) -> u64 {
        match db {
            Db::Named(number) => self.named[number].key,
            Db::Member { fleet, number } => mix(mix(self.seed, fleet as u64), number.into()),
        }
    }

    /// When a database was created, since the start of the world.
    pub(super) fn created_after(&self, db: Db) -> Duration {
        match db {
            Db::Named(number) => self.named[number].created_after,
            Db::Member { .. } => Duration::ZERO,
        }
    }

    pub(super) fn name(&self, db: Db) -> Cow<'_, str> {
        match db {
            Db::Named(number) => self.named[number].database.name.as_str().into(),
            Db::Member { fleet, number } => member_name(&self.fleets[fleet], number).into(),
        }
    }

    /// A database's creation time in seconds since 1970, which is part of its files' names.
    pub(super) fn created(&self, db: Db) -> u64 {
        if let Db::Named(number) = db
            && let Some(given) = self.named[number].database.created
        {
            return given.unix();
        }
        let later = mix(self.key(db), 13) % 100_000;
        self.created.unix() + self.created_after(db).as_secs() + later
    }

    /// The suffix of a database's files, with the dot.
    pub(super) fn suffix(&self, db: Db) -> String {
        format!(".{}", self.created(db))
    }

    /// The number of ranges of a database.
    pub(super) fn ranges(&self, db: Db) -> u32 {
        self.description(db).q
    }

    /// The file name of a range.
    pub(super) fn file(&self, db: Db, range: u32) -> String {
        let range = range_at(self.ranges(db), range);
        format!("shards/{range}/{}.{}", self.name(db), self.created(db))
    }

    /// The database and range that own a file of this name.
    pub(super) fn owner(&self, file: &str) -> Option<(Db, u32)> {
        let split = ShardName::split(file)?;
        let db = self.find(split.db)?;
        let created = split.suffix.strip_prefix('.')?;
        let right = created.parse() == Ok(self.created(db)) && !created.starts_with(['0', '+']);
        let q = self.ranges(db);
        let range = range_index(q, split.range.from);
        (right && range_at(q, range) == split.range).then_some((db, range))
    }

    /// The positions of the nodes that the shard map lists for a range, in order.
    pub(super) fn nodes_of(&self, db: Db, range: u32) -> impl Iterator<Item = usize> + '_ {
        let description = self.description(db);
        let places = match &description.placed_on[..] {
            [] => &self.nodes,
            some => some,
        };
        let count = places.len();
        let first = (self.key(db) % 1_024) as usize + range as usize;
        (0..count.min(description.n as usize)).filter_map(move |copy| {
            let name = &places[(first + copy) % count];
            self.nodes.iter().position(|node| node == name)
        })
    }

    /// The positions of the nodes with a copy of a range on disk.
    pub(super) fn homes_of(&self, db: Db, range: u32) -> impl Iterator<Item = usize> + '_ {
        self.nodes_of(db, range).filter(move |node| !self.is_missing(db, range, *node))
    }

    /// Whether a node has a copy of a range on disk.
    pub(super) fn has(&self, db: Db, range: u32, node: usize) -> bool {
        self.homes_of(db, range).any(|home| home == node)
    }

    /// Whether a copy in the shard map is missing on the node's disk.
    fn is_missing(&self, db: Db, range: u32, node: usize) -> bool {
        let Db::Named(number) = db else { return false };
        let missing = &self.named[number].database.missing;
        missing.iter().any(|(at, name)| *at == range && *name == self.nodes[node])
    }

    /// The number of databases.
    pub(super) fn len(&self) -> u64 {
        let members: u64 = self.fleets.iter().map(|fleet| u64::from(fleet.count)).sum();
        (members + self.by_name.len() as u64).saturating_sub(self.deleted.len() as u64)
    }

    /// The number of databases whose name sorts before `start`.
    pub(super) fn rank(&self, start: &str) -> u64 {
        let named = self.by_name.range::<str, _>((Bound::Unbounded, Bound::Excluded(start)));
        let members: u64 = self
            .fleets()
            .map(|(at, fleet)| {
                let number = first_from(fleet, start);
                let member = |number| Db::Member { fleet: at, number };
                let deleted = self.deleted.range(member(0)..member(number)).count();
                u64::from(number).saturating_sub(deleted as u64)
            })
            .sum();
        members + named.count() as u64
    }

    /// The individually described databases.
    pub(super) fn described(&self) -> impl Iterator<Item = Db> + '_ {
        self.by_name.values().map(|number| Db::Named(*number))
    }

    /// Every database, not sorted by name.
    pub(super) fn all(&self) -> impl Iterator<Item = Db> + '_ {
        let members = self.fleets().flat_map(|(fleet, members)| {
            (0..members.count).map(move |number| Db::Member { fleet, number })
        });
        self.described().chain(members.filter(|db| !self.deleted.contains(db)))
    }

    /// The fleets with their positions.
    pub(super) fn fleets(&self) -> impl Iterator<Item = (usize, &Fleet)> {
        self.fleets.iter().enumerate()
    }

    /// All databases from a name on, sorted by name: a merge of the list and the fleets.
    pub(super) fn from(&self, start: &str) -> impl Iterator<Item = (Db, Cow<'_, str>)> + use<'_> {
        let named = self.by_name.range::<str, _>((Bound::Included(start), Bound::Unbounded));
        let named = named.map(|(name, number)| (Cow::from(name.as_str()), Db::Named(*number)));
        let mut sources: Vec<Source<'_>> = vec![Box::new(named)];
        for (at, fleet) in self.fleets() {
            let numbers = first_from(fleet, start)..fleet.count;
            let members = numbers.map(move |number| Db::Member { fleet: at, number });
            let members = members.filter(|db| !self.deleted.contains(db));
            sources.push(Box::new(members.map(|db| (self.name(db), db))));
        }
        let mut heads: Vec<_> = sources.into_iter().map(|mut it| (it.next(), it)).collect();
        std::iter::from_fn(move || {
            let filled = heads.iter_mut().filter(|(head, _)| head.is_some());
            let (head, source) = filled.min_by(|one, other| one.0.cmp(&other.0))?;
            std::mem::replace(head, source.next()).map(|(name, db)| (db, name))
        })
    }
}

/// Databases sorted by name.
type Source<'a> = Box<dyn Iterator<Item = (Cow<'a, str>, Db)> + 'a>;

fn member_name(fleet: &Fleet, number: u32) -> String {
    format!("{}{number:0width$}", fleet.template.name, width = fleet.digits as usize)
}

/// The first number of a fleet whose name does not sort before `start`.
fn first_from(fleet: &Fleet, start: &str) -> u32 {
    let (mut low, mut high) = (0, fleet.count);
    while low < high {
        let middle = low + (high - low) / 2;
        if member_name(fleet, middle).as_str() < start {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// The range at this position among `q` equal steps; the last range takes the remainder
/// (`mem3_util`).
pub(super) fn range_at(q: u32, range: u32) -> Range {
    let step = step_of(q);
    let from = step.saturating_mul(u64::from(range));
    let to = if range + 1 >= q { u64::from(u32::MAX) } else { from + step - 1 };
    let hash = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
    Range { from: hash(from), to: hash(to) }
}

/// The position among `q` ranges of the one that contains a hash.
pub(super) fn range_index(q: u32, hash: u32) -> u32 {
    let at = u64::from(hash) / step_of(q);
    u32::try_from(at).unwrap_or(u32::MAX).min(q.saturating_sub(1))
}

fn step_of(q: u32) -> u64 {
    (1_u64 << 32) / u64::from(q.max(1))
}

/// The position of a document's range: `erlang:crc32/1` of its id selects it (`mem3_hash`).
pub(super) fn range_of_doc(q: u32, id: &str) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(id.as_bytes());
    range_index(q, crc.sum())
}

#[cfg(test)]
mod tests;
