//! Translates smoosh's channels into recliner's channels.

use super::{NodeChannels, TranslatedChannel, unique_name};
use crate::{
    act::takeover::{self, StoppedChannel},
    model::{
        channel::Channel,
        priority::PriorityKind,
        target::TargetKind,
        window::{Days, Window},
    },
};
use compaction_settings::{
    BrokenChannel, ChannelKind, Findings, NodeConfig, Opening, Priority, SmooshChannel,
    SmooshSettings, read_smoosh,
};
use jiff::{civil, tz::TimeZone};
use std::collections::BTreeSet;

/// Keys of `[smoosh]` that have no meaning in recliner.
const WITHOUT_COUNTERPART: [(&str, &str); 4] = [
    ("staleness", "has no counterpart: smoosh scores on writes, recliner at every scan.interval"),
    ("wait_secs", "has no counterpart: it is how long smoosh waits after CouchDB starts"),
    ("persist", "has no counterpart: recliner always keeps its state"),
    ("compaction_log_level", "has no counterpart: set --log.level"),
];

/// Reads one node's smoosh settings.
///
/// If a takeover has stopped channels, their earlier concurrency counts, not the zero that the
/// takeover wrote: smoosh uses it again as soon as it is restored.
pub(super) fn read(node: &NodeConfig) -> NodeChannels {
    let mut node = node.clone();
    let stopped = takeover::undo_takeovers(&mut node.sections);
    let SmooshSettings { runs_smoosh, channels, broken, ignored, findings } = read_smoosh(&node);
    let mut findings = Findings::from(findings);
    stopped.into_iter().for_each(|stopped| note_restored(stopped, &mut findings));
    findings.note_set_keys(&node, "smoosh", &WITHOUT_COUNTERPART);
    broken.iter().for_each(|broken| note_escapes(broken, &mut findings));
    let mut translated: Vec<TranslatedChannel> = Vec::new();
    let names: BTreeSet<&str> = channels.iter().map(|read| &*read.name).collect();
    let mut used = BTreeSet::new();
    for read in &channels {
        let mut unique = read.name.clone();
        if !Channel::is_name(&unique) || used.contains(&unique) {
            let is_used = |name: &str| used.contains(name) || names.contains(name);
            unique = unique_name(&unique, ending(read.kind), is_used);
            note_renamed(read, &unique, &mut findings);
        }
        used.insert(unique.clone());
        let Some(channel) = channel(read, &unique) else {
            let message = "takes nothing, so no channel is written";
            findings.note(&read.section(), None, message);
            continue;
        };
        note_differences(read, &mut findings);
        translated.push(TranslatedChannel {
            channel,
            include: BTreeSet::new(),
            exclude: BTreeSet::new(),
            section: read.section(),
        });
    }
    let concurrencies = channels.iter().map(|channel| channel.concurrency);
    NodeChannels {
        node: node.node,
        version: node.version,
        runs_smoosh,
        channels: translated,
        ignored,
        per_node: concurrencies.fold(0, usize::saturating_add),
        findings,
    }
}

/// Notes which concurrency is used for a channel that a takeover stopped.
fn note_restored(stopped: StoppedChannel, findings: &mut Findings) {
    let StoppedChannel { channel, previous } = stopped;
    let before = previous.map_or_else(
        || "the key was not set before the takeover, so its default is used here".to_owned(),
        |previous| format!("its earlier value {previous:?} is used here"),
    );
    let message = format!("is 0 because a recliner has taken the channel over; {before}");
    findings.note(&format!("smoosh.{channel}"), "concurrency", message);
}

/// Reports databases with few changes, which smoosh passes on from a broken channel to the next
/// ones.
fn note_escapes(broken: &BrokenChannel, findings: &mut Findings) {
    let BrokenChannel { name, key, min_changes, not_reached, .. } = broken;
    if *min_changes > 0 && !not_reached.is_empty() {
        let message = format!(
            "despite the wrong value, databases with fewer than {min_changes} changes are passed on to {}; no recliner channel can express this: correct the setting",
            not_reached.join(", ")
        );
        findings.error(&format!("smoosh.{name}"), *key, message);
    }
}

