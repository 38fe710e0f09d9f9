//! smoosh's seven built-in channels, with the defaults of its code (`smoosh_server`,
//! `smoosh_utils`, `smoosh_channel`), which differ from its documentation.

use super::{Channel, Mode};
use crate::{
    model::{priority::PriorityKind, target::TargetKind},
    text::pattern::NameFilter,
};

/// Strict lower bound of a file's size, in bytes.
pub(super) const DEFAULT_MIN_SIZE: u64 = 1_048_576;
/// Capacity of a queue.
pub(super) const DEFAULT_CAPACITY: usize = 9_999;

/// Name, kind and priority of smoosh's channels in the order in which 3.3 and later try them,
/// database channels first: by name.
const BUILTIN: [(&str, TargetKind, PriorityKind); 7] = [
    ("ratio_dbs", TargetKind::Db, PriorityKind::Ratio),
    ("slack_dbs", TargetKind::Db, PriorityKind::Slack),
    ("upgrade_dbs", TargetKind::Db, PriorityKind::Upgrade),
    ("ratio_views", TargetKind::View, PriorityKind::Ratio),
    ("slack_views", TargetKind::View, PriorityKind::Slack),
    ("upgrade_views", TargetKind::View, PriorityKind::Upgrade),
    ("index_cleanup", TargetKind::Cleanup, PriorityKind::Cleanup),
];

/// smoosh's channels in their order, with its defaults.
#[must_use]
pub fn builtin_channels() -> Vec<Channel> {
    let channels = BUILTIN.into_iter();
    channels.map(|(name, kind, priority)| Channel::with_defaults(name, kind, priority)).collect()
}

/// How smoosh's channel of this name ranks, if it is one of its own.
#[must_use]
pub fn builtin_priority(name: &str) -> Option<PriorityKind> {
    BUILTIN.into_iter().find(|(builtin, ..)| *builtin == name).map(|(.., priority)| priority)
}

impl Channel {
    /// A channel with smoosh's defaults for its priority.
    #[must_use]
    pub fn with_defaults(name: &str, kind: TargetKind, priority: PriorityKind) -> Self {
        Self {
            name: name.into(),
            kind,
            priority,
            min_priority: priority.rule().default_min,
            max_priority: f64::INFINITY,
            min_size: DEFAULT_MIN_SIZE,
            max_size: None,
            min_changes: 0,
            capacity: DEFAULT_CAPACITY,
            concurrency: 1,
            mode: Mode::Enforce,
            databases: NameFilter::default(),
            designs: NameFilter::default(),
            windows: Vec::new(),
            strict_window: false,
        }
    }
}
