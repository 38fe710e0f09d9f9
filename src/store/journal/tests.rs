use super::*;
use crate::model::{
    records::{
        AdvisedJob, AdvisedTarget, Calibration, CompactionOrder, CorrectionKey, CorrectionRecord,
        Intent, JobOwner, JobResult, Outcome, RecoveredState, ScorecardChange, ScorecardHour,
        StateChange, StateStore as _, StoreError, Suspension, SuspensionScope, TargetRecord,
    },
    settings::work::{self, Keep},
    target::{TargetId, TargetKind},
};
use std::{future::Future, time::Duration};
use tokio::{sync::watch, task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

mod child;
mod copy;
mod crash;
mod damage;
mod disk;
mod failures;
mod feed_tables;
mod fixture;
mod persistence;
mod published;
mod retention;

/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn moment(seconds: u64) -> Moment {
    Moment::from_unix(1_800_000_000 + seconds)
}

fn cluster() -> ClusterIdentity {
    ClusterIdentity { uuids: ["u".to_owned()].into(), nodes: ["couchdb@a".to_owned()].into() }
}

fn target(number: u64) -> TargetId {
    TargetId::Db { node: "couchdb@a".into(), shard: format!("shards/00000000-7fffffff/d{number}") }
}

fn intent(number: u64) -> Intent {
    Intent {
        target: target(number),
        node: "couchdb@a".into(),
        shard: Some(format!("shards/00000000-7fffffff/d{number}")),
        design: None,
        channel: "ratio_dbs".into(),
        ordered_by: None,
        run: None,
        at: moment(number),
        file_bytes: Some(1000),
        active_bytes: Some(10),
        update_seq: Some(5),
        compacted_seq: None,
        predicted_bytes: Some(20),
        fitted_bytes: None,
        peak_bytes: 22,
    }
}

fn outcome(number: u64) -> Outcome {
    Outcome {
        target: target(number),
        kind: TargetKind::Db,
        node: "couchdb@a".into(),
        design: None,
        channel: Some("ratio_dbs".into()),
        owner: JobOwner::Recliner,
        ordered_by: None,
        started_at: moment(number),
        ended_after: None,
        charged_bytes: None,
        ended_at: moment(number + 1),
        before_bytes: Some(1000),
        after_bytes: Some(100),
        predicted_bytes: Some(120),
        ending: JobResult::Freed,
        why: None,
    }
}

fn ended(number: u64) -> StateChange {
    StateChange::JobEnded { outcome: outcome(number), closes: Some(intent(number).key()) }
}

/// A journal with its running task, until it is stopped or dropped.
struct RunningJournal {
    journal: Journal,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl RunningJournal {
    fn open(storage: impl Storage + 'static) -> Result<Self, JournalOpenError> {
        Self::with(storage, work::JournalRetention::default())
    }

    fn with(
        storage: impl Storage + 'static,
        settings: JournalSettings,
    ) -> Result<Self, JournalOpenError> {
        let clock = Clock::anchored(moment(1000));
        let (task, journal) = JournalTask::open(storage, clock, watch::channel(settings).1)?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(stop.clone()));
        Ok(Self { journal, stop, tasks })
    }

    async fn claimed(storage: impl Storage + 'static) -> Self {
        let running = Self::open(storage).unwrap();
        running.recovered().await;
        running
    }

    async fn recovered(&self) -> RecoveredState {
        within_patience(self.journal.claim(cluster())).await.unwrap()
    }

    async fn keep(&self, changes: Vec<StateChange>) -> Result<(), StoreError> {
        within_patience(self.journal.store(changes)).await
    }

    async fn history(&self) -> Vec<Outcome> {
        let query = HistoryQuery { limit: usize::MAX, ..HistoryQuery::default() };
        let page = within_patience(self.journal.history(query)).await.unwrap();
        page.entries.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn events(&self) -> Vec<EventDetails> {
        let query = EventsQuery { after_seq: Some(0), limit: usize::MAX, ..EventsQuery::default() };
        let page = within_patience(self.journal.events(query)).await.unwrap();
        page.entries.into_iter().map(|(_, event)| event.details).collect()
    }

    /// Stops it; the file is closed when this returns.
    async fn stop_and_wait(mut self) {
        self.stop.cancel();
        while let Some(ended) = within_patience(self.tasks.join_next()).await {
            ended.unwrap();
        }
    }
}

async fn within_patience<T>(future: impl Future<Output = T>) -> T {
    time::timeout(PATIENCE, future).await.expect("the operation does not hang")
}
