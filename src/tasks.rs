//! Shared by all tasks: the current time on both clocks, publishing a state, and waiting for spawned tasks and threads.
//! A panic in a task is resumed in the caller that joins it, because the caller cannot continue with half of its state.

use std::{panic::resume_unwind, sync::Arc};
use tokio::{sync::watch, task::JoinError, time::Instant};
use wall_clock::Moment;

/// The current time on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// On the wall clock, for times that are published.
    pub(crate) wall: Moment,
    /// On the monotonic clock, for timers and durations.
    pub(crate) at: Instant,
}

/// Publishes a value, and wakes its readers only if it changed.
pub(crate) fn publish_if_changed<T: PartialEq + ?Sized>(
    published: &watch::Sender<Arc<T>>,
    value: impl Into<Arc<T>>,
) {
    let value = value.into();
    published.send_if_modified(|last| {
        let changed = **last != *value;
        if changed {
            *last = value;
        }
        changed
    });
}

/// The result of a task; `None` if it was cancelled, as when the runtime shuts down.
#[must_use]
pub(crate) fn unwrap_join<T>(ended: Result<T, JoinError>) -> Option<T> {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(value) => Some(value),
        Err(Ok(panic)) => resume_unwind(panic),
        Err(Err(_)) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::AssertUnwindSafe;
    use tokio::task::JoinSet;

    #[tokio::test]
    async fn joining_resumes_panics_and_ignores_cancelled_tasks() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async { 7 });
        assert_eq!(tasks.join_next().await.map(unwrap_join), Some(Some(7)));
        tasks.spawn(std::future::pending()).abort();
        assert_eq!(tasks.join_next().await.map(unwrap_join), Some(None));
        tasks.spawn(async { panic!("on purpose") });
        let panics = tasks.join_next().await.unwrap();
        let resumed =
            std::panic::catch_unwind(AssertUnwindSafe(|| unwrap_join(panics))).unwrap_err();
        assert_eq!(resumed.downcast_ref::<&str>(), Some(&"on purpose"));
    }
}
