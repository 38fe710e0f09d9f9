//! Changes that wait to be stored, and the callers that wait for that.
//!
//! One batch is written at a time; new changes form the next one. After an error everything is
//! written again in order, except starts: their callers are told that the start is cancelled.

use super::Answer;
use crate::model::memory::{Change, IntentKey, Keeper, Trouble};
use futures::future::BoxFuture;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::oneshot,
    time::{self, Instant},
};
use wall_clock::Moment;

/// Delay after a failed write.
const RETRY: Duration = Duration::from_secs(5);

/// Changes and the callers that wait for them.
#[derive(Debug, Default)]
struct Batch {
    changes: Vec<Change>,
    waiters: Vec<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    /// The start it waits for, if any.
    start: Option<IntentKey>,
    answer: oneshot::Sender<Answer>,
}

/// Result of writing a batch.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Starts cancelled because they could not be stored.
    pub(super) off: Vec<IntentKey>,
    /// Starts that are stored.
    pub(super) on: Vec<IntentKey>,
}

/// Writes changes in order.
pub(super) struct Outbox {
    keeper: Arc<dyn Keeper>,
    next: Batch,
    writing: Option<(Batch, BoxFuture<'static, Result<(), Trouble>>)>,
    trouble: Option<(Moment, String)>,
    retry: Instant,
}

impl std::fmt::Debug for Outbox {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Outbox")
            .field("next", &self.next)
            .field("trouble", &self.trouble)
            .finish_non_exhaustive()
    }
}

impl Outbox {
    pub(super) fn new(keeper: Arc<dyn Keeper>) -> Self {
        Self { keeper, next: Batch::default(), writing: None, trouble: None, retry: Instant::now() }
    }

    /// Since when nothing can be stored, and why.
    pub(super) const fn trouble(&self) -> Option<&(Moment, String)> {
        self.trouble.as_ref()
    }

    pub(super) fn push(&mut self, changes: impl IntoIterator<Item = Change>) {
        self.next.changes.extend(changes);
    }

    /// Answers when everything pushed so far is stored, or could not be.
    pub(super) fn wait(&mut self, start: Option<IntentKey>, answer: oneshot::Sender<Answer>) {
        self.next.waiters.push(Waiter { start, answer });
    }

    /// The result of the next batch; waits forever if there is nothing to write. Cancel-safe.
    pub(super) async fn written(&mut self, now: impl Fn() -> Moment) -> Written {
        if self.writing.is_none() {
            if self.next.changes.is_empty() && self.next.waiters.is_empty() {
                return std::future::pending().await;
            }
            if self.trouble.is_some() {
                time::sleep_until(self.retry).await;
            }
            let batch = std::mem::take(&mut self.next);
            let writes = self.keeper.keep(batch.changes.clone());
            self.writing = Some((batch, writes));
        }
        let Some((_, writes)) = &mut self.writing else { return Written::default() };
        let result = writes.await;
        let Some((batch, _)) = self.writing.take() else { return Written::default() };
        match result {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    tracing::info!("the journal is writable again");
                }
                batch.kept()
            }
            Err(trouble) => self.failed(batch, &trouble, now()),
        }
    }

    fn failed(&mut self, batch: Batch, trouble: &Trouble, now: Moment) -> Written {
        if self.trouble.is_none() {
            tracing::error!(why = %trouble, "the journal cannot be written: nothing is started until it can");
        }
        let since = self.trouble.as_ref().map_or(now, |(since, _)| *since);
        self.trouble = Some((since, trouble.to_string()));
        self.retry = Instant::now() + RETRY;
        let mut written = Written::default();
        for waiter in batch.waiters {
            written.off.extend(waiter.start);
            // The waiting caller may be gone.
            let _gone = waiter.answer.send(Err(trouble.clone()));
        }
        // It is unknown whether the changes were stored, so cancelled starts must be withdrawn.
        let mut changes: Vec<Change> = batch
            .changes
            .into_iter()
            .map(|change| {
                if let Change::Intended(intent) = &change
                    && written.off.contains(&intent.key())
                {
                    return Change::Withdrawn(intent.key());
                }
                change
            })
            .collect();
        changes.append(&mut self.next.changes);
        self.next.changes = changes;
        written
    }
}

impl Batch {
    fn kept(self) -> Written {
        let mut written = Written::default();
        for waiter in self.waiters {
            match (waiter.start, waiter.answer.send(Ok(()))) {
                (Some(start), Ok(())) => written.on.push(start),
                // Nobody is left to send the request.
                (Some(start), Err(_)) => written.off.push(start),
                (None, _) => {}
            }
        }
        written
    }
}
