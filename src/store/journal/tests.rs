use super::*;
use crate::model::{
    memory::{
        Calibration, Change, Ending, Intent, Keeper as _, Ordered, Outcome, Owner, Recovered,
        Remembered, Scope, Suspension, Trouble,
    },
    settings::work::{self, Keep},
    target::TargetId,
};
use std::{future::Future, time::Duration};
use tokio::{sync::watch, task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

mod child;
mod crash;
mod damage;
mod disk;
mod feed;
mod keeping;
mod published;
mod retention;
mod trouble;

/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn moment(seconds: u64) -> Moment {
    Moment::from_unix(1_800_000_000 + seconds)
}

fn cluster() -> Identity {
    Identity { uuids: ["u".to_owned()].into(), nodes: ["couchdb@a".to_owned()].into() }
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
        at: moment(number),
        file_bytes: Some(1000),
        active_bytes: Some(10),
        update_seq: Some(5),
        compacted_seq: None,
        predicted_bytes: Some(20),
        peak_bytes: 22,
    }
}

fn outcome(number: u64) -> Outcome {
    Outcome {
        target: target(number),
        kind: crate::model::target::Kind::Db,
        node: "couchdb@a".into(),
        design: None,
        channel: Some("ratio_dbs".into()),
        owner: Owner::Recliner,
        ordered_by: None,
        started_at: moment(number),
        ended_at: moment(number + 1),
        before_bytes: Some(1000),
        after_bytes: Some(100),
        predicted_bytes: Some(120),
        ending: Ending::Freed,
        why: None,
    }
}

fn ended(number: u64) -> Change {
    Change::Ended { outcome: outcome(number), closes: Some(intent(number).key()) }
}

/// A journal with its running task, until it is stopped or dropped.
struct Running {
    journal: Journal,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Running {
    fn open(place: impl Place + 'static) -> Result<Self, OpenError> {
        Self::with(place, work::Journal::default())
    }

    fn with(place: impl Place + 'static, settings: Settings) -> Result<Self, OpenError> {
        let clock = Clock::anchored(moment(1000));
        let (task, journal) = Task::open(place, clock, watch::channel(settings).1)?;
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(stop.clone()));
        Ok(Self { journal, stop, tasks })
    }

    async fn claimed(place: impl Place + 'static) -> Self {
        let running = Self::open(place).unwrap();
        running.recovered().await;
        running
    }

    async fn recovered(&self) -> Recovered {
        soon(self.journal.claim(cluster())).await.unwrap()
    }

    async fn keep(&self, changes: Vec<Change>) -> Result<(), Trouble> {
        soon(self.journal.keep(changes)).await
    }

    async fn history(&self) -> Vec<Outcome> {
        let query = HistoryQuery { limit: usize::MAX, ..HistoryQuery::default() };
        let page = soon(self.journal.history(query)).await.unwrap();
        page.entries.into_iter().map(|(_, outcome)| outcome).collect()
    }

    async fn events(&self) -> Vec<What> {
        let query = EventsQuery { since: Some(0), limit: usize::MAX, ..EventsQuery::default() };
        let page = soon(self.journal.events(query)).await.unwrap();
        page.entries.into_iter().map(|(_, event)| event.what).collect()
    }

    /// Stops it; the file is closed when this returns.
    async fn stopped(mut self) {
        self.stop.cancel();
        while let Some(ended) = soon(self.tasks.join_next()).await {
            ended.unwrap();
        }
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    time::timeout(PATIENCE, future).await.expect("it does not hang")
}
