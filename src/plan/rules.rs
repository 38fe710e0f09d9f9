//! The settings of a plan.

use crate::model::{
    channel::Mode,
    settings::{
        limits::{Headroom, Limits, RentSettings},
        work::EnforceViews,
    },
};
use std::time::Duration;

/// The settings that affect decisions, in addition to the channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Whether the process may start anything. In advise mode, the plan contains what it would
    /// send if every channel enforced.
    pub mode: Mode,
    /// Limits on running jobs, and on files whose compaction starts within an hour.
    pub limits: Limits,
    /// The space that must stay free on the disks.
    pub headroom: Headroom,
    /// How the horizons of channels by rent adapt to scarce resources.
    pub rent: RentSettings,
    /// The views that may be compacted.
    pub views: EnforceViews,
    /// The age up to which facts count as fresh.
    pub fresh_for: Duration,
    /// Number of views that may have all their copies compacted at once. Not configurable: larger
    /// than one only in what-if, which decides for more than one moment.
    pub whole_views: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            limits: Limits::default(),
            headroom: Headroom::default(),
            rent: RentSettings::default(),
            views: EnforceViews::Q1,
            fresh_for: Duration::from_secs(20 * 60),
            whole_views: 1,
        }
    }
}
