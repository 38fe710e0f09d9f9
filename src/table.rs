//! The snapshot: every target of the cluster with its facts at one moment.
//!
//! Owns the compact tables in which a million targets live, their totals, and the choice of the
//! databases that are exported by name. Never asks CouchDB and never scores. One task, the scanner,
//! holds the [`Draft`] and publishes [`Snapshot`]s; planner, metrics and API read those.
//!
//! Why ids and chunks: rows of owned strings take six times the memory, and a clone of
//! everything for a thousand changed rows fifteen times the time, of rows that name their
//! database by number and are copied 64 at a time.

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

/// What one target is. `kind` is absent where a target was and is no more.
///
/// Its facts lie in a table of their own: they change with every sweep, this hardly ever.
#[derive(Clone, Copy, Debug)]
struct Row {
    db: u32,
    /// Of a db target its range, plus one; of a view its place among the views.
    extra: u32,
    node: NodeIx,
    kind: Option<Kind>,
    state: State,
    /// How many targets had this place before.
    generation: u32,
}

/// What the shard map says of one database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DbMap {
    /// Shard copies on all nodes together.
    pub copies: u32,
    /// Ranges the hash ring is split into (q).
    pub ranges: u32,
}

/// All targets with their facts at one moment; cheap to share, never changed.
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
    /// Why files' headers say nothing, of the few of which they do not.
    problems: Arc<BTreeMap<Ix, Problem>>,
    quiet: bool,
}

impl Snapshot {
    /// Counts the snapshots one draft published, from one; zero is the empty one.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// When it was published.
    #[must_use]
    pub const fn generated_at(&self) -> Moment {
        self.generated_at
    }

    /// How long the last sweep over all targets took.
    #[must_use]
    pub const fn sweep(&self) -> Option<Duration> {
        self.sweep
    }

    /// Since when feeds tell of every database that is written to, made or deleted; none
    /// while they do not.
    #[must_use]
    pub const fn followed_since(&self) -> Option<Moment> {
        self.followed_since
    }

    /// Whether for a while feeds have told of nothing and nothing was seen to run.
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// The name of a database instance.
    #[must_use]
    pub fn db_name(&self, db: DbIx) -> Option<DbName<'_>> {
        self.names.get(db.as_usize())
    }

    /// Whether what was measured of a target still holds, however long ago that was: feeds
    /// that tell of every write have not named its database since, no job was seen on it, and
    /// its node was there all the time.
    ///
    /// Of a view only one that had seen every change: an index that lags is built without a
    /// word. Compactions are not told of either; one that a poll missed leaves facts that are
    /// too large, and a target is read again just before its start.
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
            // How far it is, is known within bounds alone.
            Kind::Cleanup | Kind::Search => false,
        };
        whole && facts.measured_at.is_some_and(|measured| measured.at >= since)
    }

    /// Which targets changed, came or went since the version before; of one place the one that
    /// went before the one that came.
    #[must_use]
    pub fn changed(&self) -> &[Ix] {
        &self.changed
    }

    /// The same targets without their facts, for whoever needs to know for long what they
    /// are: a whole snapshot held through a sweep would keep every old fact beside its new one.
    #[must_use]
    pub fn without_facts(&self) -> Self {
        Self { facts: Chunked::default(), ..self.clone() }
    }

    /// How many places the table has; an upper bound of every [`Ix`].
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.rows.len()
    }

    /// The target at `ix`, unless it went; never another that has its place by now.
    #[must_use]
    pub fn target(&self, ix: Ix) -> Option<TargetRef<'_>> {
        TargetRef::new(self, ix)
    }

    /// The target that has a place now, if one does.
    #[must_use]
    pub fn target_at(&self, place: usize) -> Option<TargetRef<'_>> {
        self.target(self.ix_at(u32::try_from(place).ok()?))
    }

    /// The one that had a place last.
    fn ix_at(&self, place: u32) -> Ix {
        Ix::of(place, self.rows.get(place as usize).map_or(0, |row| row.generation))
    }

    /// Every target, in the order they were first seen.
    pub fn targets(&self) -> impl Iterator<Item = TargetRef<'_>> {
        self.rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.kind.is_some())
            .filter_map(|(at, _)| self.target_at(at))
    }

    /// Every node that was ever a member, and the pseudo node of the cluster first.
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

    /// The databases with most to reclaim, which are exported by name.
    #[must_use]
    pub fn top(&self) -> &Top {
        &self.top
    }
}

#[cfg(test)]
mod tests;
