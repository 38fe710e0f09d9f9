//! The settings a plan goes by.

use crate::model::{
    channel::Mode,
    settings::{
        limits::{Headroom, Limits},
        work::EnforceViews,
    },
};
use std::time::Duration;

/// What of the settings decides, beside the channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Whether the process may start anything. Where it only advises, the plan is what it
    /// would send if every channel enforced.
    pub mode: Mode,
    /// How much runs at a time.
    pub limits: Limits,
    /// What must stay free on the disks.
    pub headroom: Headroom,
    /// Which views may be started.
    pub views: EnforceViews,
    /// How long facts count as fresh.
    pub fresh_for: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            limits: Limits::default(),
            headroom: Headroom::default(),
            views: EnforceViews::default(),
            fresh_for: Duration::from_secs(20 * 60),
        }
    }
}
