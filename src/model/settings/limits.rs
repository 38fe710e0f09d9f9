//! Settings that hold starts back: limits, free space, pressure, failures.

pub use super::volumes::{Free, VolumeSettings};

use super::{DAY, HOUR, MINUTE, volumes};
use crate::{
    config_format::{
        form::{Form, keys, list, section, settings},
        section::Section,
        values::{SECOND, boolean, bytes, count, duration, integer, number, percent_from},
    },
    model::{channel::Channel, share::Share},
    text::duration::format_exact,
};
use std::time::Duration;

const GIB: u64 = 1 << 30;
const MILLISECOND: Duration = Duration::from_millis(1);

/// The period over which bytes of [`Limits::bytes_per_hour`] are counted.
pub const BUDGET_PERIOD: Duration = HOUR;

settings! {
    /// How much runs at a time. Jobs of others count too.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Limits {
        /// Maximum compactions at a time on one node, whatever started them; 0 starts none.
        "limits.per_node" => per_node: usize = 2, Live, integer(0..=Channel::MAX_CONCURRENCY);
        /// Maximum compactions at a time in the whole cluster, whatever started them; 0 starts none.
        "limits.cluster" => cluster: usize = 8, Live, integer(0..=1_000_000);
        /// Maximum total size, before compaction, of files whose compaction starts within any hour.
        "limits.bytes_per_hour" => bytes_per_hour: u64 = 500 * GIB, Live, bytes();
        /// Minimum time between two starts on a node.
        "limits.wait" => wait: Duration = SECOND, Live, duration(Duration::ZERO);
        /// Maximum share of a node's time in which recliner's compactions run: after a minute of compaction, the node
        /// rests for one minute at 50%, three at 25%, none at 100%. More than an hour counts as an hour.
        "limits.duty" => duty_percent: f64 = 50.0, Live, percent_from(1);
        /// Compact only one copy of a shard range at a time.
        "limits.one_copy_of_a_range" => one_copy_of_a_range: bool = true, Live, boolean();
    }
}

impl Limits {
    /// The limits for the whole cluster.
    pub const fn in_cluster(&self) -> Share {
        Share { jobs: self.cluster, bytes_per_hour: self.bytes_per_hour }
    }
}

settings! {
    /// What must stay free on the disks.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Headroom {
        // Outcomes can raise the factor in use, but never lower it.
        /// The space that a database's compaction may need, as a multiple of its active bytes.
        "headroom.factor" => factor: f64 = 2.2, Live, number(1.0..=100.0);
        /// Share of each volume that compactions must leave free; needs the volume's size.
        "headroom.keep_free" => keep_free_percent: f64 = 10.0, Live, percent_from(0);
        /// The largest file to compact where free space is unknown.
        "headroom.blind_limit" => blind_limit: u64 = GIB, Live, bytes();
        /// The volumes, with the source of their free space; several nodes may share a volume.
        "headroom.volumes" => volumes: Vec<VolumeSettings> = Vec::new(), Live, list(volumes::form());
    }
}

settings! {
    /// How the horizons of channels by rent adapt to scarcity.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct RentSettings {
        /// Free share of a volume below which horizons shrink, if the volume's size is known.
        "rent.comfortable" => comfortable_percent: f64 = 40.0, Live, percent_from(0);
        /// Share of a horizon that remains when only headroom.keep_free is free.
        "rent.scarce_horizon" => scarce_horizon_percent: f64 = 10.0, Live, percent_from(1);
    }
}

/// High and low thresholds of one signal (hysteresis), so that it does not flap around a single
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks<T> {
    /// Above this, starts are held back.
    pub high: T,
    /// At or below this, starts are allowed again.
    pub low: T,
}

settings! {
    /// When the servers are too busy for more.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Pressure {
        /// Response time of a small request that recliner sends.
        "pressure.probe_latency" => probe_latency: Marks<Duration> = Marks { high: 500 * MILLISECOND, low: 200 * MILLISECOND },
            Live, marks(|| duration(MILLISECOND), format_exact);
        /// Erlang processes that wait for a scheduler.
        "pressure.run_queue" => run_queue: Marks<u64> = Marks { high: 64, low: 16 }, Live, counts();
        /// Changes that internal replication still has to send.
        "pressure.replication_backlog" => replication_backlog: Marks<u64> = Marks { high: 10_000, low: 1_000 }, Live, counts();
        /// Index builds running on the node.
        "pressure.indexers" => indexers: Marks<u64> = Marks { high: 8, low: 4 }, Live, counts();
        /// Maximum time for which pressure alone prevents starts.
        "pressure.hold_at_most" => hold_at_most: Duration = 6 * HOUR, Live, duration(SECOND);
    }
}

fn counts() -> Form<Marks<u64>> {
    marks(count, |number| number.to_string())
}

/// A pair of marks; refuses a low mark above the high one.
fn marks<T: PartialOrd + Copy + 'static>(
    form: impl Fn() -> Form<T>,
    shown: fn(T) -> String,
) -> Form<Marks<T>> {
    let keys = keys!(in Marks<T> {
        /// Above this, nothing starts on the node.
        "high" => high, _, form();
        /// At or below this, starts resume.
        "low" => low, _, form();
    });
    section(keys, move |marks, section| {
        if marks.low > marks.high {
            let (low, high) = (shown(marks.low), shown(marks.high));
            section.refuse(format!("low is {low} and high is {high}; low must not be above high"));
        }
    })
}

settings! {
    /// What follows a failed job.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FailureSettings {
        /// How long a target is paused after a failed compaction; doubles with each further failure.
        "failure.cool_down" => cool_down: Duration = 10 * MINUTE, Live, duration(SECOND);
        /// Maximum pause after failures.
        "failure.cool_down_max" => cool_down_max: Duration = DAY, Live, duration(SECOND);
        /// Consecutive failures after which a target waits for an operator.
        "failure.quarantine_after" => quarantine_after: u32 = 5, Live, integer(1..=1_000);
    }
    check = check_failure;
}

fn check_failure(failure: &mut FailureSettings, section: &mut Section<'_, '_>) {
    if section.value_at("cool_down_max").is_none() {
        failure.cool_down_max = failure.cool_down_max.max(failure.cool_down);
    }
    if failure.cool_down > failure.cool_down_max {
        section.refuse(format!(
            "cool_down is {} and cool_down_max is {}; cool_down_max must not be shorter",
            format_exact(failure.cool_down),
            format_exact(failure.cool_down_max)
        ));
    }
}
