//! Records in the journal what happens to queued targets, by comparing successive plans.
//!
//! Keeps what it found and recorded for each target. An event is recorded when a target enters a
//! queue, and when the reason for its refusal changes and persists. Events that recur are recorded
//! once and then counted. Reads only the plan and makes no decisions; nothing waits for it. The
//! number of events is bounded: beyond the limit, one event contains the number of omitted ones.

mod plan_changes;

pub use plan_changes::{About, ChangeEntry, PlanChanges, PlanHistory, Waiting};

use crate::{
    plan::Plan,
    store::journal::{EventDetails, EventSummary, EventType, Journal},
    text::Label,
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// Minimum interval between two comparisons, and the additional interval per queued target.
const COMPARE_INTERVAL: Duration = Duration::from_secs(5);
const INTERVAL_PER_TARGET: Duration = Duration::from_micros(10);

/// An unchanged plan is compared again after this time, so that persisting reasons are recorded.
const UNCHANGED_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum number of events recorded at once, and their average rate per second.
const EVENT_BURST: usize = 200;
const EVENTS_PER_SECOND: f64 = 0.5;

/// The task that records queue events.
#[derive(Debug)]
pub struct RecorderTask {
    plans: watch::Receiver<Arc<Plan>>,
    journal: Journal,
    clock: Clock,
    history: PlanHistory,
    /// Number of events that could be recorded at the given time.
    event_allowance: (f64, Instant),
}

impl RecorderTask {
    /// Creates the task.
    pub fn new(clock: Clock, plans: watch::Receiver<Arc<Plan>>, journal: Journal) -> Self {
        let event_allowance = (EVENT_BURST as f64, Instant::now());
        Self { plans, journal, clock, history: PlanHistory::default(), event_allowance }
    }

    /// Runs until `stop`, or until the planner ends.
    pub async fn run(mut self, stop: CancellationToken) {
        let recording = async {
            // The initial value is not a plan.
            let mut planned = self.plans.changed().await;
            while planned.is_ok() {
                let plan = Arc::clone(&self.plans.borrow_and_update());
                let waiting = self.record_changes(&plan);
                let targets = u32::try_from(waiting).unwrap_or(u32::MAX);
                time::sleep(COMPARE_INTERVAL.max(INTERVAL_PER_TARGET.saturating_mul(targets)))
                    .await;
                planned =
                    time::timeout(UNCHANGED_INTERVAL, self.plans.changed()).await.unwrap_or(Ok(()));
            }
        };
        // Cancellation cannot interrupt a comparison, because it does not await.
        let _stopped = stop.run_until_cancelled(recording).await;
    }

    /// Records the changes in a plan. Returns the number of queued targets.
    fn record_changes(&mut self, plan: &Plan) -> usize {
        let (allowance, since) = self.event_allowance;
        let now = Instant::now();
        let earned = (now - since).as_secs_f64() * EVENTS_PER_SECOND;
        let allowance = (allowance + earned).min(EVENT_BURST as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
        let max_events = allowance as usize;
        let mut count = 0;
        let waiting = plan
            .queued_targets()
            .inspect(|_| count += 1)
            .map(|(node, ix, channel, refused)| Waiting { ix, node, channel, refused });
        let exists = |ix| plan.snapshot.target(ix).is_some();
        let changes = self.history.compare(self.clock.now(), waiting, exists, max_events);
        self.event_allowance = (allowance - changes.entries.len() as f64, now);
        let events = events(plan, changes);
        if !events.is_empty() {
            self.journal.record_batch(events);
        }
        count
    }
}

/// Converts plan changes to journal events.
fn events(plan: &Plan, plan_changes: PlanChanges) -> Vec<EventDetails> {
    let target = |it: &Waiting| plan.snapshot.target(it.ix).map(|target| target.id());
    let channel = |it: &Waiting| {
        plan.channels.list.get(it.channel).map_or_else(String::new, |it| it.name.to_string())
    };
    let changes = plan_changes.entries.into_iter().filter_map(
        |ChangeEntry { change: about, listed, targets, recurrence }| {
            let best = listed.first()?;
            let (id, channel) = (target(best)?, channel(best));
            let summary = EventSummary {
                also: listed.iter().skip(1).filter_map(target).collect(),
                targets: Some(targets).filter(|targets| *targets > 1),
                count: recurrence.map(|it| it.count),
                first: recurrence.map(|it| it.first),
                last: recurrence.map(|it| it.last),
            };
            Some(match about {
                About::Queued => EventDetails::Queued { target: id, channel, summary },
                About::Refused => {
                    let reason = best.refused?.label().to_owned();
                    EventDetails::Refused { target: id, channel, reason, summary }
                }
            })
        },
    );
    let more = [
        (EventType::Queued, plan_changes.more_queued),
        (EventType::Refused, plan_changes.more_refused),
    ];
    let more = more.into_iter().filter(|(_, targets)| *targets > 0);
    let more =
        more.map(|(of, targets)| EventDetails::Omitted { of: of.label().to_owned(), targets });
    changes.chain(more).collect()
}

#[cfg(test)]
mod tests;
