//! Runs the work of requests on blocking threads and in turn: filtering a million targets takes
//! tens of milliseconds.

use super::{
    answer::StreamedData, concurrency_limit::ConcurrencyLimit, error::ApiError, state::AppState,
};
use crate::{plan::Plan, tasks::unwrap_join};
use axum::response::{IntoResponse as _, Response};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// A streamed response whose first chunk is computed in turn.
pub(super) async fn worked_out(
    state: &AppState,
    turns: ConcurrencyLimit,
    work: impl FnOnce(Arc<Plan>) -> Result<StreamedData, ApiError> + Send + 'static,
) -> Response {
    match in_turn(state, &turns, |plan| work(plan).map(StreamedData::begin)).await {
        Ok(begun) => begun.sent(turns),
        Err(refused) => refused.into_response(),
    }
}

/// Waits for a turn, then runs `work` with the current plan on a blocking thread.
pub(super) async fn in_turn<T: Send + 'static>(
    state: &AppState,
    turns: &ConcurrencyLimit,
    work: impl FnOnce(Arc<Plan>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    Turn::of(turns).await?.work(state, work).await
}

/// A permit to work on one request. It is released when its last work ends, even if the client has
/// disconnected.
#[derive(Clone)]
pub(super) struct Turn {
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Turn {
    pub(super) async fn of(turns: &ConcurrencyLimit) -> Result<Self, ApiError> {
        let permit = turns.clone().acquire().await.ok_or_else(ApiError::stopping)?;
        Ok(Self { _permit: Arc::new(permit) })
    }

    /// Runs `work` with the current plan on a blocking thread.
    pub(super) async fn work<T: Send + 'static>(
        &self,
        state: &AppState,
        work: impl FnOnce(Arc<Plan>) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let (turn, plan) = (self.clone(), Arc::clone(&state.plan.borrow()));
        let work = move || {
            let _turn = turn;
            work(plan)
        };
        let done = tokio::task::spawn_blocking(work).await;
        unwrap_join(done).unwrap_or_else(|| Err(ApiError::stopping()))
    }
}
