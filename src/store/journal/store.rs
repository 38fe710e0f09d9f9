//! The open database: loaded at start, written batch by batch.

use super::{
    ClusterIdentity, EventProgress, FeedPosition, JournalEvent, JournalOpenError, MeasuredBlocks,
    NamedValues, OverriddenSetting, Storage, feed_tables, marks,
    tables::{
        EVENTS, INTENTS, META, META_ADVICE_PREFIX, META_CALIBRATION, META_CLUSTER,
        META_CORRECTION_PREFIX, META_COUNTS, META_FORECAST_PREFIX, META_LAST_BACKUP,
        META_NODE_WORK_PREFIX, META_POSITION, META_PROBE, META_RUN_PREFIX, META_SCHEMA,
        META_SCORECARD_HOUR_PREFIX, META_SCORECARD_JOBS, META_SCORECARD_TARGET_PREFIX,
        META_VERSION, OUTCOMES, OVERRIDDEN_SETTINGS, PREVIOUS_SCHEMA, SCHEMA, SUSPENSIONS,
        StoredFormat, TARGET_RECORDS, TableCounts, parse_entry, read_value,
    },
    write_tx::{OutcomeKey, RecentOutcomes, WriteResult, WriteTx},
};
use crate::model::{
    records::{
        Calibration, Intent, Outcome, RecoveredState, ScorecardRecords, StateChange, Suspension,
        SuspensionScope, TargetRecord,
    },
    settings::{limits::BUDGET_PERIOD, work},
};
use redb::{Database, Error, ReadTransaction, ReadableDatabase as _, ReadableTable as _};
use serde::de::DeserializeOwned;
use std::{collections::BTreeMap, num::NonZeroUsize};
use tokio::sync::OwnedSemaphorePermit;
use wall_clock::Moment;

/// Number of recent outcomes that are recognised when they are repeated.
const RECENT_OUTCOMES: NonZeroUsize = NonZeroUsize::new(4_096).expect("a literal that is not zero");

/// Bytes written and removed again to test for free space; more than a usual batch.
const PROBE_BYTES: usize = 256 << 10;

/// Maximum entries that one commit removes from a table, in addition to twice what it adds.
const MAX_TRIMMED_PER_COMMIT: usize = 256;

/// The version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The content of one commit.
#[derive(Debug, Default)]
pub(super) struct WriteBatch {
    pub(super) changes: Vec<StateChange>,
    pub(super) setting_overrides: Vec<(OverriddenSetting, bool)>,
    pub(super) events: Vec<super::EventDetails>,
    /// When a backup was made.
    pub(super) backup_at: Option<Moment>,
    /// Held until the events are written.
    pub(super) room: Vec<OwnedSemaphorePermit>,
    /// How far the sources of the events were read.
    pub(super) progress: EventProgress,
    pub(super) has_subscribers: bool,
}

/// The open database.
#[derive(Debug)]
pub(super) struct JournalStore {
    database: Database,
    counts: TableCounts,
    recent: RecentOutcomes,
    /// Events of the last batch with their numbers, if there are subscribers.
    new_events: Vec<(u64, JournalEvent)>,
    /// Number of completed passes that saved measurements.
    completed_passes: u32,
    /// Name of the era that begins with the first database event; `None` after that.
    next_era: Option<String>,
    /// Whether the database says that this version wrote it. Opening does not write that, because
    /// the disk may be full.
    has_version: bool,
    last_backup: Option<Moment>,
}

impl JournalStore {
    /// Opens the database and loads what writing needs.
    pub(super) fn open(storage: &dyn Storage, create: bool) -> Result<Self, JournalOpenError> {
        let database = storage.open(create)?;
        let failed = |why| startup_error(storage.name(), why);
        let (counts, recent) = Self::initialise(&database)
            .map_err(failed)?
            .map_err(|other| other.refused(storage.name()))?;
        let last_backup = Self::load_last_backup(&database).map_err(failed)?;
        let era = Some(feed_tables::new_era());
        Ok(Self {
            database,
            counts,
            recent,
            new_events: Vec::new(),
            completed_passes: 0,
            next_era: era,
            has_version: false,
            last_backup,
        })
    }

