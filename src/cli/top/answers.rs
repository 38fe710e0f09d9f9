//! The service's answers: everything that the screens show, read together.
//!
//! Owns which routes are read and how often; keeps no state of the screen.

use crate::{
    cli::{CommandError, service_client::ServiceClient},
    serve::report::{
        Advice, Concern, EventLine, Jobs, Planned, Queues, RunList, Space, Status,
        orders::Permissions,
    },
    text::capital,
};
use std::collections::VecDeque;

/// Maximum number of waiting targets to read, the best first.
pub(super) const MAX_WAITING: usize = 500;

/// Maximum number of events to keep, the newest.
const MAX_EVENTS: usize = 500;

/// The state of the service and of its cluster at one time.
#[derive(Clone, Debug)]
pub(super) struct Answers {
    pub(super) status: Status,
    pub(super) space: Space,
    pub(super) jobs: Jobs,
    pub(super) runs: RunList,
    pub(super) planned: Planned,
    pub(super) queues: Queues,
    pub(super) slow: SlowAnswers,
}

/// Answers that change rarely and are read less often.
#[derive(Clone, Debug)]
pub(super) struct SlowAnswers {
    pub(super) advice: Advice,
    /// The orders that this user may give; `None` if the service does not report them.
    pub(super) permissions: Option<Permissions>,
}

impl Answers {
    /// Reads all answers from the service.
    ///
    /// # Errors
    /// If one of the answers is missing.
    pub(super) async fn read(
        client: &ServiceClient,
        slow: Option<SlowAnswers>,
    ) -> Result<Self, CommandError> {
        let waiting = MAX_WAITING.to_string();
        Ok(Self {
            status: client.get("/api/v1/status", &[]).await?,
            space: client.get("/api/v1/space", &[]).await?,
            jobs: client.get("/api/v1/jobs", &[]).await?,
            runs: client.get("/api/v1/runs", &[]).await?,
            planned: client.get("/api/v1/plan", &[("limit", &waiting)]).await?,
            queues: client.get("/api/v1/queue", &[("limit", "0")]).await?,
            slow: match slow {
                Some(slow) => slow,
                None => SlowAnswers {
                    advice: client.get("/api/v1/advice", &[]).await?,
                    permissions: client.get("/api/v1/permissions", &[]).await.ok(),
                },
            },
        })
    }

    /// Whether recliner starts compactions by itself.
    pub(super) fn enforces(&self) -> bool {
        self.status.mode == "enforce"
    }

    /// All current problems, the worst first; empty if there are none.
    pub(super) fn wrong(&self) -> Vec<String> {
        let concerns = self.status.all_concerns(&self.space, &self.planned, &self.slow.advice);
        let (critical, warnings): (Vec<_>, Vec<_>) =
            concerns.into_iter().partition(|concern| concern.is_critical);
        let says = |concerns: Vec<Concern>| concerns.into_iter().map(|concern| concern.says);
        let suspended = self.status.suspensions.iter().map(|line| capital(&line.says));
        says(critical).chain(suspended).chain(says(warnings)).collect()
    }
}
/// The latest events, newest first.
#[derive(Clone, Debug, Default)]
pub(super) struct RecentEvents {
    pub(super) lines: VecDeque<EventLine>,
    /// Why there are no events.
    pub(super) problem: Option<String>,
}

impl RecentEvents {
    /// Adds events, given in chronological order.
    pub(super) fn add(&mut self, lines: impl IntoIterator<Item = EventLine>) {
        self.problem = None;
        for line in lines {
            self.lines.push_front(line);
        }
        self.lines.truncate(MAX_EVENTS);
    }
}
