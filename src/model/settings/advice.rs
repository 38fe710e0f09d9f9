//! Thresholds above which recliner gives advice.

use super::{DAY, MINUTE, Settings, work::Smoosh};
use crate::config_format::{
    form::settings,
    values::{bytes, count, duration, number, percent_from},
};
use std::time::Duration;

settings! {
    /// The thresholds of advice that are a judgement. All others follow from what CouchDB does.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct AdviceSettings {
        /// Advice is given only if it would free at least this many bytes.
        "advice.min_bytes" => min_bytes: u64 = 64 << 20, Live, bytes();
        /// Share of the bytes of all files above which waste that no channel takes leads to advice.
        "advice.untaken_waste" => untaken_waste_percent: f64 = 20.0, Live, percent_from(0);
        /// Share of deleted documents in a database at which removing them is advised.
        "advice.deleted_documents" => deleted_documents_percent: f64 = 50.0, Live, percent_from(1);
        // Compaction files were measured at up to 2.15 times the live bytes, plus what is written
        // meanwhile.
        /// Multiple of a shard file's size above which the files of its compaction are too large.
        "advice.compaction_file_factor" => compaction_file_factor: f64 = 3.0, Live, number(1.0..=100.0);
        // Splits and moves take hours of a person's attention; compacting less data takes only
        // minutes.
        /// Minimum live data for which splits and moves are advised.
        "advice.min_moved" => min_moved_bytes: u64 = 1 << 30, Live, bytes();
        // Hashes spread documents evenly to within a few percent, so only partitions, very large
        // documents or a split of some ranges alone make a range twice as large; at four times, its
        // compactions determine how much space the node needs.
        /// Multiple of its siblings' mean size at which splitting a shard range is advised.
        "advice.skewed_range" => skewed_range_factor: f64 = 4.0, Live, number(1.1..=1000.0);
        // A smaller file is compacted within a second and read within a few blocks, so more ranges
        // do not spread any load.
        /// Live bytes of a shard below which it counts as small, and its database as having too many ranges.
        "advice.small_shard" => small_shard_bytes: u64 = 1 << 20, Live, bytes();
        // The number of files that CouchDB keeps open on a node by default (`max_dbs_open`).
        /// Number of unneeded shard files of small databases at which fewer ranges are advised.
        "advice.surplus_shards" => surplus_shards: u64 = 500, Live, count();
        // Copies of a few large shards never divide evenly; a node that is a quarter fuller than
        // the mean needs its next disk months before the others.
        /// How far above the mean a node may be before moves are advised.
        "advice.unbalanced_node" => unbalanced_node_percent: f64 = 25.0, Live, percent_from(1);
        // A node that just joined or left may have the only copy, or its own version of the shard
        // map.
        /// How long an orphan and the cluster's members must be unchanged before recliner advises setting it aside.
        "advice.orphan_age" => orphan_age: Duration = 7 * DAY, Live, duration(Duration::ZERO);
        // An index as large as its database usually contains whole documents.
        /// Multiple of its database's live bytes above which an index is large.
        "advice.large_index" => large_index_factor: f64 = 1.0, Live, number(0.1..=1000.0);
        // A query server indexes about a thousand changes per second, so the next reader waits
        // longer than most clients do.
        /// Number of unindexed changes at which an index lags.
        "advice.lagging_index" => lagging_index_updates: u64 = 100_000, Live, count();
        // CouchDB reports progress every few seconds; a single slow document takes a few minutes at
        // most until its query server is killed.
        /// Time without progress after which an index build has stalled.
        "advice.stalled_build" => stalled_build: Duration = 30 * MINUTE, Live, duration(MINUTE);
        /// Number of views in one design document at which splitting it is advised.
        "advice.views_in_one_design" => views_in_one_design: u64 = 10, Live, count();
        // Reports of a month or of a quarter's end read an index that nobody reads otherwise.
        /// How long the logs of all nodes, without a gap, must show no reads of an index before removing it is advised.
        "advice.unread_after" => unread_after: Duration = 60 * DAY, Live, duration(7 * DAY);
        // A day has busy and quiet hours, so growth must be measured for a whole day.
        /// How long growth must be measured before advice relies on it.
        "advice.min_watched" => min_watched: Duration = DAY, Live, duration(10 * MINUTE);
        // Delivery of new disks takes weeks.
        /// Warn about a volume that will be full within this time even if compaction keeps up.
        "advice.full_within" => full_within: Duration = 30 * DAY, Live, duration(Duration::ZERO);
        // Moving shards takes days, and a stalled compaction may go unnoticed for a few days.
        /// Critical if a volume will be full within this time even if compaction keeps up; if only without compaction,
        /// it is advice.
        "advice.full_soon" => full_soon: Duration = 7 * DAY, Live, duration(Duration::ZERO);
        // Data written meanwhile adds to the waste.
        /// Advice is given if the waiting compactions would take longer than this.
        "advice.max_backlog" => max_backlog: Duration = 7 * DAY, Live, duration(Duration::ZERO);
    }
}

/// Settings of other sections that a remedy may name, so that advice never recommends what is
/// already set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemedySettings {
    /// How recliner and smoosh share the work.
    pub smoosh: Smoosh,
    /// Whether recliner builds indexes.
    pub is_warmer_enabled: bool,
}

impl From<&Settings> for RemedySettings {
    fn from(settings: &Settings) -> Self {
        Self { smoosh: settings.smoosh.clone(), is_warmer_enabled: settings.warmer.enabled }
    }
}
