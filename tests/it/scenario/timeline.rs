//! The events of a scenario as a text to read: one line for each compaction and each note, in order
//! of time.

use super::judge::Record;
use couchdb_names::ShardName;
use couchdb_sim::{Compaction, StartedBy};
use std::time::Duration;

/// For each compaction: when it began, where, of what, the sizes before and after, the duration,
/// and who started it if that was not recliner; and the scenario's notes.
pub(crate) fn timeline(record: &Record) -> String {
    let notes = record.notes.iter().map(|(at, note)| (*at, 0, format!("-- {note}")));
    let done = record.compactions.iter().map(|one| (one.began, 1, line(one)));
    let mut lines: Vec<(Duration, u8, String)> = notes.chain(done).collect();
    lines.sort_by_key(|(at, rank, _)| (*at, *rank));
    let at = |at: Duration| record.start.plus(at).rfc3339();
    lines.into_iter().map(|(when, _, text)| format!("{} {text}\n", at(when))).collect()
}

fn line(one: &Compaction) -> String {
    let node = one.node.split(['@', '.']).nth(1).unwrap_or(&one.node);
    let what = ShardName::split(&one.shard)
        .map_or_else(|| one.shard.clone(), |shard| format!("{} {}", shard.db, shard.range));
    let ddoc = one.ddoc.as_deref().map(|ddoc| format!(" {ddoc}")).unwrap_or_default();
    let end = one.end.map_or_else(
        || "runs".to_owned(),
        |end| {
            let took = Duration::from_secs(end.at.saturating_sub(one.began).as_secs());
            let took = humantime::format_duration(took);
            if end.swapped {
                format!("{} -> {} MB in {took}", mb(one.before), mb(end.after))
            } else {
                format!("{} MB, broken off after {took}", mb(one.before))
            }
        },
    );
    let by = if one.by == StartedBy::Smoosh { " (smoosh)" } else { "" };
    format!("{node} {what}{ddoc}: {end}{by}")
}

const fn mb(bytes: u64) -> u64 {
    bytes / 1_000_000
}
