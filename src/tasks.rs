//! What a task or a thread that was spawned came to. Owns one rule: a panic goes on in whoever
//! waits, because half a state is no state.

use std::panic::resume_unwind;
use tokio::task::JoinError;

/// What it came to; `None` where it was given up, as at the end of the runtime.
#[must_use]
pub fn joined<T>(ended: Result<T, JoinError>) -> Option<T> {
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
    async fn a_panic_goes_on_and_what_was_given_up_came_to_nothing() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async { 7 });
        assert_eq!(tasks.join_next().await.map(joined), Some(Some(7)));
        tasks.spawn(std::future::pending()).abort();
        assert_eq!(tasks.join_next().await.map(joined), Some(None));
        tasks.spawn(async { panic!("on purpose") });
        let panics = tasks.join_next().await.unwrap();
        let went_on = std::panic::catch_unwind(AssertUnwindSafe(|| joined(panics))).unwrap_err();
        assert_eq!(went_on.downcast_ref::<&str>(), Some(&"on purpose"));
    }
}
