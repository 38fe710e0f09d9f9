//! The limits on concurrent requests of each kind.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of API responses computed at a time: each may sort a million targets.
const ANSWERS: usize = 4;

/// The maximum number of questions about a design document answered at a time: each examines every target.
const PREFLIGHTS: usize = 2;

/// Maximum number of questions whose bodies are being read or held. A slow body keeps its place for the maximum time,
/// so there are more places than turns: clients that send slowly hardly delay others.
pub(super) const PLACES: usize = 16;

/// Limits how many requests of one kind are computed at the same time.
#[derive(Clone, Debug)]
pub(super) struct ConcurrencyLimit(Arc<Semaphore>);

impl ConcurrencyLimit {
    pub(super) fn new(at_a_time: usize) -> Self {
        Self(Arc::new(Semaphore::new(at_a_time)))
    }

    /// A permit, if one is free now.
    pub(super) fn try_acquire(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// The number of permits that are free now.
    pub(super) fn free(&self) -> usize {
        self.0.available_permits()
    }

    /// Waits for a permit. It is never `None`, because nothing closes the semaphore.
    pub(super) async fn acquire(self) -> Option<OwnedSemaphorePermit> {
        self.0.acquire_owned().await.ok()
    }
}

/// The limits on questions sent as a body: on those that are being read or wait, and on those being
/// processed. No turn is taken before the body has arrived.
#[derive(Clone, Debug)]
pub(super) struct QuestionLimits {
    pub(super) places: ConcurrencyLimit,
    pub(super) turns: ConcurrencyLimit,
}

impl QuestionLimits {
    pub(super) fn new(at_a_time: usize) -> Self {
        Self { places: ConcurrencyLimit::new(PLACES), turns: ConcurrencyLimit::new(at_a_time) }
    }
}

/// The limits that all clients of a server share.
#[derive(Clone, Debug)]
pub struct Limits {
    /// For responses that read the plan or the journal, of the API or of a page.
    pub(super) answers: ConcurrencyLimit,
    /// For forecasts of both API and page; one is processed at a time.
    pub(super) forecasts: QuestionLimits,
    pub(super) preflights: QuestionLimits,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            answers: ConcurrencyLimit::new(ANSWERS),
            forecasts: QuestionLimits::new(1),
            preflights: QuestionLimits::new(PREFLIGHTS),
        }
    }
}
