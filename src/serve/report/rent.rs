//! A target's rent and the cost of its compaction, as JSON and in words.

use crate::{
    model::{channel::Channel, rent::overdue},
    plan::{HorizonFactor, Plan, miss_of},
    table::TargetRef,
    text::{duration, size},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What a target's waste has cost since its last compaction, and when compacting it becomes cheaper than
/// waiting. Bytes are those of all its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RentLine {
    /// The channel whose horizon applies.
    pub channel: String,
    /// Wasted bytes multiplied by the seconds for which they have been wasted, until the time of the plan.
    pub byte_seconds: f64,
    /// Bytes that a compaction would write.
    pub cost_bytes: u64,
    /// `byte_seconds` divided by `cost_bytes` times the horizon in force; a compaction is due above the
    /// channel's `min_priority`.
    pub overdue: f64,
    /// The channel's horizon.
    pub horizon_seconds: f64,
    /// The horizon in force on the target's node.
    pub horizon_in_force_seconds: f64,
    /// Why the two horizons differ, or why a volume of unknown size cannot shorten it; null if there is nothing
    /// to explain.
    pub horizon_says: Option<String>,
    /// When a compaction is due if the sizes stay the same; null if it is due already, or never.
    pub due_at: Option<String>,
}

impl RentLine {
    /// The rent of a target in the first channel by rent that could take it; `None` without such a
    /// channel, or while the rent is unknown.
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
        let remaining = channel.min_priority * cost as f64 * in_force - rent;
        let due_at = (remaining > 0.0 && waste > 0)
            .then(|| Duration::try_from_secs_f64(remaining / waste as f64).ok())
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
            due_at: due_at.map(|remaining| now.plus(remaining).rfc3339()),
        })
    }

    /// The rent and its horizon, as a sentence.
    pub fn says(&self) -> String {
        let horizon = Duration::try_from_secs_f64(self.horizon_seconds).unwrap_or_default();
        let horizon = match &self.horizon_says {
            Some(says) => says.clone(),
            None => duration::format_rounded(horizon),
        };
        let due = match &self.due_at {
            Some(at) => format!("; due at {at} if sizes do not change"),
            None => String::new(),
        };
        format!(
            "{} of the cost of compacting ({} to rewrite, horizon {horizon}){due}",
            percent(self.overdue),
            size::format_size(self.cost_bytes)
        )
    }
}

/// A share in percent; a small share is never shown as zero.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if (0.0..0.5).contains(&percent) && percent > 0.0 {
        return "less than 1 %".to_owned();
    }
    format!("{percent:.0} %")
}

/// The first channel by rent that takes a target, or would take it if the rent were high enough.
fn rent_channel<'a>(plan: &'a Plan, target: TargetRef<'_>) -> Option<&'a Channel> {
    let rent = plan.rent_now(target);
    plan.channels.by_rent().filter(|channel| channel.kind == target.kind()).find(|channel| {
        miss_of(&plan.channels, channel, target, rent).is_none_or(|miss| miss.is_of_amount())
    })
}

/// Why the current horizon differs from the channel's own: `24h, shortened to 7h because 18 % of
/// /data is free, then lengthened to 14h because the node is busy`.
fn horizon_says(horizon: Duration, factor: &HorizonFactor) -> Option<String> {
    let mut says = duration::format_rounded(horizon);
    let plain = says.len();
    let shortened = horizon.mul_f64(factor.space);
    if let Some(volume) = &factor.scarce_volume {
        says.push_str(&format!(
            ", shortened to {} because {:.0} % of {} is free",
            duration::format_rounded(shortened),
            volume.free_share * 100.0,
            volume.name
        ));
    }
    let mut reasons = Vec::new();
    if factor.load > 1.0 {
        reasons.push("the node is busy");
    }
    if factor.budget > 1.0 {
        reasons.push("much of the cluster's budget of bytes per hour is used up");
    }
    if !reasons.is_empty() {
        says.push_str(&format!(
            ", {}lengthened to {} because {}",
            if factor.scarce_volume.is_some() { "then " } else { "" },
            duration::format_rounded(horizon.mul_f64(factor.product())),
            reasons.join(" and ")
        ));
    }
    if let Some(volume) = &factor.unsized_volume {
        says.push_str(&format!(
            "; the size of volume {volume} is unknown, so its free space does not shorten the horizon"
        ));
    }
    (says.len() > plain).then_some(says)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ScarceVolume;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn explains_shortened_and_lengthened_horizons() {
        let scarce = Some(ScarceVolume { name: "/data".into(), free_share: 0.18 });
        let plain = HorizonFactor::default();
        let full = HorizonFactor { space: 0.25, scarce_volume: scarce, ..plain.clone() };
        let unsized_volume = Some("couchdb@a".into());
        for (factor, says) in [
            (plain.clone(), None),
            (full.clone(), Some("1d, shortened to 6h because 18 % of /data is free")),
            (
                HorizonFactor { load: 2.0, ..plain.clone() },
                Some("1d, lengthened to 2d because the node is busy"),
            ),
            (
                HorizonFactor { load: 2.0, ..full.clone() },
                Some(
                    "1d, shortened to 6h because 18 % of /data is free, then lengthened to 12h because the node is busy",
                ),
            ),
            (
                HorizonFactor { load: 2.0, budget: 2.0, ..full },
                Some(
                    "1d, shortened to 6h because 18 % of /data is free, then lengthened to 1d because the node is busy and much of the cluster's budget of bytes per hour is used up",
                ),
            ),
            (
                HorizonFactor { unsized_volume, ..plain },
                Some(
                    "1d; the size of volume couchdb@a is unknown, so its free space does not shorten the horizon",
                ),
            ),
        ] {
            assert_eq!(horizon_says(DAY, &factor).as_deref(), says);
        }
    }

    #[test]
    fn formats_shares_in_percent() {
        let shares = [0.0, 0.001, 0.06, 1.0, 12.345];
        assert_eq!(shares.map(percent), ["0 %", "less than 1 %", "6 %", "100 %", "1234 %"]);
    }
}
