//! What runs alongside the planner: views, smoosh, the feed, the warmer, the journal.

use super::{DAY, MINUTE};
use crate::{
    config_format::{
        form::{Form, Key, keys, list, section, settings},
        values::{
            SECOND, boolean, bytes_from_mib, count, duration, integer, one_of, patterns, text,
        },
    },
    text::pattern::NamePatterns,
};
use std::time::Duration;
use strum::{EnumString, IntoStaticStr, VariantArray};

const MIB: u64 = 1 << 20;
const MILLISECOND: Duration = Duration::from_millis(1);

settings! {
    /// Which views may be compacted over HTTP.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct ViewSettings {
        /// Which views are compacted: q1, those of databases with one range; all, whole design documents, every copy at once; none.
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

settings! {
    /// How this program and CouchDB's own smoosh share the work.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Smoosh {
        /// coexist counts smoosh's compactions; takeover stops its channels while recliner enforces, and restores them after.
        "smoosh.mode" => mode: SmooshMode = SmooshMode::Coexist, Live, one_of();
        /// The channels of smoosh that a takeover stops.
        "smoosh.takeover" => takeover: Vec<String> = ["upgrade_dbs", "ratio_dbs", "slack_dbs"].map(str::to_owned).to_vec(),
            Live, list(text());
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
        /// Follow CouchDB's feeds of what happens to databases.
        "follow.enabled" => enabled: bool = true, Live, boolean();
        /// The longest that an event waits for others before shards are read for it.
        "follow.max_event_delay" => max_event_delay: Duration = 25 * MILLISECOND, Live, duration(MILLISECOND);
        /// The longest that an event waits for others before it is written to the journal.
        "follow.max_write_delay" => max_write_delay: Duration = 500 * MILLISECOND, Live, duration(MILLISECOND);
        /// Write an event to the journal when documents of a database change.
        "follow.update_db" => update_db: bool = true, Live, boolean();
        /// The shortest pause between two readings of one shard; longer for what keeps changing.
        "follow.reread_after" => reread_after: Duration = SECOND, Live, duration(Duration::ZERO);
    }
}

settings! {
    /// How stale view indexes are built.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Warmer {
        /// Build indexes that lag, where the mode is enforce.
        "warmer.enabled" => enabled: bool = false, Live, boolean();
        /// Indexers on a node up to which a build of any size starts.
        "warmer.batch_channels" => batch_channels: usize = 20, Live, integer(0..=10_000);
        /// Additional indexers on a node, for small builds.
        "warmer.incremental_channels" => incremental_channels: usize = 80, Live, integer(0..=10_000);
        /// A build with fewer updates per shard than this is small.
        "warmer.max_incremental_updates" => max_incremental_updates: u64 = 1_000, Live, count();
        /// Updates since the last build that are worth another before the delay is over.
        "warmer.batch_size" => batch_size: u64 = 1, Live, count();
        /// Pause from the end of one build of an index to the next; the first pause after a failure.
        "warmer.delay" => delay: Duration = 5 * SECOND, Live, duration(Duration::ZERO);
        /// How long a build that ended is remembered.
        "warmer.prune_interval" => prune_interval: Duration = MINUTE, Live, duration(SECOND);
        /// How long an index may lag before recliner builds it; CouchDB's ken or a reader may do so first.
        "warmer.grace" => grace: Duration = 2 * MINUTE, Live, duration(Duration::ZERO);
        /// Databases whose indexes are not built.
        "warmer.ignore" => ignore: NamePatterns = NamePatterns::default(), Live, patterns();
        /// Languages of design documents; documents in others are not read.
        "warmer.languages" => languages: Vec<String> = ["javascript", "query", "erlang"].map(str::to_owned).to_vec(),
            Live, list(text());
    }
    also = Key::new(
        "warmer.limit",
        &["A setting of CouchDB's ken, accepted and without effect."],
        None,
        count().without_effect(),
    );
}

settings! {
    /// What the journal keeps, and for how long.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalRetention {
        /// What happened.
        "journal.events" => events: Keep = Keep { keep: 7 * DAY, max_size: 512 * MIB }, Live, keep();
        /// How compactions and index builds ended.
        "journal.outcomes" => outcomes: Keep = Keep { keep: 400 * DAY, max_size: 256 * MIB }, Live, keep();
    }
}

/// Limits on how long and in how many bytes entries are kept; whichever is reached first applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Maximum age.
    pub keep: Duration,
    /// Maximum size, in bytes.
    pub max_size: u64,
}

fn keep() -> Form<Keep> {
    let keys = keys!(Keep {
        /// For how long it is kept.
        "keep" => keep, Live, duration(SECOND);
        /// In how many bytes it is kept; the older entries go first.
        "max_size" => max_size, Live, bytes_from_mib();
    });
    section(keys, |_, _| {})
}
