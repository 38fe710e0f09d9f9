//! Channels: named rules that decide which targets are worth compacting and in what order.
//!
//! Owns the validated settings of a channel and smoosh's seven built-in channels. Scoring is in
//! `score`, and reading configuration files in `config`.

mod builtin;

pub use builtin::{ChannelPreset, builtin_priority};

use crate::{
    model::{priority::PriorityKind, target::TargetKind, window::Window},
    text::pattern::{NameFilter, NamePatterns},
};
use std::{sync::Arc, time::Duration};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Whether recliner only reports what it would do, or does it.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// recliner reports what it would do.
    #[default]
    Advise,
    /// recliner compacts without being asked.
    Enforce,
}

impl Mode {
    /// The more cautious of two modes: a channel cannot enforce while the whole process only
    /// advises.
    #[must_use]
    pub fn more_cautious(self, other: Self) -> Self {
        self.min(other)
    }
}

/// One channel's validated settings.
///
/// The bounds are exactly those of smoosh (`smoosh_server:get_priority/4`): a target needs
/// strictly more than a minimum and at most a maximum, except that reaching `min_changes` is
/// enough.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Its name: unique, used as a metric label.
    pub name: Arc<str>,
    /// The kind of target it takes.
    pub kind: TargetKind,
    /// How it ranks its targets.
    pub priority: PriorityKind,
    /// How long a wasted byte may remain before rewriting one byte is worth it; used only by
    /// channels that rank by rent.
    pub horizon: Duration,
    /// Strict lower bound of the priority: a ratio, or bytes of slack.
    pub min_priority: f64,
    /// Inclusive upper bound of the priority; infinity when there is none.
    pub max_priority: f64,
    /// Strict lower bound of the file's size, in bytes.
    pub min_size: u64,
    /// Inclusive upper bound of the file's size, in bytes.
    pub max_size: Option<u64>,
    /// Minimum number of changes that a database needs since its last compaction.
    pub min_changes: u64,
    /// Maximum number of targets in its queue on one node.
    pub capacity: usize,
    /// Maximum number of its jobs that run on one node at a time.
    pub concurrency: usize,
    /// Whether it may start anything.
    pub mode: Mode,
    /// The databases it takes, by clustered name.
    pub databases: NameFilter,
    /// The design documents whose views it takes, by id (`_design/x`).
    pub designs: NameFilter,
    /// When it may start jobs; an empty list means always.
    pub windows: Vec<Window>,
    /// Whether to hold back a job that would not end within a window.
    pub strict_window: bool,
}

/// All channels, in the order in which they are tried, and names that no channel takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Channels {
    /// Tried in this order: a target belongs to the first channel that takes it.
    pub list: Vec<Channel>,
    /// Shard file names or database names that no channel takes.
    pub ignore: NamePatterns,
}

impl Default for Channels {
    fn default() -> Self {
        Self { list: ChannelPreset::Smoosh.channels(), ignore: NamePatterns::default() }
    }
}

impl Channel {
    /// The largest capacity that can be configured.
    pub(crate) const MAX_CAPACITY: usize = 10_000_000;
    /// The largest concurrency that can be configured, and the largest `limits.per_node`.
    pub(crate) const MAX_CONCURRENCY: usize = 10_000;
    const MAX_NAME_LENGTH: usize = 64;

    /// Whether a channel can have this name: it is a label of metrics.
    pub(crate) fn is_name(text: &str) -> bool {
        let mut letters = text.bytes();
        letters.next().is_some_and(|first| first.is_ascii_lowercase())
            && letters.all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_')
            && text.len() <= Self::MAX_NAME_LENGTH
    }
}

impl Channels {
    /// The channels that rank by rent.
    pub fn by_rent(&self) -> impl Iterator<Item = &Channel> {
        self.list.iter().filter(|channel| channel.priority == PriorityKind::Rent)
    }

    /// Applies `change` to every channel.
    pub fn map(&self, change: impl Fn(&Channel) -> Channel) -> Self {
        Self { list: self.list.iter().map(change).collect(), ignore: self.ignore.clone() }
    }

    /// The channel with this name and its index.
    pub fn find(&self, name: &str) -> Option<(usize, &Channel)> {
        self.list.iter().enumerate().find(|(_, channel)| &*channel.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_cautious_mode_wins() {
        assert_eq!(Mode::Enforce.more_cautious(Mode::Advise), Mode::Advise);
        assert_eq!(Mode::Enforce.more_cautious(Mode::Enforce), Mode::Enforce);
    }

    #[test]
    fn default_channels_are_those_of_smoosh_in_the_same_order() {
        let names: Vec<_> =
            Channels::default().list.iter().map(|channel| channel.name.to_string()).collect();
        assert_eq!(
            names,
            [
                "ratio_dbs",
                "slack_dbs",
                "upgrade_dbs",
                "ratio_views",
                "slack_views",
                "upgrade_views",
                "index_cleanup"
            ]
        );
    }
}
