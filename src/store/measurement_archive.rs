//! Saves measured facts so that they survive a restart.
//!
//! The task remembers a fingerprint and the measurement time of every saved block. After each
//! sweep it walks the published tables block by block, off the other tasks' threads, and sends
//! changed blocks to the journal; for unchanged blocks only a new measurement time. At the next
//! start the scanner loads them into its tables. The task never interprets facts, and nothing
//! waits for it.

use crate::{
    scan::ScanStatus,
    store::journal::{Journal, MeasuredBlocks},
    table::Snapshot,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// Maximum number of saved blocks, enough for four million targets.
const MAX_BLOCKS: usize = 1 << 14;

/// Largest block saved, in bytes. A larger block can only result from absurdly long names.
const MAX_BLOCK_BYTES: usize = 1 << 20;

/// Limits of one write, because starts wait for the journal as well.
const MAX_BATCH_BYTES: usize = 1 << 20;
const MAX_BATCH_BLOCKS: usize = 1_024;

/// How long to wait until the journal has the database events found by the sweep. Events held back
/// for a disconnected feed may take longer.
const EVENTS_WAIT: Duration = Duration::from_secs(60);

/// Pause after a failed write, so that more important writes go first.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(600);

/// A saved block, as last written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SavedBlock {
    fingerprint: u64,
    measured_at: Moment,
}

/// The task that saves measured facts.
#[derive(Debug)]
pub struct ArchiveTask {
    status: watch::Receiver<Arc<ScanStatus>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    journal: Journal,
    /// Number of the last database change that was handed to the journal.
    confirmed_events: watch::Receiver<u64>,
    saved_blocks: Vec<Option<SavedBlock>>,
    saved_sweeps: u64,
    paused_until: Option<Instant>,
}

impl ArchiveTask {
    /// Creates the task.
    pub const fn new(
        status: watch::Receiver<Arc<ScanStatus>>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        confirmed_events: watch::Receiver<u64>,
        journal: Journal,
    ) -> Self {
        Self {
            status,
            snapshots,
            journal,
            confirmed_events,
            saved_blocks: Vec::new(),
            saved_sweeps: 0,
            paused_until: None,
        }
    }

    /// Runs until `stop`, or until the scanner ends.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let changed = tokio::select! {
                () = stop.cancelled() => return,
                changed = self.status.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            let (sweeps, is_ready, event_batches) = {
                let status = self.status.borrow_and_update();
                (status.sweeps, status.ready, status.event_batches)
            };
            let is_paused = self.paused_until.is_some_and(|until| until > Instant::now());
            // Before the first complete sweep, empty tables would overwrite the data saved by an
            // earlier process.
            if sweeps == self.saved_sweeps || !is_ready || is_paused {
                continue;
            }
            self.saved_sweeps = sweeps;
            // An interrupted save is completed after the next sweep.
            if stop.run_until_cancelled(self.save_after_events(event_batches)).await.is_none() {
                return;
            }
        }
    }

    /// Saves after the journal has all database changes up to this batch: with the facts saved
    /// first, the next process would not detect those changes again.
    async fn save_after_events(&mut self, event_batch: u64) {
        let confirmed = self.confirmed_events.wait_for(|confirmed| *confirmed >= event_batch);
        if time::timeout(EVENTS_WAIT, confirmed).await.is_err() {
            tracing::debug!("saving measurements before pending database events");
        }
        self.save().await;
    }

    /// Saves everything that changed since the last save.
    async fn save(&mut self) {
        let began = Instant::now();
        let (mut next, mut changed) = (0, 0);
        loop {
            let (known, mut measured) = self.next_batch(next);
            let through = next + known.len();
            changed += measured.changed.len();
            let is_last = measured.total.is_some();
            if !measured.changed.is_empty() || !measured.measured_at.is_empty() || is_last {
                let saved = self.journal.save_measurements(std::mem::take(&mut measured)).await;
                if let Err(why) = saved {
                    tracing::warn!(%why, "cannot save measurements for the next start");
                    self.paused_until = Some(Instant::now() + PAUSE_AFTER_FAILURE);
                    return;
                }
            }
            self.saved_blocks.resize(self.saved_blocks.len().max(through), None);
            for (saved, known) in self.saved_blocks.iter_mut().skip(next).zip(known) {
                *saved = Some(known);
            }
            next = through;
            if is_last {
                break;
            }
        }
        self.saved_blocks.truncate(next);
        tracing::debug!(blocks = next, changed, took = ?began.elapsed(), "measurements saved");
    }

    /// Returns the next blocks from index `from`, up to the batch limits: their current state and
    /// what is new compared to the saved one.
    fn next_batch(&self, from: usize) -> (Vec<SavedBlock>, MeasuredBlocks) {
        let (mut blocks_now, mut measured, mut bytes) = (Vec::new(), MeasuredBlocks::default(), 0);
        while blocks_now.len() < MAX_BATCH_BLOCKS && bytes < MAX_BATCH_BYTES {
            // Held for one block only: while a snapshot is held, every updated fact exists in
            // memory twice.
            let snapshot = Arc::clone(&self.snapshots.borrow());
            let (at, blocks) = (from + blocks_now.len(), snapshot.block_count().min(MAX_BLOCKS));
            if at >= blocks {
                measured.total = Some(u32::try_from(blocks).unwrap_or(u32::MAX));
                break;
            }
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            let block = snapshot.build_block(number);
            let now = SavedBlock { fingerprint: block.fingerprint(), measured_at: block.at() };
            let before = self.saved_blocks.get(at).copied().flatten();
            if before.is_none_or(|before| before.fingerprint != now.fingerprint) {
                let mut block = block.compress();
                if block.bytes.len() > MAX_BLOCK_BYTES {
                    block.bytes.clear();
                }
                bytes += block.bytes.len();
                measured.changed.push(block);
            } else if before != Some(now) {
                measured.measured_at.push((number, now.measured_at));
            }
            blocks_now.push(now);
        }
        (blocks_now, measured)
    }
}

#[cfg(test)]
mod tests;
