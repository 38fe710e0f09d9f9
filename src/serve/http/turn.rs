//! Runs the work of requests on blocking threads and in turn: filtering a million targets takes
//! tens of milliseconds.

use super::{
    answer::{Answer, StreamedData},
    concurrency_limit::{ConcurrencyLimit, PLACES, QuestionLimits},
    error::ApiError,
    state::AppState,
};
use crate::{plan::Plan, tasks::unwrap_join};
use axum::{
    body::{Bytes, to_bytes},
    extract::Request,
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::OwnedSemaphorePermit, time};

/// How long a question waits for its place and for its turn, and when to ask again.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// How long the body of an order may take to arrive.
const BODY: Duration = Duration::from_secs(10);

/// How long a body may take while all places are taken. One that takes longer makes room for the next, so
/// that clients that send nothing do not keep others out.
const CROWDED_BODY: Duration = Duration::from_secs(1);

/// How often a body that takes longer looks whether all places are taken.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The permit to read and to hold the body of a question.
pub(super) struct Place {
    _place: Turn,
    places: ConcurrencyLimit,
    turns: ConcurrencyLimit,
    waiting: usize,
}

impl QuestionLimits {
    /// Waits for a place; take one before a body, so that waiting requests take no memory.
    pub(super) async fn place(&self) -> Result<Place, ApiError> {
        let place = waited(PLACES, Turn::of(&self.places)).await?;
        let waiting = PLACES.saturating_sub(self.places.free()).saturating_sub(1);
        let (places, turns) = (self.places.clone(), self.turns.clone());
        Ok(Place { _place: place, places, turns, waiting })
    }
}

impl Place {
    /// Reads the body of the question.
    pub(super) async fn body(&self, request: Request, max: usize) -> Result<Bytes, ApiError> {
        let crowded = async {
            time::sleep(CROWDED_BODY).await;
            while self.places.free() > 0 {
                time::sleep(BETWEEN_LOOKS).await;
            }
        };
        tokio::select! {
            body = read_body(request, max) => body,
            () = crowded => Err(ApiError::late(CROWDED_BODY)),
        }
    }

    /// Waits for the turn of a question whose body is there.
    pub(super) async fn turn(&self) -> Result<Turn, ApiError> {
        waited(self.waiting, Turn::of(&self.turns)).await
    }
}

/// The body of a request, if it arrives in time.
pub(super) async fn read_body(request: Request, max: usize) -> Result<Bytes, ApiError> {
    match time::timeout(BODY, to_bytes(request.into_body(), max)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(why)) => Err(ApiError::bad(format!("the body cannot be read: {why}"))),
        Err(_) => Err(ApiError::late(BODY)),
    }
}

/// A permit, unless others keep it for too long.
async fn waited(
    others: usize,
    permit: impl Future<Output = Result<Turn, ApiError>>,
) -> Result<Turn, ApiError> {
    time::timeout(MAX_WAIT, permit).await.unwrap_or_else(|_| {
        let seconds = MAX_WAIT.as_secs();
        let why = format!(
            "this request waited {seconds} s for its turn (in progress: {others}); try again later"
        );
        Err(ApiError::again_after(MAX_WAIT, why))
    })
}

/// A streamed response whose first chunk is computed in turn.
pub(super) async fn worked_out<A>(
    state: &AppState,
    work: impl FnOnce(Arc<Plan>) -> Result<StreamedData, ApiError> + Send + 'static,
) -> Result<Answer<A>, ApiError> {
    let begun = in_turn(state, |plan| work(plan).map(StreamedData::begin)).await?;
    Ok(begun.sent(state.limits.answers.clone()).into())
}

/// Waits for a turn, then runs `work` with the current plan on a blocking thread.
pub(super) async fn in_turn<T: Send + 'static>(
    state: &AppState,
    work: impl FnOnce(Arc<Plan>) -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    Turn::of(&state.limits.answers).await?.work(state, work).await
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

#[cfg(test)]
mod tests {
    use super::*;
    use axum::{body::Body, response::IntoResponse as _};
    use futures::stream::pending;
    use tokio::time::Instant;

    fn slow() -> Request {
        Request::new(Body::from_stream(pending::<Result<String, std::io::Error>>()))
    }

    #[tokio::test(start_paused = true)]
    async fn slow_request_bodies_block_no_other_client() {
        let limits = QuestionLimits::new(1);
        let alone = limits.place().await.ok().unwrap();
        let begun = Instant::now();
        assert!(alone.body(slow(), 10).await.is_err());
        assert_eq!(begun.elapsed(), Duration::from_secs(10), "nobody else asks");
        drop(alone);
        let asked = || async {
            let place = limits.place().await?;
            place.body(slow(), 10).await
        };
        let slow_ones = futures::future::join_all((0..100).map(|_| asked()));
        let honest = async {
            tokio::task::yield_now().await;
            let begun = Instant::now();
            let place = limits.place().await.ok().unwrap();
            let body = place.body(Request::new(Body::from("{}")), 10).await.ok().unwrap();
            (body, begun.elapsed())
        };
        let (_, (body, took)) = tokio::join!(slow_ones, honest);
        assert_eq!(body, "{}");
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn question_that_waits_too_long_is_refused_with_retry_after() {
        let limits = QuestionLimits::new(1);
        let first = limits.place().await.ok().unwrap();
        let turn = first.turn().await.ok().unwrap();
        let second = limits.place().await.ok().unwrap();
        let refused = second.turn().await.err().unwrap();
        assert!(
            refused.why.contains("waited 30 s for its turn (in progress: 1)"),
            "{}",
            refused.why
        );
        assert_eq!(refused.into_response().headers()["retry-after"], "30");
        drop(turn);
        assert!(second.turn().await.is_ok());
        // All places are taken.
        let mut places = Vec::new();
        for _ in 2..PLACES {
            places.push(limits.place().await.ok().unwrap());
        }
        assert!(limits.place().await.is_err());
        places.pop();
        assert!(limits.place().await.is_ok());
    }
}
