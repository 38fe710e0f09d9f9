//! Channels: named rules that say which targets are worth compacting and in what order.
//!
//! Owns the checked settings of a channel and smoosh's built-in seven. Never scores
//! (that is `score`) and never reads a file (that is `config`).

mod builtin;

pub use builtin::{
    DEFAULT_CAPACITY, DEFAULT_MIN_RATIO, DEFAULT_MIN_SIZE, DEFAULT_MIN_SLACK, builtin_channels,
};

use crate::{
    model::{target::Kind, window::Window},
    text::pattern::{Names, Patterns},
};
use std::sync::Arc;

/// By what a channel ranks its targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// File over active bytes.
    Ratio,
    /// File minus active bytes.
    Slack,
    /// One for whatever needs an upgrade of its file format or collation.
    Upgrade,
    /// One for whatever has stale index files.
    Cleanup,
}

impl Priority {
    /// Every priority, in the order documentation lists them.
    pub const ALL: [Self; 4] = [Self::Ratio, Self::Slack, Self::Upgrade, Self::Cleanup];

    /// The word in configuration and JSON.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ratio => "ratio",
            Self::Slack => "slack",
            Self::Upgrade => "upgrade",
            Self::Cleanup => "cleanup",
        }
    }

    /// The priority with this label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.label() == label)
    }
}

/// Whether something only says what it would do, or does it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Says what it would do.
    #[default]
    Advise,
    /// Does it.
    Enforce,
}

impl Mode {
    /// Every mode, the more careful first.
    pub const ALL: [Self; 2] = [Self::Advise, Self::Enforce];

    /// The word in flags, configuration, JSON and metric labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Advise => "advise",
            Self::Enforce => "enforce",
        }
    }

    /// The mode with this label.
    #[must_use]
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.label() == label)
    }

    /// The more careful of two: a channel cannot enforce where the whole only advises.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.min(other)
    }
}

/// One channel's settings, checked.
///
/// The bounds are smoosh's to the letter (`smoosh_server:get_priority/4`): a target needs
/// strictly more than a minimum and at most a maximum, save that `min_changes` is met when
/// reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Its name: label of metrics, unique.
    pub name: Arc<str>,
    /// What it takes.
    pub kind: Kind,
    /// By what it ranks.
    pub priority: Priority,
    /// Strict lower bound of the priority: a ratio, or bytes of slack.
    pub min_priority: f64,
    /// Inclusive upper bound of the priority; infinity when there is none.
    pub max_priority: f64,
    /// Strict lower bound of the file's size, in bytes.
    pub min_size: u64,
    /// Inclusive upper bound of the file's size, in bytes.
    pub max_size: Option<u64>,
    /// Changes since the last compaction a db needs at least.
    pub min_changes: u64,
    /// How many targets its queue on one node holds at most.
    pub capacity: usize,
    /// How many of its jobs may run on one node at a time.
    pub concurrency: usize,
    /// Whether it may start anything.
    pub mode: Mode,
    /// Which databases it takes, by clustered name.
    pub databases: Names,
    /// Which design documents' views it takes, by id (`_design/x`).
    pub designs: Names,
    /// When it may start jobs; always, when empty.
    pub windows: Vec<Window>,
    /// Whether a job that would not end inside a window is held back.
    pub strict_window: bool,
}

/// All channels, in the order they are tried, and what none of them may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Channels {
    /// Tried in this order: the first that takes a target has it.
    pub list: Vec<Channel>,
    /// Shard file names or database names that no channel takes.
    pub ignore: Patterns,
}

impl Default for Channels {
    fn default() -> Self {
        Self { list: builtin_channels(), ignore: Patterns::default() }
    }
}

impl Channels {
    /// The channel of this name and its place in the order.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<(usize, &Channel)> {
        self.list.iter().enumerate().find(|(_, channel)| &*channel.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_careful_mode_wins() {
        assert_eq!(Mode::Enforce.and(Mode::Advise), Mode::Advise);
        assert_eq!(Mode::Enforce.and(Mode::Enforce), Mode::Enforce);
    }

    #[test]
    fn left_unset_the_channels_are_those_of_smoosh_in_its_order() {
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
