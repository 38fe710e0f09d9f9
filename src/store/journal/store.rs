//! The open database: loaded at start, written batch by batch.

use super::{
    Event, Identity, Measured, OpenError, Place, Position, Reached, Taken, feed, marks,
    pen::{Ended, Pen, Written},
    tables::{
        Counts, EVENTS, INTENTS, META, META_CALIBRATION, META_CLUSTER, META_COUNTS, META_POSITION,
        META_SCHEMA, META_TRIAL, OUTCOMES, REMEMBERED, SCHEMA, SCHEMA_BEFORE, SUSPENSIONS, TAKEN,
    },
};
use crate::model::{
    memory::{Calibration, Change, Intent, Outcome, Recovered, Remembered, Scope, Suspension},
    settings::work,
};
use lru::LruCache;
use redb::{Database, Error, ReadTransaction, ReadableDatabase as _, ReadableTable as _};
use serde::de::DeserializeOwned;
use std::{num::NonZeroUsize, time::Duration};
use wall_clock::Moment;

/// The latest outcomes, by which a repeated one is recognised: far more than any batch has.
pub(super) type RecentOutcomes = LruCache<Ended, ()>;

/// How many of them are kept.
const RECENT_OUTCOMES: NonZeroUsize = NonZeroUsize::new(4_096).expect("a literal that is not zero");

/// Outcomes of jobs that started within this time are loaded, because the hourly budget counts
/// them.
const HOUR: Duration = Duration::from_secs(3600);

/// Bytes written and removed again to test for free space; more than a usual batch.
const TRIAL: usize = 256 << 10;

/// Maximum entries that one commit removes from a table, in addition to twice what it adds.
const TRIM: usize = 256;

/// The content of one commit.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) changes: Vec<Change>,
    pub(super) taken: Vec<(Taken, bool)>,
    pub(super) events: Vec<super::What>,
    /// How far the sources of the events were read.
    pub(super) reached: Reached,
    /// Whether events have subscribers.
    pub(super) hears: bool,
}

/// The open database.
#[derive(Debug)]
pub(super) struct Store {
    database: Database,
    counts: Counts,
    recent: RecentOutcomes,
    /// Events of the last batch with their numbers, where somebody hears of them.
    told: Vec<(u64, Event)>,
    /// Number of completed passes that saved measurements.
    passes: u32,
    /// Name of the era that begins with the first database event; `None` after that.
    era: Option<String>,
}

impl Store {
    /// Opens the database and loads what writing needs.
    pub(super) fn open(place: &dyn Place, make: bool) -> Result<Self, OpenError> {
        let database = place.open(make)?;
        let (counts, recent) = Self::begun(&database)
            .map_err(|why| broken(place.name(), why))?
            .map_err(|found| OpenError::Schema { place: place.name(), found, known: SCHEMA })?;
        let era = Some(feed::new_era());
        Ok(Self { database, counts, recent, told: Vec::new(), passes: 0, era })
    }

    /// Makes the tables of a new database, and reads what counts of an old one. The inner
    /// error is the number of another form.
    fn begun(database: &Database) -> Result<Result<(Counts, RecentOutcomes), u32>, Error> {
        let schema: Option<u32> = {
            let tx = database.begin_read()?;
            match tx.open_table(META) {
                Ok(meta) => value(&meta, META_SCHEMA)?,
                Err(redb::TableError::TableDoesNotExist(_)) => None,
                Err(why) => return Err(why.into()),
            }
        };
        match schema {
            Some(SCHEMA) => {}
            Some(SCHEMA_BEFORE) | None => {
                let tx = database.begin_write()?;
                let counts = value(&tx.open_table(META)?, META_COUNTS)?.unwrap_or_default();
                let recent = RecentOutcomes::new(RECENT_OUTCOMES);
                let mut pen = Pen::new(&tx, counts, &recent, Moment::default())?;
                pen.meta(META_SCHEMA, &SCHEMA)?;
                // Numbers that readers receive from now on need an era.
                pen.begin_era(&feed::new_era())?;
                if schema.is_some() {
                    let before = database.begin_read()?;
                    for entry in before.open_table(EVENTS)?.iter()? {
                        let (seq, entry) = entry?;
                        pen.feed(seq.value(), &parsed(entry.value().1)?)?;
                    }
                }
                pen.done()?;
                tx.commit()?;
            }
            Some(other) => return Ok(Err(other)),
        }
        let tx = database.begin_read()?;
        let counts = value(&tx.open_table(META)?, META_COUNTS)?.unwrap_or_default();
        let mut recent = RecentOutcomes::new(RECENT_OUTCOMES);
        let mut newest = Vec::new();
        for entry in tx.open_table(OUTCOMES)?.iter()?.rev().take(RECENT_OUTCOMES.get()) {
            newest.push(Ended::of(&parsed::<Outcome>(entry?.1.value().1)?));
        }
        for ended in newest.into_iter().rev() {
            recent.put(ended, ());
        }
        Ok(Ok((counts, recent)))
    }

    pub(super) const fn last_seq(&self) -> u64 {
        self.counts.last_seq
    }

    /// Takes the events of the last batch, if there are subscribers.
    pub(super) fn told(&mut self) -> Vec<(u64, Event)> {
        std::mem::take(&mut self.told)
    }

    /// Begins a read transaction. It does not see later writes.
    pub(super) fn read(&self) -> Result<ReadTransaction, Error> {
        Ok(self.database.begin_read()?)
    }

    /// The cluster the journal belongs to; `None` for a new one.
    pub(super) fn cluster(&self) -> Result<Option<Identity>, Error> {
        value(&self.read()?.open_table(META)?, META_CLUSTER)
    }

