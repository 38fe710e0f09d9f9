//! What is being read at a moment: one sweep at most, and what is read beside it.
//!
//! Owns the readers and the batches between them and the scanner. Never looks into an
//! observation beyond its size; the scanner applies them.

use crate::inventory::{Observation, Source, Stage};
use futures::{StreamExt, stream::BoxStream};
use std::time::Duration;
use tokio::{sync::mpsc, task::JoinSet, time};

/// Observations handed over at once; a large one goes without waiting for others, because a
/// few hundred pages of the shard map are more than all tables.
const BATCH: usize = 256;

/// Batches that wait to be applied; a reader that is further ahead waits itself.
const BATCHES: usize = 4;

/// How long an observation may wait for others. Waking a thread for each would cost as much
/// as reading it.
const LINGER: Duration = Duration::from_millis(100);

/// A stage that is being read.
pub(super) struct Reading {
    pub(super) stage: Stage,
    batches: mpsc::Receiver<Vec<Observation>>,
    /// Reads; ends when this goes.
    _reader: JoinSet<()>,
}

impl Reading {
    /// Begins to read a stage.
    pub(super) fn of(source: &dyn Source, stage: Stage) -> Self {
        let (sender, batches) = mpsc::channel(BATCHES);
        let mut reader = JoinSet::new();
        reader.spawn(batch(source.read(stage.clone()), sender));
        Self { stage, batches, _reader: reader }
    }
}

/// What runs: one sweep at most, and what is read beside it.
#[derive(Default)]
pub(super) struct Readings {
    pub(super) sweep: Option<Reading>,
    /// What the sweep's first stage still waits for while others go on.
    pub(super) late: Option<Reading>,
    pub(super) poll: Option<Reading>,
    pub(super) shards: Option<Reading>,
    pub(super) views: Option<Reading>,
}

/// One of what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Sweep,
    Late,
    Poll,
    Shards,
    Views,
}

impl Readings {
    /// Whether a sweep runs.
    pub(super) const fn sweeps(&self) -> bool {
        self.sweep.is_some() || self.late.is_some()
    }

    /// Whether it asks the nodes, and waits for all of them.
    pub(super) fn asks_nodes(&self) -> bool {
        self.sweep.as_ref().is_some_and(|sweep| matches!(sweep.stage, Stage::Nodes))
    }

    /// Whether the sweep knows which files there are.
    pub(super) fn listed(&self) -> bool {
        let stage = self.sweep.as_ref().map(|reading| &reading.stage);
        matches!(
            stage,
            Some(Stage::Strays { .. } | Stage::Disk | Stage::Shards { .. } | Stage::Views { .. })
        )
    }

    pub(super) const fn slot(&self, slot: Slot) -> Option<&Reading> {
        match slot {
            Slot::Sweep => self.sweep.as_ref(),
            Slot::Late => self.late.as_ref(),
            Slot::Poll => self.poll.as_ref(),
            Slot::Shards => self.shards.as_ref(),
            Slot::Views => self.views.as_ref(),
        }
    }

    pub(super) const fn slot_mut(&mut self, slot: Slot) -> &mut Option<Reading> {
        match slot {
            Slot::Sweep => &mut self.sweep,
            Slot::Late => &mut self.late,
            Slot::Poll => &mut self.poll,
            Slot::Shards => &mut self.shards,
            Slot::Views => &mut self.views,
        }
    }
}

/// Hands over in batches what a source reads, as long as anyone takes it.
async fn batch(
    observations: BoxStream<'static, Observation>,
    batches: mpsc::Sender<Vec<Observation>>,
) {
    let mut observations = observations.fuse();
    while let Some(first) = observations.next().await {
        let mut batch = vec![first];
        let linger = time::sleep(LINGER);
        tokio::pin!(linger);
        while batch.len() < BATCH && !batch.last().is_some_and(Observation::is_large) {
            // Both arms are cancel-safe.
            tokio::select! {
                biased;
                next = observations.next() => match next {
                    Some(next) => batch.push(next),
                    None => break,
                },
                () = &mut linger => break,
            }
        }
        if batches.send(batch).await.is_err() {
            return;
        }
    }
}

/// The next observations of a reading; waits for ever where nothing is read. A source that
/// ends without saying so has ended its stage.
pub(super) async fn next(reading: &mut Option<Reading>) -> Vec<Observation> {
    match reading {
        Some(reading) => {
            reading.batches.recv().await.unwrap_or_else(|| vec![Observation::StageEnded])
        }
        None => std::future::pending().await,
    }
}
