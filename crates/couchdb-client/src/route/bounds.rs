//! The limits of a route: the size of its response, and whether any server can answer it by itself.

use super::Route;

/// A mebibyte, for limits on bodies.
const MIB: usize = 1 << 20;

impl Route<'_> {
    /// The largest body to accept, in bytes, after decompression.
    #[must_use]
    pub const fn body_limit(&self) -> usize {
        match self {
            // A million shards with names of 70 bytes are 75 MB.
            Self::NodeFiles { .. } => 128 * MIB,
            // A page of documents; a design document may contain megabytes of code.
            Self::ShardMap { .. } | Self::DesignDocs { .. } => 64 * MIB,
            Self::ReshardJobs => 64 * MIB,
            // Tasks of a few hundred bytes, as many as a node can run.
            Self::ActiveTasks { .. } => 16 * MIB,
            // Rows of a few hundred bytes, as many as requested.
            Self::MapChanges { .. } => 4 * MIB,
            Self::Config { .. }
            | Self::ConfigSection { .. }
            | Self::AllDbs { .. }
            | Self::DbShards { .. } => 8 * MIB,
            Self::System { .. } | Self::SmooshStatus | Self::Membership => 4 * MIB,
            Self::Welcome
            | Self::NodeWelcome { .. }
            | Self::Up
            | Self::Session
            | Self::Login
            | Self::NodeSession { .. }
            | Self::LocalName
            | Self::DecodedLocalName
            | Self::NodeVersions { .. }
            | Self::Shard { .. }
            | Self::ShardViewInfo { .. }
            | Self::Database { .. }
            | Self::ViewInfo { .. }
            | Self::DocShards { .. }
            | Self::DbUpdatesNow
            // The limit of an error body: a feed itself has no end.
            | Self::DbUpdates { .. }
            | Self::MapChangesNow { .. }
            | Self::NodeCompact { .. }
            | Self::NodeCompactView { .. }
            | Self::CompactView { .. }
            | Self::ViewCleanup { .. }
            | Self::BuildView { .. }
            | Self::SearchInfo { .. }
            | Self::BuildSearch { .. }
            | Self::SetConfig { .. }
            | Self::ResetConfig { .. } => MIB,
        }
    }

    /// Whether each server answers this by itself, whatever the state of the other nodes: information
    /// about itself, and the shard map and membership, of which each node has its own copy.
    #[must_use]
    pub const fn is_answered_alone(&self) -> bool {
        matches!(
            self,
            Self::Welcome
                | Self::Session
                | Self::Membership
                | Self::ShardMap { .. }
                | Self::AllDbs { .. }
                | Self::DbShards { .. }
                | Self::DocShards { .. }
        )
    }
}
