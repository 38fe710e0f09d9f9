//! The state that an earlier process left, while it is being loaded.

use crate::{
    jobs::TargetConstraints,
    model::records::{JournalFailure, RecoveredState},
};
use futures::{FutureExt as _, future::BoxFuture};
use std::sync::Arc;
use tokio::sync::watch;
use wall_clock::Clock;

/// The state of the previous process, which may still be loading, and what it waits for.
pub struct Recovery {
    state: BoxFuture<'static, RecoveredState>,
    obstacle: watch::Receiver<JournalFailure>,
}

impl Recovery {
    /// A state that is still being loaded. `obstacle` says what it waits for.
    pub fn new(
        state: impl Future<Output = RecoveredState> + Send + 'static,
        obstacle: watch::Receiver<JournalFailure>,
    ) -> Self {
        Self { state: state.boxed(), obstacle }
    }

    /// Applies `change` to the state once it is loaded.
    pub fn map(
        self,
        change: impl FnOnce(RecoveredState) -> RecoveredState + Send + 'static,
    ) -> Self {
        Self { state: self.state.map(change).boxed(), ..self }
    }

    /// Waits for the state. Until it is loaded, publishes what it waits for.
    pub(super) async fn finished(
        mut self,
        constraints: &watch::Sender<Arc<TargetConstraints>>,
        clock: Clock,
    ) -> RecoveredState {
        loop {
            // Every arm is cancel-safe, and no arm's body awaits.
            tokio::select! {
                biased;
                recovered = &mut self.state => return recovered,
                Ok(()) = self.obstacle.changed() => {
                    let why = self.obstacle.borrow_and_update().clone();
                    constraints.send_modify(|constraints| {
                        let failure = &mut Arc::make_mut(constraints).journal_failure;
                        let since = failure.as_ref().map_or_else(|| clock.now(), |(at, _)| *at);
                        *failure = Some((since, why));
                    });
                }
            }
        }
    }
}

impl From<RecoveredState> for Recovery {
    fn from(state: RecoveredState) -> Self {
        let unused = JournalFailure::NotLoaded("it is about to be".to_owned());
        Self::new(std::future::ready(state), watch::channel(unused).1)
    }
}

impl std::fmt::Debug for Recovery {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Recovery").field("obstacle", &self.obstacle).finish_non_exhaustive()
    }
}
