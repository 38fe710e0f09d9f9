//! Runs the reads of stages: starts them, passes on their observations, stops them.
//!
//! All I/O of the scanner is behind this module. It decides nothing: starts and stops are effects of
//! [`Scanner::handle`](super::scanner::Scanner::handle), which the task carries out.

use super::scanner::Slot;
use crate::sources::inventory::{Observation, Source, Stage};
use futures::{StreamExt as _, stream::BoxStream};
use std::{collections::BTreeMap, future::poll_fn, task::Poll, time::Duration};
use tokio::{sync::mpsc, task::JoinSet, time};

/// The number of observations in one batch. A large observation closes its batch, because a few hundred
/// pages of the shard map take more memory than all tables.
const MAX_BATCH: usize = 256;

/// The maximum number of unhandled batches of one stage; its reader pauses when there are more.
const MAX_WAITING_BATCHES: usize = 4;

/// How long an observation may wait for others. Waking a thread for each observation would cost as
/// much as reading it.
const MAX_BATCH_DELAY: Duration = Duration::from_millis(100);

/// A running read of a stage.
#[derive(Debug)]
struct Reading {
    batches: mpsc::Receiver<Vec<Observation>>,
    /// The reading task; dropping it stops the read.
    _reader: JoinSet<()>,
}

/// All running reads, one per slot.
#[derive(Debug, Default)]
pub(super) struct Readings(BTreeMap<Slot, Reading>);

impl Readings {
    /// Starts to read a stage; stops the slot's previous read.
    pub(super) fn start(&mut self, slot: Slot, source: &dyn Source, stage: Stage) {
        let (sender, batches) = mpsc::channel(MAX_WAITING_BATCHES);
        let mut reader = JoinSet::new();
        reader.spawn(send_batches(source.read(stage), sender));
        self.0.insert(slot, Reading { batches, _reader: reader });
    }

    pub(super) fn stop(&mut self, slot: Slot) {
        self.0.remove(&slot);
    }

    /// Continues a read under another slot; stops that slot's previous read.
    pub(super) fn rename(&mut self, from: Slot, to: Slot) {
        if let Some(reading) = self.0.remove(&from) {
            self.0.insert(to, reading);
        }
    }

    /// The next batch, from the first slot that has one; waits forever while nothing is being read. A
    /// source that ends without [`Observation::StageEnded`] counts as the end of its stage. Cancel-safe.
    pub(super) async fn next(&mut self) -> (Slot, Vec<Observation>) {
        poll_fn(|cx| {
            for (slot, reading) in &mut self.0 {
                if let Poll::Ready(batch) = reading.batches.poll_recv(cx) {
                    let batch = batch.unwrap_or_else(|| vec![Observation::StageEnded]);
                    return Poll::Ready((*slot, batch));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Sends the observations of a source in batches, as long as they are received.
async fn send_batches(
    observations: BoxStream<'static, Observation>,
    batches: mpsc::Sender<Vec<Observation>>,
) {
    let mut observations = observations.fuse();
    while let Some(first) = observations.next().await {
        let mut batch = vec![first];
        let delay = time::sleep(MAX_BATCH_DELAY);
        tokio::pin!(delay);
        while batch.len() < MAX_BATCH && !batch.last().is_some_and(Observation::is_large) {
            // Both branches are cancel-safe.
            tokio::select! {
                biased;
                next = observations.next() => match next {
                    Some(next) => batch.push(next),
                    None => break,
                },
                () = &mut delay => break,
            }
        }
        if batches.send(batch).await.is_err() {
            return;
        }
    }
}
