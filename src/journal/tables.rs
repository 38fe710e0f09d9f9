//! What the database holds, table by table.

use super::shelf::Shelf;
use redb::TableDefinition;
use serde::{Deserialize, Serialize};

/// The form of all this; another number is another version's.
pub(super) const SCHEMA: u32 = 1;

/// A numbered entry: its moment in seconds since 1970, and what it says as JSON.
pub(super) type Entries = TableDefinition<'static, u64, (u32, &'static [u8])>;

/// How jobs ended: [`crate::memory::Outcome`].
pub(super) const OUTCOMES: Entries = TableDefinition::new("outcomes");
/// What happened: [`super::Event`].
pub(super) const EVENTS: Entries = TableDefinition::new("events");
/// Open starts, by target and node: [`crate::memory::Intent`].
pub(super) const INTENTS: TableDefinition<'static, (&str, &str), &[u8]> =
    TableDefinition::new("intents");
/// What is remembered of a target, by its id: [`crate::memory::Remembered`].
pub(super) const REMEMBERED: TableDefinition<'static, &str, &[u8]> =
    TableDefinition::new("remembered");
/// What an operator suspended, by the scope's word: [`crate::memory::Suspension`] with its
/// scope.
pub(super) const SUSPENSIONS: TableDefinition<'static, &str, &[u8]> =
    TableDefinition::new("suspensions");
/// What was taken from smoosh, by node, section and key: [`super::Taken`].
pub(super) const TAKEN: TableDefinition<'static, (&str, &str, &str), &[u8]> =
    TableDefinition::new("takeover");
/// What was measured: blocks of the tables, by number, as [`crate::snapshot::Block`] has them.
pub(super) const BLOCKS: TableDefinition<'static, u32, &[u8]> = TableDefinition::new("measured");
/// When each block was measured, in seconds since 1970.
pub(super) const MOMENTS: TableDefinition<'static, u32, u32> = TableDefinition::new("measured_at");
/// Single values, by the names below.
pub(super) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

/// [`SCHEMA`].
pub(super) const META_SCHEMA: &str = "schema";
/// [`super::Identity`].
pub(super) const META_CLUSTER: &str = "cluster";
/// [`crate::memory::Calibration`].
pub(super) const META_CALIBRATION: &str = "calibration";
/// [`Counts`].
pub(super) const META_COUNTS: &str = "counts";
/// [`super::Position`].
pub(super) const META_POSITION: &str = "db_updates";
/// Written and taken away to learn whether there is room.
pub(super) const META_TRIAL: &str = "trial";

/// What would otherwise have to be counted in the tables each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Counts {
    /// The newest number that an entry has or had.
    pub(super) last_seq: u64,
    pub(super) outcomes: Shelf,
    pub(super) events: Shelf,
}
