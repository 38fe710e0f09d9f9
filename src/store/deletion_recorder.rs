//! Records once a day how many documents of each database are deleted, for the ages of deletions.
//!
//! Owns the [`DeletionRecord`]s of the databases with most deleted documents, in the journal, one value for each. Reads
//! only the published tables, after each sweep; nothing waits for it.

use crate::{
    model::{
        deletions::{CopyCounts, DeletionRecord, MAX_RANGES, SeenCopies},
        facts::FactKind,
        records::StoreError,
        target::{TargetKind, TargetState},
    },
    scan::ScanStatus,
    store::journal::{Journal, NamedValues},
    table::{DbIx, Snapshot, TargetRef},
};
use couchdb_names::Range;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::watch,
    time::{self, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Interval between checks whether a sweep has ended, and between attempts to store.
const INTERVAL: Duration = Duration::from_secs(60);

/// Interval between checks whether the journal is claimed.
const CLAIM_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of databases, and of all their copies.
const MAX_DATABASES: usize = 1_000;
const MAX_COPIES: usize = 10_000;

/// Bytes of records after which a write ends, because starts wait for the journal as well.
const BATCH_BYTES: usize = 1 << 20;

/// How long the record of a database that is no longer seen is kept.
const KEPT_UNSEEN: Duration = Duration::from_secs(30 * 86_400);

/// The counts of a database's copies in the tables.
pub fn seen_copies(snapshot: &Snapshot, db: DbIx) -> SeenCopies<'_> {
    let copies = snapshot.targets().filter(|target| target.db() == db).filter_map(counted_copy);
    copies.collect()
}

/// A copy in the shard map: its range and node, and its counts if known.
fn counted_copy(target: TargetRef<'_>) -> Option<((Range, &str), Option<CopyCounts>)> {
    let is_owned = matches!(target.state(), TargetState::Ok | TargetState::Resharding);
    let range = target.range().filter(|_| is_owned && target.kind() == TargetKind::Db)?;
    let facts = target.facts();
    // A bound needs counts from the same reading.
    let is_one_reading =
        facts.source_of(FactKind::DeletedDocs) == facts.source_of(FactKind::UpdateSeq);
    let counts = facts.deleted_docs.get().zip(facts.update_seq.get()).filter(|_| is_one_reading);
    let counts = counts.zip(facts.file_id).map(|((deleted, update_seq), file)| CopyCounts {
        deleted,
        file,
        update_seq,
        // It is read together with the other counts; the tables store it only if there was a purge.
        purge_seq: target.overhead().and_then(|it| it.purge_seq.get()).unwrap_or_default(),
    });
    Some(((range, target.node()), counts))
}

/// The stored record of a database, if there is one.
///
/// # Errors
/// If it cannot be read.
pub async fn stored_record(
    journal: &Journal,
    db: &str,
) -> Result<Option<DeletionRecord>, StoreError> {
    let bytes = journal.deletion_record(db).await?;
    Ok(bytes.and_then(|bytes| postcard::from_bytes(&bytes).ok()))
}

/// The records by database, and the databases whose records differ from the stored ones.
#[derive(Debug, Default)]
struct DeletionRecords {
    records: BTreeMap<String, DeletionRecord>,
    unsaved: BTreeSet<String>,
}

/// A database that may be recorded.
struct Candidate {
    /// Its index in the tables; `None` if it is not there.
    db: Option<DbIx>,
    rank: u64,
    copies: usize,
}

impl DeletionRecords {
    fn see(&mut self, snapshot: &Snapshot, now: Moment) {
        let chosen = self.choose(snapshot, now);
        let mut seen: BTreeMap<DbIx, SeenCopies<'_>> =
            chosen.values().flatten().map(|db| (*db, SeenCopies::new())).collect();
        for target in snapshot.targets() {
            if let Some(copies) = seen.get_mut(&target.db()) {
                copies.extend(counted_copy(target));
            }
        }
        let dropped: Vec<String> =
            self.records.keys().filter(|name| !chosen.contains_key(*name)).cloned().collect();
        for name in dropped {
            self.records.remove(&name);
            self.unsaved.insert(name);
        }
        for (name, db) in chosen {
            let Some((db, seen)) = db.and_then(|db| Some((db, seen.get(&db)?))) else { continue };
            let suffix = snapshot.db_name(db).map_or("", |name| name.suffix);
            let record = self.records.entry(name.clone()).or_default();
            let is_other = record.suffix != suffix;
            if is_other {
                *record = DeletionRecord::beginning(suffix);
            }
            if record.see(seen, now) || is_other {
                self.unsaved.insert(name);
            }
        }
    }

