//! The feed of an in-memory journal, on paused time.

mod resume;
mod timeline;

use super::*;
use crate::{
    model::settings::work,
    store::journal::{self, ClusterIdentity, EventDetails, InMemory, Journal, ResetReason},
};
use bytes::Bytes;
use futures::{StreamExt as _, stream::BoxStream};
use serde_json::Value;
use std::{convert::Infallible, time::Duration};
use tokio::{sync::watch, task::JoinSet, time};
use tokio_util::sync::CancellationToken;
use wall_clock::{Clock, Moment};

/// Longer than anything here takes on the paused clock.
const PATIENCE: Duration = Duration::from_secs(3600);

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A journal, its feed, and their tasks.
struct Fixture {
    journal: Journal,
    feed: FeedHandle,
    stop: CancellationToken,
    _tasks: JoinSet<()>,
}

impl Fixture {
    async fn new(settings: work::JournalRetention, room: usize) -> Self {
        let clock = Clock::anchored(Moment::from_unix(1_800_000_000));
        let settings = watch::channel(settings).1;
        let (task, journal) =
            journal::JournalTask::open(InMemory::default(), clock, settings).unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(CancellationToken::new()));
        journal.claim(ClusterIdentity::default()).await.unwrap();
        let stop = CancellationToken::new();
        let (task, feed) = FeedServerTask::new(journal.clone(), room, stop.clone());
        tasks.spawn(task.run());
        Self { journal, feed, stop, _tasks: tasks }
    }

    async fn with_defaults() -> Self {
        Self::new(work::JournalRetention::default(), 10).await
    }

    /// Records events and waits until they are stored.
    async fn record(&self, events: Vec<EventDetails>) {
        self.journal.record_batch(events);
        // A later request sees everything stored before it.
        self.journal.overridden_settings().await.unwrap();
    }

    /// Records an event that the feed does not show.
    async fn record_own_event(&self) {
        self.record(vec![EventDetails::Released { target: "cleanup:x".parse().unwrap() }]).await;
    }

    async fn open(&self, query: &str) -> OpenBody {
        self.try_open(query).await.unwrap()
    }

    async fn try_open(&self, query: &str) -> Result<OpenBody, FeedOpenError> {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let begun = self.feed.open(FeedRequest::parse(pairs, None).unwrap()).await?;
        Ok(OpenBody { reset: begun.reset, pieces: begun.body.into_stream() })
    }
}

/// A response body that arrives piece by piece.
struct OpenBody {
    reset: Option<ResetReason>,
    pieces: BoxStream<'static, Result<Bytes, Infallible>>,
}

impl OpenBody {
    async fn piece(&mut self) -> Option<String> {
        let piece = time::timeout(PATIENCE, self.pieces.next())
            .await
            .expect("a piece or the end arrives in time");
        piece.map(|piece| String::from_utf8(piece.unwrap().to_vec()).unwrap())
    }

    async fn rest(&mut self) -> String {
        let mut all = String::new();
        while let Some(piece) = self.piece().await {
            all.push_str(&piece);
        }
        all
    }

    /// A response that is one JSON object.
    async fn object(&mut self) -> Value {
        serde_json::from_str(&self.rest().await).unwrap()
    }
}

fn updated(db: &str) -> EventDetails {
    EventDetails::Updated { db: db.into() }
}

/// Rows as numbers, types and databases, without eras.
fn rows(list: &Value) -> Vec<(u64, String, String)> {
    let row = |row: &Value| {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        (number(&row["seq"]), text("type"), text("db_name"))
    };
    list.as_array().unwrap().iter().map(row).collect()
}

fn number(seq: &Value) -> u64 {
    seq.as_str().unwrap().split_once('-').unwrap().0.parse().unwrap()
}
