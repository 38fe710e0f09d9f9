//! The dates on which volumes are full: without compaction, under smoosh, and under the rules in force.
//!
//! Owns how far is looked ahead and under which rules. It runs what-if's simulation, which takes seconds for a
//! million targets, so [`AdviceTask`](super::AdviceTask) asks for it rarely, only while some volume is about to
//! fill, and on another thread.

use crate::{
    model::channel::Channels,
    plan::Plan,
    what_if::{Forecast, Policy, Present, Proposal, StopFlag},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use wall_clock::Moment;

/// How far is looked ahead; later dates continue what happens in the second half of that time.
const SPAN: Duration = Duration::from_secs(30 * 86_400);

/// When one volume is full; none if it never is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FullDates {
    /// If nothing is compacted.
    pub uncompacted: Option<Moment>,
    /// If smoosh compacts as it is set.
    pub smoosh: Option<Moment>,
    /// If recliner compacts as it is configured, whether or not it enforces.
    pub in_force: Option<Moment>,
}

/// When each volume is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeDates {
    /// The moment from which was looked ahead.
    pub from: Moment,
    /// By the volume's name.
    pub volumes: BTreeMap<Arc<str>, FullDates>,
}

impl VolumeDates {
    /// Looks ahead; none while no growth is known.
    #[must_use]
    pub fn of(plan: &Plan, smoosh: &Channels, now: Moment) -> Option<Self> {
        let (snapshot, conditions) = (Arc::clone(&plan.snapshot), plan.conditions.clone());
        let present = Present { snapshot, conditions, now };
        let stop = StopFlag::default();
        let forecast = Forecast::new(&present, SPAN, &stop).ok()?;
        let in_force =
            Policy { channels: Arc::clone(&plan.channels), rules: (*plan.rules).clone() };
        let mut dates = Self { from: now, volumes: BTreeMap::new() };
        for (policy, date) in [
            (None, (|it| &mut it.uncompacted) as fn(&mut FullDates) -> &mut Option<Moment>),
            (Some(Policy::smoosh(smoosh)), |it| &mut it.smoosh),
            (Some(in_force), |it| &mut it.in_force),
        ] {
            let outlook = forecast.outlook(&Proposal { name: String::new(), policy });
            for volume in outlook.volumes {
                *date(dates.volumes.entry(volume.name).or_default()) = volume.full_at;
            }
        }
        Some(dates)
    }
}
