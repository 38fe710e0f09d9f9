//! Ready lists of channels: smoosh's seven, with the defaults of its code (`smoosh_server`,
//! `smoosh_utils`, `smoosh_channel`), which differ from its documentation; and three by rent.

use super::{Channel, Mode};
use crate::{
    model::{priority::PriorityKind, target::TargetKind},
    text::pattern::NameFilter,
};
use std::time::Duration;
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Strict lower bound of a file's size, in bytes.
pub(super) const DEFAULT_MIN_SIZE: u64 = 1_048_576;
/// How long a wasted byte may remain before rewriting one byte is worth it.
pub(super) const DEFAULT_HORIZON: Duration = Duration::from_secs(86_400);
pub(super) const DEFAULT_CAPACITY: usize = 9_999;

/// Name, kind and priority of smoosh's channels in the order in which CouchDB 3.3 and later try
/// them: database channels first, each group by name.
const BUILTIN: [(&str, TargetKind, PriorityKind); 7] = [
    ("ratio_dbs", TargetKind::Db, PriorityKind::Ratio),
    ("slack_dbs", TargetKind::Db, PriorityKind::Slack),
    ("upgrade_dbs", TargetKind::Db, PriorityKind::Upgrade),
    ("ratio_views", TargetKind::View, PriorityKind::Ratio),
    ("slack_views", TargetKind::View, PriorityKind::Slack),
    ("upgrade_views", TargetKind::View, PriorityKind::Upgrade),
    ("index_cleanup", TargetKind::Cleanup, PriorityKind::Cleanup),
];

/// Name, kind and priority of the channels by rent.
const BY_RENT: [(&str, TargetKind, PriorityKind); 3] = [
    ("rent_dbs", TargetKind::Db, PriorityKind::Rent),
    ("rent_views", TargetKind::View, PriorityKind::Rent),
    ("index_cleanup", TargetKind::Cleanup, PriorityKind::Cleanup),
];

/// A ready list of channels.
#[derive(EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelPreset {
    /// smoosh's seven, which decide as smoosh does.
    Smoosh,
    /// Three that compact when waiting costs more than compacting.
    Rent,
}

impl ChannelPreset {
    /// Its channels, in the order in which they are tried.
    pub fn channels(self) -> Vec<Channel> {
        let rows = match self {
            Self::Smoosh => &BUILTIN[..],
            Self::Rent => &BY_RENT[..],
        };
        let rows = rows.iter();
        rows.map(|(name, kind, priority)| Channel::with_defaults(name, *kind, *priority)).collect()
    }
}

/// The priority of smoosh's built-in channel of this name, or `None` for any other name.
pub fn builtin_priority(name: &str) -> Option<PriorityKind> {
    BUILTIN.into_iter().find(|(builtin, ..)| *builtin == name).map(|(.., priority)| priority)
}

impl Channel {
    /// A channel with the defaults for its priority: smoosh's defaults where smoosh has that
    /// priority.
    pub fn with_defaults(name: &str, kind: TargetKind, priority: PriorityKind) -> Self {
        Self {
            name: name.into(),
            kind,
            priority,
            horizon: DEFAULT_HORIZON,
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
