//! What runs alongside the planner: views, smoosh, the feed, the warmer, the journal.

use super::{DAY, MINUTE};
use crate::{
    config_format::{
        form::{Form, Key, keys, list, section, settings},
        values::{
            SECOND, boolean, bytes_from_mib, count, duration, integer, number, one_of, path,
            patterns, text,
        },
    },
    text::pattern::NamePatterns,
};
use std::{path::PathBuf, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};

const MIB: u64 = 1 << 20;
const MILLISECOND: Duration = Duration::from_millis(1);

settings! {
    /// Which views may be compacted over HTTP.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ViewSettings {
        /// Which views are compacted: q1 (of databases with one range), all (whole design documents, every copy at once) or none.
        "views.enforce" => enforce: EnforceViews = EnforceViews::Q1, Live, one_of();
    }
}

/// Which views may be compacted over HTTP, where one request makes CouchDB compact every shard of a
/// design document.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforceViews {
    /// Only where CouchDB compacts one copy.
    Q1,
    /// Whole design documents, with every copy counted towards the limits.
    All,
    /// None.
    None,
}

impl EnforceViews {
    /// Whether a view may be compacted; `every_copy` if one request compacts all of its copies.
    pub const fn permits(self, every_copy: bool) -> bool {
        match self {
            Self::Q1 => !every_copy,
            Self::All => true,
            Self::None => false,
        }
    }
}

settings! {
    /// How recliner and CouchDB's own smoosh share the work.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Smoosh {
        /// coexist leaves smoosh running and counts its compactions; takeover stops its channels while recliner
        /// enforces, and restores them afterwards.
        "smoosh.mode" => mode: SmooshMode = SmooshMode::Coexist, Live, one_of();
        /// The smoosh channels that a takeover stops.
        "smoosh.takeover" => takeover: Vec<String> = ["upgrade_dbs", "ratio_dbs", "slack_dbs"].map(str::to_owned).to_vec(),
            Live, list(text());
    }
}

/// The section of a node's configuration in which this program marks the smoosh channels that it
/// took over.
pub const MARK_SECTION: &str = "recliner";

/// The key of a channel's mark in that section.
pub fn mark_key(channel: &str) -> String {
    format!("smoosh.{channel}.concurrency")
}

/// Whether smoosh keeps working alongside this program.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SmooshMode {
    /// smoosh keeps working, and its jobs count towards the limits.
    #[default]
    Coexist,
    /// smoosh's channels are stopped while this program enforces, and restored afterwards.
    Takeover,
}

settings! {
    /// How changes of databases are followed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Follow {
        /// Whether to follow CouchDB's feeds of database events.
        "follow.enabled" => enabled: bool = true, Live, boolean();
        /// Maximum time that an event waits for others before its shards are read.
        "follow.max_event_delay" => max_event_delay: Duration = 25 * MILLISECOND, Live, duration(MILLISECOND);
        /// Maximum time that an event waits for others before it is written to the journal.
        "follow.max_write_delay" => max_write_delay: Duration = 500 * MILLISECOND, Live, duration(MILLISECOND);
        /// Whether to write an event to the journal when documents change.
        "follow.update_db" => update_db: bool = true, Live, boolean();
        /// Minimum pause between two reads of one shard; longer for shards that keep changing.
        "follow.reread_after" => reread_after: Duration = SECOND, Live, duration(Duration::ZERO);
    }
}

settings! {
    /// How stale view indexes are built.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Warmer {
        /// Whether to build lagging indexes in mode enforce.
        "warmer.enabled" => enabled: bool = false, Live, boolean();
        /// Maximum number of indexers on a node for builds of any size.
        "warmer.batch_channels" => batch_channels: usize = 20, Live, integer(0..=10_000);
        /// Additional indexers on a node, for small builds.
        "warmer.incremental_channels" => incremental_channels: usize = 80, Live, integer(0..=10_000);
        /// A build with fewer updates per shard than this is small.
        "warmer.max_incremental_updates" => max_incremental_updates: u64 = 1_000, Live, count();
        /// Updates since the last build that allow another build before the delay is over.
        "warmer.batch_size" => batch_size: u64 = 1, Live, count();
        /// Pause between two builds of an index; also the first pause after a failure.
        "warmer.delay" => delay: Duration = 5 * SECOND, Live, duration(Duration::ZERO);
        /// How long a finished build is remembered.
        "warmer.prune_interval" => prune_interval: Duration = MINUTE, Live, duration(SECOND);
        /// How long an index may lag before recliner builds it; CouchDB's ken or a reader may build it earlier.
        "warmer.grace" => grace: Duration = 2 * MINUTE, Live, duration(Duration::ZERO);
        /// Databases whose indexes are not built.
        "warmer.ignore" => ignore: NamePatterns = NamePatterns::default(), Live, patterns();
        /// Languages of design documents; documents in others are not read.
        "warmer.languages" => languages: Vec<String> = ["javascript", "query", "erlang"].map(str::to_owned).to_vec(),
            Live, list(text());
    }
    also = Key::new(
        "warmer.limit",
        &["A setting of CouchDB's ken, accepted without effect."],
        None,
        count().without_effect(),
    );
}

settings! {
    /// Access logs that show who reads the indexes.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ReadsSettings {
        /// Logs to follow, of CouchDB or of a proxy in front of it, with rotated files beside them; or named pipes, for
        /// example written by journalctl -f.
        "reads.logs" => logs: Vec<PathBuf> = Vec::new(), Live, list(path());
        /// Whether every client reaches CouchDB through the proxies whose logs are followed here or by sidecars.
        "reads.proxies_see_all" => proxies_see_all: bool = false, Live, boolean();
    }
}

settings! {
    /// What reports show in addition to bytes.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ReportSettings {
        /// Price of a GiB of disk for a month, in any currency. If set, reports include the cost of waste.
        "report.price_per_gib_month" => price_per_gib_month: Option<f64> = None, Live, number(0.0..=1_000_000.0).optional();
    }
}

settings! {
    /// What the journal keeps, and for how long.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalRetention {
        /// Limits for events.
        "journal.events" => events: Keep = Keep { keep: 7 * DAY, max_size: 512 * MIB }, Live, keep();
        /// Limits for results of compactions and index builds.
        "journal.outcomes" => outcomes: Keep = Keep { keep: 400 * DAY, max_size: 256 * MIB }, Live, keep();
    }
}

/// Limits on the age and total size of entries; the one reached first applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Maximum age.
    pub keep: Duration,
    /// Maximum size, in bytes.
    pub max_size: u64,
}

fn keep() -> Form<Keep> {
    let keys = keys!(Keep {
        /// Maximum age of entries.
        "keep" => keep, Live, duration(SECOND);
        /// Maximum size of entries; the oldest are removed first.
        "max_size" => max_size, Live, bytes_from_mib();
    });
    section(keys, |_, _| {})
}
