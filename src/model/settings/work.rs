//! What runs alongside the planner: views, smoosh, the feed, the warmer, the journal.

use crate::text::pattern::NamePatterns;
use std::time::Duration;
use strum::{EnumString, IntoStaticStr, VariantArray};

const MIB: u64 = 1 << 20;
const DAY: u64 = 86_400;

/// Which views may be compacted over HTTP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewSettings {
    /// The rule.
    pub enforce: EnforceViews,
}

/// Which views may be compacted over HTTP, where CouchDB compacts every shard of a design
/// document at once.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EnforceViews {
    /// Only where CouchDB compacts one copy.
    #[default]
    Q1,
    /// Whole design documents, at their true weight.
    All,
    /// None.
    None,
}

/// How this program and CouchDB's own smoosh share the work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Smoosh {
    /// Whether smoosh keeps working alongside this program.
    pub mode: SmooshMode,
    /// The channels of smoosh that a takeover stops, by name.
    pub takeover: Vec<String>,
}

impl Default for Smoosh {
    fn default() -> Self {
        Self {
            mode: SmooshMode::default(),
            takeover: ["upgrade_dbs", "ratio_dbs", "slack_dbs"].map(str::to_owned).to_vec(),
        }
    }
}

/// The section of a node's configuration in which this program marks the smoosh channels that it
/// took over.
pub const MARK_SECTION: &str = "recliner";

/// The key of a channel's mark in that section.
#[must_use]
pub fn mark_key(channel: &str) -> String {
    format!("smoosh.{channel}.concurrency")
}

/// Whether smoosh keeps working alongside this program.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SmooshMode {
    /// It does, and its jobs count towards the limits.
    #[default]
    Coexist,
    /// Its channels are stopped while this program enforces, and restored after.
    Takeover,
}

/// How changes of databases are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follow {
    /// Whether feeds are followed at all.
    pub enabled: bool,
    /// The longest that an event waits to be sent on with others.
    pub max_event_delay: Duration,
    /// The longest that an event waits to be written with others.
    pub max_write_delay: Duration,
    /// Whether a database that changed is named in the feed.
    pub update_db: bool,
    /// How long after a change its shards are read again; longer for what keeps changing.
    pub reread_after: Duration,
}

impl Default for Follow {
    fn default() -> Self {
        Self {
            enabled: true,
            max_event_delay: Duration::from_millis(25),
            max_write_delay: Duration::from_millis(500),
            update_db: true,
            reread_after: Duration::from_secs(1),
        }
    }
}

/// How stale view indexes are built.
#[derive(Clone, Debug, PartialEq)]
pub struct Warmer {
    /// Whether indexes are built at all.
    pub enabled: bool,
    /// Builds of any size at a time.
    pub batch_channels: usize,
    /// Further builds at a time, of few updates each.
    pub incremental_channels: usize,
    /// The updates that count as few.
    pub max_incremental_updates: u64,
    /// Updates that make a build worth starting at once.
    pub batch_size: u64,
    /// How long an index rests before a smaller build.
    pub delay: Duration,
    /// How long a build that ended is remembered.
    pub prune_interval: Duration,
    /// How long a changed index is left to its readers first.
    pub grace: Duration,
    /// Databases that are left alone.
    pub ignore: NamePatterns,
    /// Languages of design documents that are built.
    pub languages: Vec<String>,
}

impl Default for Warmer {
    fn default() -> Self {
        Self {
            enabled: false,
            batch_channels: 20,
            incremental_channels: 80,
            max_incremental_updates: 1_000,
            batch_size: 1,
            delay: Duration::from_secs(5),
            prune_interval: Duration::from_secs(60),
            grace: Duration::from_secs(120),
            ignore: NamePatterns::default(),
            languages: ["javascript", "query", "erlang"].map(str::to_owned).to_vec(),
        }
    }
}

/// What the journal keeps, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalRetention {
    /// Events of databases.
    pub events: Keep,
    /// How jobs ended.
    pub outcomes: Keep,
}

impl Default for JournalRetention {
    fn default() -> Self {
        Self {
            events: Keep { keep: Duration::from_secs(7 * DAY), max_size: 512 * MIB },
            outcomes: Keep { keep: Duration::from_secs(400 * DAY), max_size: 256 * MIB },
        }
    }
}

/// For how long and in how many bytes entries are kept; the first limit reached counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// For how long.
    pub keep: Duration,
    /// In how many bytes.
    pub max_size: u64,
}
