//! What holds starts back: limits, free space, pressure, failures.

use couchdb_client::Address;
use std::time::Duration;

const GIB: u64 = 1 << 30;

/// The period over which bytes of [`Limits::bytes_per_hour`] are counted.
pub const BUDGET_PERIOD: Duration = Duration::from_secs(3_600);

/// How much runs at a time. Jobs of others count too.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Jobs on one node; zero starts nothing.
    pub per_node: usize,
    /// Jobs in the whole cluster; zero starts nothing.
    pub cluster: usize,
    /// Bytes of files this process may start to compact in any hour.
    pub bytes_per_hour: u64,
    /// From one start on a node to the next, at least.
    pub wait: Duration,
    /// The largest share of a node's time in which compactions of this process run, in percent,
    /// from 1 to 100. With 100 a node never rests. More than [`BUDGET_PERIOD`] at a stretch counts as that.
    pub duty_percent: f64,
    /// Whether only one copy of a shard range is compacted at a time.
    pub one_copy_of_a_range: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_node: 2,
            cluster: 8,
            bytes_per_hour: 500 * GIB,
            wait: Duration::from_secs(1),
            duty_percent: 50.0,
            one_copy_of_a_range: true,
        }
    }
}

/// What must stay free on the disks.
#[derive(Clone, Debug, PartialEq)]
pub struct Headroom {
    /// Predicted peak of a database's compaction, as a multiple of its active bytes. At
    /// least one; learned upward.
    pub factor: f64,
    /// Percent of a volume that no start may touch, from 0 to 100.
    pub keep_free_percent: f64,
    /// Size of the largest target that is started where free space is unknown, in bytes.
    pub blind_limit: u64,
    /// Where free space is known from.
    pub volumes: Vec<VolumeSettings>,
}

impl Default for Headroom {
    fn default() -> Self {
        Self { factor: 2.2, keep_free_percent: 10.0, blind_limit: GIB, volumes: Vec::new() }
    }
}

/// How the horizons of channels by rent adapt to what is scarce.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RentSettings {
    /// Percent of a volume that is free when space costs nothing extra, from 0 to 100. Below it
    /// horizons shrink.
    pub comfortable_percent: f64,
    /// What is left of a horizon, in percent, where no more is free than
    /// [`Headroom::keep_free_percent`].
    pub scarce_horizon_percent: f64,
}

impl Default for RentSettings {
    fn default() -> Self {
        Self { comfortable_percent: 40.0, scarce_horizon_percent: 10.0 }
    }
}

/// One volume and the nodes whose files are on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSettings {
    /// The nodes, by CouchDB's names.
    pub nodes: Vec<String>,
    /// Where its free space is known from.
    pub free: Free,
    /// Its size in bytes, where the configuration states it.
    pub size: Option<u64>,
}

impl VolumeSettings {
    /// Whether the configuration says where its size is known from.
    #[must_use]
    pub const fn has_size(&self) -> bool {
        self.size.is_some() || matches!(&self.free, Free::Prometheus { size_query: Some(_), .. })
    }
}

/// Where a volume's free space is known from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Free {
    /// The answer to a query.
    Prometheus {
        /// The Prometheus server.
        url: Address,
        /// A PromQL expression with one sample, the free bytes.
        query: String,
        /// A PromQL expression with one sample, the volume's size in bytes.
        size_query: Option<String>,
        /// How old the sample may be.
        max_age: Duration,
    },
    /// A fixed number of bytes that may be taken as free.
    Available(u64),
}

/// Two marks of one signal, so that it does not switch back and forth around one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marks<T> {
    /// Above this starts are held.
    pub high: T,
    /// At this or below they are let go.
    pub low: T,
}

/// When the servers are too busy for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// How long a small request takes.
    pub probe_latency: Marks<Duration>,
    /// Erlang's run queue.
    pub run_queue: Marks<u64>,
    /// Changes that internal replication has still to push.
    pub replication_backlog: Marks<u64>,
    /// Indexers that run.
    pub indexers: Marks<u64>,
    /// The longest that pressure alone holds starts back.
    pub hold_at_most: Duration,
}

impl Default for Pressure {
    fn default() -> Self {
        Self {
            probe_latency: Marks {
                high: Duration::from_millis(500),
                low: Duration::from_millis(200),
            },
            run_queue: Marks { high: 64, low: 16 },
            replication_backlog: Marks { high: 10_000, low: 1_000 },
            indexers: Marks { high: 8, low: 4 },
            hold_at_most: Duration::from_secs(6 * 3600),
        }
    }
}

/// What follows a failed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureSettings {
    /// How long its target rests after the first failure; doubles with each further one.
    pub cool_down: Duration,
    /// The longest rest.
    pub cool_down_max: Duration,
    /// After how many failures in a row a target is left alone.
    pub quarantine_after: u32,
}

impl Default for FailureSettings {
    fn default() -> Self {
        Self {
            cool_down: Duration::from_secs(600),
            cool_down_max: Duration::from_secs(86_400),
            quarantine_after: 5,
        }
    }
}
