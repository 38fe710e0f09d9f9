//! The events of feeds, as the scanner receives them.

use wall_clock::Moment;

/// The feed events since the last update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeedUpdate {
    /// Databases in the order of their events.
    pub named: Vec<NamedDb>,
    /// Since when the feeds have reported every change, including these; `None` while they do not.
    pub followed_since: Option<Moment>,
    /// The node whose shard map is followed.
    pub map_node: Option<Box<str>>,
}

/// A database with an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedDb {
    /// Name of the database.
    pub db: Box<str>,
    /// What must be read again.
    pub stale: Stale,
}

/// What must be read again for a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// Its shards, after a write.
    Shards,
    /// Its entry in the shard map and its shards: it was created, deleted or moved.
    Entry,
}