    /// Creates the tables of a new database, converts one of the previous format, and loads the
    /// counts. The inner error is a format that this version does not read; such a database is not
    /// changed.
    fn initialise(
        database: &Database,
    ) -> Result<Result<(TableCounts, RecentOutcomes), StoredFormat>, Error> {
        let format = StoredFormat::read(&database.begin_read()?)?;
        if !format.is_readable() {
            return Ok(Err(format));
        }
        if format.schema != Some(SCHEMA) {
            Self::convert(database, &format)?;
        }
        let tx = database.begin_read()?;
        let counts = read_value(&tx.open_table(META)?, META_COUNTS)?.unwrap_or_default();
        let mut recent = RecentOutcomes::new(RECENT_OUTCOMES);
        let mut newest = Vec::new();
        for entry in tx.open_table(OUTCOMES)?.iter()?.rev().take(RECENT_OUTCOMES.get()) {
            newest.push(OutcomeKey::new(&parse_entry::<Outcome>(entry?.1.value().1)?));
        }
        for ended in newest.into_iter().rev() {
            recent.put(ended, ());
        }
        Ok(Ok((counts, recent)))
    }

    /// Brings a readable database to the format of this version.
    fn convert(database: &Database, format: &StoredFormat) -> Result<(), Error> {
        let tx = database.begin_write()?;
        let counts = read_value(&tx.open_table(META)?, META_COUNTS)?.unwrap_or_default();
        let recent = RecentOutcomes::new(RECENT_OUTCOMES);
        let mut writer = WriteTx::new(&tx, counts, &recent, Moment::default())?;
        writer.put_meta(META_SCHEMA, &SCHEMA)?;
        writer.put_meta(META_VERSION, &VERSION)?;
        // Numbers that readers receive from now on need an era.
        writer.begin_era(&feed_tables::new_era())?;
        if format.schema == Some(PREVIOUS_SCHEMA) {
            let before = database.begin_read()?;
            for entry in before.open_table(EVENTS)?.iter()? {
                let (seq, entry) = entry?;
                writer.insert_into_feed(seq.value(), &parse_entry(entry.value().1)?)?;
            }
        }
        writer.finish()?;
        Ok(tx.commit()?)
    }

    pub(super) const fn last_seq(&self) -> u64 {
        self.counts.last_seq
    }

    fn load_last_backup(database: &Database) -> Result<Option<Moment>, Error> {
        let seconds: Option<u64> =
            read_value(&database.begin_read()?.open_table(META)?, META_LAST_BACKUP)?;
        Ok(seconds.map(Moment::from_unix))
    }

    /// When the last backup was made.
    pub(super) const fn last_backup(&self) -> Option<Moment> {
        self.last_backup
    }

    /// Takes the events of the last batch, if there are subscribers.
    pub(super) fn take_new_events(&mut self) -> Vec<(u64, JournalEvent)> {
        std::mem::take(&mut self.new_events)
    }

    /// Begins a read transaction. It does not see later writes.
    pub(super) fn begin_read(&self) -> Result<ReadTransaction, Error> {
        Ok(self.database.begin_read()?)
    }

    /// The cluster the journal belongs to; `None` for a new one.
    pub(super) fn cluster(&self) -> Result<Option<ClusterIdentity>, Error> {
        read_value(&self.begin_read()?.open_table(META)?, META_CLUSTER)
    }

