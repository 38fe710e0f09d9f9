//! Checks which jobs may run together, where, when, and how soon again.

use super::{Asked, Record, journal};
use couchdb_sim::{Compaction, Exchange, Obstacle};
use recliner::model::window;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);
const SECOND: Duration = Duration::from_secs(1);

/// A file that is larger than its clean size by less than this factor does not need another
/// compaction.
const GREW: f64 = 1.25;

/// A compaction that recliner requested.
struct Start<'a> {
    /// The position of the request among all orders: several may share one instant.
    at: usize,
    order: &'a Exchange,
    whole: bool,
    one: &'a Compaction,
    /// The channel for which it was started.
    channel: Option<&'a str>,
}

/// Breaches of limits, as sentences.
pub(super) fn breaches(record: &Record) -> Vec<String> {
    let chapters = journal::chapters(record).0;
    let mut starts: Vec<Start<'_>> = Vec::new();
    for (at, order, asked) in record.starts() {
        let whole = matches!(asked, Asked::Whole { .. });
        let chapter = chapters.iter().find(|chapter| chapter.has(at, &asked));
        let channel = chapter.map(|chapter| chapter.intent.channel.as_str());
        let begun = record.begun(order, &asked).into_iter();
        starts.extend(begun.map(|one| Start { at, order, whole, one, channel }));
    }
    let mut broken = Vec::new();
    for start in &starts {
        for what in [
            too_many_jobs(record, start),
            too_many_in_channel(record, start, &starts),
            missing_space(record, start),
            obstacle(start),
            closed_window(record, start),
            too_soon(record, start, &starts),
            without_cause(record, start),
            too_many_bytes(record, start, &starts),
        ] {
            broken.extend(what.map(|what| format!("{what}: {:?}", start.one)));
        }
    }
    broken
}

/// Checks the jobs beside a start, whoever started them. All files of a whole view begin at once
/// and were counted together before.
fn too_many_jobs(record: &Record, start: &Start<'_>) -> Option<String> {
    let limits = &record.settings(start.one.began).limits;
    let one = start.one;
    let all = one.running_on_node >= limits.per_node;
    let cluster = one.running_in_cluster >= limits.cluster;
    let copies = limits.one_copy_of_a_range && one.other_copy && !start.whole;
    let broken: Vec<&str> = [
        (all, "more jobs on the node than its limit"),
        (cluster, "more jobs in the cluster than its limit"),
        (copies, "two copies of a range at a time"),
    ]
    .into_iter()
    .filter_map(|(broken, what)| broken.then_some(what))
    .collect();
    (!broken.is_empty()).then(|| broken.join(", "))
}

/// Checks recliner's own jobs of the same channel on the same node.
fn too_many_in_channel(record: &Record, start: &Start<'_>, starts: &[Start<'_>]) -> Option<String> {
    let name = start.channel?;
    let (_, channel) = record.settings(start.one.began).channels.find(name)?;
    let runs = |other: &&Start<'_>| {
        other.channel == Some(name)
            && other.one.node == start.one.node
            && other.at < start.at
            && other.one.end.is_none_or(|end| end.at > start.one.began)
    };
    let beside = starts.iter().filter(runs).count();
    (beside >= channel.concurrency).then(|| {
        format!("{beside} of {name} ran on the node, which may run {}", channel.concurrency)
    })
}

/// Checks the free space for this compaction and for what others there have yet to write.
fn missing_space(record: &Record, start: &Start<'_>) -> Option<String> {
    let (one, headroom) = (start.one, &record.settings(start.one.began).headroom);
    let is_known = headroom.volumes.iter().any(|volume| volume.nodes.contains(&one.node));
    if !is_known {
        return (one.before > headroom.blind_limit).then(|| "too large to start blindly".into());
    }
    let wanted = one.needed.saturating_add(one.reserved);
    let free = one.available?;
    (wanted > free).then(|| format!("no space: {wanted} bytes are needed, {free} are free"))
}

fn obstacle(start: &Start<'_>) -> Option<String> {
    let what = start.one.obstacles.first()?;
    Some(match what {
        Obstacle::Maintenance => "its node was in maintenance".into(),
        Obstacle::Splitting => "its shard was being split".into(),
        Obstacle::Building => "its index was being built".into(),
    })
}

fn closed_window(record: &Record, start: &Start<'_>) -> Option<String> {
    let (_, channel) = record.settings(start.one.began).channels.find(start.channel?)?;
    let wall = record.wall(start.one.began);
    (!window::any_open_at(&channel.windows, wall))
        .then(|| format!("{} was shut at {}", channel.name, wall.rfc3339()))
}

/// Checks the pause between two starts on a node.
fn too_soon(record: &Record, start: &Start<'_>, starts: &[Start<'_>]) -> Option<String> {
    let began = start.one.began;
    let wait = record.settings(began).limits.wait;
    let last = starts
        .iter()
        .filter(|it| it.one.node == start.one.node && it.at < start.at)
        .map(|it| it.one.began)
        .max()?;
    let set = record.clock.iter().any(|(at, _)| *at > last && *at <= began);
    // Moments have a resolution of one second.
    let soon = began - last + SECOND < wait;
    (soon && !set).then(|| format!("{:?} after the start before it", began - last))
}

/// Checks that a start neither follows a compaction without growth since, nor a failure too soon.
fn without_cause(record: &Record, start: &Start<'_>) -> Option<String> {
    let one = start.one;
    let same = |it: &&Compaction| {
        (&it.node, &it.shard, &it.ddoc) == (&one.node, &one.shard, &one.ddoc)
            && it.began < one.began
    };
    let last = record.compactions.iter().filter(same).max_by_key(|it| it.began)?;
    let end = last.end?;
    if end.swapped {
        // A compaction that had to catch up with writes leaves much to free.
        let needless = (one.before as f64) < end.clean as f64 * GREW;
        return needless.then(|| format!("it was compacted at {:?} and hardly grew", end.at));
    }
    let between = |at: &Duration| *at > end.at && *at <= one.began;
    let released = record.released.iter().any(between);
    let set = record.clock.iter().any(|(at, _)| between(at));
    let rests = record.settings(one.began).failure.cool_down;
    let soon = one.began + SECOND < end.at + rests;
    (soon && !released && !set).then(|| format!("it failed at {:?}", end.at))
}

/// Checks the bytes of files whose compactions began within the last hour; a single file may be
/// larger.
fn too_many_bytes(record: &Record, start: &Start<'_>, starts: &[Start<'_>]) -> Option<String> {
    let (began, limit) = (start.one.began, record.settings(start.one.began).limits.bytes_per_hour);
    let recent = |it: &&Start<'_>| it.one.began <= began && it.one.began + HOUR > began + SECOND;
    let recent: Vec<u64> = starts.iter().filter(recent).map(|it| it.one.before).collect();
    let sum: u64 = recent.iter().sum();
    // The facts were read a moment earlier, so that the sizes differ slightly.
    (recent.len() > 1 && sum as f64 > limit as f64 * 1.01)
        .then(|| format!("{sum} bytes were begun within an hour, after {}", start.order.path))
}
