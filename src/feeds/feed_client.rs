//! The feed client: one task that follows CouchDB's feeds.
//!
//! Owns two feeds: `_db_updates`, if the cluster has it, for writes; and `_dbs/_changes` of one
//! node for databases that are created, deleted or moved. It tells the scanner which databases
//! changed, and since when no change was missed. The journal receives the events; without
//! `_db_updates`, it receives the changes that the scanner detects on its own. Never reads a target
//! and never decides what a change means for it.
//!
//! A feed may break, go back in time, repeat itself, stall or disappear. It is then reopened after
//! increasing pauses, at its last position or from now. While changes may have been missed, the
//! scanner reads everything in each sweep, as it would without feeds.

mod backoff;
mod batch;
mod change_feeds;
mod collector;
mod fallback_events;
mod feed_step;
mod map_feed;
mod resume;
mod status;
mod updates_feed;

pub use change_feeds::ChangeFeeds;
pub use status::FeedClientStatus;

use crate::{
    model::settings::work::Follow,
    scan::{self, DbEventBatch, ScanCommand},
    store::journal::Journal,
    tasks::publish_if_changed,
};
use collector::ChangeCollector;
use feed_step::FeedStep;
use std::sync::Arc;
use tokio::{
    sync::{broadcast, mpsc, watch},
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Capacity of the queue of feed steps; a feed that gets further ahead waits.
const STEP_QUEUE_LEN: usize = 64;

/// Settings of the feed client.
pub type FeedSettings = Follow;

/// Handle for reading the client's status.
#[derive(Clone, Debug)]
pub struct FeedClientHandle {
    /// The last published status.
    pub status: watch::Receiver<Arc<FeedClientStatus>>,
}

/// The task that follows the feeds.
#[derive(Debug)]
pub struct FeedClientTask {
    clock: Clock,
    feeds: watch::Receiver<Arc<dyn ChangeFeeds>>,
    settings: watch::Receiver<FeedSettings>,
    scanner: scan::ScanHandle,
    journal: Option<Journal>,
    event_batches: broadcast::Receiver<DbEventBatch>,
    status: watch::Sender<Arc<FeedClientStatus>>,
    collector: ChangeCollector,
}

enum FeedClientEvent {
    Step(FeedStep),
    DbEvents(DbEventBatch),
    TimerDue,
}

impl FeedClientTask {
    /// Creates the task and its handle. Without a journal, events are not recorded.
    pub fn new(
        clock: Clock,
        feeds: watch::Receiver<Arc<dyn ChangeFeeds>>,
        settings: watch::Receiver<FeedSettings>,
        scanner: scan::ScanHandle,
        journal: Option<Journal>,
    ) -> (Self, FeedClientHandle) {
        let (status, reader) = watch::channel(Arc::default());
        let collector = ChangeCollector::default();
        let event_batches = scanner.db_events();
        let task =
            Self { clock, feeds, settings, scanner, journal, event_batches, status, collector };
        (task, FeedClientHandle { status: reader })
    }

    /// Runs until `stop`, or until the sender of settings is gone.
    pub async fn run(mut self, stop: CancellationToken) {
        // The service is gone if nobody can send settings.
        while !stop.is_cancelled() && self.settings.has_changed().is_ok() {
            let follow = *self.settings.borrow_and_update();
            if follow.enabled {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = self.follow_feeds() => {}
                }
                // Pending events are written before they are due, because following has ended.
                self.write_journal(Instant::now() + follow.max_write_delay);
                continue;
            }
            self.collector.reset();
            self.notify_scanner(Instant::now());
            self.status.send_replace(Arc::default());
            tokio::select! {
                () = stop.cancelled() => {}
                changed = self.settings.changed() => if changed.is_err() { return },
                // With feeds disabled, detected changes are not recorded.
                batch = next_event_batch(&mut self.event_batches) => self.scanner.confirm_events(batch.number),
            }
        }
    }

    /// Follows the current feeds until they are replaced or disabled.
    async fn follow_feeds(&mut self) {
        self.collector.reset();
        let feeds = Arc::clone(&self.feeds.borrow_and_update());
        let (out, mut steps) = mpsc::channel(STEP_QUEUE_LEN);
        let snapshots = self.scanner.snapshots.clone();
        let stored_position = resume::load_position(self.journal.clone());
        let updates = updates_feed::follow_updates(
            Arc::clone(&feeds),
            self.clock,
            stored_position,
            out.clone(),
        );
        let map = map_feed::follow_map(feeds, self.clock, snapshots, out);
        let following = async { tokio::join!(updates, map) };
        tokio::pin!(following);
        loop {
            let due = self.collector.next_due(Instant::now());
            // Every arm is cancel-safe, and no arm's body awaits.
            let event = tokio::select! {
                biased;
                Some(step) = steps.recv() => FeedClientEvent::Step(step),
                batch = next_event_batch(&mut self.event_batches) => FeedClientEvent::DbEvents(batch),
                () = time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    FeedClientEvent::TimerDue
                }
                Ok(()) = self.feeds.changed() => return,
                changed = self.settings.changed() => {
                    if changed.is_err() || !self.settings.borrow().enabled {
                        return;
                    }
                    FeedClientEvent::TimerDue
                }
                _ = &mut following => return,
            };
            self.handle(event);
        }
    }

    /// Applies an event, and sends what is due afterwards.
    fn handle(&mut self, event: FeedClientEvent) {
        let (now, moment) = (Instant::now(), self.clock.now());
        let follow = *self.settings.borrow();
        match event {
            FeedClientEvent::Step(step) => self.collector.apply_step(step, &follow, (now, moment)),
            FeedClientEvent::DbEvents(batch) => {
                self.collector.apply_event_batch(&batch, &follow, (now, moment));
            }
            FeedClientEvent::TimerDue => {}
        }
        self.notify_scanner(now);
        self.write_journal(now);
        let status = self.collector.status(now);
        publish_if_changed(&self.status, status);
    }

    /// Sends a due update to the scanner.
    fn notify_scanner(&mut self, now: Instant) {
        let Some(update) = self.collector.take_update(now) else { return };
        if let Some(ScanCommand::FeedUpdate(update)) =
            self.scanner.send(ScanCommand::FeedUpdate(update))
        {
            let follow = *self.settings.borrow();
            self.collector.requeue(update, &follow, now);
        }
    }

    /// Sends due events to the journal.
    fn write_journal(&mut self, now: Instant) {
        let batch = self.collector.take_batch((now, self.clock.now()));
        if let Some((journal, (events, reached))) = self.journal.as_ref().zip(batch) {
            journal.record_batch_with_progress(events, reached);
        }
        if let Some(number) = self.collector.confirmed_up_to() {
            self.scanner.confirm_events(number);
        }
    }
}

/// The next changes detected by the scanner; waits forever if the scanner is gone. Cancel-safe.
async fn next_event_batch(batches: &mut broadcast::Receiver<DbEventBatch>) -> DbEventBatch {
    loop {
        match batches.recv().await {
            Ok(batch) => return batch,
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                tracing::warn!(
                    batches = missed,
                    "some database changes detected by the scanner were missed"
                );
            }
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
