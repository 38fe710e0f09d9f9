//! What to read: the stages of a sweep, and what is read beside it.

use super::Observation;
use crate::snapshot::{Ix, Snapshot};
use futures::stream::BoxStream;
use std::{fmt::Debug, sync::Arc};

/// Where observations come from.
pub trait Source: Debug + Send + Sync + 'static {
    /// Reads what `stage` asks for. MUST end with [`Observation::StageEnded`] and MUST end:
    /// every read has a deadline.
    fn read(&self, stage: Stage) -> BoxStream<'static, Observation>;
}

/// What is to be read.
#[derive(Clone, Debug)]
pub enum Stage {
    /// Who belongs to the cluster, which nodes answer, what is being split.
    Nodes,
    /// The shard map, page by page.
    Map,
    /// The files on these nodes' disks.
    Files {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Databases that only stray files name.
    Strays {
        /// The databases.
        dbs: Vec<String>,
    },
    /// Shard copies, node by node.
    Shards {
        /// What the targets' places mean.
        snapshot: Arc<Snapshot>,
        /// What to read on each node.
        lanes: Vec<Lane>,
    },
    /// Design documents and view indexes, database by database.
    Views {
        /// What the targets' places mean.
        snapshot: Arc<Snapshot>,
        /// The databases.
        dbs: Vec<ViewsOf>,
    },
    /// What these nodes run.
    Poll {
        /// The nodes.
        nodes: Vec<String>,
    },
}

/// What to read on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The node.
    pub node: String,
    /// Db targets on it.
    pub targets: Vec<Ix>,
}

/// One database's copies, through any of which its design documents are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewsOf {
    /// Db targets of one database instance; never empty.
    pub copies: Vec<Ix>,
}
