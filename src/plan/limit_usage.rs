//! How much of each limit is used now.
//!
//! Counts like the planner: every compaction, whoever started it, but not the starts of this plan.

use super::{admission, duty, published::Plan, slots::JobSlots};
use crate::{jobs::BusyPeriod, table::NodeIx};
use wall_clock::Moment;

/// How much of each limit running compactions use.
#[derive(Clone, Debug)]
pub struct LimitUsage(JobSlots);

impl LimitUsage {
    /// Compactions in the whole cluster.
    #[must_use]
    pub const fn cluster(&self) -> usize {
        self.0.cluster_jobs()
    }

    /// Compactions on a node.
    #[must_use]
    pub fn on_node(&self, node: NodeIx) -> usize {
        self.0.jobs_on(node)
    }

    /// Targets of a channel that are being compacted on a node.
    #[must_use]
    pub fn of_channel(&self, node: NodeIx, channel: usize) -> usize {
        self.0.targets_of(node, channel)
    }

    /// Bytes of the files whose compaction started within the last hour.
    #[must_use]
    pub const fn spent_bytes(&self) -> u64 {
        self.0.spent_bytes()
    }
}

impl Plan {
    /// How much of each limit running compactions use.
    #[must_use]
    pub fn limit_usage(&self) -> LimitUsage {
        let (slots, _) = admission::occupied(
            &self.snapshot,
            &self.channels,
            &self.conditions,
            &self.rules,
            &self.placements,
            self.running_targets.iter().copied(),
            self.planned_at,
        );
        LimitUsage(slots)
    }

    /// The last busy period of recliner's compactions on a node, and until when the node rests
    /// after it (`None` while the period lasts); `None` if there was no such period.
    #[must_use]
    pub fn duty_on(&self, node: NodeIx) -> Option<(&BusyPeriod, Option<Moment>)> {
        let period = self.conditions.constraints.busy_periods.get(&node)?;
        Some((period, duty::rested_at(period, self.rules.limits.duty_percent)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        jobs::{Job, JobKey, JobKind, JobPhase, Jobs},
        model::{records::JobOwner, target::TargetKind},
        plan::Conditions,
        table::Draft,
    };
    use std::sync::Arc;

    #[test]
    fn counts_compactions_no_matter_who_started_them() {
        let now = Moment::from_unix(1_000);
        let mut draft = Draft::new(1);
        let node = draft.get_or_add_node("couchdb@a");
        let job = |shard: &str, kind, owner| Job {
            key: JobKey { node, shard: shard.into(), kind },
            target: None,
            target_kind: TargetKind::Db,
            owner,
            channel: Some("ratio_dbs".into()),
            started_at: now,
            phase: JobPhase::Running,
            progress: None,
            last_progress_at: now,
            reserved_bytes: 0,
            file_bytes: None,
            predicted_bytes: None,
        };
        let list = vec![
            job("a", JobKind::CompactDb, JobOwner::Recliner),
            job("b", JobKind::CompactDb, JobOwner::Other),
            job("c", JobKind::BuildView("_design/v".into()), JobOwner::Other),
        ];
        let jobs = Arc::new(Jobs { list, ..Jobs::default() });
        let plan = Plan {
            snapshot: draft.publish(now),
            conditions: Conditions { jobs, ..Conditions::default() },
            planned_at: now,
            ..Plan::default()
        };
        let usage = plan.limit_usage();
        let (at, _) = plan.channels.find("ratio_dbs").unwrap();
        assert_eq!((usage.cluster(), usage.on_node(node)), (2, 2));
        assert_eq!((usage.of_channel(node, at), usage.spent_bytes()), (2, 0));
        assert_eq!(usage.of_channel(NodeIx::CLUSTER, at), 0);
    }
}
