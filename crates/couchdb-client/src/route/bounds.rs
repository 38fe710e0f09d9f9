//! What a route costs and allows: the size of its answer, who may ask it, what it opens.

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
            // Documents of a page; a design document may hold megabytes of code.
            Self::ShardMap { .. } | Self::DesignDocs { .. } => 64 * MIB,
            // A task for every running job.
            Self::ActiveTasks { .. } | Self::ReshardJobs => 64 * MIB,
            // Rows of a few hundred bytes, of as many as are asked for.
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
            | Self::NodeVersions { .. }
            | Self::Shard { .. }
            | Self::ShardViewInfo { .. }
            | Self::Database { .. }
            | Self::ViewInfo { .. }
            | Self::DocShards { .. }
            | Self::DbUpdatesNow
            // Of a refusal: what comes line by line has no end.
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

    /// Whether each server answers this by itself, whatever became of the other nodes: what it
    /// says of itself, and the shard map and membership, of which each node has its own copy.
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

    /// Whether CouchDB answers this to a server admin alone. Of the rest some are open
    /// and some want a member of the database.
    #[must_use]
    pub const fn needs_admin(&self) -> bool {
        match self {
            Self::Welcome
            | Self::Up
            | Self::Session
            | Self::Login
            // Role `_metrics` suffices since 3.0.
            | Self::System { .. }
            // Where `[chttpd] admin_only_all_dbs` is false.
            | Self::AllDbs { .. }
            | Self::DbShards { .. }
            | Self::Database { .. }
            | Self::DesignDocs { .. }
            | Self::ViewInfo { .. }
            | Self::BuildView { .. }
            | Self::SearchInfo { .. }
            | Self::BuildSearch { .. }
            | Self::DocShards { .. } => false,
            Self::NodeWelcome { .. }
            | Self::NodeSession { .. }
            | Self::Membership
            | Self::LocalName
            | Self::NodeVersions { .. }
            | Self::NodeFiles { .. }
            | Self::ShardMap { .. }
            | Self::Shard { .. }
            | Self::ShardViewInfo { .. }
            | Self::SmooshStatus
            | Self::ConfigSection { .. }
            | Self::Config { .. }
            | Self::ActiveTasks { .. }
            | Self::ReshardJobs
            // Or whom `[global_changes] allowed_owner` names.
            | Self::DbUpdatesNow
            | Self::DbUpdates { .. }
            | Self::MapChangesNow { .. }
            | Self::MapChanges { .. }
            | Self::NodeCompact { .. }
            | Self::NodeCompactView { .. }
            // Admins of the database suffice.
            | Self::CompactView { .. }
            | Self::ViewCleanup { .. }
            | Self::SetConfig { .. }
            | Self::ResetConfig { .. } => true,
        }
    }

    /// Whether answering may make the server open a file that was closed, with an fsync
    /// (`couch_bt_engine:init_state`).
    #[must_use]
    pub const fn opens_a_shard(&self) -> bool {
        matches!(
            self,
            Self::Shard { .. }
                | Self::ShardViewInfo { .. }
                | Self::Database { .. }
                | Self::ViewInfo { .. }
                | Self::DesignDocs { .. }
                | Self::NodeCompact { .. }
                | Self::NodeCompactView { .. }
                | Self::CompactView { .. }
                | Self::ViewCleanup { .. }
                | Self::BuildView { .. }
                | Self::SearchInfo { .. }
                | Self::BuildSearch { .. }
        )
    }
}
