//! Tables of the database.

use super::{retained_table::RetainedTable, storage::JournalOpenError};
use redb::{Error, ReadTransaction, TableDefinition};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Format number of the database. It changes if an earlier release could not read what this version
/// writes. This version reads the formats of all earlier releases, which a test checks with a file of
/// each, and refuses higher numbers.
pub(super) const SCHEMA: u32 = 2;

/// The previous format: database events shared a table with recliner's own, and there was no feed.
pub(super) const PREVIOUS_SCHEMA: u32 = 1;

/// A numbered entry: its time in seconds since 1970, and its content as JSON.
pub(super) type Entries = TableDefinition<'static, u64, (u32, &'static [u8])>;

/// Outcomes of jobs: [`crate::model::records::Outcome`].
pub(super) const OUTCOMES: Entries = TableDefinition::new("outcomes");
/// Events other than database events: [`super::JournalEvent`].
pub(super) const EVENTS: Entries = TableDefinition::new("events");
/// Database events: [`super::JournalEvent`].
pub(super) const DB_EVENTS: Entries = TableDefinition::new("database_events");
/// The latest event of each type of each database, by number: its time in seconds since 1970, its
/// type as the code in [`super::feed_tables`], and the database.
pub(super) const FEED: TableDefinition<'static, u64, (u32, u8, &str)> =
    TableDefinition::new("feed");
/// Numbers of these events, by database and type.
pub(super) const FEED_SEQ_BY_DB: TableDefinition<'static, (&str, u8), u64> =
    TableDefinition::new("feed_numbers");
/// Numbers of `deleted` events of databases that do not exist.
pub(super) const FEED_DELETED: TableDefinition<'static, u64, ()> =
    TableDefinition::new("feed_gone");
/// Open starts, by target and node: [`crate::model::records::Intent`].
pub(super) const INTENTS: TableDefinition<'static, (&str, &str), &[u8]> =
    TableDefinition::new("intents");
/// Remembered state of targets, by id: [`crate::model::records::TargetRecord`].
pub(super) const TARGET_RECORDS: TableDefinition<'static, &str, &[u8]> =
    TableDefinition::new("remembered");
/// Suspensions by operators, by the text of the scope: [`crate::model::records::Suspension`] with
/// its scope.
pub(super) const SUSPENSIONS: TableDefinition<'static, &str, &[u8]> =
    TableDefinition::new("suspensions");
/// Overridden smoosh settings, by node, section and key: [`super::OverriddenSetting`].
pub(super) const OVERRIDDEN_SETTINGS: TableDefinition<'static, (&str, &str, &str), &[u8]> =
    TableDefinition::new("takeover");
/// Measured facts: blocks of the tables by number, as in [`crate::table::TableBlock`].
pub(super) const BLOCKS: TableDefinition<'static, u32, &[u8]> = TableDefinition::new("measured");
/// Measurement time of each block, in seconds since 1970.
pub(super) const BLOCK_TIMES: TableDefinition<'static, u32, u32> =
    TableDefinition::new("measured_at");
/// State of databases at their last event, by name and suffix: the number of save passes completed
/// before, and the [`crate::table::PublishedDbState`].
pub(super) const MARKS: TableDefinition<'static, (&str, &str), (u32, &[u8])> =
    TableDefinition::new("marks");
/// Single values, by the names below.
pub(super) const META: TableDefinition<'static, &str, &[u8]> = TableDefinition::new("meta");

