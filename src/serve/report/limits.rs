//! The limits and windows, with how much of each limit is used.

use crate::{
    model::window::{self, Window},
    plan::Plan,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wall_clock::Moment;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
const HOURS_OF_WEEK: u64 = 7 * 24;

/// One limit, and how much of it compactions of any owner use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitLine {
    /// The configuration key; `channels.<name>.concurrency` for a channel's own limit.
    pub key: String,
    /// The node; null if the limit is for the whole cluster.
    pub node: Option<String>,
    /// Amount in use: compactions, or bytes for `limits.bytes_per_hour`.
    pub used: u64,
    /// Maximum amount.
    pub allowed: u64,
    /// Whether that is this cluster's share of the limits that clusters share, rather than the key's own value.
    pub shared: bool,
}

/// The effect of `limits.duty` on a node where recliner's compactions run or ran. Unknown is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DutyLine {
    /// The node.
    pub node: String,
    /// Maximum share of the node's time in which recliner's compactions may run, in percent.
    pub allowed_percent: f64,
    /// When the last unbroken period of recliner's compactions began.
    pub busy_since: String,
    /// Length of that period, in seconds.
    pub busy_seconds: u64,
    /// Until when the node pauses; null while compactions still run.
    pub rests_until: Option<String>,
}

/// When a channel may start compactions in the current week, in UTC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChannelWeek {
    /// The channel.
    pub channel: String,
    /// Whether the channel may start compactions now.
    pub open_now: bool,
    /// Whether it may at the start of each of the week's 168 hours, from Monday on.
    pub open: Vec<bool>,
    /// Hours since the start of Monday.
    pub now: f64,
}

impl LimitLine {
    /// Every limit of a plan: of the cluster, of each node, and of each channel on each node.
    pub fn all(plan: &Plan) -> Vec<Self> {
        let (limits, usage) = (&plan.rules.limits, plan.limit_usage());
        let cluster_key = "limits.cluster".to_owned();
        let mut lines = vec![
            Self {
                shared: plan.rules.jobs_are_shared(),
                ..Self::jobs(cluster_key, None, usage.cluster(), limits.cluster)
            },
            Self {
                key: "limits.bytes_per_hour".to_owned(),
                node: None,
                used: usage.spent_bytes(),
                allowed: limits.bytes_per_hour,
                shared: plan.rules.bytes_are_shared(),
            },
        ];
        lines.extend(plan.snapshot.members().map(|(ix, node)| {
            let used = usage.on_node(ix);
            Self::jobs("limits.per_node".to_owned(), Some(&node.name), used, limits.per_node)
        }));
        for (at, channel) in plan.channels.list.iter().enumerate() {
            lines.extend(plan.snapshot.members().map(|(ix, node)| {
                let key = format!("channels.{}.concurrency", channel.name);
                Self::jobs(key, Some(&node.name), usage.of_channel(ix, at), channel.concurrency)
            }));
        }
        lines
    }

    fn jobs(key: String, node: Option<&str>, used: usize, allowed: usize) -> Self {
        let count = |jobs: usize| u64::try_from(jobs).unwrap_or(u64::MAX);
        let node = node.map(ToOwned::to_owned);
        Self { key, node, used: count(used), allowed: count(allowed), shared: false }
    }
}

impl DutyLine {
    /// Every node that works or pauses; empty if the limit allows all of its time.
    pub fn all(plan: &Plan, now: Moment) -> Vec<Self> {
        let is_limited = plan.rules.limits.duty_percent < 100.0;
        let members = plan.snapshot.members().filter(|_| is_limited);
        let lines = members.filter_map(|(ix, node)| {
            let (period, rests_until) = plan.duty_on(ix)?;
            let is_over = period.ended_at.is_some() && rests_until.is_none_or(|until| until <= now);
            (!is_over).then(|| Self {
                node: node.name.to_string(),
                allowed_percent: plan.rules.limits.duty_percent,
                busy_since: period.since.rfc3339(),
                busy_seconds: period.length(now).as_secs(),
                rests_until: rests_until.map(Moment::rfc3339),
            })
        });
        lines.collect()
    }
}

impl ChannelWeek {
    /// The week of every channel.
    pub fn all(plan: &Plan, now: Moment) -> Vec<Self> {
        let channels = plan.channels.list.iter();
        channels.map(|channel| Self::of(&channel.name, &channel.windows, now)).collect()
    }

    fn of(channel: &str, windows: &[Window], now: Moment) -> Self {
        // Unix time began on a Thursday.
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
    fn week_begins_on_monday_and_shows_open_hours() {
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
