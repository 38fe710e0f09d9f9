//! The forecasts of volumes: without compaction, under smoosh, and under the rules in force.
//!
//! Owns the simulations that they need. A simulation takes seconds for a million targets, so it runs
//! on another thread once a day, or every few hours while a volume is about to fill.

use super::{Outlooks, Policy, Present, Proposal};
use crate::{
    model::{
        channel::{Channels, Mode},
        forecast::{
            Forecast, FreedCourse, GrowthHistories, VolumeFacts, Widening, Withheld, forecast,
        },
    },
    plan::{Plan, disk::Volume},
    table::Waste,
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;
use wall_clock::Moment;

/// The longest simulated time; after it, compactions continue as in its second half.
const SPAN: Duration = Duration::from_secs(30 * 86_400);

/// What compactions free on each volume, by its name.
type FreedByVolume = BTreeMap<Arc<str>, FreedCourse>;

/// The simulations that forecasts need.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedRules {
    /// The moment at which they begin.
    from: Moment,
    /// With smoosh as configured.
    smoosh: FreedByVolume,
    /// With the rules in force, as if they were enforced.
    in_force: FreedByVolume,
}

/// The forecasts of one volume under several rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeForecasts {
    /// If nothing is compacted.
    pub uncompacted: Forecast,
    /// With smoosh as configured.
    pub smoosh: Forecast,
    /// With the rules in force, as if they were enforced.
    pub in_force: Forecast,
}

impl VolumeForecasts {
    /// The forecast with the compactions that really run.
    pub const fn expected(&self, mode: Mode) -> &Forecast {
        match mode {
            Mode::Advise => &self.smoosh,
            Mode::Enforce => &self.in_force,
        }
    }
}

impl SimulatedRules {
    /// Simulates the rules for forecasts with this reach; `None` while no growth of files is known.
    pub fn of(plan: &Plan, smoosh: &Channels, reach: Duration, now: Moment) -> Option<Self> {
        let (snapshot, conditions) = (Arc::clone(&plan.snapshot), plan.conditions.clone());
        let present = Present { snapshot, conditions, now };
        let stop = CancellationToken::new();
        let outlooks = Outlooks::new(&present, reach.min(SPAN), &stop).ok()?;
        let freed = |policy| {
            let outlook = outlooks.outlook(&Proposal { name: String::new(), policy: Some(policy) });
            outlook.volumes.into_iter().map(|volume| (volume.name, volume.freed)).collect()
        };
        Some(Self {
            from: now,
            smoosh: freed(Policy::smoosh(smoosh)),
            in_force: freed(Policy::in_force(plan)),
        })
    }
}

/// The forecast of one volume of a plan, given what compactions free. `None` if its free space is unknown.
pub fn volume_forecast(
    plan: &Plan,
    volume: &Volume,
    histories: &GrowthHistories,
    (freed, widening): (&FreedCourse, Widening),
    now: Moment,
) -> Option<Result<Forecast, Withheld>> {
    let space = volume.space?;
    let waste_bytes = plan.waste_on(volume).and_then(Waste::reclaimable_bytes);
    let history = histories.get(&*volume.name);
    Some(match (waste_bytes, history) {
        _ if volume.is_stated => Err(Withheld::Stated),
        (None, _) => Err(Withheld::FilesUnknown),
        (_, None) if space.size.is_none() => Err(Withheld::SizeUnknown),
        (_, None) => Err(Withheld::Watched(Duration::ZERO)),
        (Some(waste_bytes), Some(history)) => {
            let free_bytes = space.available;
            forecast(&VolumeFacts { history, free_bytes, waste_bytes, freed, widening }, now)
        }
    })
}

/// The forecasts of one volume of a plan.
pub fn volume_forecasts(
    plan: &Plan,
    volume: &Volume,
    histories: &GrowthHistories,
    (simulated, widening): (Option<&SimulatedRules>, Widening),
    now: Moment,
) -> Option<Result<VolumeForecasts, Withheld>> {
    let of = |freed: &FreedCourse| volume_forecast(plan, volume, histories, (freed, widening), now);
    let uncompacted = match of(&FreedCourse::default())? {
        Ok(uncompacted) => uncompacted,
        Err(withheld) => return Some(Err(withheld)),
    };
    let under = |rules: fn(&SimulatedRules) -> &FreedByVolume| {
        let simulated = simulated?;
        let freed = rules(simulated).get(&volume.name)?.since(simulated.from.age(now));
        of(&freed)?.ok()
    };
    let simulated = under(|it| &it.smoosh).zip(under(|it| &it.in_force));
    Some(simulated.map_or(Err(Withheld::NotSimulated), |(smoosh, in_force)| {
        Ok(VolumeForecasts { uncompacted, smoosh, in_force })
    }))
}
