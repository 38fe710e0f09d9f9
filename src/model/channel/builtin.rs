//! smoosh's seven built-in channels, with the defaults of its code (`smoosh_server`,
//! `smoosh_utils`, `smoosh_channel`), which differ from its documentation.

use super::{Channel, Mode, Priority};
use crate::{model::target::Kind, text::pattern::Names};

/// Strict lower bound of a ratio channel.
pub const DEFAULT_MIN_RATIO: f64 = 2.0;
/// Strict lower bound of a slack channel, in bytes (since CouchDB 3.2; 16 MiB before).
pub const DEFAULT_MIN_SLACK: f64 = 536_870_912.0;
/// Strict lower bound of a file's size, in bytes.
pub const DEFAULT_MIN_SIZE: u64 = 1_048_576;
/// Capacity of a queue.
pub const DEFAULT_CAPACITY: usize = 9_999;

/// smoosh's channels in the order in which 3.3 and later try them, database channels first: by
/// name.
#[must_use]
pub fn builtin_channels() -> Vec<Channel> {
    [
        ("ratio_dbs", Kind::Db, Priority::Ratio),
        ("slack_dbs", Kind::Db, Priority::Slack),
        ("upgrade_dbs", Kind::Db, Priority::Upgrade),
        ("ratio_views", Kind::View, Priority::Ratio),
        ("slack_views", Kind::View, Priority::Slack),
        ("upgrade_views", Kind::View, Priority::Upgrade),
        ("index_cleanup", Kind::Cleanup, Priority::Cleanup),
    ]
    .into_iter()
    .map(|(name, kind, priority)| Channel::with_defaults(name, kind, priority))
    .collect()
}

impl Channel {
    /// A channel with smoosh's defaults for its priority.
    #[must_use]
    pub fn with_defaults(name: &str, kind: Kind, priority: Priority) -> Self {
        Self {
            name: name.into(),
            kind,
            priority,
            min_priority: match priority {
                Priority::Ratio | Priority::Upgrade => DEFAULT_MIN_RATIO,
                Priority::Slack => DEFAULT_MIN_SLACK,
                Priority::Cleanup => 0.0,
            },
            max_priority: f64::INFINITY,
            min_size: DEFAULT_MIN_SIZE,
            max_size: None,
            min_changes: 0,
            capacity: DEFAULT_CAPACITY,
            concurrency: 1,
            mode: Mode::Enforce,
            databases: Names::default(),
            designs: Names::default(),
            windows: Vec::new(),
            strict_window: false,
        }
    }
}
