//! What the database holds, table by table.

use super::shelf::Shelf;
use redb::TableDefinition;
use serde::{Deserialize, Serialize};

/// The form of all this; another number is another version's.
pub(super) const SCHEMA: u32 = 2;

/// The form before: events of databases lay among recliner's own, and there was no feed.
pub(super) const SCHEMA_BEFORE: u32 = 1;

/// A numbered entry: its moment in seconds since 1970, and what it says as JSON.
pub(super) type Entries = TableDefinition<'static, u64, (u32, &'static [u8])>;

/// How jobs ended: [`crate::model::memory::Outcome`].
pub(super) const OUTCOMES: Entries = TableDefinition::new("outcomes");
/// What happened, save to databases: [`super::Event`].
pub(super) const EVENTS: Entries = TableDefinition::new("events");
/// What happened to databases: [`super::Event`].
pub(super) const DB_EVENTS: Entries = TableDefinition::new("database_events");
/// The latest event of each type of each database, by number: its moment in seconds since
/// 1970, its type by [`super::feed`]'s number, the database.
pub(super) const FEED: TableDefinition<'static, u64, (u32, u8, &str)> =
    TableDefinition::new("feed");
/// The numbers of those, by database and type.
pub(super) const FEED_NUMBERS: TableDefinition<'static, (&str, u8), u64> =
    TableDefinition::new("feed_numbers");
/// The numbers of those that say that a database is gone, as long as it is.
pub(super) const FEED_GONE: TableDefinition<'static, u64, ()> = TableDefinition::new("feed_gone");
/// Open starts, by target and node: [`crate::model::memory::Intent`].
pub(super) const INTENTS: TableDefinition<'static, (&str, &str), &[u8]> =
    TableDefinition::new("intents");
/// What is remembered of a target, by its id: [`crate::model::memory::Remembered`].
pub(super) const REMEMBERED: TableDefinition<'static, &str, &[u8]> =
    TableDefinition::new("remembered");
/// What an operator suspended, by the scope's word: [`crate::model::memory::Suspension`] with its
/// scope.
pub(super) const SUSPENSIONS: TableDefinition<'static, &str, &[u8]> =
    TableDefinition::new("suspensions");
/// What was taken from smoosh, by node, section and key: [`super::Taken`].
pub(super) const TAKEN: TableDefinition<'static, (&str, &str, &str), &[u8]> =
    TableDefinition::new("takeover");
/// What was measured: blocks of the tables, by number, as [`crate::table::Block`] has them.
pub(super) const BLOCKS: TableDefinition<'static, u32, &[u8]> = TableDefinition::new("measured");
/// When each block was measured, in seconds since 1970.
pub(super) const MOMENTS: TableDefinition<'static, u32, u32> = TableDefinition::new("measured_at");
/// How databases stood when something of them was told, by name and suffix, as
/// [`crate::table::Mark`] says: with how many passes over what was measured had ended then.
pub(super) const MARKS: TableDefinition<'static, (&str, &str), (u32, &[u8])> =
    TableDefinition::new("marks");
/// Single values, by the names below.
pub(super) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

/// [`SCHEMA`].
pub(super) const META_SCHEMA: &str = "schema";
/// [`super::Identity`].
pub(super) const META_CLUSTER: &str = "cluster";
/// [`crate::model::memory::Calibration`].
pub(super) const META_CALIBRATION: &str = "calibration";
/// [`Counts`].
pub(super) const META_COUNTS: &str = "counts";
/// [`super::Position`].
pub(super) const META_POSITION: &str = "db_updates";
/// A list of [`super::feed::Era`], the oldest first.
pub(super) const META_ERAS: &str = "eras";
/// Written and taken away to learn whether there is room.
pub(super) const META_TRIAL: &str = "trial";

/// What would otherwise have to be counted in the tables each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// The newest number that an entry has or had.
    pub(super) last_seq: u64,
    pub(super) outcomes: Shelf,
    pub(super) events: Shelf,
    /// Of the events of databases.
    #[serde(default)]
    pub(super) db_events: Shelf,
    #[serde(default)]
    pub(super) feed: FeedCounts,
}

/// How the feed's tables stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FeedCounts {
    pub(super) shelf: Shelf,
    /// The highest number of an entry that was removed though nothing took its place.
    pub(super) floor: u64,
    /// Whether a round of removing is under way.
    pub(super) trimming: bool,
}
