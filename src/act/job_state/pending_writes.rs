//! Changes that wait to be stored, and the callers that wait for that.
//!
//! One batch is written at a time; new changes form the next one. After an error everything is
//! written again in order, except starts: their callers are told that the start is cancelled.

use super::StoreResult;
use crate::model::records::{IntentKey, JournalFailure, StateChange, StateStore, StoreError};
use futures::future::BoxFuture;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::oneshot,
    time::{self, Instant},
};
use wall_clock::Moment;

/// Delay after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Changes and the callers that wait for them.
#[derive(Debug, Default)]
struct PendingBatch {
    changes: Vec<StateChange>,
    waiters: Vec<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    /// The start it waits for, if any.
    start: Option<IntentKey>,
    answer: oneshot::Sender<StoreResult>,
}

/// Writes changes in order.
pub(super) struct PendingWrites {
    keeper: Arc<dyn StateStore>,
    next: PendingBatch,
    writing: Option<(PendingBatch, BoxFuture<'static, Result<(), StoreError>>)>,
    failure: Option<(Moment, String)>,
    retry_at: Instant,
}

impl PendingWrites {
    pub(super) fn new(keeper: Arc<dyn StateStore>) -> Self {
        Self {
            keeper,
            next: PendingBatch::default(),
            writing: None,
            failure: None,
            retry_at: Instant::now(),
        }
    }

    /// Since when nothing can be stored, and why: a write error, or a failure of the journal
    /// itself.
    pub(super) fn failure(&self) -> Option<(Moment, JournalFailure)> {
        let met = |(at, why): &(Moment, String)| (*at, JournalFailure::NotWritable(why.clone()));
        self.failure.as_ref().map(met).or_else(|| self.keeper.failure())
    }

    pub(super) fn push(&mut self, changes: impl IntoIterator<Item = StateChange>) {
        self.next.changes.extend(changes);
    }

    /// Adds changes; `answer` is sent once they are stored, or could not be.
    pub(super) fn push_awaited(
        &mut self,
        changes: impl IntoIterator<Item = StateChange>,
        start: Option<IntentKey>,
        answer: oneshot::Sender<StoreResult>,
    ) {
        self.push(changes);
        self.next.waiters.push(Waiter { start, answer });
    }

    /// Writes the next batch; waits forever if there is nothing to write. Returns the starts that are
    /// cancelled, because they could not be stored or nobody is left to send the request. Cancel-safe.
    pub(super) async fn next_result(&mut self, now: impl Fn() -> Moment) -> Vec<IntentKey> {
        if self.writing.is_none() {
            if self.next.changes.is_empty() && self.next.waiters.is_empty() {
                return std::future::pending().await;
            }
            if self.failure.is_some() {
                time::sleep_until(self.retry_at).await;
            }
            let batch = std::mem::take(&mut self.next);
            let writes = self.keeper.store(batch.changes.clone());
            self.writing = Some((batch, writes));
        }
        let Some((_, writes)) = &mut self.writing else { return Vec::new() };
        let result = writes.await;
        let Some((batch, _)) = self.writing.take() else { return Vec::new() };
        match result {
            Ok(()) => {
                if self.failure.take().is_some() {
                    tracing::info!("the journal is writable again");
                }
                batch.confirm()
            }
            Err(trouble) => self.handle_failure(batch, &trouble, now()),
        }
    }

    fn handle_failure(
        &mut self,
        batch: PendingBatch,
        trouble: &StoreError,
        now: Moment,
    ) -> Vec<IntentKey> {
        if self.failure.is_none() {
            tracing::error!(why = %trouble, "the journal cannot be written: nothing starts until it can");
        }
        let since = self.failure.as_ref().map_or(now, |(since, _)| *since);
        self.failure = Some((since, trouble.to_string()));
        self.retry_at = Instant::now() + RETRY_DELAY;
        let mut cancelled = Vec::new();
        for waiter in batch.waiters {
            cancelled.extend(waiter.start);
            // The waiting caller may be gone.
            let _gone = waiter.answer.send(Err(trouble.clone()));
        }
        // It is unknown whether the changes were stored, so cancelled starts must be withdrawn.
        let mut changes: Vec<StateChange> = batch
            .changes
            .into_iter()
            .map(|change| {
                if let StateChange::StartIntended(intent) = &change
                    && cancelled.contains(&intent.key())
                {
                    return StateChange::StartWithdrawn(intent.key());
                }
                change
            })
            .collect();
        changes.append(&mut self.next.changes);
        self.next.changes = changes;
        cancelled
    }
}

impl PendingBatch {
    /// Tells the waiting callers that their changes are stored; returns the starts whose callers
    /// are gone.
    fn confirm(self) -> Vec<IntentKey> {
        let is_gone = |waiter: Waiter| waiter.answer.send(Ok(())).is_err().then_some(waiter.start);
        self.waiters.into_iter().filter_map(is_gone).flatten().collect()
    }
}
