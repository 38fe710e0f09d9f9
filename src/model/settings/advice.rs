//! From when on recliner advises something.

use super::{Settings, work::Smoosh};
use std::time::Duration;

/// The thresholds of advice that are a judgement. All others follow from what CouchDB does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdviceSettings {
    /// Advice that would free fewer bytes is not given.
    pub min_bytes: u64,
    /// Share of all files from which on waste that no channel takes is worth other channels, in percent.
    pub untaken_waste_percent: f64,
    /// Share of deleted documents from which on they are worth a purge or a new database, in percent.
    pub deleted_documents_percent: f64,
    /// Times a shard's file that the files of its compaction may reach. They were measured at up to 2.15 times
    /// the live bytes; what is written meanwhile comes on top.
    pub compaction_file_factor: f64,
    /// Splits and moves of less live data than this are not advised, in bytes: they take hours of a person's
    /// attention, and a compaction of less takes a few minutes.
    pub min_moved_bytes: u64,
    /// How many times the mean of its siblings a shard range holds from which on it is skewed. Hashes spread
    /// documents within a few percent, so only partitions, very large documents or a split of some ranges alone
    /// make a range twice as large; at four times, its compactions decide how much space the node needs.
    pub skewed_range_factor: f64,
    /// Live bytes of a shard below which a database has more ranges than it needs: a file of less is compacted
    /// within a second and read within a few blocks, so more ranges spread no work.
    pub small_shard_bytes: u64,
    /// Number of shard files that small databases would not need from which on that is worth mending: as many as
    /// CouchDB keeps open on a node by default (`max_dbs_open`).
    pub surplus_shards: u64,
    /// How much more than the mean a node may hold, in percent, before moves are advised. Copies of a few large
    /// shards never divide evenly; a node a quarter fuller needs its next disk months before the others.
    pub unbalanced_node_percent: f64,
    /// How long the cluster has to have had the same members, and an orphan not to have been written, before it is
    /// advised to set its file aside: a node that joined or left may have the only copy, or a map of its own.
    pub orphan_age: Duration,
    /// How many times the live bytes of its database an index has from which on it is large. An index with as
    /// many bytes as its database mostly holds whole documents.
    pub large_index_factor: f64,
    /// Number of unindexed changes from which on an index lags: a query server indexes about a thousand changes a
    /// second, so the next reader waits longer than most clients do.
    pub lagging_index_updates: u64,
    /// Time without progress after which the build of an index has stalled. CouchDB reports progress every few
    /// seconds; one slow document takes at most minutes until its query server is killed.
    pub stalled_build: Duration,
    /// Number of views in a design document from which on it is worth dividing.
    pub views_in_one_design: u64,
    /// Rates of growth are believed once they were measured for this long: a day has busy and quiet hours.
    pub min_watched: Duration,
    /// A volume that will be full within this time although compaction keeps up is a warning: new disks take
    /// weeks to come.
    pub full_within: Duration,
    /// The same, and it is critical: moving shards takes days. Also how long a volume should last if nothing is
    /// compacted, because a stalled compaction may go unnoticed over a few days.
    pub full_soon: Duration,
    /// Work that waits is reported if it would take longer than this: what is written meanwhile is waste too.
    pub max_backlog: Duration,
}

/// Settings of other sections that a remedy may name: what is set already is not advised.
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

const DAY: u64 = 86_400;

impl Default for AdviceSettings {
    fn default() -> Self {
        Self {
            min_bytes: 64 << 20,
            untaken_waste_percent: 20.0,
            deleted_documents_percent: 50.0,
            compaction_file_factor: 3.0,
            min_moved_bytes: 1 << 30,
            skewed_range_factor: 4.0,
            small_shard_bytes: 1 << 20,
            surplus_shards: 500,
            unbalanced_node_percent: 25.0,
            orphan_age: Duration::from_secs(7 * DAY),
            large_index_factor: 1.0,
            lagging_index_updates: 100_000,
            stalled_build: Duration::from_secs(30 * 60),
            views_in_one_design: 10,
            min_watched: Duration::from_secs(DAY),
            full_within: Duration::from_secs(30 * DAY),
            full_soon: Duration::from_secs(7 * DAY),
            max_backlog: Duration::from_secs(7 * DAY),
        }
    }
}