fn note_renamed(read: &SmooshChannel, unique: &str, findings: &mut Findings) {
    let (name, kind) = (&read.name, read.kind);
    if !Channel::is_name(name) {
        let message = match name.as_str() {
            "" => format!("the {kind} channel without a name becomes {unique}"),
            _ => format!("{name:?} is not a valid channel name in recliner: it becomes {unique}"),
        };
        findings.note("smoosh", None, message);
        return;
    }
    let key = match kind {
        ChannelKind::Db => "db_channels",
        ChannelKind::View => "view_channels",
        ChannelKind::Cleanup => "cleanup_channels",
    };
    let message = format!(
        "{name} is listed for more than one kind; in smoosh these share a queue and concurrency, but recliner's channel for the {kind} part, {unique}, has its own: use two names in CouchDB"
    );
    findings.error("smoosh", key, message);
}

/// Reports what recliner does differently with a channel that has the same settings.
fn note_differences(read: &SmooshChannel, findings: &mut Findings) {
    let section = read.section();
    if read.never_starts.is_some() {
        let message = "is written with concurrency 0, because smoosh never starts a job of it";
        findings.note(&section, None, message);
    } else if matches!(read.opens, Opening::Daily(_)) {
        let message = "the window is in UTC; smoosh also starts jobs for up to a minute after CouchDB starts, and waits for the next write when a window opens; recliner does neither";
        findings.note(&section, "from", message);
        if read.strict_window {
            let message = "smoosh suspends running jobs when the window closes; that is not possible over HTTP, so recliner does not start what would not end inside the window: the same targets are queued, but one that needs more than a whole window never starts";
            findings.warn(&section, "strict_window", message);
        }
    }
    if read.priority.is_none() {
        let message = "takes only files without live bytes, so it is written with equal min_priority and max_priority";
        findings.note(&section, None, message);
    }
    if read.drops_empty_files {
        let message = "CouchDB drops files without live bytes here; recliner leaves them to later channels: remove the key";
        findings.error(&section, "min_priority", message);
    }
}

/// The translated channel; `None` if its bounds exclude every target.
fn channel(read: &SmooshChannel, name: &str) -> Option<Channel> {
    let priority = match read.priority {
        Some(Priority::Slack) => PriorityKind::Slack,
        Some(Priority::Upgrade) => PriorityKind::Upgrade,
        Some(Priority::Cleanup) => PriorityKind::Cleanup,
        Some(Priority::Ratio) | None => PriorityKind::Ratio,
    };
    let mut channel = Channel::with_defaults(name, kind(read.kind), priority);
    if read.kind != ChannelKind::Cleanup {
        channel.min_priority = read.min_priority;
        channel.max_priority = read.max_priority;
        channel.min_size = read.min_size;
        channel.max_size = read.max_size;
        channel.min_changes = read.min_changes;
    }
    if matches!(priority, PriorityKind::Ratio | PriorityKind::Slack) {
        // Files without live bytes are taken regardless of the maximum priority, unless the minimum
        // is 0.
        channel.max_priority = channel.max_priority.max(channel.min_priority);
        let takes_no_priority = channel.min_priority == 0.0 && channel.max_priority == 0.0;
        let takes_no_size = channel.max_size.is_some_and(|max_size| max_size <= channel.min_size);
        if takes_no_priority || takes_no_size {
            return None;
        }
    }
    channel.capacity = read.capacity.min(Channel::MAX_CAPACITY);
    channel.concurrency = read.concurrency.min(Channel::MAX_CONCURRENCY);
    channel.strict_window = read.strict_window;
    if read.never_starts.is_none() {
        channel.windows = windows(read.opens, &TimeZone::UTC);
    }
    Some(channel)
}

const fn ending(kind: ChannelKind) -> &'static str {
    match kind {
        ChannelKind::Db => "dbs",
        ChannelKind::View => "views",
        ChannelKind::Cleanup => "cleanup",
    }
}

fn kind(kind: ChannelKind) -> TargetKind {
    match kind {
        ChannelKind::Db => TargetKind::Db,
        ChannelKind::View => TargetKind::View,
        ChannelKind::Cleanup => TargetKind::Cleanup,
    }
}

/// The windows of a channel; a channel without windows is always open.
pub(super) fn windows(opens: Opening, zone: &TimeZone) -> Vec<Window> {
    let Opening::Daily(window) = opens else { return Vec::new() };
    let time = |minutes: u16| {
        let part = |value: u16| i8::try_from(value).unwrap_or_default();
        civil::Time::new(part(minutes / 60), part(minutes % 60), 0, 0).unwrap_or(civil::Time::MIN)
    };
    let (from, to) = (time(window.from), time(window.to));
    vec![Window { days: Days::ALL, from, to, zone: zone.clone() }]
}