    /// The databases to record: those with the most deleted documents. A database with a record counts twice, so
    /// that few records end when ranks change.
    fn choose(&self, snapshot: &Snapshot, now: Moment) -> BTreeMap<String, Option<DbIx>> {
        let mut sums: BTreeMap<DbIx, (u64, usize)> = BTreeMap::new();
        for target in snapshot.targets() {
            if let Some((_, counts)) = counted_copy(target) {
                let (deleted, copies) = sums.entry(target.db()).or_default();
                *deleted = deleted.saturating_add(counts.map_or(0, |counts| counts.deleted));
                *copies += 1;
            }
        }
        let mut found: BTreeMap<String, Candidate> = BTreeMap::new();
        for (db, (deleted, copies)) in sums {
            let Some(name) = snapshot.db_name(db).map(|name| name.db.to_owned()) else { continue };
            let has_record = self.records.contains_key(&name);
            if deleted > 0 || has_record {
                let rank = deleted.saturating_mul(if has_record { 2 } else { 1 });
                let copies = copies.min(MAX_RANGES);
                found.insert(name, Candidate { db: Some(db), rank, copies });
            }
        }
        for (name, record) in &self.records {
            let is_kept = record.last_at().is_some_and(|at| at.age(now) < KEPT_UNSEEN);
            if is_kept && !found.contains_key(name) {
                let (rank, copies) = (record.last_deleted(), record.copies());
                found.insert(name.clone(), Candidate { db: None, rank, copies });
            }
        }
        let mut ranked: Vec<(String, Candidate)> = found.into_iter().collect();
        ranked.sort_by_key(|(_, it)| Reverse(it.rank));
        let mut room = MAX_COPIES;
        let fits = ranked.into_iter().take(MAX_DATABASES).take_while(|(_, it)| {
            let fits = it.copies <= room;
            room = room.saturating_sub(it.copies);
            fits
        });
        fits.map(|(name, it)| (name, it.db)).collect()
    }

    /// The next records to store.
    fn batch(&self) -> NamedValues {
        let (mut batch, mut bytes) = (NamedValues::new(), 0);
        for name in &self.unsaved {
            let value = self.records.get(name).and_then(|it| postcard::to_stdvec(it).ok());
            bytes += value.as_ref().map_or(0, Vec::len);
            batch.push((name.clone(), value));
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        batch
    }
}

/// The task.
#[derive(Debug)]
pub struct DeletionRecorderTask {
    clock: Clock,
    status: watch::Receiver<Arc<ScanStatus>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    journal: Journal,
    state: DeletionRecords,
    sweeps: u64,
}

impl DeletionRecorderTask {
    /// Creates the task.
    pub fn new(
        clock: Clock,
        (status, snapshots): (watch::Receiver<Arc<ScanStatus>>, watch::Receiver<Arc<Snapshot>>),
        journal: Journal,
    ) -> Self {
        Self { clock, status, snapshots, journal, state: DeletionRecords::default(), sweeps: 0 }
    }

    /// Continues the records of the previous process until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let recording = async {
            while let Err(why) = self.load().await {
                tracing::debug!(%why, "the recorded deletions are waiting for the journal");
                time::sleep(CLAIM_INTERVAL).await;
            }
            let mut tick = time::interval(INTERVAL);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                self.tick().await;
            }
        };
        let _stopped: Option<()> = stop.run_until_cancelled(recording).await;
    }

    async fn load(&mut self) -> Result<(), StoreError> {
        let loaded = Arc::new(Mutex::new(BTreeMap::new()));
        let seen = Arc::clone(&loaded);
        let see = move |name: &str, bytes: &[u8]| {
            if let Ok(record) = postcard::from_bytes::<DeletionRecord>(bytes) {
                let mut records = seen.lock().unwrap_or_else(PoisonError::into_inner);
                records.insert(name.to_owned(), record);
            }
        };
        self.journal.for_each_deletion_record(see).await?;
        let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
        self.state.records = std::mem::take(&mut *loaded);
        Ok(())
    }

    async fn tick(&mut self) {
        let sweeps = self.status.borrow().sweeps;
        if std::mem::replace(&mut self.sweeps, sweeps) != sweeps {
            let snapshot = Arc::clone(&self.snapshots.borrow());
            self.state.see(&snapshot, self.clock.now());
        }
        while !self.state.unsaved.is_empty() {
            let batch = self.state.batch();
            let names: Vec<String> = batch.iter().map(|(name, _)| name.clone()).collect();
            if let Err(why) = self.journal.save_deletion_records(batch).await {
                tracing::debug!(%why, "cannot store the recorded deletions");
                return;
            }
            names.iter().for_each(|name| _ = self.state.unsaved.remove(name));
        }
    }
}

#[cfg(test)]
mod tests;