/// [`SCHEMA`].
pub(super) const META_SCHEMA: &str = "schema";
/// The version of recliner that wrote the database last; a refusal of its format names it.
pub(super) const META_VERSION: &str = "version";
/// [`super::ClusterIdentity`].
pub(super) const META_CLUSTER: &str = "cluster";
/// [`crate::model::records::Calibration`].
pub(super) const META_CALIBRATION: &str = "calibration";
/// Prefix of the name of each [`crate::model::records::CorrectionRecord`], followed by its kind,
/// database and suffix. Stored as single values, which earlier releases ignore, while a table of
/// their own would stop their backups.
pub(super) const META_CORRECTION_PREFIX: &str = "correction:";
/// Prefixes of the names of the scorecard's [`crate::model::records::ScorecardHour`]s, followed by
/// the hour, and of its [`crate::model::records::AdvisedTarget`]s, followed by the target's id.
/// Stored as single values, like corrections.
pub(super) const META_SCORECARD_HOUR_PREFIX: &str = "scorecard_hour:";
pub(super) const META_SCORECARD_TARGET_PREFIX: &str = "scorecard_target:";
/// A list of [`crate::model::records::AdvisedJob`].
pub(super) const META_SCORECARD_JOBS: &str = "scorecard_jobs";
/// Prefix of the name of each [`crate::model::records::AdviceRecord`], followed by its code and its
/// subject. Stored as single values, like corrections.
pub(super) const META_ADVICE_PREFIX: &str = "advice:";
/// Prefix of the name of each [`crate::model::records::ForecastRecord`], followed by the volume.
/// Stored as single values, like corrections.
pub(super) const META_FORECAST_PREFIX: &str = "forecast:";
/// Prefix of the name of each [`crate::model::records::Run`], followed by its number. Stored as
/// single values, like corrections.
pub(super) const META_RUN_PREFIX: &str = "run:";
/// Prefix of the name of each [`crate::model::records::NodeWork`], followed by the node. Stored as single
/// values, like corrections.
pub(super) const META_NODE_WORK_PREFIX: &str = "node_work:";
/// The books of the ledger, and the prefix of the name of each of its buckets, followed by its number. Stored as single
/// values, like corrections.
pub(super) const META_LEDGER: &str = "ledger";
pub(super) const META_LEDGER_BUCKET_PREFIX: &str = "ledger:";
/// How far logs were read, and the prefix of the name of the [`access_log::DayReads`] of each source, followed by the
/// day and the source. Stored as single values, like corrections.
pub(super) const META_READS: &str = "reads";
pub(super) const META_READS_PREFIX: &str = "reads:";
/// What members hold of limits that several clusters share, and what this cluster may use of such limits without an
/// answer. Stored as single values, like corrections.
pub(super) const META_SHARED_KEEPER: &str = "shared_keeper";
pub(super) const META_SHARED_MEMBER: &str = "shared_member";
/// Prefix of the name of each [`crate::model::deletions::DeletionRecord`], followed by the database. Stored as single
/// values, like corrections.
pub(super) const META_DELETIONS_PREFIX: &str = "deletions:";
/// [`TableCounts`].
pub(super) const META_COUNTS: &str = "counts";
/// [`super::FeedPosition`].
pub(super) const META_POSITION: &str = "db_updates";
/// When the last backup that was sent completely was made, in seconds since 1970.
pub(super) const META_LAST_BACKUP: &str = "last_backup";
/// A list of [`super::feed_tables::Era`], the oldest first.
pub(super) const META_ERAS: &str = "eras";
/// Written and removed again to test for free space.
pub(super) const META_PROBE: &str = "trial";

/// Totals that would otherwise have to be computed from the tables each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableCounts {
    /// Highest number assigned so far.
    pub(super) last_seq: u64,
    pub(super) outcomes: RetainedTable,
    pub(super) events: RetainedTable,
    /// Totals of database events.
    #[serde(default)]
    pub(super) db_events: RetainedTable,
    #[serde(default)]
    pub(super) feed: FeedCounts,
}

/// Totals and trim state of the feed's tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FeedCounts {
    #[serde(rename = "shelf")]
    pub(super) size: RetainedTable,
    /// Highest number of a removed entry that had no replacement.
    #[serde(rename = "floor")]
    pub(super) highest_removed_seq: u64,
    /// Whether a trim is in progress.
    pub(super) trimming: bool,
}

/// Why a query failed; any error of the database library.
pub(super) type JournalReadError = Error;

/// The format of a database, as recorded in it.
#[derive(Debug)]
pub(super) struct StoredFormat {
    /// Its number; `None` for a new database.
    pub(super) schema: Option<u32>,
    /// The version of recliner that wrote it last, if known.
    version: Option<String>,
}

impl StoredFormat {
    pub(super) fn read(tx: &ReadTransaction) -> Result<Self, Error> {
        match tx.open_table(META) {
            Ok(meta) => Ok(Self {
                schema: read_value(&meta, META_SCHEMA)?,
                version: read_value(&meta, META_VERSION)?,
            }),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(Self { schema: None, version: None }),
            Err(why) => Err(why.into()),
        }
    }

    /// Whether this version reads it, or creates it.
    pub(super) const fn is_readable(&self) -> bool {
        matches!(self.schema, None | Some(PREVIOUS_SCHEMA..=SCHEMA))
    }

    /// The error for a format that this version does not read.
    pub(super) fn refused(self, storage: String) -> JournalOpenError {
        let writer = self.version.map_or_else(
            || "another version of recliner".to_owned(),
            |version| format!("recliner {version}"),
        );
        let found = self.schema.unwrap_or_default();
        JournalOpenError::Schema { storage, found, writer, known: SCHEMA }
    }
}

/// Parses an entry of the database.
pub(super) fn parse_entry<T: DeserializeOwned>(json: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(json).map_err(|why| {
        let text = String::from_utf8_lossy(json);
        let start: String = text.chars().take(120).collect();
        Error::Corrupted(format!("cannot read the entry {start:?}: {why}"))
    })
}

/// Reads a single value of the database.
pub(super) fn read_value<T: DeserializeOwned>(
    meta: &impl redb::ReadableTable<&'static str, &'static [u8]>,
    name: &'static str,
) -> Result<Option<T>, Error> {
    meta.get(name)?.map(|json| parse_entry(json.value())).transpose()
}
