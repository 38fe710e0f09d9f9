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

    #[tokio::test]
    async fn a_panic_goes_on_and_what_was_given_up_came_to_nothing() {
        assert_eq!(joined(tokio::spawn(async { 7 }).await), Some(7));
        let waits = tokio::spawn(std::future::pending::<()>());
        waits.abort();
        assert_eq!(joined(waits.await), None);
        let panics = tokio::spawn(async { panic!("on purpose") }).await;
        let went_on =
            std::panic::catch_unwind(AssertUnwindSafe(|| joined::<()>(panics))).unwrap_err();
        assert_eq!(went_on.downcast_ref::<&str>(), Some(&"on purpose"));
    }
}
