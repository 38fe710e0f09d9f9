//! The task that keeps the books: passes in the measurements, and stores the books.
//!
//! Owns the [`Books`]. They are stored after each sweep, like the measured facts that they belong to, and when a bucket
//! ends. A process that is killed loses what it booked since, and the next one finds the same changes again.

use super::{Books, Bucket, history::BucketSums};
use crate::{
    model::{forecast::GrowthHistories, records::StoreError, target::TargetKind},
    plan::disk::Disks,
    scan::ScanStatus,
    store::journal::{EventDetails, Journal, JournalEvent, LedgerWrite, StoredEvents},
    table::Movements,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{broadcast, mpsc, watch},
    time::{self, Instant, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Interval between two publications, and between two checks of the clock.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(2);

/// Interval between two publications of the entries for forecasts, and of unchanged books.
const HISTORY_INTERVAL: Duration = Duration::from_secs(60);

/// Pause after the journal could not be read or written.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Delay from a sweep to storing the books, because the archive of facts is written then.
const SAVE_AFTER_SWEEP: Duration = Duration::from_secs(2);

/// The inputs of the task.
#[derive(Debug)]
pub(crate) struct LedgerInputs {
    /// The movements on the disks.
    pub(crate) movements: mpsc::Receiver<Movements>,
    /// The scanner's status.
    pub(crate) status: watch::Receiver<Arc<ScanStatus>>,
    /// The measured volumes.
    pub(crate) disks: watch::Receiver<Arc<Disks>>,
    pub(crate) journal: Journal,
    /// The interval of sweeps.
    pub(crate) interval: Duration,
}

/// The published state.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    pub(crate) books: watch::Receiver<Arc<Books>>,
    /// The entries for each volume.
    pub(crate) histories: watch::Receiver<Arc<GrowthHistories>>,
}

/// The task that keeps the books.
#[derive(Debug)]
pub(crate) struct LedgerTask {
    clock: Clock,
    inputs: LedgerInputs,
    books: Books,
    published: watch::Sender<Arc<Books>>,
    published_at: Option<Instant>,
    sums: BucketSums,
    histories: watch::Sender<Arc<GrowthHistories>>,
    histories_at: Option<Instant>,
    sweeps: u64,
    save_at: Option<Instant>,
}

impl LedgerTask {
    /// Creates the task, and the receivers of its state.
    pub(crate) fn new(clock: Clock, inputs: LedgerInputs) -> (Self, Ledger) {
        let (published, books) = watch::channel(Arc::default());
        let (histories, histories_rx) = watch::channel(Arc::default());
        let task = Self {
            clock,
            inputs,
            books: Books::default(),
            published,
            published_at: None,
            sums: BucketSums::default(),
            histories,
            histories_at: None,
            sweeps: 0,
            save_at: None,
        };
        (task, Ledger { books, histories: histories_rx })
    }

    /// Reads the books of the previous process, then keeps them until `stop`, or until the scanner ends.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut events = self.inputs.journal.subscribe();
        if stop.run_until_cancelled(self.resume()).await.is_none() {
            return;
        }
        let mut tick = time::interval(PUBLISH_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                moved = self.inputs.movements.recv() => {
                    let Some(moved) = moved else { return };
                    self.books.receive(moved, self.clock.now());
                    self.measure();
                }
                Ok(()) = self.inputs.disks.changed() => self.measure(),
                stored = events.recv() => match stored {
                    Ok(stored) => self.see_events(&stored),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                },
                _ = tick.tick() => {
                    if stop.run_until_cancelled(self.tick()).await.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Continues the books of the previous process.
    async fn resume(&mut self) {
        loop {
            match self.read_books().await {
                Ok((books, sums)) => {
                    (self.books, self.sums) = (books, sums);
                    return;
                }
                Err(why) => tracing::debug!(%why, "the ledger is waiting for the journal"),
            }
            time::sleep(RETRY_AFTER).await;
        }
    }

    async fn read_books(&self) -> Result<(Books, BucketSums), StoreError> {
        let (journal, now) = (&self.inputs.journal, self.clock.now());
        let stored = journal.ledger_books().await?;
        let current = stored.as_deref().and_then(Books::current_of);
        let buckets = journal.ledger_buckets(current.into_iter().collect()).await?;
        let current = buckets.first().map(|(_, bytes)| &**bytes);
        let books = Books::resume(stored.as_deref().zip(current), self.inputs.interval, now);
        let buckets = journal.ledger_buckets(BucketSums::needed(&books, now)).await?;
        let mut sums = BucketSums::default();
        let buckets = buckets.iter().filter_map(|(_, bytes)| Bucket::decode(bytes));
        buckets.for_each(|bucket| sums.add(&bucket));
        Ok((books, sums))
    }

    fn measure(&mut self) {
        let disks = Arc::clone(&self.inputs.disks.borrow_and_update());
        self.books.measure(&disks, self.clock.now());
    }

    fn see_events(&mut self, events: &StoredEvents) {
        for (_, event) in events.iter() {
            let JournalEvent { at, details } = event;
            if let EventDetails::Finished {
                target, node, owner, freed_bytes: Some(freed), ..
            } = details
            {
                let is_index = target.kind() == TargetKind::View;
                let of = (target.database(), is_index);
                self.books.compacted(node, of, *owner, *freed, *at);
            }
        }
    }

    async fn tick(&mut self) {
        self.books.advance(self.clock.now());
        let sweeps = self.inputs.status.borrow().sweeps;
        if std::mem::replace(&mut self.sweeps, sweeps) != sweeps {
            self.save_at.get_or_insert_with(|| Instant::now() + SAVE_AFTER_SWEEP);
            self.books.swept(self.clock.now());
            self.measure();
        }
        if self.books.has_closed()
            || self.histories_at.is_none_or(|at| at.elapsed() >= HISTORY_INTERVAL)
        {
            self.histories_at = Some(Instant::now());
            let histories = self.sums.histories(&self.books, self.clock.now());
            self.histories.send_replace(Arc::new(histories));
        }
        let is_due = self.save_at.is_some_and(|at| at <= Instant::now());
        if self.books.is_open() && (is_due || (self.save_at.is_none() && self.books.has_closed())) {
            self.save_at = None;
            self.save().await;
        }
        // A copy of the books may have megabytes.
        let is_old = self.published_at.is_none_or(|at| at.elapsed() >= HISTORY_INTERVAL);
        if self.books.take_changed() || is_old {
            self.published_at = Some(Instant::now());
            self.published.send_replace(Arc::new(self.books.clone()));
        }
    }

    /// Stores the books, and sums up the oldest hours.
    async fn save(&mut self) {
        if let Some(numbers) = self.books.due_merge() {
            match self.inputs.journal.ledger_buckets(numbers.clone()).await {
                Ok(stored) => {
                    let buckets = stored.iter().filter_map(|(_, bytes)| Bucket::decode(bytes));
                    self.books.merge(&numbers, buckets.collect());
                }
                Err(why) => {
                    tracing::debug!(%why, "cannot sum up the oldest hours of the ledger")
                }
            }
        }
        let Some(books) = self.books.encode() else { return };
        let (buckets, removed) = self.books.to_save();
        let buckets = buckets.into_iter().filter_map(|it| Some((it.number, Some(it.encode()?))));
        let removed = removed.iter().map(|number| (*number, None));
        let changes = LedgerWrite { books, buckets: buckets.chain(removed).collect() };
        match self.inputs.journal.save_ledger(changes).await {
            Ok(()) => self.books.saved(),
            Err(why) => {
                tracing::debug!(%why, "cannot store the ledger");
                self.save_at = Some(Instant::now() + RETRY_AFTER);
            }
        }
    }
}
