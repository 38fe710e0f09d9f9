//! What feeds named, as the scanner takes it in.

use wall_clock::Moment;

/// What feeds named since the last update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedUpdate {
    /// Databases in the order in which they were named.
    pub named: Vec<NamedDb>,
    /// Since when feeds have named every change, these databases included; none while they do not.
    pub followed_since: Option<Moment>,
}

/// A database that was named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDb {
    /// Its name.
    pub db: Box<str>,
    /// What has to be read again.
    pub stale: Stale,
}

/// What of a database has to be read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Its shards: something was written.
    Shards,
    /// Its entry in the shard map, and with it its shards: it was made, deleted or moved.
    Entry,
}
