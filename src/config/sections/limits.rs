//! `limits`: how much runs at a time.

use crate::{
    config::{
        form::{Form, keys, section},
        values::{boolean, bytes, duration, integer, percent_from},
    },
    model::{channel::Channel, settings::limits::Limits},
};
use std::time::Duration;

pub(super) fn form() -> Form<Limits> {
    let keys = keys!(Limits {
        "limits.per_node" => per_node, Live, integer(0..=Channel::MAX_CONCURRENCY),
            "Compactions at a time on one node, whatever started them; 0 starts none.";
        "limits.cluster" => cluster, Live, integer(0..=1_000_000),
            "Compactions at a time in the whole cluster, whatever started them; 0 starts none.";
        "limits.bytes_per_hour" => bytes_per_hour, Live, bytes(),
            "Size, before compaction, of the files whose compaction may start within any hour.";
        "limits.wait" => wait, Live, duration(Duration::ZERO),
            "Shortest time from one start on a node to the next.";
        "limits.duty" => duty_percent, Live, percent_from(1),
            "Largest share of a node's time in which recliner's compactions run: after they ran for a minute, the node rests for a minute at 50%, for three at 25%, not at all at 100%. More than an hour counts as an hour.";
        "limits.one_copy_of_a_range" => one_copy_of_a_range, Live, boolean(),
            "Compact only one copy of a shard range at a time.";
    });
    section(keys, |_, _| {})
}
