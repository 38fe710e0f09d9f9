//! Follows the service: reads its state and its events, and passes both on.
//!
//! Runs as two tasks. One reads the state after each event, and otherwise every few seconds, but at
//! most once a second and only for a small share of the time. The other receives events by the same
//! long poll as `recliner events --follow`. A service that does not answer is retried at growing
//! intervals.

use super::{
    answers::{Answers, SlowAnswers},
    model::Update,
};
use crate::{
    cli::{
        journal::{LONG_POLL_WAIT, NextPosition, next_position, own_event_types},
        service_client::ServiceClient,
    },
    serve::report::Events,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, mpsc},
    time::{self, Instant},
};

/// Minimum pause between two reads of the state.
const PACE: Duration = Duration::from_secs(1);

/// Maximum pause while jobs run, and while none does.
const BUSY: Duration = Duration::from_secs(2);
const IDLE: Duration = Duration::from_secs(5);

/// Minimum pause after a read, as a multiple of its duration.
const REST: u32 = 10;

/// Maximum pause before a service that does not answer is retried.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// Maximum age of advice and permissions.
const SLOW: Duration = Duration::from_secs(60);

/// Maximum number of events in one answer.
const EVENTS: &str = "500";

/// The client for the service, and the channel for its updates.
#[derive(Clone, Debug)]
pub(super) struct Follower {
    pub(super) client: Arc<ServiceClient>,
    pub(super) news: mpsc::Sender<Update>,
    /// Notified of every event, so that the state is read soon.
    pub(super) happened: Arc<Notify>,
}

impl Follower {
    /// Reads the state repeatedly until the receiver is closed.
    pub(super) async fn follow_state(self, first: SlowAnswers) {
        let mut slow = (first, Instant::now());
        let mut pause = IDLE;
        let mut failures = 0;
        loop {
            // An event shortens a pause between reads, but not the pause before a retry.
            time::sleep(PACE).await;
            let rest = time::sleep(pause.saturating_sub(PACE));
            tokio::select! {
                () = rest => {}
                () = self.happened.notified(), if failures == 0 => {}
            }
            let began = Instant::now();
            let fresh = (slow.1.elapsed() < SLOW && failures == 0).then(|| slow.0.clone());
            let was_fresh = fresh.is_some();
            let update = match Answers::read(&self.client, fresh).await {
                Ok(answers) => {
                    failures = 0;
                    if !was_fresh {
                        slow = (answers.slow.clone(), Instant::now());
                    }
                    pause = pause_after(began.elapsed(), !answers.jobs.jobs.is_empty());
                    Update::Answers(Box::new(answers))
                }
                Err(failure) => {
                    failures += 1;
                    pause = (PACE * failures).min(MAX_PAUSE);
                    Update::Silent(failure.why)
                }
            };
            if self.news.send(update).await.is_err() {
                return;
            }
        }
    }

    /// Waits for events until the receiver is closed.
    pub(super) async fn follow_events(self) {
        let types = own_event_types();
        let mut since: Option<u64> = None;
        let mut pause = PACE;
        loop {
            let started = Instant::now();
            let after = since.map(|since| since.to_string());
            let mut query = vec![("types", &*types), ("limit", EVENTS)];
            if let Some(after) = &after {
                query.extend([("since", &**after), ("wait", LONG_POLL_WAIT)]);
            }
            let answer: Result<Events, _> = self.client.get("/api/v1/events", &query).await;
            let sent = match answer {
                Ok(answer) => {
                    pause = PACE;
                    self.pass_on(answer, &mut since).await
                }
                Err(failure) => {
                    pause = (pause * 2).min(MAX_PAUSE);
                    self.news.send(Update::NoEvents(failure.why)).await.is_ok()
                }
            };
            if !sent {
                return;
            }
            time::sleep_until(started + pause).await;
        }
    }

    /// Passes events on; returns whether the receiver is still open.
    async fn pass_on(&self, answer: Events, since: &mut Option<u64>) -> bool {
        match next_position(&answer, *since) {
            NextPosition::After(seq) => *since = Some(seq),
            NextPosition::Restart => {
                *since = None;
                return self.news.send(Update::EventsRestart).await.is_ok();
            }
        }
        if !answer.events.is_empty() {
            self.happened.notify_one();
        }
        self.news.send(Update::Events(answer.events)).await.is_ok()
    }
}

/// The pause after a read that took this long.
fn pause_after(took: Duration, is_busy: bool) -> Duration {
    let pause = if is_busy { BUSY } else { IDLE };
    pause.max(took.saturating_mul(REST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_service_is_read_less_often() {
        let ms = Duration::from_millis;
        for (took, is_busy, expected) in [
            (ms(5), true, BUSY),
            (ms(5), false, IDLE),
            (ms(400), true, ms(4_000)),
            (ms(3_000), false, ms(30_000)),
        ] {
            assert_eq!(pause_after(took, is_busy), expected, "{took:?} {is_busy}");
        }
    }
}
