//! The dates on which volumes are full: without compaction, under smoosh, and under the rules in force.
//!
//! Owns the time that is simulated and the rules. A simulation takes seconds for a million targets,
//! so advice runs it rarely, only while some volume is about to fill, and on another thread.

use super::{Forecast, Policy, Present, Proposal};
use crate::{model::channel::Channels, plan::Plan};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// The simulated time; later dates continue what happens in its second half.
const SPAN: Duration = Duration::from_secs(30 * 86_400);

/// Later dates do not matter: nobody plans further ahead.
pub(super) const FAR: Duration = Duration::from_secs(10 * 366 * 86_400);

/// When a volume will be full at its files' present growth; none if not within ten years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FillDates {
    /// If nothing is compacted.
    pub uncompacted: Option<Moment>,
    /// If compaction keeps up; with recliner's own rules, if that was simulated.
    pub compacted: Option<Moment>,
    /// With smoosh as configured, if that was simulated.
    pub smoosh: Option<Moment>,
    /// Whether the dates are simulated, rather than based only on the growth of the last days.
    pub is_simulated: bool,
}

/// When each volume is full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeDates {
    /// The moment at which the simulation begins.
    pub from: Moment,
    /// The dates, by the volume's name.
    pub volumes: BTreeMap<Arc<str>, FillDates>,
}

impl VolumeDates {
    /// Simulates the dates; none while no growth is known.
    pub fn of(plan: &Plan, smoosh: &Channels, now: Moment) -> Option<Self> {
        let (snapshot, conditions) = (Arc::clone(&plan.snapshot), plan.conditions.clone());
        let present = Present { snapshot, conditions, now };
        let stop = CancellationToken::new();
        let forecast = Forecast::new(&present, SPAN, &stop).ok()?;
        let full_at = |policy| {
            let outlook = forecast.outlook(&Proposal { name: String::new(), policy });
            outlook.volumes.into_iter().map(|volume| (volume.name, volume.full_at))
        };
        let uncompacted = full_at(None);
        let mut smoosh = full_at(Some(Policy::smoosh(smoosh))).map(|(_, at)| at);
        let mut compacted = full_at(Some(Policy::in_force(plan))).map(|(_, at)| at);
        let volumes = uncompacted.map(|(name, uncompacted)| {
            let (smoosh, compacted) = (smoosh.next().flatten(), compacted.next().flatten());
            (name, FillDates { uncompacted, compacted, smoosh, is_simulated: true })
        });
        Some(Self { from: now, volumes: volumes.collect() })
    }
}

/// How long this space lasts at this rate; none if more than ten years.
pub fn time_until_full(free_bytes: f64, bytes_per_second: f64) -> Option<Duration> {
    let seconds = (bytes_per_second > 0.0).then(|| free_bytes / bytes_per_second)?;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= FAR)
}