    /// Everything the job state task needs to continue.
    pub(super) fn load_state(&self, now: Moment) -> Result<RecoveredState, Error> {
        let tx = self.begin_read()?;
        let mut state = RecoveredState::default();
        for entry in tx.open_table(INTENTS)?.iter()? {
            state.intents.push(parse_entry::<Intent>(entry?.1.value())?);
        }
        state.intents.sort_by_key(|intent| intent.at);
        for entry in tx.open_table(TARGET_RECORDS)?.iter()? {
            let (target, remembered) = entry?;
            let target = target.value().parse().map_err(|_| unreadable_entry(target.value()))?;
            state.remembered.insert(target, parse_entry::<TargetRecord>(remembered.value())?);
        }
        for entry in tx.open_table(SUSPENSIONS)?.iter()? {
            let (scope, suspension) =
                parse_entry::<(SuspensionScope, Suspension)>(entry?.1.value())?;
            state.suspensions.insert(scope, suspension);
        }
        let meta = tx.open_table(META)?;
        let calibration: Option<Calibration> = read_value(&meta, META_CALIBRATION)?;
        state.calibration = calibration.unwrap_or_default();
        state.corrections = values_with_prefix(&meta, META_CORRECTION_PREFIX)?;
        state.scorecard = ScorecardRecords {
            hours: values_with_prefix(&meta, META_SCORECARD_HOUR_PREFIX)?,
            targets: values_with_prefix(&meta, META_SCORECARD_TARGET_PREFIX)?,
            jobs: read_value(&meta, META_SCORECARD_JOBS)?.unwrap_or_default(),
        };
        state.advice = values_with_prefix(&meta, META_ADVICE_PREFIX)?;
        state.forecasts = values_with_prefix(&meta, META_FORECAST_PREFIX)?;
        state.runs = values_with_prefix(&meta, META_RUN_PREFIX)?;
        state.node_work = values_with_prefix(&meta, META_NODE_WORK_PREFIX)?;
        // Outcomes are sorted by when they were noticed, so an outcome of a job that ended long ago may follow
        // newer ones. After this many of those, no earlier outcome is from the last hour.
        let mut old_ones = 0;
        for entry in tx.open_table(OUTCOMES)?.iter()?.rev() {
            let (_, entry) = entry?;
            let (ended_at, json) = entry.value();
            if Moment::from_unix(u64::from(ended_at)).age(now) > BUDGET_PERIOD {
                old_ones += 1;
                if old_ones == RECENT_OUTCOMES.get() {
                    break;
                }
                continue;
            }
            old_ones = 0;
            let outcome = parse_entry::<Outcome>(json)?;
            if outcome.started_at.age(now) <= BUDGET_PERIOD {
                state.recent_outcomes.push(outcome);
            }
        }
        state.recent_outcomes.reverse();
        Ok(state)
    }

    pub(super) fn save_measurements(&mut self, measured: &MeasuredBlocks) -> Result<(), Error> {
        super::measured::save(&self.database, measured, self.completed_passes)?;
        self.completed_passes += u32::from(measured.total.is_some());
        Ok(())
    }

    /// The single value of this name, if it was saved.
    pub(super) fn value(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        let meta = self.database.begin_read()?.open_table(META)?;
        Ok(meta.get(name)?.map(|bytes| bytes.value().to_vec()))
    }

    pub(super) fn save_values(&self, values: &NamedValues) -> Result<(), Error> {
        super::named_values::save(&self.database, values)
    }

    /// Smoosh settings that are overridden and not restored.
    pub(super) fn overridden_settings(&self) -> Result<Vec<OverriddenSetting>, Error> {
        let tx = self.begin_read()?;
        let mut all = Vec::new();
        for entry in tx.open_table(OVERRIDDEN_SETTINGS)?.iter()? {
            all.push(parse_entry(entry?.1.value())?);
        }
        Ok(all)
    }

    /// How far `_db_updates` was read.
    pub(super) fn feed_position(&self) -> Result<Option<FeedPosition>, Error> {
        read_value(&self.begin_read()?.open_table(META)?, META_POSITION)
    }

    pub(super) fn claim(&self, cluster: &ClusterIdentity) -> Result<(), Error> {
        let tx = self.database.begin_write()?;
        WriteTx::new(&tx, self.counts, &self.recent, Moment::default())?
            .put_meta(META_CLUSTER, cluster)?;
        Ok(tx.commit()?)
    }

