//! `advice`: from when on recliner advises something.

use crate::{
    config::{
        form::{Form, keys, section},
        values::{bytes, count, duration, number, percent_from},
    },
    model::settings::advice::AdviceSettings,
};
use std::time::Duration;

pub(super) fn form() -> Form<AdviceSettings> {
    let keys = keys!(AdviceSettings {
        "advice.min_bytes" => min_bytes, Live, bytes(),
            "Advice that would free fewer bytes is not given.";
        "advice.untaken_waste" => untaken_waste_percent, Live, percent_from(0),
            "Share of all files from which on waste that no channel takes is worth advice.";
        "advice.deleted_documents" => deleted_documents_percent, Live, percent_from(1),
            "Share of deleted documents in a database from which on it is advised to be rid of them.";
        "advice.compaction_file_factor" => compaction_file_factor, Live, number(1.0..=100.0),
            "Size of a shard's file times this, from which on the files of its compaction are too large.";
        "advice.min_moved" => min_moved_bytes, Live, bytes(),
            "Splits and moves of less live data than this are not advised.";
        "advice.skewed_range" => skewed_range_factor, Live, number(1.1..=1000.0),
            "Times the mean of its siblings that a shard range holds from which on a split is advised.";
        "advice.small_shard" => small_shard_bytes, Live, bytes(),
            "Live bytes of a shard below which a database has more ranges than it needs.";
        "advice.surplus_shards" => surplus_shards, Live, count(),
            "Number of shard files that small databases would not need from which on fewer ranges are advised.";
        "advice.unbalanced_node" => unbalanced_node_percent, Live, percent_from(1),
            "How much more than the mean a node may hold before moves are advised.";
        "advice.orphan_age" => orphan_age, Live, duration(Duration::ZERO),
            "How long members of the cluster and an orphan stay the same until it is advised to set it aside.";
        "advice.large_index" => large_index_factor, Live, number(0.1..=1000.0),
            "Times the live bytes of its database that an index has from which on it is large.";
        "advice.lagging_index" => lagging_index_updates, Live, count(),
            "Number of unindexed changes from which on an index lags.";
        "advice.stalled_build" => stalled_build, Live, duration(Duration::from_secs(60)),
            "Time without progress after which the build of an index has stalled.";
        "advice.views_in_one_design" => views_in_one_design, Live, count(),
            "Number of views in one design document from which on it is advised to divide it.";
        "advice.min_watched" => min_watched, Live, duration(Duration::from_secs(600)),
            "How long growth has to be measured until advice relies on it.";
        "advice.full_within" => full_within, Live, duration(Duration::ZERO),
            "A volume that will be full within this time although compaction keeps up is a warning.";
        "advice.full_soon" => full_soon, Live, duration(Duration::ZERO),
            "A volume that will be full within this time although compaction keeps up is critical; one that would be so without compaction is advice.";
        "advice.max_backlog" => max_backlog, Live, duration(Duration::ZERO),
            "Compactions that wait are advice if they would take longer than this.";
    });
    section(keys, |_, _| {})
}
