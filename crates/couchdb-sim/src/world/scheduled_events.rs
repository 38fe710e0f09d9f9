//! Events that occur at fixed times: deployments of design documents, batches of writes and killed compactions.

use super::{World, keys::JobKind};
use crate::config::Deploy;
use std::time::Duration;

/// The time of the first deployment: soon after the start, so that it can be observed.
const FIRST_DEPLOY: Duration = Duration::from_secs(100);

/// The time of the first killed compaction.
const FIRST_KILL: Duration = Duration::from_secs(150);

/// The maximum bytes that a killed compaction leaves behind: too few for an alert.
const MAX_LEFTOVER: u64 = 4 << 30;

/// An event, with the number of its occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScheduledEvent {
    /// The deployment at this position in the configuration.
    Deploy(usize, u32),
    /// The batch at this position in the configuration.
    Batch(usize),
    /// A compaction is killed.
    Kill(u32),
}

impl World {
    pub(super) fn schedule_first_events(&mut self) {
        let deploys = (0..self.config.deploys.len()).map(|at| ScheduledEvent::Deploy(at, 0));
        self.scheduled.extend(deploys.map(|what| (FIRST_DEPLOY, what)));
        let batches = self.config.batches.iter().enumerate();
        let batches = batches.map(|(at, batch)| (batch.first, ScheduledEvent::Batch(at)));
        self.scheduled.extend(batches);
        if self.config.killed_every.is_some() {
            self.scheduled.insert((FIRST_KILL, ScheduledEvent::Kill(0)));
        }
    }

    /// Runs an event and schedules its next occurrence.
    pub(super) fn run_event(&mut self, at: Duration, what: ScheduledEvent) {
        self.scheduled.remove(&(at, what));
        let next = match what {
            ScheduledEvent::Deploy(place, count) => {
                let Some(deploy) = self.config.deploys.get(place).cloned() else { return };
                let every = deploy.every;
                self.deploy(deploy, count);
                Some((every, ScheduledEvent::Deploy(place, count.wrapping_add(1))))
            }
            ScheduledEvent::Batch(place) => {
                let Some(batch) = self.config.batches.get(place).cloned() else { return };
                self.write(&batch.db, batch.documents);
                Some((batch.every, what))
            }
            ScheduledEvent::Kill(count) => {
                self.kill_one(count);
                let every = self.config.killed_every;
                every.map(|every| (every, ScheduledEvent::Kill(count.wrapping_add(1))))
            }
        };
        if let Some((every, next)) = next {
            self.scheduled.insert((at + every.max(Duration::from_secs(1)), next));
        }
    }

    fn deploy(&mut self, deploy: Deploy, count: u32) {
        let Deploy { db, mut design, .. } = deploy;
        for view in &mut design.views {
            view.push_str(&format!("_v{}", count + 2));
        }
        self.put_design(&db, design);
    }

    /// Kills one shard compaction, as a crash of its process would: the one with the most written
    /// bytes below the limit. The nodes take turns.
    fn kill_one(&mut self, count: u32) {
        let node = count as usize % self.nodes.len();
        let shards = self.jobs.iter().filter(|(key, _)| key.kind == JobKind::Shard);
        let here = shards.filter(|(key, _)| self.node_of(key.file) == node);
        let written = here.map(|(key, job)| (job.temporary(key.kind, self.now), *key));
        let farthest = written.filter(|(bytes, _)| *bytes <= MAX_LEFTOVER).max_by_key(|it| it.0);
        let killed = farthest.map(|(_, key)| key);
        self.drop_jobs(|key| Some(*key) == killed);
    }
}
