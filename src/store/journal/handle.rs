//! The handle by which other tasks use the journal.

use super::{
    ClaimError, ClusterIdentity, EventDetails, EventProgress, EventsQuery, FeedPage, FeedPosition,
    FeedQuery, HistoryQuery, JournalEvent, LedgerWrite, MeasuredBlocks, OverriddenSetting, Page,
    copy::{self, CopyError, JournalCopy},
    feed_tables, ledger_buckets, marks, measured,
    named_values::{self, NamedValues},
    query,
    request::{JournalRequest, Query},
    tables::{
        JournalReadError, META_DELETIONS_PREFIX, META_LEDGER, META_READS, META_READS_PREFIX,
        META_SHARED_KEEPER, META_SHARED_MEMBER,
    },
};
use crate::{
    model::records::{
        JournalFailure, Outcome, RecoveredState, StateChange, StateStore, StoreError,
    },
    table::{PublishedDbState, TableBlock},
    tasks::unwrap_join,
};
use futures::{FutureExt as _, future::BoxFuture};
use redb::ReadTransaction;
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// Maximum number of events in batches that wait to be written, so that the file can be closed within seconds. A
/// larger batch waits alone.
pub(super) const MAX_QUEUED_EVENTS: usize = 1 << 14;

/// Whose record of shared limits is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedRecord {
    /// What the keeper granted.
    Keeper,
    /// What this cluster may use without an answer.
    Member,
}

impl SharedRecord {
    const fn name(self) -> &'static str {
        match self {
            Self::Keeper => META_SHARED_KEEPER,
            Self::Member => META_SHARED_MEMBER,
        }
    }
}

/// State of the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalHealth {
    /// Number of the newest stored entry.
    pub last_seq: u64,
    /// Since when the journal cannot be used, and why.
    pub failure: Option<(Moment, JournalFailure)>,
    /// Size of the file in bytes, if known.
    pub file_bytes: Option<u64>,
    /// When the last backup was made, by this process or an earlier one.
    pub last_backup: Option<Moment>,
}

/// Handle to the journal; cheap to clone.
#[derive(Clone, Debug)]
pub struct Journal {
    pub(super) requests: mpsc::Sender<JournalRequest>,
    pub(super) events: mpsc::Sender<EventDetails>,
    pub(super) health: watch::Receiver<Arc<JournalHealth>>,
    pub(super) dropped: Arc<AtomicU64>,
    /// Room for further events of batches.
    pub(super) event_room: Arc<Semaphore>,
    pub(super) stored_events: broadcast::Sender<StoredEvents>,
    /// Where a copy is written.
    pub(super) copy_path: Arc<Path>,
    /// Held while a copy is written or read.
    pub(super) copy_permit: Arc<Semaphore>,
}

/// The events of one commit with their numbers, sent after the commit is durable.
pub type StoredEvents = Arc<[(u64, JournalEvent)]>;

impl Journal {
    /// Claims the journal for a cluster and loads its state. Nothing is stored before the claim.
    ///
    /// # Errors
    /// Names both clusters if the journal belongs to another one; otherwise says what is wrong
    /// with the file.
    pub async fn claim(&self, cluster: ClusterIdentity) -> Result<RecoveredState, ClaimError> {
        self.query(|answer| Query::Claim(Box::new(cluster), answer)).await?
    }

    /// Records that smoosh settings are about to be overridden. A value recorded first stays until
    /// the setting is restored.
    ///
    /// # Errors
    /// If the record may not be on the disk.
    pub async fn record_overrides(
        &self,
        settings: Vec<OverriddenSetting>,
    ) -> Result<(), StoreError> {
        let settings = settings.into_iter().map(|it| (it, true)).collect();
        self.request(|answer| JournalRequest::SetOverridden(settings, answer)).await?
    }

    /// Records that smoosh settings were restored.
    ///
    /// # Errors
    /// If the record may not be on the disk.
    pub async fn record_restored(
        &self,
        settings: Vec<OverriddenSetting>,
    ) -> Result<(), StoreError> {
        let settings = settings.into_iter().map(|it| (it, false)).collect();
        self.request(|answer| JournalRequest::SetOverridden(settings, answer)).await?
    }

