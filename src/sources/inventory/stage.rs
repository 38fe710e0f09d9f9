//! What to read: the stages of a sweep, and other reads.

use super::Observation;
use crate::table::{IndexSet, Snapshot, TargetIx};
use futures::stream::BoxStream;
use std::{fmt::Debug, sync::Arc};
use strum::IntoStaticStr;

/// A source of observations.
pub trait Source: Debug + Send + Sync + 'static {
    /// Reads a stage. MUST end with [`Observation::StageEnded`] and MUST end: every read has a deadline.
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation>;
}

/// What to read.
#[derive(Clone, Debug, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Stage {
    /// The members of the cluster, and which nodes answer.
    Nodes,
    /// The shard map, page by page.
    Map {
        /// The node whose map is read, so that its feed reports all later changes; any node if unknown.
        map_node: Option<String>,
    },
    /// The files on these nodes' disks.
    Files {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// The map entries of these databases.
    Strays {
        /// The databases.
        dbs: Vec<String>,
        /// The node that is asked first, as for the map.
        map_node: Option<String>,
        /// Nodes that are also asked before a database counts as unmapped.
        nodes: Vec<String>,
    },
    /// The files in the nodes' directories that this process can read itself.
    Disk,
    /// Shard copies, node by node.
    Shards {
        /// The snapshot to which the targets' positions refer.
        snapshot: Arc<Snapshot>,
        /// What to read on each node.
        node_reads: Vec<NodeReads>,
        /// Shards whose design documents are counted at once where CouchDB does not keep all files of a node
        /// open: one that has none need not be opened again.
        count_designs: Arc<IndexSet>,
    },
    /// Design documents and view indexes, database by database.
    Views {
        /// The snapshot to which the targets' positions refer.
        snapshot: Arc<Snapshot>,
        /// The databases.
        dbs: Databases,
        /// Shards that are known to hold no design document.
        without_designs: Arc<IndexSet>,
    },
    /// The jobs that split shards.
    Splits,
    /// The running jobs of these nodes.
    Poll {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Whether these silent nodes answer again.
    Away {
        /// The nodes.
        nodes: Vec<String>,
    },
}

impl Stage {
    /// The name in the log.
    pub fn label(&self) -> &'static str {
        self.into()
    }
}

/// What to read on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReads {
    /// The node.
    pub node: String,
    /// Db targets on it; those never read are first.
    pub targets: Vec<TargetIx>,
    /// The number of targets never read.
    pub unread: usize,
}

impl NodeReads {
    /// The reads on `node` of these targets of `snapshot`.
    pub fn of(node: &str, targets: Vec<TargetIx>, snapshot: &Snapshot) -> Self {
        let (mut unread, mut read) = (targets, Vec::new());
        unread.retain(|ix| {
            let was_read = snapshot.target(*ix).is_some_and(|it| it.facts().measured_at.is_some());
            if was_read {
                read.push(*ix);
            }
            !was_read
        });
        let count = unread.len();
        unread.append(&mut read);
        Self { node: node.to_owned(), targets: unread, unread: count }
    }
}

/// Databases, each with its copies, any of which can provide its design documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Databases {
    /// Db targets; those of one database instance are adjacent.
    copies: Vec<TargetIx>,
    /// The end of each database in `copies`; a million separate lists would need more memory than
    /// their content.
    ends: Vec<u32>,
}

impl Databases {
    /// The number of databases.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no databases.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The copies of the database at `at`; empty if there is none.
    pub fn copies(&self, at: usize) -> &[TargetIx] {
        let Some(&end) = self.ends.get(at) else { return &[] };
        let begin = at.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        self.copies.get(begin.unwrap_or_default() as usize..end as usize).unwrap_or_default()
    }

    /// Adds a database.
    pub fn push(&mut self, copies: impl IntoIterator<Item = TargetIx>) {
        self.copies.extend(copies);
        self.ends.push(u32::try_from(self.copies.len()).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::facts::{FactSource as MeasuredBy, Facts, Measurement},
        table::{DbName, Draft},
    };
    use wall_clock::Moment;

    #[test]
    fn copies_are_grouped_by_database() {
        let ix = |at| TargetIx::from_usize(at).unwrap();
        let mut dbs = Databases::default();
        assert!(dbs.is_empty());
        dbs.push([ix(3), ix(1)]);
        dbs.push([ix(2)]);
        let copies: Vec<&[TargetIx]> = (0..3).map(|at| dbs.copies(at)).collect();
        assert_eq!((dbs.len(), copies), (2, vec![&[ix(3), ix(1)][..], &[ix(2)], &[]]));
    }

    #[test]
    fn targets_never_read_come_first() {
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let mut targets = Vec::new();
        for (name, read) in [("a", true), ("b", false), ("c", true), ("d", false)] {
            let db = draft.get_or_add_db(DbName { db: name, suffix: "" });
            let ix = draft.get_or_add_shard(node, db, None);
            if read {
                let measured = Measurement { at: Moment::from_unix(1), source: MeasuredBy::Http };
                draft.set_facts(ix, Facts { measured_at: Some(measured), ..Facts::default() });
            }
            targets.push(ix);
        }
        let [a, b, c, d] = targets[..] else { unreachable!() };
        let reads = NodeReads::of("couchdb@a", targets, draft.current());
        assert_eq!(
            reads,
            NodeReads { node: "couchdb@a".into(), targets: vec![b, d, a, c], unread: 2 }
        );
    }
}
