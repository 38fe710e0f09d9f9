//! The settings of a plan.

use crate::{
    model::{
        channel::Mode,
        settings::{
            limits::{Headroom, Limits, RentSettings},
            work::EnforceViews,
        },
        share::Share,
    },
    shared_limits::Allowance,
};
use std::time::Duration;

/// The settings that affect decisions, in addition to the channels.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Whether the process may start anything. In advise mode, the plan contains what it would
    /// send if every channel enforced.
    pub mode: Mode,
    /// Limits on running jobs, and on the files whose compactions start within an hour.
    pub limits: Limits,
    /// The share of limits that several clusters have, which bounds [`Self::limits`]; `None` if nothing is shared.
    pub shared: Option<Allowance>,
    /// The space that must stay free on the disks.
    pub headroom: Headroom,
    /// How the horizons of channels by rent adapt to scarce resources.
    pub rent: RentSettings,
    /// The views that may be compacted.
    pub views: EnforceViews,
    /// The age up to which facts count as fresh.
    pub fresh_for: Duration,
    /// Number of views that may have all their copies compacted at once. Not configurable: larger
    /// than one only in what-if, which decides about more than one moment.
    pub whole_views: usize,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            limits: Limits::default(),
            shared: None,
            headroom: Headroom::default(),
            rent: RentSettings::default(),
            views: EnforceViews::Q1,
            fresh_for: Duration::from_secs(20 * 60),
            whole_views: 1,
        }
    }
}

impl Rules {
    /// The rules under which this share of shared limits bounds the cluster's own.
    #[must_use]
    pub fn bounded_by(self, shared: Option<Allowance>) -> Self {
        let share = shared.map_or(Share::ALL, |allowance| allowance.share);
        let own = self.limits.in_cluster();
        let Share { jobs: cluster, bytes_per_hour } = own.min(share);
        let limits = Limits { cluster, bytes_per_hour, ..self.limits };
        let shared = shared.map(|it| Allowance { most: it.most.min(own), ..it });
        Self { limits, shared, ..self }
    }

    /// The most jobs that the cluster may ever run, whatever its present share of shared limits.
    pub fn most_jobs(&self) -> usize {
        self.shared.map_or(self.limits.cluster, |shared| shared.most.jobs)
    }

    /// Whether the share of shared limits is what limits jobs in the cluster.
    pub fn jobs_are_shared(&self) -> bool {
        self.shared.is_some_and(|shared| shared.share.jobs <= self.limits.cluster)
    }

    /// Whether the share of shared limits is what limits bytes within an hour.
    pub fn bytes_are_shared(&self) -> bool {
        self.shared.is_some_and(|it| it.share.bytes_per_hour <= self.limits.bytes_per_hour)
    }
}
