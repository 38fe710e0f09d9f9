//! The recorder: one task that follows the plan and writes down what happens to those that
//! wait.
//!
//! Owns what it has seen and written of each. The journal gets an event where a target entered
//! a queue, and where what keeps it there became another thing and lasts; what comes and goes
//! is written once and then counted. Reads nothing but the plan, decides nothing, and nobody
//! waits for it. What is written is bounded: of more than that, one event has the number.

mod difference;

pub use difference::{About, Difference, Entry, Memory, Repeated, Waiting};

use crate::{
    plan::Plan,
    store::journal::{Journal, Summary, Type, What},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

/// From one look at the plan to the next, and for how long each target that waits holds the
/// next one back.
const LOOK: Duration = Duration::from_secs(5);
const PER_TARGET: Duration = Duration::from_micros(10);

/// The same plan is looked at again after this time: what lasts is written though nothing
/// else changes.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Events that may be written at once, and on average in each second.
const BURST: usize = 200;
const PER_SECOND: f64 = 0.5;

/// Follows the plan.
#[derive(Debug)]
pub struct Task {
    plans: watch::Receiver<Arc<Plan>>,
    journal: Journal,
    clock: Clock,
    memory: Memory,
    /// How many events may be written now, as it was at a moment.
    allowed: (f64, Instant),
}

impl Task {
    /// Makes the task.
    #[must_use]
    pub fn new(clock: Clock, plans: watch::Receiver<Arc<Plan>>, journal: Journal) -> Self {
        let allowed = (BURST as f64, Instant::now());
        Self { plans, journal, clock, memory: Memory::default(), allowed }
    }

    /// Writes until `stop`, or until nobody plans any more.
    pub async fn run(mut self, stop: CancellationToken) {
        let follows = async {
            // Nothing is planned before the first change.
            let mut planned = self.plans.changed().await;
            while planned.is_ok() {
                let plan = Arc::clone(&self.plans.borrow_and_update());
                let waiting = self.look(&plan);
                let targets = u32::try_from(waiting).unwrap_or(u32::MAX);
                time::sleep(LOOK.max(PER_TARGET.saturating_mul(targets))).await;
                planned = time::timeout(LOOK_AGAIN, self.plans.changed()).await.unwrap_or(Ok(()));
            }
        };
        // A look is whole: it awaits nothing.
        let _stopped = stop.run_until_cancelled(follows).await;
    }

    /// Writes down what is new in a plan; answers how much waits.
    fn look(&mut self, plan: &Plan) -> usize {
        let (left, then) = self.allowed;
        let now = Instant::now();
        let left = (left + (now - then).as_secs_f64() * PER_SECOND).min(BURST as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bounded")]
        let most = left as usize;
        let mut count = 0;
        let waiting = plan
            .waiting()
            .inspect(|_| count += 1)
            .map(|(node, ix, channel, refused)| Waiting { ix, node, channel, refused });
        let there = |ix| plan.snapshot.target(ix).is_some();
        let found = self.memory.look(self.clock.now(), waiting, there, most);
        self.allowed = (left - found.entries.len() as f64, now);
        let events = events(plan, found);
        if !events.is_empty() {
            self.journal.publish(events);
        }
        count
    }
}

/// What is new in a plan, in words.
fn events(plan: &Plan, found: Difference) -> Vec<What> {
    let target = |it: &Waiting| plan.snapshot.target(it.ix).map(|target| target.id());
    let channel = |it: &Waiting| {
        plan.channels.list.get(it.channel).map_or_else(String::new, |it| it.name.to_string())
    };
    let written =
        found.entries.into_iter().filter_map(|Entry { about, named, targets, repeated }| {
            let best = named.first()?;
            let (id, channel) = (target(best)?, channel(best));
            let summary = Summary {
                also: named.iter().skip(1).filter_map(target).collect(),
                targets: Some(targets).filter(|targets| *targets > 1),
                count: repeated.map(|it| it.count),
                first: repeated.map(|it| it.first),
                last: repeated.map(|it| it.last),
            };
            Some(match about {
                About::Queued => What::Queued { target: id, channel, summary },
                About::Refused => {
                    let reason = best.refused?.label().to_owned();
                    What::Refused { target: id, channel, reason, summary }
                }
            })
        });
    let more = [(Type::Queued, found.more_queued), (Type::Refused, found.more_refused)];
    let more = more.into_iter().filter(|(_, targets)| *targets > 0);
    let more = more.map(|(of, targets)| What::Omitted { of: of.label().to_owned(), targets });
    written.chain(more).collect()
}

#[cfg(test)]
mod tests;
