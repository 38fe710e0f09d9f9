//! The limit on concurrent requests of one kind.

use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

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
