//! What is being read at a moment: one sweep at most, and what is read beside it.

use crate::{
    sources::inventory::{Observation, Source, Stage},
    table::NodeIx,
};
use futures::{StreamExt as _, stream::BoxStream};
use std::{collections::BTreeMap, future::poll_fn, task::Poll, time::Duration};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{self, Instant},
};

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
    /// When that began.
    pub(super) began: Instant,
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
        Self { stage, began: Instant::now(), batches, _reader: reader }
    }
}

/// What runs.
#[derive(Default)]
pub(super) struct Readings {
    pub(super) sweep: Option<Reading>,
    /// What the sweep's first stage still waits for while others go on.
    pub(super) late: Option<Reading>,
    /// What is being split.
    pub(super) splits: Option<Reading>,
    /// The views of a sweep.
    pub(super) cluster: Option<Reading>,
    pub(super) poll: Option<Reading>,
    /// Whether nodes that did not answer do so again.
    pub(super) away: Option<Reading>,
    /// Whether one of them did.
    pub(super) came_back: bool,
    /// Shards that something touched, node by node, so that a slow one holds up no other.
    pub(super) shards: BTreeMap<NodeIx, Reading>,
    pub(super) views: Option<Reading>,
    /// Entries of the shard map that something touched.
    pub(super) entries: Option<Reading>,
}

/// One of what runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    Sweep,
    Late,
    Splits,
    Cluster,
    Poll,
    Away,
    Shards(NodeIx),
    Views,
    Entries,
}

impl Readings {
    /// Whether a sweep asks the nodes, and waits for all of them.
    pub(super) fn asks_nodes(&self) -> bool {
        self.sweep.as_ref().is_some_and(|sweep| matches!(sweep.stage, Stage::Nodes))
    }

    /// Whether the sweep knows which files there are.
    pub(super) fn listed(&self) -> bool {
        let stage = self.sweep.as_ref().map(|reading| &reading.stage);
        matches!(stage, Some(Stage::Strays { .. } | Stage::Shards { .. })) || self.cluster.is_some()
    }

    pub(super) fn slot(&self, slot: Slot) -> Option<&Reading> {
        match slot {
            Slot::Sweep => self.sweep.as_ref(),
            Slot::Late => self.late.as_ref(),
            Slot::Splits => self.splits.as_ref(),
            Slot::Cluster => self.cluster.as_ref(),
            Slot::Poll => self.poll.as_ref(),
            Slot::Away => self.away.as_ref(),
            Slot::Shards(node) => self.shards.get(&node),
            Slot::Views => self.views.as_ref(),
            Slot::Entries => self.entries.as_ref(),
        }
    }

    pub(super) fn end(&mut self, slot: Slot) {
        if let Some(Reading { stage, began, .. }) = self.slot(slot) {
            let seconds = began.elapsed().as_secs_f64();
            tracing::debug!(stage = stage.label(), seconds, "read");
        }
        match slot {
            Slot::Sweep => self.sweep = None,
            Slot::Late => self.late = None,
            Slot::Splits => self.splits = None,
            Slot::Cluster => self.cluster = None,
            Slot::Poll => self.poll = None,
            Slot::Away => self.away = None,
            Slot::Shards(node) => {
                self.shards.remove(&node);
            }
            Slot::Views => self.views = None,
            Slot::Entries => self.entries = None,
        }
    }

    /// The next observations of any reading; waits for ever where nothing is read. A source
    /// that ends without saying so has ended its stage. Cancel-safe.
    pub(super) async fn next(&mut self) -> (Slot, Vec<Observation>) {
        poll_fn(|cx| {
            let shards = self.shards.iter_mut().map(|(node, it)| (Slot::Shards(*node), it));
            let others = [
                (Slot::Entries, self.entries.as_mut()),
                (Slot::Away, self.away.as_mut()),
                (Slot::Views, self.views.as_mut()),
                (Slot::Late, self.late.as_mut()),
                (Slot::Splits, self.splits.as_mut()),
                (Slot::Cluster, self.cluster.as_mut()),
                (Slot::Sweep, self.sweep.as_mut()),
            ];
            let others = others.into_iter().filter_map(|(slot, it)| Some((slot, it?)));
            let poll = self.poll.as_mut().map(|it| (Slot::Poll, it));
            for (slot, reading) in poll.into_iter().chain(shards).chain(others) {
                if let Poll::Ready(seen) = reading.batches.poll_recv(cx) {
                    return Poll::Ready((
                        slot,
                        seen.unwrap_or_else(|| vec![Observation::StageEnded]),
                    ));
                }
            }
            Poll::Pending
        })
        .await
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