    /// The smoosh settings that are overridden and not restored yet.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn overridden_settings(&self) -> Result<Vec<OverriddenSetting>, StoreError> {
        self.query(Query::OverriddenSettings).await?
    }

    /// Saves measured facts for the next start.
    ///
    /// # Errors
    /// If they may not be on the disk.
    pub async fn save_measurements(&self, measured: MeasuredBlocks) -> Result<(), StoreError> {
        self.query(|answer| Query::SaveMeasurements(Box::new(measured), answer)).await?
    }

    /// The measured facts as last saved.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn load_measurements(&self) -> Result<Vec<TableBlock>, StoreError> {
        self.read(measured::read).await
    }

    /// The state of databases at their last event, if it is newer than the saved facts.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn marks(&self) -> Result<Vec<PublishedDbState>, StoreError> {
        self.read(marks::read).await
    }

    /// The books of the ledger as last saved.
    ///
    /// # Errors
    /// If they cannot be read, or the journal is not claimed yet.
    pub async fn ledger_books(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.query(|answer| Query::Value(META_LEDGER, answer)).await?
    }

    /// Saves the books of the ledger and some of its buckets, all or nothing.
    ///
    /// # Errors
    /// If they may not be on the disk.
    pub async fn save_ledger(&self, changes: LedgerWrite) -> Result<(), StoreError> {
        self.query(|answer| Query::SaveValues(changes.into_values(), answer)).await?
    }

    /// How far logs were read, as last saved.
    ///
    /// # Errors
    /// If it cannot be read, or the journal is not claimed yet.
    pub async fn reads_progress(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.query(|answer| Query::Value(META_READS, answer)).await?
    }

    /// Calls `see` with the reads of each day by name, as [`Self::save_reads`] was given it.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn for_each_day_of_reads(
        &self,
        see: impl FnMut(&str, &[u8]) + Send + 'static,
    ) -> Result<(), StoreError> {
        self.read(move |tx| named_values::for_each(tx, META_READS_PREFIX, see)).await
    }

    /// The reads of the days of these names, as far as they are stored.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn days_of_reads(
        &self,
        names: Vec<String>,
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names = names.into_iter().map(|name| format!("{META_READS_PREFIX}{name}"));
        self.read(move |tx| named_values::read(tx, names)).await
    }

    /// Saves how far logs were read, and the reads of days by name, all or nothing; a day without content is removed.
    ///
    /// # Errors
    /// If they may not be on the disk.
    pub async fn save_reads(&self, progress: Vec<u8>, days: NamedValues) -> Result<(), StoreError> {
        let days = days.into_iter().map(|(name, day)| (format!("{META_READS_PREFIX}{name}"), day));
        let values = std::iter::once((META_READS.to_owned(), Some(progress))).chain(days).collect();
        self.query(|answer| Query::SaveValues(values, answer)).await?
    }

    /// Calls `see` with the stored record of deletions of each database, by name.
    ///
    /// # Errors
    /// If they cannot be read, or the journal is not claimed yet.
    pub async fn for_each_deletion_record(
        &self,
        see: impl FnMut(&str, &[u8]) + Send + 'static,
    ) -> Result<(), StoreError> {
        // Only a claimed journal answers; nothing has this name.
        self.query(|answer| Query::Value(META_DELETIONS_PREFIX, answer)).await??;
        self.read(move |tx| named_values::for_each(tx, META_DELETIONS_PREFIX, see)).await
    }

    /// The stored record of deletions of a database, if there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn deletion_record(&self, db: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let name = format!("{META_DELETIONS_PREFIX}{db}");
        let found = self.read(move |tx| named_values::read(tx, std::iter::once(name))).await?;
        Ok(found.into_iter().flatten().next())
    }

    /// Saves records of deletions by database, all or nothing; one without content is removed.
    ///
    /// # Errors
    /// If they may not be on the disk.
    pub async fn save_deletion_records(&self, records: NamedValues) -> Result<(), StoreError> {
        let name = |(db, record)| (format!("{META_DELETIONS_PREFIX}{db}"), record);
        let values = records.into_iter().map(name).collect();
        self.query(|answer| Query::SaveValues(values, answer)).await?
    }

    /// The ledger's buckets with these numbers, as far as they are stored.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn ledger_buckets(
        &self,
        numbers: Vec<u32>,
    ) -> Result<Vec<(u32, Vec<u8>)>, StoreError> {
        self.read(move |tx| ledger_buckets::read(tx, &numbers)).await
    }

    /// What the keeper or a member of shared limits saved last.
    ///
    /// # Errors
    /// If it cannot be read, or the journal is not claimed yet.
    pub(crate) async fn shared_record(
        &self,
        whose: SharedRecord,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        self.query(|answer| Query::Value(whose.name(), answer)).await?
    }

    /// Saves what the keeper or a member of shared limits must know after a restart.
    ///
    /// # Errors
    /// If it may not be on the disk.
    pub(crate) async fn save_shared_record(
        &self,
        whose: SharedRecord,
        bytes: Vec<u8>,
    ) -> Result<(), StoreError> {
        let values = vec![(whose.name().to_owned(), Some(bytes))];
        self.query(|answer| Query::SaveValues(values, answer)).await?
    }

    /// Records an event soon, together with others. If the queue is full or the journal cannot be
    /// written, the event is dropped and counted.
    pub fn record(&self, what: EventDetails) {
        if self.events.try_send(what).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a batch of events at once, in one commit. If the queue is full or the journal cannot
    /// be written, the batch is dropped and counted.
    pub fn record_batch(&self, batch: Vec<EventDetails>) {
        self.record_batch_with_progress(batch, EventProgress::default());
    }

    /// Like [`Self::record_batch`], and stores in the same commit how far the source of the events had
    /// been read.
    pub fn record_batch_with_progress(&self, batch: Vec<EventDetails>, reached: EventProgress) {
        let count = batch.len();
        let needs = u32::try_from(count.min(MAX_QUEUED_EVENTS)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.event_room).try_acquire_many_owned(needs).ok();
        let is_sent = room.is_some_and(|room| {
            let request = JournalRequest::RecordEvents(batch, reached, Some(room));
            self.requests.try_send(request).is_ok()
        });
        if !is_sent && count > 0 {
            self.dropped.fetch_add(count as u64, Ordering::Relaxed);
            tracing::warn!("events are dropped: they arrive faster than the journal writes them");
        }
    }

    /// How far `_db_updates` was read by this process or an earlier one.
    ///
    /// # Errors
    /// If it cannot be read, or the journal is not claimed yet.
    pub async fn feed_position(&self) -> Result<Option<FeedPosition>, StoreError> {
        self.query(Query::FeedPosition).await?
    }

    /// Subscribes to all events from now on, in the order of their numbers and after they are
    /// stored. A subscriber that falls behind receives an error and can read the missed events with
    /// [`Self::events`].
    pub fn subscribe(&self) -> broadcast::Receiver<StoredEvents> {
        self.stored_events.subscribe()
    }

    /// The current state of the journal.
    pub fn health(&self) -> watch::Receiver<Arc<JournalHealth>> {
        self.health.clone()
    }

    /// Number of events dropped since the start.
    pub fn dropped_events(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Outcomes of jobs, newest first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn history(&self, query: HistoryQuery) -> Result<Page<Outcome>, StoreError> {
        self.read(move |tx| query::history(tx, &query)).await
    }

    /// Events, oldest first.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn events(&self, query: EventsQuery) -> Result<Page<JournalEvent>, StoreError> {
        self.read(move |tx| query::events(tx, &query)).await
    }

    /// Number of the oldest among the newest `query.limit` matching events. Reading page by page
    /// can start there. `None` if no event matches.
    ///
    /// # Errors
    /// If they cannot be read.
    pub async fn first_of_newest_events(
        &self,
        query: EventsQuery,
    ) -> Result<Option<u64>, StoreError> {
        self.read(move |tx| query::first_of_newest(tx, &query)).await
    }

    /// The latest event of each type of each database.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn feed(&self, query: FeedQuery) -> Result<FeedPage, StoreError> {
        self.read(move |tx| feed_tables::read(tx, &query)).await
    }

    /// Copies the journal as it is now, while it continues to be written. Dropping the future stops
    /// the copy soon.
    ///
    /// # Errors
    /// If another copy is in progress, the journal cannot be read, or the disk refuses.
    pub async fn copy(&self) -> Result<JournalCopy, CopyError> {
        let permit = Arc::clone(&self.copy_permit);
        let permit = permit.try_acquire_owned().map_err(|_| CopyError::Busy)?;
        let source = self.query(Query::BeginRead).await??;
        let (path, bytes) = (Arc::clone(&self.copy_path), self.health.borrow().file_bytes);
        let cancelled = CancellationToken::new();
        let _cancels = cancelled.clone().drop_guard();
        let write = move || copy::write(source, &path, bytes, permit, &cancelled);
        unwrap_join(tokio::task::spawn_blocking(write).await).unwrap_or(Err(CopyError::Cancelled))
    }

    /// Records soon that a copy made at this time was sent completely. It is not recorded if the journal
    /// cannot be written.
    pub fn record_backup(&self, at: Moment) {
        if self.requests.try_send(JournalRequest::RecordBackup(at)).is_err() {
            tracing::warn!("cannot record the time of the backup: the journal is busy or closed");
        }
    }

    /// Reads on a blocking thread while the journal's own thread continues to write.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ReadTransaction) -> Result<T, JournalReadError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let tx = self.query(Query::BeginRead).await??;
        match unwrap_join(tokio::task::spawn_blocking(move || read(&tx)).await) {
            Some(Ok(found)) => Ok(found),
            Some(Err(why)) => Err(StoreError(format!("cannot read the journal: {why}"))),
            None => Err(closed_error()),
        }
    }

    async fn query<T>(
        &self,
        query: impl FnOnce(oneshot::Sender<T>) -> Query,
    ) -> Result<T, StoreError> {
        self.request(|answer| JournalRequest::Query(query(answer))).await
    }

    async fn request<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> JournalRequest,
    ) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.map_err(|_| closed_error())?;
        answered.await.map_err(|_| closed_error())
    }
}

fn closed_error() -> StoreError {
    StoreError("the journal is closed: recliner is stopping".to_owned())
}

impl StateStore for Journal {
    fn failure(&self) -> Option<(Moment, JournalFailure)> {
        self.health.borrow().failure.clone()
    }

    fn store(&self, changes: Vec<StateChange>) -> BoxFuture<'static, Result<(), StoreError>> {
        let journal = self.clone();
        async move { journal.request(|answer| JournalRequest::ApplyChanges(changes, answer)).await? }.boxed()
    }
}
