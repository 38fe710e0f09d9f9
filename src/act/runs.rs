//! The task that ends runs.
//!
//! Owns nothing: the job state task owns the runs, and the planner puts their members first. It
//! looks at each plan, and ends a run that has nothing left to start.

use crate::{
    act::job_state::{JobStateHandle, RunNotChanged},
    model::records::RunCommand,
    plan::Plan,
    scan::ScanStatus,
};
use std::sync::Arc;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use wall_clock::Clock;

#[derive(Debug)]
pub(crate) struct RunTask {
    pub(crate) clock: Clock,
    pub(crate) plans: watch::Receiver<Arc<Plan>>,
    pub(crate) status: watch::Receiver<Arc<ScanStatus>>,
    pub(crate) job_state: JobStateHandle,
}

impl RunTask {
    /// Runs until `stop`, or until the planner ends.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        while let Some(Ok(())) = stop.run_until_cancelled(self.plans.changed()).await {
            let plan = Arc::clone(&self.plans.borrow_and_update());
            // Until the cluster has been read, missing targets are unknown, not done.
            if !self.status.borrow().is_ready(plan.snapshot.version()) {
                continue;
            }
            let now = self.clock.now();
            for (number, run) in plan.conditions.constraints.runs.open() {
                let Some(end) = plan.run_end(number, run, now) else { continue };
                let (how, scope) = (end.how, run.scope.to_string());
                let command = RunCommand::End(number, end);
                let ended = stop.run_until_cancelled(self.job_state.change_run(command)).await;
                match ended {
                    None => return,
                    Some(Ok(_)) => tracing::info!(run = number, scope, ?how, "a run ended"),
                    // The run has been ended in the meantime, or is ended again with a later plan.
                    Some(Err(RunNotChanged::Rejected(_) | RunNotChanged::NotPersisted(_))) => {}
                }
            }
        }
    }
}
