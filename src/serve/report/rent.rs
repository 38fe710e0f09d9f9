//! The rent of a target against the cost of its compaction: as JSON, and in words.

use crate::{
    model::{channel::Channel, rent::overdue},
    plan::{HorizonFactor, Plan, miss_of},
    table::TargetRef,
    text::{duration, size},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a target's waste has cost since its last compaction, and when compacting it costs less than
/// waiting. Bytes are those of all its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RentLine {
    /// The channel whose horizon counts.
    pub channel: String,
    /// Wasted bytes times the seconds that they lay, up to the time of the plan.
    pub byte_seconds: f64,
    /// Bytes that a compaction writes anew.
    pub cost_bytes: u64,
    /// Byte-seconds over bytes to write times the horizon in force; a compaction is due above the
    /// channel's `min_priority`.
    pub overdue: f64,
    /// The channel's horizon.
    pub horizon_seconds: f64,
    /// The horizon in force on the target's node.
    pub horizon_in_force_seconds: f64,
    /// Why the two differ.
    pub horizon_says: Option<String>,
    /// When it is due if its sizes stay as they are; null if it is due already, or never.
    pub due_at: Option<String>,
}

impl RentLine {
    /// The rent of a target in the first channel by rent that could take it; none if there is no
    /// such channel, and while its rent is unknown.
    pub(super) fn of(plan: &Plan, target: TargetRef<'_>) -> Option<Self> {
        let channel = rent_channel(plan, target)?;
        let (facts, now) = (target.facts(), plan.planned_at);
        let (kind, correction) = (target.kind(), target.correction());
        let waste = correction.reclaimable_bytes(kind, &facts)?;
        let cost = correction.predicted_bytes(kind, &facts)?;
        let rent = target.rent().byte_seconds(waste, now)?;
        let factor = plan.horizon_factors.of_node(target.node_ix());
        let horizon = channel.horizon.as_secs_f64();
        let in_force = horizon * factor.product();
        let left = channel.min_priority * cost as f64 * in_force - rent;
        let due_at = (left > 0.0 && waste > 0)
            .then(|| Duration::try_from_secs_f64(left / waste as f64).ok())
            .flatten();
        let files = f64::from(target.file_count());
        Some(Self {
            channel: channel.name.to_string(),
            byte_seconds: rent * files,
            cost_bytes: cost.saturating_mul(u64::from(target.file_count())),
            overdue: overdue(rent, cost, in_force),
            horizon_seconds: horizon,
            horizon_in_force_seconds: in_force,
            horizon_says: horizon_says(channel.horizon, &factor),
            due_at: due_at.map(|left| now.plus(left).rfc3339()),
        })
    }

    /// The rent and its horizon, as one sentence.
    #[must_use]
    pub fn says(&self) -> String {
        let horizon = Duration::try_from_secs_f64(self.horizon_seconds).unwrap_or_default();
        let horizon = match &self.horizon_says {
            Some(says) => says.clone(),
            None => duration::format_rounded(horizon),
        };
        let due = match &self.due_at {
            Some(at) => format!("; due at {at} if its sizes stay as they are"),
            None => String::new(),
        };
        format!(
            "{:.2} of what a compaction costs: {} to write, horizon {horizon}{due}",
            self.overdue,
            size::format_size(self.cost_bytes)
        )
    }
}

/// The first channel by rent that takes a target, or would if enough were due.
fn rent_channel<'a>(plan: &'a Plan, target: TargetRef<'_>) -> Option<&'a Channel> {
    let rent = plan.rent_now(target);
    plan.channels.by_rent().filter(|channel| channel.kind == target.kind()).find(|channel| {
        miss_of(&plan.channels, channel, target, rent).is_none_or(|miss| miss.is_of_amount())
    })
}

/// Why the horizon in force is not the channel's own: `24h, shortened to 7h because 18 % of /data is
/// free`.
fn horizon_says(horizon: Duration, factor: &HorizonFactor) -> Option<String> {
    let product = factor.product();
    let mut reasons = Vec::new();
    if let Some(volume) = &factor.scarce_volume {
        reasons.push(format!("{:.0} % of {} is free", volume.free_share * 100.0, volume.name));
    }
    if factor.load > 1.0 {
        reasons.push("the node is busy".to_owned());
    }
    if factor.budget > 1.0 {
        reasons.push("much of limits.bytes_per_hour is used up".to_owned());
    }
    if reasons.is_empty() {
        return None;
    }
    let change = if product < 1.0 { "shortened" } else { "lengthened" };
    Some(format!(
        "{}, {change} to {} because {}",
        duration::format_rounded(horizon),
        duration::format_rounded(horizon.mul_f64(product)),
        reasons.join(" and ")
    ))
}
