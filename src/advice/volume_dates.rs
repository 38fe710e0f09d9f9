//! The dates on which volumes are full: without compaction, under smoosh, and under the rules in force.
//!
//! Owns how far is looked ahead and under which rules. It runs what-if's simulation, which takes seconds for a
//! million targets, so [`AdviceTask`](super::AdviceTask) asks for it rarely, only while some volume is about to
//! fill, and on another thread.

use super::FillDates;
use crate::{
    model::channel::Channels,
    plan::Plan,
    what_if::{Forecast, Policy, Present, Proposal, StopFlag},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use wall_clock::Moment;

/// How far is looked ahead; later dates continue what happens in the second half of that time.
const SPAN: Duration = Duration::from_secs(30 * 86_400);

/// When each volume is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeDates {
    /// The moment from which was looked ahead.
    pub from: Moment,
    /// By the volume's name.
    pub volumes: BTreeMap<Arc<str>, FillDates>,
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
            (None, (|it| &mut it.uncompacted) as fn(&mut FillDates) -> &mut Option<Moment>),
            (Some(Policy::smoosh(smoosh)), |it| &mut it.smoosh),
            (Some(in_force), |it| &mut it.compacted),
        ] {
            let outlook = forecast.outlook(&Proposal { name: String::new(), policy });
            for volume in outlook.volumes {
                let dates = dates.volumes.entry(volume.name).or_default();
                dates.is_simulated = true;
                *date(dates) = volume.full_at;
            }
        }
        Some(dates)
    }
}
