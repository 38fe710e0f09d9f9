//! What made the files on each node larger or smaller since the movements were last taken.
//!
//! Owns the sums by node, database, design document and cause, and the bytes counted for each node. Every change of a
//! counted size is recorded here while both readings are available, so no table of earlier sizes is needed: the
//! difference of a node's counted bytes is exactly the sum of its movements.

use super::{IndexSet, NodeIx, TargetIx};
use crate::model::cause::Cause;
use couchdb_names::Signature;
use hashbrown::{HashMap, HashSet};
use std::{sync::Arc, time::Duration};
use wall_clock::Moment;

/// Minimum time for which a database or an index counts as new: its copies are measured one after the other while
/// it is filled or built.
const NEW_FOR: Duration = Duration::from_secs(3_600);

/// A part of the change of one node's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Movement {
    /// The node, by its index in [`Movements::nodes`].
    pub node: usize,
    /// The cause.
    pub cause: Cause,
    /// The database; empty for files that belong to none.
    pub db: Box<str>,
    /// The design document, by id; empty for files of a database itself.
    pub design: Box<str>,
    /// The change.
    pub bytes: i64,
}

/// The files of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFiles {
    /// The node's name, or that of the pseudo-node, which has view indexes whose files no node shows.
    pub name: Arc<str>,
    /// Bytes of all its counted files.
    pub bytes: i64,
    /// Whether everything on it was read at least once since the process started.
    pub is_complete: bool,
    /// Whether it is a member that this process serves, or the pseudo-node.
    pub is_member: bool,
    /// Whether its index files are known one by one; others are counted on the pseudo-node.
    pub is_shown: bool,
    /// Its files other than those of targets, as last walked; empty before the first walk.
    pub other_files: Vec<(Cause, u64)>,
}

/// The movements since they were last taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Movements {
    /// Every node, the pseudo-node first.
    pub nodes: Vec<NodeFiles>,
    /// The movements, in no particular order.
    pub entries: Vec<Movement>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MovementKey {
    pub(super) node: NodeIx,
    pub(super) cause: Cause,
    pub(super) db: Box<str>,
    pub(super) design: Box<str>,
}

/// The sums that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct MovementSums {
    pub(super) entries: HashMap<MovementKey, i64>,
    /// Nodes whose index files are all known one by one.
    pub(super) shown: IndexSet,
    /// New index files whose design document is not known yet, with their bytes when they were found.
    pub(super) unnamed_parts: HashMap<TargetIx, i64>,
    pub(super) bytes_of: Vec<i64>,
    /// The files of each node other than those of targets, as last walked.
    pub(super) other_files: Vec<Vec<(Cause, u64)>>,
    /// Nodes with targets from an earlier process.
    pub(super) restored: IndexSet,
    /// Databases that appeared in this hour and in the one before.
    pub(super) new_databases: [IndexSet; 2],
    /// Indexes that appeared in these hours, by database and signature.
    pub(super) new_indexes: [HashSet<(u32, Signature)>; 2],
    rotated_at: Moment,
    /// Deleted databases whose map entry is still in the tables.
    pub(super) deleted: IndexSet,
    /// Whether all existing databases are known, so that any other database is new.
    pub(super) knows_databases: bool,
}

impl MovementSums {
    /// Adds to a sum.
    pub(super) fn add(&mut self, key: MovementKey, bytes: i64) {
        let at = key.node.as_usize();
        if self.bytes_of.len() <= at {
            self.bytes_of.resize(at + 1, 0);
        }
        self.bytes_of[at] = self.bytes_of[at].saturating_add(bytes);
        let sum = self.entries.entry(key).or_default();
        *sum = sum.saturating_add(bytes);
    }

    /// Marks that a database appeared.
    pub(super) fn database_added(&mut self, at: u32) {
        self.deleted.remove(at as usize);
        if self.knows_databases {
            self.new_databases[0].insert(at as usize);
        }
    }

    /// Lets new databases and indexes age; `swept` tells whether a sweep has ended.
    pub(super) fn rotate(&mut self, swept: bool, now: Moment) {
        self.knows_databases |= swept;
        if self.rotated_at.distance(now) >= NEW_FOR {
            age(&mut self.new_databases);
            age(&mut self.new_indexes);
            self.rotated_at = now;
        }
    }
}

/// Moves the newer of two generations to the older.
fn age<T: Default>(generations: &mut [T; 2]) {
    generations.swap(0, 1);
    generations[0] = T::default();
}