    /// Everything the job state task needs to continue.
    pub(super) fn recovered(&self, now: Moment) -> Result<Recovered, Error> {
        let tx = self.read()?;
        let mut found = Recovered::default();
        for entry in tx.open_table(INTENTS)?.iter()? {
            found.intents.push(parsed::<Intent>(entry?.1.value())?);
        }
        found.intents.sort_by_key(|intent| intent.at);
        for entry in tx.open_table(REMEMBERED)?.iter()? {
            let (target, remembered) = entry?;
            let target = target.value().parse().map_err(|_| unreadable(target.value()))?;
            found.remembered.insert(target, parsed::<Remembered>(remembered.value())?);
        }
        for entry in tx.open_table(SUSPENSIONS)?.iter()? {
            let (scope, suspension) = parsed::<(Scope, Suspension)>(entry?.1.value())?;
            found.suspensions.insert(scope, suspension);
        }
        let calibration: Option<Calibration> = value(&tx.open_table(META)?, META_CALIBRATION)?;
        found.calibration = calibration.unwrap_or_default();
        // Written as jobs ended: behind as many that ended long ago, none is of this hour.
        for entry in tx.open_table(OUTCOMES)?.iter()?.rev().take(RECENT_OUTCOMES.get()) {
            let outcome = parsed::<Outcome>(entry?.1.value().1)?;
            if outcome.started_at.age(now) <= HOUR {
                found.recent.push(outcome);
            }
        }
        found.recent.reverse();
        Ok(found)
    }

    pub(super) fn keep_measured(&mut self, measured: &Measured) -> Result<(), Error> {
        super::measured::keep(&self.database, measured, self.passes)?;
        self.passes += u32::from(measured.total.is_some());
        Ok(())
    }

    /// Smoosh settings that are overridden and not restored.
    pub(super) fn taken(&self) -> Result<Vec<Taken>, Error> {
        let tx = self.read()?;
        let mut all = Vec::new();
        for entry in tx.open_table(TAKEN)?.iter()? {
            all.push(parsed(entry?.1.value())?);
        }
        Ok(all)
    }

    /// How far `_db_updates` was read.
    pub(super) fn position(&self) -> Result<Option<Position>, Error> {
        value(&self.read()?.open_table(META)?, META_POSITION)
    }

    pub(super) fn claim(&self, cluster: &Identity) -> Result<(), Error> {
        let tx = self.database.begin_write()?;
        Pen::new(&tx, self.counts, &self.recent, Moment::default())?.meta(META_CLUSTER, cluster)?;
        Ok(tx.commit()?)
    }

    /// Writes a batch and removes some of the entries over budget; durable when it returns. Returns
    /// whether more must be removed. After an error it is unknown whether the batch is in the file,
    /// and the database must be opened again.
    pub(super) fn write(
        &mut self,
        batch: &Batch,
        budgets: &work::Journal,
        now: Moment,
    ) -> Result<bool, Error> {
        let tx = self.database.begin_write()?;
        let mut pen = Pen::new(&tx, self.counts, &self.recent, now)?;
        pen.tells(batch.hears);
        for change in &batch.changes {
            pen.change(change)?;
        }
        for (taken, is_taken) in &batch.taken {
            pen.take(taken, *is_taken)?;
        }
        let begins = batch.events.iter().any(|what| what.database().is_some());
        if let Some(era) = self.era.as_ref().filter(|_| begins) {
            pen.begin_era(era)?;
        }
        for event in &batch.events {
            pen.event(event.clone())?;
        }
        if let Some(position) = &batch.reached.position {
            pen.meta(META_POSITION, position)?;
        }
        marks::write(&tx, &batch.reached.marks, self.passes)?;
        let added = batch.changes.len() + batch.taken.len() + batch.events.len();
        let more = pen.trim(budgets, TRIM + 2 * added)?;
        let Written { counts, ended, told } = pen.done()?;
        tx.commit()?;
        self.counts = counts;
        for ended in ended {
            self.recent.put(ended, ());
        }
        self.told = told;
        if begins {
            self.era = None;
        }
        Ok(more)
    }

    /// Writes as much as a usual batch and removes it again.
    pub(super) fn try_out(&self) -> Result<(), Error> {
        let tx = self.database.begin_write()?;
        tx.open_table(META)?.insert(META_TRIAL, vec![0x5a; TRIAL].as_slice())?;
        tx.commit()?;
        let tx = self.database.begin_write()?;
        tx.open_table(META)?.remove(META_TRIAL)?;
        Ok(tx.commit()?)
    }

    /// Entries and bytes per table, for tests.
    #[cfg(test)]
    pub(super) const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Closes the file.
    pub(super) fn close(self) -> Result<(), Error> {
        Ok(self.database.close()?)
    }
}

/// Parses an entry of the database.
pub(super) fn parsed<T: DeserializeOwned>(said: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(said).map_err(|why| {
        let text = String::from_utf8_lossy(said);
        let start: String = text.chars().take(120).collect();
        Error::Corrupted(format!("cannot read the entry {start:?}: {why}"))
    })
}

fn unreadable(what: &str) -> Error {
    Error::Corrupted(format!("cannot read the entry {what:?}"))
}

/// Reads a single value of the database.
pub(super) fn value<T: DeserializeOwned>(
    meta: &impl redb::ReadableTable<&'static str, &'static [u8]>,
    name: &'static str,
) -> Result<Option<T>, Error> {
    meta.get(name)?.map(|said| parsed(said.value())).transpose()
}

/// Converts a read error at start: after verification everything should be readable.
fn broken(place: String, why: Error) -> OpenError {
    let said = why.to_string();
    if let Error::Io(why) = why {
        return OpenError::of(place, why.into());
    }
    OpenError::Damaged { place, why: said }
}
