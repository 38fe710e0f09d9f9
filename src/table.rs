//! The snapshot: every target of the cluster with its facts at one moment.
//!
//! Owns the compact tables that hold a million targets, their totals, and the choice of the
//! databases that are exported by name. Never sends requests to CouchDB and never scores. One
//! task, the scanner, holds the [`Draft`] and publishes [`Snapshot`]s; planner, metrics and API
//! read those.
//!
//! Ids and chunks save memory and time: rows of owned strings would take six times the memory, and
//! cloning everything for a thousand changed rows fifteen times the time, compared with rows that
//! refer to their database by number and are copied 64 at a time.

mod bits;
mod chunked;
mod draft;
mod kept;
mod mark;
mod names;
mod node;
mod packed;
mod place;
mod target_ref;
mod top;
mod totals;
mod view;

pub use bits::Bits;
pub use draft::Draft;
pub use kept::{Block, Damaged, Loose};
pub use mark::{Mark, Marked};
pub use names::DbName;
pub use node::{Node, NodeIx, OnDisk, OnVolume, SmooshChannel, SmooshSeen, WaitingPriority};
pub use place::{DbIx, Ix};
pub use target_ref::TargetRef;
pub use top::{DbSums, FileSums, TARGETS_FOR_EACH, Top, TopDb};
pub use totals::{Sum, Sums, Totals};
pub use view::{PartSums, Query, Search, View};

pub(crate) use chunked::Chunked;

use crate::{
    datadir::Problem,
    model::target::{Kind, State},
};
use couchdb_names::Range;
use names::Names;
use packed::Packed;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use wall_clock::Moment;

/// The identity of one target. `kind` is absent in a row whose target was removed.
///
/// Facts are in a separate table: they change with every sweep, identities hardly ever.
#[derive(Clone, Copy, Debug)]
struct Row {
    db: u32,
    /// For a db target its range index plus one; for a view its index in the table of views.
    extra: u32,
    node: NodeIx,
    kind: Option<Kind>,
    state: State,
    /// Number of targets that had this row before.
    generation: u32,
}

/// The shard map's entry for one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbMap {
    /// Number of shard copies on all nodes together.
    pub copies: u32,
    /// Ranges the hash ring is split into (q).
    pub ranges: u32,
}

/// All targets with their facts at one moment; cheap to share, immutable.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    version: u64,
    generated_at: Moment,
    rows: Chunked<Row>,
    facts: Chunked<Packed>,
    names: Names,
    maps: Chunked<DbMap>,
    views: Chunked<Arc<View>>,
    ranges: Arc<Vec<Range>>,
    nodes: Vec<Arc<Node>>,
    totals: Arc<Totals>,
    top: Arc<Top>,
    changed: Arc<[Ix]>,
    sweep: Option<Duration>,
    followed_since: Option<Moment>,
    in_doubt: Arc<Bits>,
    /// Why a file's header could not be read, for the few targets concerned.
    problems: Arc<BTreeMap<Ix, Problem>>,
    quiet: bool,
}

impl Snapshot {
    /// The version: the draft's snapshots are counted from one; zero is the empty snapshot.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// When it was published.
    #[must_use]
    pub const fn generated_at(&self) -> Moment {
        self.generated_at
    }

    /// Duration of the last sweep over all targets.
    #[must_use]
    pub const fn sweep(&self) -> Option<Duration> {
        self.sweep
    }

    /// When the feeds began to report every database that is written to, created or deleted; none
    /// while they do not.
    #[must_use]
    pub const fn followed_since(&self) -> Option<Moment> {
        self.followed_since
    }

    /// Whether the feeds reported no change and no job was running for a while.
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The name of a database instance.
    #[must_use]
    pub fn db_name(&self, db: DbIx) -> Option<DbName<'_>> {
        self.names.get(db.as_usize())
    }

    /// Whether a target's facts still hold, however old they are: the feeds, which report every
    /// write, have not named its database since, no job was seen on it, and its node was up all
    /// the time.
    ///
    /// A view is only confirmed if it had processed every change: an index that lags may be built
    /// without notice. Compactions are not reported either; one that no poll saw leaves facts that
    /// are too large, and a target is read again just before its start.
    #[must_use]
    pub fn is_confirmed(&self, ix: Ix) -> bool {
        let Some(since) = self.followed_since else { return false };
        let Some(target) = self.target(ix).filter(|_| !self.in_doubt.has(ix.as_usize())) else {
            return false;
        };
        let facts = target.facts();
        let whole = match target.kind() {
            Kind::Db => true,
            Kind::View => facts.updates_pending.get() == Some(0),
            // Their progress is only known within bounds.
            Kind::Cleanup | Kind::Search => false,
        };
        whole && facts.measured_at.is_some_and(|measured| measured.at >= since)
    }

    /// The targets that changed, were added or were removed since the previous version. For a
    /// reused row, the removed target comes before the added one.
    #[must_use]
    pub fn changed(&self) -> &[Ix] {
        &self.changed
    }

    /// The same targets without their facts, for holders that need identities for a long time:
    /// holding a whole snapshot during a sweep would keep every old fact in memory next to the new
    /// one.
    #[must_use]
    pub fn without_facts(&self) -> Self {
        Self { facts: Chunked::default(), ..self.clone() }
    }

    /// Number of rows; an upper bound of every [`Ix`].
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.rows.len()
    }

    /// The target at `ix`, unless it was removed; never another target that reuses its row.
    #[must_use]
    pub fn target(&self, ix: Ix) -> Option<TargetRef<'_>> {
        TargetRef::new(self, ix)
    }

    /// The target that occupies a row now, if any.
    #[must_use]
    pub fn target_at(&self, place: usize) -> Option<TargetRef<'_>> {
        self.target(self.ix_at(u32::try_from(place).ok()?))
    }

    /// The index of the last target in a row.
    fn ix_at(&self, place: u32) -> Ix {
        Ix::of(place, self.rows.get(place as usize).map_or(0, |row| row.generation))
    }

    /// Every target, in the order in which they were first seen.
    pub fn targets(&self) -> impl Iterator<Item = TargetRef<'_>> {
        self.rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.kind.is_some())
            .filter_map(|(at, _)| self.target_at(at))
    }

    /// Every node that was ever a member, after the pseudo node of the cluster.
    #[must_use]
    pub fn nodes(&self) -> &[Arc<Node>] {
        &self.nodes
    }

    /// The node at `ix`.
    #[must_use]
    pub fn node(&self, ix: NodeIx) -> Option<&Node> {
        self.nodes.get(ix.as_usize()).map(AsRef::as_ref)
    }

    /// Counts and bytes by node and kind.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The databases with the most reclaimable bytes, which are exported by name.
    #[must_use]
    pub fn top(&self) -> &Top {
        &self.top
    }
}

#[cfg(test)]
mod tests;
