//! Orders to compact that have not started yet, as JSON.

use super::{RefusalLine, why};
use crate::{
    model::records::CompactionOrder,
    plan::{Decision, Plan},
    table::{TargetIx, TargetRef},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An order to compact a target that has not started yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OrderLine {
    /// The target's id.
    pub id: String,
    /// Who gave the order.
    pub by: String,
    /// When the order was given.
    pub since: String,
    /// When the order expires if it has not started.
    pub until: String,
    /// Whether the order applies even if no channel takes the target, or while the target is paused.
    pub force: bool,
    /// The channel that the compaction counts for; null if no channel takes the target any more.
    pub channel: Option<String>,
    /// The request that will be sent, with the body `{}`; null if there is none.
    pub request: Option<String>,
    /// Why the target does not start now; null if it does.
    pub refusal: Option<RefusalLine>,
    /// The reason as a sentence.
    pub why: Option<String>,
}

impl OrderLine {
    /// The waiting order to compact a target, if there is one.
    pub fn of(plan: &Plan, target: TargetRef<'_>) -> Option<Self> {
        let CompactionOrder { at, until, by, force, run: _ } =
            plan.conditions.constraints.orders.get(&target.ix())?.clone();
        let refusal = match plan.decision(target) {
            Decision::Refused(refusal) => Some(refusal),
            Decision::Start | Decision::NotTaken => None,
        };
        let channel = plan.start_channel(target).map(|channel| channel.name.to_string());
        let not_taken = channel.is_none().then(|| "no channel takes it any more".to_owned());
        Some(Self {
            id: target.id().to_string(),
            by,
            since: at.rfc3339(),
            until: until.rfc3339(),
            force,
            request: plan.start_request(target).map(|request| request.to_string()),
            why: refusal.map(|refusal| why(plan, target, &refusal)).or(not_taken),
            refusal: refusal.map(RefusalLine::from),
            channel,
        })
    }

    /// Every waiting order, oldest first. Members of runs are not orders of their own.
    pub(super) fn all(plan: &Plan) -> Vec<Self> {
        let orders = plan.conditions.constraints.orders.iter();
        let orders = orders.filter(|(_, ordered)| ordered.run.is_none());
        let mut orders: Vec<(_, TargetIx)> =
            orders.map(|(ix, ordered)| (ordered.at, *ix)).collect();
        orders.sort_unstable();
        let targets = orders.into_iter().filter_map(|(_, ix)| plan.snapshot.target(ix));
        targets.filter_map(|target| Self::of(plan, target)).collect()
    }
}
