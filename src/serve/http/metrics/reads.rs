//! Who reads the indexes, as access logs tell.

use crate::{
    advice::AskedIndex,
    model::{reads::Reads, target::TargetKind},
    table::Snapshot,
};
use metrics_text::{Writer, families};
use std::collections::BTreeMap;
use wall_clock::Moment;

families! {
    INDEX_LAST_READ: Gauge Seconds "recliner_index_last_read_timestamp_seconds" ["db", "ddoc"]
        "Unix time of the last day on which a log shows a read of the view index, in seconds; for exported databases.";
}

pub(super) fn write(writer: &mut Writer, snapshot: &Snapshot, reads: &Reads, now: Moment) {
    let mut last: BTreeMap<[&str; 2], u64> = BTreeMap::new();
    if !reads.sources.is_empty() {
        let listed = snapshot.top().targets.iter().filter_map(|ix| snapshot.target(*ix));
        for index in listed.filter(|it| it.kind() == TargetKind::View && !it.is_part()) {
            let asked = AskedIndex::of(index);
            let found = asked.designs.first().zip(reads.readers(asked.whole(), now).last);
            if let Some((design, day)) = found {
                let known = last.entry([asked.db, design]).or_default();
                *known = day.start().max(*known);
            }
        }
    }
    writer.write(&INDEX_LAST_READ, last);
}