    /// Writes a batch and removes some of the entries over budget; durable when it returns. Returns
    /// whether more must be removed. After an error it is unknown whether the batch is in the file,
    /// and the database must be opened again.
    pub(super) fn write(
        &mut self,
        batch: &WriteBatch,
        budgets: &work::JournalRetention,
        now: Moment,
    ) -> Result<bool, Error> {
        let tx = self.database.begin_write()?;
        let mut writer = WriteTx::new(&tx, self.counts, &self.recent, now)?;
        writer.collect_events(batch.has_subscribers);
        for change in &batch.changes {
            writer.apply_change(change)?;
        }
        for (setting, is_overridden) in &batch.setting_overrides {
            writer.set_overridden(setting, *is_overridden)?;
        }
        if !self.has_version {
            writer.put_meta(META_VERSION, &VERSION)?;
        }
        let has_db_events = batch.events.iter().any(|what| what.database_change().is_some());
        if let Some(era) = self.next_era.as_ref().filter(|_| has_db_events) {
            writer.begin_era(era)?;
        }
        for event in &batch.events {
            writer.insert_event(event.clone())?;
        }
        if let Some(position) = &batch.progress.position {
            writer.put_meta(META_POSITION, position)?;
        }
        if let Some(at) = batch.backup_at {
            writer.put_meta(META_LAST_BACKUP, &at.unix())?;
        }
        marks::write(&tx, &batch.progress.marks, self.completed_passes)?;
        let added = batch.changes.len() + batch.setting_overrides.len() + batch.events.len();
        let more = writer.trim(budgets, MAX_TRIMMED_PER_COMMIT + 2 * added)?;
        let WriteResult { counts, new_outcomes, new_events } = writer.finish()?;
        tx.commit()?;
        self.counts = counts;
        for ended in new_outcomes {
            self.recent.put(ended, ());
        }
        self.new_events = new_events;
        self.has_version = true;
        self.last_backup = batch.backup_at.or(self.last_backup);
        if has_db_events {
            self.next_era = None;
        }
        Ok(more)
    }

    /// Writes as much as a usual batch and removes it again.
    pub(super) fn probe_write(&self) -> Result<(), Error> {
        let tx = self.database.begin_write()?;
        tx.open_table(META)?.insert(META_PROBE, vec![0x5a; PROBE_BYTES].as_slice())?;
        tx.commit()?;
        let tx = self.database.begin_write()?;
        tx.open_table(META)?.remove(META_PROBE)?;
        Ok(tx.commit()?)
    }

    /// Entries and bytes per table, for tests.
    #[cfg(test)]
    pub(super) const fn counts(&self) -> &TableCounts {
        &self.counts
    }

    pub(super) fn close(self) -> Result<(), Error> {
        Ok(self.database.close()?)
    }
}

fn unreadable_entry(what: &str) -> Error {
    Error::Corrupted(format!("cannot read the entry {what:?}"))
}

/// Reads the single values whose names begin like this; each contains its key.
fn values_with_prefix<K: DeserializeOwned + Ord, V: DeserializeOwned>(
    meta: &impl redb::ReadableTable<&'static str, &'static [u8]>,
    prefix: &'static str,
) -> Result<BTreeMap<K, V>, Error> {
    let mut values = BTreeMap::new();
    for entry in meta.range(prefix..)? {
        let (name, stored) = entry?;
        if !name.value().starts_with(prefix) {
            break;
        }
        let (key, value) = parse_entry(stored.value())?;
        values.insert(key, value);
    }
    Ok(values)
}

/// Converts a read error at start: after verification everything should be readable.
fn startup_error(storage: String, why: Error) -> JournalOpenError {
    let text = why.to_string();
    if let Error::Io(why) = why {
        return JournalOpenError::from_database_error(storage, why.into());
    }
    JournalOpenError::Damaged { storage, why: text }
}
