//! What limits and windows allow, and how much of it is used.

use crate::{
    jobs::Job,
    model::{
        records::JobOwner,
        window::{self, Window},
    },
    plan::Plan,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use wall_clock::Moment;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
const HOURS_OF_WEEK: u64 = 7 * 24;

/// One limit of this process's own compactions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitLine {
    /// The configuration's key.
    pub key: String,
    /// The node, of a limit for each.
    pub node: Option<String>,
    /// How much of it is used now.
    pub used: u64,
    /// How much is allowed.
    pub allowed: u64,
}

/// When a channel may start anything, in the present week of UTC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChannelWeek {
    /// The channel.
    pub channel: String,
    /// Whether it may start something now.
    pub open_now: bool,
    /// Whether it may at the beginning of each of 168 hours, from Monday on.
    pub open: Vec<bool>,
    /// The hours that have passed since Monday.
    pub now: f64,
}

impl LimitLine {
    /// Every limit of a plan.
    #[must_use]
    pub fn all(plan: &Plan) -> Vec<Self> {
        let limits = &plan.rules.limits;
        let own = |job: &&Job| job.owner == JobOwner::Recliner;
        let jobs = &plan.conditions.jobs;
        let count = |found: usize| u64::try_from(found).unwrap_or(u64::MAX);
        let line =
            |key: &str, node, used, allowed| Self { key: key.to_owned(), node, used, allowed };
        let starts = plan.conditions.constraints.recent_starts.iter();
        let recent = starts.filter(|(at, _)| at.age(plan.planned_at) < Duration::from_secs(HOUR));
        let spent = recent.map(|(_, bytes)| *bytes).sum();
        let mut lines = vec![
            line(
                "limits.cluster",
                None,
                count(jobs.compactions().filter(own).count()),
                count(limits.cluster),
            ),
            line("limits.bytes_per_hour", None, spent, limits.bytes_per_hour),
        ];
        lines.extend(plan.snapshot.members().map(|(ix, node)| {
            let here = jobs.compactions().filter(own).filter(|job| job.key.node == ix).count();
            let name = Some(node.name.to_string());
            line("limits.per_node", name, count(here), count(limits.per_node))
        }));
        lines
    }
}

impl ChannelWeek {
    /// The week of every channel.
    #[must_use]
    pub fn all(plan: &Plan, now: Moment) -> Vec<Self> {
        let channels = plan.channels.list.iter();
        channels.map(|channel| Self::of(&channel.name, &channel.windows, now)).collect()
    }

    fn of(channel: &str, windows: &[Window], now: Moment) -> Self {
        // The first day of Unix time was a Thursday.
        let days_since_monday = (now.unix() / DAY + 3) % 7;
        let monday = (now.unix() / DAY - days_since_monday.min(now.unix() / DAY)) * DAY;
        let open_at = |at: Moment| windows.is_empty() || window::any_open_at(windows, at);
        let hours = 0..HOURS_OF_WEEK;
        Self {
            channel: channel.to_owned(),
            open_now: open_at(now),
            open: hours.map(|hour| open_at(Moment::from_unix(monday + hour * HOUR))).collect(),
            now: (now.unix() - monday) as f64 / HOUR as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::{civil, tz::TimeZone};

    #[test]
    fn the_week_begins_on_monday_and_has_the_hours_of_the_windows() {
        // A Saturday, 00:54.
        let now = Moment::from_unix(1_795_222_440);
        let always = ChannelWeek::of("all", &[], now);
        assert!(always.open_now && always.open.iter().all(|open| *open));
        assert!((always.now - (5.0 * 24.0 + 0.9)).abs() < 0.01, "{}", always.now);
        let nights = Window {
            days: "mon-fri".parse().unwrap(),
            from: civil::time(22, 0, 0, 0),
            to: civil::Time::midnight(),
            zone: TimeZone::UTC,
        };
        let windows = [nights];
        let nights = ChannelWeek::of("nights", &windows, now);
        let open: Vec<usize> =
            nights.open.iter().enumerate().filter(|(_, open)| **open).map(|(at, _)| at).collect();
        let expected: Vec<usize> = (0..5).flat_map(|day| [day * 24 + 22, day * 24 + 23]).collect();
        assert_eq!((nights.open_now, open), (false, expected));
    }
}
