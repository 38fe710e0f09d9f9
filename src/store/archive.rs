//! The archive: one task that lets what was measured outlive the process.
//!
//! Owns what it knows of the blocks that are kept: how each looked and when it was measured.
//! After each sweep it goes through the published tables block by block, away from everyone
//! else's threads, and hands the journal those that changed; of the others only when they
//! were measured. The scanner gives them back to its tables at the next start. It never
//! reads what a fact means, and nothing waits for it.

use crate::{
    scan::Status,
    store::journal::{Journal, Measured},
    table::Snapshot,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// Blocks that are kept at most: four million targets.
const BLOCKS: usize = 1 << 14;

/// The largest block that is kept, in bytes; larger ones have names beyond all measure.
const LARGEST: usize = 1 << 20;

/// Bytes and blocks that are handed over at once. Starts wait for the journal as well.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_BLOCKS: usize = 1_024;

/// How long the journal is given to get what was noticed of databases: what is held back for
/// a feed that is away may take longer.
const SETTLES: Duration = Duration::from_secs(60);

/// How long nothing is kept after that failed: whoever needs the journal more comes first.
const PAUSE: Duration = Duration::from_secs(600);

/// What is known of a block that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    fingerprint: u64,
    at: Moment,
}

/// Keeps what was measured.
#[derive(Debug)]
pub struct Task {
    status: watch::Receiver<Arc<Status>>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    journal: Journal,
    /// Up to which number what was noticed of databases was handed to the journal.
    settled: watch::Receiver<u64>,
    known: Vec<Option<Known>>,
    sweeps: u64,
    paused: Option<Instant>,
}

impl Task {
    /// Makes the task.
    #[must_use]
    pub const fn new(
        status: watch::Receiver<Arc<Status>>,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        settled: watch::Receiver<u64>,
        journal: Journal,
    ) -> Self {
        Self { status, snapshots, journal, settled, known: Vec::new(), sweeps: 0, paused: None }
    }

    /// Keeps until `stop`, or until nobody scans any more.
    pub async fn run(mut self, stop: CancellationToken) {
        loop {
            let news = tokio::select! {
                () = stop.cancelled() => return,
                news = self.status.changed() => news,
            };
            if news.is_err() {
                return;
            }
            let (sweeps, ready, noticed) = {
                let status = self.status.borrow_and_update();
                (status.sweeps, status.ready, status.noticed)
            };
            let rests = self.paused.is_some_and(|until| until > Instant::now());
            // Before anything was seen, tables that are empty would take the place of what an
            // earlier process left.
            if sweeps == self.sweeps || !ready || rests {
                continue;
            }
            self.sweeps = sweeps;
            // What is half written is written whole after the next sweep.
            if stop.run_until_cancelled(self.keep_behind(noticed)).await.is_none() {
                return;
            }
        }
    }

    /// The same, once the journal has what was noticed up to this number: a process that knows
    /// what was measured does not notice it again.
    async fn keep_behind(&mut self, noticed: u64) {
        let settled = self.settled.wait_for(|settled| *settled >= noticed);
        if time::timeout(SETTLES, settled).await.is_err() {
            tracing::debug!("what was noticed of databases waits, and what was measured does not");
        }
        self.keep().await;
    }

    /// Keeps what changed since it was kept last.
    async fn keep(&mut self) {
        let began = Instant::now();
        let (mut next, mut changed) = (0, 0);
        loop {
            let (known, mut measured) = self.batch(next);
            let through = next + known.len();
            changed += measured.changed.len();
            let is_last = measured.total.is_some();
            if !measured.changed.is_empty() || !measured.moments.is_empty() || is_last {
                let kept = self.journal.keep_measured(std::mem::take(&mut measured)).await;
                if let Err(why) = kept {
                    tracing::warn!(%why, "what was measured is not kept over a restart");
                    self.paused = Some(Instant::now() + PAUSE);
                    return;
                }
            }
            self.known.resize(self.known.len().max(through), None);
            for (place, known) in self.known.iter_mut().skip(next).zip(known) {
                *place = Some(known);
            }
            next = through;
            if is_last {
                break;
            }
        }
        self.known.truncate(next);
        tracing::debug!(blocks = next, changed, took = ?began.elapsed(), "what was measured is kept");
    }

    /// The blocks from a place on, as many as are handed over at once: how each looks, and
    /// what of that is new.
    fn batch(&self, from: usize) -> (Vec<Known>, Measured) {
        let (mut known, mut measured, mut bytes) = (Vec::new(), Measured::default(), 0);
        while known.len() < BATCH_BLOCKS && bytes < BATCH_BYTES {
            // Held for one block and no longer: every fact that is read meanwhile lies beside
            // its old one in memory.
            let snapshot = Arc::clone(&self.snapshots.borrow());
            let (at, blocks) = (from + known.len(), snapshot.blocks().min(BLOCKS));
            if at >= blocks {
                measured.total = Some(u32::try_from(blocks).unwrap_or(u32::MAX));
                break;
            }
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            let loose = snapshot.block(number);
            let now = Known { fingerprint: loose.fingerprint(), at: loose.at() };
            let before = self.known.get(at).copied().flatten();
            if before.is_none_or(|before| before.fingerprint != now.fingerprint) {
                let mut block = loose.packed();
                if block.bytes.len() > LARGEST {
                    block.bytes.clear();
                }
                bytes += block.bytes.len();
                measured.changed.push(block);
            } else if before != Some(now) {
                measured.moments.push((number, now.at));
            }
            known.push(now);
        }
        (known, measured)
    }
}

#[cfg(test)]
mod tests;
